/** Looks at an exported page as a browser builds it; whatever could run, load or lead elsewhere unasked fails. */

import { defaultTreeAdapter, parse } from "parse5";
import { expect } from "vitest";
import type { Json } from "./server.ts";

/** Characters that act instead of being read. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern is to find these
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/;

const ELEMENTS = (
  "html head meta title style body div header main section nav article h1 h2 h3 h4 h5 h6 p ul ol li dl dt dd a span b " +
  "mark time code pre details summary figure figcaption svg rect polyline img table thead tbody tr th td blockquote " +
  "strong em s i hr br script noscript"
).split(" ");

const [NAME, NUMBER, TEXT] = [/^[A-Za-z0-9_.-]+$/, /^[\d.]+$/, /^[^<>]*$/];

const SAFE_LINK = /^(?:#[A-Za-z0-9_.-]+|(?:https?:\/\/|mailto:)[^\s"'<>\\]+)$/i;

const ATTRIBUTES: Readonly<Record<string, RegExp>> = {
  lang: /^en$/,
  charset: /^utf-8$/,
  "http-equiv": /^Content-Security-Policy$/,
  content:
    /^(?:default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; script-src 'sha256-[A-Za-z0-9+/]{43}='; img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types page|width=device-width, initial-scale=1|light dark|no-referrer)$/,
  name: /^(?:viewport|color-scheme|referrer)$/,
  ...{ id: NAME, "data-at": NAME, "data-by": NAME, "data-leaf": NAME },
  ...{ title: TEXT, "aria-label": TEXT },
  ...{ x: NUMBER, y: NUMBER, width: NUMBER, height: NUMBER },
  href: SAFE_LINK,
  rel: /^noopener noreferrer nofollow$/,
  class: /^[A-Za-z0-9_ -]+$/,
  // Data, which no browser runs; of the one script, the policy has the hash.
  type: /^application\/(?:json|gzip)$/,
  hidden: /^$/,
  "data-about": /^\{"name":"pi-session-[^"<>]*","whole":\d+,"packed":\d+\}$/,
  datetime: /^\d{4}-\d\d-\d\dT[^<>]*$/,
  alt: /^Picture, [a-z]+, [0-9. kMB]+$/,
  src: /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$/,
  loading: /^lazy$/,
  decoding: /^async$/,
  start: /^\d+$/,
  dir: /^auto$/,
  role: /^(?:group|region)$/,
  tabindex: /^(?:0|-1)$/,
  viewBox: /^[\d. ]+$/,
  preserveAspectRatio: /^none$/,
  points: /^[\d., -]+$/,
  "aria-hidden": /^true$/,
  "aria-labelledby": /^[a-z.]+$/,
};

interface SeenPage {
  readonly elements: string[];
  readonly ids: string[];
  /** Targets of links within the page. */
  readonly links: string[];
  /** Addresses elsewhere. */
  readonly addresses: string[];
  text: string;
  /** Scripts that a browser runs. */
  scripts: number;
}

type Element = {
  readonly tagName: string;
  readonly attrs: readonly { readonly name: string; readonly value: string }[];
};

/** Builds a page as a browser does, and returns its elements and its text; fails for wrong markup, and for what acts. */
export function builtPage(html: string, scriptingEnabled = true): { elements: Element[]; text: string } {
  expect(CONTROLS.exec(html)).toBe(null);
  const elements: Element[] = [];
  let text = "";
  const errors: string[] = [];
  const waiting: Json[] = [parse(html, { scriptingEnabled, onParseError: ({ code }) => errors.push(code) })];
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    if (defaultTreeAdapter.isTextNode(node)) text += node.value;
    if (defaultTreeAdapter.isCommentNode(node)) throw new Error(`The page has a comment: ${JSON.stringify(node.data)}`);
    if (defaultTreeAdapter.isElementNode(node)) elements.push(node);
    if ("childNodes" in node) waiting.push(...[...node.childNodes].reverse());
  }
  expect(errors).toEqual([]);
  return { elements, text };
}

/** Walks an exported page, and returns its parts. */
export function lookAt(html: string): SeenPage {
  const { elements, text } = builtPage(html, false);
  const names = elements.map(({ tagName }) => tagName);
  const seen: SeenPage = { elements: names, ids: [], links: [], addresses: [], text, scripts: 0 };
  for (const element of elements) lookAtElement(element, seen);
  expect(seen.scripts).toBe(1);
  expect(new Set(seen.ids).size).toBe(seen.ids.length);
  const known = new Set(seen.ids);
  expect(seen.links.filter((link) => !known.has(link))).toEqual([]);
  return seen;
}

function lookAtElement({ tagName, attrs }: Element, seen: SeenPage): void {
  if (tagName === "script" && !attrs.some(({ name }) => name === "type")) seen.scripts++;
  if (!ELEMENTS.includes(tagName)) throw new Error(`The page has an element ${tagName}`);
  for (const { name, value } of attrs) {
    if (!ATTRIBUTES[name]?.test(value)) throw new Error(`${tagName} has ${name}=${JSON.stringify(value)}`);
    if (name === "id") seen.ids.push(value);
    if (name === "href" && value.startsWith("#")) seen.links.push(value.slice(1));
    else if (name === "href") {
      seen.addresses.push(value);
      expect(attrs.find((one) => one.name === "rel")?.value).toContain("noopener");
    }
  }
}
