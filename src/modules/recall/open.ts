/** The tool open: the conversation around an entry, a path, one entry, or the context that the model had there. */

import { findMainArgument, getContentText, getToolCalls } from "../../core/format/message.ts";
import { toJsonText } from "../../core/json/json.ts";
import type { CommandResult, RecallSession } from "../../server/recall-module.ts";
import { makeCursor, readCursor, requestOf } from "./cursors.ts";
import { splitRef } from "./library.ts";
import { budgetParam, CallMistake, cursorParam } from "./params.ts";
import type { EntryRecord, Redaction } from "./redaction.ts";
import { countOf, formatDay, formatSession, type RecallCall, type Tool, toBytesOf } from "./shared.ts";
import { AnswerText, cutBytes, fence, quote, showControls, toInline } from "./texts.ts";

const USUAL_TOKENS = 2250;
/** Entries that say something before and after the one that is named. */
const BEFORE = 3;
const AFTER = 5;
const MOST_AROUND = 40;
/** Entries looked through for each that says something. */
const LOOKED_AT = 6;
/** Bytes of one text, unless it alone is asked for. */
const TEXT_BYTES = 1600;
const OUTPUT_BYTES = 600;
const CALL_BYTES = 300;
/** Entries that are read at once. */
const AT_ONCE = 10;
/** Characters of a text that are read: on a page with others, and alone. */
const READ = { beside: 6000, alone: 200_000 };
/** Characters of one entry on a page of its own. */
const LEAST_ROOM = 200;

type ToolsShown = "names" | "full" | "none";

interface OpenPlace {
  /** The cursor of the next entries. */
  readonly next?: string;
  /** Entries of that page, or characters of the entry, that were given already. */
  readonly skip: number;
}

export const open: Tool = {
  name: "open",
  title: "Read a session",
  description:
    "Read a session at a ref from find, recent or tree. view around (default for session#entry): the conversation around the entry; " +
    "path (default for a session): from its beginning to the entry or leaf; entry: all of one entry; context: exactly what the model saw " +
    "at that entry, with what a compaction left out and why. Long answers go on with the cursor.",
  operands: ["ref"],
  params: {
    ref: {
      type: "string",
      isNeeded: true,
      description: "session#entry, a session id or its beginning, a name, or a path; an entry by id or label",
    },
    view: {
      type: "string",
      oneOf: ["around", "path", "entry", "context"],
      description: "what to show; by default around for session#entry, path for a session",
    },
    before: { type: "integer", least: 0, most: MOST_AROUND, description: `default ${BEFORE}` },
    after: { type: "integer", least: 0, most: MOST_AROUND, description: `default ${AFTER}` },
    tools: {
      type: "string",
      oneOf: ["names", "full", "none"],
      description: "calls: names with outputs that failed (default), or full with all outputs (default for context)",
    },
    max_tokens: budgetParam(USUAL_TOKENS, 8000),
    cursor: cursorParam,
  },
  async run(call) {
    const { library, args } = call;
    const { session, entry } = splitRef(String(args.ref));
    const listed = await library.find(session);
    const view = String(args.view ?? (entry === undefined ? "path" : "around"));
    return library.read(listed, async (sessionId) => {
      const entryId = entry === undefined || entry === "leaf" ? undefined : await library.findEntry(sessionId, entry);
      const reading = { call, listed, sessionId, entryId };
      if (view === "entry") return readEntry(reading);
      if (view === "context") return readContext(reading);
      return view === "path" ? readPath(reading) : readAround(reading);
    });
  },
};

interface OpenReading {
  readonly call: RecallCall;
  readonly listed: RecallSession;
  readonly sessionId: string;
  readonly entryId: string | undefined;
}

function toolsOf({ call: { args } }: OpenReading): ToolsShown {
  return (args.tools as ToolsShown | undefined) ?? (args.view === "context" ? "full" : "names");
}

function answerOf({ call: { args } }: OpenReading): AnswerText {
  return new AnswerText(toBytesOf(args.max_tokens, USUAL_TOKENS));
}

/** Returns the first line: which session it is, and what is shown of it. */
function headOf({ call: { library, redaction }, listed }: OpenReading, shown: string): string {
  return `${formatSession(listed, library, redaction)}\n${shown}`;
}

