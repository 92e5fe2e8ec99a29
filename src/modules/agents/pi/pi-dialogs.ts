/** Questions of Pi's extensions to the person, shown by an editor as permission requests or forms. */

import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import type { ClientChannel } from "../acp/agent.ts";
import { toTextContent } from "../acp/call-updates.ts";
import { SERVER_NAME } from "../acp/update-mapper.ts";

/** A request of Pi. Only dialogs are answered. */
type DialogRequest = LooseMembers;

const DIALOGS: ReadonlySet<string> = new Set(["select", "confirm", "input", "editor"]);
const REFUSAL = /^(?:no|n|deny|denied|reject|refuse|cancel|block|stop|don't|do not|never)\b/i;
const LASTING = /\b(?:always|session|forever|remember)\b/i;

export function isDialog({ method }: DialogRequest): boolean {
  return DIALOGS.has(toStored(method));
}

/**
 * Asks the person, and returns the answer to Pi. `callId`: the running tool call; without one the question becomes a
 * call of its own. Never rejects: if the client cannot or will not ask, the answer is `cancelled`.
 */
export async function askPerson(
  request: DialogRequest,
  channel: ClientChannel,
  callId: string | undefined,
): Promise<LooseMembers> {
  const { method } = request;
  try {
    if (method === "confirm" || method === "select") return await askPermission(request, channel, callId);
    return await askText(request, channel);
  } catch {
    return { cancelled: true };
  }
}

async function askPermission(
  request: DialogRequest,
  channel: ClientChannel,
  callId: string | undefined,
): Promise<LooseMembers> {
  const { id, method, title, message } = request;
  const given: unknown[] = Array.isArray(request.options) ? request.options : [];
  const words = method === "confirm" ? ["Yes", "No"] : given.map((option) => toStored(option));
  const options = words.map((name, index) => ({ optionId: String(index), name, kind: getOptionKind(name) }));
  const own = callId === undefined ? `ask/${toStored(id)}` : undefined;
  const shown = {
    title: toStored(title) || "The agent asks",
    ...(toStored(message) === "" ? {} : { content: [toTextContent(toStored(message))] }),
  };
  if (own !== undefined)
    await channel.update({
      sessionUpdate: "tool_call",
      toolCallId: own,
      kind: "other",
      status: "pending",
      ...shown,
    });
  const toolCallId = own ?? callId;
  let answer: LooseMembers = { cancelled: true };
  try {
    const { outcome } = toMembers(
      await channel.ask("session/request_permission", {
        toolCall: { toolCallId, ...(own ? shown : makeQuestion(shown)) },
        options,
      }),
    );
    answer = toAnswer(request, words, toMembers(outcome));
  } finally {
    const status = answer.cancelled === true || answer.confirmed === false ? "failed" : "completed";
    if (own !== undefined) await channel.update({ sessionUpdate: "tool_call_update", toolCallId: own, status });
  }
  return answer;
}

/** Returns the question as content of a call, which keeps its title. */
function makeQuestion({ title, content = [] }: { title: string; content?: object[] }): LooseMembers {
  return { content: [toTextContent(title), ...content] };
}

function toAnswer({ method }: DialogRequest, words: readonly string[], outcome: LooseMembers): LooseMembers {
  const { outcome: kind, optionId } = outcome;
  const index = kind === "selected" && typeof optionId === "string" ? Number(optionId) : -1;
  if (words[index] === undefined) return { cancelled: true };
  return method === "confirm" ? { confirmed: index === 0 } : { value: words[index] };
}

function getOptionKind(name: string): string {
  return `${REFUSAL.test(name) ? "reject" : "allow"}_${LASTING.test(name) ? "always" : "once"}`;
}

/** Asks for a text. An editor without forms gets a notice instead. */
async function askText(request: DialogRequest, channel: ClientChannel): Promise<LooseMembers> {
  const title = toStored(request.title) || "The agent asks";
  const { placeholder, prefill } = request;
  if (!channel.features.forms) {
    const content = {
      type: "text",
      text: `${title}\n\n(An extension of the agent asks for a text, which this editor cannot.)`,
    };
    const _meta = { [SERVER_NAME]: { kind: "notice" } };
    await channel.update({ sessionUpdate: "agent_message_chunk", content, _meta });
    return { cancelled: true };
  }
  const value = {
    type: "string",
    title,
    ...(typeof placeholder === "string" ? { description: placeholder } : {}),
    ...(typeof prefill === "string" ? { default: prefill } : {}),
  };
  const requestedSchema = { type: "object", properties: { value }, required: ["value"] };
  const answer = toMembers(await channel.ask("elicitation/create", { mode: "form", message: title, requestedSchema }));
  const text = toMembers(answer.content).value;
  return answer.action === "accept" && typeof text === "string" ? { value: text } : { cancelled: true };
}
