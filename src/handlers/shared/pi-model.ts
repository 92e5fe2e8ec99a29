/** Results in the shape that Pi's clients expect, where it differs from ours (Pi reference, sections 2.1 and 9.7). */

import { findContextWindow, UNKNOWN_WINDOW } from "../../core/context/models.ts";

/** Returns Pi's Model object, with neutral values for what a server without models cannot know. */
export function toPiModel(model: { provider: string; id: string }): Record<string, unknown> {
  return {
    id: model.id,
    name: model.id,
    api: "unknown",
    provider: model.provider,
    baseUrl: "",
    reasoning: false,
    input: ["text"],
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
    contextWindow: findContextWindow(model.id) ?? UNKNOWN_WINDOW,
    maxTokens: 0,
  };
}

/** Removes the members that are null; Pi leaves those out. */
export function removeNulls(value: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== null));
}
