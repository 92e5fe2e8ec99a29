/**
 * Work on sessions for the conversation with an editor. It runs in the order of the calls, so that a page has durable
 * entries only, and a new session does not replace those that are open.
 */

import { Failure } from "../../../core/failure.ts";
import { holdsAttachment, resolveAttachments } from "../../../core/format/attachments.ts";
import { toMembers } from "../../../core/format/loose.ts";
import { findMember, getMembers, parse } from "../../../core/json/json.ts";
import type { Session } from "../../../core/session/session.ts";
import { getContextUsage } from "../../../core/session/stats.ts";
import type { Workspace } from "../../../core/session/workspace.ts";
import { type Nodes, ROOT } from "../../../core/tree/nodes.ts";
import type { CommandContext } from "../../../handlers/shared/command.ts";
import type { Dispatcher } from "../../../server/dispatch/dispatcher.ts";
import type { PathEntry } from "./update-mapper.ts";

/** Limits of a page in entries and bytes; one entry alone may have more bytes. */
const PAGE_ENTRIES = 256;
const PAGE_BYTES = 1 << 20;

const READ = { effect: "read" } as const;

/** A path that is read page by page. It is walked once, and again when the entries were read anew between two pages. */
interface PathWalk {
  readonly nodes: Nodes;
  readonly cuts: number;
  readonly path: Int32Array;
  readonly leafId: string | null;
}

export interface EntryPage {
  readonly walk: PathWalk;
  /** The entry before the page on the path: the requested one, or the common ancestor with the requested one. */
  readonly after: string | null;
  readonly entries: readonly PathEntry[];
  /** True if the path has more entries. */
  readonly isMore: boolean;
}

/**
 * Reads a page of a path, parsed, after the entry `since`; null for the beginning. `walk`: that of the page before.
 * Without one, the page is of the path to the current leaf.
 */
export function readPage(
  dispatcher: Dispatcher,
  sessionId: string,
  since: string | null,
  walk?: PathWalk,
): Promise<EntryPage> {
  return dispatcher.runInOrder(sessionId, ({ session }) => readPageAfter(session, since, walk), READ);
}

function readPageAfter(session: Session, since: string | null, before: PathWalk | undefined): EntryPage {
  const walk = before && isCurrent(before, session) ? before : walkPath(session, before?.leafId);
  const { path } = walk;
  const last = since === null ? ROOT : session.find(since);
  const after = last < 0 ? ROOT : findFork(session, walk, last);
  const first = after < 0 ? 0 : session.tree.depth(after) + 1;
  let bytes = 0;
  let past = first;
  while (past < path.length && past - first < PAGE_ENTRIES && bytes < PAGE_BYTES)
    bytes += session.log.length(path[past++]);
  return {
    walk,
    after: session.idOrNull(after),
    entries: readEntries(session, path.subarray(first, past)),
    isMore: past < path.length,
  };
}

function isCurrent({ nodes, cuts }: PathWalk, { log }: Session): boolean {
  return nodes === log.nodes && cuts === log.nodes.cuts;
}

/** Walks the path to an entry, by default to the leaf. Throws content_modified when the entry is gone. */
function walkPath(session: Session, leafId?: string | null): PathWalk {
  const { nodes } = session.log;
  const leaf = leafId === undefined ? session.tree.leaf : leafId === null ? ROOT : session.find(leafId);
  if (leaf < 0 && leafId)
    throw new Failure(
      "content_modified",
      "The session was changed by another program while it was read. Load it again.",
    );
  return { nodes, cuts: nodes.cuts, path: session.tree.path(leaf), leafId: session.idOrNull(leaf) };
}

/** Returns the common ancestor of a walk's path and an entry: the entry itself if it is on the path. */
function findFork({ tree }: Session, { path }: PathWalk, at: number): number {
  if (path[tree.depth(at)] === at) return at;
  return path.length === 0 ? ROOT : tree.commonAncestor(at, path[path.length - 1]);
}

function readEntries(session: Session, positions: Int32Array): PathEntry[] {
  const { tree, log } = session;
  const found: PathEntry[] = [];
  for (const line of log.readMany(positions, true)) {
    const position = positions[found.length];
    const parent = log.nodes.parent(position);
    found.push({
      id: log.nodes.id(position),
      parentId: session.idOrNull(parent),
      entry: toMembers(parseEntry(session, position, line)),
      siblings: parent < 0 ? 1 : tree.childCount(parent),
    });
  }
  return found;
}

/** Returns an entry with its pictures, including those that are stored in files. */
function parseEntry({ log }: Session, position: number, line: Uint8Array): unknown {
  const entry = parse(line);
  if (!holdsAttachment(line)) return entry;
  const read = (sha256: string, size: number): string | null => log.attachment(position, sha256, size);
  const message = findMember(getMembers(line) ?? [], "message");
  if (!message) return parse(resolveAttachments(line, read));
  return { ...(entry as object), message: parse(resolveAttachments(line.subarray(message.start, message.end), read)) };
}

