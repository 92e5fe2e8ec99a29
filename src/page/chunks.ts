/**
 * The entries of a branch in blocks. Those beyond the first ones that a browser draws at once are asleep: without
 * script they are read as any other, with it each is one text, and the script makes its elements on demand.
 */

import type { BranchPart } from "./entries.ts";
import type { RowTuple } from "./row.ts";
import { renderRows } from "./rows.ts";

/** Entries of a block, and characters of its HTML: as much as is drawn in a few milliseconds. */
const MOST_ROWS = 40;
const MOST_HTML = 1 << 16;

/** Characters of HTML that are drawn at once: some 600 entries, 30,000 elements, which take half a second. */
const AWAKE = 2_000_000;

/**
 * A sixth of a block, which it does without while it is asleep: colours of numbers, types and functions (code is
 * readable without them), the links of entries to themselves, and the peeks of folds, which the script makes anew when
 * the block wakes.
 */
const LESSER = /<i class="[nft]">([^<]*)<\/i>|<a class="self"[^>]*>#<\/a>|<span class="peek"[^>]*>[^<]*<\/span>/g;

/** Returns HTML whose texts have quotes as they are; only in attributes, which have no angle brackets, they must not. */
function unquoted(html: string): string {
  return html.replace(/>[^<]*&[^<]*/g, (text) => text.replace(/&(?:quot|#39|#x27|gt);/g, (name) => PLAIN[name]));
}

const PLAIN: Readonly<Record<string, string>> = { "&quot;": '"', "&#39;": "'", "&#x27;": "'", "&gt;": ">" };

/** The blocks of a page, one branch after the other. */
export class Chunks {
  private left = AWAKE;

  *of(parts: Iterable<BranchPart>): Generator<string> {
    let html = "";
    let rows: RowTuple[] = [];
    for (const part of parts) {
      if ("html" in part) {
        html += part.html;
        rows.push(...part.rows);
        if (html.length < MOST_HTML && rows.length < MOST_ROWS) continue;
      }
      if (html !== "") yield this.chunk(html, rows);
      html = "";
      rows = [];
      if ("between" in part) yield part.between;
    }
    if (html !== "") yield this.chunk(html, rows);
  }

  private chunk(html: string, rows: readonly RowTuple[]): string {
    const isFirst = this.left > 0;
    this.left -= html.length;
    if (this.left > 0) return `<div class="chunk">${renderRows(rows)}${unquoted(html)}</div>\n`;
    const light = unquoted(html.replace(LESSER, (_, code = "") => code));
    const hint = isFirst
      ? '<p class="wait">What follows is shown by the page\'s script, which is blocked here.</p>'
      : "";
    return `${hint}<div class="chunk asleep">${renderRows(rows)}<noscript>${light}</noscript></div>\n`;
  }
}
