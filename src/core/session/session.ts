/** A session: a tree joined to its log. Everything a command does to one conversation goes through here. */

import { boundaryFault } from "../context/compaction.ts";
import {
  type Bodies,
  type Context,
  contextAt,
  contextCount,
  isVoid,
  keptFrom,
  levelAt,
  type Model,
  messageText,
  modelAt,
} from "../context/context.ts";
import { type Dangling, type DanglingCall, danglingCalls } from "../context/pairing.ts";
import { foldSystemMessages, type SystemMessage } from "../context/system.ts";
import { Failure } from "../failure.ts";
import { withAttachments } from "../format/attachments.ts";
import type { Damage } from "../format/damage.ts";
import { type Batch, type Draft, draftOf, ENTRY_ID, type Entry, entryLine } from "../format/entry.ts";
import { LEAF_MARKER } from "../format/head.ts";
import { parse } from "../json/json.ts";
import { type Env, timestamp } from "../ports/env.ts";
import type { Log } from "../ports/store.ts";
import type { LeafMemory } from "../ports/stores.ts";
import { KNOWN_TYPES, type Nodes, ROOT } from "../tree/nodes.ts";
import { Tree } from "../tree/tree.ts";

export type { Model } from "../context/context.ts";

/**
 * Entry types that set up a session before its conversation: they wait in memory for the first entry of another type.
 */
const SETUP_TYPES = new Set(["model_change", "thinking_level_change", "session_info"]);

/** Entries at the end that are searched for a repeated idempotency key (protocol, `append`). */
const KEY_WINDOW = 10_000;

export interface Appended {
  readonly ids: string[];
  /** The lines of the new entries, as they were written. */
  readonly lines: readonly Uint8Array[];
  /** The leaf before the append. */
  readonly oldLeafId: string | null;
  /** Whether the new entries do not continue the old leaf. */
  readonly branchChanged: boolean;
}

/** An entry that a repair completes. */
export interface Incomplete {
  readonly position: number;
  readonly damage: Damage;
  /** Returns its line, completed. */
  mend(line: Uint8Array): Uint8Array;
}

/** Changes by other programs that were found since they were last requested. */
export interface Foreign {
  /** Positions of their entries, in the order in which they were found. */
  readonly positions: readonly number[];
  /** Entries of this session that its file no longer holds. */
  readonly lost: number;
}

export class Session implements Bodies {
  private logNow: Log;
  readonly env: Env;
  private readonly leaves: LeafMemory | undefined;
  /** Whether a position that the entries do not give outlives the session: it is recorded, and written as a marker. */
  private readonly keepsLeaf: boolean;
  private treeNow!: Tree;
  /** Display name: the last one set in file order, as Pi has it; null when none or emptied. */
  name: string | null = null;
  /** Ambiguities found at opening, besides the log's own damage. */
  private found: Damage[] = [];
  private voids = new Set<number>();
  /** The leaf that a failed commit goes back to. */
  private durableLeaf = ROOT;
  /** Whether the leaf differs from the one that the file gives, and no record of it is durable yet. */
  private leafMoved = false;
  /** Whether it released its lock; it takes it again with the next change. */
  resting = false;
  private heededLosses = 0;
  /**
   * Changes by other programs that were not requested yet: ids of their entries, because positions change with the log.
   */
  private untold: { ids: string[]; lost: number } = { ids: [], lost: 0 };
  /** Number of items of the log's damage that were reported, and earlier items that are still to be reported. */
  private toldDamage = 0;
  private untoldDamage: Damage[] = [];
  /** Number of entries in the tree and in the facts about the session; the log may be ahead after a failed read. */
  private taken = 0;
  /** Function that gives the leaf once the tree is rebuilt; undefined while the tree is valid. */
  private leafDue: (() => number) | undefined;
  /** The leaf that the file alone gives, once it was needed. */
  private fileLeaf: number | undefined;
  private keys: Map<string, { ids: string[]; leafId: string | null }> | undefined;
  /** Number of entries at opening; later ones may belong to a turn that is still going on. */
  private openedWith = 0;
  /** Results of the last request for each; a path never changes, so they hold for as long as the tree does. */
  private counted: { tree: Tree; leaf: number; messages: number } | undefined;
  private named: { tree: Tree; by: number; model: Model | null } | undefined;
  private levelled: { tree: Tree; by: number; level: string | undefined } | undefined;
  private dangling: Dangling | undefined;

  constructor(log: Log, env: Env, leaves?: LeafMemory, keepsLeaf = true) {
    this.logNow = log;
    this.env = env;
    this.leaves = leaves;
    this.keepsLeaf = keepsLeaf;
    this.readTree();
    this.tree.leaf = this.firstLeaf();
    this.durableLeaf = this.tree.leaf;
    this.toldDamage = log.damage.length;
    this.openedWith = log.nodes.count;
  }

