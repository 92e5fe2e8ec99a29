/**
 * opencode's database (`opencode.db`, measured with 1.18.34): `session` has the facts, `message` and `part` have the
 * same as an export except the ids, which are columns of their own. `todo` has the list of tasks. Version 2 has
 * `session_v2`, and a row of `session_message` for each message, including the migrated ones; the older tables stay as
 * they were. In older versions, `session_message` had a part of the contents of the older tables, which have all.
 */

import { isObject, type JsonObject, toText } from "../../../../core/foreign/messages.ts";
import { concat, toBytes, tryParse } from "../../../../core/json/json.ts";
import { addTo } from "../../../../core/lists.ts";
import {
  hasColumns,
  hasRow,
  RowSums,
  type SourceRow,
  type SourceTables,
  type StoredSession,
  type TableFormat,
} from "../rows.ts";
import { opencode } from "./opencode.ts";

export const opencodeTables: TableFormat = {
  translator: opencode,
  recognises: (tables) =>
    isOfVersion2(tables) ||
    (hasColumns(tables, "session", "id", "directory", "title") &&
      hasColumns(tables, "message", "id", "session_id", "data") &&
      hasColumns(tables, "part", "id", "message_id", "data")),
  sessions,
  has: (tables, id) =>
    hasRow(
      tables,
      id,
      ["session_v2", "id"],
      ["session", "id"],
      ["message", "session_id"],
      ["session_message", "session_id"],
    ),
  records,
  warnings: (tables, id) =>
    !hasRow(tables, id, ["session_v2", "id"]) &&
    hasRow(tables, id, ["message", "session_id"]) &&
    hasRow(tables, id, ["session_message", "session_id"])
      ? ["The session is in the tables of older versions and in session_message. Only the older ones are read."]
      : [],
};

function isOfVersion2(tables: SourceTables): boolean {
  return (
    hasColumns(tables, "session_v2", "id", "directory") &&
    hasColumns(tables, "session_message", "id", "session_id", "type", "data")
  );
}

function sessions(tables: SourceTables): StoredSession[] {
  const sums = new RowSums();
  const ids: string[] = [];
  for (const table of ["session_v2", "session"])
    for (const row of tables.rows(table)) {
      const id = row.text("id");
      if (id === undefined) continue;
      ids.push(id);
      sums.add(id, row, row.count("time_updated"));
    }
  // A session whose own row is damaged still has its messages.
  for (const table of ["message", "part", "session_message"])
    for (const row of tables.rows(table)) {
      const id = row.text("session_id");
      sums.add(id, row, row.count("time_updated"));
      if (table !== "part" && id !== undefined) ids.push(id);
    }
  return sums.of(ids);
}

function records(tables: SourceTables, id: string): Uint8Array[] {
  const [newer] = tables.rows("session_v2", { column: "id", is: id });
  const [facts = newer] = newer ? [newer] : tables.rows("session", { column: "id", is: id });
  const found: Uint8Array[] = facts ? [toBytes(JSON.stringify(factsOf(facts)))] : [];
  const of = (table: string, order: (row: SourceRow) => string): SourceRow[] =>
    inOrder(tables.rows(table, { column: "session_id", is: id }), order);
  const parts = new Map<string, SourceRow[]>();
  for (const row of of("part", (part) => part.text("id") ?? "")) addTo(parts, row.text("message_id") ?? "", row);
  const messages = of("message", (message) => `${timeKey(message)} ${message.text("id") ?? ""}`);
  const rows =
    newer || messages.length === 0
      ? of("session_message", (message) => `${paddedCount(message, "seq")} ${timeKey(message)}`)
      : [];
  const own = new Set(rows);
  const there = new Set(rows.map((row) => row.text("id")));
  for (const row of merged(
    rows,
    messages.filter((message) => !there.has(message.text("id"))),
  )) {
    if (own.has(row)) {
      found.push(...wholeMessage(row));
      parts.delete(row.text("id") ?? "");
      continue;
    }
    found.push(recordOf(row, [["sessionID", "session_id"]]));
    const id = row.text("id") ?? "";
    for (const part of parts.get(id) ?? []) found.push(recordOf(part, PART_IDS));
    parts.delete(id);
  }
  for (const rest of parts.values()) for (const part of rest) found.push(recordOf(part, PART_IDS));
  for (const row of of("todo", (todo) => paddedCount(todo, "position")))
    found.push(toBytes(JSON.stringify({ todo: valuesOf(tables, "todo", row) })));
  return found;
}

