/**
 * Prose of people and models, in Markdown. Markup in it stays text, links lead to the web and to mail only, and a picture
 * elsewhere is named and not loaded.
 */

import MarkdownIt, { type Token } from "markdown-it";
import { findLanguage, renderCode } from "./code.ts";
import { parseDiff, renderDiff } from "./diff.ts";
import { escapeHtml, isLinkable, toReadable } from "./escape.ts";
import { renderLines } from "./fold.ts";

/** Characters that are read as Markdown at most; more is shown as it is. */
export const MOST_PROSE = 200_000;

/** Most nested blocks. Markdown-it drops deeper ones, which are therefore shown as they are. */
export const DEEPEST = 40;

/**
 * Line breaks, words in code and the like in one paragraph at most: the time of a browser grows with their square, and
 * 100,000 lines of a log took 32 s.
 */
const MOST_PARTS = 20_000;

/** Returns a parser of prose. The writer of a link checks its address: a forbidden one is still read with it. */
export function makeProseParser(): InstanceType<typeof MarkdownIt> {
  const parser = new MarkdownIt({ html: false, linkify: true, breaks: true });
  parser.set({ maxNesting: DEEPEST });
  parser.validateLink = () => true;
  parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  parser.linkify.add("ftp:", null).add("//", null);
  return parser;
}

const markdown = makeProseParser();

const { rules } = markdown.renderer;
rules.text = (tokens, index) => escapeHtml(tokens[index].content);
rules.code_inline = (tokens, index) => `<code>${escapeHtml(tokens[index].content)}</code>`;
rules.code_block = (tokens, index) => blockOf(tokens[index].content, "");
rules.fence = (tokens, index) => blockOf(tokens[index].content, tokens[index].info.trim().split(/\s+/)[0]);
rules.heading_open = (tokens, index) => `<${headingOf(tokens[index])}>`;
rules.heading_close = (tokens, index) => `</${headingOf(tokens[index])}>\n`;
rules.table_open = () => '<div class="scroll" role="region" aria-label="Table" tabindex="0"><table>\n';
rules.table_close = () => "</table></div>\n";
rules.th_open = (tokens, index) => `<th${alignment(tokens[index])}>`;
rules.td_open = (tokens, index) => `<td${alignment(tokens[index])}>`;
rules.link_open = (tokens, index) => {
  const address = addressOf(tokens[index], "href");
  return isLinkable(address)
    ? `<a href="${escapeHtml(address)}" rel="noopener noreferrer nofollow">`
    : '<span class="nolink">';
};
rules.link_close = (tokens, index) => {
  const opened = openingOf(tokens, index);
  const address = opened ? addressOf(opened, "href") : "";
  if (isLinkable(address)) return "</a>";
  const said = tokens[index - 1]?.content ?? "";
  const shown = decoded(address);
  return said === shown || shown === "" ? "</span>" : ` <code>${escapeHtml(shown)}</code></span>`;
};
rules.image = (tokens, index) => {
  const address = addressOf(tokens[index], "src");
  const shown = decoded(address);
  const place = shown.length > 200 ? `${shown.slice(0, 200)}…` : shown;
  return `<span class="nolink">[image ${escapeHtml(tokens[index].content)}] <code>${escapeHtml(place)}</code></span>`;
};
// Boxes of task lists.
markdown.core.ruler.after("inline", "boxes", ({ tokens }) => {
  for (let index = 2; index < tokens.length; index++) {
    const first = tokens[index].children?.[0];
    if (first?.type !== "text" || tokens[index - 2].type !== "list_item_open") continue;
    first.content = first.content.replace(/^\[([ xX])\] /, (_, mark) => (mark === " " ? "☐ " : "☑ "));
  }
});

/** Headings of the conversation come below those of the page. */
function headingOf({ tag }: Token): string {
  return tag === "h1" ? "h4" : tag === "h2" ? "h5" : "h6";
}

function alignment(token: Token): string {
  const found = /text-align:(center|right)/.exec(String(token.attrGet("style") ?? ""));
  return found ? ` class="${found[1]}"` : "";
}

/** Returns the token that opened the link which this one closes; links are never within links. */
function openingOf(tokens: readonly Token[], index: number): Token | undefined {
  for (let at = index - 1; at >= 0; at--) if (tokens[at].type === "link_open") return tokens[at];
  return undefined;
}

function addressOf(token: Token, member: "href" | "src"): string {
  return String(token.attrGet(member) ?? "");
}

function decoded(address: string): string {
  try {
    return decodeURI(address);
  } catch {
    return address;
  }
}

function blockOf(code: string, name: string): string {
  if (name === "diff" || name === "patch") return renderLines(code, renderDiff(parseDiff(code)), "diff");
  return renderLines(code, renderCode(code, findLanguage(name)), "code");
}

export function renderProse(text: string): string {
  if (text.trim() === "") return "";
  if (text.length > MOST_PROSE) return renderLines(text, escapeHtml(text), "plain");
  const tokens = markdown.parse(toReadable(text), {});
  if (tokens.some(({ level, children }) => level >= DEEPEST - 1 || (children?.length ?? 0) > MOST_PARTS))
    return renderLines(text, escapeHtml(text), "plain");
  return `<div class="prose" dir="auto">${markdown.renderer.render(tokens, markdown.options, {})}</div>`;
}