  get log(): Log {
    return this.logNow;
  }

  /** Throws storage_failed while the tree must be rebuilt and cannot be. */
  get tree(): Tree {
    if (this.leafDue) this.renewTree(this.leafDue);
    return this.treeNow;
  }

  get id(): string {
    return this.log.header.id;
  }

  get file(): string | null {
    return this.log.file;
  }

  get cwd(): string {
    return this.log.header.cwd ?? "";
  }

  get parentSession(): string | null {
    return this.log.header.parentSession ?? this.log.header.branchedFrom ?? null;
  }

  get leafId(): string | null {
    return this.idOrNull(this.tree.leaf);
  }

  get diagnostics(): readonly Damage[] {
    return this.found.length === 0 ? this.log.damage : [...this.log.damage, ...this.found];
  }

  idOrNull(position: number): string | null {
    return position < 0 ? null : this.log.nodes.id(position);
  }

  /** Returns the position of the entry with that id. Throws entry_not_found. */
  position(entryId: string): number {
    const position = this.log.nodes.position(entryId);
    if (position < 0 || !this.tree.isVisible(position))
      throw new Failure(
        "entry_not_found",
        `Entry not found: ${entryId}. get_entries and get_tree show the ids that exist.`,
        { entryId },
      );
    return position;
  }

  line(position: number): Uint8Array {
    return this.log.read(position);
  }

  entry(position: number): Entry {
    return parse(this.log.read(position)) as Entry;
  }

  // --- reading -------------------------------------------------------------------------------------------------

  context(leaf: number = this.tree.leaf): Context {
    this.heedLosses();
    return contextAt(this.tree, this, leaf);
  }

  /** Yields the JSON texts of the messages at a leaf, or of some of them; each is valid until the next is requested. */
  *messageTexts(items: Context["items"]): Generator<Uint8Array> {
    const positions = items.map(({ position }) => position);
    const lines = this.log.readMany(positions, true)[Symbol.iterator]();
    for (const item of items) {
      const text = messageText(this.tree, this, item, lines.next().value);
      if (text) yield withAttachments(text, (sha256, size) => this.log.attachment(item.position, sha256, size));
    }
  }

  messageCount(): number {
    this.heedLosses();
    const { leaf } = this.tree;
    if (this.counted?.tree !== this.tree || this.counted.leaf !== leaf)
      this.counted = { tree: this.tree, leaf, messages: contextCount(this.tree, this, leaf) };
    return this.counted.messages;
  }

  /** Rebuilds the tree after newly found unreadable messages. Returns whether it did. */
  heedLosses(): boolean {
    const { losses } = this.log.nodes;
    if (losses === this.heededLosses) return false;
    const { leaf } = this.tree;
    this.renewTree(() => leaf);
    return true;
  }

  /** Returns the damage that was found since the last call, or since the session was opened. */
  freshDamage(): readonly Damage[] {
    const { damage } = this.log;
    if (damage.length === this.toldDamage && this.untoldDamage.length === 0) return [];
    const fresh = [...this.untoldDamage, ...damage.slice(this.toldDamage)];
    this.toldDamage = damage.length;
    this.untoldDamage = [];
    return fresh;
  }

  /**
   * Returns what other programs did since the last call, as far as it was found; null for nothing. Throws
   * storage_failed.
   */
  freshForeign(): Foreign | null {
    const { ids, lost } = this.untold;
    if (ids.length === 0 && lost === 0) return null;
    const known = [...new Set(ids)].map((id) => this.log.nodes.position(id)).filter((position) => position >= 0);
    const positions = known.filter((position) => this.tree.isVisible(position));
    this.untold = { ids: [], lost: 0 };
    return { positions, lost };
  }

  /**
   * Returns the tool calls at the end of the path that had no result when the session was opened, so that nobody is
   * working on them. Calls further up can no longer be answered. Reads what comes after the last assistant message.
   */
  danglingCalls(): readonly DanglingCall[] {
    const { leaf } = this.tree;
    let speaker = this.tree.lastModel(leaf);
    while (speaker >= 0 && this.log.nodes.role(speaker) !== "assistant")
      speaker = this.tree.lastModel(this.log.nodes.parent(speaker));
    if (speaker < 0 || speaker >= this.openedWith) return [];
    const compaction = this.tree.lastCompaction(leaf);
    const from = compaction === ROOT ? ROOT : keptFrom(this.tree, this, compaction).first;
    // Nothing that a compaction has cut away is shown.
    if (from >= 0 && this.tree.depth(from) > this.tree.depth(speaker)) return [];
    if (this.dangling?.leaf !== leaf || this.dangling.speaker !== speaker)
      this.dangling = danglingCalls(this.tree, this, leaf, speaker, this.dangling);
    return this.dangling.calls;
  }

