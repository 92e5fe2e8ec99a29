/** Sessions of Codex: facts of the whole, and files that continue others. */

import { expect, test } from "vitest";
import { FaultDisk } from "../../support/disk.ts";
import { CODEX_FILE, CodexWriter, wholeCodexSession } from "../../support/foreign/codex.ts";
import {
  drawnContext,
  drawnTree,
  entriesOf,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requireSound,
} from "./support/checks.ts";

test("the model, the level and the summary are those of the end", () => {
  const session = foreignSession(wholeCodexSession().text, CODEX_FILE);
  expect(session.model()).toEqual({ provider: "openai", id: "gpt-5-codex" });
  expect(session.thinkingLevel()).toBe("high");
  const roles = drawnContext(session).map((line) => line.split(":")[0]);
  expect(roles).toEqual(["summary", "custom", "user", "model"]);
  const spoken = entriesOf(session).find(({ message }) => (message as { role?: string })?.role === "assistant");
  expect(spoken?.message).toMatchObject({ model: "gpt-5-codex" });
});

test.each([
  ["Chunk ID: 1a2b3c\nWall time: 0.2 seconds\nProcess exited with code 1\nOutput:\nno", true],
  ["Exit code: 101\nWall time: 2 seconds\nOutput:\nno", true],
  [JSON.stringify({ output: "no", metadata: { exit_code: 1, duration_seconds: 0.1 } }), true],
  ["Exit code: 0\nWall time: 2 seconds\nOutput:\nExit code: 1", false],
  ["Process exited with code 0\nOutput:\nProcess exited with code 1", false],
  ["It says Exit code: 1", false],
  [JSON.stringify({ output: "yes", metadata: { exit_code: 0 } }), false],
  ['{"no": JSON', false],
])("a command failed if Codex's words around its output say so: %j", (output, isError) => {
  const w = new CodexWriter();
  w.ask("Run it");
  w.item("function_call", { name: "shell", arguments: "{}", call_id: "call_1" });
  w.item("function_call_output", { call_id: "call_1", output });
  const results = entriesOf(foreignSession(w.text, CODEX_FILE)).map(
    ({ message }) => message as Record<string, unknown>,
  );
  expect(results.find((message) => message?.role === "toolResult")).toMatchObject({ toolName: "shell", isError });
});

/** Returns the id of a thread, which has the day of its creation. */
function threadId(n: number): string {
  return `0199448c-8400-7000-8000-${String(n).padStart(12, "0")}`;
}

function rolloutOf(name: string): string {
  return `/elsewhere/sessions/2025/09/13/rollout-2025-09-13T10-00-00-${name}.jsonl`;
}

const [FIRST, FORK, AGAIN] = [1, 2, 3].map((n) => rolloutOf(threadId(n)));
const REVERTED = rolloutOf(`${threadId(1)}_${threadId(9)}`);

/** Three threads: a fork of one that continues its file, and a fork of that; and the first one again after a revert. */
function paginatedThreads(): FaultDisk {
  const disk = new FaultDisk();
  const first = new CodexWriter();
  first.meta({ id: threadId(1), history_mode: "paginated" });
  first.ask("First question");
  first.tools(2);
  first.reply("First answer");
  const end = Buffer.byteLength(first.text);
  first.ask("To be taken back");
  first.reply("Its answer");
  disk.put(FIRST, Buffer.from(first.text));
  const put = (file: string, id: string, base: string, at: number, question: string): number => {
    const writer = new CodexWriter();
    const history_base = { thread_id: base, end_ordinal_exclusive: 1, end_byte_offset: at };
    writer.meta({ id, history_mode: "paginated", history_base, ...(base === id ? {} : { forked_from_id: base }) });
    writer.ask(question);
    writer.reply(`Answer to ${question}`);
    disk.put(file, Buffer.from(writer.text));
    return Buffer.byteLength(writer.text);
  };
  const length = put(FORK, threadId(2), threadId(1), end, "Forked");
  put(AGAIN, threadId(3), threadId(2), length, "Forked again");
  put(REVERTED, threadId(1), threadId(1), end, "After the revert");
  return disk;
}

function questionsAt(disk: FaultDisk, file: string): string {
  const session = foreignSessionOn(disk, file);
  requireSound(session);
  return drawnContext(session)
    .filter((line) => line.startsWith("user"))
    .join();
}

test("a fork that only names the beginning of another file is a whole session, and a revert is a branch of its own", () => {
  const disk = paginatedThreads();
  expect(questionsAt(disk, AGAIN)).toBe("user: First question,user: Forked,user: Forked again");
  const [first, parent, fork, reverted] = [FIRST, FORK, AGAIN, REVERTED].map((file) => foreignSessionOn(disk, file));
  expect([fork.parentSession, fork.id === parent.id]).toEqual([FORK, false]);
  const idsOf = (session: typeof fork) => entriesOf(session).map(({ id }) => id);
  expect(idsOf(fork).slice(0, parent.log.nodes.count)).toEqual(idsOf(parent));
  expect(reverted.id).toBe(first.id);
  expect(questionsAt(disk, FIRST)).toBe("user: First question,user: To be taken back");
  expect(questionsAt(disk, REVERTED)).toBe("user: First question,user: After the revert");
  const end = drawnTree(reverted).slice(-4, -1);
  expect(end).toEqual(["user: To be taken back", "model: Its answer", "5 < user: After the revert"]);
});

test("a session whose beginning is missing, or leads back to it, opens without it, and says so", () => {
  const disk = paginatedThreads();
  disk.remove(FORK);
  expect(questionsAt(disk, AGAIN)).toBe("user: Forked again");
  const { warnings } = fidelityOf(foreignSessionOn(disk, AGAIN).log);
  expect(warnings).toEqual([{ record: 0, sentence: expect.stringContaining(threadId(2)) }]);
  for (const [id, other] of [
    [4, 5],
    [5, 4],
  ]) {
    const w = new CodexWriter();
    const base = { thread_id: threadId(other), end_ordinal_exclusive: 1, end_byte_offset: 0 };
    w.meta({ id: threadId(id), history_base: base });
    disk.put(rolloutOf(threadId(id)), Buffer.from(w.text));
  }
  requireSound(foreignSessionOn(disk, rolloutOf(threadId(5))));
});
