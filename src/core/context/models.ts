/** Facts about models, for clients that need a number that the session does not have. */

/** Context windows in tokens, by the beginning of the model's id; the longest beginning counts. */
const CONTEXT_WINDOWS: Readonly<Record<string, number>> = {
  "claude-": 200_000,
  "gpt-4o": 128_000,
  "gpt-4.1": 1_047_576,
  "gpt-5": 400_000,
  o1: 200_000,
  o3: 200_000,
  "o4-mini": 200_000,
  "gemini-1.5-pro": 2_097_152,
  "gemini-2": 1_048_576,
  "gemini-3": 1_048_576,
  "deepseek-": 128_000,
  "grok-4": 256_000,
  "kimi-k2": 262_144,
  "qwen3-coder": 262_144,
  "glm-4.6": 204_800,
};

/** The window assumed for an unknown model if one is required; Pi's clients need one too. */
export const UNKNOWN_WINDOW = 128_000;

/** Returns the context window of a model, if it is a known one. */
export function findContextWindow(modelId: string): number | undefined {
  const id = modelId.slice(modelId.lastIndexOf("/") + 1).toLowerCase();
  let best = "";
  for (const beginning of Object.keys(CONTEXT_WINDOWS))
    if (id.startsWith(beginning) && beginning.length > best.length) best = beginning;
  return best === "" ? undefined : CONTEXT_WINDOWS[best];
}

/** Pi's name for a model that was never named. */
export const UNKNOWN_MODEL = { provider: "unknown", id: "unknown" } as const;

export function isUnknown({ provider, id }: { readonly provider: string; readonly id: string }): boolean {
  return provider === UNKNOWN_MODEL.provider && id === UNKNOWN_MODEL.id;
}

/** Returns the context window of a model, or {@link UNKNOWN_WINDOW}. */
export function getContextWindow(model: { readonly id: string } | null): number {
  return (model && findContextWindow(model.id)) ?? UNKNOWN_WINDOW;
}
