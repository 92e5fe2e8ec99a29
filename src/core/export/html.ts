/** A session as one plain page. Nothing in it can run or reach out: text is escaped, and there is no script. */

import { type ContentPart, contentOf, visibleText } from "./content.ts";
import type { ExportPage, PageBranch, PageEntry } from "./page.ts";

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
nav ol { padding-left: 1.5rem; }
nav li { overflow-wrap: anywhere; unicode-bidi: isolate; }
h2 { font-size: 1.1rem; border-top: 1px solid #8888; padding-top: 1rem; }
h2 small { font-weight: normal; opacity: .7; }
mark { unicode-bidi: isolate; padding: 0 .3rem; }
p.off { font-size: .85rem; }
`;

/** Yields the page in pieces, so that a long session need not be in memory twice. */
export function* htmlPieces(page: ExportPage): Generator<string> {
  yield `<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n`;
  yield `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">\n`;
  yield `<meta name="viewport" content="width=device-width">\n`;
  yield `<title>${escapeHtml(page.title)}</title>\n<style>${STYLE}</style>\n</head>\n<body>\n`;
  yield `<h1>${escapeHtml(page.title)}</h1>\n<dl>\n`;
  for (const [name, value] of page.facts) yield `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd>\n`;
  yield "</dl>\n";
  const { branches } = page;
  if (branches.length > 1) yield contentsOf(branches);
  for (const branch of branches) {
    yield `<section id="b${branch.number}">\n`;
    if (branches.length > 1) yield headingOf(branch);
    for (const entry of branch.entries()) yield articleOf(entry);
    yield "</section>\n";
  }
  yield "</body>\n</html>\n";
}

function contentsOf(branches: readonly PageBranch[]): string {
  const items = branches.map(
    ({ number, facts, preview }) =>
      `<li><a href="#b${number}">${escapeHtml(preview === "" ? `Branch ${number}` : preview)}</a> (${facts})</li>\n`,
  );
  return `<nav><h2>Branches</h2><ol>\n${items.join("")}</ol></nav>\n`;
}

function headingOf({ number, active, from }: PageBranch): string {
  const place = from === undefined ? "" : ` <small>branches from <a href="#e${from}">this entry</a></small>`;
  return `<h2>Branch ${number}${active ? " (current)" : ""}${place}</h2>\n`;
}

/** Returns text that a browser shows as it is. */
function escapeHtml(text: string): string {
  return visibleText(text)
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;")
    .replace(/'/g, "&#39;");
}

function articleOf(entry: PageEntry): string {
  const { kind, title, parts } = contentOf(entry.body);
  const isCommand = kind === "bashExecution";
  const heading = isCommand ? `$ ${parts[0].text}` : title;
  const shown = isCommand ? parts.slice(1) : parts;
  const body = shown.map(partHtml).join("");
  const { timestamp } = entry.body;
  const time = typeof timestamp === "string" ? ` · ${escapeHtml(timestamp)}` : "";
  const label = entry.label === undefined ? "" : ` <mark>${escapeHtml(entry.label)}</mark>`;
  const off = entry.branchesHere.map((number) => `<a href="#b${number}">branch ${number}</a>`).join(", ");
  // An entry without content is still shown where branches start or a label is set.
  if (body === "" && kind === "note" && off === "" && label === "") return "";
  return (
    `<article id="e${entry.number}" class="${/^[A-Za-z]+$/.test(kind) ? kind : "message"}"><header>${escapeHtml(heading)}${time}${label}</header>${body}</article>\n` +
    (off === "" ? "" : `<p class="off">Branches here: ${off}.</p>\n`)
  );
}

function partHtml({ kind, text, data }: ContentPart): string {
  if (kind === "thinking") return `<details><summary>thinking</summary>${pre(text)}</details>`;
  if (kind !== "image") return pre(text);
  const isImage = /^image\/[a-z0-9.+-]+$/i.test(text) && typeof data === "string" && /^[A-Za-z0-9+/=\s]*$/.test(data);
  return isImage ? `<img alt="image" src="data:${text};base64,${data}">` : "";
}

function pre(text: string): string {
  return text === "" ? "" : `<pre>${escapeHtml(text)}</pre>`;
}
