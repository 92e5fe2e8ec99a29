/** Pi's SessionManager: one conversation by synchronous calls, over the same session and log as the server. */

import { type Bodies, spanAt } from "../core/context/context.ts";
import { Failure } from "../core/failure.ts";
import {
  type SessionHeader as CoreHeader,
  type Draft,
  draftOfValues,
  type Entry,
  SESSION_ID,
} from "../core/format/entry.ts";
import { bytesOf, concat, parse } from "../core/json/json.ts";
import type { Beginning, Log } from "../core/ports/store.ts";
import type { LeafMemory, Stores } from "../core/ports/stores.ts";
import { compactionDraft } from "../core/session/compaction-draft.ts";
import { planCopy, planFork } from "../core/session/fork.ts";
import { Session } from "../core/session/session.ts";
import { forkContent, newBeginning, sessionName } from "../core/session/workspace.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { migrateSessionEntries, projection, spanEntries } from "./entries.ts";
import { absolutePath, defaultFolder, env, memoryStore, storesFor, wholeLines } from "./here.ts";
import { findMostRecentSession, findSessionById, listAllSessions, listSessions } from "./list.ts";
import type {
  BashExecutionMessage,
  ContextEditEntry,
  CustomMessage,
  CustomMessageEntry,
  Durability,
  FileEntry,
  Message,
  NewSessionOptions,
  SessionContext,
  SessionEntry,
  SessionHeader,
  SessionInfo,
  SessionListProgress,
  SessionOptions,
  SessionProjection,
  SessionTreeNode,
  Usage,
  UsageEntry,
} from "./types.ts";

/** Milliseconds without an append after which other programs may write to the file. */
const WRITING = 1000;

/** Resources of a manager, which outlive it by the time that the collector takes. */
interface Held {
  session: Session;
  timer: NodeJS.Timeout | undefined;
}

/** Closes sessions of managers that nothing refers to any more, because Pi's managers are never closed. */
const forgotten = new FinalizationRegistry<Held>((held) => {
  clearTimeout(held.timer);
  held.session.close();
});

/** The start of a manager: in a new session or in that of a file. */
interface Start {
  readonly cwd: string;
  /** Folder for new sessions; empty for sessions in memory. */
  readonly folder: string;
  readonly durability: Durability;
  readonly session: (stores: Stores) => Session;
}

/**
 * A session as a tree of entries in a file. Every append continues the leaf and becomes it; `branch` moves the leaf
 * to an earlier entry. The file is made by the first message of the user or the assistant; what came before waits in
 * memory. Opening a file writes nothing, whatever its version.
 *
 * Appends throw a `Failure` and change nothing when the disk refuses (storage_full, storage_failed), another process
 * is writing to the session (session_locked), or it is of a newer version (unsupported_version).
 */
export class SessionManager {
  private readonly held: Held;
  private readonly stores: Stores;
  private readonly cwd: string;
  private readonly folder: string;
  /** File that was named, for a manager in memory. */
  private named: string | undefined;
  /** Entries that were requested, by position: the same object at every call, as callers of Pi expect. */
  private entries: (SessionEntry | undefined)[] = [];
  private entriesOf: Log | undefined;
  /** Time of the last check of the file. */
  private looked = Number.NaN;

  private constructor(start: Start) {
    const { cwd, folder, durability } = start;
    this.cwd = absolutePath(cwd);
    this.folder = folder;
    this.stores = storesFor(folder, durability, folder === "" ? "memory" : "jsonl");
    this.held = { session: start.session(this.stores), timer: undefined };
    forgotten.register(this, this.held);
    this.prepareFolder();
  }

  // --- creation --------------------------------------------------------------------------------------------------

  /** Makes a new session. Its file goes into `sessionDir`, by default the folder of the working directory. */
  static create(cwd: string, sessionDir?: string, options: NewSessionOptions & SessionOptions = {}): SessionManager {
    return new SessionManager({
      cwd,
      folder: folderOr(sessionDir, cwd),
      durability: options.durability ?? "os",
      session: (stores) => newSession(stores, beginningFor(cwd, options)),
    });
  }