  /** Returns the model in force at a position: the nearest one named on its path, else the header's. */
  model(at: number = this.tree.leaf): Model | null {
    const { provider, modelId } = this.log.header;
    const first = provider !== undefined && modelId !== undefined ? { provider, id: modelId } : null;
    const namedBy = this.tree.lastModel(at);
    if (this.named?.tree !== this.tree || this.named.by !== namedBy)
      this.named = { tree: this.tree, by: namedBy, model: modelAt(this.tree, this, at) };
    return this.named.model ?? first;
  }

  thinkingLevel(at: number = this.tree.leaf): string {
    const namedBy = this.tree.lastLevel(at);
    if (this.levelled?.tree !== this.tree || this.levelled.by !== namedBy)
      this.levelled = { tree: this.tree, by: namedBy, level: levelAt(this.tree, this, at) };
    return this.levelled.level ?? this.log.header.thinkingLevel ?? "off";
  }

  /** Yields the visible entries in file order, from a position on. */
  *visible(from = 0): Generator<number> {
    for (let p = from; p < this.log.nodes.count; p++) if (this.tree.isVisible(p)) yield p;
  }

  // --- writing -------------------------------------------------------------------------------------------------

  /**
   * Throws read_only unless what follows writes nothing to the log, and content_modified when the leaf is not the
   * expected one.
   */
  guard(expectedLeafId: string | null | undefined, writesNothing = false): void {
    if (this.log.readOnly && !writesNothing) throw this.log.readOnly;
    if (expectedLeafId !== undefined && expectedLeafId !== this.leafId)
      throw new Failure("content_modified", undefined, { leafId: this.leafId });
  }

  /**
   * Appends drafts at the leaf, or where a draft's `parentId` says; each further draft continues the one before.
   * Appends all or none. Several drafts, or drafts with a key, are marked as one batch, so that a torn write is
   * recognised. With `hold`, a session that is not stored yet stays so; by default, entries that only set it up are
   * held. Throws invalid_entry, entry_not_found, read_only and the log's failures.
   */
  append(drafts: readonly Draft[], key?: string, hold = drafts.every(({ type }) => SETUP_TYPES.has(type))): Appended {
    if (this.log.readOnly) throw this.log.readOnly;
    // Before we had the lock, another server may have written.
    if (this.log.takeLock()) this.look();
    const { nodes } = this.log;
    const oldLeafId = this.leafId;
    const lines: Uint8Array[] = [];
    const ids: string[] = [];
    /** The ids so far, if there are several drafts. */
    const others = drafts.length > 1 ? new Set<string>() : undefined;
    let parentId = oldLeafId;
    let branchChanged = false;
    /** Whether the entries follow each other, the first at a place that the file gives as the leaf. */
    let straight = this.log.persisted;
    if (this.needsMarkerBefore(drafts[0]))
      lines.push(this.marker(drafts[0].parentId === undefined ? oldLeafId : drafts[0].parentId));
    const batched = drafts.length > 1 || key !== undefined;
    for (let index = 0; index < drafts.length; index++) {
      const draft = drafts[index];
      const id = this.idFor(draft, others);
      if (draft.parentId !== undefined && draft.parentId !== parentId) {
        if (draft.parentId !== null && !this.isKnown(draft.parentId) && !others?.has(draft.parentId))
          throw new Failure(
            "entry_not_found",
            `The parent ${draft.parentId} is not an entry of this session. Leave parentId out to continue the leaf.`,
            { entryId: draft.parentId, path: `entries.${index}.parentId` },
          );
        parentId = draft.parentId;
        branchChanged = true;
        if (index > 0) straight = false;
      }
      const batch: Batch | undefined = batched
        ? { session: this.id, ...(key === undefined ? {} : { key }), index, count: drafts.length }
        : undefined;
      const since = draft.timestamp ?? timestamp(this.env);
      lines.push(entryLine({ type: draft.type, id, parentId, timestamp: since, rest: draft.rest }, batch));
      ids.push(id);
      others?.add(id);
      parentId = id;
    }
    const first = nodes.count;
    try {
      this.resting = false;
      this.log.append(lines, { hold });
    } catch (error) {
      // A write that was cut off again changed the file, and a record of the leaf names the file as it was.
      this.leafMoved = this.tree.leaf !== this.leafFound();
      throw error;
    }
    const alone = nodes.count - first === lines.length;
    if (!alone)
      for (let position = first; position < nodes.count; position++)
        if (!ids.includes(nodes.id(position)) && !nodes.isMarker(position)) this.untold.ids.push(nodes.id(position));
    for (let position = first; position < nodes.count; position++)
      this.takeIn(position, alone ? lines[position - first] : undefined);
    this.tree.leaf = alone ? nodes.count - 1 : nodes.position(parentId as string);
    // After entries of other programs, and after a jump to a label, the file alone gives another leaf than ours.
    this.fileLeaf = straight && alone ? this.tree.leaf : undefined;
    this.leafMoved = this.tree.leaf !== this.leafOfFile();
    if (this.settled) this.durableLeaf = this.tree.leaf;
    const own = lines.length === drafts.length ? lines : lines.slice(-drafts.length);
    const appended = { ids, lines: own, oldLeafId, branchChanged };
    if (key !== undefined) this.keys?.set(key, { ids, leafId: this.leafId });
    return appended;
  }

