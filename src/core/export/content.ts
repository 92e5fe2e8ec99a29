/** The content of an entry as a person reads it, for every format of that kind. */

import { contentText, shownText, toolCalls } from "../format/message.ts";
import { jsonText } from "../json/json.ts";

/** A stretch of content. The text of an image is its MIME type. */
export interface ContentPart {
  readonly kind: "text" | "thinking" | "call" | "summary" | "image";
  readonly text: string;
  /** The bytes of an image, in base64. */
  readonly data?: unknown;
}

export interface EntryContent {
  /** The role of a message, `custom` for one of an extension, `note` for whatever is no message. */
  readonly kind: string;
  readonly title: string;
  readonly parts: readonly ContentPart[];
  readonly isError?: boolean;
}

export function contentOf(entry: Readonly<Record<string, unknown>>): EntryContent {
  const note = (title: string, text: string, kind: ContentPart["kind"] = "text"): EntryContent => ({
    kind: "note",
    title,
    parts: text === "" ? [] : [{ kind, text }],
  });
  switch (entry.type) {
    case "message":
      return messageContent(entry.message);
    case "custom_message":
      return { ...note("extension", contentText(entry.content)), kind: "custom" };
    case "compaction":
    case "branch_summary":
      return note(entry.type.replace("_", " "), shownText(entry.summary), "summary");
    case "model_change":
      return note("model", `${shownText(entry.provider)}/${shownText(entry.modelId)}`);
    case "thinking_level_change":
      return note("thinking level", shownText(entry.thinkingLevel));
    default:
      return note(shownText(entry.type), "");
  }
}

function messageContent(message: unknown): EntryContent {
  if (typeof message !== "object" || message === null) return { kind: "note", title: "message", parts: [] };
  const { role, content, toolName, isError, command, output } = message as Record<string, unknown>;
  const parts: ContentPart[] = [];
  if (role === "bashExecution") {
    parts.push({ kind: "call", text: shownText(command) }, { kind: "text", text: shownText(output) });
    return { kind: role, title: "command", parts };
  }
  if (typeof content === "string") parts.push({ kind: "text", text: content });
  else if (Array.isArray(content)) for (const block of content) parts.push(...partsOf(block));
  for (const call of toolCalls(content))
    parts.push({ kind: "call", text: `${call.name}(${argumentsText(call.arguments)})` });
  const kind = typeof role === "string" ? role : "message";
  const title = kind === "toolResult" && typeof toolName === "string" ? `${kind} ${toolName}` : kind;
  return { kind, title, parts, isError: isError === true };
}

function partsOf(block: unknown): ContentPart[] {
  if (typeof block !== "object" || block === null) return [];
  const { type, text, thinking, data, mimeType } = block as Record<string, unknown>;
  if (type === "text" && typeof text === "string") return [{ kind: "text", text }];
  if (type === "thinking" && typeof thinking === "string") return [{ kind: "thinking", text: thinking }];
  return type === "image" ? [{ kind: "image", text: shownText(mimeType), data }] : [];
}

/** Returns the arguments of a tool call as readable text. */
function argumentsText(value: unknown): string {
  if (value === undefined) return "";
  try {
    return JSON.stringify(value, null, 2);
  } catch {
    // Nested too deep for JSON.stringify.
    return jsonText(value);
  }
}

// Control characters except line feeds and tabs, and marks that change the direction of the text after them.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const ACTIVE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Makes characters visible that act instead of being seen: controls as their pictures, others as a replacement. */
export function visibleText(text: string): string {
  return text
    .replace(/\r\n/g, "\n")
    .replace(ACTIVE, (c) => (c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : "\ufffd"));
}
