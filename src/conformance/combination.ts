/** The ways of talking between a host and a server: two framings, two dialects. */

export interface Combination {
  readonly framing: "lines" | "headers";
  readonly dialect: "jsonrpc" | "pi";
}

export const COMBINATIONS: readonly Combination[] = [
  { framing: "lines", dialect: "jsonrpc" },
  { framing: "headers", dialect: "jsonrpc" },
  { framing: "lines", dialect: "pi" },
  { framing: "headers", dialect: "pi" },
];

export function isJsonrpc({ dialect }: Combination): boolean {
  return dialect === "jsonrpc";
}

export function isPi({ dialect }: Combination): boolean {
  return dialect === "pi";
}

export function isLines({ framing }: Combination): boolean {
  return framing === "lines";
}

export function isHeaders({ framing }: Combination): boolean {
  return framing === "headers";
}
