/** The help of a verb, as it is wrapped. */

import { expect, test } from "vitest";
import { helpOf } from "../../src/cli/help.ts";
import { verbNamed } from "../../src/cli/table.ts";

test.each([80, 40])("examples in the help stay indented where they are wrapped, at %i columns", (columns) => {
  const verb = verbNamed("compare");
  const lines = helpOf(verb as NonNullable<typeof verb>, columns).split("\n");
  const from = lines.findIndex((line) => line.startsWith("  compare <session>"));
  const past = lines.indexOf("", from);
  for (const line of lines.slice(from, past)) expect(line).toMatch(/^ {2}/);
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns);
});
