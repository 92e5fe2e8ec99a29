/** Recognises by the first message what the host speaks. */

import type { DialectName } from "./dialect.ts";

/** Returns what a first message is of; undefined when it is of nothing that is known. */
export function detect(value: unknown): DialectName | "acp" | undefined {
  if (Array.isArray(value))
    return value.some((item) => !Array.isArray(item) && detect(item) !== undefined && detect(item) !== "pi")
      ? "jsonrpc"
      : undefined;
  if (typeof value !== "object" || value === null) return undefined;
  const { method, params, type } = value as { method?: unknown; params?: unknown; type?: unknown };
  if (method === "initialize" && isOfEditor(params)) return "acp";
  if ("jsonrpc" in value || "method" in value) return "jsonrpc";
  return typeof type === "string" ? "pi" : undefined;
}

/** Whether the params of an initialize are those of the Agent Client Protocol: the others have no such member. */
function isOfEditor(params: unknown): boolean {
  return typeof params === "object" && params !== null && "clientCapabilities" in params;
}
