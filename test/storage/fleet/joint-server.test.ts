/** The server of appends that are sent together is that on which their sessions were taken, whatever becomes of one of them. */

import { expect, test } from "vitest";
import type { FleetBatch } from "../../../src/core/ports/fleet.ts";
import type { Connections, SqlAnswer, SqlQuestion } from "../../../src/storage/fleet/connections.ts";
import { NOTHING } from "../../../src/storage/fleet/ends.ts";
import { PostgresFleet } from "../../../src/storage/fleet/postgres.ts";

const SERVER = "7/1";

const batchOf = (sessionId: string): FleetBatch => {
  const facts = { counts: { messages: 0, modified: null, isPlain: true }, texts: [], spendings: [] };
  const lines = [Buffer.from("{}")];
  return { sessionId, epoch: 1, before: NOTHING, after: { ...NOTHING, entries: 1 }, lines, heads: ["[]"], facts };
};

test("a session that is let go while its append waits takes the condition about the server from no other", async () => {
  const asked: { server: unknown; values: readonly unknown[] }[] = [];
  const answers: ((answer: SqlAnswer) => void)[] = [];
  const by = { durability: "primary", version: "", place: { system: "7", timeline: 1 } } as const;
  const end = { entries: 0, bytes: 0, chain: NOTHING.chain, epoch: 1, generation: 0, server: SERVER, state: 0 };
  const connections = {
    run: (question: SqlQuestion): Promise<SqlAnswer> => {
      const statement = typeof question === "function" ? question(by) : question;
      const { text, values = [] } = statement;
      if (!text.includes("pi_fleet.entry")) return Promise.resolve({ kind: "done", rows: [end], by });
      asked.push({ server: (statement as { server?: string }).server, values });
      return new Promise((resolve) => answers.push(resolve));
    },
    read: () => Promise.resolve([end]),
  } as unknown as Connections;
  const fleet = new PostgresFleet(connections, { id: "me", shown: { client: "test", pid: 1, since: "" } });
  for (const id of ["one", "two", "a", "b"]) await fleet.take(id, 0, Buffer.from("{}"));
  const appends = ["one", "two", "a", "b"].map((id) => fleet.append(batchOf(id)));
  await expect.poll(() => asked.length).toBe(2);
  await fleet.release("a", 1);
  answers[0]({ kind: "away", reason: "test" });
  await expect.poll(() => asked.length).toBe(3);
  expect(asked.map(({ server }) => server)).toEqual([SERVER, SERVER, SERVER]);
  for (const answer of answers) answer({ kind: "away", reason: "test" });
  expect((await Promise.all(appends)).map(({ kind }) => kind)).toEqual(["away", "away", "away", "away"]);
});
