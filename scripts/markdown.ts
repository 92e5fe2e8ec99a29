/** Tables of Markdown, and the parts of documents that are made. */

export function formatTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replace(/(?<!\\)\|/g, "\\|")).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

/** Returns a document with another text between `<!-- mark -->` and `<!-- /mark -->`. */
export function replacePart(document: string, mark: string, text: string): string {
  const [begin, end] = [`<!-- ${mark} -->`, `<!-- /${mark} -->`];
  const [before] = document.split(begin);
  const [, after] = document.split(end);
  return `${before}${begin}\n\n${text}\n\n${end}${after}`;
}
