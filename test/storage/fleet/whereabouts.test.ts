/**
 * Where a session is, and whether it is deleted, is one fact for all machines: random histories of what machines do to whole
 * sessions of a fleet, and the shortest ones that went wrong. Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json } from "../../support/server.ts";
import { AWAY, fleetSuite, instead, type Machine, meddle } from "../../support/sql-machines.ts";
import { SWEEP } from "../../support/tiers.ts";

const SEED = Number(process.env.PI_TEST_SEED ?? 1);
const TIMES = Number(process.env.PI_TEST_TIMES ?? 1);

const VERBS = [
  ..."delete delete restore restore archive archive unarchive relocate relocate undo undo redo open open append list".split(" "),
] as const;
const RARE = ["purge", "cut", "away", "killed", "foreign"] as const;

/** What a machine does to the session, and a number that says more of it. */
interface Step {
  readonly by: number;
  readonly verb: string;
  readonly n: number;
}

const step = (machines: number, verbs: readonly string[]) =>
  fc.record({ by: fc.nat(machines - 1), verb: fc.constantFrom(...verbs), n: fc.nat(2) });

/** Failures that say that something is not there any more, or is so already. */
const REFUSALS = "session_not_found already_exists path_outside_root ground_moved cannot_undo operation_not_found".split(" ");

