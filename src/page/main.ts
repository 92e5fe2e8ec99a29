/**
 * A session as one page that needs nothing else: no network, and no script to be read. Nothing that a session says can run
 * in it, load or lead elsewhere unasked: text is escaped, and the policy allows the page's own style and script, by hash,
 * and pictures within it.
 */

import { createHash } from "node:crypto";
import type { PageHead } from "../core/export/head.ts";
import type { ExportPage, PageBranch } from "../core/export/page.ts";
import { formatCount } from "./amounts.ts";
import { Chunks } from "./chunks.ts";
import { renderBranchParts } from "./entries.ts";
import { type Drawn, startDrawing } from "./entry-view.ts";
import { escapeHtml } from "./escape.ts";
import { renderPacked } from "./packed.ts";
import { SCRIPT } from "./script.ts";
import { STYLE } from "./style.ts";
import { renderTop } from "./top.ts";

export { renderBranch } from "./entries.ts";
export type { Drawn } from "./entry-view.ts";

interface PageOptions {
  /** The session's JSONL, which the page holds for download; without it, it has none. */
  readonly jsonl?: () => Iterable<Uint8Array>;
  /** Scripts that the page runs after its own, allowed by hash. */
  readonly scripts?: readonly string[];
}

function hashOf(text: string): string {
  return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
}

const STYLE_HASH = hashOf(STYLE);

/** Returns the page's policy; `others` are scripts in addition to its own. */
function policyOf(others: readonly string[]): string {
  const scripts = [...(SCRIPT === "" ? [] : [SCRIPT]), ...others].map(hashOf);
  // Only our own script is known to make elements by its one policy alone.
  const types = SCRIPT === "" || others.length > 0 ? "" : "; require-trusted-types-for 'script'; trusted-types page";
  const allowed = scripts.length === 0 ? "" : `; script-src ${scripts.join(" ")}`;
  return `default-src 'none'; style-src ${STYLE_HASH}${allowed}; img-src data:; base-uri 'none'; form-action 'none'${types}`;
}

/** Yields the page in pieces, so that a long session need not be in memory twice. */
export function* renderHtml(page: ExportPage, { jsonl, scripts = [] }: PageOptions = {}): Generator<string> {
  const head = yield* page.head();
  // A session without a name is known by its first question.
  const title = escapeHtml((!page.isNamed && head.turns[0]?.preview) || page.title);
  yield `<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n`;
  yield `<meta http-equiv="Content-Security-Policy" content="${policyOf(scripts)}">\n`;
  yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n';
  yield '<meta name="referrer" content="no-referrer">\n';
  yield `<title>${title}</title>\n<style>${STYLE}</style>\n`;
  if (SCRIPT !== "") yield `<script>${SCRIPT}</script>\n`;
  for (const script of scripts) yield `<script>${script}</script>\n`;
  yield "</head>\n<body>\n";
  yield* bodyPieces(page, head, title);
  if (jsonl && SCRIPT !== "") yield* renderPacked(jsonl(), `pi-session-${head.id}.jsonl`);
  yield "</body>\n</html>\n";
}

function* bodyPieces(page: ExportPage, head: PageHead, title: string): Generator<string> {
  yield '<a class="skip" href="#conversation.path">To the conversation</a>\n<div class="page" id="page.main">\n';
  yield* renderTop(page, head, title);
  const [path, ...others] = page.branches;
  const leaf = page.leaf === undefined ? "" : ` data-leaf="${page.anchorOf(page.leaf)}"`;
  const chunks = new Chunks();
  const states = new Map<number, Drawn>();
  yield `<main>\n<section id="conversation.path"${leaf} aria-labelledby="conversation.title"><h2 id="conversation.title" class="vh">Conversation</h2>\n`;
  yield '<div class="segment">\n';
  const { before = 0 } = page;
  if (before > 0)
    yield `<p class="from">${formatCount(before, "entry", "entries")} before these are not on this page.</p>\n`;
  yield* chunks.of(renderBranchParts(page, path, startDrawing(), states));
  yield "</div>\n</section>\n";
  if (others.length > 0) yield* othersHtml(page, others, chunks, states);
  if (page.apart.length > 0) yield* apartHtml(page, chunks);
  yield "</main>\n</div>\n";
}

function* othersHtml(
  page: ExportPage,
  others: readonly PageBranch[],
  chunks: Chunks,
  states: Map<number, Drawn>,
): Generator<string> {
  yield '<section class="others" aria-labelledby="others.title"><h2 id="others.title">Other branches</h2>\n';
  for (const branch of others) {
    const { number, preview, length, from } = branch;
    const said = escapeHtml(preview() || `Branch ${number}`);
    yield `<details class="branch" id="branch.${number}"><summary><b>${said}</b> <span class="dim">${formatCount(length, "entry", "entries")}</span></summary>\n`;
    if (from !== undefined) yield `<p class="from">It leaves <a href="#${page.anchorOf(from)}">this entry</a>.</p>\n`;
    yield '<div class="segment">\n';
    yield* chunks.of(renderBranchParts(page, branch, states.get(number), states));
    yield "</div></details>\n";
  }
  yield "</section>\n";
}

function* apartHtml(page: ExportPage, chunks: Chunks): Generator<string> {
  const { length, entries } = page.apart;
  const what = formatCount(length, "entry", "entries");
  yield `<section class="others" aria-label="Entries of no branch"><details class="branch"><summary>${what} of no branch</summary>\n<div class="segment">\n`;
  yield* chunks.of(renderBranchParts(page, { entries, folds: () => [] }));
  yield "</div></details></section>\n";
}

export { writeMarkdown } from "./markdown/document.ts";
