/** The methods that an agent answers: turns, modes and options. */

import { type LooseMembers, membersOf } from "../../core/format/loose.ts";
import type { AgentBehind, AgentSession, PromptBlock, Telling } from "./agent.ts";
import type { Attached } from "./attached.ts";
import { locate, readOutline, type SessionOutline } from "./commands.ts";
import { AcpError, CANCELLED, INVALID_REQUEST, NO_SUCH_METHOD, NOT_FOUND, REFUSED } from "./errors.ts";
import type { AcpRequest, Conversing, Method, MethodContext } from "./method.ts";
import { paramsOf } from "./params.ts";
import { catchUp, makeReady } from "./replay.ts";

export function factsOf({ asker }: Pick<Conversing, "asker">, sessionId: string): Promise<SessionOutline> {
  return asker.run(readOutline, { sessionId });
}

/** Returns a session as agents are told of it. */
async function agentSession({ asker }: Conversing, sessionId: string): Promise<AgentSession> {
  return asAgentsSee(sessionId, await factsOf({ asker }, sessionId));
}

function asAgentsSee(sessionId: string, { cwd, leafId, model, thinkingLevel }: SessionOutline): AgentSession {
  const isEmpty = leafId === null;
  return { sessionId, cwd, model: isEmpty ? undefined : model, thinkingLevel: isEmpty ? undefined : thinkingLevel };
}

/** Returns what the agent has to say of a session that the client opens. */
export async function settingsOf(
  context: MethodContext,
  request: AcpRequest,
  sessionId: string,
): Promise<LooseMembers> {
  const { conversation, find } = context;
  const { agent } = conversation.facts;
  const session = find(sessionId);
  if (!agent || !session) return {};
  const about = { ...(await agentSession(conversation, sessionId)), given: membersOf(request.params) };
  const settings = await agent.settings(about, tellingOf(context, session));
  request.afterwards(() => void agent.introduce?.(sessionId).catch(() => {}));
  return settings;
}

/** Returns the client, as an agent reaches it for a session. */
function tellingOf(context: MethodContext, session: Attached): Telling {
  const { conversation, inOrder, stage } = context;
  const { id } = session;
  const isClosed = (): boolean => session.told === undefined;
  return {
    skills: stage().skills,
    update: (update) => stage().update(id, update, isClosed),
    ask: (method, params) => conversation.askClient(method, { sessionId: id, ...params }),
    claim: (callId) => session.told?.narrator?.claim(callId) ?? callId,
    async keepUp(judge, tellsUsage) {
      if (isClosed()) return;
      await inOrder(id, (_, isStopped) =>
        catchUp(stage(), session, () => isStopped() || isClosed(), judge, tellsUsage),
      );
    },
  };
}

export const prompt: Method = async (context, request) => {
  const { conversation, inOrder } = context;
  const { sessionId, prompt: blocks } = paramsOf(request.params, "sessionId", "prompt");
  // What was sent before it may be what opens the session.
  const session = await inOrder(sessionId, async (found) => (found.told ? found : undefined));
  if (!session) throw new AcpError(NOT_FOUND, "This session is not open here. Load or resume it first.");
  const { agent } = conversation.facts;
  if (agent) return turn(context, request, agent, session, blocks);
  const { isStored } = await conversation.asker.run(locate, { sessionId });
  throw new AcpError(
    REFUSED,
    "This server keeps the history and runs no model: your message was neither sent nor stored. To go on, " +
      (isStored ? `run pi-session-server resume ${sessionId} in a terminal, or ` : "") +
      "let your editor start an agent instead.",
  );
};

/** Has the agent run a turn. What is written meanwhile is shown when it has ended. */
async function turn(
  context: MethodContext,
  { isTurnCancelled }: AcpRequest,
  agent: AgentBehind,
  session: Attached,
  blocks: readonly PromptBlock[],
): Promise<object> {
  const { conversation, inOrder, stage, awaken } = context;
  const { id } = session;
  if (session.isInTurn)
    throw new AcpError(INVALID_REQUEST, "A turn of this session runs already. Wait until it ends, or cancel it.");
  if (conversation.isOver) throw new AcpError(CANCELLED, "The client has gone before the turn began.");
  session.isInTurn = true;
  try {
    const facts = await inOrder(id, (_, isStopped) => makeReady(stage(), session, isStopped));
    const isCancelled = (): boolean => isTurnCancelled() || !session.told || conversation.isOver;
    if (!facts || isCancelled()) return { stopReason: "cancelled" };
    return await agent.prompt(asAgentsSee(id, facts), blocks, tellingOf(context, session), isCancelled);
  } finally {
    session.isInTurn = false;
    awaken(session);
  }
}

function requireAgent({ facts: { agent } }: Conversing): AgentBehind {
  if (agent) return agent;
  const sentence = "This server keeps the history and runs no agent: there are no modes or options to set.";
  throw new AcpError(NO_SUCH_METHOD, sentence);
}

/** Returns a session that the client has open. Throws NOT_FOUND. */
function requireOpen({ find }: MethodContext, sessionId: string): Attached {
  const session = find(sessionId);
  if (session?.told) return session;
  throw new AcpError(NOT_FOUND, "This session is not open here. Load or resume it first.");
}

export const setMode: Method = async (context, { params }) => {
  const { conversation } = context;
  const agent = requireAgent(conversation);
  const { sessionId, modeId } = paramsOf(params, "sessionId", "modeId");
  const session = requireOpen(context, sessionId);
  return agent.setMode(await agentSession(conversation, sessionId), modeId, tellingOf(context, session));
};

export const setConfigOption: Method = async (context, { params }) => {
  const { conversation } = context;
  const agent = requireAgent(conversation);
  const { sessionId, configId, value } = paramsOf(params, "sessionId", "configId", "value");
  const session = requireOpen(context, sessionId);
  const about = await agentSession(conversation, sessionId);
  return agent.setConfigOption(about, configId, value, tellingOf(context, session));
};
