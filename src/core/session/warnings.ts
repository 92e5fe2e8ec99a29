/** Warnings about entries that are stored as sent, although the host may not have meant them that way. */

import type { BadParams } from "../failure.ts";
import { KNOWN_TYPES, ROLES } from "../tree/nodes.ts";

/** Known roles, and other names for some of them. */
const KNOWN_ROLES = new Set<string>([...ROLES.filter((role) => role !== "" && role !== "other"), "hookMessage"]);
const OTHER_NAMES: Readonly<Record<string, string>> = {
  tool: "toolResult",
  tool_result: "toolResult",
  function: "toolResult",
  human: "user",
  ai: "assistant",
  model: "assistant",
  developer: "system",
};

/** Correct shapes, for hosts that send others. */
const CALL = '{"type":"toolCall","id":"...","name":"...","arguments":{}}';
const IMAGE = '{"type":"image","data":"<base64>","mimeType":"image/png"}';
const TEXT = '{"type":"text","text":"..."}';
const THINKING = '{"type":"thinking","thinking":"..."}';
const RESULT = '{"type":"message","message":{"role":"toolResult","toolCallId":"...","toolName":"...","content":[]}}';

/** The blocks that Pi knows, each as it is written. */
const BLOCKS: Readonly<Record<string, string>> = { text: TEXT, thinking: THINKING, image: IMAGE, toolCall: CALL };
/** Other names for blocks; a result of a tool is no block in Pi. */
const OTHER_BLOCKS: Readonly<Record<string, string>> = {
  tool_use: "toolCall",
  tool_call: "toolCall",
  function_call: "toolCall",
  function: "toolCall",
  tool_result: "",
  function_call_output: "",
  toolResult: "",
  image_url: "image",
  input_image: "image",
  input_text: "text",
  output_text: "text",
  reasoning: "thinking",
  redacted_thinking: "thinking",
};

/** Warnings about the blocks of one entry, at most; a last one counts the others. */
const MOST_OF_BLOCKS = 10;
/** Characters of a name that a warning repeats. */
const SHOWN = 40;
/** Characters of an image's data that are checked. */
const CHECKED = 256;
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

interface Doubt {
  readonly path: string;
  readonly message: string;
}

type ObjectValue = Readonly<Record<string, unknown>>;

/** Returns the doubtful members of a well-formed draft, each with its path in the draft, such as `message.role`. */
export function findDoubts(draft: ObjectValue): BadParams["issues"] {
  const { timestamp } = draft;
  if (typeof timestamp !== "string" || !Number.isNaN(Date.parse(timestamp))) return doubtsOfContent(draft);
  const text = `${JSON.stringify(timestamp.slice(0, SHOWN))} is no time. Send ISO 8601, such as 2026-01-24T16:22:26.831Z, or leave it out: the server adds it.`;
  return [{ path: "timestamp", message: text }, ...doubtsOfContent(draft)];
}

function doubtsOfContent(draft: ObjectValue): BadParams["issues"] {
  const { type, message } = draft;
  if (type === "message") return messageDoubts(message as ObjectValue);
  if (type === "custom_message") {
    const doubts: Doubt[] = [];
    addBlockDoubts(doubts, draft.content, "");
    return doubts;
  }
  const name = String(type);
  const role = (message as { role?: unknown } | null | undefined)?.role;
  const isSpoken = typeof role === "string" || name === "user" || name === "assistant" || name === "toolResult";
  if (isSpoken && !(KNOWN_TYPES as readonly string[]).includes(name)) {
    const text = `Pi knows no entry type ${name.slice(0, SHOWN)}; readers skip it. Did you mean message ({"type":"message","message":{"role":"user","content":"..."}})?`;
    return [{ path: "type", message: text }];
  }
  const meant = nearest(name, KNOWN_TYPES);
  if (meant === undefined) return [];
  return [{ path: "type", message: `Pi knows no entry type ${name}; readers skip it. Did you mean ${meant}?` }];
}

function messageDoubts(message: ObjectValue): BadParams["issues"] {
  const { content } = message;
  const role = String(message.role);
  if (!KNOWN_ROLES.has(role)) {
    const other = role.toLowerCase();
    const meant = Object.hasOwn(OTHER_NAMES, other) ? OTHER_NAMES[other] : nearest(role, [...KNOWN_ROLES]);
    const hint = meant === undefined ? "" : ` Did you mean ${meant}?`;
    return [
      { path: "message.role", message: `Pi knows no role ${role}; its model does not see such messages.${hint}` },
    ];
  }
  const doubts: Doubt[] = [];
  const warn = (member: string, text: string): void => {
    doubts.push({ path: `message.${member}`, message: text });
  };
  if (role === "system" && (typeof message.sections !== "object" || message.sections === null))
    warn("role", "System messages have sections in Pi 1.5 and are unknown before; this one has none.");
  if (role === "user" && content === undefined)
    warn("content", "A user message without content says nothing to the model.");
  if (role === "toolResult" && (typeof message.toolCallId !== "string" || message.toolCallId === ""))
    warn("toolCallId", "A tool result without the id of its call belongs to no call: providers refuse it.");
  if (role === "toolResult" && typeof message.toolName !== "string")
    warn("toolName", "A tool result without toolName does not say which tool it is of; Pi shows and sends the name.");
  if (role === "assistant" && message.tool_calls !== undefined)
    warn("tool_calls", `Pi reads tool calls from blocks of the content, and none from here: ${CALL}.`);
  if ((role === "assistant" || role === "toolResult") && typeof content === "string")
    warn("content", "Pi reads a list of blocks here; the text is stored as one text block.");
  addBlockDoubts(doubts, content, "message.", role);
  return doubts;
}

