/** A session: a tree joined to its log. Everything a command does to one conversation goes through here. */

import {
  type Bodies,
  type Context,
  contextAt,
  contextCount,
  keptFrom,
  levelAt,
  type Model,
  messageText,
  modelAt,
} from "../context/context.ts";
import { type Dangling, type DanglingCall, danglingCalls } from "../context/pairing.ts";
import { Failure } from "../failure.ts";
import { withAttachments } from "../format/attachments.ts";
import type { Damage } from "../format/damage.ts";
import { type Batch, type Draft, draftOf, ENTRY_ID, type Entry, type NewLine, newLine } from "../format/entry.ts";
import { LEAF_MARKER } from "../format/head.ts";
import type { SharedHolder } from "../ports/attach.ts";
import { type Env, timestamp } from "../ports/env.ts";
import type { NewOperation, OperationLog, StepOf } from "../ports/operations.ts";
import type { Log } from "../ports/store.ts";
import type { LeafMemory } from "../ports/stores.ts";
import { ROOT } from "../tree/nodes.ts";
import type { Tree } from "../tree/tree.ts";
import { type KeyedAppend, SessionEntries } from "./entries.ts";
import { quoted } from "./history.ts";
import { LeafTracker } from "./leaf.ts";
import { type Foreign, ForeignChanges } from "./refresh.ts";

export type { Model } from "../context/context.ts";
export type { Foreign } from "./refresh.ts";

/** Entry types that set up a session: they wait in memory for the first entry of another type. */
const SETUP_TYPES = new Set(["model_change", "thinking_level_change", "session_info"]);

/** The step of a repair; its backup and entries are known later. */
type RepairStep = StepOf<"swap">;

export interface Appended {
  readonly ids: string[];
  readonly lines: readonly Uint8Array[];
  readonly oldLeafId: string | null;
  /** Whether the new entries do not continue the old leaf. */
  readonly branchChanged: boolean;
}

/** An entry that a repair completes. */
export interface Incomplete {
  readonly position: number;
  readonly damage: Damage;
  complete(line: Uint8Array): Uint8Array;
}

export class Session implements Bodies {
  readonly env: Env;
  private readonly entries: SessionEntries;
  readonly leaf: LeafTracker;
  /** Changes by other programs, and damage, that are not reported yet. */
  readonly foreign: ForeignChanges;
  /** The record of what people may want to take back; without it, nothing is recorded. */
  operations: OperationLog | undefined;
  /** Ids of recorded operations that are not durable yet. */
  private noted: string[] = [];

  /** `keepsLeaf`: whether a position that the entries do not give outlives the session. */
  constructor(log: Log, env: Env, leaves?: LeafMemory, keepsLeaf = true) {
    this.env = env;
    this.entries = new SessionEntries(log, () => this.leaf.current);
    this.leaf = new LeafTracker(this.entries, leaves, keepsLeaf);
    this.foreign = new ForeignChanges(this.entries, this.leaf);
  }

  get log(): Log {
    return this.entries.log;
  }

  /** The process that does what is written here, where another holds the session and this one has joined it. */
  get holder(): SharedHolder | undefined {
    return this.leaf.holder;
  }
  set holder(holder: SharedHolder | undefined) {
    this.leaf.holder = holder;
  }