  /**
   * Opens the session of a file; a path without a file becomes a new session there. Sessions that are made from it go
   * into `sessionDir`, by default the folder of the file. `cwdOverride` replaces the working directory that the header
   * names. Throws not_a_session (the file is left as it is), storage_failed.
   */
  static open(path: string, sessionDir?: string, cwdOverride?: string, options: SessionOptions = {}): SessionManager {
    const file = absolutePath(path);
    const folder = absolutePath(sessionDir || `${file}/..`);
    const durability = options.durability ?? "os";
    const stores = storesFor(folder, durability);
    const session = stores.holds(file) ? openSession(stores, file) : undefined;
    const cwd = cwdOverride ?? session?.log.header.cwd ?? process.cwd();
    const make = (): Session => session ?? newSession(stores, beginningFor(cwd, {}, file));
    return new SessionManager({ cwd, folder, durability, session: make });
  }

  /** Opens the session of a working directory that was changed last, or makes a new one. */
  static continueRecent(cwd: string, sessionDir?: string, options: SessionOptions = {}): SessionManager {
    const folder = folderOr(sessionDir, cwd);
    const latest = findMostRecentSession(folder, cwd);
    return new SessionManager({
      cwd,
      folder,
      durability: options.durability ?? "os",
      session: (stores) => (latest === null ? newSession(stores, beginningFor(cwd, {})) : openSession(stores, latest)),
    });
  }

  /** Makes a session without a file, which may begin with given entries (and a header). */
  static inMemory(cwd: string = process.cwd(), options: NewSessionOptions = {}, entries?: FileEntry[]): SessionManager {
    return new SessionManager({
      cwd,
      folder: "",
      durability: "os",
      session: () => sessionInMemory(beginningFor(cwd, options), entries ?? []),
    });
  }

  /**
   * Makes a new session for a working directory that holds everything of another session. Its file exists when this
   * returns. Throws session_not_found, not_a_session, already_exists, storage_failed.
   */
  static forkFrom(
    sourcePath: string,
    targetCwd: string,
    sessionDir?: string,
    options: NewSessionOptions & SessionOptions = {},
  ): SessionManager {
    const file = absolutePath(sourcePath);
    return new SessionManager({
      cwd: targetCwd,
      folder: folderOr(sessionDir, targetCwd),
      durability: options.durability ?? "os",
      session(stores) {
        const source = openSession(stores, file);
        try {
          const beginning = beginningFor(targetCwd, { id: options.id, parentSession: file });
          const content = forkContent(source, planCopy(source.tree));
          const fork = sessionWith(stores.forNew.create(beginning), content, false);
          const leaf = source.leafId;
          fork.moveLeaf(leaf === null ? ROOT : fork.log.nodes.position(leaf));
          return fork;
        } finally {
          source.close();
        }
      },
    });
  }

  /** Lists the sessions of a working directory, the most recent first. Files that are not sessions are skipped. */
  static list(
    cwd: string,
    sessionDir?: string,
    onProgress?: SessionListProgress,
    signal?: AbortSignal,
  ): Promise<SessionInfo[]> {
    return listSessions(cwd, sessionDir || undefined, onProgress, signal);
  }

  /** Lists the sessions of all working directories, or of one folder, the most recent first. */
  static listAll(onProgress?: SessionListProgress, signal?: AbortSignal): Promise<SessionInfo[]>;
  static listAll(sessionDir?: string, onProgress?: SessionListProgress, signal?: AbortSignal): Promise<SessionInfo[]>;
  static listAll(
    first?: string | SessionListProgress,
    second?: SessionListProgress | AbortSignal,
    third?: AbortSignal,
  ): Promise<SessionInfo[]> {
    const given = [first, second, third];
    const progress = given.find((value): value is SessionListProgress => typeof value === "function");
    const signal = given.find((value): value is AbortSignal => value instanceof AbortSignal);
    return listAllSessions(typeof first === "string" && first !== "" ? first : undefined, progress, signal);
  }

  /** Returns the file of the session with exactly that id. */
  static findById(cwd: string, id: string, sessionDir?: string): string | undefined {
    return findSessionById(cwd, id, sessionDir || undefined);
  }

  /** Begins a new session in place of this one, and returns its file (undefined in memory). */
  newSession(options: NewSessionOptions = {}): string | undefined {
    this.replace(newSession(this.stores, beginningFor(this.cwd, options)));
    return this.getSessionFile();
  }

