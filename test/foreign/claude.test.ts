/** Sessions of Claude Code: their tree, messages, compactions, and the count of what became of each record. */

import { expect, test } from "vitest";
import {
  damagedLines,
  fidelityOf,
  foreignSession,
  requirePairedAtEveryLeaf,
  requireSound,
} from "../support/foreign/checks.ts";
import { randomClaudeSession, wholeClaudeSession } from "../support/foreign/claude.ts";
import { forSeeds } from "../support/random.ts";

test("every kind of record is counted, and all leaves have a context that providers take", () => {
  const writer = wholeClaudeSession();
  const session = foreignSession(writer.text);
  requireSound(session);
  const report = fidelityOf(session.log);
  expect(report.records).toBe(writer.records.length);
  expect(report.warnings).toEqual([]);
  expect(requirePairedAtEveryLeaf(session)).toBe(2);
  expect(session.name).toBe("My own title");
  expect(session.cwd).toBe("/home/me/project");
  expect(session.log.damage).toEqual([]);
});

test("files that were damaged at random", () => {
  const whole = wholeClaudeSession().lines;
  forSeeds(100, (random) => {
    const lines = random.chance(0.5) ? whole : randomClaudeSession(random, 6).lines;
    const bytes = damagedLines(random, lines);
    let session: ReturnType<typeof foreignSession>;
    try {
      session = foreignSession(bytes);
    } catch (error) {
      if (/not recognised/.test(String(error))) return;
      throw error;
    }
    requireSound(session);
    const parts = bytes.toString("latin1").split("\n");
    if (parts.at(-1) === "") parts.pop();
    expect(fidelityOf(session.log).records).toBe(parts.length);
    session.close();
  });
});
