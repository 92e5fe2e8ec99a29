/** A session: a tree joined to its log. Everything a command does to one conversation goes through here. */

import {
  type Bodies,
  type Context,
  countContextMessages,
  findBoundaryDamage,
  findFirstKept,
  getContext,
  getMessageText,
  getModelAt,
  getThinkingLevelAt,
  type Model,
} from "../context/context.ts";
import { type Dangling, type DanglingCall, findDanglingCalls, toDanglingDamage } from "../context/pairing.ts";
import { toNotUndoneFailure } from "../errno.ts";
import { Failure } from "../failure.ts";
import { resolveAttachments } from "../format/attachments.ts";
import type { Damage } from "../format/damage.ts";
import type { Draft, Entry } from "../format/entry.ts";
import { type ImageForm, removeEntryImages, removeImages } from "../format/images.ts";
import { limitMembers } from "../json/few-members.ts";
import { replaceHalvesInBytes } from "../json/halves.ts";
import { parse } from "../json/json.ts";
import type { SharedHolder } from "../ports/attach.ts";
import type { Env } from "../ports/env.ts";
import type { NewOperation, OperationLog } from "../ports/operations.ts";
import type { Log } from "../ports/store.ts";
import type { LeafMemory } from "../ports/stores.ts";
import { ROOT } from "../tree/nodes.ts";
import type { Tree } from "../tree/tree.ts";
import { type KeyedAppend, SessionEntries } from "./entries.ts";
import { EntryMaker, makeBatch, type NewLines } from "./entry-maker.ts";
import { SessionHeads } from "./heads.ts";
import { quoteText } from "./history.ts";
import { LeafTracker } from "./leaf.ts";
import { type ExternalChange, ExternalChanges } from "./refresh.ts";
import { type Incomplete, type Repair, repairSession } from "./repair.ts";

export type { Model } from "../context/context.ts";
export type { ExternalChange as Foreign } from "./refresh.ts";
export type { Incomplete } from "./repair.ts";

/** Entry types that set up a session: they wait in memory for the first entry of another type. */
const SETUP_TYPES = new Set(["model_change", "thinking_level_change", "session_info"]);

export interface Appended {
  readonly ids: string[];
  readonly lines: readonly Uint8Array[];
  readonly oldLeafId: string | null;
  /** True if the new entries do not continue the old leaf. */
  readonly branchChanged: boolean;
}

/** Lines to write, the ids of the entries among them, and their heads if they are known. */
type LinesToWrite = Pick<Appended, "lines"> & { readonly ids: readonly string[]; readonly heads?: NewLines["heads"] };

interface HowToWrite {
  readonly defer?: boolean;
  readonly head?: string | null;
  readonly retired?: boolean;
  readonly isBranch?: boolean;
}

export class Session implements Bodies {
  readonly env: Env;
  private readonly entries: SessionEntries;
  private readonly leaf: LeafTracker;
  /** Leaves of their own in addition to the shared one. */
  readonly heads: SessionHeads;
  private readonly maker: EntryMaker;
  /** Changes by other programs, and damage, that are not reported yet. */
  readonly externalChanges: ExternalChanges;
  /** The record of operations for undo; without it, nothing is recorded. */
  operations: OperationLog | undefined;
  isClosed = false;
  /** Ids of recorded operations that are not durable yet. */
  private noted: string[] = [];

  /** `keepsLeaf`: whether a position that the entries do not give outlives the session. */
  constructor(log: Log, env: Env, leaves?: LeafMemory, keepsLeaf = true) {
    this.env = env;
    this.entries = new SessionEntries(log, () => this.heads.leafOf(this.heads.own));
    this.leaf = new LeafTracker(this.entries, leaves, keepsLeaf);
    this.heads = new SessionHeads(this.entries, this.leaf);
    this.externalChanges = new ExternalChanges(this.entries, this.leaf, this.heads);
    this.maker = new EntryMaker(this.entries, env);
  }

  get log(): Log {
    return this.entries.log;
  }

  /** The process that does the writes, if another one holds the session and this one has joined it. */
  get holder(): SharedHolder | undefined {
    return this.leaf.holder;
  }
  set holder(holder: SharedHolder | undefined) {
    this.leaf.holder = holder;
  }

  /** The head at which this session is read and changed, by default that of our own host; null for the shared leaf. */
  get head(): string | null {
    return this.heads.own;
  }

  /** Throws storage_failed while the tree must be rebuilt and cannot be. */
  get tree(): Tree {
    return this.entries.tree;
  }

