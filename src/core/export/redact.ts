/** Takes secrets out of exported text by their shapes. What has no known shape stays, so a person still looks at it. */

import { bytesOf, jsonText, parse } from "../json/json.ts";
import type { ExportPage, PageEntry } from "./page.ts";

/** The text that stands for a secret; it has no character that means something in JSON, HTML or Markdown. */
export const REDACTED = "REDACTED";

/*
 * Each begins where a run of its characters begins and has bounded repetitions, so that hostile text costs linear time.
 * None matches a quote, a bracket or the backslash before one: JSON, HTML and Markdown stay what they are. A group named
 * `keep` stays.
 */
const WHOLE =
  /-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:(?:\\[nr]|[\w+/=\s:,.-]){0,8000}?-----END [A-Z ]{0,30}PRIVATE KEY-----|(?:\\[nr]|[\w+/=\s])*)/g;
const TOKENS = new RegExp(
  `(?<![\\w-]|\\\\)(?:${[
    "(?:AKIA|ASIA)[0-9A-Z]{16}(?!\\w)",
    "gh[pousr]_\\w{20,}",
    "github_pat_\\w{20,}",
    "glpat-[\\w-]{16,}",
    "[sr]k_(?:live|test)_\\w{10,}",
    "sk-[\\w-]{16,}",
    "xox[a-z]-[\\w-]{10,}",
    "AIza[\\w-]{30,}",
    "npm_\\w{30,}",
    "hf_\\w{30,}",
    "eyJ[\\w-]{8,}\\.[\\w-]{8,}\\.[\\w-]*",
  ].join("|")})`,
  "g",
);
/** The password of an address, what an Authorization header has, and what is given to a name that says it is secret. */
const BEHIND = [
  /(?<keep>:\/\/[^\s/:@"'<>\\&]{0,100}:)[^\s/:@"'<>\\&]{1,200}(?=@)/g,
  /(?<keep>\b(?:Bearer|Basic)\s{1,3})(?=[A-Za-z-]{0,200}[\d+/=_.])[\w+/=.~-]{12,}/gi,
  /(?<keep>(?:passwords?|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key)(?:\\{0,3}["']|&quot;|&#39;){0,2}\s{0,3}[:=]\s{0,3}(?:\\{0,3}["']|&quot;|&#39;))[^\s"'<>\\&]{4,}/gi,
  /(?<keep>(?:passwords?|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key)\s{0,3}[:=]\s{0,3})(?=[^\s\d"'<>\\&,;(){}]{0,200}\d)[^\s"'<>\\&,;(){}]{6,}/gi,
  /(?<keep>\/(?:home|Users)\/)(?!REDACTED)[^\s/"'<>\\&:,;()]{1,64}/g,
];

/** A redaction, with how much it took out. */
export class Redaction {
  count = 0;

  readonly text = (text: string): string => {
    const taken = (): string => {
      this.count++;
      return REDACTED;
    };
    let left = text.replace(WHOLE, taken).replace(TOKENS, taken);
    for (const shape of BEHIND)
      left = left.replace(shape, (found, keep: string) => (found.endsWith(REDACTED) ? found : keep + taken()));
    return left;
  };

  *pieces(pieces: Iterable<string>): Generator<string> {
    for (const piece of pieces) yield this.text(piece);
  }

  /** Returns a page whose headings are redacted: Markdown writes them with marks that would hide the shapes. */
  page(page: ExportPage): ExportPage {
    return {
      ...page,
      title: this.text(page.title),
      facts: page.facts.map(([name, value]) => [name, this.text(value)] as const),
      branches: page.branches.map((branch) => ({ ...branch, preview: this.text(branch.preview) })),
    };
  }
  /** Returns a page of which everything that it says is redacted before it is drawn. */
  drawnPage(page: ExportPage): ExportPage {
    const drawn = (entries: () => Iterable<PageEntry>) => () => this.entries(entries());
    const redacted = this.page(page);
    const { apart, branches } = redacted;
    return {
      ...redacted,
      branches: branches.map((branch) => ({ ...branch, entries: drawn(branch.entries) })),
      apart: { ...apart, entries: drawn(apart.entries) },
      head: () => {
        const head = page.head();
        return {
          ...head,
          cwd: this.text(head.cwd),
          parent: head.parent === null ? null : this.text(head.parent),
          models: head.models.map(this.text),
          turns: head.turns.map((turn) => ({ ...turn, preview: this.text(turn.preview) })),
        };
      },
    };
  }

  private *entries(entries: Iterable<PageEntry>): Generator<PageEntry> {
    for (const entry of entries) {
      const label = entry.label === undefined ? undefined : this.text(entry.label);
      // Each text as it is, for line ends hide what begins a line; then the whole, for the names that values are given to.
      const texts = withTexts(jsonText(entry.body), this.text);
      yield { ...entry, label, body: parse(bytesOf(this.text(texts))) as PageEntry["body"] };
    }
  }
}

/** Returns JSON text in which each string is what `change` makes of it. */
function withTexts(json: string, change: (text: string) => string): string {
  let changed = "";
  let from = 0;
  for (let start = json.indexOf('"'); start >= 0; start = json.indexOf('"', from)) {
    let end = start + 1;
    while (json[end] !== '"') end += json[end] === "\\" ? 2 : 1;
    const literal = json.slice(start, end + 1);
    changed += json.slice(from, start) + JSON.stringify(change(JSON.parse(literal)));
    from = end + 1;
  }
  return changed + json.slice(from);
}
