/** Questions that Pi's extensions ask the person, as an editor shows them: permissions, and forms where it has these. */

import { type LooseMembers, membersOf } from "../../core/format/loose.ts";
import { stringOf } from "../../core/format/message.ts";
import type { Telling } from "../acp/agent.ts";
import { textContent } from "../acp/call-updates.ts";
import { OURS } from "../acp/narrator.ts";

/** A request of Pi's, of which only dialogs are answered. */
type DialogRequest = LooseMembers;

const DIALOGS: ReadonlySet<string> = new Set(["select", "confirm", "input", "editor"]);
const REFUSAL = /^(?:no|n|deny|denied|reject|refuse|cancel|block|stop|don't|do not|never)\b/i;
const STAYS = /\b(?:always|session|forever|remember)\b/i;

export function isDialog({ method }: DialogRequest): boolean {
  return DIALOGS.has(stringOf(method));
}

/**
 * Asks the person, and returns what Pi is to be answered. `callId` is the call that is at work; without one the question
 * is a call of its own. Never rejects: a client that cannot ask, or will not, has cancelled.
 */
export async function askPerson(
  request: DialogRequest,
  telling: Telling,
  callId: string | undefined,
): Promise<LooseMembers> {
  const { method } = request;
  try {
    if (method === "confirm" || method === "select") return await permission(request, telling, callId);
    return await written(request, telling);
  } catch {
    return { cancelled: true };
  }
}

async function permission(request: DialogRequest, telling: Telling, callId: string | undefined): Promise<LooseMembers> {
  const { id, method, title, message } = request;
  const given: unknown[] = Array.isArray(request.options) ? request.options : [];
  const words = method === "confirm" ? ["Yes", "No"] : given.map((option) => stringOf(option));
  const options = words.map((name, index) => ({ optionId: String(index), name, kind: kindOfOption(name) }));
  const own = callId === undefined ? `ask/${stringOf(id)}` : undefined;
  const told = {
    title: stringOf(title) || "The agent asks",
    ...(stringOf(message) === "" ? {} : { content: [textContent(stringOf(message))] }),
  };
  if (own !== undefined)
    await telling.update({ sessionUpdate: "tool_call", toolCallId: own, kind: "other", status: "pending", ...told });
  const toolCallId = own ?? callId;
  let answer: LooseMembers = { cancelled: true };
  try {
    const { outcome } = membersOf(
      await telling.ask("session/request_permission", {
        toolCall: { toolCallId, ...(own ? told : asked(told)) },
        options,
      }),
    );
    answer = answerOf(request, words, membersOf(outcome));
  } finally {
    const status = answer.cancelled === true || answer.confirmed === false ? "failed" : "completed";
    if (own !== undefined) await telling.update({ sessionUpdate: "tool_call_update", toolCallId: own, status });
  }
  return answer;
}

/** Returns the question beside a call, whose own title stays. */
function asked({ title, content = [] }: { title: string; content?: object[] }): LooseMembers {
  return { content: [textContent(title), ...content] };
}

function answerOf({ method }: DialogRequest, words: readonly string[], outcome: LooseMembers): LooseMembers {
  const { outcome: kind, optionId } = outcome;
  const index = kind === "selected" && typeof optionId === "string" ? Number(optionId) : -1;
  if (words[index] === undefined) return { cancelled: true };
  return method === "confirm" ? { confirmed: index === 0 } : { value: words[index] };
}

function kindOfOption(name: string): string {
  return `${REFUSAL.test(name) ? "reject" : "allow"}_${STAYS.test(name) ? "always" : "once"}`;
}

/** Asks for a text. An editor without forms is told that it was asked. */
async function written(request: DialogRequest, telling: Telling): Promise<LooseMembers> {
  const title = stringOf(request.title) || "The agent asks";
  const { placeholder, prefill } = request;
  if (!telling.skills.forms) {
    const content = {
      type: "text",
      text: `${title}\n\n(An extension of the agent asks for a text, which this editor cannot.)`,
    };
    const _meta = { [OURS]: { kind: "notice" } };
    await telling.update({ sessionUpdate: "agent_message_chunk", content, _meta });
    return { cancelled: true };
  }
  const value = {
    type: "string",
    title,
    ...(typeof placeholder === "string" ? { description: placeholder } : {}),
    ...(typeof prefill === "string" ? { default: prefill } : {}),
  };
  const requestedSchema = { type: "object", properties: { value }, required: ["value"] };
  const answer = membersOf(await telling.ask("elicitation/create", { mode: "form", message: title, requestedSchema }));
  const text = membersOf(answer.content).value;
  return answer.action === "accept" && typeof text === "string" ? { value: text } : { cancelled: true };
}
