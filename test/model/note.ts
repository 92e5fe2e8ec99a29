/**
 * The tables of docs/model.md. A run holds its figures against them; with `MODEL_NOTE=write` it writes them there, which is
 * how they came into it.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { expect } from "vitest";

const NOTE = new URL("../../docs/model.md", import.meta.url);

/** Returns one table of the note, which stands between two comments with its name. */
export function noteOf(table: string): { row(name: string, cells: readonly (string | number)[]): void } {
  return {
    row(name, cells) {
      const line = `| ${[name, ...cells.map((cell) => (typeof cell === "number" ? cell.toLocaleString("en") : cell))].join(" | ")} |`;
      const text = readFileSync(NOTE, "utf8");
      const begin = `<!-- ${table} -->\n`;
      const end = `<!-- /${table} -->`;
      const [before, rest] = [
        text.slice(0, text.indexOf(begin) + begin.length),
        text.slice(text.indexOf(begin) + begin.length),
      ];
      const lines = rest.slice(0, rest.indexOf(end)).split("\n").slice(0, -1);
      if (process.env.MODEL_NOTE !== "write") {
        expect(lines).toContain(line);
        return;
      }
      const at = lines.findIndex((other) => other.startsWith(`| ${name} |`));
      if (at < 0) lines.push(line);
      else lines[at] = line;
      writeFileSync(NOTE, `${before}${lines.map((each) => `${each}\n`).join("")}${rest.slice(rest.indexOf(end))}`);
    },
  };
}
