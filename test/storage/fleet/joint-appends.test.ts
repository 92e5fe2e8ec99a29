/** Appends that are sent together: which of them, and what becomes of each. */

import { describe, expect, test } from "vitest";
import type { FleetOutcome } from "../../../src/core/ports/fleet.ts";
import type { Connections, SqlAnswer, SqlQuestion } from "../../../src/storage/fleet/connections.ts";
import { NOTHING } from "../../../src/storage/fleet/ends.ts";
import { type JointAppend, JointAppends } from "../../../src/storage/fleet/joint-appends.ts";
import { PostgresFleet } from "../../../src/storage/fleet/postgres.ts";
import { batchOf } from "../../support/fleet-commits.ts";
import { range } from "../../support/random.ts";

const DONE: FleetOutcome = { kind: "committed", durability: "primary" };

const SERVER = "7/1";

const batchTo = (id: string, bytes = 10) => batchOf({ id, epoch: 1, end: NOTHING }, ["x".repeat(bytes)]);
const appendTo = (sessionId: string, bytes?: number, server = SERVER): JointAppend => ({
  ...{ batch: batchTo(sessionId, bytes), sessionId, server },
});

/** Appends of which the test answers one statement after the other. */
class Statements {
  readonly asked: string[][] = [];
  private readonly answers: ((outcomes: readonly FleetOutcome[] | Error) => void)[] = [];
  readonly joint = new JointAppends<JointAppend>((appends) => {
    this.asked.push(appends.map(({ sessionId }) => sessionId));
    return new Promise((resolve, reject) =>
      this.answers.push((outcomes) => (outcomes instanceof Error ? reject(outcomes) : resolve(outcomes))),
    );
  });

  async answer(n: number, outcomes: readonly FleetOutcome[] | Error = this.asked[n].map(() => DONE)): Promise<void> {
    this.answers[n](outcomes);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe("appends of one process", () => {
  test("go at once while few are on their way, and then together, each with its own outcome", async () => {
    const all = new Statements();
    const outcomes = range(0, 6).map((n) => all.joint.append(appendTo(`${n}`)));
    expect(all.asked).toEqual([["0"], ["1"]]);
    await all.answer(1);
    expect(all.asked[2]).toEqual(["2", "3", "4", "5"]);
    await all.answer(2, [DONE, { kind: "refused" }, { kind: "unknown", reason: "lost" }, DONE]);
    await all.answer(0, [{ kind: "away", reason: "gone" }]);
    expect((await Promise.all(outcomes)).map(({ kind }) => kind)).toEqual([
      ...["away", "committed", "committed", "refused", "unknown", "committed"],
    ]);
  });

  test("of one session, of sessions of different servers and of many bytes are apart, and none is left waiting", async () => {
    const all = new Statements();
    const some = [
      ...[appendTo("a"), appendTo("b"), appendTo("c"), appendTo("c"), appendTo("d", 10, "7/2")],
      ...[appendTo("e", 300_000), appendTo("f"), appendTo("g")],
    ];
    const outcomes = some.map((append) => all.joint.append(append));
    for (let n = 0; n < 6; n++) await all.answer(n);
    expect(all.asked).toEqual([["a"], ["b"], ["c", "f", "g"], ["c"], ["d"], ["e"]]);
    expect(await Promise.all(outcomes)).toEqual(some.map(() => DONE));
  });

  test("that are to be alone are, wherever they wait", async () => {
    const all = new Statements();
    const alone = (id: string): JointAppend => ({ ...appendTo(id), isAlone: true });
    const some = [appendTo("a"), appendTo("b"), appendTo("c"), alone("d"), appendTo("e"), alone("f"), appendTo("g")];
    const outcomes = some.map((append) => all.joint.append(append));
    for (let n = 0; n < 5; n++) await all.answer(n);
    expect(all.asked).toEqual([["a"], ["b"], ["c", "e", "g"], ["d"], ["f"]]);
    expect(await Promise.all(outcomes)).toEqual(some.map(() => DONE));
  });

  test("are no more than a statement should have", async () => {
    const all = new Statements();
    const outcomes = range(0, 200).map((n) => all.joint.append(appendTo(`${n}`)));
    for (let n = 0; n < 6; n++) await all.answer(n);
    expect(all.asked.map(({ length }) => length)).toEqual([1, 1, 64, 64, 64, 6]);
    await Promise.all(outcomes);
  });

  test("fail together where their statement cannot be made, and the next ones go on", async () => {
    const all = new Statements();
    const [first, second] = ["a", "b"].map((id) => all.joint.append(appendTo(id)));
    const third = all.joint.append(appendTo("c"));
    const failing = expect(first).rejects.toThrow("too long");
    await all.answer(0, new Error("too long"));
    await failing;
    await all.answer(1);
    await all.answer(2);
    expect(await Promise.all([second, third])).toEqual([DONE, DONE]);
  });

  test("go to the server on which their sessions were taken, also where one of these is let go while it waits", async () => {
    const asked: unknown[] = [];
    const answers: ((answer: SqlAnswer) => void)[] = [];
    const by = { durability: "primary", version: "", place: { system: "7", timeline: 1 } } as const;
    const end = { ...NOTHING, epoch: 1, generation: 0, server: SERVER, state: 0 };
    const connections = {
      run: (question: SqlQuestion): Promise<SqlAnswer> => {
        const statement = typeof question === "function" ? question(by) : question;
        if (!statement.text.includes("pi_fleet.entry")) return Promise.resolve({ kind: "done", rows: [end], by });
        asked.push((statement as { server?: string }).server);
        return new Promise((resolve) => answers.push(resolve));
      },
      read: () => Promise.resolve([end]),
    } as unknown as Connections;
    const fleet = new PostgresFleet(connections, { id: "me", shown: { client: "test", pid: 1, since: "" } });
    const ids = ["one", "two", "a", "b"];
    for (const id of ids) await fleet.take(id, 0, Buffer.from("{}"));
    const appends = ids.map((id) => fleet.append(batchTo(id)));
    await expect.poll(() => asked.length).toBe(2);
    await fleet.release("a", 1);
    answers[0]({ kind: "away", reason: "test" });
    await expect.poll(() => asked.length).toBe(3);
    expect(asked).toEqual([SERVER, SERVER, SERVER]);
    for (const answer of answers) answer({ kind: "away", reason: "test" });
    expect((await Promise.all(appends)).map(({ kind }) => kind)).toEqual(ids.map(() => "away"));
  });
});