  /**
   * Returns the result of an append with this key that was applied before. Survives a restart: the key is in the
   * entries.
   */
  repeated(key: string): { ids: string[]; leafId: string | null } | undefined {
    this.keys ??= this.readKeys();
    return this.keys.get(key);
  }

  /** Moves the leaf; durable after `commit`. Nothing is written to the session file. */
  moveLeaf(position: number): void {
    if (position === this.tree.leaf) return;
    this.tree.leaf = position;
    this.leafMoved = true;
  }

  /**
   * Returns a compaction at the leaf that keeps from an entry of the path on, or nothing. It contains the system prompt
   * in force, because the system messages before it are not shown any more. Throws invalid_boundary.
   */
  compactionDraft(compaction: {
    summary: string;
    firstKeptEntryId: string | null;
    tokensBefore: number;
    details?: unknown;
    usage?: unknown;
    fromHook?: boolean;
  }): Draft {
    const { firstKeptEntryId } = compaction;
    const id = this.newEntryId();
    if (firstKeptEntryId !== null) {
      const first = this.log.nodes.position(firstKeptEntryId);
      const fault =
        first < 0
          ? { reason: `Entry not found: ${firstKeptEntryId}. get_path lists the entries to choose from.`, nearest: [] }
          : boundaryFault(this.tree, this, this.tree.leaf, first);
      if (fault)
        throw new Failure("invalid_boundary", fault.reason, { entryId: firstKeptEntryId, nearest: fault.nearest });
    }
    const since = timestamp(this.env);
    const systemMessage = this.systemMessage(Date.parse(since));
    return {
      ...draftOf("compaction", { ...compaction, firstKeptEntryId: firstKeptEntryId ?? id, systemMessage }),
      id,
      timestamp: since,
    };
  }

  /** Merges the system messages at the leaf. */
  private systemMessage(time: number): SystemMessage | undefined {
    const patches: object[] = [];
    for (const { position, kind } of this.context().items) {
      if (kind === "summary" || (kind === "message" && this.log.nodes.role(position) !== "system")) continue;
      const entry = this.entry(position);
      const patch = kind === "system" ? entry.systemMessage : entry.message;
      if (typeof patch === "object" && patch !== null) patches.push(patch);
    }
    return foldSystemMessages(patches, time);
  }

  /**
   * Resolves when all that was appended or moved before is durable; on a failure the session returns to its durable
   * state.
   */
  async commit(): Promise<void> {
    const leaf = this.tree.leaf;
    const moved = this.leafMoved;
    const count = this.log.nodes.count;
    try {
      // The position comes first: it is of use only with the file as it is now, so a failure of either undoes both.
      if (moved && this.recordsLeaf) await this.leaves?.record(this.log, this.idOrNull(leaf));
      await this.log.commit();
    } catch (error) {
      this.log.rollBack();
      this.undo();
      // A record that was written, but not durably, names a position that was given up.
      this.leafMoved ||= moved;
      throw error;
    }
    this.durableLeaf = leaf;
    if (moved && this.tree.leaf === leaf && this.log.nodes.count === count) this.leafMoved = false;
  }

  /** Whether there is nothing that `commit` would have to wait for. */
  get settled(): boolean {
    const { log } = this;
    if (log.durableCount < log.nodes.count || log.isCheckpointDue) return false;
    return !(this.leafMoved && this.recordsLeaf);
  }

  private get recordsLeaf(): boolean {
    if (!this.keepsLeaf || this.leaves === undefined) return false;
    return this.log.persisted && this.log.readOnly === null && this.log.lockedBy === null;
  }

