/** Drafts of entries as hosts append them. */

import type { Json } from "./server.ts";

export function user(text: string, more: object = {}): Json {
  return { type: "message", ...more, message: { role: "user", content: text } };
}

export function assistant(text: string, more: object = {}): Json {
  return {
    type: "message",
    ...more,
    message: {
      role: "assistant",
      content: [{ type: "text", text }],
      provider: "anthropic",
      model: "claude-sonnet-4-5",
      stopReason: "stop",
    },
  };
}

export function toolCall(id: string, more: object = {}): Json {
  return {
    type: "message",
    ...more,
    message: {
      role: "assistant",
      content: [{ type: "toolCall", id, name: "read", arguments: { path: "a.txt" } }],
      provider: "anthropic",
      model: "claude-sonnet-4-5",
      stopReason: "toolUse",
    },
  };
}

export function toolResult(id: string, text: string, more: object = {}): Json {
  return {
    type: "message",
    ...more,
    message: {
      role: "toolResult",
      toolCallId: id,
      toolName: "read",
      content: [{ type: "text", text }],
      isError: false,
    },
  };
}