  /**
   * Continues with the session of a file, or with a new one if there is no file. On a failure (as of `open`) the
   * manager keeps the session it has.
   */
  setSessionFile(sessionFile: string): void {
    const file = absolutePath(sessionFile);
    const beginning = beginningFor(this.cwd, {}, file);
    if (this.isPersisted())
      this.replace(this.stores.holds(file) ? openSession(this.stores, file) : newSession(this.stores, beginning));
    else {
      this.replace(this.stores.holds(file) ? copyInMemory(this.stores, file) : newSession(this.stores, beginning));
      this.named = file;
    }
  }

  // --- appending -------------------------------------------------------------------------------------------------

  /** Appends a message and returns its entry's id. */
  appendMessage(message: Message | CustomMessage | BashExecutionMessage): string {
    if (typeof message !== "object" || message === null)
      throw new Failure("invalid_entry", "A message is an object with a role.");
    const opens = message.role === "user" || message.role === "assistant";
    return this.append(draftOfValues("message", { message }), opens);
  }

  appendThinkingLevelChange(thinkingLevel: string): string {
    return this.append(draftOfValues("thinking_level_change", { thinkingLevel }));
  }

  appendModelChange(provider: string, modelId: string): string {
    return this.append(draftOfValues("model_change", { provider, modelId }));
  }

  /** Appends tokens and cost that belong to no message, and returns the entry. */
  appendUsage(kind: string, provider: string, model: string, usage: Usage, note?: string): UsageEntry {
    const id = this.append(draftOfValues("usage", { kind, provider, model, usage, note: note || undefined }));
    return this.getEntry(id) as UsageEntry;
  }

  /**
   * Appends a summary of what came before `firstKeptEntryId`, an entry of the path; null keeps nothing. The entry
   * contains the system prompt in force. Throws invalid_boundary when the first kept entry is not on the path, or when
   * a tool call would be separated from its result.
   */
  appendCompaction<T = unknown>(
    summary: string,
    firstKeptEntryId: string | null,
    tokensBefore: number,
    details?: T,
    fromHook?: boolean,
    usage?: Usage,
  ): string {
    this.look();
    const more = { details: textOf(details), usage: textOf(usage), fromHook };
    return this.append(compactionDraft(this.session, { summary, firstKeptEntryId, tokensBefore, ...more }));
  }

  /** Appends state of an extension, which the model does not see. */
  appendCustomEntry(customType: string, data?: unknown): string {
    return this.append(draftOfValues("custom", { customType, data }));
  }

  /** Sets the display name, on one line; an empty one clears it. */
  appendSessionInfo(name: string): string {
    return this.append(draftOfValues("session_info", { name: sessionName(name) }));
  }

  /** Appends a message of an extension, which the model sees. */
  appendCustomMessageEntry<T = unknown>(
    customType: string,
    content: CustomMessageEntry["content"],
    display: boolean,
    details?: T,
  ): string {
    return this.append(draftOfValues("custom_message", { customType, content, display, details }));
  }

  /**
   * Replaces the content of an earlier message of the path, for the model only; null leaves the message out. Throws
   * entry_not_found, and invalid_entry when the entry is not on the path or has no content to edit.
   */
  appendContextEdit(targetId: string, replacement: ContextEditEntry["replacement"]): string {
    if (replacement !== null && !isContent(replacement?.content))
      throw new Failure("invalid_entry", "A replacement is null, or its content is a string or a list of blocks.");
    this.look();
    const target = this.position(targetId);
    const { tree, log } = this.session;
    const fault = (sentence: string): Failure => new Failure("invalid_entry", sentence, { entryId: targetId });
    if (!tree.isAncestor(target, tree.leaf)) throw fault(`Entry ${targetId} is not on the path to the leaf.`);
    const role = log.nodes.isType(target, "custom_message") ? "custom" : log.nodes.role(target);
    if (!log.nodes.isType(target, "custom_message") && !["user", "assistant", "toolResult"].includes(role))
      throw fault(`Entry ${targetId} has no content that the model sees.`);
    const inBlocks = (role === "assistant" || role === "toolResult") && typeof replacement?.content === "string";
    const content = inBlocks ? [{ type: "text", text: replacement.content }] : replacement?.content;
    return this.append(
      draftOfValues("context_edit", { targetId, replacement: replacement && { ...replacement, content } }),
    );
  }

  /** Names an entry; undefined or an empty label removes the name. Throws entry_not_found. */
  appendLabelChange(targetId: string, label: string | undefined): string {
    this.look();
    this.position(targetId);
    return this.append(draftOfValues("label", { targetId, label }));
  }

