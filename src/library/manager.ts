/** Pi's SessionManager: one conversation by synchronous calls, over the same session and log as the server. */

import { type Bodies, getContextSpan } from "../core/context/context.ts";
import { Failure } from "../core/failure.ts";
import { type Draft, type Entry, makeValueDraft } from "../core/format/entry.ts";
import { parse } from "../core/json/json.ts";
import type { Beginning, Log } from "../core/ports/store.ts";
import type { SessionStores } from "../core/ports/stores.ts";
import { makeCompactionDraft } from "../core/session/compaction-draft.ts";
import { planFork } from "../core/session/fork.ts";
import type { Session } from "../core/session/session.ts";
import { readForkedLines, toSessionName } from "../core/session/workspace.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { projection, spanEntries } from "./entries.ts";
import { absolutePath, defaultFolder, env, folderOr, storesFor } from "./here.ts";
import { findMostRecentSession, findSessionById, listAllSessions, listSessions } from "./list.ts";
import {
  beginningFor,
  contextEdit,
  copyInMemory,
  copyOf,
  HeldSession,
  newSession,
  openSession,
  positionOf,
  sessionInMemory,
  sessionWith,
  textOf,
} from "./sessions.ts";
import type {
  BashExecutionMessage,
  ContextEditEntry,
  CustomMessage,
  CustomMessageEntry,
  FileEntry,
  Message,
  NewSessionOptions,
  SessionContext,
  SessionEntry,
  SessionHeader,
  SessionOptions,
  SessionProjection,
  SessionTreeNode,
  Usage,
  UsageEntry,
} from "./types.ts";

/**
 * A session as a tree of entries in a file. Every append continues the leaf and becomes it; `branch` moves the leaf to
 * an earlier entry. The first message of the user or the assistant creates the file; earlier entries wait in memory.
 * Opening a file writes nothing, whatever its version.
 *
 * Appends throw a `Failure` and change nothing when the disk refuses (storage_full, storage_failed), another process is
 * writing to the session (session_locked), or it is of a newer version (unsupported_version).
 */
export class SessionManager {
  private readonly resources: HeldSession;
  private readonly stores: SessionStores;
  private readonly cwd: string;
  private readonly folder: string;
  /** File that was named, for a manager in memory. */
  private named: string | undefined;
  private readonly read = new ReadEntries(() => this.session);
  /** Time of the last check of the file. */
  private checkedAt = Number.NaN;

  /** `folder` is that of new sessions; empty for sessions in memory. */
  private constructor(cwd: string, folder: string, stores: SessionStores, session: Session) {
    this.cwd = absolutePath(cwd);
    this.folder = folder;
    this.stores = stores;
    this.resources = new HeldSession(this, session);
    this.prepareFolder();
  }

  // --- creation --------------------------------------------------------------------------------------------------

  /** Makes a new session. Its file goes into `sessionDir`, by default the folder of the working directory. */
  static create(cwd: string, sessionDir?: string, options: NewSessionOptions & SessionOptions = {}): SessionManager {
    const folder = folderOr(sessionDir, cwd);
    const stores = storesFor(folder, options);
    return new SessionManager(cwd, folder, stores, newSession(stores, beginningFor(cwd, options)));
  }

  /**
   * Opens the session of a file; a path without a file becomes a new session there. Sessions that are made from it go
   * into `sessionDir`, by default the folder of the file. `cwdOverride` replaces the working directory that the header
   * names. Throws not_a_session (the file is left as it is), storage_failed.
   */
  static open(path: string, sessionDir?: string, cwdOverride?: string, options: SessionOptions = {}): SessionManager {
    const file = absolutePath(path);
    const folder = absolutePath(sessionDir || `${file}/..`);
    const stores = storesFor(folder, options);
    const found = stores.holds(file) ? openSession(stores, file) : undefined;
    const cwd = cwdOverride ?? found?.log.header.cwd ?? process.cwd();
    return new SessionManager(cwd, folder, stores, found ?? newSession(stores, beginningFor(cwd, {}, file)));
  }

