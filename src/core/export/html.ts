/** A session as one plain page. Nothing in it can run or reach out: text is escaped, and there is no script. */

import { jsonText } from "../json.ts";
import { contentText, toolCalls } from "../message.ts";

export interface HtmlSession {
  readonly title: string;
  /** Pairs of name and value, shown above the conversation. */
  readonly facts: readonly (readonly [string, string])[];
  /** Entries of the path, oldest first. */
  readonly entries: Iterable<Readonly<Record<string, unknown>>>;
}

const STYLE = `
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; unicode-bidi: isolate; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-size: .85rem; opacity: .8; }
dd { margin: 0; overflow-wrap: anywhere; unicode-bidi: isolate; }
article { border-left: 3px solid #8888; margin: 1rem 0; padding: .2rem .8rem; }
article.user { border-color: #2a7ae2; }
article.assistant { border-color: #2aa15a; }
article.toolResult, article.bashExecution { border-color: #b8860b; }
article.note { opacity: .75; }
header { font-size: .8rem; opacity: .7; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; font: 13px/1.45 ui-monospace, monospace; unicode-bidi: isolate; }
img { max-width: 100%; }
`;

/** The page in pieces, so that a long session need not lie in memory twice. */
export function* htmlPieces(session: HtmlSession): Generator<string> {
  yield `<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n`;
  yield `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">\n`;
  yield `<title>${escapeHtml(session.title)}</title>\n<style>${STYLE}</style>\n</head>\n<body>\n`;
  yield `<h1>${escapeHtml(session.title)}</h1>\n<dl>\n`;
  for (const [name, value] of session.facts) yield `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd>\n`;
  yield "</dl>\n";
  for (const entry of session.entries) yield articleOf(entry);
  yield "</body>\n</html>\n";
}

/** Text that a browser shows as it is; control characters but line breaks and tabs become visible. */
export function escapeHtml(text: string): string {
  return text
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;")
    .replace(/'/g, "&#39;")
    .replace(
      CONTROLS,
      (c) =>
        `&#x${(c.codePointAt(0) as number) < 0x20 ? (0x2400 + (c.codePointAt(0) as number)).toString(16) : "fffd"};`,
    );
}

// Control characters, and the marks that turn the direction of text for whatever follows them.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\u200e\u200f]/g;

function articleOf(entry: Readonly<Record<string, unknown>>): string {
  const { type, timestamp } = entry;
  if (type === "message") return messageArticle(entry.message, timestamp);
  if (type === "custom_message") return article("custom", "extension", timestamp, pre(contentText(entry.content)));
  if (type === "compaction") return article("note", "compaction", timestamp, pre(String(entry.summary ?? "")));
  if (type === "branch_summary") return article("note", "branch summary", timestamp, pre(String(entry.summary ?? "")));
  if (type === "model_change")
    return article("note", "model", timestamp, pre(`${String(entry.provider)}/${String(entry.modelId)}`));
  if (type === "thinking_level_change")
    return article("note", "thinking level", timestamp, pre(String(entry.thinkingLevel)));
  return "";
}

function messageArticle(message: unknown, timestamp: unknown): string {
  if (typeof message !== "object" || message === null) return "";
  const { role, content, toolName, command, output } = message as Record<string, unknown>;
  const name = typeof role === "string" ? role : "message";
  if (name === "bashExecution") return article(name, `$ ${String(command)}`, timestamp, pre(String(output ?? "")));
  const parts: string[] = [];
  if (typeof content === "string") parts.push(pre(content));
  else if (Array.isArray(content)) for (const block of content) parts.push(blockHtml(block));
  for (const call of toolCalls(content)) parts.push(pre(`${call.name}(${argumentsText(call.arguments)})`));
  const title = name === "toolResult" && typeof toolName === "string" ? `${name} ${toolName}` : name;
  return article(/^[A-Za-z]+$/.test(name) ? name : "message", title, timestamp, parts.join(""));
}

function argumentsText(value: unknown): string {
  try {
    return JSON.stringify(value, null, 2);
  } catch {
    // Nested deeper than that goes.
    return jsonText(value);
  }
}

function blockHtml(block: unknown): string {
  if (typeof block !== "object" || block === null) return "";
  const { type, text, thinking, data, mimeType } = block as Record<string, unknown>;
  if (type === "text" && typeof text === "string") return pre(text);
  if (type === "thinking" && typeof thinking === "string")
    return `<details><summary>thinking</summary>${pre(thinking)}</details>`;
  if (type === "image" && typeof data === "string" && /^image\/[a-z0-9.+-]+$/i.test(String(mimeType)))
    return /^[A-Za-z0-9+/=\s]*$/.test(data) ? `<img alt="image" src="data:${String(mimeType)};base64,${data}">` : "";
  return "";
}

function pre(text: string): string {
  return text === "" ? "" : `<pre>${escapeHtml(text)}</pre>`;
}

function article(kind: string, title: string, timestamp: unknown, body: string): string {
  const time = typeof timestamp === "string" ? ` · ${escapeHtml(timestamp)}` : "";
  return `<article class="${kind}"><header>${escapeHtml(title)}${time}</header>${body}</article>\n`;
}
