/** Messages of agents, on their way into a session. */

import { parse, toBytes } from "../../../core/json/json.ts";
import { completeDraft, getSpeaker } from "../../../core/session/message-defaults.ts";
import type { Session } from "../../../core/session/session.ts";

/** A message, with whatever members it has. */
export type MessageValue = Readonly<Record<string, unknown>>;

/**
 * Returns for each message the index of its stored one, if there is one. Each stored message matches one at most. An
 * extension of the agent may change a message's content before it is stored, and an agent may set the time of writing.
 */
export function matchStored(messages: readonly MessageValue[], stored: readonly unknown[]): (number | undefined)[] {
  const indexes: (number | undefined)[] = messages.map(() => undefined);
  const free = new Map<number, MessageValue>();
  for (const [at, one] of stored.entries())
    if (typeof one === "object" && one !== null) free.set(at, one as MessageValue);
  for (const keyOf of [keyByTime, keyByContent]) {
    const unused = new Map<string, number[]>();
    for (const [at, one] of free) unused.set(keyOf(one), [...(unused.get(keyOf(one)) ?? []), at]);
    for (const [n, message] of messages.entries()) {
      indexes[n] ??= unused.get(keyOf(message))?.shift();
      free.delete(indexes[n] ?? -1);
    }
  }
  return indexes;
}

function keyByTime({ role, timestamp, toolCallId, content }: MessageValue): string {
  return JSON.stringify(timestamp === undefined ? [role, toolCallId, content] : [role, timestamp, toolCallId]);
}

function keyByContent({ role, toolCallId, content }: MessageValue): string {
  return JSON.stringify([role, toolCallId, content]);
}

/** Returns a message with the members that Pi requires and it lacks. */
export function completeMessage(message: MessageValue, session: Session, now: () => number): MessageValue {
  const draft = { type: "message", message };
  const around = { time: now, speaker: () => getSpeaker(session, session.tree.leaf) };
  const text = completeDraft(toBytes(JSON.stringify(draft)), draft, around);
  return (parse(text) as typeof draft).message;
}

/** Returns the message that ends a turn whose agent has exited: the unfinished answer, and the reason. */
export function makeFinalMessage(
  seen: MessageValue | undefined,
  reason: { readonly stopReason: "error" | "aborted"; readonly errorMessage: string },
  now: number,
): MessageValue {
  // Unknown blocks are holes.
  const content = Array.isArray(seen?.content)
    ? seen.content.filter((block) => block !== undefined && block !== null)
    : [];
  return { role: "assistant", timestamp: now, ...seen, content, ...reason };
}