  /** Opens the session of a working directory that was changed last, or makes a new one. */
  static continueRecent(cwd: string, sessionDir?: string, options: SessionOptions = {}): SessionManager {
    const folder = folderOr(sessionDir, cwd);
    const stores = storesFor(folder, options);
    const latest = findMostRecentSession(folder, cwd);
    const session = latest === null ? newSession(stores, beginningFor(cwd, {})) : openSession(stores, latest);
    return new SessionManager(cwd, folder, stores, session);
  }

  /** Makes a session without a file, which may begin with given entries (and a header). */
  static inMemory(cwd: string = process.cwd(), options: NewSessionOptions = {}, entries?: FileEntry[]): SessionManager {
    const session = sessionInMemory(beginningFor(cwd, options), entries ?? []);
    return new SessionManager(cwd, "", storesFor("", {}, "memory"), session);
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
    const parentSession = absolutePath(sourcePath);
    const folder = folderOr(sessionDir, targetCwd);
    const stores = storesFor(folder, options);
    const make = (): Beginning => ({
      ...beginningFor(targetCwd, { id: options.id, parentSession }),
      attachmentsOf: parentSession,
    });
    return new SessionManager(targetCwd, folder, stores, copyOf(stores, parentSession, stores.forNew, make));
  }

  /** Lists the sessions of a working directory, the most recent first. Files that are not sessions are skipped. */
  static readonly list = listSessions;

  /** Lists the sessions of all working directories, or of one folder, the most recent first. */
  static readonly listAll = listAllSessions;

  /** Returns the file of the session with exactly that id. */
  static readonly findById = findSessionById;

  /** Begins a new session in place of this one, and returns its file (undefined in memory). */
  newSession(options: NewSessionOptions = {}): string | undefined {
    this.replace(newSession(this.stores, beginningFor(this.cwd, options)));
    return this.getSessionFile();
  }

  /** Continues with the session of a file, or a new one without a file. A failure (as of `open`) changes nothing. */
  setSessionFile(sessionFile: string): void {
    const file = absolutePath(sessionFile);
    const { stores } = this;
    const open = this.isPersisted() ? openSession : copyInMemory;
    this.replace(stores.holds(file) ? open(stores, file) : newSession(stores, beginningFor(this.cwd, {}, file)));
    if (!this.isPersisted()) this.named = file;
  }

  // --- appending -------------------------------------------------------------------------------------------------

  /** Appends a message and returns its entry's id. */
  appendMessage(message: Message | CustomMessage | BashExecutionMessage): string {
    if (typeof message !== "object" || message === null)
      throw new Failure("invalid_entry", "A message is an object with a role.");
    const opens = message.role === "user" || message.role === "assistant";
    return this.append(makeValueDraft("message", { message }), opens);
  }

  appendThinkingLevelChange(thinkingLevel: string): string {
    return this.append(makeValueDraft("thinking_level_change", { thinkingLevel }));
  }

  appendModelChange(provider: string, modelId: string): string {
    return this.append(makeValueDraft("model_change", { provider, modelId }));
  }

  /** Appends tokens and cost that belong to no message, and returns the entry. */
  appendUsage(kind: string, provider: string, model: string, usage: Usage, note?: string): UsageEntry {
    const id = this.append(makeValueDraft("usage", { kind, provider, model, usage, note: note || undefined }));
    return this.getEntry(id) as UsageEntry;
  }

  /**
   * Appends a summary of the entries before `firstKeptEntryId`, an entry of the path; null keeps nothing. The entry
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
    this.addForeignEntries();
    const more = { details: textOf(details), usage: textOf(usage), fromHook };
    return this.append(makeCompactionDraft(this.session, { summary, firstKeptEntryId, tokensBefore, ...more }));
  }

  /** Appends state of an extension, which the model does not see. */
  appendCustomEntry(customType: string, data?: unknown): string {
    return this.append(makeValueDraft("custom", { customType, data }));
  }

  /** Sets the display name, on one line; an empty one clears it. */
  appendSessionInfo(name: string): string {
    return this.append(makeValueDraft("session_info", { name: toSessionName(name) }));
  }

  /** Appends a message of an extension, which the model sees. */
  appendCustomMessageEntry<T = unknown>(
    customType: string,
    content: CustomMessageEntry["content"],
    display: boolean,
    details?: T,
  ): string {
    return this.append(makeValueDraft("custom_message", { customType, content, display, details }));
  }