  /** Leaves the session: writes a marker into it if the file alone would not give the position. */
  async leave(): Promise<void> {
    if (this.log.readOnly || !this.log.persisted || this.tree.leaf === this.leafFound()) return;
    // If another process is the writer now, our position is not written.
    if (!this.becomeWriter() && this.log.lockedBy) return;
    let first = this.log.nodes.count;
    try {
      this.log.append([this.marker(this.leafId)]);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      // Another process became the writer in between.
      if (error.name === "session_locked") return;
      if (!isOthers(error)) throw error;
      try {
        this.look();
        if (this.tree.leaf === this.leafFound()) return;
        first = this.log.nodes.count;
        this.log.append([this.marker(this.leafId)]);
      } catch (again) {
        if (!(again instanceof Failure)) throw again;
        // Another program keeps changing the file; our record keeps the position.
        return await this.keepPosition();
      }
    }
    for (let position = first; position < this.log.nodes.count; position++) this.takeIn(position);
    this.fileLeaf = this.tree.leaf;
    try {
      await this.log.commit();
    } catch (error) {
      this.log.rollBack();
      this.undo();
      await this.keepPosition();
      throw error;
    }
    this.leaves?.forget(this.log);
  }

  /** Leaves the session and releases the lock, so that other programs can write while nothing happens here. */
  async rest(): Promise<void> {
    await this.leave();
    this.log.unlock();
    this.resting = true;
  }

  close(): void {
    this.log.close();
  }

  private undo(): void {
    const leaf = this.durableLeaf;
    this.keys = undefined;
    const leafDue = (): number => {
      const kept = leaf < this.log.nodes.count ? leaf : this.leafOfFile();
      // A record of the old position names the file as it was before it was cut back.
      this.leafMoved = kept !== this.leafFound();
      return kept;
    };
    try {
      this.renewTree(leafDue);
    } catch {
      // What made the commit fail may make this fail too; the next use of the tree reads it first.
    }
  }

  /** Records a durable position again after a failed commit, as far as the disk allows. */
  async keepPosition(): Promise<void> {
    if (!this.leafMoved || !this.recordsLeaf) return;
    const { leaf } = this.tree;
    const { count } = this.log.nodes;
    try {
      await this.leaves?.record(this.log, this.leafId);
      if (this.tree.leaf === leaf && this.log.nodes.count === count) this.leafMoved = false;
    } catch {
      // The next commit tries again; until then a crash leads back to the old position.
    }
  }

  // --- other programs ------------------------------------------------------------------------------------------

  /**
   * Adds what other programs did to the stored session since the last check, and what damaged lines were found to hide;
   * the leaf follows where they continue it. Returns what is to be reported of it. Throws storage_failed when the
   * session is missing or cannot be read, and content_modified when it was rewritten while changes of ours are not
   * durable yet. What was found until then is returned by the next call.
   */
  refresh(): Foreign | null {
    this.look();
    return this.freshForeign();
  }

  /**
   * Does the same before a change, as the only writer: no server like this one writes after that check. If another
   * process is the writer, the change itself fails with session_locked. Throws what `refresh` throws.
   */
  refreshToWrite(): Foreign | null {
    this.becomeWriter();
    const isOther = this.look();
    // The path may hold another file now, with a lock of its own.
    if (isOther && this.becomeWriter()) this.look();
    return this.freshForeign();
  }

  /** Checks for changes by other programs. Returns whether there were any. */
  private look(): boolean {
    const change = this.log.refresh();
    if (change.kind === "gone")
      throw new Failure(
        "storage_failed",
        "The session's file is missing. clone writes what is still known of it to a new session.",
        { errno: "ENOENT" },
        { retryable: false },
      );
    const { nodes } = this.log;
    if (change.kind === "replaced" || (change.kind === "none" && this.log.mayHideEntries && this.settled)) {
      this.rebase();
      return true;
    }
    const first = Math.min(this.taken, change.kind === "none" ? nodes.count : change.first);
    if (first === nodes.count) return false;
    const positions = Array.from({ length: nodes.count - first }, (_, n) => first + n);
    const { leaf } = this.tree;
    if (nodes.forward.size > 0) this.renewTree(() => leaf);
    else for (let position = this.taken; position < nodes.count; position++) this.takeIn(position);
    this.untold.ids.push(...positions.map((position) => nodes.id(position)));
    this.follow(positions);
    return true;
  }

  /** Takes the lock if it can be had. Returns whether this call acquired it. */
  private becomeWriter(): boolean {
    if (this.log.readOnly) return false;
    try {
      if (!this.log.takeLock()) return false;
    } catch (error) {
      if (error instanceof Failure) return false;
      throw error;
    }
    this.resting = false;
    return true;
  }

  private follow(positions: readonly number[]): void {
    const { nodes } = this.log;
    const { leaf } = this.tree;
    for (const position of positions)
      if (nodes.parent(position) === this.tree.leaf && !nodes.isMarker(position)) this.tree.leaf = position;
    this.fileLeaf = undefined;
    if (this.settled) this.durableLeaf = this.tree.leaf;
    if (this.tree.leaf === leaf && leaf !== this.leafOfFile()) this.leafMoved = true;
  }

