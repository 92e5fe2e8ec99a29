/**
 * pi_agent_rust's databases, one for each session. Their entries are Pi's own: they keep their form and their ids, and
 * the session its own id, too.
 */

import { isObject, type JsonObject, NO_TIME, toText, toTimestamp } from "../../../../core/foreign/messages.ts";
import { hasColumns, type SourceTables, type StoredSession, type TableFormat } from "../rows.ts";
import type { AboutSession, RecordVerdict, SourceRecord, Translator } from "../translator.ts";
import { getWrittenMembers, type WrittenEntry, WrittenTranslation } from "../written.ts";

export const pirust: Translator = {
  agent: "pirust",
  title: "pi_agent_rust",
  form: { kind: "lines" },
  // Only databases are its own; in files, its sessions are ours.
  recognises: () => false,
  begin: (tools) => new PiTranslation(tools),
};

export const pirustTables: TableFormat = {
  translator: pirust,
  isOne: true,
  recognises: (tables) =>
    hasColumns(tables, "pi_session_header", "id", "json") && hasColumns(tables, "pi_session_entries", "seq", "json"),
  sessions,
  has: (tables, wanted) => sessions(tables).some(({ id }) => id === wanted),
  records,
};

function sessions(tables: SourceTables): StoredSession[] {
  const [header] = tables.rows("pi_session_header");
  let size = header?.size ?? 0;
  let last = 0;
  for (const row of tables.rows("pi_session_entries")) {
    size += row.size;
    last = row.number;
  }
  const id = header?.text("id");
  return header || last > 0 ? [{ id: id === undefined || id === "" ? "session" : id, size, changed: last }] : [];
}

function records(tables: SourceTables): Uint8Array[] {
  const found: Uint8Array[] = [];
  for (const table of ["pi_session_header", "pi_session_entries"])
    for (const row of tables.rows(table)) found.push(row.bytes("json") ?? new TextEncoder().encode("null"));
  for (const row of tables.rows("pi_session_blobs")) {
    const medium = { digest: row.text("digest"), byte_length: row.count("byte_length") };
    found.push(new TextEncoder().encode(JSON.stringify({ pi_session_blobs: medium })));
  }
  return found;
}

class PiTranslation extends WrittenTranslation {
  protected takeHeader({ timestamp }: JsonObject): RecordVerdict {
    this.time = toTimestamp(timestamp, NO_TIME);
    return { kind: "session", fidelity: "derived" };
  }

  protected takeOther({ pi_session_blobs: medium }: JsonObject): RecordVerdict | undefined {
    const warning = "A picture or other medium is only in the database. migrate_session takes it along.";
    return isObject(medium) ? { kind: "medium", fidelity: "dropped", warning } : undefined;
  }

  protected takeEntry(entry: WrittenEntry, value: JsonObject, source: SourceRecord): RecordVerdict {
    const parentId = value.parentId === null ? null : (toText(value.parentId) ?? this.end);
    this.tools.emit({ ...entry, parentId, members: getWrittenMembers(this.tools, source, value) });
    this.end = entry.id;
    return { kind: entry.type, fidelity: entry.type === value.type ? "preserved" : "derived" };
  }

  override about(): AboutSession {
    const { leafId } = this.header ?? {};
    return { ...super.about(), leafId: leafId === "" ? null : toText(leafId) };
  }
}
