/** Drafts of turns with tools, for tests of what a host needs around its model. */

import { SPOKEN } from "./drafts.ts";
import type { Json } from "./server.ts";

interface Call {
  readonly id: string;
  readonly name?: string;
  readonly arguments?: Json;
}

/** An assistant message with text, if any, and these calls. */
export function calls(text: string, ...list: (Call | string)[]): Json {
  const blocks = list.map((call) => {
    const { id, name = "read", arguments: args = { path: "a.txt" } } = typeof call === "string" ? { id: call } : call;
    return { type: "toolCall", id, name, arguments: args };
  });
  return {
    type: "message",
    message: {
      role: "assistant",
      content: [...(text === "" ? [] : [{ type: "text", text }]), ...blocks],
      ...SPOKEN,
      stopReason: "toolUse",
    },
  };
}

/** An assistant message that reports its usage. */
export function reporting(totalTokens: number, more: Json = {}): Json {
  const usage = { input: totalTokens, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens };
  return {
    type: "message",
    message: { role: "assistant", content: [{ type: "text", text: "." }], usage, stopReason: "stop", ...more },
  };
}

/** Returns faults of the pairing of messages as providers check it: every call is answered right behind it. */
export function pairingFaults(messages: readonly Json[]): string[] {
  const faults: string[] = [];
  let open: string[] = [];
  for (const [index, message] of messages.entries()) {
    if (message.role === "toolResult") {
      const id = message.toolCallId ?? "";
      const exact = open.indexOf(id);
      const at = exact >= 0 ? exact : open.findIndex((call) => call === "" || id === "");
      if (at < 0) faults.push(`${index}: a result without its call`);
      else open.splice(at, 1);
      continue;
    }
    if (open.length > 0) faults.push(`${index}: ${open.length} calls without a result before it`);
    const content = message.role === "assistant" && Array.isArray(message.content) ? message.content : [];
    open = content.filter((block: Json) => block.type === "toolCall").map((block: Json) => block.id ?? "");
  }
  if (open.length > 0) faults.push(`end: ${open.length} calls without a result`);
  return faults;
}
