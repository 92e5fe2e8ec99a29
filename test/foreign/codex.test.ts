/** Sessions of Codex: turns told from what the program says, rollbacks as branches, compactions, and the count of records. */

import { expect, test } from "vitest";
import type { Session } from "../../src/core/session/session.ts";
import { FaultDisk } from "../support/disk.ts";
import {
  entriesOf,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  readDamaged,
  requireContinued,
  requirePairedAtEveryLeaf,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import { CODEX_FILE, CodexWriter, randomCodexSession, wholeCodexSession } from "../support/foreign/codex.ts";
import { forSeeds } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

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

acrossTiers(test, [1, 3])("a longer file has the entries of the shorter one (%i)", (count) => {
  const turns = count === 1 ? 1 : 5;
  forSeeds(count, (random) => requireContinued(randomCodexSession(random, turns).lines, CODEX_FILE));
});

acrossTiers(test, [4, 30])("files that were damaged at random (%i)", (count) => {
  const whole = wholeCodexSession().lines;
  const { made, read } = readDamaged(
    count,
    (random) => (random.chance(0.5) ? whole : randomCodexSession(random, 6).lines),
    { file: CODEX_FILE, isByLine: true },
  );
  expect(read).toBe(made);
});

/** The id of a thread, which tells the day on which it was made. */
function threadId(n: number): string {
  return `0199448c-8400-7000-8000-${String(n).padStart(12, "0")}`;
}

function rolloutOf(name: string): string {
  return `/elsewhere/sessions/2025/09/13/rollout-2025-09-13T10-00-00-${name}.jsonl`;
}

/** Three threads: a fork of one that continues its file, and a fork of that; and the first one again after a revert. */
function paginatedThreads(): FaultDisk {
  const disk = new FaultDisk();
  const first = new CodexWriter();
  first.meta({ id: threadId(1), history_mode: "paginated" });
  first.human("First question");
  first.tools(2);
  first.answer("First answer");
  const end = Buffer.byteLength(first.text);
  first.human("To be taken back");
  first.answer("Its answer");
  disk.put(rolloutOf(threadId(1)), Buffer.from(first.text));
  const put = (name: string, id: string, base: string, at: number, question: string): number => {
    const writer = new CodexWriter();
    const history_base = { thread_id: base, end_ordinal_exclusive: 1, end_byte_offset: at };
    writer.meta({ id, history_mode: "paginated", history_base, ...(base === id ? {} : { forked_from_id: base }) });
    writer.human(question);
    writer.answer(`Answer to ${question}`);
    disk.put(rolloutOf(name), Buffer.from(writer.text));
    return Buffer.byteLength(writer.text);
  };
  const length = put(threadId(2), threadId(2), threadId(1), end, "Forked");
  put(threadId(3), threadId(3), threadId(2), length, "Forked again");
  put(`${threadId(1)}_${threadId(9)}`, threadId(1), threadId(1), end, "After the revert");
  return disk;
}

function questionsOf(session: Session): unknown[] {
  return strictContext(session).flatMap(({ role, content }) =>
    role === "user" ? [(content as { text: string }[])[0].text] : [],
  );
}

test("a fork that only names the beginning of another file is a whole session", () => {
  const disk = paginatedThreads();
  const fork = foreignSessionOn(disk, rolloutOf(threadId(3)));
  requireSound(fork);
  expect(questionsOf(fork)).toEqual(["First question", "Forked", "Forked again"]);
  expect(fork.parentSession).toBe(rolloutOf(threadId(2)));
  const parent = foreignSessionOn(disk, rolloutOf(threadId(2)));
  expect(fork.id).not.toBe(parent.id);
  const ids = entriesOf(fork).map(({ id }) => id);
  expect(ids.slice(0, parent.log.nodes.count)).toEqual(entriesOf(parent).map(({ id }) => id));
});

test("what was reverted stays as a branch of the same session", () => {
  const disk = paginatedThreads();
  const before = foreignSessionOn(disk, rolloutOf(threadId(1)));
  const after = foreignSessionOn(disk, rolloutOf(`${threadId(1)}_${threadId(9)}`));
  requireSound(after);
  expect(after.id).toBe(before.id);
  expect(questionsOf(after)).toEqual(["First question", "After the revert"]);
  expect(questionsOf(before)).toEqual(["First question", "To be taken back"]);
  expect(requirePairedAtEveryLeaf(after)).toBe(2);
});

test("a session whose beginning is missing opens without it, and says so", () => {
  const disk = paginatedThreads();
  disk.remove(rolloutOf(threadId(2)));
  const fork = foreignSessionOn(disk, rolloutOf(threadId(3)));
  requireSound(fork);
  expect(questionsOf(fork)).toEqual(["Forked again"]);
  expect(fidelityOf(fork.log).warnings).toEqual([{ record: 0, sentence: expect.stringContaining(threadId(2)) }]);
  const circle = new CodexWriter();
  const history_base = { thread_id: threadId(4), end_ordinal_exclusive: 1, end_byte_offset: 0 };
  circle.meta({ id: threadId(5), history_base });
  disk.put(rolloutOf(threadId(5)), Buffer.from(circle.text));
  const other = new CodexWriter();
  other.meta({ id: threadId(4), history_base: { ...history_base, thread_id: threadId(5) } });
  disk.put(rolloutOf(threadId(4)), Buffer.from(other.text));
  requireSound(foreignSessionOn(disk, rolloutOf(threadId(5))));
});