/** Returns rows in their order, with those of the older table among them before the first that is later. */
function merged(rows: readonly SourceRow[], older: readonly SourceRow[]): SourceRow[] {
  const all: SourceRow[] = [];
  let next = 0;
  for (const row of rows) {
    while (next < older.length && timeKey(older[next]) < timeKey(row)) all.push(older[next++]);
    all.push(row);
  }
  return [...all, ...older.slice(next)];
}

const PART_IDS = [
  ["sessionID", "session_id"],
  ["messageID", "message_id"],
] as const;

function inOrder(rows: Iterable<SourceRow>, key: (row: SourceRow) => string): SourceRow[] {
  return Array.from(rows, (row) => ({ row, key: key(row) }))
    .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : a.row.number - b.row.number))
    .map(({ row }) => row);
}

function timeKey(row: SourceRow): string {
  return paddedCount(row, "time_created");
}

function paddedCount(row: SourceRow, column: string): string {
  return String(row.count(column) ?? 0).padStart(16, "0");
}

/** Returns a row of `session_message` as records; a damaged one as it is. */
function wholeMessage(row: SourceRow): Uint8Array[] {
  const data = jsonIn(row.bytes("data"));
  const [id, type] = [row.text("id"), row.text("type")];
  if (id === undefined || type === undefined || !isObject(data)) return [recordOf(row, [["sessionID", "session_id"]])];
  return toExportedMessage({ id, type, data }).map((record) => toBytes(JSON.stringify(record)));
}

/** Returns the text of a row as an export has it: `data` with the ids after it. */
function recordOf(row: SourceRow, names: readonly (readonly [name: string, column: string])[]): Uint8Array {
  const ids: Record<string, unknown> = { id: row.text("id") };
  for (const [name, column] of names) ids[name] = row.text(column);
  const data = row.bytes("data");
  if (!data) return toBytes(JSON.stringify({ data: row.value("data"), ...ids }));
  const text = JSON.stringify(ids).slice(1);
  // A value that is no object is damage, and is kept with the ids.
  const rest = data.at(-1) === 0x7d ? data.subarray(0, -1) : data;
  return concat([rest, toBytes(text === "}" || rest.length <= 1 ? text : `,${text}`)]);
}

/** Returns the facts of a session as opencode itself exports them. */
function factsOf(row: SourceRow): JsonObject {
  const json = (column: string): unknown => jsonIn(row.bytes(column));
  const [additions, deletions, files] = ["additions", "deletions", "files"].map((name) => row.count(`summary_${name}`));
  const counts = { additions, deletions, files, diffs: json("summary_diffs") };
  const tokens = (name: string): number | undefined => row.count(`tokens_${name}`);
  const url = row.text("share_url");
  return {
    id: row.text("id"),
    slug: row.text("slug"),
    projectID: row.text("project_id"),
    workspaceID: row.text("workspace_id"),
    directory: row.text("directory"),
    path: row.text("path"),
    parentID: row.text("parent_id") ?? row.text("fork_session_id"),
    title: row.text("title"),
    agent: row.text("agent"),
    model: json("model"),
    version: row.text("version"),
    summary: Object.values(counts).some((one) => one !== undefined) ? counts : undefined,
    cost: row.count("cost"),
    tokens: {
      input: tokens("input"),
      output: tokens("output"),
      reasoning: tokens("reasoning"),
      cache: { read: tokens("cache_read"), write: tokens("cache_write") },
    },
    share: url === undefined ? undefined : { url },
    metadata: json("metadata"),
    revert: json("revert"),
    permission: json("permission"),
    time: {
      created: row.count("time_created"),
      updated: row.count("time_updated"),
      compacting: row.count("time_compacting"),
      archived: row.count("time_archived"),
    },
  };
}

function jsonIn(bytes: Uint8Array | undefined): unknown {
  const value = bytes && tryParse(bytes);
  return isObject(value) || Array.isArray(value) ? value : undefined;
}

function valuesOf(tables: SourceTables, table: string, row: SourceRow): JsonObject {
  const values = tables.columns(table).map((name): [string, unknown] => {
    const value = row.value(name);
    return [name, value instanceof Uint8Array ? `${value.length} bytes` : value];
  });
  return Object.fromEntries(values);
}

// --- the newer table `session_message`, whose rows are whole messages -----------------------------------------------

interface SessionMessage {
  readonly id: string;
  readonly type: string;
  readonly data: JsonObject;
}