  /** Returns this session at a head, or at the shared leaf: only the head, its leaf and changes there differ. */
  at(head: string | null): Session {
    const tree = (): Tree => this.entries.tree.at(() => this.heads.leafOf(head));
    return Object.create(this, { head: { value: head }, tree: { get: tree } });
  }

  get name(): string | null {
    return this.entries.name;
  }

  get id(): string {
    return this.log.header.id;
  }

  get file(): string | null {
    return this.log.file;
  }

  /** True if this process has the lock of the stored session. */
  get hasLock(): boolean {
    const { lock, file } = this.log;
    return lock.kind !== null && file !== null;
  }

  get cwd(): string {
    return this.log.header.cwd ?? "";
  }

  get parentSession(): string | null {
    return this.log.header.parentSession ?? this.log.header.branchedFrom ?? null;
  }

  /** The caller's leaf. */
  get leafId(): string | null {
    return this.idOrNull(this.tree.leaf);
  }

  /** The leaf of our own host. */
  get ownLeafId(): string | null {
    return this.idOrNull(this.heads.leafOf(this.heads.own));
  }

  /** The leaf of all clients without one of their own. */
  get sharedLeafId(): string | null {
    return this.idOrNull(this.leaf.current);
  }

  /** The log's damage, and ambiguities that were found at opening. */
  get diagnostics(): readonly Damage[] {
    const { damage } = this.leaf;
    return damage.length === 0 ? this.log.damage : [...this.log.damage, ...damage];
  }

  idOrNull(position: number): string | null {
    return this.entries.idOrNull(position);
  }

  /** Returns the position of an entry that the host can see, or -1. */
  find(entryId: string): number {
    return this.entries.find(entryId);
  }

  /** Returns the position of the entry with that id. Throws entry_not_found. */
  position(entryId: string): number {
    const position = this.find(entryId);
    if (position >= 0) return position;
    const sentence = `Entry not found: ${entryId}. get_entries and get_tree show the ids that exist.`;
    throw new Failure("entry_not_found", sentence, { entryId });
  }

  line(position: number): Uint8Array {
    return this.log.read(position);
  }

  /** Returns the name of the head through which an entry was written; null for the shared leaf. */
  headOf(position: number): string | null {
    return this.entries.headOf(position)?.name ?? null;
  }

  entry(position: number): Entry {
    return this.entries.entry(position);
  }

  /** Returns an entry with few members in its objects: for callers that show or count only a part of it. */
  shownEntry(position: number): Entry {
    return parse(limitMembers(this.log.read(position))) as Entry;
  }

  // --- reading -------------------------------------------------------------------------------------------------

  context(leaf: number = this.tree.leaf): Context {
    this.rebuildAfterLosses();
    return getContext(this.tree, this, leaf);
  }

  /** Yields the lines of entries as they are stored, or without the data of their pictures; each is valid until the next. */
  *lines(positions: ArrayLike<number>, images?: ImageForm): Generator<Uint8Array> {
    let index = 0;
    for (const line of this.log.readMany(positions, true)) {
      const id = this.log.nodes.id(positions[index++]);
      yield images ? removeEntryImages(line, images, id) : line;
    }
  }

  /**
   * Yields the JSON texts of the messages at a leaf, or of some of them; each is valid until the next is requested.
   * Half of a surrogate pair is U+FFFD in them: providers refuse it.
   */
  *messageTexts(items: Context["items"], images?: ImageForm): Generator<Uint8Array> {
    const positions = items.map(({ position }) => position);
    const lines = this.log.readMany(positions, true)[Symbol.iterator]();
    for (const item of items) {
      const text = getMessageText(this.tree, this, item, lines.next().value);
      if (!text) continue;
      // Searching for characters to replace takes half of the time; if the start is known, there are none.
      const isAsWritten = item.edit === undefined && this.log.nodes.messageStart(item.position) > 0;
      const whole = isAsWritten ? text : replaceHalvesInBytes(text);
      if (images) yield removeImages(whole, images, this.log.nodes.id(item.edit ?? item.position));
      else if (isAsWritten) yield text;
      else yield resolveAttachments(whole, (sha256, size) => this.log.attachment(item.position, sha256, size));
    }
  }

  messageCount(): number {
    this.rebuildAfterLosses();
    const { leaf } = this.tree;
    return this.entries.once("messages", leaf, (tree) => countContextMessages(tree, this, leaf));
  }

