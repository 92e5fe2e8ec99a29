/** The methods of the Agent Client Protocol, one function each. Names and shapes are those of its schema. */

import { BadParams, Failure } from "../../core/failure.ts";
import { type LooseMembers, membersOf } from "../../core/format/loose.ts";
import { preview } from "../../core/format/message.ts";
import { type Attached, requireGoing } from "./attached.ts";
import { forkBeside, type Located, locate, make } from "./commands.ts";
import { AcpError, INVALID_PARAMS, INVALID_REQUEST, NO_SUCH_METHOD, NOT_FOUND } from "./errors.ts";
import type { AcpRequest, Conversing, Method, MethodContext } from "./method.ts";
import { OURS } from "./narrator.ts";
import { listedCwd, oursOf, ourText, paramsOf, unusedIn } from "./params.ts";
import { catchUp, type Replayed, replay } from "./replay.ts";
import { factsOf, prompt, setConfigOption, setMode, settingsOf } from "./turns.ts";

/** The version of the Agent Client Protocol that is spoken; a client that knows others says so, and is told this one. */
const ACP_VERSION = 1;
/** Sessions of a page of a list. */
const LISTED = 100;

// --- beginning -------------------------------------------------------------------------------------------------

const initialize: Method = async ({ conversation }, { params }) => {
  if (conversation.skills)
    throw new AcpError(INVALID_REQUEST, "initialize was answered already; it is sent only once.");
  const { protocolVersion, clientCapabilities, clientInfo } = membersOf(params);
  if (typeof protocolVersion !== "number" || !Number.isInteger(protocolVersion))
    throw new BadParams([{ path: "protocolVersion", message: "must be a whole number, such as 1" }]);
  const { session: sessions, elicitation } = membersOf(clientCapabilities);
  const can = membersOf(sessions);
  const isGiven = (name: string): boolean => isObject(can[name]);
  const { version, readOnly, agent } = conversation.facts;
  const { name, version: clientVersion } = membersOf(clientInfo);
  conversation.skills = {
    compaction: isGiven("compaction"),
    notices: isGiven("notices"),
    forms: isObject(membersOf(elicitation).form),
  };
  // Others who share a session see by this who it is.
  if (typeof name === "string")
    await conversation.asker.ask("initialize", {
      clientInfo: { name, ...(typeof clientVersion === "string" ? { version: clientVersion } : {}) },
    });
  const met = membersOf(
    await agent?.meet?.({ clientCapabilities: membersOf(clientCapabilities), ...clientOf(clientInfo) }),
  );
  const { authMethods = [] } = met;
  const changes = readOnly ? {} : { delete: {}, archive: {}, title: {} };
  return {
    protocolVersion: ACP_VERSION,
    agentInfo: { name: OURS, title: "Pi session server", version },
    agentCapabilities: {
      loadSession: true,
      promptCapabilities: agent?.promptCapabilities ?? { image: false, audio: false, embeddedContext: false },
      mcpCapabilities: { http: false, sse: false },
      ...membersOf(met.agentCapabilities),
      sessionCapabilities: { list: {}, resume: {}, close: {}, fork: {}, status: {}, ...changes },
      _meta: { [OURS]: { prompt: agent !== undefined, since: true, forkAt: true, methods: Object.keys(extensions) } },
    },
    authMethods,
  };
};

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

function clientOf(clientInfo: unknown): { clientInfo?: LooseMembers } {
  return isObject(clientInfo) ? { clientInfo: membersOf(clientInfo) } : {};
}

const authenticate: Method = async ({ conversation: { facts } }, { params }) => {
  if (facts.agent?.authenticate) return facts.agent.authenticate(membersOf(params));
  throw new AcpError(INVALID_PARAMS, "There is nothing to log in to: this server offers no ways to authenticate.");
};

// --- sessions --------------------------------------------------------------------------------------------------

