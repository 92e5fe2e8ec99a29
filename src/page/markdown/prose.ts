/**
 * Prose in Markdown, written anew from what a parser sees in it, so that each mark is one of ours: markup stays text,
 * links lead to the web and to mail only, pictures are named and not loaded, headings come below those of the document.
 */

import type { Token } from "markdown-it";
import { findLanguage } from "../code.ts";
import { isLinkable, toReadable } from "../escape.ts";
import { describeLength, isLongText } from "../fold.ts";
import { DEEPEST, MOST_PROSE, makeProseParser } from "../prose.ts";
import { escapeCell, escapeText, escapeTextLines, foldCode, makeCodeSpan, makeFence, makeLink } from "./escape.ts";

const parser = makeProseParser();
parser.normalizeLink = (address) => address;

/** A block that is open, with the blocks in it that are written. */
interface OpenBlock {
  readonly token: Token | undefined;
  readonly blocks: string[];
  /** The mark of the items of a list; the number of the next item of an ordered one. */
  mark: string;
  next: number;
}

/** Returns prose as Markdown that ends with a blank line; nothing for no text. */
export function writeProse(text: string): string {
  if (text.trim() === "") return "";
  if (text.length > MOST_PROSE) return asItIs(text);
  const tokens = parser.parse(toReadable(text), {});
  if (tokens.some(({ level }) => level >= DEEPEST - 1)) return asItIs(text);
  const open: OpenBlock[] = [openedBy(undefined, [])];
  for (let index = 0; index < tokens.length; index++) {
    const token = tokens[index];
    const inside = open[open.length - 1];
    if (token.type === "table_open") {
      const from = index;
      while (tokens[index].type !== "table_close") index++;
      inside.blocks.push(tableOf(tokens.slice(from, index)));
    } else if (token.type === "inline") inside.blocks.push(blockOfInline(tokens[index - 1], token));
    else if (token.nesting === 1) open.push(openedBy(token, inside.blocks));
    else if (token.nesting === -1) close(open);
    else inside.blocks.push(leafOf(token));
  }
  const written = joined(open[0].blocks);
  return written === "" ? "" : `${written}\n\n`;
}

function asItIs(text: string): string {
  return isLongText(text) ? foldCode(`Text: ${describeLength(text)}`, text) : makeFence(text);
}

function openedBy(token: Token | undefined, before: readonly string[]): OpenBlock {
  const isOrdered = token?.type === "ordered_list_open";
  // A list after a list has another mark: it would be the same list.
  const isSecond = /^(?:- |\d+\. )/.test(before.at(-1) ?? "");
  const mark = isOrdered ? (isSecond ? ")" : ".") : isSecond ? "*" : "-";
  return { token, blocks: [], mark, next: Number(token?.attrGet("start") ?? 1) };
}

/** Ends the innermost block, and adds its content to the one around it. */
function close(open: OpenBlock[]): void {
  const { token, blocks } = open.pop() as OpenBlock;
  const around = open[open.length - 1];
  switch (token?.type) {
    case "blockquote_open":
      around.blocks.push(joined(blocks).replace(/^/gm, "> ").replace(/ +$/gm, ""));
      break;
    case "list_item_open": {
      const mark = around.token?.type === "ordered_list_open" ? `${around.next++}${around.mark}` : around.mark;
      const text = boxed(isShortItem(blocks) ? blocks.join("\n") : joined(blocks));
      around.blocks.push(`${mark} ${text.replace(/\n(?=[^\n])/g, `\n${" ".repeat(mark.length + 1)}`)}`);
      break;
    }
    case "bullet_list_open":
    case "ordered_list_open":
      around.blocks.push(blocks.join("\n"));
      break;
    default:
      around.blocks.push(...blocks);
  }
}

/** Returns the text of an item with the box of a task. */
function boxed(text: string): string {
  return text.replace(/^\\\[([ xX])\\\] /, "[$1] ");
}

function joined(blocks: readonly string[]): string {
  return blocks.filter((block) => block !== "").join("\n\n");
}