  rebuildAfterLosses(): boolean {
    return this.entries.rebuildAfterLosses();
  }

  /** Returns the damage that changes the model's view at the leaf, in addition to that of the log. */
  contextDamage(): readonly Damage[] {
    const compaction = this.tree.lastCompaction(this.tree.leaf);
    const boundary = compaction === ROOT ? undefined : findBoundaryDamage(this.tree, this, compaction);
    const calls = this.danglingCalls().map((call) => toDanglingDamage(call, this.log.nodes.id(call.position)));
    return boundary ? [boundary, ...calls] : calls;
  }

  /**
   * Returns the tool calls at the end of the path that had no result when the session was opened, so that no client is
   * working on them. Calls further up can no longer be answered. Reads the entries after the last assistant message.
   */
  danglingCalls(): readonly DanglingCall[] {
    const { tree } = this;
    const { leaf } = tree;
    let speaker = tree.lastModel(leaf);
    while (speaker >= 0 && this.log.nodes.role(speaker) !== "assistant")
      speaker = tree.lastModel(this.log.nodes.parent(speaker));
    if (speaker < 0 || speaker >= this.entries.openedWith) return [];
    const compaction = tree.lastCompaction(leaf);
    const from = compaction === ROOT ? ROOT : findFirstKept(tree, this, compaction).first;
    // Nothing that a compaction has cut away is shown.
    if (from >= 0 && tree.depth(from) > tree.depth(speaker)) return [];
    const find = (_: Tree, latest?: Dangling): Dangling => findDanglingCalls(tree, this, leaf, speaker, latest);
    return this.entries.once("dangling", leaf, find).calls;
  }

  /** Returns the model in force at a position: the nearest one named on its path, else the header's. */
  model(at: number = this.tree.leaf): Model | null {
    const { provider, modelId } = this.log.header;
    const first = provider !== undefined && modelId !== undefined ? { provider, id: modelId } : null;
    return this.entries.once("model", this.tree.lastModel(at), (tree) => getModelAt(tree, this, at)) ?? first;
  }

  thinkingLevel(at: number = this.tree.leaf): string {
    const named = this.entries.once("level", this.tree.lastLevel(at), (tree) => getThinkingLevelAt(tree, this, at));
    return named ?? this.log.header.thinkingLevel ?? "off";
  }

  /** Yields the visible entries in file order, from a position on. */
  *visible(from = 0): Generator<number> {
    for (let p = from; p < this.log.nodes.count; p++) if (this.tree.isVisible(p)) yield p;
  }

  // --- writing -------------------------------------------------------------------------------------------------

  /** Throws read_only unless the caller writes nothing, and content_modified unless the leaf is the expected one. */
  guard(expectedLeafId: string | null | undefined, writesNothing = false): void {
    if (this.log.readOnly && !writesNothing) throw this.log.readOnly;
    if (expectedLeafId !== undefined && expectedLeafId !== this.leafId)
      throw new Failure("content_modified", undefined, { leafId: this.leafId });
  }

  /**
   * Appends drafts at the leaf, or where a draft's `parentId` says; each further draft continues the one before.
   * Appends all or none. Several drafts, or drafts with a key, are marked as one batch, so that a torn write is
   * recognised. With `defer`, a session that is not stored yet stays so; by default, entries that only set it up are
   * held. Throws invalid_entry, entry_not_found, read_only and the log's failures.
   */
  append(drafts: readonly Draft[], key?: string, defer = drafts.every(({ type }) => SETUP_TYPES.has(type))): Appended {
    if (this.log.readOnly) throw this.log.readOnly;
    this.externalChanges.requireLock();
    const { leaf } = this.tree;
    const oldLeafId = this.idOrNull(leaf);
    const { head } = this;
    const isBatch = drafts.length > 1 || key !== undefined || head !== null;
    const batch = isBatch ? makeBatch(this.id, key, head) : undefined;
    const [{ type, parentId }] = drafts;
    const isUnclear = head === null && this.leaf.needsMarkerBefore(type, parentId);
    const marker = isUnclear ? this.maker.marker(parentId === undefined ? oldLeafId : parentId) : undefined;
    const made = this.maker.linesOf(drafts, leaf, oldLeafId, batch);
    const { ids, lines, branchChanged } = made;
    if (head !== null) this.markShared();
    const position = this.write(marker ? made.after(marker) : made, { defer, head });
    if (head === null) this.leaf.moveTo(position);
    if (key !== undefined) this.keyed.set(key, { ids, leafId: this.leafId });
    return { ids, lines, oldLeafId, branchChanged };
  }

