/** Where a session stands among all others: which one it was forked from, and how much of its id tells it apart. */

import type { Listed } from "../../core/ports/catalog.ts";
import { parentsOf, uniqueBeginning } from "../../core/search/listing.ts";
import type { SessionRow } from "./cached-rows.ts";

export class Relations {
  private readonly rows: ReadonlyMap<string, SessionRow>;
  /** Paths of parents by those of their forks; undefined until they are asked for. */
  private parents: Map<string, string> | undefined;
  /** All ids, in order; undefined until they are asked for. */
  private ids: string[] | undefined;

  constructor(rows: ReadonlyMap<string, SessionRow>) {
    this.rows = rows;
  }

  /** Records that a session was added, replaced or removed. One that has only grown changes nothing. */
  note(before: Listed | undefined, after: Listed | undefined): void {
    if (before?.id === after?.id && before?.parentSession === after?.parentSession) return;
    this.parents = undefined;
    this.ids = undefined;
  }

  /** Returns the session that one was forked from, where that is known. */
  parentOf({ path, parentSession }: Listed): Listed | undefined {
    if (parentSession === null) return undefined;
    const there = parentSession === path ? undefined : this.rows.get(parentSession);
    if (there) return there.listed;
    // It was moved, or it is gone: then all are needed to find it.
    this.parents ??= new Map(
      Array.from(parentsOf(Array.from(this.rows.values(), ({ listed }) => listed)), ([child, parent]) => [
        child.path,
        parent.path,
      ]),
    );
    return this.rows.get(this.parents.get(path) ?? "")?.listed;
  }

  /** Returns the beginning of an id that no other session's id has. */
  shortId(id: string): string {
    this.ids ??= Array.from(this.rows.values(), ({ listed }) => listed.id).sort();
    const { ids } = this;
    let low = 0;
    for (let high = ids.length; low < high; ) {
      const middle = (low + high) >> 1;
      if (ids[middle] < id) low = middle + 1;
      else high = middle;
    }
    let past = low;
    while (ids[past] === id) past++;
    return uniqueBeginning(
      id,
      [ids[low - 1], ids[past]].filter((other) => other !== undefined),
    );
  }
}
