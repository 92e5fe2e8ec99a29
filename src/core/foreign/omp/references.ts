/** References to the bytes of pictures that oh-my-pi keeps in files of its own, which are never the bytes themselves. */

import { isObject, otherBlock } from "../messages.ts";

/** A text that stands in the place of base64 text, of a data URL or of a string. */
const REFERENCE = /^blob:(sha256:[0-9a-f]+)/;

/** Whether the bytes of a record may have one. */
export function holdsReference(bytes: Uint8Array): boolean {
  return Buffer.prototype.includes.call(bytes, "blob:sha256:");
}

/** Returns a value in which each block with a reference is a text that says so; the value itself where none is. */
export function withoutReferences(value: unknown): unknown {
  if (Array.isArray(value)) {
    const made = value.map(withoutReferences);
    return made.some((one, at) => one !== value[at]) ? made : value;
  }
  if (!isObject(value)) return value;
  const digest = digestIn(value);
  if (digest !== undefined)
    return otherBlock(value, { ...value, title: `in a file of oh-my-pi's, not here: ${digest}` });
  const made = Object.entries(value).map(([name, one]) => [name, withoutReferences(one)] as const);
  return made.some(([name, one]) => one !== value[name]) ? Object.fromEntries(made) : value;
}

/** Returns the digest that a block of a picture names. */
function digestIn({ data, image_url: url, source }: Readonly<Record<string, unknown>>): string | undefined {
  const places = [data, url, isObject(url) ? url.url : undefined, isObject(source) ? source.data : undefined];
  for (const text of places) if (typeof text === "string" && REFERENCE.test(text)) return REFERENCE.exec(text)?.[1];
  return undefined;
}
