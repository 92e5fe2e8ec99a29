/** The entries that a session writes, as lines: with their ids, parents and times. */

import { Failure } from "../failure.ts";
import {
  type Batch,
  type Draft,
  ENTRY_ID,
  makeDraft,
  makeNewLine,
  makeNewPlace,
  type NewPlace,
} from "../format/entry.ts";
import { LEAF_MARKER } from "../format/node-reader.ts";
import { type Env, makeTimestamp } from "../ports/env.ts";
import { type Head, packId } from "../tree/nodes.ts";
import type { SessionEntries } from "./entries.ts";

/** The part of a batch that all entries of an append share. */
type BatchOf = Omit<Batch, "index" | "count">;

export function makeBatch(session: string, key: string | undefined, head: string | null): BatchOf {
  return { session, key, head: head ?? undefined };
}

/** Returns the part of one entry. Written out, because an object of one shape is written as JSON in less time. */
function partOf({ session, key, head, retired }: BatchOf, index: number, count: number): Batch {
  return { session, key, head, retired, index, count };
}

/** Lines to write, each with its head if that is known without reading it, and the ids of entries. */
export class NewLines {
  readonly lines: Uint8Array[];
  readonly heads: (Head | undefined)[];
  readonly ids: string[];
  /** True if an entry does not continue the one before it, or the first the leaf. */
  branchChanged: boolean;

  /** Has room for so many lines: an array that grows gets room for 17. */
  constructor(count: number) {
    this.lines = new Array(count);
    this.heads = new Array(count);
    this.ids = new Array(count);
    this.branchChanged = false;
  }

  set(index: number, draft: Draft, place: NewPlace, batch: Batch | undefined): void {
    const { line, head } = makeNewLine(draft, place, batch);
    this.lines[index] = line;
    this.heads[index] = head;
    this.ids[index] = place.id;
  }

  /** Returns the same lines after that of a marker. */
  after(marker: NewLines): Omit<NewLines, "set" | "after"> {
    return { ...this, lines: [...marker.lines, ...this.lines], heads: [...marker.heads, ...this.heads] };
  }
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
   * the entry at `leaf`, whose id is an argument, too. Throws invalid_entry, entry_not_found.
   */
  linesOf(drafts: readonly Draft[], leaf: number, leafId: string | null, batch?: BatchOf): NewLines {
    const { nodes } = this.entries.log;
    const count = drafts.length;
    const made = new NewLines(count);
    const others = count > 1 ? new Set<string>() : undefined;
    let parentId = leafId;
    let packedParent = leaf < 0 ? -1 : nodes.packedId(leaf);
    for (let index = 0; index < count; index++) {
      const draft = drafts[index];
      const id = draft.id === undefined ? this.newId(others) : this.checkedId(draft.id, others);
      const packedId = packId(id);
      if (draft.parentId !== undefined && draft.parentId !== parentId) {
        parentId = draft.parentId;
        packedParent = parentId === null ? -1 : packId(parentId);
        if (parentId !== null && this.entries.find(parentId) < 0 && !others?.has(parentId)) {
          const sentence = `The parent ${parentId} is not an entry of this session. Leave parentId out to continue the leaf.`;
          throw new Failure("entry_not_found", sentence, { entryId: parentId, path: `entries.${index}.parentId` });
        }
        made.branchChanged = true;
      }
      const place = { id, packedId, parentId, packedParent, timestamp: draft.timestamp ?? makeTimestamp(this.env) };
      made.set(index, draft, place, batch && partOf(batch, index, count));
      others?.add(id);
      parentId = id;
      packedParent = packedId;
    }
    return made;
  }

  /** Returns the line of a leaf marker: its parent was the leaf of its writer. */
  marker(parentId: string | null, batch?: BatchOf): NewLines {
    const data = parentId === null ? { leafId: null } : undefined;
    const draft = makeDraft("custom", { customType: LEAF_MARKER, data });
    const made = new NewLines(1);
    made.set(0, draft, makeNewPlace(this.newId(), parentId, makeTimestamp(this.env)), batch && partOf(batch, 0, 1));
    return made;
  }

  /** Returns an id that no entry has. */
  newId(others?: ReadonlySet<string>): string {
    for (let tries = 0; tries < 100; tries++) {
      const id = this.env.entryId();
      if (!this.isTaken(id) && !others?.has(id)) return id;
    }
    return this.env.sessionId();
  }

  private checkedId(id: string, others: ReadonlySet<string> | undefined): string {
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
}