  /** Continues with another log of the same session, which replaced this one. The old one is closed. */
  become(next: Log): void {
    this.rebase(next);
  }

  /**
   * Continues with the log that is now in the place of ours: its entries count, and the leaf stays if it is among them.
   * Changes nothing when that cannot be read.
   */
  private rebase(successor?: Log): void {
    if (!this.settled)
      throw new Failure(
        "content_modified",
        "Another program rewrote the session. Try again to see what is there now.",
        {
          leafId: this.leafId,
        },
      );
    const before = this.log;
    const { leafId } = this;
    const next = successor ?? before.reopen();
    this.logNow = next;
    try {
      this.readTree();
    } catch (error) {
      this.logNow = before;
      next.close();
      throw error;
    }
    this.found.length = 0;
    const kept = leafId === null ? ROOT : next.nodes.position(leafId);
    this.tree.leaf = leafId !== null && kept < 0 ? this.firstLeaf() : kept;
    this.keys = undefined;
    this.openedWith = Math.min(this.openedWith, next.nodes.count);
    const positions: number[] = [];
    for (let p = 0; p < next.nodes.count; p++) if (before.nodes.position(next.nodes.id(p)) < 0) positions.push(p);
    this.untold.ids.push(...positions.map((position) => next.nodes.id(position)));
    this.follow(positions);
    this.durableLeaf = this.tree.leaf;
    const damaged = stillDamaged(before, next);
    for (let p = 0; p < before.nodes.count; p++) {
      const id = before.nodes.id(p);
      if (next.nodes.position(id) < 0 && !damaged.has(id)) this.untold.lost++;
    }
    this.tellDamageSince(before);
    before.close();
  }

  /** Makes sure that damage is reported that the log before this one did not know. */
  private tellDamageSince(before: Log): void {
    const known = new Set(before.damage.slice(0, this.toldDamage).map(textOfDamage));
    for (const old of this.untoldDamage) known.delete(textOfDamage(old));
    this.untoldDamage = this.log.damage.filter((found) => !known.has(textOfDamage(found)));
    this.toldDamage = this.log.damage.length;
  }

  /**
   * Removes damage from the stored session, and adds what entries lack. Every body is read first, so that damage that
   * was not found yet counts too. Throws session_locked, read_only, storage_failed.
   */
  repair(
    dryRun: boolean,
    lackingIn: (session: Session) => readonly Incomplete[] = () => [],
  ): {
    repaired: readonly Damage[];
    backupPath: string | null;
  } {
    for (let position = 0; position < this.log.nodes.count; position++) this.log.read(position);
    if (this.log.mayHideEntries) this.rebase();
    const lacking = this.log.persisted ? lackingIn(this) : [];
    const repaired = [...this.log.mendable, ...lacking.map(({ damage }) => damage)];
    if (dryRun) return { repaired, backupPath: null };
    const backupPath = this.log.repair(new Map(lacking.map((one) => [one.position, (line) => one.mend(line)])));
    if (backupPath !== null) {
      const { lost } = this.untold;
      this.rebase();
      // The result reports what was removed.
      this.untold.lost = lost;
    }
    return { repaired, backupPath };
  }

  // --- what open reads -----------------------------------------------------------------------------------------

  /** Rebuilds the tree, and sets the leaf. If that fails, the next use of the tree tries again. */
  private renewTree(leafDue: () => number): void {
    this.leafDue = leafDue;
    this.readTree();
    try {
      this.treeNow.leaf = leafDue();
    } catch (error) {
      this.leafDue = leafDue;
      throw error;
    }
  }

  /**
   * Builds the tree of all entries, and the facts that they give about the session. Changes nothing when one cannot be
   * read.
   */
  private readTree(): void {
    const { nodes } = this.log;
    const { losses } = nodes;
    // Summaries that were checked before need not be read again.
    const telling = positionsOf(nodes, TELLING).filter((position) => !nodes.summarises(position));
    const voids = new Set<number>();
    const bodies: [number, Entry][] = [];
    let i = 0;
    for (const line of this.log.readMany(telling)) {
      const entry = parse(line) as Entry;
      const position = telling[i++];
      noteVoid(nodes, voids, position, entry);
      bodies.push([position, entry]);
    }
    this.treeNow = new Tree(nodes, { isVoid: (position) => voids.has(position) });
    this.voids = voids;
    this.taken = nodes.count;
    this.heededLosses = losses;
    this.leafDue = undefined;
    this.fileLeaf = undefined;
    this.dangling = undefined;
    this.name = null;
    for (const [position, entry] of bodies) this.applyFacts(position, entry);
  }