  /** Resolves when everything appended so far is durable. Rejects after removing what could not be made durable. */
  async flush(): Promise<void> {
    try {
      await this.session.commit();
    } catch (error) {
      this.entriesOf = undefined;
      throw error;
    }
  }

  /**
   * Closes the file; the manager is of no use afterwards. Never necessary: other programs may write to the file when
   * nothing was appended for a second.
   */
  close(): void {
    clearTimeout(this.held.timer);
    this.held.session.close();
  }

  // --- navigation ------------------------------------------------------------------------------------------------

  /** Returns the id of the entry that the next append continues; null before the first entry. */
  getLeafId(): string | null {
    return this.session.leafId;
  }

  getLeafEntry(): SessionEntry | undefined {
    const { leaf } = this.session.tree;
    return leaf < 0 ? undefined : this.entryAt(leaf);
  }

  getEntry(id: string): SessionEntry | undefined {
    const position = this.find(id);
    return position < 0 ? undefined : this.entryAt(position);
  }

  /** Returns the entries from the root to an entry, by default the leaf; none for an unknown one. */
  getBranch(fromId?: string): SessionEntry[] {
    const { tree } = this.session;
    return this.entriesAt(tree.path(fromId === undefined ? tree.leaf : this.find(fromId)));
  }

  /** Returns all entries as trees, children by time. Entries whose parent is unknown are roots. */
  getTree(): SessionTreeNode[] {
    const { session } = this;
    this.getEntries();
    const roots: SessionTreeNode[] = [];
    const made: SessionTreeNode[] = [];
    for (const position of session.visible()) {
      const set = session.tree.labels.get(position);
      made[position] = {
        entry: this.entryAt(position),
        children: [],
        label: set?.label,
        labelTimestamp: set && this.entryAt(set.setBy).timestamp,
      };
    }
    for (const position of session.visible()) {
      const parent = session.log.nodes.parent(position);
      (parent < 0 ? roots : made[parent].children).push(made[position]);
    }
    const time = ({ entry }: SessionTreeNode): number => Date.parse(entry.timestamp);
    for (const position of session.visible()) made[position].children.sort((a, b) => time(a) - time(b));
    return roots;
  }

  /** Returns the entries that continue an entry, in file order; for null, those that begin a conversation. */
  getChildren(parentId: string | null): SessionEntry[] {
    if (parentId === null) {
      const { nodes } = this.session.log;
      return this.entriesAt([...this.session.visible()].filter((position) => nodes.parent(position) === ROOT));
    }
    const position = this.find(parentId);
    return position < 0 ? [] : this.entriesAt([...this.session.tree.children(position)]);
  }

  getLabel(id: string): string | undefined {
    return this.session.tree.labels.get(this.find(id))?.label;
  }

  /**
   * Makes an earlier entry the leaf. Nothing is written: the next append begins another branch, and without one the
   * next opening finds the leaf that the file gives. Throws entry_not_found.
   */
  branch(branchFromId: string): void {
    this.session.moveLeaf(this.position(branchFromId));
  }

  /** Moves the leaf to before the first entry. */
  resetLeaf(): void {
    this.session.moveLeaf(ROOT);
  }

  /**
   * Moves the leaf to an entry (null: before the first) and appends there a summary of the branch that is left. Throws
   * entry_not_found.
   */
  branchWithSummary(
    branchFromId: string | null,
    summary: string,
    details?: unknown,
    fromHook?: boolean,
    usage?: Usage,
  ): string {
    this.look();
    if (branchFromId !== null) this.position(branchFromId);
    const fromId = this.getLeafId() ?? "root";
    const rest = { fromId, summary, details, usage, fromHook };
    return this.append({ ...draftOfValues("branch_summary", rest), parentId: branchFromId });
  }

  /**
   * Continues in a new session that holds the path to an entry, and returns its file (undefined in memory). Labels of
   * the path's entries are written again at the end. Throws entry_not_found, storage_failed.
   */
  createBranchedSession(leafId: string): string | undefined {
    const { session } = this;
    const plan = planFork(session.tree, this.position(leafId), (compaction) => session.firstKeptId(compaction));
    const parentSession = this.isPersisted() && session.log.persisted ? (session.file ?? undefined) : undefined;
    const log = this.stores.forNew.create(beginningFor(this.cwd, { parentSession }));
    const { nodes } = session.log;
    const talks = plan.positions.some((p) => nodes.role(p) === "user" || nodes.role(p) === "assistant");
    this.replace(sessionWith(log, forkContent(session, plan), !talks));
    return this.getSessionFile();
  }

