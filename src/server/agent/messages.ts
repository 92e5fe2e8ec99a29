/** Messages as agents tell of them, on their way into a session. */

import { bytesOf, parse } from "../../core/json/json.ts";
import { completedDraft, speakerAt } from "../../core/session/message-defaults.ts";
import type { Session } from "../../core/session/session.ts";

/** A message, with whatever members it has. */
export type MessageValue = Readonly<Record<string, unknown>>;

/** Whether a message is among those that are stored: of the same role and time, with the same content. */
export function isStored(message: MessageValue, stored: readonly unknown[]): boolean {
  const key = keyOf(message);
  return stored.some((one) => typeof one === "object" && one !== null && keyOf(one as MessageValue) === key);
}

function keyOf({ role, timestamp, toolCallId, content }: MessageValue): string {
  return JSON.stringify([role, timestamp, toolCallId, content]);
}

/** Returns a message with what Pi needs in it and it lacks. */
export function completed(message: MessageValue, session: Session, now: () => number): MessageValue {
  const draft = { type: "message", message };
  const around = { time: now, speaker: () => speakerAt(session, session.tree.leaf) };
  const text = completedDraft(bytesOf(JSON.stringify(draft)), draft, around);
  return (parse(text) as typeof draft).message;
}

/** Returns the message that ends a turn whose agent is gone: what was seen of the answer, and why there is no more. */
export function brokenOff(
  seen: MessageValue | undefined,
  reason: { readonly stopReason: "error" | "aborted"; readonly errorMessage: string },
  now: number,
): MessageValue {
  // Holes are where blocks were that nothing is known of.
  const content = Array.isArray(seen?.content)
    ? seen.content.filter((block) => block !== undefined && block !== null)
    : [];
  return { role: "assistant", timestamp: now, ...seen, content, ...reason };
}
