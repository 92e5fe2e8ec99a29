/** The members of records that are Pi's entries already. */

import type { JsonObject } from "../../../core/foreign/messages.ts";
import { getMembers } from "../../../core/json/json.ts";
import type { SourceRecord, TranslationTools } from "./translator.ts";

/** Returns the members of an entry except those that every entry has, as they are written. */
export function getWrittenMembers(
  { isSurvey }: TranslationTools,
  { bytes }: SourceRecord,
  value: JsonObject,
): JsonObject {
  const { type: _, id: _id, parentId: _p, timestamp: _t, ...values } = value;
  const found = isSurvey ? null : getMembers(bytes);
  if (!found) return values;
  const texts = found.filter(({ name }) => name in values);
  return Object.fromEntries(texts.map(({ name, start, end }) => [name, Uint8Array.from(bytes.subarray(start, end))]));
}
