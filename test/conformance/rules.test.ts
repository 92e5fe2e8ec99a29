/** The rules as values, and the documents that are made of them. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { withRules } from "../../scripts/rules.ts";
import { recorded } from "../../scripts/transcripts.ts";
import { COMBINATIONS } from "../../src/conformance/combination.ts";
import { allThemes } from "../../src/conformance/rules.ts";
import { differenceAt, filled, packageTranscripts, type StoodFor } from "../../src/conformance/transcripts.ts";
import { findCommand } from "../../src/handlers/shared/find.ts";
import { OWN } from "../support/conformance.ts";
import { FAULTS, PROCESS_FAULTS } from "../support/faults.ts";
import { share } from "../support/random.ts";
import { programEnvironment, temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

const read = (name: string): string => readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");

const THEMES = allThemes();
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

test("rules need commands that there are, and apply somewhere", () => {
  for (const { name, needs = [], applies } of RULES) {
    expect(
      needs.filter((command) => findCommand(command) === undefined),
      name,
    ).toEqual([]);
    expect(
      COMBINATIONS.some((combination) => applies?.(combination) ?? true),
      name,
    ).toBe(true);
  }
});

test("faults name rules", () => {
  const names = RULES.map(({ name }) => name);
  for (const [fault, { rule, ...rest }] of Object.entries({ ...FAULTS, ...PROCESS_FAULTS })) {
    const also: readonly string[] = "also" in rest ? rest.also : [];
    expect(
      [rule, ...also].filter((name) => !names.includes(name)),
      fault,
    ).toEqual([]);
  }
});

test("docs/conformance.md lists the rules as `npm run docs` writes them", () => {
  const text = read("docs/conformance.md");
  expect(text, "docs/conformance.md is stale: npm run docs").toBe(withRules(text, THEMES));
});

test.each(share(packageTranscripts(), 4))(
  "the transcript $name is what our server answers",
  SYSTEM,
  async (transcript) => {
    const place = temporaryPlace();
    const studio = { command: OWN, cwd: place.cwd, variables: programEnvironment(place) };
    const text = await recorded(transcript, studio);
    expect(text, "it is stale: npm run transcripts").toBe(read(`docs/conformance/${transcript.name}.jsonl`));
  },
);

test("what a transcript expects is found, with names for what differs", () => {
  const stoodFor: StoodFor = new Map();
  const at = (value: unknown, expected: unknown): string | undefined => differenceAt("", value, expected, stoodFor);
  expect(at({ id: 1, more: true, leafId: "abc" }, { id: 1, leafId: "<entry-1>" })).toBeUndefined();
  expect(at({ leafId: "abd" }, { leafId: "<entry-1>" })).toBe("leafId is not <entry-1>, as before");
  expect(at({ a: { b: [1, 2] } }, { a: { b: [1] } })).toBe("a.b is not a list of 1");
  expect(at({ a: [{ n: 1 }, { n: 2 }] }, { a: [{ n: 1 }, { n: 3 }] })).toBe("a[1].n is not 3");
  expect(at({ a: 1 }, { b: 1 })).toBe("b is missing");
  expect(at("text", { b: 1 })).toBe("the message is not an object");
  expect(
    at({ t: "2026-01-24T16:22:26.831Z", n: 5, s: "x" }, { t: "<time>", n: "<number>", s: "<text>" }),
  ).toBeUndefined();
  expect(at({ n: "5" }, { n: "<number>" })).toBe("n is not <number>");
  expect(at([{ id: 2, r: 0 }, { id: 1 }], [{ id: 1 }, { id: 2, r: 0 }])).toBeUndefined();
  expect(at([{ id: 2 }], [{ id: 1 }])).toBe("[0].id is not 1");
  expect(filled({ entryId: "<entry-1>", other: "<other-1>" }, stoodFor)).toEqual({
    entryId: "abc",
    other: "<other-1>",
  });
});