  // --- context and session ---------------------------------------------------------------------------------------

  /** Returns what the model sees at the leaf. */
  buildSessionContext(): SessionContext {
    const { messages, thinkingLevel, model } = this.buildSessionProjection();
    return { messages, thinkingLevel, model };
  }

  /** Does the same, and returns the entry that each message comes from. */
  buildSessionProjection(): SessionProjection {
    const { session } = this;
    session.heedLosses();
    const { tree } = session;
    this.entriesAt(spanEntries(spanAt(tree, this.bodies, tree.leaf)));
    const model = session.model();
    return {
      ...projection(tree, this.bodies, tree.leaf, (position) => this.entryAt(position)),
      thinkingLevel: session.thinkingLevel(),
      model: model && { provider: model.provider, modelId: model.id },
    };
  }

  /** Returns the entries that the context is made of: the latest compaction, what it keeps, what follows. */
  buildContextEntries(): SessionEntry[] {
    const { tree } = this.session;
    return this.entriesAt(spanEntries(spanAt(tree, this.bodies, tree.leaf)));
  }

  /** Returns all entries in file order. */
  getEntries(): SessionEntry[] {
    return this.entriesAt([...this.session.visible()]);
  }

  getEntryCount(): number {
    return this.session.tree.entryCount;
  }

  getHeader(): SessionHeader | null {
    return this.session.log.header as SessionHeader;
  }

  /** Returns the display name that was set last. */
  getSessionName(): string | undefined {
    return this.session.name ?? undefined;
  }

  getSessionId(): string {
    return this.session.id;
  }

  /** Returns the path where the session is or will be stored. */
  getSessionFile(): string | undefined {
    return this.session.file ?? this.named;
  }

  getCwd(): string {
    return this.cwd;
  }

  /** Returns the folder for new sessions of this manager; empty in memory. */
  getSessionDir(): string {
    return this.folder;
  }

  usesDefaultSessionDir(): boolean {
    return this.folder === defaultFolder(this.cwd);
  }

  /** Whether sessions of this manager have files. */
  isPersisted(): boolean {
    return this.folder !== "";
  }

  // --- within ----------------------------------------------------------------------------------------------------

  private get session(): Session {
    return this.held.session;
  }

  private readonly bodies: Bodies = {
    line: (position) => this.session.line(position),
    entry: (position) => this.entryAt(position) as unknown as Entry,
  };

  private entryAt(position: number): SessionEntry {
    return this.known()[position] ?? this.entriesAt([position])[0];
  }

  /** Returns the entries at these positions; those that were not requested before are read together. */
  private entriesAt(positions: ArrayLike<number>): SessionEntry[] {
    const known = this.known();
    const wanted = Array.from(positions);
    const unread = wanted.filter((position) => known[position] === undefined);
    let i = 0;
    for (const line of this.session.log.readMany(unread)) known[unread[i++]] = parse(line) as SessionEntry;
    return wanted.map((position) => known[position] as SessionEntry);
  }

  private known(): (SessionEntry | undefined)[] {
    const { log } = this.session;
    if (this.entriesOf !== log) {
      this.entriesOf = log;
      this.entries = Array.from({ length: log.nodes.count });
    }
    return this.entries;
  }

  /** Returns the position of an entry, or -1. */
  private find(id: string): number {
    return this.session.find(id);
  }

  private position(id: string): number {
    const position = this.find(id);
    if (position < 0) throw new Failure("entry_not_found", `Entry ${id} not found`, { entryId: id });
    return position;
  }

  /** Adds what other programs wrote. The leaf stays where the caller knows it, as long as that entry is there. */
  private look(): void {
    const { session } = this;
    this.looked = env.now();
    const { leafId } = session;
    if (!session.refresh()) return;
    const position = leafId === null ? ROOT : session.log.nodes.position(leafId);
    if (leafId === null || position >= 0) session.moveLeaf(position);
  }

  /** Appends an entry. Only one that `opens` the conversation makes the file. */
  private append(entry: Draft, opens = false): string {
    // One check serves all appends of the same millisecond; the log itself finds what comes in between.
    if (this.looked !== env.now()) this.look();
    const { ids } = this.session.append([entry], undefined, !opens);
    this.lendSoon();
    return ids[0];
  }

