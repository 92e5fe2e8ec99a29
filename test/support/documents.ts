/** Looks at an exported Markdown document as GitHub renders it; whatever acts, or breaks out of its place, fails. */

import MarkdownIt from "markdown-it";
import { defaultTreeAdapter, parseFragment } from "parse5";
import { expect } from "vitest";
import type { Json } from "./server.ts";

const NAMES = "h1 h2 h3 h4 h5 h6 p ul ol li a strong em s code pre details summary br hr table thead tbody tr th td";
const ELEMENTS = new Set([...NAMES.split(" "), "blockquote"]);

const ATTRIBUTES: Readonly<Record<string, RegExp>> = {
  id: /^[A-Za-z0-9_.-]+$/,
  href: /^(?:#[A-Za-z0-9_.-]+|(?:https?:\/\/|mailto:)[^\s"'<>\\]+)$/i,
  // Classes of fences, by our languages, and of folded blocks.
  class: /^language-[a-z0-9+#-]+$/,
  lang: /^[a-z0-9+#-]+$/,
  start: /^\d+$/,
  style: /^text-align:(?:center|right)$/,
};

/** Names of fences that draw or run something where these documents are read. */
const ACTIVE = /language-(?:mermaid|math|geojson|topojson|stl|dataview|dataviewjs|query|tasks|button|js-engine)/;

interface SeenDocument {
  readonly elements: string[];
  readonly ids: string[];
  readonly links: string[];
  readonly addresses: string[];
  /** Headings of the document's own levels, with the number of folds that each is in. */
  readonly headings: string[];
  text: string;
}

const markdown = new MarkdownIt({ html: true, linkify: true });
markdown.set({ maxNesting: 1000 });
// GitHub links no address without a scheme.
markdown.linkify.add("//", null);

/** Renders the document with raw HTML let through. Returns the elements in it. */
export function lookAtDocument(source: string): SeenDocument {
  const seen: SeenDocument = { elements: [], ids: [], links: [], addresses: [], headings: [], text: "" };
  const errors: string[] = [];
  const html = markdown.render(source);
  const root = parseFragment(html, { onParseError: ({ code }) => errors.push(code) });
  const waiting: [Json, number][] = [[root, 0]];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [node, folds] = next;
    if (defaultTreeAdapter.isTextNode(node)) seen.text += node.value;
    if (defaultTreeAdapter.isCommentNode(node)) throw new Error(`The document has a comment: ${node.data}`);
    if (defaultTreeAdapter.isElementNode(node)) lookAtElement(node, folds, seen);
    const inside = folds + (node.nodeName === "details" ? 1 : 0);
    if ("childNodes" in node)
      waiting.push(...[...node.childNodes].reverse().map((child: Json): [Json, number] => [child, inside]));
  }
  expect(errors).toEqual([]);
  expect(new Set(seen.ids).size).toBe(seen.ids.length);
  const known = new Set(seen.ids);
  expect(seen.links.filter((link) => !known.has(link))).toEqual([]);
  return seen;
}

function lookAtElement(element: Json, folds: number, seen: SeenDocument): void {
  const { tagName, attrs } = element;
  seen.elements.push(tagName);
  if (!ELEMENTS.has(tagName)) throw new Error(`The document has an element ${tagName}`);
  for (const { name, value } of attrs) {
    if (!ATTRIBUTES[name]?.test(value) || ACTIVE.test(value))
      throw new Error(`${tagName} has ${name}=${JSON.stringify(value)}`);
    if (name === "id") seen.ids.push(value);
    if (name === "href" && value.startsWith("#")) seen.links.push(value.slice(1));
    else if (name === "href") seen.addresses.push(value);
  }
  if (/^h[1-3]$/.test(tagName)) seen.headings.push(`${folds} ${tagName} ${textOf(element)}`);
}

function textOf(element: Json): string {
  let text = "";
  for (const child of element.childNodes)
    text += defaultTreeAdapter.isTextNode(child) ? child.value : "childNodes" in child ? textOf(child) : "";
  return text;
}
