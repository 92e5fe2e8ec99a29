/**
 * Goose's database (`sessions.db`): `sessions` has the facts, `messages` has the messages with their content and their
 * metadata as JSON. Newer versions added columns; the existing ones are read.
 */

import { concat, isJson, toBytes, tryParseText } from "../../../../core/json/json.ts";
import {
  hasColumns,
  hasRow,
  RowSums,
  type SourceRow,
  type SourceTables,
  type StoredSession,
  type TableFormat,
} from "../rows.ts";
import { goose } from "./goose.ts";

export const gooseTables: TableFormat = {
  translator: goose,
  recognises: (tables) =>
    hasColumns(tables, "sessions", "id", "working_dir") &&
    hasColumns(tables, "messages", "session_id", "role", "content_json"),
  sessions,
  has: (tables, id) => hasRow(tables, id, ["sessions", "id"], ["messages", "session_id"]),
  records,
};

function sessions(tables: SourceTables): StoredSession[] {
  const sums = new RowSums();
  const ids: string[] = [];
  const last = new Map<string, number>();
  for (const row of tables.rows("sessions")) {
    const id = row.text("id");
    if (id === undefined) continue;
    ids.push(id);
    sums.add(id, row, momentOf(row.text("updated_at")));
  }
  for (const row of tables.rows("messages")) {
    const id = row.text("session_id");
    sums.add(id, row);
    if (id === undefined) continue;
    ids.push(id);
    last.set(id, Math.max(last.get(id) ?? 0, row.number));
  }
  // Times are in seconds. Rewritten rows get higher numbers, which distinguish changes within one second.
  return sums
    .of(ids)
    .map((session) => ({ ...session, changed: session.changed + ((last.get(session.id) ?? 0) % 1000) }));
}

function records(tables: SourceTables, id: string): Uint8Array[] {
  const [facts] = tables.rows("sessions", { column: "id", is: id });
  // The times are in seconds; the numbers give the order within one second.
  const messages = Array.from(tables.rows("messages", { column: "session_id", is: id })).sort(
    (a, b) => (a.count("created_timestamp") ?? 0) - (b.count("created_timestamp") ?? 0) || a.number - b.number,
  );
  return [...(facts ? [factsOf(tables, facts)] : []), ...messages.map(messageOf)];
}

function messageOf(row: SourceRow): Uint8Array {
  const created = row.count("created_timestamp");
  const seconds = created !== undefined && created > 1e11 ? created / 1000 : created;
  const facts = JSON.stringify({ id: row.text("message_id"), role: row.text("role"), created: seconds });
  const content = row.bytes("content_json") ?? toBytes("null");
  const metadata = row.bytes("metadata_json");
  const given = metadata && isJson(metadata) ? [toBytes(',"metadata":'), metadata] : [];
  const before = facts === "{}" ? "{" : `${facts.slice(0, -1)},`;
  return concat([toBytes(`${before}"content":`), content, ...given, toBytes("}")]);
}

/** Returns the facts of a session as an export has them: columns by their names, and JSON texts as their values. */
function factsOf(tables: SourceTables, row: SourceRow): Uint8Array {
  const members: Record<string, unknown> = {};
  for (const column of tables.columns("sessions")) {
    const value = row.value(column);
    if (value === null || value instanceof Uint8Array) continue;
    const isText = typeof value === "string";
    if (isText && (column.endsWith("_json") || column === "extension_data"))
      members[column.replace(/_json$/, "")] = jsonIn(value);
    else members[column] = isText && column.endsWith("_at") ? timeIn(value) : value;
  }
  return toBytes(JSON.stringify(members));
}

/** Returns a time that SQLite wrote, which is UTC without saying so, as ISO 8601; any other text as it is. */
function timeIn(text: string): string {
  return /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?$/.test(text) ? `${text.replace(" ", "T")}Z` : text;
}

function momentOf(text: string | undefined): number {
  const moment = text === undefined ? Number.NaN : Date.parse(timeIn(text));
  return Number.isFinite(moment) ? moment : 0;
}

function jsonIn(text: string): unknown {
  const value = tryParseText(text);
  return value === undefined ? text : value;
}
