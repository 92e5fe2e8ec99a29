/** Content of messages as blocks of the Agent Client Protocol. */

import { isObject, type LooseMembers, toBlocks, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import { toJsonText } from "../../../core/json/json.ts";

export type AcpBlock =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "image"; readonly data: string; readonly mimeType: string }
  /** Content as an agent of the protocol, or its client, gave it. */
  | { readonly type: "audio" | "resource_link" | "resource"; readonly [member: string]: unknown };

/** Characters of a text sent at a time: clients refuse lines over some megabytes. */
const LONGEST_TEXT = 1 << 16;
/** Characters of an unknown block's JSON; a longer one is not attached to the text about it. */
const LONGEST_UNKNOWN = 1 << 14;

/** A block, and the original when it is of an unknown kind. */
interface RenderedBlock {
  readonly block: AcpBlock;
  readonly unknown?: LooseMembers;
}

/** Yields a text in pieces that fit a line; none for an empty text. No character is cut in two. */
export function* splitText(text: string): Generator<string> {
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + LONGEST_TEXT, text.length);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last < 0xdc00 && end - 1 > at) end--;
    yield text.slice(at, end);
    at = end;
  }
}

/** Yields a content, block by block, without empty texts. */
export function* renderBlocks(content: unknown): Generator<RenderedBlock> {
  for (const block of toBlocks(content)) yield* renderBlock(block);
}

export function* renderBlock(block: LooseMembers): Generator<RenderedBlock> {
  const { type, text, data, mimeType, acp } = block;
  if (isObject(acp) && isAcpBlock(acp)) yield { block: acp };
  else if (type === "text" && typeof text === "string")
    for (const piece of splitText(text)) yield { block: { type, text: piece } };
  else if (type === "image" && typeof data === "string" && typeof mimeType === "string")
    yield { block: { type, data, mimeType } };
  else yield describeUnknown(block);
}

/** Members that are texts, by kind of content. */
const TEXTS: Readonly<Record<string, readonly string[]>> = {
  text: ["text"],
  image: ["data", "mimeType"],
  audio: ["data", "mimeType"],
  resource_link: ["name", "uri"],
};

/** Returns whether a stored value is content of the protocol. */
export function isAcpBlock(value: LooseMembers): value is AcpBlock {
  const { type, resource } = value;
  if (type === "resource") {
    const { uri, text, blob } = toMembers(resource);
    return typeof uri === "string" && (typeof text === "string" || typeof blob === "string");
  }
  const names = Object.hasOwn(TEXTS, String(type)) ? TEXTS[String(type)] : undefined;
  return names?.every((name) => typeof value[name] === "string") === true;
}

/** Returns a text for a block that the protocol has no kind for, or that is malformed. */
function describeUnknown(block: LooseMembers): RenderedBlock {
  const text = `[${toStored(block.type).slice(0, 100) || "content"} that cannot be shown]`;
  const isShort = toJsonText(block).length <= LONGEST_UNKNOWN;
  return { block: { type: "text", text }, ...(isShort ? { unknown: block } : {}) };
}
