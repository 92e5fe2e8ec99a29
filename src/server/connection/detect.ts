/** Recognizes the host's dialect by its first message. */

import type { DialectName, FaceName } from "./dialect.ts";

/** Returns the dialect of a first message; undefined if it is unknown. */
export function detectDialect(value: unknown): DialectName | FaceName | undefined {
  if (Array.isArray(value))
    return value.some(
      (item) => !Array.isArray(item) && detectDialect(item) !== undefined && detectDialect(item) !== "pi",
    )
      ? "jsonrpc"
      : undefined;
  if (typeof value !== "object" || value === null) return undefined;
  const { method, params, type } = value as { method?: unknown; params?: unknown; type?: unknown };
  if (method === "initialize" && isOfEditor(params)) return "acp";
  if ("jsonrpc" in value || "method" in value) return "jsonrpc";
  return typeof type === "string" ? "pi" : undefined;
}

/** Returns whether params of initialize are those of the Agent Client Protocol: other dialects lack the member. */
function isOfEditor(params: unknown): boolean {
  return typeof params === "object" && params !== null && "clientCapabilities" in params;
}
