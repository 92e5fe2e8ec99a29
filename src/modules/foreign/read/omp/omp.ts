/**
 * oh-my-pi's session files: Pi's format, with a title before the header and entries of its own. Entries keep their ids, and
 * the session keeps its own, too.
 */

import { isObject } from "../../../../core/foreign/messages.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { OmpTranslation } from "./translation.ts";

export const omp: Translator = {
  agent: "omp",
  title: "oh-my-pi",
  form: { kind: "lines" },
  // A file without a title begins as Pi's: its path decides (`modules/foreign/files/source.ts`).
  recognises: ({ lines: [first, ...others] }: Beginnings) =>
    first?.type === "title" && typeof first.v === "number" && others.some(({ type }) => type === "session"),
  isRecord: (value) =>
    typeof value.type === "string" && isObject(value) && ("timestamp" in value || "updatedAt" in value),
  begin: (tools) => new OmpTranslation(tools),
};