/** Returns whether an item is a line of text with a list below it. */
function isShortItem(blocks: readonly string[]): boolean {
  return blocks.length === 2 && !blocks[0].includes("\n\n") && BEGINS_LIST.test(blocks[1]);
}

const BEGINS_LIST = /^(?:[-*] |\d+[.)] )/;

function blockOfInline({ type, tag }: Token, { children }: Token): string {
  const text = inlineOf(children ?? []);
  if (type !== "heading_open") return plainBlock(text);
  const depth = tag === "h1" ? 4 : tag === "h2" ? 5 : 6;
  return `${"#".repeat(depth)} ${text.replace(/\s*\n/g, " ").replace(/(#+)$/, "\\$1")}`;
}

/** Returns lines that begin nothing but a paragraph. */
function plainBlock(text: string): string {
  return escapeTextLines(text.trim());
}

function leafOf({ type, content, info }: Token): string {
  if (type === "hr") return "***";
  // Fences of other names draw diagrams, or run queries and scripts.
  if (type === "fence") return makeFence(content, findLanguage(info.trim().split(/\s+/)[0])).trimEnd();
  if (type === "code_block") return makeFence(content).trimEnd();
  return plainBlock(escapeText(content));
}

function tableOf(tokens: readonly Token[]): string {
  const rows: string[][] = [];
  const marks: string[] = [];
  for (const [index, token] of tokens.entries()) {
    if (token.type === "tr_open") rows.push([]);
    if (token.type === "th_open") marks.push(alignmentOf(token));
    if (token.type === "th_open" || token.type === "td_open")
      rows.at(-1)?.push(escapeCell(inlineOf(tokens[index + 1].children ?? []).trim()));
  }
  const [head, ...others] = rows.map((cells) => `| ${cells.join(" | ")} |`);
  return [head, `| ${marks.join(" | ")} |`, ...others].join("\n");
}

function alignmentOf(token: Token): string {
  const style = String(token.attrGet("style") ?? "");
  if (style.includes("center")) return ":-:";
  return style.includes("right") ? "--:" : "---";
}

const MARKS: Readonly<Record<string, string>> = {
  em_open: "*",
  em_close: "*",
  strong_open: "**",
  strong_close: "**",
  s_open: "~~",
  s_close: "~~",
};

/** Returns what stands in a line; links have no links in them. */
function inlineOf(tokens: readonly Token[]): string {
  const pieces: string[] = [];
  let linked: Token | undefined;
  let from = 0;
  for (const token of tokens) {
    if (token.type === "link_open") {
      linked = token;
      from = pieces.length;
    } else if (token.type === "link_close" && linked) {
      const said = textOf(pieces.splice(from));
      pieces.push(linkOf(token, String(linked.attrGet("href") ?? ""), said));
      linked = undefined;
    } else pieces.push(pieceOf(token));
  }
  return textOf(pieces);
}

/** Joins pieces: marks of code stay apart, and a link after an exclamation mark is no picture. */
function textOf(pieces: readonly string[]): string {
  const kept = pieces.filter((piece) => piece !== "");
  for (let index = 0; index < kept.length - 1; index++) {
    const [piece, next] = [kept[index], kept[index + 1]];
    if (piece.endsWith("`") && next.startsWith("`")) kept[index] = `${piece} `;
    else if (piece.endsWith("!") && next.startsWith("[")) kept[index] = `${piece.slice(0, -1)}\\!`;
  }
  return kept.join("");
}

function linkOf({ info }: Token, address: string, said: string): string {
  const isItself = info === "auto" && isLinkable(address) && !/[<>`|$\s]/.test(address);
  return isItself ? `<${address}>` : makeLink(address, said);
}

function pieceOf(token: Token): string {
  const { type, content } = token;
  if (type === "code_inline") return makeCodeSpan(content, MOST_PROSE);
  if (type === "image")
    return `${escapeText(`[image ${content}]`)} ${makeCodeSpan(String(token.attrGet("src") ?? ""), 200)}`;
  if (type === "softbreak" || type === "hardbreak") return "  \n";
  return Object.hasOwn(MARKS, type) ? MARKS[type] : escapeText(content);
}
