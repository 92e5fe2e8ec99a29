/** Pictures without their bytes: oh-my-pi keeps these in files of its own and names them, and some are empty. */

import { isObject, otherBlock } from "../messages.ts";

/** A text that stands in the place of base64 text, of a data URL or of a string. */
const REFERENCE = /^blob:(sha256:[0-9a-f]+)/;

/** Returns whether the bytes of a record may have a reference, or a picture without bytes. */
export function mayLackPictures(bytes: Uint8Array): boolean {
  const holds = (text: string): boolean => Buffer.prototype.includes.call(bytes, text);
  return holds("blob:sha256:") || (holds('"image"') && holds('""'));
}

/**
 * Returns a value in which each block with a reference, and each picture without bytes, is a text that says so: providers
 * refuse both. Returns the value itself where it has neither.
 */
export function withoutMissingPictures(value: unknown): unknown {
  if (Array.isArray(value)) {
    const made = value.map(withoutMissingPictures);
    return made.some((one, at) => one !== value[at]) ? made : value;
  }
  if (!isObject(value)) return value;
  const digest = digestIn(value);
  if (digest !== undefined)
    return otherBlock(value, { ...value, title: `in a file of oh-my-pi's, not here: ${digest}` });
  if (value.type === "image" && (value.data === "" || value.mimeType === "")) return otherBlock(value);
  const made = Object.entries(value).map(([name, one]) => [name, withoutMissingPictures(one)] as const);
  return made.some(([name, one]) => one !== value[name]) ? Object.fromEntries(made) : value;
}

/** Returns the digest that a block of a picture names. */
function digestIn({ data, image_url: url, source }: Readonly<Record<string, unknown>>): string | undefined {
  const places = [data, url, isObject(url) ? url.url : undefined, isObject(source) ? source.data : undefined];
  for (const text of places) if (typeof text === "string" && REFERENCE.test(text)) return REFERENCE.exec(text)?.[1];
  return undefined;
}
