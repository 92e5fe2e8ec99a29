/** The params of a call as they are passed on to the holder of its session: the bytes that the host sent. */

import { bytesOf, knownValueEnd, members, valueAt } from "../../core/json/json.ts";
import type { Call } from "../connection/call.ts";

/** Returns the text of a call's params, in pieces; with a key, if they have none. */
export function paramsText(call: Call, key: string | undefined): Uint8Array[] {
  const { bytes, range, toParams } = call.messageText();
  const found = valueAt(bytes, range, [...toParams], knownValueEnd);
  // The message may be part of an input buffer that is used again.
  const text = found ? Uint8Array.from(bytes.subarray(found.start, found.end)) : bytesOf("{}");
  if (key === undefined) return [text];
  const isEmpty = (members(text) ?? []).length === 0;
  return [bytesOf(`{"idempotencyKey":${JSON.stringify(key)}${isEmpty ? "" : ","}`), text.subarray(1)];
}
