/** The names of columns, as far as they are needed to read rows: from the SQL text that a database keeps of its tables. */

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
export function parseColumns(sql: string, from = 0): TableColumn[] {
  const parts = partsIn(sql, from);
  return parts.map(columnOf).filter((column) => column !== undefined);
}

/** Returns the start of an index's columns in its SQL: after the name of its table. */
export function findIndexColumns(sql: string): number {
  const on = /\son\s/i.exec(sql);
  return on ? on.index : sql.length;
}

/** Returns whether an index has only some rows. */
export function isPartial(sql: string): boolean {
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
