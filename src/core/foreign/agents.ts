/** The names of the agents whose sessions are read, in options, ids and entries. */
export const AGENTS = [
  "claude",
  "codex",
  "copilot",
  "gemini",
  "opencode",
  "goose",
  "cline",
  "roo",
  "pirust",
  "omp",
] as const;

export type AgentName = (typeof AGENTS)[number];