  /**
   * Replaces the content of an earlier message of the path, for the model only; null leaves the message out. Throws
   * entry_not_found, and invalid_entry when the entry is not on the path or has no content to edit.
   */
  appendContextEdit(targetId: string, replacement: ContextEditEntry["replacement"]): string {
    this.addForeignEntries();
    return this.append(contextEdit(this.session, targetId, replacement));
  }

  /** Names an entry; undefined or an empty label removes the name. Throws entry_not_found. */
  appendLabelChange(targetId: string, label: string | undefined): string {
    this.requireEntry(targetId);
    return this.append(makeValueDraft("label", { targetId, label }));
  }

  /** Resolves when everything appended so far is durable. Rejects after removing entries that could not be. */
  async flush(): Promise<void> {
    try {
      await this.session.commit();
    } catch (error) {
      this.read.forget();
      throw error;
    }
  }

  /** Closes the file, for good. Never necessary: other programs may write to it a second after the last append. */
  close(): void {
    this.resources.close();
  }

  // --- navigation ------------------------------------------------------------------------------------------------

  /** Returns the id of the entry that the next append continues; null before the first entry. */
  getLeafId(): string | null {
    return this.session.leafId;
  }

  getLeafEntry(): SessionEntry | undefined {
    const { leaf } = this.session.tree;
    return leaf < 0 ? undefined : this.read.at(leaf);
  }

  getEntry(id: string): SessionEntry | undefined {
    const position = this.session.find(id);
    return position < 0 ? undefined : this.read.at(position);
  }

  /** Returns the entries from the root to an entry, by default the leaf; an empty list for an unknown one. */
  getBranch(fromId?: string): SessionEntry[] {
    const { tree } = this.session;
    return this.read.all(tree.path(fromId === undefined ? tree.leaf : this.session.find(fromId)));
  }

  /** Returns all entries as trees, children by time. Entries whose parent is unknown are roots. */
  getTree(): SessionTreeNode[] {
    return this.read.tree();
  }

  /** Returns the entries that continue an entry, in file order; for null, the roots. */
  getChildren(parentId: string | null): SessionEntry[] {
    if (parentId === null) {
      const { nodes } = this.session.log;
      return this.read.all([...this.session.visible()].filter((position) => nodes.parent(position) === ROOT));
    }
    const position = this.session.find(parentId);
    return position < 0 ? [] : this.read.all([...this.session.tree.children(position)]);
  }

  getLabel(id: string): string | undefined {
    return this.session.tree.labels.get(this.session.find(id))?.label;
  }

  /**
   * Makes an earlier entry the leaf. Nothing is written: the next append begins another branch, and without one the
   * next opening finds the leaf that the file gives. Throws entry_not_found.
   */
  branch(branchFromId: string): void {
    this.session.moveLeaf(positionOf(this.session, branchFromId));
  }

  /** Moves the leaf to before the first entry. */
  resetLeaf(): void {
    this.session.moveLeaf(ROOT);
  }

  /** Moves the leaf (null: before the first entry) and appends a summary of the branch left. Throws entry_not_found. */
  branchWithSummary(
    branchFromId: string | null,
    summary: string,
    details?: unknown,
    fromHook?: boolean,
    usage?: Usage,
  ): string {
    if (branchFromId !== null) this.requireEntry(branchFromId);
    const fromId = this.getLeafId() ?? "root";
    const rest = { fromId, summary, details, usage, fromHook };
    return this.append({ ...makeValueDraft("branch_summary", rest), parentId: branchFromId });
  }

  /**
   * Continues in a new session that holds the path to an entry, and returns its file (undefined in memory). Labels of
   * the path's entries are written again at the end. Throws entry_not_found, storage_failed.
   */
  createBranchedSession(leafId: string): string | undefined {
    const { session } = this;
    const firstKeptId = (compaction: number) => session.firstKeptId(compaction);
    const plan = planFork(session.tree, positionOf(session, leafId), firstKeptId);
    const parentSession = this.isPersisted() && session.log.persisted ? (session.file ?? undefined) : undefined;
    const beginning = { ...beginningFor(this.cwd, { parentSession }), attachmentsOf: parentSession };
    const { nodes } = session.log;
    const talks = plan.positions.some((p) => nodes.role(p) === "user" || nodes.role(p) === "assistant");
    this.replace(sessionWith(this.stores.forNew, beginning, readForkedLines(session, plan), !talks));
    return this.getSessionFile();
  }