  /**
   * Adds lines to the log and to the tree, with the entries of other programs that came before them; all of them through
   * a head, which they may retire, or through none. `isBranch`: they were made elsewhere, with keys of their own. Returns the
   * position of the last one.
   */
  write({ lines, heads, ids }: LinesToWrite, how: HowToWrite = {}): number {
    const { defer = false, head = null, retired = false, isBranch = false } = how;
    const { log } = this;
    const { nodes } = log;
    const first = nodes.count;
    try {
      this.externalChanges.resting = false;
      log.append(lines, { defer, heads });
    } catch (error) {
      // If another process was first, nothing was written.
      const isAsBefore = error instanceof Failure && (error.byOthers || error.name === "session_locked");
      if (!isAsBefore) this.leaf.unsettle();
      if (this.externalChanges.noteUncertain()) this.entries.renewAfterFailure();
      throw error;
    }
    const alone = nodes.count - first === lines.length;
    const own = alone ? undefined : new Set(ids);
    for (let position = first; position < nodes.count; position++) {
      if (own && !own.has(nodes.id(position))) this.externalChanges.note(position);
      this.entries.add(position, alone && !isBranch ? lines[position - first] : undefined);
    }
    if (alone) this.leaf.wrote(first, nodes.count, head !== null);
    this.heads.wrote(first, nodes.count, head, alone, retired);
    return alone ? nodes.count - 1 : nodes.position(ids[ids.length - 1]);
  }

  /** Writes a marker of the shared leaf before a head's entries, if the existing entries do not give it. */
  private markShared(): void {
    if (this.leaf.needsMarkerBeforeHead) this.writeMarker();
  }

  /** Writes a marker that moves a head, or retires it. */
  private markHead(head: string, position: number, { key, retired }: { key?: string; retired?: true } = {}): string {
    this.externalChanges.requireLock();
    this.markShared();
    const marker = this.maker.marker(this.idOrNull(position), { ...makeBatch(this.id, key, head), retired });
    this.write(marker, { defer: !this.log.persisted, head, retired });
    return marker.ids[0];
  }

  /** Returns the result of an earlier append with this key, also of one before a restart. */
  repeated(key: string): KeyedAppend | undefined {
    return this.keyed.get(key);
  }

  private get keyed(): Map<string, KeyedAppend> {
    return this.entries.once("keys", 0, () => this.entries.keyedAppends());
  }

  /**
   * Moves the caller's leaf; durable after `commit`. For the shared leaf nothing is written to the session file, a head
   * is moved by a marker. Throws the log's failures.
   */
  moveLeaf(position: number): void {
    const { head } = this;
    if (head === null) this.leaf.moveTo(position);
    else if (this.log.readOnly || this.log.lock.holder) this.heads.place(head, position);
    else if (position !== this.heads.leafOf(head)) this.markHead(head, position);
  }

  /** Ends a head, which must be known. Its entries stay. Throws read_only and the log's failures. */
  retireHead(name: string, key?: string): void {
    if (this.log.readOnly) throw this.log.readOnly;
    if (this.heads.require(name).last === ROOT) return;
    const id = this.markHead(name, this.heads.leafOf(name), { key, retired: true });
    if (key !== undefined) this.keyed.set(key, { ids: [id], leafId: this.leafId });
  }

  /** Follows the process that writes here: our own leaf is there, and the shared one there. */
  follow(leaf: number, { shared = leaf, last = ROOT }: { shared?: number; last?: number } = {}): void {
    this.leaf.moveTo(shared);
    this.heads.follow(leaf, last);
  }

  /** True if changes outlast this process. */
  get isKept(): boolean {
    const { readOnly, lock, persisted } = this.log;
    return readOnly === null && lock.holder === null && persisted && this.file !== null;
  }

  /** Records a change of this session with the next commit, if it outlasts this process. */
  note(operation: Omit<NewOperation, "sessionId" | "sessionPath" | "name">): string | undefined {
    if (!this.operations || !this.isKept) return undefined;
    const { id: sessionId, name } = this;
    const id = this.operations.note({ ...operation, sessionId, sessionPath: this.file as string, name });
    this.noted.push(id);
    return id;
  }

