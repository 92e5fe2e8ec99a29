/** The words of entries, taken from their HTML, and where a query is in them. */

const PART = /<(\/?)([a-z][a-z0-9]*)([^>]*)>|[^<]+/g;
const VOID = new Set(["br", "hr", "img", "input", "rect", "polyline"]);

const NAMED: Readonly<Record<string, string>> = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'" };

/** Selector for the parts of an entry that are no words of it: its head, the peeks of folds, buttons, rows. */
export const NOT_WORDS = "header,summary,button,script,.left,.replaced";
const NOT_WORDS_TAGS = new Set(["header", "summary", "button", "script"]);

/** Elements that are entries by their ids. */
export const ENTRY = "article[id],.note[id],.result[id]";

interface OpenElement {
  /** The entry that text within it belongs to, and true if that text is no words of the entry. */
  readonly entry: string;
  readonly isSkipped: boolean;
}

/** Gives the words of each entry in a block of HTML that the page's generator wrote. */
export function collectWords(html: string, add: (id: string, words: string) => void): void {
  const open: OpenElement[] = [];
  const words = new Map<string, string>();
  for (const [part, end, tag, attributes] of html.matchAll(PART)) {
    const top = open[open.length - 1];
    if (tag === undefined) {
      if (top && top.entry !== "" && !top.isSkipped) words.set(top.entry, (words.get(top.entry) ?? "") + decoded(part));
    } else if (end === "/") open.pop();
    else if (!VOID.has(tag)) open.push(opened(tag, attributes, top));
  }
  for (const [id, text] of words) add(id, text);
}

function opened(tag: string, attributes: string, top: OpenElement | undefined): OpenElement {
  const style = /class="([^"]*)"/.exec(attributes)?.[1] ?? "";
  const id = /\bid="([^"]*)"/.exec(attributes)?.[1];
  const isEntry = id !== undefined && (tag === "article" || style === "note" || style === "result");
  const isOwnSkipped = NOT_WORDS_TAGS.has(tag) || style === "left" || style === "replaced";
  return { entry: isEntry ? id : (top?.entry ?? ""), isSkipped: isOwnSkipped || top?.isSkipped === true };
}

function decoded(text: string): string {
  return text.includes("&") ? text.replace(/&(?:amp|lt|gt|quot|#39);/g, (name) => NAMED[name]) : text;
}

/** Returns text in small letters, each where it was. */
export function lowerText(text: string): string {
  const lower = text.toLowerCase();
  if (lower.length === text.length) return lower;
  return Array.from(text, (one) => (one.toLowerCase().length === one.length ? one.toLowerCase() : one)).join("");
}

/** A query as it is looked for: a text, or where it has several words, an expression that takes any space between. */
export type TextPattern = { readonly text: string; readonly spaced?: RegExp };

export function makePattern(query: string): TextPattern | undefined {
  const words = lowerText(query).split(/\s+/).filter(Boolean);
  if (words.length === 0) return undefined;
  if (words.length === 1) return { text: words[0] };
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return { text: words.reduce((a, b) => (b.length > a.length ? b : a)), spaced: new RegExp(escaped.join("\\s+"), "g") };
}

/** Returns how often a pattern is in a text in small letters. */
export function countPlaces(lower: string, { text, spaced }: TextPattern): number {
  let count = 0;
  if (spaced) {
    if (!lower.includes(text)) return 0;
    for (const _ of lower.matchAll(spaced)) count++;
    return count;
  }
  for (let at = lower.indexOf(text); at >= 0; at = lower.indexOf(text, at + text.length)) count++;
  return count;
}

/** Returns where a pattern begins and ends in a text in small letters. */
export function findPlaces(lower: string, { text, spaced }: TextPattern, most: number): [from: number, to: number][] {
  const places: [number, number][] = [];
  if (spaced) {
    for (const { 0: found, index } of lower.matchAll(spaced)) {
      if (places.push([index, index + found.length]) >= most) break;
    }
    return places;
  }
  for (let at = lower.indexOf(text); at >= 0 && places.length < most; at = lower.indexOf(text, at + text.length))
    places.push([at, at + text.length]);
  return places;
}
