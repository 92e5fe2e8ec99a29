/**
 * A session as a Markdown document for GitHub and Obsidian: its head as a table, the path to the leaf, and folded what
 * compactions replaced and every other branch.
 */

import type { ExportPage, PageBranch } from "../../core/export/page.ts";
import { formatCount } from "../amounts.ts";
import { type FactWriter, writeFacts } from "../head-facts.ts";
import { FOLD_END, writeBranch, writeFoldStart } from "./entries.ts";
import { escapeCell, escapeTextLine, makeAnchor, makeCodeSpan } from "./escape.ts";

const MARKDOWN: FactWriter = {
  text: escapeTextLine,
  code: makeCodeSpan,
  place: makeCodeSpan,
  time: (time) =>
    Number.isNaN(Date.parse(time))
      ? escapeTextLine(time.slice(0, 40))
      : new Date(time).toISOString().slice(0, 16).replace("T", " "),
  cost: (cost) => `\\${cost}`,
  suffix: (words) => ` ${words}`,
  parts: (words) => `: ${words}`,
};

/** Yields the document in pieces, so that a long session need not be in memory twice. */
export function* writeMarkdown(page: ExportPage): Generator<string> {
  const head = yield* page.head();
  // A session without a name is known by its first question.
  yield `# ${escapeTextLine((!page.isNamed && head.turns[0]?.preview) || page.title)}\n\n`;
  yield `| Session | ${escapeCell(makeCodeSpan(head.id))} |\n| --- | --- |\n`;
  for (const [name, value] of writeFacts(head, MARKDOWN))
    if (value !== "") yield `| ${name} | ${escapeCell(value)} |\n`;
  const [path, ...others] = page.branches;
  yield "\n## Conversation\n\n";
  const { before = 0 } = page;
  if (before > 0) yield `${formatCount(before, "entry", "entries")} before these are not in this document.\n\n`;
  yield* writeBranch(page, path);
  if (others.length > 0) yield "## Other branches\n\n";
  for (const branch of others) yield* otherMarkdown(page, branch);
  if (page.apart.length === 0) return;
  yield writeFoldStart(`${formatCount(page.apart.length, "entry", "entries")} of no branch`);
  yield* writeBranch(page, { entries: page.apart.entries, folds: () => [] });
  yield FOLD_END;
}

function* otherMarkdown(page: ExportPage, branch: PageBranch): Generator<string> {
  const { number, preview, length, from } = branch;
  // A link into a fold does not open it everywhere.
  yield `${makeAnchor(`branch.${number}`)}\n\n`;
  yield writeFoldStart(`${preview() || `Branch ${number}`} (${formatCount(length, "entry", "entries")})`);
  if (from !== undefined) yield `It branches off at [this entry](#${page.anchorOf(from)}).\n\n`;
  yield* writeBranch(page, branch);
  yield FOLD_END;
}
