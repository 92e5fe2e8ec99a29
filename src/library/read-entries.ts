/** The entries of a manager's session as objects: the same ones at every call, as callers of Pi expect. */

import type { Bodies } from "../core/context/context.ts";
import type { Entry } from "../core/format/entry.ts";
import { parse } from "../core/json/json.ts";
import type { Log } from "../core/ports/store.ts";
import type { Session } from "../core/session/session.ts";
import type { SessionEntry, SessionTreeNode } from "./types.ts";

export class ReadEntries implements Bodies {
  private readonly session: () => Session;
  /** Entries that were requested, by position. */
  private known: (SessionEntry | undefined)[] = [];
  private knownOf: Log | undefined;

  constructor(session: () => Session) {
    this.session = session;
  }

  /** Forgets all entries, because positions may have others now. */
  forget(): void {
    this.knownOf = undefined;
  }

  line(position: number): Uint8Array {
    return this.session().line(position);
  }

  entry(position: number): Entry {
    return this.at(position) as Entry;
  }

  at(position: number): SessionEntry {
    return this.read()[position] ?? this.all([position])[0];
  }

  /** Returns the entries at these positions; those that were not requested before are read together. */
  all(positions: Iterable<number>): SessionEntry[] {
    const known = this.read();
    const wanted = [...positions];
    const unread = wanted.filter((position) => known[position] === undefined);
    let i = 0;
    for (const line of this.session().log.readMany(unread)) known[unread[i++]] = parse(line) as SessionEntry;
    return wanted.map((position) => known[position] as SessionEntry);
  }

  private read(): (SessionEntry | undefined)[] {
    const { log } = this.session();
    if (this.knownOf !== log) {
      this.knownOf = log;
      this.known = Array.from({ length: log.nodes.count });
    }
    return this.known;
  }

  tree(): SessionTreeNode[] {
    const { tree, log } = this.session();
    const positions = [...this.session().visible()];
    const roots: SessionTreeNode[] = [];
    const made: SessionTreeNode[] = [];
    for (const [index, entry] of this.all(positions).entries()) {
      const set = tree.labels.get(positions[index]);
      const labelTimestamp = set && this.at(set.setBy).timestamp;
      made[positions[index]] = { entry, children: [], label: set?.label, labelTimestamp };
    }
    for (const position of positions) {
      const parent = log.nodes.parent(position);
      (parent < 0 ? roots : made[parent].children).push(made[position]);
    }
    const time = ({ entry }: SessionTreeNode): number => Date.parse(entry.timestamp);
    for (const position of positions) made[position].children.sort((a, b) => time(a) - time(b));
    return roots;
  }
}