const newSession: Method = async (context, request) => {
  const { conversation, inOrder } = context;
  const given = paramsOf(request.params, "cwd", "mcpServers", "additionalDirectories");
  const { sessionId } = await conversation.asker.run(make, { cwd: given.cwd });
  await inOrder(sessionId, async (session) => {
    const { leafId } = await factsOf(conversation, sessionId);
    session.told = { lastId: leafId, narrator: undefined };
  });
  const settings = await settingsOf(context, request, sessionId);
  return { sessionId, ...withMeta(settings, ignoredIn(context, given)) };
};

const load: Method = (context, request) => take(context, request, true);

const resume: Method = (context, request) =>
  take(context, request, ourText(membersOf(request.params), "since") !== undefined);

/** Opens a session for the client, and shows it what it has not. */
function take(context: MethodContext, request: AcpRequest, isShown: boolean): Promise<object> {
  const { params, isCancelled } = request;
  const { conversation, inOrder, stage } = context;
  const given = paramsOf(params, "sessionId", "cwd", "mcpServers", "additionalDirectories");
  const since = ourText(given, "since");
  const path = ourText(given, "sessionPath");
  const { sessionId } = given;
  return inOrder(sessionId, async (session, isClosed) => {
    const isStopped = (): boolean => isClosed() || isCancelled();
    requireGoing(isStopped);
    await open(conversation, sessionId, path);
    const shown = isShown ? await replay(stage(), session, since, isStopped) : await passedOver(conversation, session);
    const { cwd } = shown.facts;
    const told = { ...shownOf(shown), ...(cwd === given.cwd ? {} : { cwd }), ...ignoredIn(context, given) };
    return withMeta(await settingsOf(context, request, sessionId), told);
  });
}

/** Notes that the client has all of a session from elsewhere. */
async function passedOver(conversation: Conversing, session: Attached): Promise<Replayed> {
  const facts = await factsOf(conversation, session.id);
  session.told = { lastId: facts.leafId, narrator: undefined };
  return { facts, after: facts.leafId, entries: 0 };
}

function shownOf({ facts, after, entries }: Replayed): LooseMembers {
  return { leafId: facts.leafId, after, entries, readOnly: facts.readOnly };
}

/** Opens a session. Throws session_not_found unless the id is exactly its own. */
async function open({ asker }: Conversing, sessionId: string, sessionPath?: string): Promise<void> {
  if (sessionPath !== undefined) {
    const opened = await asker.ask("open_session", { sessionPath });
    if (opened.sessionId === sessionId) return;
    throw new AcpError(NOT_FOUND, "The session at the path in _meta has another id.");
  }
  const found = await asker.run(locate, { sessionId });
  if (found.isOpen || found.sessionPath === null) return;
  await asker.ask("open_session", { sessionPath: found.sessionPath });
}

const list: Method = async ({ conversation: { asker } }, { params }) => {
  const given = paramsOf(params, "cursor", "archived");
  const wanted = given.archived ?? "exclude";
  const cwd = listedCwd(given);
  let { isArchived, cursor } = placeOf(given.cursor ?? undefined, wanted);
  const sessions: object[] = [];
  for (;;) {
    const limit = LISTED - sessions.length;
    const found = await asker.ask("list_sessions", { cwd, cursor, archived: isArchived, limit });
    sessions.push(...(found.sessions as LooseMembers[]).map(infoOf));
    const next = found.nextCursor as string | undefined;
    if (next !== undefined) return { sessions, nextCursor: `${isArchived ? ARCHIVED : ""}${next}` };
    if (isArchived || wanted !== "include") return { sessions };
    // Those that are archived come after the others.
    if (sessions.length === LISTED) return { sessions, nextCursor: ARCHIVED };
    isArchived = true;
    cursor = undefined;
  }
};

/** The beginning of cursors into the archived sessions, which come after the others. */
const ARCHIVED = "archived:";

function placeOf(cursor: string | undefined, wanted: string): { isArchived: boolean; cursor: string | undefined } {
  if (!cursor?.startsWith(ARCHIVED)) return { isArchived: wanted === "only", cursor };
  return { isArchived: true, cursor: cursor.slice(ARCHIVED.length) || undefined };
}

