/**
 * Text of a session in a Markdown document, where it is shown and does nothing else. GitHub and Obsidian read more than
 * CommonMark: mentions, formulas, tags, links between notes, comments, diagrams and queries in fences.
 */

import { changeBySlices, escapeHtml, isLinkable, toReadable } from "../escape.ts";

/** Returns text without active marks of Markdown, GitHub's or Obsidian's. Line ends stay. */
export function escapeText(text: string): string {
  return (
    toReadable(text)
      .replace(/[\\`*[\]|~$]/g, "\\$&")
      .replace(/(?<![\p{L}\p{N}])_|_(?![\p{L}\p{N}])|&(?=#?\w+;)|:(?=\/\/)|(?<=www)\./giu, "\\$&")
      .replace(/%(?=%)|(?<=%)%|=(?==)|(?<==)=|(?<!\S)[#^](?=\S)/g, "\\$&")
      .replace(/(?<![\w.])@(?=\w)/g, "@&#8203;")
      // A backslash before it would be lost where it counts as part of an address.
      .replaceAll("<", "&lt;")
  );
}

/** Returns lines of text that do not begin a heading, a list, a quote, a rule or the like. */
export function escapeTextLines(lines: string): string {
  return lines
    .replace(/^[ \t]+|(?<=\n)[ \t]+/g, "")
    .replace(/^(\d{1,9})(?=[.)](?:\s|$))/gm, "$1\\")
    .replace(/^[-+=#>:](?!\\)/gm, "\\$&");
}

export function escapeTextLine(text: string): string {
  return escapeTextLines(escapeText(text.replace(/\s+/g, " ").trim()));
}

export function makeCodeSpan(text: string, most = 300): string {
  const whole = text.length > most ? `${text.slice(0, most)}…` : text;
  const line = toReadable(whole).replace(/\s+/g, " ").trim();
  if (line === "") return "";
  const marks = "`".repeat(longestRun(line) + 1);
  const space = /^`|`$/.test(line) ? " " : "";
  // A query of Obsidian's commonest extension begins so.
  const mark = /^\$?=/.test(line) ? "\u200b" : "";
  return marks + space + mark + line + space + marks;
}

function longestRun(text: string): number {
  let longest = 0;
  for (const [run] of text.matchAll(/`+/g)) longest = Math.max(longest, run.length);
  return longest;
}

/** Returns what stands in a cell of a table; the text is Markdown already. */
export function escapeCell(markdown: string): string {
  return markdown.replace(/\n/g, " ").replace(/(?<!\\)((?:\\\\)*)\|/g, "$1\\|");
}

/** Returns a block whose fence is longer than any in the text. The language is one of ours, or none. */
export function makeFence(text: string, language = ""): string {
  const shown = toReadable(text).replace(/\n$/, "");
  const marks = "`".repeat(Math.max(3, longestRun(shown) + 1));
  return `${marks}${language}\n${shown}\n${marks}\n\n`;
}

/**
 * Returns a block behind one click, as HTML without blank lines: Markdown and blank lines within HTML are not for
 * Obsidian, which would leave the block open.
 */
export function foldCode(title: string, text: string, language = ""): string {
  const lang = language === "" ? "" : ` lang="${language}"`;
  return foldOf(title, `<pre${lang}><code>${unbroken(elementText(text.replace(/\n$/, "")))}</code></pre>`);
}

export function foldText(title: string, text: string): string {
  return foldOf(
    title,
    changeBySlices(elementText(text.trim()), (slice) => slice.replace(/\n/g, "<br>\n")),
  );
}

function foldOf(title: string, html: string): string {
  return `<details><summary>${makeSummary(title)}</summary>\n${html}</details>\n\n`;
}

/** Returns text as HTML between elements, which needs no escapes of quotes. */
function elementText(text: string): string {
  return changeBySlices(escapeHtml(text), (slice) => slice.replaceAll("&quot;", '"').replaceAll("&#39;", "'"));
}

export function makeSummary(title: string): string {
  return elementText(title.replace(/\s+/g, " ").trim());
}

/** Returns HTML of preformatted text without a blank line: that would end the block. */
function unbroken(html: string): string {
  return changeBySlices(html, (slice) => slice.replace(/\n(?=[ \t]*(?:\n|$))/g, "&#10;"));
}

/** Returns a link if its address is allowed; else its text, and the address as code. */
export function makeLink(address: string, said: string): string {
  const place = toReadable(address);
  if (isLinkable(place)) {
    // A backtick in an address would begin code that ends in the next.
    const target = place.replace(/[`|$[\]*]/g, encodeURIMark).replace(/&(?=#?\w+;)/g, "&amp;");
    return /[()]/.test(target) ? `[${said}](<${target}>)` : `[${said}](${target})`;
  }
  const shown = makeCodeSpan(address, 200);
  return shown === "" || said === address ? said : `${said} ${shown}`;
}

function encodeURIMark(mark: string): string {
  return `%${mark.charCodeAt(0).toString(16).toUpperCase()}`;
}

/** Returns a place that links lead to: GitHub shows nothing there, and puts a prefix before it and before links to it. */
export function makeAnchor(name: string): string {
  return `<a id="${name}"></a>`;
}