  /** Adds the entry after those that were added. */
  private takeIn(position: number, line?: Uint8Array): void {
    const { nodes } = this.log;
    if (TELLS[nodes.code(position)] === 1) {
      const entry = line ? (parse(line) as Entry) : this.entry(position);
      noteVoid(nodes, this.voids, position, entry);
      this.treeNow.extend(position);
      this.applyFacts(position, entry);
    } else this.treeNow.extend(position);
    this.taken = position + 1;
  }

  private applyFacts(position: number, entry: Entry): void {
    if (entry.type === "session_info") {
      const name = typeof entry.name === "string" ? entry.name.trim() : "";
      this.name = name === "" ? null : name;
    } else if (entry.type === "label" && typeof entry.targetId === "string") {
      const target = this.log.nodes.position(entry.targetId);
      if (target < 0) return;
      if (typeof entry.label === "string" && entry.label !== "")
        this.treeNow.labels.set(target, { label: entry.label, setBy: position });
      else this.treeNow.labels.delete(target);
    }
  }

  /** Returns the leaf at opening (session-format reference, section 5, rules 1 to 3). */
  private firstLeaf(): number {
    this.found = [];
    const recorded = this.leaves?.recall(this.log);
    if (recorded === null) return ROOT;
    if (recorded !== undefined) {
      const position = this.log.nodes.position(recorded);
      if (position >= 0) return this.placeOf(position);
    }
    const named = this.leafOfHeader();
    if (named !== undefined) return named;
    const { leaf, ambiguous } = this.readLeafOfFile();
    this.fileLeaf = leaf;
    if (ambiguous)
      this.found.push({
        kind: "ambiguous_leaf",
        line: 0,
        byteOffset: 0,
        length: 0,
        entryId: this.log.nodes.id(this.log.nodes.count - 1),
        reason: "The file ends with a label or name on another branch; the conversation's own last entry is the leaf.",
        salvaged: true,
      });
    return leaf;
  }

  /** Returns the leaf that the header names, until our first write removes it from there. */
  private leafOfHeader(): number | undefined {
    const { leafId } = this.log.header;
    if (leafId === undefined) return undefined;
    if (leafId === "") return ROOT;
    const position = this.log.nodes.position(leafId);
    return position >= 0 ? this.placeOf(position) : undefined;
  }

  /** Returns the leaf that the next opening would find without a record of ours. */
  private leafFound(): number {
    return this.leafOfHeader() ?? this.leafOfFile();
  }

  /** Returns the leaf that the entries of the file alone give. */
  private leafOfFile(): number {
    this.fileLeaf ??= this.readLeafOfFile().leaf;
    return this.fileLeaf;
  }

  /**
   * Applies rule 3: labels and names at the end of the file move the leaf only where they continue the conversation.
   */
  private readLeafOfFile(): { leaf: number; ambiguous: boolean } {
    const { nodes } = this.log;
    const last = nodes.count - 1;
    let decisive = last;
    while (decisive >= 0 && isAside(nodes.type(decisive))) decisive--;
    if (decisive < 0) return { leaf: last, ambiguous: false };
    const target = this.placeOf(decisive);
    if (decisive === last) return { leaf: target, ambiguous: false };
    let at = last;
    while (at >= 0 && at !== target && isAside(nodes.type(at))) at = nodes.parent(at);
    const descends = at === target || this.tree.isAncestor(target, at);
    return { leaf: descends ? last : target, ambiguous: !descends };
  }

  /** Returns the position, or the parent's if it is a leaf marker that no entry continues. */
  private placeOf(position: number): number {
    if (this.tree.isVisible(position)) return position;
    const parent = this.log.nodes.parent(position);
    return parent < 0 ? ROOT : parent;
  }

  // --- small parts of writing ----------------------------------------------------------------------------------

  private idFor(draft: Draft, others: ReadonlySet<string> | undefined): string {
    if (draft.id === undefined) return this.newEntryId(others);
    if (!ENTRY_ID.test(draft.id))
      throw new Failure(
        "invalid_entry",
        "An entry id is 1 to 128 letters, digits, underscores and hyphens. Leave it out to get one.",
        { entryId: draft.id },
      );
    if (this.isTaken(draft.id) || others?.has(draft.id))
      throw new Failure("invalid_entry", `The id ${draft.id} is taken. Leave it out to get a new one.`, {
        entryId: draft.id,
      });
    return draft.id;
  }

  /** Returns whether an id is that of an entry that the host can see. */
  private isKnown(id: string): boolean {
    const position = this.log.nodes.position(id);
    return position >= 0 && this.tree.isVisible(position);
  }

  private isTaken(id: string): boolean {
    return this.log.nodes.position(id) >= 0 || this.log.nodes.isAwaited(id);
  }

