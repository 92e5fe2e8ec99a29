/** The help of a verb, as it is wrapped. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { helpOf } from "../../src/cli/help.ts";
import { verbNamed, verbs } from "../../src/cli/table.ts";
import { COMMON_FLAGS, type Verb } from "../../src/cli/verb.ts";

test.each([80, 40])("examples in the help stay indented where they are wrapped, at %i columns", (columns) => {
  const verb = verbNamed("compare");
  const lines = helpOf(verb as NonNullable<typeof verb>, columns).split("\n");
  const from = lines.findIndex((line) => line.startsWith("  compare <session>"));
  const past = lines.indexOf("", from);
  for (const line of lines.slice(from, past)) expect(line).toMatch(/^ {2}/);
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns);
});

test("each flag that a sentence of ours gives to a verb is a flag of that verb", () => {
  const src = fileURLToPath(new URL("../../src", import.meta.url));
  const known = new Map(verbs.map(({ name, flags = {} }: Verb) => [name, { ...flags, ...COMMON_FLAGS }]));
  const named = new RegExp(`\\b(${[...known.keys()].join("|")})((?: (?:<\\w+>|\\$\\{\\w+\\}))* --[a-z][a-z-]+)`, "g");
  const found = readdirSync(src, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .flatMap((name) => {
      // No flag stands in another line than its verb.
      const withFlags = readFileSync(join(src, name), "utf8")
        .split("\n")
        .filter((line) => line.includes(" --"));
      return [...withFlags.join("\n").matchAll(named)].map((match) => ({ name, match }));
    });
  // The verb fleet has a command of the name of a verb.
  const wrong = found.filter(({ name, match }) => {
    if (name === "cli/verbs/fleet.ts") return false;
    const flag = match[2].slice(match[2].lastIndexOf("--"));
    return !(flag in (known.get(match[1]) as object));
  });
  expect(found.length).toBeGreaterThan(5);
  expect(wrong.map(({ name, match }) => `${name}: ${match[0]}`)).toEqual([]);
});
