/** Our messages as the response items of Codex's files. */

import { getOriginal, isObject, type JsonObject, toText } from "../../../../core/foreign/messages.ts";
import { getToolCalls } from "../../../../core/format/message.ts";
import { replaceHalves } from "../../../../core/json/halves.ts";
import {
  decodeText,
  findMember,
  getElements,
  getMembers,
  parse,
  toJsonText,
  tryParseText,
} from "../../../../core/json/json.ts";
import type { Session } from "../../../../core/session/session.ts";
import { toCallArguments, toToolName } from "../claude/claude-blocks.ts";
import type { Losses, OutgoingCall } from "../format.ts";

/** Parts of messages that are in no message of ours but of an import, as they were. */
const OWN_PARTS = new Set(["input_image", "input_audio", "input_file"]);

/** Returns the parts of a person's message or a result. */
export function toUserParts(content: unknown, losses: Losses): JsonObject[] {
  if (typeof content === "string") return content === "" ? [] : [{ type: "input_text", text: content }];
  if (!Array.isArray(content)) return [];
  return content.filter(isObject).flatMap((block): JsonObject[] => {
    const { type, text, data, mimeType } = block;
    const original = getOriginal(block);
    if (original && OWN_PARTS.has(String(original.type))) return [original];
    if (type === "text") return typeof text === "string" && text !== "" ? [{ type: "input_text", text }] : [];
    if (type === "image" && typeof data === "string")
      return [{ type: "input_image", image_url: `data:${toText(mimeType) ?? "image/png"};base64,${data}` }];
    if (typeof type === "string" && OWN_PARTS.has(type)) return [block];
    losses.note(`A block of the type ${typeof type === "string" ? type.slice(0, 40) : "unknown"} is left out.`);
    return [];
  });
}

/** Returns the items of an answer in their order; `texts`: the arguments of its calls as they are stored. */
export function toAnswerItems(
  message: JsonObject,
  calls: readonly OutgoingCall[],
  texts: readonly (string | undefined)[],
  isCodex: boolean,
  losses: Losses,
): JsonObject[] {
  const { content } = message;
  const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content;
  if (!Array.isArray(blocks)) return [];
  const items: JsonObject[] = [];
  let said: JsonObject[] = [];
  const speak = (): void => {
    if (said.length > 0) items.push({ type: "message", role: "assistant", content: said });
    said = [];
  };
  let call = 0;
  for (const block of blocks.filter(isObject)) {
    const { type, text } = block;
    if (type === "text") {
      if (typeof text === "string" && text !== "") said.push({ type: "output_text", text });
      continue;
    }
    speak();
    if (type === "toolCall") {
      items.push(callItem(calls[call], texts[call], isCodex, losses));
      call++;
    } else if (type === "thinking") items.push(...thoughtItem(block, losses));
    else losses.note(`A block of the type ${typeof type === "string" ? type.slice(0, 40) : "unknown"} is left out.`);
  }
  speak();
  return items;
}

function callItem(
  { id, name, arguments: args }: OutgoingCall,
  text: string | undefined,
  isCodex: boolean,
  losses: Losses,
): JsonObject {
  const [, namespace, own] = (isCodex && /^([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{1,64})$/.exec(name)) || [];
  const named = namespace === undefined ? { name: toToolName(name, losses) } : { name: own, namespace };
  const whole = replaceHalves(isObject(args) && text !== undefined ? text : toJsonText(toCallArguments(args, losses)));
  return { type: "function_call", ...named, arguments: whole, call_id: id };
}

/** Returns the arguments of calls as they are stored: numbers may have more digits than a value keeps. */
export function readCallTexts(line: Uint8Array): (string | undefined)[] {
  const message = findMember(getMembers(line) ?? [], "message");
  const content = message && findMember(getMembers(line, message.start, message.end) ?? [], "content");
  const blocks = (content && getElements(line, content.start, content.end)) ?? [];
  return blocks
    .filter(({ start, end }) => getToolCalls([parse(line, start, end)]).length > 0)
    .map(({ start, end }) => {
      const args = findMember(getMembers(line, start, end) ?? [], "arguments");
      return args && decodeText(line, args.start, args.end);
    });
}

/** Returns a thought that its provider can read again, as the item that it was; any other is left out. */
function thoughtItem({ thinkingSignature: signature }: JsonObject, losses: Losses): JsonObject[] {
  const item = typeof signature === "string" && signature.startsWith("{") ? tryParseText(signature) : undefined;
  if (
    isObject(item) &&
    item.type === "reasoning" &&
    typeof item.encrypted_content === "string" &&
    Array.isArray(item.summary)
  )
    return [item];
  losses.note("A thought is left out, because it has no signature of the same provider.");
  return [];
}

export function toResultItem(callId: string, message: JsonObject, losses: Losses): JsonObject {
  const parts = toUserParts(message.content, losses);
  const isText = parts.every(({ type }) => type === "input_text");
  const output = isText && parts.length <= 1 ? (toText(parts[0]?.text) ?? "") : parts;
  const failed = message.isError === true ? { success: false } : {};
  return { type: "function_call_output", call_id: callId, output, ...failed };
}

/** Returns values as items; undefined unless all of them are. */
export function toItems(value: unknown): JsonObject[] | undefined {
  if (!Array.isArray(value)) return undefined;
  return value.every((item) => isObject(item) && typeof item.type === "string" && isPlausible(item))
    ? value
    : undefined;
}

/** Returns whether the members of an item have the types that Codex expects: it skips a line with a wrong one. */
function isPlausible({ type, role, content, call_id: call, output }: JsonObject): boolean {
  if (type === "message") return typeof role === "string" && Array.isArray(content) && content.every(isPart);
  if (type === "function_call_output")
    return typeof call === "string" && (typeof output === "string" || Array.isArray(output));
  return true;
}

function isPart(part: unknown): boolean {
  if (!isObject(part) || typeof part.type !== "string") return false;
  return part.type === "input_image" ? typeof part.image_url === "string" : typeof part.text === "string";
}

/** Returns the members that give the kind of a custom message; `isKnown`: whether a reader gets its type back. */
export function getHarnessKind(customType: string): { role: string; kind?: string; isKnown: boolean } {
  if (customType === "codex:developer") return { role: "developer", isKnown: true };
  const own = customType.replace(/^codex:/, "");
  const kind = `pi.${own.replace(/[^A-Za-z0-9_-]+/g, "_").slice(0, 80) || "custom"}`;
  return { role: "user", kind, isKnown: own !== customType };
}

/** Returns the provider that the records of an import name. */
export function findProvider(session: Session, order: ArrayLike<number>): string | undefined {
  const { nodes } = session.log;
  for (let index = 0; index < order.length && index < 100; index++) {
    if (!nodes.isType(order[index], "custom")) continue;
    const { customType, data } = session.entry(order[index]);
    if (customType !== "import:codex" || !isObject(data) || data.type !== "session_meta") continue;
    const { payload } = data;
    const provider = isObject(payload) ? payload.model_provider : undefined;
    if (typeof provider === "string" && provider !== "") return provider;
  }
  return undefined;
}
