/** Methods that an agent answers: turns, modes and options. */

import { INVALID_REQUEST, NO_SUCH_METHOD } from "../../../core/failure.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import type { AgentBackend, AgentSession, ClientChannel, PromptBlock } from "./agent.ts";
import type { ClientSession } from "./client-session.ts";
import { locateSession, readOutline, type SessionOutline } from "./commands.ts";
import { AcpError, CANCELLED, NOT_FOUND, REFUSED } from "./errors.ts";
import type { AcpRequest, ConversationAccess, Method } from "./method.ts";
import { parseParams } from "./params.ts";
import { prepareTurn, sendNewEntries } from "./replay.ts";

async function readAgentSession(
  conversation: ConversationAccess,
  session: ClientSession,
  params?: unknown,
): Promise<AgentSession> {
  const outline = await readOutline(conversation.dispatcher, session.id);
  return { ...toAgentSession(conversation, session, outline), params: toMembers(params) };
}

function toAgentSession(
  conversation: ConversationAccess,
  session: ClientSession,
  { cwd, leafId, model, thinkingLevel }: SessionOutline,
): AgentSession {
  const inForce = leafId === null ? { model: undefined, thinkingLevel: undefined } : { model, thinkingLevel };
  return { sessionId: session.id, cwd, channel: makeChannel(conversation, session), ...inForce };
}

/** Returns the agent's settings for a session that the client opens. */
export async function getAgentSettings(
  conversation: ConversationAccess,
  request: AcpRequest,
  sessionId: string,
): Promise<LooseMembers> {
  const { agent } = conversation.facts;
  const session = conversation.find(sessionId);
  if (!agent || !session) return {};
  const about = await readAgentSession(conversation, session);
  const settings = await agent.getSettings({ ...about, openParams: toMembers(request.params) });
  request.afterwards(() => void agent.sendInitialUpdates?.(sessionId).catch(() => {}));
  return settings;
}

/** Returns the channel to the client for a session. */
function makeChannel(conversation: ConversationAccess, session: ClientSession): ClientChannel {
  const { id } = session;
  const isClosed = (): boolean => session.position === undefined;
  return {
    features: conversation.features,
    update: (update, meta) => conversation.update(id, update, isClosed, meta),
    ask: (method, params, signal) => conversation.askClient(method, { sessionId: id, ...params }, signal),
    notify: (method, params) => conversation.notifyClient(method, { sessionId: id, ...params }),
    claim: (callId) => session.position?.mapper?.claim(callId) ?? callId,
    async sendNewEntries(classify, withUsage) {
      if (isClosed()) return;
      await conversation.inOrder(id, (_, isStopped) =>
        sendNewEntries(conversation, session, () => isStopped() || isClosed(), classify, withUsage),
      );
    },
  };
}

export const prompt: Method = async (conversation, request) => {
  const { sessionId, prompt: blocks } = parseParams(request.params, "sessionId", "prompt");
  // An earlier request may still be opening the session.
  const session = await conversation.inOrder(sessionId, async (found) => (found.position ? found : undefined));
  if (!session) throw new AcpError(NOT_FOUND, "This session is not open here. Load or resume it first.");
  const { agent } = conversation.facts;
  if (agent) return runTurn(conversation, request, agent, session, blocks);
  const { isStored } = await locateSession(conversation.dispatcher, sessionId);
  throw new AcpError(
    REFUSED,
    "This server keeps the history and runs no model: your message was neither sent nor stored. To go on, " +
      (isStored ? `run pi-session-server resume ${sessionId} in a terminal, or ` : "") +
      "let your editor start an agent instead.",
    // Clients show data behind the sentence.
    {},
  );
};

/** Has the agent run a turn. Entries written during it are sent when it has ended. */
async function runTurn(
  conversation: ConversationAccess,
  { params, isTurnCancelled }: AcpRequest,
  agent: AgentBackend,
  session: ClientSession,
  blocks: readonly PromptBlock[],
): Promise<object> {
  const { id } = session;
  if (session.isInTurn)
    throw new AcpError(INVALID_REQUEST, "A turn of this session runs already. Wait until it ends, or cancel it.");
  if (conversation.isOver) throw new AcpError(CANCELLED, "The client has gone before the turn began.");
  session.isInTurn = true;
  try {
    const facts = await conversation.inOrder(id, (_, isStopped) => prepareTurn(conversation, session, isStopped));
    const isCancelled = (): boolean => isTurnCancelled() || !session.position || conversation.isOver;
    if (!facts || isCancelled()) return { stopReason: "cancelled" };
    const about = { ...toAgentSession(conversation, session, facts), params: toMembers(params) };
    return await agent.prompt(about, blocks, isCancelled);
  } finally {
    session.isInTurn = false;
    conversation.queueCatchUp(session);
  }
}

/** Passes on a request that this server does not know. Returns the agent's result. */
export async function passRequest(
  conversation: ConversationAccess,
  pass: NonNullable<AgentBackend["pass"]>,
  method: string,
  params: unknown,
  signal: AbortSignal,
): Promise<unknown> {
  const { sessionId } = toMembers(params);
  if (typeof sessionId !== "string") return pass(method, params, signal);
  const session = await conversation.inOrder(sessionId, async (found) => (found.position ? found : undefined));
  return pass(method, params, signal, session && (await readAgentSession(conversation, session)));
}

function requireAgent({ facts: { agent } }: ConversationAccess): AgentBackend {
  if (agent) return agent;
  const sentence = "This server keeps the history and runs no agent: there are no modes or options to set.";
  throw new AcpError(NO_SUCH_METHOD, sentence);
}

/** Returns a session that the client has open. Throws NOT_FOUND. */
function requireOpen(conversation: ConversationAccess, sessionId: string): ClientSession {
  const session = conversation.find(sessionId);
  if (session?.position) return session;
  throw new AcpError(NOT_FOUND, "This session is not open here. Load or resume it first.");
}

export const setMode: Method = async (conversation, { params }) => {
  const agent = requireAgent(conversation);
  const { sessionId, modeId } = parseParams(params, "sessionId", "modeId");
  const session = requireOpen(conversation, sessionId);
  return agent.setMode(await readAgentSession(conversation, session, params), modeId);
};

export const setConfigOption: Method = async (conversation, { params }) => {
  const agent = requireAgent(conversation);
  const { sessionId, configId, value } = parseParams(params, "sessionId", "configId", "value");
  const session = requireOpen(conversation, sessionId);
  return agent.setConfigOption(await readAgentSession(conversation, session, params), configId, value);
};