  /**
   * Resolves when all appends and moves are durable; a failure restores the durable state. `begins` is called whenever
   * the commit covers all present changes: at once, and if more came before the medium was awaited.
   */
  async commit(begins: () => void = () => {}): Promise<void> {
    let last: string | undefined;
    let settle = (): void => {};
    const begin = (): void => {
      begins();
      last = this.noted.at(-1);
      settle = this.heads.settling();
      // Written before, so that a crash leaves no change without its record; a record without its change is recognised.
      this.operations?.flush();
    };
    try {
      await this.leaf.commit(begin);
      settle();
      // Other commits may have ended in between, with their entries.
      if (last !== undefined) this.operations?.settle(this.noted.splice(0, this.noted.indexOf(last) + 1));
    } catch (error) {
      this.operations?.failed(this.noted.splice(0));
      throw this.undo(error);
    }
  }

  get isDurable(): boolean {
    return this.leaf.isDurable;
  }

  /** True if its entries are durable and the disk gives no answer about its leaf. */
  get isUnread(): boolean {
    return this.leaf.isUnread;
  }

  /** Puts a session that is not stored yet into its store, with the entries that set it up. Throws the log's failures. */
  putIntoStore(): void {
    if (!this.log.persisted) this.write({ lines: [], ids: [] });
  }

  /** Leaves the session: writes a marker into it if the file alone would not give the position. */
  async leave(): Promise<void> {
    this.externalChanges.followLog();
    if (this.log.readOnly || !this.log.persisted || this.leaf.mayBeLeft) return this.log.replica?.upload();
    const { id } = this;
    // If another process is the writer now, our position is not written.
    if (!this.externalChanges.becomeWriter() && this.log.lock.holder) return;
    try {
      this.writeMarker();
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      // Another process became the writer in between.
      if (error.name === "session_locked") return;
      if (!error.byOthers) throw error;
      try {
        this.externalChanges.checkForChanges();
        if (this.id !== id || this.leaf.isInFile) return;
        this.writeMarker();
      } catch (again) {
        if (!(again instanceof Failure)) throw again;
        // Another program keeps changing the file; our record keeps the position.
        return await this.keepPosition();
      }
    }
    try {
      await this.log.commit();
    } catch (error) {
      const failure = this.undo(error);
      await this.keepPosition();
      // Another machine is the writer now, or was in between.
      if (failure instanceof Failure && ["session_locked", "content_modified"].includes(failure.name)) return;
      throw failure;
    }
    this.leaf.forget();
  }

  /** Leaves the session and releases the lock, so that other programs can write while nothing happens here. */
  async suspend(): Promise<void> {
    await this.leave();
    this.log.lock.release();
    this.externalChanges.resting = true;
  }

  close(): void {
    this.isClosed = true;
    this.log.close();
  }

  /** Goes back to the durable state after an error. Returns the failure to report. */
  private undo(error: unknown): unknown {
    this.log.rollBack();
    this.leaf.undone();
    this.heads.undone();
    this.entries.renewAfterFailure();
    const failure = this.externalChanges.noteUncertain() ? toNotUndoneFailure(error) : error;
    this.leaf.failed = { failure };
    return failure;
  }

  /** Records a durable position again after a failed commit, as far as the disk allows. */
  async keepPosition(): Promise<void> {
    await this.leaf.keep();
  }

  // --- other programs ------------------------------------------------------------------------------------------

  /**
   * Adds the changes of other programs to the stored session since the last check, and the entries that damaged lines
   * turned out to hide; the leaf follows if they continue it. Returns the changes to report. Throws storage_failed when
   * the session is missing or cannot be read, and content_modified when it was rewritten while changes of ours are not
   * durable yet. The next call returns the changes found until then.
   */
  refresh(): ExternalChange | null {
    this.externalChanges.checkForChanges();
    return this.externalChanges.fresh();
  }

  repair(dryRun: boolean, lackingIn: (session: Session) => readonly Incomplete[] = () => []): Repair {
    return repairSession(this, dryRun, lackingIn);
  }

  /** The name, as a quotation, or the beginning of the id. */
  get title(): string {
    return this.name === null ? this.id.slice(0, 8) : quoteText(this.name);
  }

  private writeMarker(): void {
    this.write(this.maker.marker(this.sharedLeafId));
  }

  /** Returns an id that no entry of this session has. */
  newEntryId(others?: ReadonlySet<string>): string {
    return this.maker.newId(others);
  }

  /** Returns the kept entry that a compaction names, for a fork that must not leave it dangling. */
  firstKeptId(compaction: number): string | undefined {
    const id = this.entry(compaction).firstKeptEntryId;
    return typeof id === "string" ? id : undefined;
  }
}
