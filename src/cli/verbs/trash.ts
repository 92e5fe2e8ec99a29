import type { OutputStyle } from "../terminal/page.ts";
import { count, cutTo, escapeLine, formatAge, formatSize, group, pad, shortenPath, show } from "../terminal/text.ts";
import { defineVerb, type ResultOf } from "../verb.ts";
import { emptyingTrash } from "./prune.ts";

type ListedTrash = ResultOf<"list_trash">["items"][number];

const AGE = 4;
const COUNT = 6;
const SIZE = 8;
/** Characters of an id that are shown at least. */
const ID = 8;
const GAP = "  ";
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
  const removed = items.some(({ itemPath }) => itemPath === null) ? "those of this machine" : "all";
  const sum = `${count(total, "item", "items")}, ${formatSize(totalBytes)}. restore <id> brings a session back, trash empty removes ${removed}.`;
  yield page.paint("dim", cutTo(sum, page.width));
}

function row(
  { deletedAt, messageCount, sizeBytes, sessionId, name, firstMessage, sessionPath, fileCount }: ListedTrash,
  id: number,
  page: OutputStyle,
) {
  const title =
    fileCount === undefined
      ? (name ?? firstMessage)
      : `${count(fileCount, "leftover", "leftovers")}, which undo brings back`;
  return cutTo(
    cells(page, [
      formatAge(page.now - Date.parse(deletedAt)),
      messageCount === null ? "" : group(messageCount),
      formatSize(sizeBytes),
      show`${(sessionId ?? "").slice(0, id)}`.padEnd(id),
      title === null ? shortenPath(sessionPath, page.home) : escapeLine(title),
    ]),
    page.width,
  );
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