  /** Returns an id that no entry of this session has. */
  newEntryId(others?: ReadonlySet<string>): string {
    for (let tries = 0; tries < 100; tries++) {
      const id = this.env.entryId();
      if (!this.isTaken(id) && !others?.has(id)) return id;
    }
    return this.env.sessionId();
  }

  /**
   * Returns whether a draft is a label or a name at a place that the file alone would not give as the leaf: it then
   * needs the marker before it.
   */
  private needsMarkerBefore(draft: Draft): boolean {
    if (!this.keepsLeaf || !isAside(draft.type) || !this.log.persisted) return false;
    const place =
      draft.parentId === undefined
        ? this.tree.leaf
        : draft.parentId === null
          ? ROOT
          : this.log.nodes.position(draft.parentId);
    return place !== this.leafOfFile();
  }

  /** Returns the line of a leaf marker. */
  private marker(parentId: string | null): Uint8Array {
    const data = parentId === null ? { leafId: null } : undefined;
    const draft = draftOf("custom", { customType: LEAF_MARKER, data });
    return entryLine({ ...draft, id: this.newEntryId(), parentId, timestamp: timestamp(this.env) });
  }

  private readKeys(): NonNullable<Session["keys"]> {
    const { nodes } = this.log;
    const keys: NonNullable<Session["keys"]> = new Map();
    let ids: string[] = [];
    for (let p = Math.max(0, nodes.count - KEY_WINDOW); p < nodes.count; p++) {
      if (!nodes.isBatch(p)) continue;
      const batch = this.entry(p)._batch as Partial<Batch> | null;
      if (batch?.session !== this.id || typeof batch.key !== "string") continue;
      if (batch.index === 0) ids = [];
      ids.push(nodes.id(p));
      // The rest of a torn batch was never acknowledged, wherever it is.
      if (ids.length === batch.count && batch.index === batch.count - 1)
        keys.set(batch.key, { ids, leafId: nodes.id(p) });
    }
    return keys;
  }

  /** Returns the kept entry that a compaction names, for a fork that must not leave it dangling. */
  firstKeptId(compaction: number): string | undefined {
    const id = this.entry(compaction).firstKeptEntryId;
    return typeof id === "string" ? id : undefined;
  }

  /** Returns whether the entry that a compaction keeps from is not where it has to be. */
  isBoundaryMisplaced(compaction: number): boolean {
    return keptFrom(this.tree, this, compaction).misplaced;
  }
}

/**
 * Returns whether a failure means that other programs changed the session's files meanwhile, and not a fault of the
 * disk.
 */
function isOthers({ name, retryable, cause }: Failure): boolean {
  return name === "storage_failed" && retryable && cause === undefined;
}

/** Notes whether a summary has anything to show. */
function noteVoid(nodes: Nodes, voids: Set<number>, position: number, entry: Entry): void {
  if (isVoid(entry)) voids.add(position);
  else if (entry.type === "compaction" || entry.type === "branch_summary") nodes.noteSummary(position);
}

/**
 * Returns the ids of entries that were reported as damage of a log and that the next one finds damaged in the same
 * place.
 */
function stillDamaged(before: Log, next: Log): Set<string> {
  const places = new Set(next.damage.map(({ byteOffset }) => byteOffset));
  const ids = new Set<string>();
  for (const { entryId, byteOffset } of before.damage)
    if (entryId !== undefined && places.has(byteOffset)) ids.add(entryId);
  return ids;
}

/** Returns a text that is equal for the same damage: two lists of one file's damage are compared by it. */
function textOfDamage({ kind, entryId, line, byteOffset, length, reason }: Damage): string {
  return JSON.stringify([kind, entryId, line, byteOffset, length, reason]);
}

/** Entry types whose bodies the tree needs from the start; all of them are small and few. */
const TELLING = ["session_info", "label", "branch_summary", "compaction"] as const;

/** Whether a type is in TELLING, by its code. */
const TELLS = Uint8Array.from(KNOWN_TYPES, (type) => (TELLING.some((telling) => telling === type) ? 1 : 0));

/**
 * Returns the entries of some types, in file order. Searching for each type is ten times faster than checking each
 * entry.
 */
function positionsOf(nodes: Nodes, wanted: readonly (typeof KNOWN_TYPES)[number][]): number[] {
  const { types } = nodes.columns();
  const found: number[] = [];
  for (const type of wanted) {
    const code = KNOWN_TYPES.indexOf(type);
    for (let p = types.indexOf(code); p >= 0; p = types.indexOf(code, p + 1)) found.push(p);
  }
  return found.sort((a, b) => a - b);
}

/** Returns whether entries of a type are about the conversation and not part of it. */
function isAside(type: string): boolean {
  return type === "label" || type === "session_info";
}