  /** Lets other programs write when this manager has not appended for a while. */
  private lendSoon(): void {
    const { held } = this;
    if (!held.session.log.persisted) return;
    if (held.timer) held.timer.refresh();
    else held.timer = setTimeout(() => held.session.log.unlock(), WRITING).unref();
  }

  private replace(session: Session): void {
    this.held.session.close();
    this.held.session = session;
    this.looked = Number.NaN;
    this.named = undefined;
    this.prepareFolder();
  }

  /** Makes the session's folder, because callers that learn a file's path may look into it. */
  private prepareFolder(): void {
    const { session } = this;
    if (this.isPersisted() && session.file !== null && !session.log.persisted) this.stores.prepareFolder(session.file);
  }
}

function folderOr(sessionDir: string | undefined, cwd: string): string {
  return sessionDir ? absolutePath(sessionDir) : defaultFolder(cwd);
}

/** Returns the JSON text of a value that has one. */
function textOf(value: unknown): Uint8Array | undefined {
  const text: string | undefined = JSON.stringify(value);
  return text === undefined ? undefined : bytesOf(text);
}

function beginningFor(cwd: string, { id, parentSession }: NewSessionOptions, file?: string): Beginning {
  if (id !== undefined) assertValidSessionId(id);
  return newBeginning(env, { cwd: absolutePath(cwd), id, parentSession, file });
}

/** Throws invalid_id unless a session may have this id. */
export function assertValidSessionId(id: string): void {
  if (!SESSION_ID.test(id)) throw new Failure("invalid_id", undefined, { sessionId: id });
}

function isContent(value: unknown): boolean {
  return typeof value === "string" || Array.isArray(value);
}

/** Returns a session that writes only what it is told to. */
function sessionOn(log: Log, leaves?: LeafMemory): Session {
  return new Session(log, env, leaves, false);
}

function newSession(stores: Stores, beginning: Beginning): Session {
  const session = sessionOn(stores.forNew.create(beginning));
  if (session.file !== null && stores.exists(session.file))
    throw new Failure("already_exists", `There is a file at ${session.file} already. Open it, or choose another id.`, {
      sessionPath: session.file,
    });
  return session;
}

/** Opens the session of a file, at the leaf that the server recorded for it. */
function openSession(stores: Stores, file: string): Session {
  return sessionOn(stores.open(file), stores.leaves);
}

/** Makes a session with content from the start; with `hold` it gets its file later. */
function sessionWith(log: Log, content: Iterable<Uint8Array>, hold: boolean): Session {
  log.append(wholeLines(concat([...content])), { hold });
  return sessionOn(log);
}

function copyInMemory(stores: Stores, file: string): Session {
  const source = openSession(stores, file);
  try {
    const { headerLine, header } = source.log;
    const log = memoryStore().create({ headerLine, header });
    const copy = sessionWith(log, forkContent(source, planCopy(source.tree)), true);
    copy.moveLeaf(source.leafId === null ? ROOT : log.nodes.position(source.leafId));
    return copy;
  } finally {
    source.close();
  }
}

function sessionInMemory(beginning: Beginning, entries: readonly FileEntry[]): Session {
  const given = entries.map((entry) => ({ ...entry }));
  const header = given.find((entry) => entry.type === "session");
  if (header) migrateSessionEntries(given);
  const own = given.filter((entry) => entry !== header && entry.type !== "session") as SessionEntry[];
  if (own.some(({ type, id }) => typeof type !== "string" || typeof id !== "string"))
    throw new Failure(
      "invalid_entry",
      "Entries have a type and an id. Give the header along to have old ones migrated.",
    );
  const headerLine = textOf(header) as Uint8Array;
  const log = memoryStore().create(header ? { header: header as CoreHeader & SessionHeader, headerLine } : beginning);
  log.append(own.map((entry) => textOf(entry) as Uint8Array));
  return sessionOn(log);
}

/** The methods that an extension may call on a session that is not its own. */
export type ReadonlySessionManager = Pick<
  SessionManager,
  | "getCwd"
  | "getSessionDir"
  | "getSessionId"
  | "getSessionFile"
  | "getLeafId"
  | "getLeafEntry"
  | "getEntry"
  | "getLabel"
  | "getBranch"
  | "buildContextEntries"
  | "buildSessionProjection"
  | "getHeader"
  | "getEntries"
  | "getTree"
  | "getSessionName"
>;