/** Returns a session of a list as the protocol has it. */
function infoOf(listed: LooseMembers): object {
  const { sessionId, cwd, name, firstMessage, modified, archived, sessionPath, messageCount, created, store } = listed;
  const { forkedFrom, parentSession } = listed;
  const title = name ?? (typeof firstMessage === "string" ? preview(firstMessage) : null);
  return {
    sessionId,
    // A session that knows no directory belongs to none, and the protocol wants one.
    cwd: cwd ?? "/",
    title: title === "" ? null : title,
    updatedAt: modified,
    ...(archived === true ? { archived } : {}),
    ...metaOf({
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

const close: Method = async ({ conversation, inOrder, find }, { params }) => {
  const { sessionId } = paramsOf(params, "sessionId");
  giveUp(conversation, find(sessionId));
  await inOrder(sessionId, () => closeHere(conversation, sessionId));
  return {};
};

function giveUp(conversation: Conversing, session: Attached | undefined): void {
  session?.stop();
  conversation.wake();
}

/** Closes a session. Throws session_not_found when there is none. Returns where it is. */
async function closeHere({ asker, facts }: Conversing, sessionId: string): Promise<Located> {
  const found = await asker.run(locate, { sessionId });
  await facts.agent?.close(sessionId);
  if (found.isOpen) await asker.ask("close_session", { sessionId });
  return found;
}

const deleteSession: Method = async (context, { params }) =>
  whileClosed(context, paramsOf(params, "sessionId").sessionId, async (sessionId, { isStored }) => {
    if (isStored) await context.conversation.asker.ask("delete_session", { sessionId });
  }).catch((error: unknown) => {
    // To delete what is gone is to have done it.
    if (error instanceof Failure && /^(?:session_not_found|invalid_id)$/.test(error.name)) return {};
    throw error;
  });

/** Archives a session, or takes it back from there. */
function moving(command: "archive_session" | "unarchive_session"): Method {
  return async (context, { params }) =>
    whileClosed(context, paramsOf(params, "sessionId").sessionId, async (sessionId) => {
      await context.conversation.asker.ask(command, { sessionId });
    });
}

/** Closes a session and moves it. If it cannot be moved, the client has it as before. */
function whileClosed(
  { conversation, inOrder, find }: MethodContext,
  sessionId: string,
  move: (sessionId: string, found: Located) => Promise<void>,
): Promise<object> {
  requireWritable(conversation);
  const { told } = find(sessionId) ?? {};
  giveUp(conversation, find(sessionId));
  return inOrder(sessionId, async (session) => {
    const found = await closeHere(conversation, sessionId);
    try {
      await move(sessionId, found);
    } catch (error) {
      if (!told || !found.isStored) throw error;
      await open(conversation, sessionId);
      session.told = told;
      throw error;
    }
    return {};
  });
}

function requireWritable({ facts }: Conversing): void {
  if (facts.readOnly)
    throw new AcpError(
      NO_SUCH_METHOD,
      "The server was started with --read-only: sessions are neither moved nor renamed.",
    );
}

const fork: Method = async (context, request) => {
  const { conversation, inOrder } = context;
  const given = paramsOf(request.params, "sessionId", "cwd", "mcpServers", "additionalDirectories");
  const { sessionId } = given;
  const { entryId, position } = anchorOf(given);
  const made = await inOrder(sessionId, async () => {
    await open(conversation, sessionId, ourText(given, "sessionPath"));
    return conversation.asker.run(forkBeside, { sessionId, entryId, position });
  });
  const shown = await inOrder(made.sessionId, (session) => passedOver(conversation, session));
  const { cwd } = shown.facts;
  const told = { leafId: shown.facts.leafId, ...(cwd === given.cwd ? {} : { cwd }), ...ignoredIn(context, given) };
  return { sessionId: made.sessionId, ...withMeta(await settingsOf(context, request, made.sessionId), told) };
};

/** Returns where a fork ends, as the client says in our words or in those of JetBrains' agents; at the leaf by default. */
function anchorOf(params: LooseMembers): { entryId: string | undefined; position: "at" | "before" } {
  const ours = oursOf(params);
  const air = membersOf(membersOf(membersOf(params._meta).jetbrains).air).fork;
  const theirs = membersOf(air).messageId;
  const position = ours.position ?? "at";
  if (position !== "at" && position !== "before")
    throw new BadParams([{ path: `_meta.${OURS}.position`, message: 'must be "at" or "before"' }]);
  if (air !== undefined && air !== null && typeof theirs !== "string")
    throw new BadParams([{ path: "_meta.jetbrains.air.fork.messageId", message: "must be a string" }]);
  return { entryId: ourText(params, "entryId") ?? (theirs as string | undefined), position };
}

const status: Method = async ({ conversation: { asker } }, { params }) => {
  const { isOpen } = await asker.run(locate, { sessionId: paramsOf(params, "sessionId").sessionId });
  return { status: isOpen ? "open" : "saved" };
};

const setTitle: Method = async ({ conversation, inOrder }, { params }) => {
  const { sessionId, title } = paramsOf(params, "sessionId", "title");
  requireWritable(conversation);
  return inOrder(sessionId, async () => {
    const { isOpen, sessionPath } = await conversation.asker.run(locate, { sessionId });
    const where = isOpen || sessionPath === null ? { sessionId } : { sessionPath };
    await conversation.asker.ask("set_session_name", { ...where, name: title });
    return { title: title.replace(/[\r\n]+/g, " ").trim() };
  });
};

// --- ours --------------------------------------------------------------------------------------------------------

/** Asks a command about a session that need not be open. */
function asking(name: string): Method {
  return async ({ conversation, inOrder }, { params }) => {
    const { sessionId, ...rest } = paramsOf(params, "sessionId");
    return inOrder(sessionId, async () => {
      await open(conversation, sessionId);
      return conversation.asker.ask(name, { ...rest, sessionId });
    });
  };
}

/** Moves the leaf, and shows what the client does not have of the path to it. */
const branch: Method = async ({ conversation, inOrder, stage }, { params, isCancelled }) => {
  const { sessionId, ...rest } = paramsOf(params, "sessionId", "entryId");
  return inOrder(sessionId, async (session, isClosed) => {
    await open(conversation, sessionId);
    const moved = await conversation.asker.ask("branch", { ...rest, sessionId });
    const shown = await catchUp(stage(), session, () => isClosed() || isCancelled());
    return { ...moved, ...(shown ? { after: shown.after } : {}) };
  });
};

/** Methods that the protocol does not have. */
const extensions: Readonly<Record<string, Method>> = {
  [`_${OURS}/tree`]: asking("get_tree"),
  [`_${OURS}/entries`]: asking("get_entries"),
  [`_${OURS}/branch`]: branch,
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
  "session/archive": moving("archive_session"),
  "session/unarchive": moving("unarchive_session"),
  "session/status": status,
  "session/set_title": setTitle,
  "session/prompt": prompt,
  "session/set_mode": setMode,
  "session/set_config_option": setConfigOption,
  ...extensions,
};

/** Returns our part of `_meta`, if it has anything to say. */
function metaOf(ours: LooseMembers): object {
  return Object.values(ours).every((value) => value === undefined) ? {} : { _meta: { [OURS]: ours } };
}

/** Returns a result with our part of `_meta` beside what is there already. */
function withMeta(result: LooseMembers, ours: LooseMembers): object {
  const before = membersOf(membersOf(result._meta)[OURS]);
  return { ...result, ...metaOf({ ...before, ...ours }) };
}

function ignoredIn({ conversation }: MethodContext, params: LooseMembers): LooseMembers {
  const { uses = [] } = conversation.facts.agent ?? {};
  const ignored = unusedIn(params).filter((name) => !uses.includes(name));
  return ignored.length === 0 ? {} : { ignored };
}
