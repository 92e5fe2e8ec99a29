import * as z from "zod";
import { Failure } from "../core/failure.ts";
import { getContentText } from "../core/format/message.ts";
import { isAsWritten, MessagePlaces, PLACE } from "../core/format/message-places.ts";
import { replaceHalvesInBytes } from "../core/json/halves.ts";
import { parse, toBytes } from "../core/json/json.ts";
import { Raw } from "../core/json/raw.ts";
import { TextBlock } from "../core/json/text-block.ts";
import type { Session } from "../core/session/session.ts";
import { defineCommand } from "./shared/command.ts";
import { writeId } from "./shared/id-text.ts";
import { findPage, findPageEnd, parseIndex, takePositions } from "./shared/page.ts";
import { cursor, limit, nextCursor, typeStored } from "./shared/shapes.ts";

export default defineCommand({
  name: "get_fork_messages",
  summary: "The user messages that a fork can begin before, in file order.",
  effect: "read",
  params: {
    scope: z.enum(["all", "path"]).optional().describe("of all branches (default, as Pi), or of the current path"),
    cursor,
    limit: limit.describe("at most this many; all by default. Messages without text are left out, but counted"),
  },
  result: () =>
    z.object({
      messages: typeStored(z.array(z.object({ entryId: z.string(), text: z.string() }))),
      nextCursor,
    }),
  failures: ["cursor_expired"],
  example: { params: {}, result: { messages: [{ entryId: "a1b2c3d4", text: "Hello" }] } },
  run(context, params) {
    const { session } = context;
    const { nodes } = session.log;
    const page = params.scope === "path" ? findPage(session, params.cursor) : undefined;
    const path = page && session.tree.path(page.leaf);
    if (page && path && page.index > 0 && page.index >= path.length) throw new Failure("cursor_expired");
    const among = page && path ? path.subarray(page.index) : session.visible(parseIndex(params.cursor, nodes.count));
    const found = takePositions(context, params.limit, among, (position) => nodes.role(position) === "user");
    const sized = messageTexts(session, found);
    const past = findPageEnd(context, params.limit, found.length, 0, () => sized.next().value ?? NOTHING);
    const shown = found.slice(0, past);
    const next = found[past];
    return {
      messages: Raw.array(() => there(messageTexts(session, shown))),
      nextCursor: next === undefined ? undefined : page ? page.next(session.tree.depth(next)) : String(next),
    };
  },
});

const NOTHING = new Uint8Array(0);
const ENTRY_ID = toBytes('{"entryId":');
const TEXT = toBytes(',"text":');

function* there(texts: Iterable<Uint8Array | undefined>): Generator<Uint8Array> {
  for (const text of texts) if (text) yield text;
}

/** Yields each message as JSON text, valid until the next is requested; undefined for those without text. */
function* messageTexts(session: Session, positions: readonly number[]): Generator<Uint8Array | undefined> {
  const { log } = session;
  const places = new MessagePlaces();
  const out = new TextBlock();
  let index = 0;
  for (const line of log.readMany(positions, true)) {
    out.length = 0;
    out.all(ENTRY_ID);
    const position = positions[index++];
    writeId(out, log.nodes, position);
    out.all(TEXT);
    const isThere = places.read(line) ? writeFound(out, line, places) : writeParsed(out, line);
    out.byte(0x7d);
    const text = isThere ? out.bytes.subarray(0, out.length) : undefined;
    yield text && log.nodes.messageStart(position) === 0 ? replaceHalvesInBytes(text) : text;
  }
}

/** Writes the text of a message; returns false where it has none. */
function writeFound(out: TextBlock, line: Uint8Array, places: MessagePlaces): boolean {
  if (places.texts === 0) return false;
  const start = places.start(PLACE.text);
  const end = places.end(PLACE.text);
  if (places.texts > 1 || !isAsWritten(line, start, end)) return writeParsed(out, line);
  out.copy(line, start, end);
  return end - start > 2;
}

/** Writes the text of a message from its parsed line. */
function writeParsed(out: TextBlock, line: Uint8Array): boolean {
  const { message } = parse(line) as { message?: { content?: unknown } };
  const text = getContentText(message?.content);
  out.json(text);
  return text !== "";
}
