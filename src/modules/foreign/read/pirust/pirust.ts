/**
 * pi_agent_rust's databases, one for each session. Their entries are Pi's own: they keep their form and their ids, and
 * the session its own id, too.
 */

import { isObject, type JsonObject, NO_TIME, toText, toTimestamp } from "../../../../core/foreign/messages.ts";
import { hasColumns, type SourceTables, type StoredSession, type TableFormat } from "../rows.ts";
import {
  type AboutSession,
  makeRawVerdict,
  type PendingEntries,
  type RecordVerdict,
  type SourceRecord,
  type Translation,
  type TranslationTools,
  type Translator,
} from "../translator.ts";
import { aboutPi, getWrittenMembers } from "../written.ts";

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

class PiTranslation implements Translation {
  private readonly tools: TranslationTools;
  private header: JsonObject | undefined;
  private time = NO_TIME;
  private end: string | null = null;
  private kept = 0;

  constructor(tools: TranslationTools) {
    this.tools = tools;
  }

  take(source: SourceRecord): RecordVerdict {
    const { value } = source;
    if (!isObject(value)) return makeRawVerdict("(no object)");
    const { id, parentId, timestamp } = value;
    // The log takes no entry with an empty type; others may continue this one.
    const type = value.type === "" ? "unknown" : value.type;
    if (type === "session" && !this.header) {
      this.header = value;
      this.time = toTimestamp(timestamp, NO_TIME);
      return { kind: "session", fidelity: "derived" };
    }
    if (isObject(value.pi_session_blobs)) {
      const warning = "A picture or other medium is only in the database. migrate_session takes it along.";
      return { kind: "medium", fidelity: "dropped", warning };
    }
    if (typeof type !== "string" || typeof id !== "string" || id === "") return makeRawVerdict("(unknown)");
    this.time = toTimestamp(timestamp, this.time);
    const at = toText(timestamp) ?? this.time;
    const above = parentId === null ? null : (toText(parentId) ?? this.end);
    this.tools.emit({
      type,
      id,
      parentId: above,
      timestamp: at,
      members: getWrittenMembers(this.tools, source, value),
    });
    this.end = id;
    return { kind: type, fidelity: type === value.type ? "preserved" : "derived" };
  }

  keep({ number, bytes }: SourceRecord, given?: JsonObject): void {
    const members = given ?? { customType: `import:${this.tools.agent}`, data: Uint8Array.from(bytes) };
    const id = this.tools.ids.entry(`row:${number}:${++this.kept}`);
    this.tools.emit({ type: "custom", id, parentId: this.end, timestamp: this.time, members });
    this.end = id;
  }

  pending(): PendingEntries {
    return { entries: [], isPartial: false };
  }

  about(): AboutSession {
    const { leafId } = this.header ?? {};
    return { ...aboutPi(this.header), leafId: leafId === "" ? null : toText(leafId) };
  }
}
