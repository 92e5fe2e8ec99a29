/** The rules as values, and the documents that are made of them. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { writeRules } from "../../scripts/rules.ts";
import { COMBINATIONS } from "../../src/conformance/combination.ts";
import { fillNames, findDifference, type StoodFor } from "../../src/conformance/row.ts";
import { OPTIONAL_COMMANDS } from "../../src/conformance/rule.ts";
import { THEMES } from "../../src/conformance/rules.ts";
import { findCommand } from "../../src/handlers/shared/find.ts";
import { FAULTS, PROCESS_FAULTS } from "../support/faults.ts";

const read = (name: string): string => readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");

const RULES = THEMES.flatMap(({ rules }) => rules);

test("rules have names of their own, sentences, and places in protocol.md", () => {
  const names = [...THEMES.map(({ name }) => name), ...RULES.map(({ name }) => name)];
  expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
  expect(names.filter((name) => !/^[a-z][a-z0-9]*(?:-[a-z0-9]+)*$/.test(name))).toEqual([]);
  expect(RULES.length).toBeGreaterThan(150);
  const headings = new Set([...read("protocol.md").matchAll(/^#+ (.+)$/gm)].map(([, heading]) => heading));
  for (const { name, title, source } of RULES) {
    expect(headings, name).toContain(source);
    expect(title, name).toMatch(/\.$/);
  }
});

test("commands that servers need not have exist, and rules apply somewhere", () => {
  expect([...OPTIONAL_COMMANDS].filter((command) => findCommand(command) === undefined)).toEqual([]);
  for (const { name, applies } of RULES) {
    const isApplied = COMBINATIONS.some((combination) => applies?.(combination) ?? true);
    expect(isApplied, name).toBe(true);
  }
});

test("faults name rules", () => {
  const names = RULES.map(({ name }) => name);
  for (const [fault, { rule, ...rest }] of Object.entries({ ...FAULTS, ...PROCESS_FAULTS })) {
    const also: readonly string[] = "also" in rest ? rest.also : [];
    expect(names, fault).toEqual(expect.arrayContaining([rule, ...also]));
  }
});

test("docs/conformance.md lists the rules as `npm run docs` writes them", () => {
  const text = read("docs/conformance.md");
  expect(text, "docs/conformance.md is stale: npm run docs").toBe(writeRules(text, THEMES));
});

test("what a row expects is found, with names for what differs", () => {
  const stoodFor: StoodFor = new Map();
  const at = (value: unknown, expected: unknown): string | undefined => findDifference("", value, expected, stoodFor);
  expect(at({ id: 1, more: true, leafId: "abc" }, { id: 1, leafId: "<entry-1>" })).toBeUndefined();
  const differences: [value: unknown, expected: unknown, difference?: string][] = [
    [{ leafId: "abd" }, { leafId: "<entry-1>" }, "leafId is not <entry-1>, as before"],
    [{ a: { b: [1, 2] } }, { a: { b: [1] } }, "a.b is not a list of 1"],
    [{ a: [{ n: 1 }, { n: 2 }] }, { a: [{ n: 1 }, { n: 3 }] }, "a[1].n is not 3"],
    [{ a: 1 }, { b: 1 }, "b is missing"],
    ["text", { b: 1 }, "the message is not an object"],
    [
      { n: 5, s: "x" },
      { n: "<number>", s: "<text>" },
    ],
    [{ n: "5" }, { n: "<number>" }, "n is not <number>"],
    [[{ id: 2 }], [{ id: 1 }], "[0].id is not 1"],
  ];
  for (const [value, expected, difference] of differences) expect(at(value, expected)).toBe(difference);
  const replaced = fillNames({ entryId: "<entry-1>", other: "<other-1>" }, stoodFor);
  expect(replaced).toEqual({ entryId: "abc", other: "<other-1>" });
});
