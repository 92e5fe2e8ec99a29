/**
 * Large media that pi_agent_rust keeps in files next to the session: an entry has a reference instead of the base64
 * text, and a message gets the text back when it is sent (session-format reference, section 8.6).
 */

import { concat, decodeText, findMember, getElements, getMembers, holdsAt, parse, toBytes } from "../json/json.ts";

/** A function that returns the base64 text of a stored file, or null if it is missing or does not match its name. */
type ReadAttachment = (sha256: string, sizeBytes: number) => string | null;

const MARK = toBytes('$piBlob"');
/** A member that refers to one. In a text, its quotation marks would have a backslash before them. */
const REFERENCE = /"\$piBlob"\s*:\s*"sha256:([0-9a-f]{64})"/g;

/** The beginning of oh-my-pi's reference to a medium, which replaces the base64 text. */
const BLOB = toBytes('"blob:sha256:');

/** Returns whether a text may have references to media that are kept in files. */
export function holdsAttachment(text: Uint8Array): boolean {
  return contains(text, MARK) || contains(text, BLOB);
}

/** Returns the digests of the stored files that the line of an entry refers to. */
export function findAttachments(line: Uint8Array): string[] {
  if (!contains(line, MARK)) return [];
  return Array.from(decodeText(line).matchAll(REFERENCE), ([, sha256]) => sha256);
}

/**
 * Returns the message with the references resolved; unresolvable ones stay. A block with a reference of oh-my-pi
 * becomes a text that names it: a provider would take it for base64 text, and refuse the conversation.
 */
export function resolveAttachments(message: Uint8Array, read: ReadAttachment): Uint8Array {
  if (!holdsAttachment(message)) return message;
  const content = findMember(getMembers(message) ?? [], "content");
  const blocks = content && getElements(message, content.start, content.end);
  if (!blocks) return message;
  const parts: Uint8Array[] = [];
  let copied = 0;
  for (const block of blocks) {
    const found = getMembers(message, block.start, block.end) ?? [];
    const data = findMember(found, "data");
    const value = data && message.subarray(data.start, data.end);
    if (!data || !value) continue;
    const digest = blobIn(value);
    const type = findMember(found, "mimeType");
    const text = digest === undefined ? resolved(value, read) : undefined;
    if (digest !== undefined) {
      const named = missing(digest, type && parse(message, type.start, type.end));
      parts.push(message.subarray(copied, block.start), toBytes(JSON.stringify(named)));
      copied = block.end;
    } else if (text !== undefined) {
      parts.push(message.subarray(copied, data.start), toBytes(JSON.stringify(text)));
      copied = data.end;
    }
  }
  return copied === 0 ? message : concat([...parts, message.subarray(copied)]);
}

function resolved(data: Uint8Array, read: ReadAttachment): string | undefined {
  if (data[0] !== 0x7b) return undefined;
  const { $piBlob, sizeBytes, encoding } = parse(data) as Record<string, unknown>;
  const sha256 = typeof $piBlob === "string" ? /^sha256:([0-9a-f]{64})$/.exec($piBlob)?.[1] : undefined;
  if (sha256 === undefined || typeof sizeBytes !== "number") return undefined;
  const text = read(sha256, sizeBytes);
  if (text === null) return undefined;
  return encoding === "base64NoPad" ? text.replace(/=+$/, "") : text;
}

/** Returns the digest in a reference of oh-my-pi's; undefined for any other value. */
function blobIn(value: Uint8Array): string | undefined {
  return holdsAt(value, 0, BLOB) ? /^"blob:(sha256:[0-9a-f]+)/.exec(decodeText(value))?.[1] : undefined;
}

function missing(digest: string, mimeType: unknown): object {
  const type = typeof mimeType === "string" ? mimeType : "a medium";
  return { type: "text", text: `[${type} that is not here: ${digest}]` };
}

/** Returns whether bytes hold a mark. Buffers are searched many times as fast as other bytes. */
function contains(bytes: Uint8Array, mark: Uint8Array): boolean {
  return Buffer.prototype.indexOf.call(bytes, mark) >= 0;
}
