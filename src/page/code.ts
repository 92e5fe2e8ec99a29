/** Code with its syntax coloured. */

import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { escapeHtml, toReadable } from "./escape.ts";

const LANGUAGES = {
  bash,
  c,
  css,
  diff,
  go,
  ini,
  java,
  javascript,
  json,
  markdown,
  python,
  ruby,
  rust,
  sql,
  typescript,
  xml,
  yaml,
};
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** Endings of file names that are no names of languages. */
const ENDINGS: Readonly<Record<string, string>> = {
  cts: "typescript",
  mts: "typescript",
  h: "c",
  cc: "c",
  cpp: "c",
  hpp: "c",
  "c++": "c",
  kt: "java",
  scss: "css",
  conf: "ini",
  env: "ini",
  svelte: "xml",
  vue: "xml",
  jsonl: "json",
  patch: "diff",
  console: "bash",
  shell: "bash",
};

/** Most characters of one block that are coloured: the languages' rules take long on text that is no code of theirs. */
const MOST = 40_000;

/** The longest line that is coloured: no person writes longer ones. */
const LONGEST_LINE = 2000;

/** Returns a language of ours by a name, or the ending of a file; none if it is not known. */
export function findLanguage(name: string): string {
  const ending = name.toLowerCase().split(".").at(-1) as string;
  if (!/^[a-z0-9+#-]{1,20}$/.test(ending)) return "";
  const known = Object.hasOwn(ENDINGS, ending) ? ENDINGS[ending] : ending;
  return hljs.getLanguage(known) ? known : "";
}

/** The classes of the page by the highlighter's scopes: few and short, because a long session has a million of them. */
const SCOPES: Readonly<Record<string, string>> = {
  keyword: "k",
  "selector-tag": "k",
  doctag: "k",
  section: "k",
  name: "k",
  "template-tag": "k",
  string: "s",
  regexp: "s",
  addition: "s",
  char: "s",
  number: "n",
  literal: "n",
  symbol: "n",
  bullet: "n",
  variable: "n",
  "template-variable": "n",
  link: "n",
  comment: "c",
  quote: "c",
  type: "t",
  built_in: "t",
  attr: "t",
  attribute: "t",
  meta: "t",
  "selector-class": "t",
  "selector-id": "t",
  title: "f",
  deletion: "d",
  emphasis: "e",
  strong: "g",
};

/** Returns what the highlighter drew with classes of the page; a scope that has none leaves no element. */
function thinned(html: string): string {
  const open: string[] = [];
  return html.replace(/<span class="hljs-([a-z_-]+)[^>]*>|<\/span>/g, (_, scope?: string) => {
    if (scope === undefined) return open.pop() as string;
    const style = Object.hasOwn(SCOPES, scope) ? SCOPES[scope] : "";
    open.push(style === "" ? "" : "</i>");
    return style === "" ? "" : `<i class="${style}">`;
  });
}

/** Returns code as HTML, coloured where its language is known. */
export function renderCode(code: string, language: string): string {
  if (language === "" || code.length > MOST || hasLongLine(code)) return escapeHtml(code);
  return thinned(hljs.highlight(toReadable(code), { language, ignoreIllegals: true }).value);
}

function hasLongLine(code: string): boolean {
  for (let from = 0; from < code.length; ) {
    const end = code.indexOf("\n", from);
    if ((end < 0 ? code.length : end) - from > LONGEST_LINE) return true;
    if (end < 0) return false;
    from = end + 1;
  }
  return false;
}
