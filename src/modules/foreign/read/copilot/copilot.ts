/**
 * Copilot CLI's `events.jsonl`: events in the order in which they happened, each with its content in `data`. `parentId`
 * is the event before, and no tree.
 */

import { isObject } from "../../../../core/foreign/messages.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { CopilotTranslation } from "./translation.ts";

export const copilot: Translator = {
  agent: "copilot",
  title: "GitHub Copilot CLI",
  form: { kind: "lines" },
  recognises: ({ lines }: Beginnings) => lines.some(isEvent),
  isRecord: isEvent,
  begin: (tools) => new CopilotTranslation(tools),
};

/** Rooms of events that Copilot writes; each type is one of them, a dot and a name. */
const TYPE = /^(session|user|assistant|tool|system|subagent|hook|skill|permission|external_tool)\.[a-z_.]+$/;

function isEvent({ type, data, timestamp }: Readonly<Record<string, unknown>>): boolean {
  return typeof type === "string" && TYPE.test(type) && isObject(data) && typeof timestamp === "string";
}
