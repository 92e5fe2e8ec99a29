/** The lines of the preview: facts of a session, and the conversation around a place, with the hit in view. */

import { NOTHING_SAID } from "../../core/search/listing.ts";
import { BEFORE_ALL } from "../conversation.ts";
import { formatLockOwner } from "../lock-owner.ts";
import type { OutputStyle } from "../terminal/page.ts";
import {
  count,
  cutTo,
  escapeLine,
  escapeLines,
  formatMoney,
  formatSize,
  group,
  highlightWords,
  parseSearchWords,
  shortenId,
  shortenPath,
  wrap,
} from "../terminal/text.ts";
import type { ResultOf } from "../verb.ts";
import { isSetting } from "./branches.ts";
import type { BrowsedSession, PreviewState } from "./state.ts";
import { formatTreeCalls, getEntryColour, getEntryHead } from "./tree-rows.ts";

/** Lines of an entry that are shown: of one that was looked for, of what people and the model say, of anything else. */
const NAMED_LINES = 60;
const TALK_LINES = 24;
const OTHER_LINES = 6;

type PreviewedSession = ResultOf<"preview_session">;

/** Lines of a preview, and the one to have in view. */
interface PreviewText {
  readonly lines: readonly string[];
  readonly focus: number;
}

/** Texts of previews, so that a key that only scrolls wraps nothing. */
const written = new WeakMap<PreviewedSession, { key: string; text: PreviewText }>();

/** Returns the lines of the pane, `height` of them at most. */
export function formatPreview(
  { shown, failed, place, scroll }: PreviewState,
  session: BrowsedSession | undefined,
  words: string,
  page: OutputStyle,
  height: number,
): string[] {
  if (!session || !place) return [];
  const head = factLines(session, shown, page);
  const available = Math.max(0, height - head.length);
  if (failed !== undefined)
    return [...head, ...wrap(escapeLine(failed), page.width).map((line) => page.paint("yellow", line))].slice(
      0,
      height,
    );
  if (!shown) return head.slice(0, height);
  const { lines, focus } = textOf(shown, place.entryId, words, page);
  const begin = place.entryId === undefined ? lines.length - available : focus - Math.floor(available / 3);
  const last = Math.max(0, lines.length - available);
  const from = Math.max(0, Math.min(last, Math.max(0, Math.min(last, begin)) + scroll));
  return [...head, ...lines.slice(from, from + available)].slice(0, height);
}

function textOf(shown: PreviewedSession, entryId: string | undefined, words: string, page: OutputStyle): PreviewText {
  const key = JSON.stringify([entryId, words, page.width]);
  const known = written.get(shown);
  if (known?.key === key) return known.text;
  const text = conversation(shown, entryId, words, page);
  written.set(shown, { key, text });
  return text;
}

/** Returns the lines above the conversation: the name, and the facts worth knowing before it is opened. */
function factLines(session: BrowsedSession, shown: PreviewedSession | undefined, page: OutputStyle): string[] {
  const { paint, width } = page;
  const { name, firstMessage, sessionId, cwd, messageCount, sizeBytes, cost, forkedFrom } = session;
  const facts = [shortenId(String(sessionId))];
  if (cwd) facts.push(shortenPath(cwd, page.home));
  if (messageCount !== undefined) facts.push(count(messageCount, "message", "messages"));
  if (shown && shown.branchCount > 0) facts.push(count(shown.branchCount, "branch point", "branch points"));
  if (typeof sizeBytes === "number") facts.push(formatSize(sizeBytes));
  if (typeof cost === "number" && cost > 0) facts.push(formatMoney(cost, 2));
  const lines = [
    paint("bold", cutTo(escapeLine(name ?? firstMessage ?? NOTHING_SAID), width)),
    paint("dim", cutTo(facts.join("  "), width)),
  ];
  if (forkedFrom)
    lines.push(paint("dim", cutTo(`fork of ${escapeLine(forkedFrom.name ?? forkedFrom.sessionId)}`, width)));
  for (const warning of warnings(shown)) lines.push(paint("yellow", cutTo(warning, width)));
  return lines;
}

function warnings(shown: PreviewedSession | undefined): string[] {
  const { lockedBy, readOnly, damageCount = 0 } = shown ?? {};
  const found: string[] = [];
  if (lockedBy) found.push(`Open in ${formatLockOwner(lockedBy)}.`);
  if (readOnly !== undefined) found.push("Read only: this session takes no writes.");
  if (damageCount > 0) found.push(`${count(damageCount, "place is", "places are")} damaged: verify says more.`);
  return found;
}

function conversation(
  shown: PreviewedSession,
  entryId: string | undefined,
  words: string,
  page: OutputStyle,
): PreviewText {
  const lines: string[] = [];
  let focus = 0;
  const { entriesBefore } = shown;
  if (entriesBefore > 0)
    lines.push(page.paint("dim", cutTo(`(${count(entriesBefore, "entry", "entries")} before)`, page.width)));
  for (const entry of shown.entries) {
    const isNamed = entry.id === entryId;
    const own = [...entryLines(entry, isNamed, words, page)];
    if (own.length === 0) continue;
    if (lines.length > 0) lines.push("");
    if (isNamed) focus = lines.length + hitLine(own, words);
    lines.push(...own);
  }
  const none = shown.leafId === null && shown.entryCount > 0 ? BEFORE_ALL : "Nothing was said yet.";
  if (shown.entries.length === 0) lines.push(page.paint("dim", cutTo(none, page.width)));
  return { lines, focus };
}

/** Returns the first line that has one of the words; the first of all when none has. */
function hitLine(lines: readonly string[], words: string): number {
  const sought = parseSearchWords(words.toLowerCase());
  // The head has the role, which may be one of the words.
  const found = lines.findIndex((line, i) => i > 0 && sought.some((word) => line.toLowerCase().includes(word)));
  return Math.max(0, found);
}

function* entryLines(
  entry: PreviewedSession["entries"][number],
  isNamed: boolean,
  words: string,
  page: OutputStyle,
): Generator<string> {
  const { paint, width } = page;
  const [kind, detail] = getEntryHead(entry);
  const calls = formatTreeCalls(entry.calls);
  const label = entry.label === undefined ? "" : ` [${escapeLine(entry.label)}]`;
  const isTalk = kind === "user" || kind === "assistant";
  const said = String(entry.text ?? "").trimEnd();
  if (!isNamed && (isSetting(entry) || (said === "" && calls === "" && label === ""))) return;
  const head = cutTo(`${isNamed ? "> " : ""}${[kind, detail].filter(Boolean).join(" ")}${label}`, width);
  yield paint(getEntryColour(entry), head);
  const most = isNamed ? NAMED_LINES : isTalk ? TALK_LINES : OTHER_LINES;
  const text = said === "" ? [] : escapeLines(said).flatMap((line) => wrap(line, width));
  const from = isNamed ? Math.max(0, hitLine(["", ...text], words) - 1 - Math.floor(most / 2)) : 0;
  if (from > 0) yield paint("dim", cutTo(`(${group(from)} lines above)`, width));
  for (const line of text.slice(from, from + most)) yield highlightWords(cutTo(line, width), words, page);
  const left = text.length - from - most;
  if (left > 0 || entry.isCut) yield paint("dim", cutTo(left > 0 ? `(${group(left)} more lines)` : "(more)", width));
  for (const call of entry.calls ?? []) yield paint("yellow", cutTo(formatTreeCalls([call]), width));
}
