/** Messages as agents tell of them, on their way into a session. */

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
