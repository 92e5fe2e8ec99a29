/** Tables as comma-separated values (RFC 4180), for spreadsheets. */

/** Beginning of a text that a spreadsheet takes for a formula, and may run. */
const FORMULA = /^[\s"']*[=+\-@\uff0b\uff0d\uff1d\uff20|%]|^[\t\r\n]/;

export function formatCsv(rows: readonly (readonly (string | number)[])[]): string {
  return rows.map((row) => `${row.map(cellText).join(",")}\r\n`).join("");
}

function cellText(cell: string | number): string {
  if (typeof cell === "number") return String(cell);
  const text = FORMULA.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