  // --- context and session ---------------------------------------------------------------------------------------

  /** Returns the model's view at the leaf. */
  buildSessionContext(): SessionContext {
    const { messages, thinkingLevel, model } = this.buildSessionProjection();
    return { messages, thinkingLevel, model };
  }

  /** Does the same, and returns the source entry of each message. */
  buildSessionProjection(): SessionProjection {
    const { session } = this;
    session.rebuildAfterLosses();
    // These are read together; the projection asks for them one by one.
    this.buildContextEntries();
    return projection(session.tree, this.read, session.tree.leaf, session.model(), session.thinkingLevel());
  }

  /** Returns the entries that make the context: the latest compaction, its kept entries, and those after it. */
  buildContextEntries(): SessionEntry[] {
    const { tree } = this.session;
    return this.read.all(spanEntries(getContextSpan(tree, this.read, tree.leaf)));
  }

  /** Returns all entries in file order. */
  getEntries(): SessionEntry[] {
    return this.read.all([...this.session.visible()]);
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

  /** Returns the present or future path of the session. */
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

  /** True if sessions of this manager have files. */
  isPersisted(): boolean {
    return this.folder !== "";
  }

  // --- within ----------------------------------------------------------------------------------------------------

  private get session(): Session {
    return this.resources.current;
  }

  /** Adds the changes of other programs. The leaf stays where the caller knows it, as long as that entry exists. */
  private addForeignEntries(): void {
    const { session } = this;
    this.checkedAt = env.now();
    const { leafId } = session;
    if (!session.refresh()) return;
    const position = leafId === null ? ROOT : session.log.nodes.position(leafId);
    if (leafId === null || position >= 0) session.moveLeaf(position);
  }

  /** Adds the changes of other programs, once a millisecond; the log itself finds those in between. */
  private lookAround(): void {
    if (this.checkedAt !== env.now()) this.addForeignEntries();
  }

  /** Throws entry_not_found unless there is such an entry, of ours or of another program. */
  private requireEntry(id: string): void {
    this.lookAround();
    if (this.session.find(id) >= 0) return;
    this.addForeignEntries();
    positionOf(this.session, id);
  }

  /** Appends an entry. Only one that `opens` the conversation makes the file. */
  private append(entry: Draft, opens = false): string {
    this.lookAround();
    const append = (): string => this.session.append([entry], undefined, !opens).ids[0];
    let id: string;
    try {
      id = append();
    } catch (error) {
      if (!isOutOfFiles(error) || !this.resources.lendOthers()) throw heldElsewhere(error, this.session.file);
      id = append();
    }
    this.resources.lendSoon(this.checkedAt);
    return id;
  }

  private replace(session: Session): void {
    this.resources.replace(session);
    this.checkedAt = Number.NaN;
    this.named = undefined;
    this.prepareFolder();
  }

  /** Makes the session's folder, because callers that learn a file's path may look into it. */
  private prepareFolder(): void {
    const { session } = this;
    if (this.isPersisted() && session.file !== null && !session.log.persisted) this.stores.prepareFolder(session.file);
  }
}

/** True if nothing was written because this process may have no more files open. */
function isOutOfFiles(error: unknown): boolean {
  return error instanceof Failure && error.name === "storage_failed" && error.details.errno === "EMFILE";
}

/** Returns an error for the caller; for a lock of another process, with advice. */
function heldElsewhere(error: unknown, file: string | null): unknown {
  if (!(error instanceof Failure) || error.name !== "session_locked") return error;
  const { client, pid = 0 } = (error.details.holder ?? {}) as { client?: string; pid?: number };
  const who = `${client ?? "Another program"}${pid > 0 ? ` (process ${pid})` : ""}`;
  const sentence = `${who} holds this session, and these calls cannot wait for it. A server joins it: spawnServer({ args: ["--session", ${JSON.stringify(file)}] }) of pi-session-server/client, then append; or close it there.`;
  return new Failure("session_locked", sentence, error.details, { cause: error });
}

// --- entries as objects ---------------------------------------------------------------------------------------------

class ReadEntries implements Bodies {
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
