/** The methods of the Agent Client Protocol, one function each. Names and shapes are those of its schema. */

import { BadParams, Failure, INVALID_PARAMS, INVALID_REQUEST, NO_SUCH_METHOD } from "../../../core/failure.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toPreview } from "../../../core/format/message.ts";
import { runCommand } from "../../../server/dispatch/command-runner.ts";
import { CANCEL } from "./acp-connection.ts";
import { type ClientSession, requireNotStopped } from "./client-session.ts";
import { createOpenSession, forkOpenSession, type LocatedSession, locateSession, readOutline } from "./commands.ts";
import { AcpError, NOT_FOUND } from "./errors.ts";
import type { AcpRequest, ConversationAccess, Method } from "./method.ts";
import { getMeta, getMetaText, listUnusedParams, parseListCwd, parseParams } from "./params.ts";
import { type ReplayResult, replay, sendNewEntries } from "./replay.ts";
import { getAgentSettings, prompt, setConfigOption, setMode } from "./turns.ts";
import { SERVER_NAME } from "./update-mapper.ts";

/** The version of the Agent Client Protocol. A client that requests another one gets this in the reply. */
const ACP_VERSION = 1;
/** Sessions on a page of a list. */
const LISTED = 100;

// --- beginning -------------------------------------------------------------------------------------------------

const initialize: Method = async (conversation, { params }) => {
  if (conversation.introduced)
    throw new AcpError(INVALID_REQUEST, "initialize was answered already; it is sent only once.");
  const { protocolVersion, clientCapabilities, clientInfo } = toMembers(params);
  if (typeof protocolVersion !== "number" || !Number.isInteger(protocolVersion))
    throw new BadParams([{ path: "protocolVersion", message: "must be a whole number, such as 1" }]);
  const { session: sessions, elicitation } = toMembers(clientCapabilities);
  const can = toMembers(sessions);
  const isGiven = (name: string): boolean => isObjectValue(can[name]);
  const { version, readOnly, agent } = conversation.facts;
  const { name, version: clientVersion } = toMembers(clientInfo);
  conversation.introduced = {
    compaction: isGiven("compaction"),
    notices: isGiven("notices"),
    forms: isObjectValue(toMembers(elicitation).form),
  };
  // Clients that share a session see this name.
  if (typeof name === "string")
    await runCommand(conversation.dispatcher, "initialize", {
      clientInfo: { name, ...(typeof clientVersion === "string" ? { version: clientVersion } : {}) },
    });
  const met = toMembers(
    await agent?.initialize?.(
      { clientCapabilities: toMembers(clientCapabilities), ...pickClientInfo(clientInfo) },
      conversation,
    ),
  );
  const { authMethods = [] } = met;
  const theirs = toMembers(met.agentCapabilities);
  const changes = readOnly ? {} : { fork: {}, delete: {}, archive: {}, title: {} };
  return {
    protocolVersion: ACP_VERSION,
    agentInfo: { name: SERVER_NAME, title: "Pi session server", version },
    agentCapabilities: {
      promptCapabilities: agent?.promptCapabilities ?? { image: false, audio: false, embeddedContext: false },
      mcpCapabilities: { http: false, sse: false },
      ...theirs,
      loadSession: true,
      sessionCapabilities: { list: {}, resume: {}, close: {}, status: {}, ...changes },
      _meta: {
        ...toMembers(theirs._meta),
        [SERVER_NAME]: { prompt: agent !== undefined, since: true, forkAt: true, methods: Object.keys(extensions) },
      },
    },
    authMethods,
  };
};

