/** Messages without the data of their pictures, which may be larger than a reply can be. */

import { bytesOf, concat, elements, knownValueEnd, memberOf, members, memberValue } from "../json/json.ts";

/** A sentence in place of each picture, or the picture with the place where its data is. */
export const IMAGE_FORMS = ["omit", "reference"] as const;
export type ImageForm = (typeof IMAGE_FORMS)[number];

/** Returns the line of an entry, known to be JSON, without the data of the pictures in its message or content. */
export function entryWithoutImages(line: Uint8Array, form: ImageForm, entryId: string): Uint8Array {
  const message = memberOf(members(line, 0, line.length, knownValueEnd) ?? [], "message");
  if (!message) return withoutImages(line, form, entryId);
  const text = line.subarray(message.start, message.end);
  const bare = withoutImages(text, form, entryId);
  return bare === text ? line : concat([line.subarray(0, message.start), bare, line.subarray(message.end)]);
}

/** Returns a message, known to be JSON, without the data of its pictures. `entryId`: the entry that has them. */
export function withoutImages(message: Uint8Array, form: ImageForm, entryId: string): Uint8Array {
  const content = memberOf(members(message, 0, message.length, knownValueEnd) ?? [], "content");
  const blocks = content && elements(message, content.start, content.end, knownValueEnd);
  if (!blocks) return message;
  const parts: Uint8Array[] = [];
  let copied = 0;
  for (const [block, { start, end }] of blocks.entries()) {
    const found = members(message, start, end, knownValueEnd) ?? [];
    const data = memberOf(found, "data");
    if (!data || memberValue(message, found, "type") !== "image") continue;
    const [from, past] = form === "omit" ? [start, end] : [data.start, data.end];
    const value = form === "omit" ? { type: "text", text: "[image omitted]" } : { entryId, block };
    parts.push(message.subarray(copied, from), bytesOf(JSON.stringify(value)));
    copied = past;
  }
  return copied === 0 ? message : concat([...parts, message.subarray(copied)]);
}
