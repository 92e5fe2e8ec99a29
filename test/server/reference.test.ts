import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { GROUPS, protocolText } from "../../scripts/reference.ts";
import { declarations } from "../../src/handlers/shared/declarations.ts";

const read = (name: string): string => readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");

const text = protocolText(declarations, read("docs/protocol-preface.md"));

test("protocol.md is what `npm run docs` writes", () => {
  expect(read("protocol.md"), "protocol.md is stale: npm run docs").toBe(text);
});

test("every command, alias, event, hook, failure and entry type has its place", () => {
  for (const { name, alias } of declarations.commands) {
    expect(text).toContain(`\n### ${name}\n`);
    if (alias !== undefined) expect(text).toContain(`\`${alias}\``);
  }
  for (const name of Object.keys(declarations.events)) expect(text).toContain(`\n### ${name}\n`);
  for (const name of Object.keys(declarations.hooks)) expect(text).toContain(`\n### ${name}\n`);
  for (const name of Object.keys(declarations.failures)) expect(text).toContain(`\n| \`${name}\` |`);
  for (const type of Object.keys(declarations.entryTypes)) expect(text).toContain(`\n### Entry: ${type}\n`);
});

test("every command is in one group", () => {
  const names = declarations.commands.map(({ name }) => name);
  expect(Object.values(GROUPS).flat().sort()).toEqual(names.sort());
});

test("links inside the document lead somewhere", () => {
  const anchors = new Set(
    [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
      heading
        .toLowerCase()
        .replace(/[^\p{L}\d _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
  const targets = [...text.matchAll(/\]\(#([^)]+)\)/g)].map(([, target]) => target);
  expect(targets.filter((target) => !anchors.has(target))).toEqual([]);
});

test("every row of a table has as many cells as its head", () => {
  const cells = (line: string): number => line.replaceAll("\\|", "").split("|").length;
  const lines = text.split("\n");
  for (const [i, line] of lines.entries())
    if (line.startsWith("|") && lines[i - 1].startsWith("|")) expect(cells(line), line).toBe(cells(lines[i - 1]));
});
