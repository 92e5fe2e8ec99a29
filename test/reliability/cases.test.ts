/** Every row of the reliability table, named after its id; docs/reliability.md lists them. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { findCommand } from "../../src/handlers/shared/find.ts";
import type { Case } from "../support/cases.ts";
import { context } from "./cases/context.ts";
import { crash } from "./cases/crash.ts";
import { disk } from "./cases/disk.ts";
import { fork } from "./cases/fork.ts";
import { framing } from "./cases/framing.ts";
import { load } from "./cases/load.ts";
import { locks } from "./cases/locks.ts";
import { protocol } from "./cases/protocol.ts";
import { security } from "./cases/security.ts";
import { tree } from "./cases/tree.ts";

const SECTIONS: Readonly<Record<string, readonly Case[]>> = {
  F: framing,
  R: protocol,
  L: load,
  T: tree,
  C: context,
  K: fork,
  X: locks,
  S: crash,
  D: disk,
  P: security,
};

for (const [section, cases] of Object.entries(SECTIONS))
  describe(section, () => {
    for (const row of cases)
      if ("run" in row) test(`${row.id} ${row.fault}`, row.run);
      else test.skip(`${row.id} ${row.fault}: ${row.why}`);
  });

/** The rows of the table, without those of {@link LEFT_OUT}. */
const ROWS: Readonly<Record<string, readonly number[]>> = {
  F: [1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 13, 14],
  R: [1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 17, 18, 20, 21, 22],
  L: [1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 23],
  T: [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15],
  C: [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 14],
  K: [1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14],
  X: [1, 2, 3, 4, 5, 7, 8, 9, 11, 12],
  S: [1, 2, 3, 5, 6, 7, 13],
  D: [1, 3, 4, 5, 7, 8, 9, 10, 11],
  P: [1, 2, 3, 4, 6, 7, 8, 9],
};

/** Rows of the table that are no cases here, and why. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  S9: "of the store in segments, which has tests of its own",
  S10: "of the store in segments, which has tests of its own",
  S11: "of the store in segments, which has tests of its own",
  S12: "of the store in segments, which has tests of its own",
};

/** The page that the rows come from, where it is at hand. */
const PAGE = new URL("../../../shared/reference/reliability-cases.md", import.meta.url);

test.skipIf(!existsSync(PAGE))("the rows are those of the page of cases, but for what is left out for a reason", () => {
  const sections = Object.keys(SECTIONS).join("");
  const listed = [...readFileSync(PAGE, "utf8").matchAll(/^\| ([A-Z]\d+) /gm)].map(([, id]) => id);
  const rows = Object.entries(ROWS).flatMap(([section, numbers]) => numbers.map((n) => `${section}${n}`));
  expect([...rows, ...Object.keys(LEFT_OUT)].sort()).toEqual(listed.filter((id) => sections.includes(id[0])).sort());
});

describe("the table", () => {
  const all = Object.values(SECTIONS).flat();
  const note = read("docs/reliability.md");

  test("has a case for every row, and no other", () => {
    const rows = Object.entries(ROWS).flatMap(([section, numbers]) => numbers.map((n) => `${section}${n}`));
    expect(all.map(({ id }) => id)).toEqual(rows);
  });

  test("stands in the note, with each fault and a promise or a reason", () => {
    const told = [...note.matchAll(/^\| ([A-Z]\d+) \| (.+?) \| (.+?) \|/gm)].map(([, id, fault, rest]) => ({
      id,
      fault,
      rest,
    }));
    const expected = all.map((row) => ({
      id: row.id,
      fault: row.fault,
      rest: "why" in row ? row.why : expect.stringMatching(/\S/),
    }));
    expect(told.sort(byId)).toEqual(expected.sort(byId));
  });

  test("names tests that exist, and every test file of this folder", () => {
    const named = new Set([...note.matchAll(/`(test\/[\w./-]+\.test\.ts)`/g)].map(([, file]) => file));
    for (const file of named) expect(() => read(file), file).not.toThrow();
    const own = readdirSync(new URL(".", import.meta.url)).filter((name) => name.endsWith(".test.ts"));
    for (const name of own) expect(named).toContain(`test/reliability/${name}`);
  });

  test("excuses no row whose command is there", () => {
    const excused = all.flatMap((row) => ("awaits" in row && row.awaits !== undefined ? [row.awaits] : []));
    expect(excused.filter((name) => findCommand(name) !== undefined)).toEqual([]);
  });
});

function read(file: string): string {
  return readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
}

function byId(a: { id: string }, b: { id: string }): number {
  return a.id < b.id ? -1 : 1;
}