/** Returns the entry that the ref names, or the leaf of the session. */
async function askedEntry({ call: { library }, listed, entryId }: OpenReading): Promise<string> {
  if (entryId !== undefined) return entryId;
  const { sessionPath } = listed;
  const { leafId } = await library.world.ask("preview_session", { sessionPath, before: 0, after: 0, characters: 1 });
  if (leafId === null) throw new CallMistake("The session has no entries.");
  return leafId;
}

async function readAround(reading: OpenReading): Promise<string> {
  const { call, listed, sessionId } = reading;
  const { library, args, redaction } = call;
  const { ask } = library.world;
  const at = await askedEntry(reading);
  const [before, after] = [Number(args.before ?? BEFORE), Number(args.after ?? AFTER)];
  const { sessionPath } = listed;
  const preview = await ask("preview_session", {
    ...{ sessionPath, entryId: at, characters: 1 },
    before: Math.min(1000, before * LOOKED_AT),
    after: Math.min(1000, after * LOOKED_AT),
  });
  const all: CommandResult[] = preview.entries;
  const index = all.findIndex(({ id }) => id === at);
  const says = (one: CommandResult): boolean =>
    one.role === "user" || one.role === "assistant" || one.type !== "message";
  const first = nth(all.slice(0, index).reverse(), says, before);
  const last = nth(all.slice(index + 1), says, after);
  const shown = all.slice(index - first, index + 1 + last);
  const entries: CommandResult[] = [];
  for (const { id } of shown) entries.push((await ask("get_entry", { sessionId, entryId: id, images: "omit" })).entry);
  const labels = new Map<string, string>(shown.flatMap(({ id, label }) => (label ? [[id, label]] : [])));
  const clean = redaction.entries(entries, READ.beside);
  const answer = answerOf(reading);
  // The named entry comes first into the budget, then its neighbours in turns.
  const parts = new Map<number, string>();
  const order = [...clean.keys()].sort((a, b) => Math.abs(a - first) - Math.abs(b - first) || b - a);
  const room = new AnswerText(toBytesOf(args.max_tokens, USUAL_TOKENS));
  for (const n of order) {
    const most = n === first ? Math.max(LEAST_ROOM, Math.floor(room.room * 0.6)) : TEXT_BYTES;
    const part = formatEntry(clean[n], toolsOf(reading), most, labels, n === first ? " · this entry" : "");
    if (part === "") continue;
    if (!room.add(part)) break;
    parts.set(n, part);
  }
  for (const n of [...parts.keys()].sort((a, b) => a - b)) answer.add(parts.get(n) as string);
  const left = shown.length - parts.size;
  const foot = [
    ...(left > 0 ? [`${countOf(left, "entry", "entries")} had no room or say nothing`] : []),
    "more: view path or entry, tree, or a larger before and after",
  ].join("; ");
  return answer.finish(
    headOf(reading, `around ${at}; ${countOf(preview.entriesBefore + index - first, "entry", "entries")} before`),
    foot,
  );
}

/** Returns the number of items up to the n-th that fits. */
function nth<T>(items: readonly T[], fits: (item: T) => boolean, n: number): number {
  let found = 0;
  for (const [i, item] of items.entries()) {
    if (found === n) return i;
    if (fits(item)) found++;
  }
  return items.length;
}

async function readPath(reading: OpenReading): Promise<string> {
  const { call, sessionId, entryId } = reading;
  const { ask } = call.library.world;
  const end = await askedEntry(reading);
  return pagesOf(reading, "path", `the path to ${entryId ?? `the leaf ${end}`}`, async (cursor) => {
    const page = await ask("get_path", { sessionId, entryId: end, cursor, limit: AT_ONCE, images: "omit" });
    return { entries: page.entries, next: page.nextCursor };
  });
}

