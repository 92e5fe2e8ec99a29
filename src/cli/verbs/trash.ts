import { dirname } from "node:path";
import { NOTHING_SAID } from "../../core/search/listing.ts";
import type { OutputStyle } from "../terminal/page.ts";
import {
  count,
  cutFront,
  cutTo,
  escapeLine,
  formatAge,
  formatSize,
  getWidth,
  group,
  pad,
  shortenPath,
  show,
  wrapOn,
} from "../terminal/text.ts";
import { defineVerb, type ResultOf } from "../verb.ts";
import { emptyingTrash } from "./prune.ts";

type ListedTrash = ResultOf<"list_trash">["items"][number];

const AGE = 4;
const COUNT = 6;
const SIZE = 8;
/** Characters of an id that are shown at least. */
const ID = 8;
const GAP = "  ";
const UNNAMED = `${NOTHING_SAID}  `;
/** Least columns of a page with columns for messages and sizes. */
const WIDE = 60;

export default defineVerb({
  name: "trash",
  meaning: "list deleted sessions that can be restored, with sizes and ages",
  operands: ["[id]"],
  subverbs: [emptyingTrash],
  more: "It lists the server's own trash, and with a fleet what any machine deleted; your desktop restores what its trash command took. Nothing leaves the trash by itself; trash empty removes it for good.",
  run: ({ ask }, { operands: [sessionId] }) => ask("list_trash", { sessionId }),
  print: (result, { operands: [sessionId] }, page) =>
    sessionId !== undefined && result.items.length === 0
      ? [show`Nothing in the trash has the id ${sessionId}. trash lists all of it.`]
      : formatTrash(result, page),
});

export function* formatTrash(
  { items, total, totalBytes, limited }: ResultOf<"list_trash">,
  page: OutputStyle,
): Generator<string> {
  if (limited !== undefined) yield show`Sessions that other machines deleted are missing: ${limited}`;
  if (items.length === 0) {
    yield "There is nothing in the trash.";
    return;
  }
  const id = idWidth(items);
  yield page.paint(
    "dim",
    cutTo(cells(page, ["AGE", "MSGS", "SIZE", "ID".padEnd(id), "NAME OR FIRST MESSAGE"]), page.width),
  );
  for (const item of items) yield row(item, id, page);
  const bytes = items.reduce((sum, { itemPath, sizeBytes }) => sum + (itemPath === null ? sizeBytes : 0), totalBytes);
  const sum = `${count(total, "item", "items")}, ${formatSize(bytes)}. restore <id> brings a session back, ${describeEmptying(items, totalBytes)}.`;
  for (const line of wrapOn(page, sum)) yield page.paint("dim", line);
}

/** Returns what emptying the trash removes. The fleet's rows of deleted sessions are not in it. */
function describeEmptying(items: readonly ListedTrash[], ownBytes: number): string {
  if (items.every(({ itemPath }) => itemPath !== null)) return "trash empty removes all";
  if (items.every(({ itemPath }) => itemPath === null)) return "fleet prune removes those of the fleet's database";
  return `trash empty removes the ${formatSize(ownBytes)} of this machine`;
}

function row(
  { deletedAt, messageCount, sizeBytes, sessionId, name, firstMessage, sessionPath, fileCount, restored }: ListedTrash,
  id: number,
  page: OutputStyle,
) {
  const title =
    fileCount === undefined
      ? (name ?? firstMessage)
      : `${count(fileCount, "leftover", "leftovers")}, which undo brings back`;
  const columns = (said: string): string =>
    cells(page, [
      formatAge(page.now - Date.parse(deletedAt)),
      messageCount === null ? "" : group(messageCount),
      formatSize(sizeBytes),
      show`${(sessionId ?? "").slice(0, id)}`.padEnd(id),
      said,
    ]);
  const said =
    title === null
      ? describeUnnamed(sessionPath, messageCount, page.width - getWidth(columns("")), page)
      : escapeLine(title);
  return cutTo(columns(`${restored ? "restored since: " : ""}${said}`), page.width);
}

/** Returns the words of a list for a session without a name and a message, and the end of its folder's name. */
function describeUnnamed(path: string, messageCount: number | null, columns: number, { home }: OutputStyle): string {
  if (messageCount === null) return shortenPath(path, home);
  return `${UNNAMED}${cutFront(shortenPath(dirname(path), home), columns - UNNAMED.length)}`;
}

function cells({ width }: OutputStyle, [age, messages, size, id, title]: readonly string[]): string {
  const numbers = width < WIDE ? [] : [pad(messages, COUNT, "right"), pad(size, SIZE, "right")];
  return [pad(age, AGE, "right"), ...numbers, id, title].join(GAP);
}

/** Returns how many characters distinguish the ids, so that restore accepts the shown ids. */
function idWidth(items: readonly ListedTrash[]): number {
  const ids = [...new Set(items.map(({ sessionId }) => String(sessionId)))];
  let width = ID;
  while (new Set(ids.map((id) => id.slice(0, width))).size < ids.length) width++;
  return width;
}
