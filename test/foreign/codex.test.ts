/** Sessions of Codex: turns told from what the program says, rollbacks as branches, compactions, and the count of records. */

import { expect, test } from "vitest";
import {
  damagedLines,
  entriesOf,
  fidelityOf,
  foreignSession,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import { CODEX_FILE, randomCodexSession, wholeCodexSession } from "../support/foreign/codex.ts";
import { forSeeds } from "../support/random.ts";

test("every kind of record is counted, and all leaves have a context that providers take", () => {
  const writer = wholeCodexSession();
  const session = foreignSession(writer.text, CODEX_FILE);
  requireSound(session);
  const report = fidelityOf(session.log);
  expect(report.records).toBe(writer.records.length);
  expect(report.warnings).toEqual([]);
  expect(report.kinds.flatMap(({ dropped }) => dropped).every((count) => count === 0)).toBe(true);
  expect(session.name).toBe("The name of it");
  expect(session.model()).toEqual({ provider: "openai", id: "gpt-5-codex" });
  expect(session.thinkingLevel()).toBe("high");
  expect(strictContext(session).map(({ role }) => role)).toEqual(["compactionSummary", "custom", "user", "assistant"]);
});

test("what was rolled back stays as a branch", () => {
  const session = foreignSession(wholeCodexSession().text, CODEX_FILE);
  const entries = entriesOf(session);
  const textOf = (entry: (typeof entries)[number]): string => JSON.stringify(entry);
  const mistake = entries.find((entry) => textOf(entry).includes("A mistake"));
  const rest = entries.find((entry) => textOf(entry).includes('"A picture"'));
  const pathOf = (id: unknown): unknown[] => {
    const entry = entries.find((one) => one.id === id);
    return entry ? [entry.id, ...pathOf(entry.parentId)] : [];
  };
  expect(pathOf(rest?.id)).not.toContain(mistake?.id);
  expect(pathOf(rest?.id)).toContain(mistake?.parentId);
});

test("usage is counted once, and what was read from the cache is told from the rest", () => {
  const session = foreignSession(wholeCodexSession().text, CODEX_FILE);
  const spoken = entriesOf(session).flatMap(({ message }) =>
    (message as { role?: string })?.role === "assistant" ? [message] : [],
  );
  expect(spoken[0]).toMatchObject({
    usage: { input: 40, output: 20, cacheRead: 60, totalTokens: 120, cost: { total: 0 } },
    stopReason: "toolUse",
    model: "gpt-5-codex",
  });
});

test("files that were damaged at random", () => {
  const whole = wholeCodexSession().lines;
  forSeeds(200, (random) => {
    const lines = random.chance(0.5) ? whole : randomCodexSession(random, 6).lines;
    const bytes = damagedLines(random, lines);
    const session = foreignSession(bytes, CODEX_FILE);
    requireSound(session);
    const parts = bytes.toString("latin1").split("\n");
    if (parts.at(-1) === "") parts.pop();
    expect(fidelityOf(session.log).records).toBe(parts.length);
    session.close();
  });
});
