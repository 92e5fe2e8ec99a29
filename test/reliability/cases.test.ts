/** The sections of the reliability table, each a file of `cases`, are those of docs/reliability.md. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { documentedRows, expectDocumented, idsLeftToOthers } from "../support/cases.ts";
import { need, needs } from "../support/needs.ts";

test("every section of the document has a file, and no file another", () => {
  const files = readdirSync(new URL("cases", import.meta.url)).map((name) => read(`test/reliability/cases/${name}`));
  const sections = files.map((text) => /^cases\("([A-Z])", \[$/m.exec(text)?.[1]);
  expect(sections.sort()).toEqual([...new Set(documentedRows().map(({ id }) => id[0]))].sort());
});

test("a row without a case is found, a case without a row, and one with other words", () => {
  const text = "| Z2 | a | b |\n| Z10 | c | d |\n\n## Not shown\n\n| Z3 | e | f |\n| Z4, Z5 | g | h |\n";
  const rows = documentedRows(text);
  expect(rows.map(({ id }) => id)).toEqual(["Z2", "Z3", "Z10"]);
  expect(idsLeftToOthers(text)).toEqual(["Z4", "Z5"]);
  const cases = [
    { id: "Z2", fault: "a", run() {} },
    { id: "Z3", fault: "e", why: "f" },
    { id: "Z10", fault: "c", run() {} },
  ];
  expectDocumented("Z", cases, rows);
  for (const others of [
    cases.slice(1),
    [...cases, { id: "Z11", fault: "x", run() {} }],
    cases.map((row) => ({ ...row, fault: "x" })),
    cases.map(({ id, fault }) => ({ id, fault, why: "f" })),
    cases.map(({ id, fault }) => ({ id, fault, run() {} })),
  ])
    expect(() => expectDocumented("Z", others, rows)).toThrow();
});

test("the document names tests that exist, and every test file of this folder", () => {
  const note = read("docs/reliability.md");
  const named = new Set([...note.matchAll(/`(test\/[\w./-]+\.test\.ts)`/g)].map(([, file]) => file));
  for (const file of named) expect(() => read(file), file).not.toThrow();
  const own = readdirSync(new URL(".", import.meta.url)).filter((name) => name.endsWith(".test.ts"));
  for (const name of own) expect(named).toContain(`test/reliability/${name}`);
});

/** The page that the rows come from, where it is at hand. */
const PAGE = new URL("../../../shared/reference/reliability-cases.md", import.meta.url);

const THE_PAGE = need("the page of cases", "put it at ../shared/reference/reliability-cases.md", () =>
  existsSync(PAGE),
);

test("every case of the page has a row", needs(THE_PAGE), () => {
  const ids = [...documentedRows().map(({ id }) => id), ...idsLeftToOthers()];
  const sections = new Set(ids.map(([section]) => section));
  const listed = [...readFileSync(PAGE, "utf8").matchAll(/^\| ([A-Z]\d+) /gm)].map(([, id]) => id);
  // What was found since has rows of its own.
  for (const id of listed.filter(([section]) => sections.has(section))) expect(ids).toContain(id);
});

function read(file: string): string {
  return readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
}
