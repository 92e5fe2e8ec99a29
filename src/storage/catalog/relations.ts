/** Relations of a session to all others: its original, and the shortest unique beginning of its id. */

import type { Listed } from "../../core/ports/catalog.ts";
import { findBeginningAmong, findParents, findPlaceInOrder } from "../../core/search/listing.ts";
import type { SessionRow } from "./session-row.ts";
import { sortInSlices } from "./slices.ts";

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
    if (!this.ids || before?.id === after?.id) return;
    if (before) this.ids.splice(findPlaceInOrder(this.ids, before.id), 1);
    if (after) this.ids.splice(findPlaceInOrder(this.ids, after.id), 0, after.id);
  }

  /** Forgets the data that `note` updates, before so many changes that making it anew is faster. */
  forget(): void {
    this.parents = undefined;
    this.ids = undefined;
  }

  /** Sorts the ids for `shortId`, so that no caller waits for that. */
  async prepare(): Promise<void> {
    this.ids ??= await sortInSlices(
      Array.from(this.rows.values(), ({ id }) => id),
      (a, b) => (a < b ? -1 : a > b ? 1 : 0),
    );
  }

  /** Returns the original of a fork, if that is known. */
  parentOf({ path, parentSession }: Listed): SessionRow | undefined {
    if (parentSession === null) return undefined;
    const there = parentSession === path ? undefined : this.rows.get(parentSession);
    if (there) return there;
    // It was moved, or it is gone: then all are needed to find it.
    this.parents ??= new Map(
      Array.from(findParents([...this.rows.values()]), ([child, parent]) => [child.path, parent.path]),
    );
    return this.rows.get(this.parents.get(path) ?? "");
  }

  /** Returns the beginning of an id that no other session's id has. */
  shortId(id: string): string {
    this.ids ??= Array.from(this.rows.values(), ({ id }) => id).sort();
    return findBeginningAmong(id, this.ids);
  }
}
