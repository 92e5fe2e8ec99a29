/** Drafts of entries as hosts append them. */

import type { Json } from "./server.ts";

const COUNTS = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };

/** Members that Pi needs in an assistant message in addition to its content. */
export const SPOKEN = {
  api: "anthropic-messages",
  provider: "anthropic",
  model: "claude-sonnet-4-5",
  usage: { ...COUNTS, totalTokens: 0, cost: { ...COUNTS, total: 0 } },
  timestamp: Date.UTC(2026, 0, 24, 16, 22, 26, 831),
};

function said(message: object, more: object): Json {
  return { type: "message", ...more, message };
}

export function user(text: string, more: object = {}): Json {
  return said({ role: "user", content: text }, more);
}

export function assistant(text: string, more: object = {}): Json {
  return said({ role: "assistant", content: [{ type: "text", text }], ...SPOKEN, stopReason: "stop" }, more);
}

export function toolCall(id: string, more: object = {}): Json {
  const content = [{ type: "toolCall", id, name: "read", arguments: { path: "a.txt" } }];
  return said({ role: "assistant", content, ...SPOKEN, stopReason: "toolUse" }, more);
}

export function toolResult(id: string, text: string, more: object = {}): Json {
  const of = { role: "toolResult", toolCallId: id, toolName: "read" };
  return said({ ...of, content: [{ type: "text", text }], isError: false }, more);
}