async function readContext(reading: OpenReading): Promise<string> {
  const { call, sessionId } = reading;
  const { ask } = call.library.world;
  const end = await askedEntry(reading);
  const why = await ask("get_context", { sessionId, leafId: end, explain: true, limit: 1, images: "omit" });
  const lines = explainContext(why, call.redaction);
  return pagesOf(reading, "context", `the context at ${end}, as the model saw it: ${lines}`, async (cursor) => {
    const page = await ask("get_context", { sessionId, leafId: end, cursor, limit: AT_ONCE, images: "omit" });
    const entries = page.messages.map((message: EntryRecord, n: number) => ({
      type: "message",
      id: page.entryIds[n],
      timestamp: message.timestamp,
      message,
    }));
    return { entries, next: page.nextCursor };
  });
}

/** Returns a sentence about what is in a context, and what is not and why. */
function explainContext({ explain = [], model, thinkingLevel }: CommandResult, redaction: Redaction): string {
  const left = new Map<string, { count: number; by?: string }>();
  let inside = 0;
  let tokens = 0;
  for (const one of explain) {
    if (one.in) {
      inside++;
      tokens += one.tokens;
      continue;
    }
    const key = `${one.reason} ${one.by ?? ""}`;
    const known = left.get(key) ?? { count: 0, by: one.by };
    known.count++;
    left.set(key, known);
  }
  const reasons = Array.from(left, ([key, { count, by }]) => {
    const reason = key.split(" ")[0].replaceAll("_", " ");
    return `${count} ${reason}${by === undefined ? "" : ` by ${by}`}`;
  });
  const named = model ? redaction.text(`${model.provider}/${model.id}`) : "no model";
  return [
    `${countOf(inside, "entry", "entries")}, about ${tokens.toLocaleString("en-US")} tokens`,
    ...(reasons.length === 0 ? [] : [`not in it: ${reasons.join(", ")}`]),
    `${toInline(named, 60)}, thinking ${toInline(String(thinkingLevel), 20)}`,
  ].join("; ");
}

type EntriesPage = { readonly entries: readonly EntryRecord[]; readonly next?: string };

/** Reads pages of entries into one answer; its cursor goes on at the first that had no room. */
async function pagesOf(
  reading: OpenReading,
  kind: string,
  shown: string,
  ask: (cursor: string | undefined) => Promise<EntriesPage>,
): Promise<string> {
  const { args, redaction } = reading.call;
  const place = readCursor<OpenPlace>(args.cursor, kind, requestOf(args));
  const answer = answerOf(reading);
  const none = new Map<string, string>();
  let cursor = place?.next;
  let skip = place?.skip ?? 0;
  for (;;) {
    const { entries, next } = await ask(cursor);
    const clean = redaction.entries(entries, READ.beside);
    for (let n = skip; n < clean.length; n++) {
      const most = answer.isEmpty ? Math.min(TEXT_BYTES * 2, answer.room - LEAST_ROOM) : TEXT_BYTES;
      const part = formatEntry(clean[n], toolsOf(reading), most, none);
      if (part === "" || answer.add(part)) continue;
      const more = makeCursor(kind, requestOf(args), { next: cursor, skip: n } satisfies OpenPlace);
      return answer.finish(headOf(reading, shown), `More with the same request and cursor: ${more}`);
    }
    if (next === undefined)
      return answer.finish(headOf(reading, shown), answer.isEmpty ? "Nothing is said there." : "That is all.");
    cursor = next;
    skip = 0;
  }
}

async function readEntry(reading: OpenReading): Promise<string> {
  const { call, sessionId } = reading;
  const { library, args, redaction } = call;
  const at = await askedEntry(reading);
  const place = readCursor<OpenPlace>(args.cursor, "entry", requestOf(args));
  const { entry, label, childIds } = await library.world.ask("get_entry", { sessionId, entryId: at, images: "omit" });
  const [clean] = redaction.entries([entry as EntryRecord], READ.alone);
  const text = [...textsOf(clean, "full", Number.POSITIVE_INFINITY)].join("\n\n") || toJsonText(clean);
  const answer = answerOf(reading);
  const rest = text.slice(place?.skip ?? 0);
  // A control takes up to 9 bytes when it is shown.
  let most = answer.room - 100;
  let part = cutBytes(rest, most);
  while (Buffer.byteLength(fence(part.text)) > answer.room && most > LEAST_ROOM) {
    most = Math.floor(most * 0.7);
    part = cutBytes(rest, most);
  }
  answer.add(fence(part.text));
  const past = (place?.skip ?? 0) + part.used;
  const facts = [...describeEntry(clean), ...(label ? [`label ${quote(redaction.text(label), 40)}`] : [])];
  const goesOn =
    childIds.length > 1 ? `; ${childIds.length} branches go on from it: ${childIds.slice(0, 5).join(", ")}` : "";
  const head = headOf(reading, `${at} · ${facts.join(" · ")}${goesOn}`);
  if (past >= text.length) return answer.finish(head, "That is all of it.");
  const cursor = makeCursor("entry", requestOf(args), { skip: past } satisfies OpenPlace);
  return answer.finish(
    head,
    `${countOf(text.length - past, "character")} more with the same request and cursor: ${cursor}`,
  );
}