describe("where a session of a fleet is", needs(POSTGRESQL), () => {
  const suite = fleetSuite();

  class History {
    readonly machines: Machine[];
    readonly sessionId: string;
    readonly cwds: readonly string[];
    readonly said: string[] = ["text"];
    readonly told: string[] = [];
    /** Whether the lines are nowhere in the database. */
    isPurged = false;
    /** Whether something was cut off, so that answers are not always those of the fact. */
    private ends: (() => void)[] = [];

    constructor(machines: Machine[], sessionId: string) {
      this.machines = machines;
      this.sessionId = sessionId;
      const { cwd, home } = machines[0].place;
      this.cwds = [cwd, home, machines[1].place.home];
    }

    /** The files of the session on a machine, where agents and our lists look. */
    filesOf({ place }: Machine): string[] {
      const { variables } = place;
      const folders = [variables.PI_SESSIONS_DIR, variables.PI_SESSION_SERVER_STATE_DIR, place.home];
      const found = new Set<string>();
      for (const folder of folders)
        if (folder && existsSync(folder))
          for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" }))
            if (/\.jsonl$/.test(name) && name.includes(this.sessionId)) found.add(join(folder, name));
      return [...found].filter((file) => !file.includes("/trash/") && !file.includes("/quarantine/"));
    }

    get fact(): { isDeleted: boolean; archived: boolean; cwd: string } {
      const [state, archived, cwd] = suite
        .row(this.sessionId, "state, archived, (select facts from pi_fleet.described d where d.session_id = id)")
        .split("|");
      return { isDeleted: state === "2", archived: archived === "t", cwd };
    }

    async request(by: Machine, method: string, params: Json): Promise<Json> {
      const reply = await by.wire.request(method, params);
      if (reply.error) {
        const { name } = reply.error.data;
        this.told.push(`  ${method}: ${name}: ${reply.error.message}`);
        if (!REFUSALS.includes(name) && this.ends.length === 0) expect.fail(`${method}: ${JSON.stringify(reply.error)}`);
      }
      return reply;
    }

    async run(one: Step): Promise<void> {
      const { by, verb, n } = one;
      const machine = this.machines[by];
      const { sessionId } = this;
      this.told.push(`${by} ${verb} ${n}`);
      const before = this.fact;
      if (verb === "delete") {
        const { result } = await this.request(machine, "delete_session", { sessionId });
        if (result) expect(this.fact.isDeleted).toBe(true);
      } else if (verb === "purge") {
        const { result } = await this.request(machine, "delete_session", { sessionId, permanent: true });
        if (result) this.isPurged = true;
      } else if (verb === "restore") {
        const { result } = await this.request(machine, "restore_session", { sessionId });
        if (result) expect(this.fact.isDeleted).toBe(false);
        if (!before.isDeleted) expect(result === undefined || this.filesOf(machine).length === 1).toBe(true);
      } else if (verb === "archive" || verb === "unarchive") {
        const { result } = await this.request(machine, `${verb}_session`, { sessionId });
        if (result) expect(this.fact).toMatchObject({ isDeleted: false, archived: verb === "archive" });
      } else if (verb === "relocate") {
        await this.request(machine, "relocate_session", { sessionId, cwd: this.cwds[n] });
      } else if (verb === "undo" || verb === "redo") {
        await this.request(machine, verb, { sessionId });
      } else if (verb === "list") await this.checkList(machine);
      else if (verb === "open") await this.opens(machine);
      else if (verb === "append") {
        const { result } = await this.request(machine, "switch_session", { sessionId });
        if (!result) return;
        const text = `said ${this.said.length}`;
        const { result: done } = await this.request(machine, "append", { entries: [user(text)] });
        if (done) this.said.push(text);
        await suite.leave(machine.wire, sessionId);
      }
      this.checkFiles();
    }

    checkFiles(): void {
      for (const machine of this.machines) {
        const files = this.filesOf(machine);
        if (files.length > 1) expect.fail(`two files: ${files.join(" ")}`);
      }
    }

    async opens(machine: Machine): Promise<void> {
      const { sessionId } = this;
      const { isDeleted } = this.fact;
      const reply = await this.request(machine, "switch_session", { sessionId });
      if (isDeleted) {
        expect(reply.error?.data.name, JSON.stringify(reply.result)).toBe("session_not_found");
        expect(reply.error.message).toMatch(/deleted/);
        expect(this.filesOf(machine)).toEqual([]);
        return;
      }
      expect(reply.error).toBe(undefined);
      const { entries } = await machine.wire.result("get_entries");
      const texts = JSON.stringify(entries);
      for (const text of this.said) expect(texts).toContain(`"${text}"`);
      await machine.wire.result("new_session");
      const files = this.filesOf(machine);
      expect(files).toHaveLength(1);
      expect(/\/archive\//.test(files[0])).toBe(this.fact.archived);
      const header = JSON.parse(readFileSync(files[0], "utf8").split("\n")[0]);
      expect(this.fact.cwd).toContain(JSON.stringify(header.cwd));
    }

    async checkList({ wire }: Machine): Promise<void> {
      const { isDeleted, archived, cwd } = this.fact;
      for (const asked of [false, true]) {
        const { sessions } = await wire.result("list_sessions", asked ? { archived: true } : {});
        const found = sessions.filter((one: Json) => one.sessionId === this.sessionId);
        expect([asked, found.length]).toEqual([asked, Number(!isDeleted && archived === asked)]);
        if (found.length > 0) expect(cwd).toContain(JSON.stringify(found[0].cwd));
      }
    }

    async finish(): Promise<void> {
      for (const machine of this.machines) await this.checkList(machine);
      for (const machine of this.machines) await this.opens(machine);
      this.checkFiles();
      if (this.isPurged || !this.fact.isDeleted) return;
      await this.machines[0].wire.result("restore_session", { sessionId: this.sessionId });
      for (const machine of this.machines) await this.opens(machine);
    }

    async end(): Promise<void> {
      for (const { lives, fleet } of this.machines) {
        await lives.end();
        await fleet.fleet.close();
      }
    }
  }

  const runAll = async (count: number, steps: readonly Step[]): Promise<void> => {
    const machines: Machine[] = [];
    for (let n = 0; n < count; n++) machines.push(await suite.machine());
    const { sessionId } = await suite.make(machines[0], "text");
    const history = new History(machines, sessionId);
    try {
      for (const one of steps) await history.run(one);
      await history.finish();
    } catch (error) {
      (error as Error).message = `${history.told.join("\n")}\n${(error as Error).message}`;
      throw error;
    } finally {
      await history.end();
    }
  };

  const histories = async (verbs: readonly string[], numRuns: number): Promise<void> =>
    fc.assert(
      fc.asyncProperty(fc.array(step(3, verbs), { minLength: 3, maxLength: 14 }), (steps) => runAll(3, steps)),
      { seed: SEED, numRuns: numRuns * TIMES, endOnFailure: process.env.PI_SHRINK !== "1" },
    );

  test("whatever machines do to it one after the other", () => histories(VERBS, 6));
  test("whatever machines do to it one after the other (many times)", SWEEP, () => histories(VERBS, 60));
  test("also where it is deleted for good", SWEEP, () => histories([...VERBS, "purge"], 30));
});