  /** Throws storage_failed while the tree must be rebuilt and cannot be. */
  get tree(): Tree {
    return this.entries.tree;
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

  get cwd(): string {
    return this.log.header.cwd ?? "";
  }

  get parentSession(): string | null {
    return this.log.header.parentSession ?? this.log.header.branchedFrom ?? null;
  }

  get leafId(): string | null {
    return this.idOrNull(this.tree.leaf);
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
    const position = this.log.nodes.position(entryId);
    return position >= 0 && this.tree.isVisible(position) ? position : -1;
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

  entry(position: number): Entry {
    return this.entries.entry(position);
  }

  // --- reading -------------------------------------------------------------------------------------------------

  context(leaf: number = this.tree.leaf): Context {
    this.rebuildAfterLosses();
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
    this.rebuildAfterLosses();
    const { leaf } = this.tree;
    return this.entries.once("messages", leaf, (tree) => contextCount(tree, this, leaf));
  }

  rebuildAfterLosses(): boolean {
    return this.entries.rebuildAfterLosses();
  }

  /**
   * Returns the tool calls at the end of the path that had no result when the session was opened, so that nobody is
   * working on them. Calls further up can no longer be answered. Reads what comes after the last assistant message.
   */
  danglingCalls(): readonly DanglingCall[] {
    const { tree } = this;
    const { leaf } = tree;
    let speaker = tree.lastModel(leaf);
    while (speaker >= 0 && this.log.nodes.role(speaker) !== "assistant")
      speaker = tree.lastModel(this.log.nodes.parent(speaker));
    if (speaker < 0 || speaker >= this.entries.openedWith) return [];
    const compaction = tree.lastCompaction(leaf);
    const from = compaction === ROOT ? ROOT : keptFrom(tree, this, compaction).first;
    // Nothing that a compaction has cut away is shown.
    if (from >= 0 && tree.depth(from) > tree.depth(speaker)) return [];
    const find = (_: Tree, latest?: Dangling): Dangling => danglingCalls(tree, this, leaf, speaker, latest);
    return this.entries.once("dangling", leaf, find).calls;
  }

  /** Returns the model in force at a position: the nearest one named on its path, else the header's. */
  model(at: number = this.tree.leaf): Model | null {
    const { provider, modelId } = this.log.header;
    const first = provider !== undefined && modelId !== undefined ? { provider, id: modelId } : null;
    return this.entries.once("model", this.tree.lastModel(at), (tree) => modelAt(tree, this, at)) ?? first;
  }

  thinkingLevel(at: number = this.tree.leaf): string {
    const named = this.entries.once("level", this.tree.lastLevel(at), (tree) => levelAt(tree, this, at));
    return named ?? this.log.header.thinkingLevel ?? "off";
  }

  /** Yields the visible entries in file order, from a position on. */
  *visible(from = 0): Generator<number> {
    for (let p = from; p < this.log.nodes.count; p++) if (this.tree.isVisible(p)) yield p;
  }

  // --- writing -------------------------------------------------------------------------------------------------

  /** Throws read_only unless what follows writes nothing, and content_modified unless the leaf is the expected one. */
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
    // Before we had the lock, another server may have written.
    if (this.log.acquireLock()) this.foreign.checkForChanges();
    const oldLeafId = this.leafId;
    const written: NewLine[] = [];
    const ids: string[] = [];
    const others = drafts.length > 1 ? new Set<string>() : undefined;
    let parentId = oldLeafId;
    let branchChanged = false;
    if (this.leaf.needsMarkerBefore(drafts[0].type, drafts[0].parentId))
      written.push(this.marker(drafts[0].parentId === undefined ? oldLeafId : drafts[0].parentId));
    const batched = drafts.length > 1 || key !== undefined;
    for (let index = 0; index < drafts.length; index++) {
      const draft = drafts[index];
      const id = this.idFor(draft, others);
      if (draft.parentId !== undefined && draft.parentId !== parentId) {
        parentId = draft.parentId;
        if (parentId !== null && this.find(parentId) < 0 && !others?.has(parentId)) {
          const sentence = `The parent ${parentId} is not an entry of this session. Leave parentId out to continue the leaf.`;
          throw new Failure("entry_not_found", sentence, { entryId: parentId, path: `entries.${index}.parentId` });
        }
        branchChanged = true;
      }
      const batch: Batch | undefined = batched
        ? { session: this.id, ...(key === undefined ? {} : { key }), index, count: drafts.length }
        : undefined;
      written.push(this.lineOf(draft, id, parentId, batch));
      ids.push(id);
      others?.add(id);
      parentId = id;
    }
    this.write(written, ids, defer);
    this.leaf.moveTo(this.log.nodes.position(parentId as string));
    if (key !== undefined) this.keyed.set(key, { ids, leafId: this.leafId });
    const own = written.length === ids.length ? written : written.slice(1);
    return { ids, lines: own.map(({ line }) => line), oldLeafId, branchChanged };
  }

  /** Adds lines to the log and to the tree, with the entries of other programs that came before them. */
  private write(written: readonly NewLine[], ids: readonly string[] = [], defer = false): void {
    const { nodes } = this.log;
    const lines = written.map(({ line }) => line);
    const first = nodes.count;
    try {
      this.foreign.resting = false;
      this.log.append(lines, { defer, heads: written.map(({ head }) => head) });
    } catch (error) {
      // Nothing was written where another process was first.
      const isAsBefore = error instanceof Failure && (error.byOthers || error.name === "session_locked");
      if (!isAsBefore) this.leaf.unsettle();
      throw error;
    }
    const alone = nodes.count - first === lines.length;
    const own = alone ? undefined : new Set(ids);
    for (let position = first; position < nodes.count; position++) {
      if (own && !own.has(nodes.id(position))) this.foreign.note(position);
      this.entries.add(position, alone ? lines[position - first] : undefined);
    }
  }

  /** Returns the result of an earlier append with this key, also of one before a restart. */
  repeated(key: string): KeyedAppend | undefined {
    return this.keyed.get(key);
  }

  private get keyed(): Map<string, KeyedAppend> {
    return this.entries.once("keys", 0, () => this.entries.keyedAppends());
  }

  /** Moves the leaf; durable after `commit`. Nothing is written to the session file. */
  moveLeaf(position: number): void {
    this.leaf.moveTo(position);
  }

  /** Whether changes outlast this process. */
  get isKept(): boolean {
    const { readOnly, lockedBy, persisted } = this.log;
    return readOnly === null && lockedBy === null && persisted && this.file !== null;
  }

  /** Records a change of this session with the next commit, if it outlasts this process. */
  note(operation: Omit<NewOperation, "sessionId" | "sessionPath" | "name">): string | undefined {
    if (!this.operations || !this.isKept) return undefined;
    const { id: sessionId, name } = this;
    const id = this.operations.note({ ...operation, sessionId, sessionPath: this.file as string, name });
    this.noted.push(id);
    return id;
  }

  /** Resolves when all that was appended or moved is durable; a failure brings the durable state back. */
  async commit(): Promise<void> {
    const last = this.noted.at(-1);
    try {
      // Written before, so that a crash leaves no change without its record; a record without its change is recognised.
      this.operations?.flush();
      await this.leaf.commit();
      // Other commits may have ended meanwhile, and took theirs.
      if (last !== undefined) this.noted.splice(0, this.noted.indexOf(last) + 1);
    } catch (error) {
      this.operations?.failed(this.noted.splice(0));
      this.undo();
      throw error;
    }
  }

  get isDurable(): boolean {
    return this.leaf.isDurable;
  }

  /** Leaves the session: writes a marker into it if the file alone would not give the position. */
  async leave(): Promise<void> {
    if (this.log.readOnly || !this.log.persisted || this.leaf.isInFile) return;
    // If another process is the writer now, our position is not written.
    if (!this.foreign.becomeWriter() && this.log.lockedBy) return;
    try {
      this.writeMarker();
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      // Another process became the writer in between.
      if (error.name === "session_locked") return;
      if (!error.byOthers) throw error;
      try {
        this.foreign.checkForChanges();
        if (this.leaf.isInFile) return;
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
      this.undo();
      await this.keepPosition();
      throw error;
    }
    this.leaf.forget();
  }

  /** Leaves the session and releases the lock, so that other programs can write while nothing happens here. */
  async suspend(): Promise<void> {
    await this.leave();
    this.log.unlock();
    this.foreign.resting = true;
  }

  close(): void {
    this.log.close();
  }

  private undo(): void {
    this.log.rollBack();
    this.leaf.undone();
    try {
      this.entries.renew();
    } catch {
      // What made the commit fail may make this fail too; the next use of the tree reads it first.
    }
  }

  /** Records a durable position again after a failed commit, as far as the disk allows. */
  async keepPosition(): Promise<void> {
    await this.leaf.keep();
  }

  // --- other programs ------------------------------------------------------------------------------------------

  /**
   * Adds what other programs did to the stored session since the last check, and what damaged lines were found to hide;
   * the leaf follows where they continue it. Returns what is to be reported of it. Throws storage_failed when the
   * session is missing or cannot be read, and content_modified when it was rewritten while changes of ours are not
   * durable yet. What was found until then is returned by the next call.
   */
  refresh(): Foreign | null {
    this.foreign.checkForChanges();
    return this.foreign.fresh();
  }

  /** Does the same before a change, as the only writer; a change fails if another is. Throws what `refresh` throws. */
  refreshToWrite(): Foreign | null {
    this.foreign.becomeWriter();
    // The path may hold another file after the first look, with a lock of its own.
    if (this.foreign.checkForChanges() && this.foreign.becomeWriter()) this.foreign.checkForChanges();
    return this.foreign.fresh();
  }

  /**
   * Removes damage from the stored session, and adds what entries lack. Every body is read first, so that damage that
   * was not found yet counts too. Throws session_locked, read_only, storage_failed.
   */
  repair(
    dryRun: boolean,
    lackingIn: (session: Session) => readonly Incomplete[] = () => [],
  ): { repaired: readonly Damage[]; backupPath: string | null; operationId?: string; step?: RepairStep } {
    for (let position = 0; position < this.log.nodes.count; position++) this.log.read(position);
    if (this.log.mayHideEntries) this.foreign.rebase();
    const lacking = this.log.persisted ? lackingIn(this) : [];
    const repaired = [...this.log.repairable, ...lacking.map(({ damage }) => damage)];
    if (dryRun) return { repaired, backupPath: null };
    const begun = repaired.length === 0 ? undefined : this.beginRepair();
    let backupPath: string | null = null;
    try {
      backupPath = this.log.repair(new Map(lacking.map((one) => [one.position, (line) => one.complete(line)])));
    } finally {
      if (backupPath === null && begun) this.operations?.failed([begun.operationId]);
    }
    if (backupPath === null) return { repaired, backupPath };
    this.foreign.rebase(undefined, true);
    return { repaired, backupPath, ...begun };
  }

  private beginRepair(): { operationId: string; step: RepairStep } | undefined {
    const { operations, file } = this;
    const { stamp } = this.log;
    if (!operations || !stamp || file === null) return undefined;
    const step = { do: "swap" as const, path: file, inode: stamp.inode };
    const text = `Repaired ${this.title}.`;
    const operation = { kind: "repair" as const, text, step, sessionId: this.id, sessionPath: file, name: this.name };
    return { operationId: operations.beginNow(operation).id, step };
  }

  /** The name, as a quotation, or the beginning of the id. */
  get title(): string {
    return this.name === null ? this.id.slice(0, 8) : quoted(this.name);
  }

  // --- small parts of writing ----------------------------------------------------------------------------------

  private idFor({ id }: Draft, others: ReadonlySet<string> | undefined): string {
    if (id === undefined) return this.newEntryId(others);
    const isWellFormed = ENTRY_ID.test(id);
    if (isWellFormed && !this.isTaken(id) && !others?.has(id)) return id;
    const sentence = isWellFormed
      ? `The id ${id} is taken. Leave it out to get a new one.`
      : "An entry id is 1 to 128 letters, digits, underscores and hyphens. Leave it out to get one.";
    throw new Failure("invalid_entry", sentence, { entryId: id });
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

  private writeMarker(): void {
    this.write([this.marker(this.leafId)]);
  }

  private marker(parentId: string | null): NewLine {
    const data = parentId === null ? { leafId: null } : undefined;
    return this.lineOf(draftOf("custom", { customType: LEAF_MARKER, data }), this.newEntryId(), parentId);
  }

  /** Returns an entry as it is written; all that a session writes are made here. */
  private lineOf(draft: Draft, id: string, parentId: string | null, batch?: Batch): NewLine {
    return newLine(draft, id, parentId, draft.timestamp ?? timestamp(this.env), batch);
  }

  /** Returns the kept entry that a compaction names, for a fork that must not leave it dangling. */
  firstKeptId(compaction: number): string | undefined {
    const id = this.entry(compaction).firstKeptEntryId;
    return typeof id === "string" ? id : undefined;
  }
}
