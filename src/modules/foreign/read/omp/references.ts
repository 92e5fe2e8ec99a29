/** Pictures without their bytes: oh-my-pi keeps these in files of its own and names them, and some are empty. */

import { isObject, makeOtherBlock } from "../../../../core/foreign/messages.ts";

/** A text in place of base64 text, of a data URL or of a string. */
const REFERENCE = /^blob:(sha256:[0-9a-f]+)/;

/** Returns whether the bytes of a record may have a reference, or a picture without bytes. */
export function mayMissPictures(bytes: Uint8Array): boolean {
  const holds = (text: string): boolean => Buffer.prototype.includes.call(bytes, text);
  return holds("blob:sha256:") || (holds('"image"') && holds('""'));
}

/**
 * Returns a value in which a text replaces each block with a reference, and each picture without bytes: providers
 * refuse both. Returns the value itself if it has neither.
 */
export function replaceMissingPictures(value: unknown): unknown {
  if (Array.isArray(value)) {
    const made = value.map(replaceMissingPictures);
    return made.some((one, at) => one !== value[at]) ? made : value;
  }
  if (!isObject(value)) return value;
  const digest = digestIn(value);
  if (digest !== undefined)
    return makeOtherBlock(value, { ...value, title: `in a file of oh-my-pi's, not here: ${digest}` });
  if (value.type === "image" && (value.data === "" || value.mimeType === "")) return makeOtherBlock(value);
  const made = Object.entries(value).map(([name, one]) => [name, replaceMissingPictures(one)] as const);
  return made.some(([name, one]) => one !== value[name]) ? Object.fromEntries(made) : value;
}

/** Returns the digest that a block of a picture names. */
function digestIn({ data, image_url: url, source }: Readonly<Record<string, unknown>>): string | undefined {
  const places = [data, url, isObject(url) ? url.url : undefined, isObject(source) ? source.data : undefined];
  for (const text of places) if (typeof text === "string" && REFERENCE.test(text)) return REFERENCE.exec(text)?.[1];
  return undefined;
}