export interface SessionOutline {
  readonly cwd: string;
  readonly name: string | null;
  readonly leafId: string | null;
  readonly sessionPath: string | null;
  readonly model: { readonly provider: string; readonly id: string } | null;
  readonly thinkingLevel: string;
  readonly readOnly: boolean;
  /** True if another process writes to the session or shares it: calls without a result may still be running. */
  readonly isElsewhere: boolean;
}

/** Reads the session as clients show it next to its messages. */
export function readOutline(dispatcher: Dispatcher, sessionId: string): Promise<SessionOutline> {
  return dispatcher.runInOrder(sessionId, getSessionOutline, READ);
}

function getSessionOutline(context: CommandContext): SessionOutline {
  const { session } = context;
  const { file, log } = session;
  return {
    cwd: session.cwd,
    name: session.name,
    leafId: session.leafId,
    sessionPath: file,
    model: session.model(),
    thinkingLevel: session.thinkingLevel(),
    readOnly: log.readOnly !== null,
    isElsewhere: isElsewhere(context),
  };
}

interface OutlineAndPage {
  readonly facts: SessionOutline;
  /** The page after the last entry that was read. */
  readonly first: EntryPage;
}

/** Reads the outline and the page after an entry together, because each prompt waits for them. */
export function readOutlineAndPage(
  dispatcher: Dispatcher,
  sessionId: string,
  since: string | null,
): Promise<OutlineAndPage> {
  const read = (context: CommandContext): OutlineAndPage => ({
    facts: getSessionOutline(context),
    first: readPageAfter(context.session, since, undefined),
  });
  return dispatcher.runInOrder(sessionId, read, READ);
}

/** Returns how full the model's context is, if known. Walks the context, so that no turn should wait for it. */
export function readContextUsage(
  dispatcher: Dispatcher,
  sessionId: string,
): Promise<ReturnType<typeof getContextUsage>> {
  return dispatcher.runInOrder(sessionId, ({ session }) => getContextUsage(session), READ);
}

function isElsewhere(context: CommandContext): boolean {
  const { session, workspace } = context;
  const { file, log } = session;
  if (context.clientsOf(session).length > 1) return true;
  return file !== null && log.persisted && !session.hasLock && workspace.stores.health.holders([file]).size > 0;
}

export interface LocatedSession {
  readonly isOpen: boolean;
  /** True if the session is on disk. A new session is not, before its first entry. */
  readonly isStored: boolean;
  readonly sessionPath: string | null;
}

/** Finds a session by its full id. Rejects with session_not_found, ambiguous_id, invalid_id. */
export function locateSession(dispatcher: Dispatcher, sessionId: string): Promise<LocatedSession> {
  return dispatcher.runInOrder(sessionId, ({ workspace }): LocatedSession | Promise<LocatedSession> => {
    const open = workspace.openWith(sessionId);
    if (open) return { isOpen: true, isStored: open.log.persisted && open.file !== null, sessionPath: open.file };
    try {
      const sessionPath = workspace.stores.lifeCycle.locate({ sessionId });
      return { isOpen: workspace.has(sessionId), isStored: true, sessionPath };
    } catch (error) {
      return locateElsewhere(workspace, sessionId, error);
    }
  });
}

/** Finds a session of another agent, or one of another machine, which is fetched. Throws the given failure without one. */
async function locateElsewhere(workspace: Workspace, sessionId: string, failure: unknown): Promise<LocatedSession> {
  if (!(failure instanceof Failure && failure.name === "session_not_found")) throw failure;
  const { stores } = workspace;
  const foreign = await stores.lookUp(sessionId, "whole");
  if (foreign !== undefined) return { isOpen: false, isStored: true, sessionPath: foreign };
  if (!stores.arrive) throw failure;
  await workspace.arrive({ sessionId, isWhole: true });
  return { isOpen: false, isStored: true, sessionPath: stores.lifeCycle.locate({ sessionId }) };
}

/** Makes a session next to those that are open. Returns its id. */
export function createOpenSession(dispatcher: Dispatcher, cwd: string): Promise<string> {
  const create = ({ workspace }: CommandContext): string => {
    const made = workspace.create({ cwd });
    workspace.keep(made);
    return made.id;
  };
  return dispatcher.runInOrder(undefined, create, { opensSession: true });
}

/** Copies the path to an entry, by default to the leaf, into a new session next to those that are open. Returns its id. */
export function forkOpenSession(
  dispatcher: Dispatcher,
  sessionId: string,
  entryId: string | undefined,
  position: "at" | "before",
): Promise<string> {
  const fork = async (context: CommandContext): Promise<string> => {
    const { session, workspace } = context;
    const made = await workspace.fork(session, findForkEnd(context, entryId, position), { comesOf: session });
    workspace.keep(made);
    return made.id;
  };
  return dispatcher.runInOrder(sessionId, fork, { effect: "replace" });
}

/** Returns the last entry of the copy. Throws entry_not_found. */
function findForkEnd({ session }: CommandContext, entryId: string | undefined, position: "at" | "before"): number {
  if (entryId === undefined) return session.tree.leaf;
  const at = session.position(entryId);
  return position === "at" ? at : Math.max(session.log.nodes.parent(at), ROOT);
}
