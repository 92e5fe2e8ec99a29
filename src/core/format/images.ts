/** Messages without the data of their pictures, which may be larger than a reply can be. */

import {
  concat,
  findKnownValueEnd,
  findMember,
  getElements,
  getMembers,
  getMemberValue,
  toBytes,
} from "../json/json.ts";

/** A sentence instead of each picture, or the picture with the place of its data. */
export const IMAGE_FORMS = ["omit", "reference"] as const;
export type ImageForm = (typeof IMAGE_FORMS)[number];

/** Returns the line of an entry, known to be JSON, without the data of the pictures in its message or content. */
export function removeEntryImages(line: Uint8Array, form: ImageForm, entryId: string): Uint8Array {
  const message = findMember(getMembers(line, 0, line.length, findKnownValueEnd) ?? [], "message");
  if (!message) return removeImages(line, form, entryId);
  const text = line.subarray(message.start, message.end);
  const bare = removeImages(text, form, entryId);
  return bare === text ? line : concat([line.subarray(0, message.start), bare, line.subarray(message.end)]);
}

/** Returns a message, known to be JSON, without the data of its pictures. `entryId`: the entry that has them. */
export function removeImages(message: Uint8Array, form: ImageForm, entryId: string): Uint8Array {
  const content = findMember(getMembers(message, 0, message.length, findKnownValueEnd) ?? [], "content");
  const blocks = content && getElements(message, content.start, content.end, findKnownValueEnd);
  if (!blocks) return message;
  const parts: Uint8Array[] = [];
  let copied = 0;
  for (const [block, { start, end }] of blocks.entries()) {
    const found = getMembers(message, start, end, findKnownValueEnd) ?? [];
    const data = findMember(found, "data");
    if (!data || getMemberValue(message, found, "type") !== "image") continue;
    const [from, past] = form === "omit" ? [start, end] : [data.start, data.end];
    const value = form === "omit" ? { type: "text", text: "[image omitted]" } : { entryId, block };
    parts.push(message.subarray(copied, from), toBytes(JSON.stringify(value)));
    copied = past;
  }
  return copied === 0 ? message : concat([...parts, message.subarray(copied)]);
}