/** Returns a row as a message with its parts; of a kind that has no such form, as it is. */
function toExportedMessage(row: SessionMessage): JsonObject[] {
  const { id, type, data } = row;
  if (type === "user") return [userOf(row), ...givenParts(row)];
  if (type === "synthetic" || type === "system")
    return [userOf(row), partOf(id, 0, { type: "text", text: toText(data.text) ?? "", synthetic: true })];
  if (type === "shell") {
    const text = [`$ ${toText(data.command) ?? ""}`, toText(data.output) ?? ""]
      .filter((line) => line !== "")
      .join("\n");
    return [userOf(row), partOf(id, 0, { type: "text", text, synthetic: true })];
  }
  if (type === "assistant") return answerOf(row);
  if (type === "compaction") return compactionOf(row);
  return [{ session_message: { id, type, ...data } }];
}

function userOf({ id, data }: SessionMessage): JsonObject {
  const { time, metadata } = data;
  return { role: "user", time, ...(metadata === undefined ? {} : { metadata }), id };
}

function partOf(messageID: string, index: number, part: JsonObject): JsonObject {
  return { ...part, id: toText(part.id) ?? `${messageID}/${index}`, messageID };
}

function givenParts({ id, data }: SessionMessage): JsonObject[] {
  const text = toText(data.text) ?? "";
  const parts = text === "" ? [] : [{ type: "text", text }];
  return [...parts, ...filesOf(data.files)].map((part, index) => partOf(id, index, part));
}

function filesOf(files: unknown): JsonObject[] {
  return (Array.isArray(files) ? files.filter(isObject) : []).map(fileOf);
}

function fileOf({ uri, name, ...file }: JsonObject): JsonObject {
  return { ...file, type: "file", url: uri, ...(name === undefined ? {} : { filename: name }) };
}

function answerOf({ id, data }: SessionMessage): JsonObject[] {
  const { model, content, error, ...rest } = data;
  const { id: modelID, providerID } = isObject(model) ? model : {};
  const failed = isObject(error) ? { error: { name: ERRORS[String(error.type)] ?? error.type, data: error } } : {};
  const parts = Array.isArray(content) ? content.filter(isObject) : [];
  return [
    { role: "assistant", ...rest, modelID, providerID, ...failed, id },
    ...parts.map((part, index) => partOf(id, index, part.type === "tool" ? toolOf(part) : spokenOf(part))),
  ];
}

/** Names of errors. The reader of an export expects another name for one of them. */
const ERRORS: Readonly<Record<string, string>> = { aborted: "MessageAbortedError" };

function spokenOf({ providerMetadata, ...part }: JsonObject): JsonObject {
  return providerMetadata === undefined ? part : { ...part, metadata: providerMetadata };
}

function toolOf({ id, callID, name, state, provider, time, ...rest }: JsonObject): JsonObject {
  const { input, content, error, attachments, ...given } = isObject(state) ? state : ({} as JsonObject);
  const shown = Array.isArray(content) ? content.filter(isObject) : [];
  const output = shown.flatMap(({ text }) => toText(text) ?? []).join("\n");
  const files = [...shown.filter(({ type }) => type === "file").map(fileOf), ...filesOf(attachments)];
  const { ran, completed, created } = isObject(time) ? time : {};
  const reason = isObject(error) ? toText(error.message) : toText(error);
  const isCutOff = typeof input === "string";
  return {
    ...rest,
    ...(provider === undefined ? {} : { metadata: { provider } }),
    id,
    callID: toText(callID) ?? id,
    tool: name,
    state: {
      ...given,
      ...(isCutOff ? { input: {}, raw: input } : { input }),
      ...(given.status === "completed" ? { output } : {}),
      ...(given.status === "error" ? { error: [reason, output].filter((one) => one).join("\n") } : {}),
      ...(files.length === 0 ? {} : { attachments: files }),
      time: { start: ran ?? created, end: completed },
    },
  };
}

/** Returns a compaction as its request and its summary, followed by the last messages that it repeats. */
function compactionOf({ id, data }: SessionMessage): JsonObject[] {
  const { time, reason, summary, recent } = data;
  const texts = [summary, recent].flatMap((text) => toText(text) || []);
  const over = { summary: true, finish: "stop" };
  return [
    { role: "user", time, id },
    partOf(id, 0, { type: "compaction", auto: reason === "auto" }),
    { role: "assistant", time, ...over, id: `${id}/summary` },
    ...texts.map((text, index) => partOf(`${id}/summary`, index, { type: "text", text })),
  ];
}
