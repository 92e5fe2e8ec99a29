/** The entries that a session writes, as lines: with their ids, parents and times. */

import { Failure } from "../failure.ts";
import { type Batch, type Draft, draftOf, ENTRY_ID, type NewLine, newLine } from "../format/entry.ts";
import { LEAF_MARKER } from "../format/head.ts";
import { type Env, timestamp } from "../ports/env.ts";
import type { SessionEntries } from "./entries.ts";

/** The part of a batch that all entries of an append share. */
export type BatchOf = Omit<Batch, "index" | "count">;

export function batchOf(session: string, key: string | undefined, head: string | null): BatchOf {
  return { session, key, head: head ?? undefined };
}

/** Returns the part of one entry. Written out, because an object of one shape is written as JSON in less time. */
function partOf({ session, key, head, retired }: BatchOf, index: number, count: number): Batch {
  return { session, key, head, retired, index, count };
}

export class EntryMaker {
  private readonly entries: SessionEntries;
  private readonly env: Env;

  constructor(entries: SessionEntries, env: Env) {
    this.entries = entries;
    this.env = env;
  }

  /**
   * Returns the lines of drafts, each of which continues the one before unless it names a parent; the first continues
   * `leafId`. Throws invalid_entry, entry_not_found.
   */
  linesOf(
    drafts: readonly Draft[],
    leafId: string | null,
    batch?: BatchOf,
  ): { written: NewLine[]; ids: string[]; branchChanged: boolean } {
    const written: NewLine[] = [];
    const ids: string[] = [];
    const others = drafts.length > 1 ? new Set<string>() : undefined;
    const count = drafts.length;
    let parentId = leafId;
    let branchChanged = false;
    for (let index = 0; index < count; index++) {
      const draft = drafts[index];
      const id = this.idFor(draft, others);
      if (draft.parentId !== undefined && draft.parentId !== parentId) {
        parentId = draft.parentId;
        if (parentId !== null && this.entries.find(parentId) < 0 && !others?.has(parentId)) {
          const sentence = `The parent ${parentId} is not an entry of this session. Leave parentId out to continue the leaf.`;
          throw new Failure("entry_not_found", sentence, { entryId: parentId, path: `entries.${index}.parentId` });
        }
        branchChanged = true;
      }
      written.push(this.lineOf(draft, id, parentId, batch && partOf(batch, index, count)));
      ids.push(id);
      others?.add(id);
      parentId = id;
    }
    return { written, ids, branchChanged };
  }

  /** Returns the line of a leaf marker: whoever wrote it was at its parent. */
  marker(parentId: string | null, batch?: BatchOf): NewLine {
    const data = parentId === null ? { leafId: null } : undefined;
    const draft = draftOf("custom", { customType: LEAF_MARKER, data });
    return this.lineOf(draft, this.newId(), parentId, batch && partOf(batch, 0, 1));
  }

  /** Returns an id that no entry has. */
  newId(others?: ReadonlySet<string>): string {
    for (let tries = 0; tries < 100; tries++) {
      const id = this.env.entryId();
      if (!this.isTaken(id) && !others?.has(id)) return id;
    }
    return this.env.sessionId();
  }

  private idFor({ id }: Draft, others: ReadonlySet<string> | undefined): string {
    if (id === undefined) return this.newId(others);
    const isWellFormed = ENTRY_ID.test(id);
    if (isWellFormed && !this.isTaken(id) && !others?.has(id)) return id;
    const sentence = isWellFormed
      ? `The id ${id} is taken. Leave it out to get a new one.`
      : "An entry id is 1 to 128 letters, digits, underscores and hyphens. Leave it out to get one.";
    throw new Failure("invalid_entry", sentence, { entryId: id });
  }

  private isTaken(id: string): boolean {
    const { nodes } = this.entries.log;
    return nodes.position(id) >= 0 || nodes.isAwaited(id);
  }

  /** Returns an entry as it is written; all that a session writes are made here. */
  private lineOf(draft: Draft, id: string, parentId: string | null, batch?: Batch): NewLine {
    return newLine(draft, id, parentId, draft.timestamp ?? timestamp(this.env), batch);
  }
}