/** Adds the doubtful members of the blocks of a content, which is below that path. */
function addBlockDoubts(doubts: Doubt[], content: unknown, above: string, role?: string): void {
  if (!Array.isArray(content)) return;
  let count = 0;
  for (let i = 0; i < content.length; i++) {
    const doubt = blockDoubt(content[i], role);
    if (doubt === undefined || ++count > MOST_OF_BLOCKS) continue;
    const [member, message] = doubt;
    doubts.push({ path: `${above}content.${i}${member === "" ? "" : "."}${member}`, message });
  }
  if (count <= MOST_OF_BLOCKS) return;
  const message = `There are such warnings about ${count - MOST_OF_BLOCKS} more blocks.`;
  doubts.push({ path: `${above}content`, message });
}

type BlockDoubt = readonly [member: string, message: string];

/** Returns the first doubtful member of a block. In blocks that Pi writes it only looks at members. */
function blockDoubt(block: ObjectValue, role?: string): BlockDoubt | undefined {
  const { type } = block;
  if (type === "text")
    return typeof block.text === "string"
      ? undefined
      : ["text", `The text of a text block is in its member text: ${TEXT}.`];
  if (type === "toolCall") return callDoubt(block);
  if (type === "thinking") {
    if (typeof block.thinking === "string") return undefined;
    return ["thinking", `The text of a thinking block is in its member thinking: ${THINKING}.`];
  }
  if (type !== "image") return unknownBlock(String(type));
  if (role === "assistant")
    return ["type", "Pi reads no images in assistant messages; its model does not see this one."];
  return imageDoubt(block);
}

function callDoubt({ id, name, arguments: given }: ObjectValue): BlockDoubt | undefined {
  if (typeof id !== "string") return ["id", `A tool call has an id, which its result names: ${CALL}.`];
  if (typeof name !== "string") return ["name", `A tool call has the name of its tool: ${CALL}.`];
  if (typeof given === "object" && given !== null) return undefined;
  return ["arguments", `The arguments of a tool call are an object, not its JSON text: ${CALL}.`];
}

function imageDoubt({ data, mimeType }: ObjectValue): BlockDoubt | undefined {
  if (data === undefined || typeof mimeType !== "string")
    return ["", `Pi reads an image from data and mimeType: ${IMAGE}.`];
  // Its beginning is enough: an image may have many megabytes.
  if (typeof data !== "string" || BASE64.test(data.slice(0, CHECKED))) return undefined;
  return ["data", "The data of an image are its base64 text, without the data: and the type before it."];
}

function unknownBlock(type: string): BlockDoubt {
  const other = Object.hasOwn(OTHER_BLOCKS, type) ? OTHER_BLOCKS[type] : nearest(type, Object.keys(BLOCKS));
  const hint =
    other === undefined
      ? ` It knows ${Object.keys(BLOCKS).join(", ")}.`
      : other === ""
        ? ` A result is a message of its own: ${RESULT}.`
        : ` Did you mean ${other} (${BLOCKS[other]})?`;
  return ["type", `Pi knows no block ${type.slice(0, SHOWN)}.${hint}`];
}

/** Returns the known name that another is likely to be a misspelling of; undefined if it is known itself. */
function nearest(name: string, names: readonly string[]): string | undefined {
  if (names.includes(name) || name.length > 40) return undefined;
  const plain = (text: string): string => text.toLowerCase().replace(/[^a-z]/g, "");
  let best: { readonly name: string; readonly distance: number } | undefined;
  for (const known of names) {
    const distance = distanceOf(plain(name), plain(known));
    // Short names are similar by chance.
    if (distance <= (known.length < 6 ? 1 : 2) && (!best || distance < best.distance)) best = { name: known, distance };
  }
  return best?.name;
}

/** Returns how many letters must be inserted, removed, changed or swapped with the next. */
function distanceOf(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let k = 1; k <= b.length; k++) {
      const changed = last[k - 1] + (a[i - 1] === b[k - 1] ? 0 : 1);
      row[k] = Math.min(changed, last[k] + 1, row[k - 1] + 1);
      if (i > 1 && k > 1 && a[i - 1] === b[k - 2] && a[i - 2] === b[k - 1])
        row[k] = Math.min(row[k], beforeLast[k - 2] + 1);
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length];
}
