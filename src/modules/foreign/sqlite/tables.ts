/** The tables of an SQLite database as sources of rows. */

import { areSameBytes, toBytes } from "../../../core/json/json.ts";
import type { Disk } from "../../../storage/fs/disk.ts";
import type { SourceRow, SourceTables } from "../read/rows.ts";
import { DatabasePages } from "./pages.ts";
import type { Cell, RecordValues, StoredValue } from "./records.ts";
import { Trees } from "./trees.ts";

/** A table, as far as rows of it are read. */
interface Table {
  readonly root: number;
  /** The places of its columns in a record, by name. */
  readonly columns: ReadonlyMap<string, number>;
  /** The column that is the number of the row itself. */
  readonly alias: string | undefined;
  /** The roots of indexes, by the column that they begin with. */
  readonly indexes: Map<string, number>;
}

/** The types of a schema's items. */
const SCHEMA_TYPES: ReadonlySet<string> = new Set(["table", "index", "view", "trigger"]);

export class DatabaseTables implements SourceTables {
  private readonly pages: DatabasePages;
  private readonly trees: Trees;
  private readonly tables = new Map<string, Table>();
  /** Sentences about unreadable parts, each once. */
  readonly faults = new Set<string>();

  /** A clause about the damage to the database as a whole; undefined without damage. Pages of tables may be damaged. */
  readonly damage: string | undefined;

  /** Throws errno errors. */
  constructor(disk: Disk, file: string) {
    this.pages = new DatabasePages(disk, file);
    this.trees = new Trees(this.pages, (page, reason) => this.note(page, reason));
    try {
      const isLegible = !this.pages.isReadable || this.readSchema();
      this.damage = this.pages.fault ?? (isLegible ? undefined : "the list of its tables cannot be read");
    } catch (error) {
      this.pages.close();
      throw error;
    }
  }

  /** True if everything that was read is of one moment. */
  isStill(): boolean {
    return this.pages.isStill();
  }

  close(): void {
    this.pages.close();
  }

  columns(table: string): readonly string[] {
    return [...(this.tables.get(table)?.columns.keys() ?? [])];
  }

  *rows(table: string, wanted?: { readonly column: string; readonly is: string }): Generator<SourceRow> {
    const known = this.tables.get(table);
    if (!known) return;
    if (wanted === undefined) {
      for (const cell of this.trees.rows(known.root)) yield this.rowOf(known, cell);
      return;
    }
    const key = this.keyOf(wanted.is);
    yield* this.indexed(known, wanted.column, key) ?? this.filtered(known, wanted.column, key);
  }

  /** Returns the rows that an index has for a key; undefined without an index that can be relied upon. */
  private indexed(table: Table, column: string, key: Uint8Array): SourceRow[] | undefined {
    const root = table.indexes.get(column);
    if (root === undefined) return undefined;
    const before = this.faults.size;
    const cells: Cell[] = [];
    for (const rowid of this.trees.find(root, key)) {
      const cell = this.trees.row(table.root, rowid);
      if (!cell) return undefined;
      cells.push(cell);
    }
    return this.faults.size > before ? undefined : cells.map((cell) => this.rowOf(table, cell));
  }

  private *filtered(table: Table, column: string, key: Uint8Array): Generator<SourceRow> {
    const place = table.columns.get(column);
    if (place === undefined) return;
    for (const cell of this.trees.rows(table.root)) {
      const values = this.trees.values(cell);
      const bytes = values.isText(place) ? values.slice(place) : undefined;
      if (bytes && areSameBytes(bytes, key)) yield this.rowOf(table, cell, values);
    }
  }

  private rowOf(table: Table, cell: Cell, values = this.trees.values(cell)): SourceRow {
    return new TableRow(table, cell, values, this.pages.encoding === "utf-8");
  }

  private keyOf(text: string): Uint8Array {
    const { encoding } = this.pages;
    if (encoding === "utf-8") return toBytes(text);
    const bytes = Buffer.from(text, "utf16le");
    return encoding === "utf-16le" ? bytes : bytes.swap16();
  }

  /** Returns whether all of it can be read. */
  private readSchema(): boolean {
    const texts: { type: string; name: string; of: string; root: number; sql: string }[] = [];
    let isWhole = true;
    for (const cell of this.trees.rows(1)) {
      const values = this.trees.values(cell);
      const [type, name, of, sql] = [0, 1, 2, 4].map((n) => values.text(n));
      const root = values.number(3);
      isWhole &&= SCHEMA_TYPES.has(type ?? "") && name !== undefined && of !== undefined && root !== undefined;
      if (type && name && of && sql && root) texts.push({ type, name, of, root, sql });
    }
    for (const { type, name, root, sql } of texts) if (type === "table") this.noteTable(name, root, sql);
    for (const { type, of, root, sql } of texts) if (type === "index" && !isPartial(sql)) this.noteIndex(of, root, sql);
    return isWhole && this.faults.size === 0;
  }

