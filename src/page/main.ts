/**
 * A session as one page that needs nothing else: no network, no script. Nothing that a session says can run in it, load
 * or lead elsewhere unasked: text is escaped, and the policy allows the page's own style and pictures within it.
 */

import { createHash } from "node:crypto";
import type { ExportPage, PageBranch } from "../core/export/page.ts";
import { branchHtml } from "./entries.ts";
import { counted, escapeHtml } from "./escape.ts";
import { STYLE } from "./style.ts";
import { topHtml } from "./top.ts";

const STYLE_HASH = createHash("sha256").update(STYLE).digest("base64");
const POLICY = `default-src 'none'; style-src 'sha256-${STYLE_HASH}'; img-src data:; base-uri 'none'; form-action 'none'`;

/** Yields the page in pieces, so that a long session need not be in memory twice. */
export function* htmlPieces(page: ExportPage): Generator<string> {
  const head = page.head();
  // A session without a name is known by its first question.
  const title = escapeHtml((!page.isNamed && head.turns[0]?.preview) || page.title);
  yield `<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n`;
  yield `<meta http-equiv="Content-Security-Policy" content="${POLICY}">\n`;
  yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n';
  yield '<meta name="referrer" content="no-referrer">\n';
  yield `<title>${title}</title>\n<style>${STYLE}</style>\n</head>\n<body>\n`;
  yield '<a class="skip" href="#conversation.path">To the conversation</a>\n<div class="page">\n';
  yield* topHtml(page, head, title);
  const [path, ...others] = page.branches;
  yield '<main>\n<section id="conversation.path" aria-labelledby="conversation.title"><h2 id="conversation.title" class="vh">Conversation</h2>\n';
  yield* branchHtml(page, path);
  yield "</section>\n";
  if (others.length > 0) yield* othersHtml(page, others);
  if (page.apart.length > 0) yield* apartHtml(page);
  yield "</main>\n</div>\n</body>\n</html>\n";
}

function* othersHtml(page: ExportPage, others: readonly PageBranch[]): Generator<string> {
  yield '<section class="others" aria-labelledby="others.title"><h2 id="others.title">Other branches</h2>\n';
  for (const branch of others) {
    const { number, preview, length, from } = branch;
    const said = escapeHtml(preview === "" ? `Branch ${number}` : preview);
    yield `<details class="branch" id="branch.${number}"><summary><b>${said}</b> <span class="dim">${counted(length, "entry", "entries")}</span></summary>\n`;
    if (from !== undefined) yield `<p class="from">It leaves <a href="#${page.anchorOf(from)}">this entry</a>.</p>\n`;
    yield* branchHtml(page, branch);
    yield "</details>\n";
  }
  yield "</section>\n";
}

function* apartHtml(page: ExportPage): Generator<string> {
  const { length, entries } = page.apart;
  const what = counted(length, "entry", "entries");
  yield `<section class="others" aria-label="Entries of no branch"><details class="branch"><summary>${what} of no branch</summary>\n`;
  yield* branchHtml(page, { entries, folds: () => [] });
  yield "</details></section>\n";
}
