/** Messages as agents tell of them, on their way into a session. */

import { bytesOf, parse } from "../../core/json/json.ts";
import { completedDraft, speakerAt } from "../../core/session/message-defaults.ts";
import type { Session } from "../../core/session/session.ts";

/** A message, with whatever members it has. */
export type MessageValue = Readonly<Record<string, unknown>>;

/** Returns the messages that are not among those that are stored, each of which stands for one at most. */
export function missingAmong(messages: readonly MessageValue[], stored: readonly unknown[]): MessageValue[] {
  const counts = new Map<string, number>();
  const isMissing = (message: MessageValue): boolean => {
    const count = counts.get(keyOf(message)) ?? 0;
    counts.set(keyOf(message), count - 1);
    return count <= 0;
  };
  for (const one of stored)
    if (typeof one === "object" && one !== null) {
      const key = keyOf(one as MessageValue);
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  return messages.filter(isMissing);
}

/** Returns the text by which a message is known again. An extension of the agent may change its content before it is stored. */
function keyOf({ role, timestamp, toolCallId, content }: MessageValue): string {
  return JSON.stringify(timestamp === undefined ? [role, toolCallId, content] : [role, timestamp, toolCallId]);
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
