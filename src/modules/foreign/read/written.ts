/** Records that are Pi's header and entries already. */

import { type JsonObject, toText } from "../../../core/foreign/messages.ts";
import { getMembers } from "../../../core/json/json.ts";
import type { AboutSession, SourceRecord, TranslationTools } from "./translator.ts";

/** Returns the facts of a session in a header like ours. */
export function aboutPi(header: JsonObject | undefined): AboutSession {
  const { id, cwd, timestamp, parentSession } = header ?? {};
  const own = toText(id);
  return {
    nativeId: own,
    ownId: own,
    parentSession: toText(parentSession),
    cwd: toText(cwd),
    started: toText(timestamp),
  };
}

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