/** Returns the facts of an entry besides its texts. */
function describeEntry({ type, timestamp, message }: EntryRecord): string[] {
  const { role, toolName, isError } = (message ?? {}) as EntryRecord;
  const by = type === "message" ? String(role ?? "message") : String(type).replaceAll("_", " ");
  return [
    toInline(by, 30),
    ...(typeof toolName === "string" ? [`output of ${toInline(toolName, 40)}`] : []),
    ...(isError === true ? ["failed"] : []),
    formatDay(timestamp as string | undefined),
  ];
}

/** Returns an entry with its heading; an empty text if it says nothing. */
export function formatEntry(
  entry: EntryRecord,
  tools: ToolsShown,
  most: number,
  labels: ReadonlyMap<string, string>,
  mark = "",
): string {
  const texts = [...textsOf(entry, tools, most)];
  if (texts.length === 0) return "";
  const { id } = entry;
  const label = labels.get(String(id));
  const named = label === undefined ? "" : ` · label ${quote(label, 40)}`;
  return `#${toInline(String(id), 60)} · ${describeEntry(entry).join(" · ")}${named}${mark}\n${fence(texts.join("\n\n"))}`;
}

/** Yields the texts of an entry, each cut to so many bytes. */
function* textsOf(entry: EntryRecord, tools: ToolsShown, most: number): Generator<string> {
  const cut = (text: string, bytes: number): string => {
    const isWhole = most === Number.POSITIVE_INFINITY;
    const size = Buffer.byteLength(text);
    return isWhole || size <= bytes
      ? text
      : `${cutBytes(text, bytes).text} (${countOf(size, "byte")}; view entry has all)`;
  };
  const { type, summary } = entry;
  const message = (typeof entry.message === "object" && entry.message !== null ? entry.message : {}) as EntryRecord;
  if (type === "compaction" || type === "branch_summary") {
    if (typeof summary === "string") yield cut(summary, most);
    return;
  }
  if (type === "model_change") return yield `model: ${String(entry.provider)}/${String(entry.modelId)}`;
  if (type === "custom_message") return yield cut(getContentText(entry.content), most);
  if (type !== "message") return;
  const { role, content, command, output, errorMessage } = message;
  if (role === "toolResult" || role === "bashExecution") {
    const isFull = tools === "full";
    const text = role === "bashExecution" ? `$ ${String(command)}\n${String(output ?? "")}` : getContentText(content);
    const hasFailed = message.isError === true || (typeof message.exitCode === "number" && message.exitCode !== 0);
    if (tools === "none" || text.trim() === "") return;
    if (isFull || hasFailed) yield cut(text, isFull ? most : Math.min(most, OUTPUT_BYTES));
    else if (role === "bashExecution") yield cut(`$ ${String(command)}`, CALL_BYTES);
    return;
  }
  if (typeof message.summary === "string") yield cut(message.summary, most);
  const text = getContentText(content);
  if (text.trim() !== "") yield cut(text, most);
  if (typeof errorMessage === "string") yield cut(`error: ${errorMessage}`, OUTPUT_BYTES);
  if (tools === "none") return;
  for (const { name, arguments: args } of getToolCalls(content)) {
    const given = tools === "full" ? toJsonText(args) : findMainArgument(args);
    yield cut(`[${name}: ${showControls(String(given))}]`, tools === "full" ? most : CALL_BYTES);
  }
}