  private noteTable(name: string, root: number, sql: string): void {
    // Their rows are in a tree of another kind.
    if (/\)[^)]*\bwithout\s+rowid\b[^)]*$/i.test(sql)) return;
    const stored = parseColumns(sql).filter(
      ({ definition }) => !/\bas\s*\(/.test(definition) || /\bstored\b/.test(definition),
    );
    const alias = stored.find(({ definition }) => /^integer\s+(?:\S+\s+)*?primary\s+key\b(?!\s+desc)/.test(definition));
    const columns = new Map(stored.map((column, place) => [column.name, place]));
    this.tables.set(name, { root, columns, alias: alias?.name, indexes: new Map() });
  }

  private noteIndex(of: string, root: number, sql: string): void {
    const [first] = parseColumns(sql, findIndexColumns(sql));
    const table = this.tables.get(of);
    if (!table || !first || !table.columns.has(first.name) || !/^(?:asc)?$/.test(first.definition)) return;
    if (!table.indexes.has(first.name)) table.indexes.set(first.name, root);
  }

  private note(page: number, reason: string): void {
    this.faults.add(`Page ${page} of the database cannot be read (${reason}); rows in it or below it are missing.`);
  }
}

class TableRow implements SourceRow {
  private readonly table: Table;
  private readonly cell: Cell;
  private readonly values: RecordValues;
  private readonly isUtf8: boolean;

  constructor(table: Table, cell: Cell, values: RecordValues, isUtf8: boolean) {
    this.table = table;
    this.cell = cell;
    this.values = values;
    this.isUtf8 = isUtf8;
  }

  get number(): number {
    return this.cell.rowid;
  }

  get size(): number {
    return this.cell.size;
  }

  count(column: string): number | undefined {
    if (column === this.table.alias) return this.cell.rowid;
    return this.values.number(this.placeOf(column));
  }

  text(column: string): string | undefined {
    return this.values.text(this.placeOf(column));
  }

  bytes(column: string): Uint8Array | undefined {
    const place = this.placeOf(column);
    if (this.isUtf8 || !this.values.isText(place)) return this.values.slice(place);
    const text = this.values.text(place);
    return text === undefined ? undefined : toBytes(text);
  }

  value(column: string): StoredValue {
    return column === this.table.alias ? this.cell.rowid : this.values.value(this.placeOf(column));
  }

  private placeOf(column: string): number {
    return this.table.columns.get(column) ?? -1;
  }
}

// --- names of columns, from the SQL text that a database keeps of its tables ----------------------------------------

/** A column of a table, or of an index. */
interface TableColumn {
  readonly name: string;
  /** The text after its name, in lower case. */
  readonly definition: string;
}

/** Words that begin a part of a table which is no column. */
const CONSTRAINTS = new Set(["constraint", "primary", "unique", "check", "foreign"]);
const QUOTES: Readonly<Record<string, string>> = { '"': '"', "`": "`", "[": "]", "'": "'" };

/** Returns the columns between the first brackets after a text's `from`; an empty list without brackets. */
function parseColumns(sql: string, from = 0): TableColumn[] {
  const parts = partsIn(sql, from);
  return parts.map(columnOf).filter((column) => column !== undefined);
}

/** Returns the start of an index's columns in its SQL: after the name of its table. */
function findIndexColumns(sql: string): number {
  const on = /\son\s/i.exec(sql);
  return on ? on.index : sql.length;
}

/** Returns whether an index has only some rows. */
function isPartial(sql: string): boolean {
  return /\)\s*where\s/i.test(sql);
}

/** Returns the texts between commas, within the first brackets. */
function partsIn(sql: string, from: number): string[] {
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let i = from; i < sql.length; i++) {
    const c = sql[i];
    if (sql.startsWith("--", i)) i = endOf(sql, "\n", i);
    else if (sql.startsWith("/*", i)) i = endOf(sql, "*/", i) + 1;
    else if (c in QUOTES) i = endOf(sql, QUOTES[c], i + 1);
    else if (c === "(") {
      if (++depth === 1) start = i + 1;
    } else if ((c === "," && depth === 1) || (c === ")" && --depth === 0)) {
      parts.push(sql.slice(start, i));
      start = i + 1;
      if (depth === 0) break;
    }
  }
  return parts;
}

function endOf(sql: string, text: string, from: number): number {
  const at = sql.indexOf(text, from);
  return at < 0 ? sql.length : at;
}

function columnOf(part: string): TableColumn | undefined {
  const text = part.replace(/\/\*[\s\S]*?\*\/|--[^\n]*/g, " ").trim();
  const quote = QUOTES[text[0]];
  if (quote !== undefined) {
    const end = endOf(text, quote, 1);
    return {
      name: text.slice(1, end),
      definition: text
        .slice(end + 1)
        .trim()
        .toLowerCase(),
    };
  }
  const [name = ""] = /^[^\s(]+/.exec(text) ?? [];
  if (name === "" || CONSTRAINTS.has(name.toLowerCase())) return undefined;
  return { name, definition: text.slice(name.length).trim().toLowerCase() };
}