function isObjectValue(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

function pickClientInfo(clientInfo: unknown): { clientInfo?: LooseMembers } {
  return isObjectValue(clientInfo) ? { clientInfo: toMembers(clientInfo) } : {};
}

const authenticate: Method = async ({ facts }, { params }) => {
  if (facts.agent?.authenticate) return facts.agent.authenticate(toMembers(params));
  throw new AcpError(INVALID_PARAMS, "There is nothing to log in to: this server offers no ways to authenticate.");
};

// --- sessions --------------------------------------------------------------------------------------------------

const newSession: Method = async (conversation, request) => {
  const given = parseParams(request.params, "cwd", "mcpServers", "additionalDirectories");
  const sessionId = await createOpenSession(conversation.dispatcher, given.cwd);
  await conversation.inOrder(sessionId, async (session) => {
    const { leafId } = await readOutline(conversation.dispatcher, sessionId);
    session.position = { lastId: leafId, mapper: undefined };
  });
  const settings = await getAgentSettings(conversation, request, sessionId);
  return { sessionId, ...withMeta(settings, listIgnored(conversation, given, settings)) };
};

const load: Method = (conversation, request) => openForClient(conversation, request, true);

const resume: Method = (conversation, request) =>
  openForClient(conversation, request, getMetaText(toMembers(request.params), "since") !== undefined);

/** Opens a session for the client, and sends the entries that it does not have. */
function openForClient(conversation: ConversationAccess, request: AcpRequest, isShown: boolean): Promise<object> {
  const { params, isCancelled } = request;
  const given = parseParams(params, "sessionId", "cwd", "mcpServers", "additionalDirectories");
  const since = getMetaText(given, "since");
  const path = getMetaText(given, "sessionPath");
  const { sessionId } = given;
  return conversation.inOrder(sessionId, async (session, isClosed) => {
    const isStopped = (): boolean => isClosed() || isCancelled();
    requireNotStopped(isStopped);
    await open(conversation, sessionId, path);
    const shown = isShown
      ? await replay(conversation, session, since, isStopped)
      : await markAllShown(conversation, session);
    const { cwd } = shown.facts;
    const settings = await getAgentSettings(conversation, request, sessionId);
    return withMeta(settings, {
      ...describeReplay(shown),
      ...(cwd === given.cwd ? {} : { cwd }),
      ...listIgnored(conversation, given, settings),
    });
  });
}

/** Records that the client has all entries of a session from elsewhere. */
async function markAllShown(conversation: ConversationAccess, session: ClientSession): Promise<ReplayResult> {
  const facts = await readOutline(conversation.dispatcher, session.id);
  session.position = { lastId: facts.leafId, mapper: undefined };
  return { facts, after: facts.leafId, entries: 0 };
}

function describeReplay({ facts, after, entries }: ReplayResult): LooseMembers {
  return { leafId: facts.leafId, after, entries, readOnly: facts.readOnly };
}

/** Opens a session. Throws session_not_found unless the id matches exactly. */
async function open({ dispatcher }: ConversationAccess, sessionId: string, sessionPath?: string): Promise<void> {
  if (sessionPath !== undefined) {
    const opened = await runCommand(dispatcher, "open_session", { sessionPath });
    if (opened.sessionId === sessionId) return;
    throw new AcpError(NOT_FOUND, "The session at the path in _meta has another id.");
  }
  const found = await locateSession(dispatcher, sessionId);
  if (found.isOpen || found.sessionPath === null) return;
  await runCommand(dispatcher, "open_session", { sessionPath: found.sessionPath });
}

const list: Method = async ({ dispatcher }, { params }) => {
  const given = parseParams(params, "cursor", "archived");
  const wanted = given.archived ?? "exclude";
  const cwd = parseListCwd(given);
  let { isArchived, cursor } = parseCursor(given.cursor ?? undefined, wanted);
  const sessions: object[] = [];
  for (;;) {
    const limit = LISTED - sessions.length;
    const found = await runCommand(dispatcher, "list_sessions", { cwd, cursor, archived: isArchived, limit });
    sessions.push(...(found.sessions as LooseMembers[]).map(toSessionInfo));
    const next = found.nextCursor as string | undefined;
    if (next !== undefined) return { sessions, nextCursor: `${isArchived ? ARCHIVED : ""}${next}` };
    if (isArchived || wanted !== "include") return { sessions };
    // The archived sessions follow the others.
    if (sessions.length === LISTED) return { sessions, nextCursor: ARCHIVED };
    isArchived = true;
    cursor = undefined;
  }
};

/** Prefix of cursors into the archived sessions, which follow the others. */
const ARCHIVED = "archived:";

function parseCursor(cursor: string | undefined, wanted: string): { isArchived: boolean; cursor: string | undefined } {
  if (!cursor?.startsWith(ARCHIVED)) return { isArchived: wanted === "only", cursor };
  return { isArchived: true, cursor: cursor.slice(ARCHIVED.length) || undefined };
}

/** Returns a listed session in the protocol's form. */
function toSessionInfo(listed: LooseMembers): object {
  const { sessionId, cwd, name, firstMessage, modified, archived, sessionPath, messageCount, created, store } = listed;
  const { forkedFrom, parentSession } = listed;
  const title = name ?? (typeof firstMessage === "string" ? toPreview(firstMessage) : null);
  return {
    sessionId,
    // The protocol requires a directory, and some sessions have none.
    cwd: cwd ?? "/",
    title: title === "" ? null : title,
    updatedAt: modified,
    ...(archived === true ? { archived } : {}),
    ...makeMeta({
      sessionPath,
      messageCount,
      created,
      store,
      cwd: cwd === null ? null : undefined,
      parentSession,
      forkedFrom,
    }),
  };
}

const close: Method = async (conversation, { params }) => {
  const { sessionId } = parseParams(params, "sessionId");
  stopJobs(conversation, sessionId);
  await conversation.inOrder(sessionId, () => closeSession(conversation, sessionId));
  return {};
};

function stopJobs(conversation: ConversationAccess, sessionId: string): void {
  conversation.find(sessionId)?.stop();
  conversation.wake();
}

/** Closes a session. Returns its location. Throws session_not_found when it does not exist. */
async function closeSession({ dispatcher, facts }: ConversationAccess, sessionId: string): Promise<LocatedSession> {
  const found = await locateSession(dispatcher, sessionId);
  await facts.agent?.close(sessionId);
  if (found.isOpen) await runCommand(dispatcher, "close_session", { sessionId });
  return found;
}

const deleteSession: Method = async (conversation, { params }) =>
  whileClosed(conversation, parseParams(params, "sessionId").sessionId, async (sessionId, { isStored }) => {
    if (isStored) await runCommand(conversation.dispatcher, "delete_session", { sessionId });
  }).catch((error: unknown) => {
    // A session that does not exist counts as deleted.
    if (error instanceof Failure && /^(?:session_not_found|invalid_id)$/.test(error.name)) return {};
    throw error;
  });

/** Makes the method that archives or unarchives a session. */
function makeMoveMethod(command: "archive_session" | "unarchive_session"): Method {
  return async (conversation, { params }) =>
    whileClosed(conversation, parseParams(params, "sessionId").sessionId, async (sessionId) => {
      await runCommand(conversation.dispatcher, command, { sessionId });
    });
}

/** Closes a session and moves it. If the move fails, the client has it as before. */
function whileClosed(
  conversation: ConversationAccess,
  sessionId: string,
  move: (sessionId: string, found: LocatedSession) => Promise<void>,
): Promise<object> {
  requireWritable(conversation);
  const { position } = conversation.find(sessionId) ?? {};
  stopJobs(conversation, sessionId);
  return conversation.inOrder(sessionId, async (session) => {
    const found = await closeSession(conversation, sessionId);
    try {
      await move(sessionId, found);
    } catch (error) {
      if (!position || !found.isStored) throw error;
      await open(conversation, sessionId);
      session.position = position;
      throw error;
    }
    return {};
  });
}

function requireWritable({ facts }: ConversationAccess): void {
  if (facts.readOnly)
    throw new AcpError(
      NO_SUCH_METHOD,
      "The server was started with --read-only: sessions are neither copied, moved nor renamed.",
    );
}

const fork: Method = async (conversation, request) => {
  requireWritable(conversation);
  const given = parseParams(request.params, "sessionId", "cwd", "mcpServers", "additionalDirectories");
  const { sessionId } = given;
  const { entryId, position } = parseForkPoint(given);
  const made = await conversation.inOrder(sessionId, async () => {
    await open(conversation, sessionId, getMetaText(given, "sessionPath"));
    return forkOpenSession(conversation.dispatcher, sessionId, entryId, position);
  });
  const shown = await conversation.inOrder(made, (session) => markAllShown(conversation, session));
  const { cwd, leafId } = shown.facts;
  const settings = await getAgentSettings(conversation, request, made);
  const ignored = listIgnored(conversation, given, settings);
  return { sessionId: made, ...withMeta(settings, { leafId, ...(cwd === given.cwd ? {} : { cwd }), ...ignored }) };
};

/** Returns the end of a fork, given in our members or in those of JetBrains' agents; by default the leaf. */
function parseForkPoint(params: LooseMembers): { entryId: string | undefined; position: "at" | "before" } {
  const ours = getMeta(params);
  const air = toMembers(toMembers(toMembers(params._meta).jetbrains).air).fork;
  const theirs = toMembers(air).messageId;
  const position = ours.position ?? "at";
  if (position !== "at" && position !== "before")
    throw new BadParams([{ path: `_meta.${SERVER_NAME}.position`, message: 'must be "at" or "before"' }]);
  if (air !== undefined && air !== null && typeof theirs !== "string")
    throw new BadParams([{ path: "_meta.jetbrains.air.fork.messageId", message: "must be a string" }]);
  return { entryId: getMetaText(params, "entryId") ?? (theirs as string | undefined), position };
}

const status: Method = async ({ dispatcher }, { params }) => {
  const { isOpen } = await locateSession(dispatcher, parseParams(params, "sessionId").sessionId);
  return { status: isOpen ? "open" : "saved" };
};

const setTitle: Method = async (conversation, { params }) => {
  const { sessionId, title } = parseParams(params, "sessionId", "title");
  requireWritable(conversation);
  return conversation.inOrder(sessionId, async () => {
    const { isOpen, sessionPath } = await locateSession(conversation.dispatcher, sessionId);
    const where = isOpen || sessionPath === null ? { sessionId } : { sessionPath };
    await runCommand(conversation.dispatcher, "set_session_name", { ...where, name: title });
    return { title: title.replace(/[\r\n]+/g, " ").trim() };
  });
};

// --- extensions --------------------------------------------------------------------------------------------------

/** Makes a method that runs a command on a session, which need not be open. */
function makeQueryMethod(name: string): Method {
  return async (conversation, { params }) => {
    const { sessionId, ...rest } = parseParams(params, "sessionId");
    return conversation.inOrder(sessionId, async () => {
      await open(conversation, sessionId);
      return runCommand(conversation.dispatcher, name, { ...rest, sessionId });
    });
  };
}

/** Moves the leaf, and sends the entries of its path that the client does not have. */
const branch: Method = async (conversation, { params, isCancelled }) => {
  const { sessionId, ...rest } = parseParams(params, "sessionId", "entryId");
  return conversation.inOrder(sessionId, async (session, isClosed) => {
    await open(conversation, sessionId);
    const moved = await runCommand(conversation.dispatcher, "branch", { ...rest, sessionId });
    const shown = await sendNewEntries(conversation, session, () => isClosed() || isCancelled());
    return { ...moved, ...(shown ? { after: shown.after } : {}) };
  });
};

/** Makes the method of a notification that a client sends as a request: it has its effect, and a reply. */
function makeNoticeMethod(name: string): Method {
  return async (conversation, { params }) => {
    conversation.notice(name, params);
    return {};
  };
}

/** Methods that the protocol does not have. */
const extensions: Readonly<Record<string, Method>> = {
  [`_${SERVER_NAME}/tree`]: makeQueryMethod("get_tree"),
  [`_${SERVER_NAME}/entries`]: makeQueryMethod("get_entries"),
  [`_${SERVER_NAME}/branch`]: branch,
};

export const methods: Readonly<Record<string, Method>> = {
  initialize,
  authenticate,
  "session/new": newSession,
  "session/load": load,
  "session/resume": resume,
  "session/list": list,
  "session/close": close,
  "session/delete": deleteSession,
  "session/fork": fork,
  "session/archive": makeMoveMethod("archive_session"),
  "session/unarchive": makeMoveMethod("unarchive_session"),
  "session/status": status,
  "session/set_title": setTitle,
  "session/prompt": prompt,
  "session/cancel": makeNoticeMethod("session/cancel"),
  [CANCEL]: makeNoticeMethod(CANCEL),
  "session/set_mode": setMode,
  "session/set_config_option": setConfigOption,
  ...extensions,
};

/** Returns our part of `_meta`, if it has any members. */
function makeMeta(ours: LooseMembers): object {
  return Object.values(ours).every((value) => value === undefined) ? {} : { _meta: { [SERVER_NAME]: ours } };
}

/** Returns a result with our members added to its `_meta`. */
function withMeta(result: LooseMembers, ours: LooseMembers): object {
  const before = toMembers(toMembers(result._meta)[SERVER_NAME]);
  return { ...result, ...makeMeta({ ...before, ...ours }) };
}

/** Returns the params without effect as `ignored`: those that come too late for the agent, and those of no use to it. */
function listIgnored({ facts }: ConversationAccess, params: LooseMembers, settings: LooseMembers): LooseMembers {
  const { uses = [] } = facts.agent ?? {};
  const { ignored: late } = getMeta(settings);
  const unused = listUnusedParams(params).filter((name) => !uses.includes(name));
  const ignored = [...(Array.isArray(late) ? late : []), ...unused];
  return ignored.length === 0 ? {} : { ignored };
}
