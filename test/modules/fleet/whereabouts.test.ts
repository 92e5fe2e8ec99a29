/**
 * The place of a session, and its deletion, is one fact for all machines: random histories of machines that work on whole
 * sessions of a fleet, and the shortest ones that went wrong. Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { appendFileSync, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { headerFile } from "../../../src/storage/fs/container-paths.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { user } from "../../support/drafts.ts";
import { userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json, Place, Wire } from "../../support/server.ts";
import { SWEEP } from "../../support/tiers.ts";
import { befall, fleetSuite, type Machine } from "./support/sql-machines.ts";

const SEED = Number(process.env.PI_TEST_SEED ?? 1);
const TIMES = Number(process.env.PI_TEST_TIMES ?? 1);

const VERBS = [
  ..."delete delete restore restore archive archive unarchive relocate relocate undo undo redo open open append list".split(
    " ",
  ),
] as const;
/** Faults of a machine at a step. */
const FAULTS = ["unconfirmed", "unrestored", "away", "killed"] as const;

/** An action of a machine on the session, its number, and a fault meanwhile. */
interface Step {
  readonly by: number;
  readonly verb: string;
  readonly n: number;
  readonly fault?: (typeof FAULTS)[number];
  /** After how many changes of the disk it is killed. */
  readonly after?: number;
  /** Another machine that does something at the same time. */
  readonly rival?: Step;
}

interface Kind {
  readonly verbs: readonly string[];
  readonly store?: "v2";
  /** True if machines go on while the database is away. */
  readonly isJournaled?: boolean;
  readonly isCrowded?: boolean;
  readonly isFaulty?: boolean;
}

const plain = (machines: number, verbs: readonly string[]) => ({
  by: fc.nat(machines - 1),
  verb: fc.constantFrom(...verbs),
  n: fc.nat(2),
});

function step(machines: number, { verbs, isCrowded, isFaulty }: Kind): fc.Arbitrary<Step> {
  const fault = fc.option(fc.constantFrom(...FAULTS), { nil: undefined, freq: 2 });
  const one = isFaulty ? { ...plain(machines, verbs), fault, after: fc.nat(9) } : plain(machines, verbs);
  if (!isCrowded) return fc.record(one);
  return fc.record({ ...one, rival: fc.option(fc.record(plain(machines, verbs)), { nil: undefined, freq: 2 }) });
}

/** Failures that say that something is not there any more, or is so already. */
const REFUSALS =
  "session_not_found already_exists path_outside_root ground_moved cannot_undo operation_not_found".split(" ");

describe("where a session of a fleet is", needs(POSTGRESQL), () => {
  const suite = fleetSuite();

  /** A machine whose server may be killed, and is started again. */
  class Mortal {
    machine!: Machine;
    private readonly kind: Kind;
    private readonly disk: Disk = { ...realDisk };
    /** Changes of the disk that it makes before it is killed. */
    private left = Number.POSITIVE_INFINITY;
    private isKilled: () => void = () => {};

    constructor(kind: Kind) {
      this.kind = kind;
      for (const name of ["rename", "link", "remove", "create", "makeFolder"] as const) {
        const change = realDisk[name] as (...given: unknown[]) => unknown;
        Object.assign(this.disk, {
          [name]: (...given: unknown[]) => {
            this.step();
            return change(...given);
          },
        });
      }
    }

    async start(place?: Place): Promise<this> {
      const { store, isJournaled } = this.kind;
      const args = store ? ["--store", store] : [];
      const fleet = isJournaled ? suite.alone() : suite.connect();
      this.machine = await suite.machine({ disk: this.disk, args, place, fleet });
      return this;
    }

    get wire(): Wire {
      return this.machine.wire;
    }

    private step(): void {
      if (--this.left >= 0) return;
      this.left = Number.POSITIVE_INFINITY;
      void this.machine.lives.kill();
      this.isKilled();
      throw Object.assign(new Error("the process is gone"), { code: "EIO" });
    }

    /** Gives what only this machine has, and begins anew. */
    async upload(): Promise<void> {
      await this.machine.lives.end();
      suite.endLeases();
      await suite.verb("push", this.machine.place);
      await this.start(this.machine.place);
    }

    /** Runs until it is done, or the server is killed. Another server is started then. */
    async until(after: number, run: () => Promise<void>): Promise<void> {
      const killed = new Promise<"killed">((resolve) => {
        this.isKilled = () => resolve("killed");
      });
      this.left = after;
      const done = run().catch((error) => {
        if (Number.isFinite(this.left)) throw error;
      });
      const how = await Promise.race([killed, done]);
      this.left = Number.POSITIVE_INFINITY;
      if (how !== "killed") return;
      await new Promise((resolve) => setTimeout(resolve, 20));
      suite.endLeases();
      await this.start(this.machine.place);
    }
  }

  class History {
    readonly machines: Mortal[];
    readonly sessionId: string;
    readonly cwds: readonly string[];
    readonly said: string[] = ["text"];
    readonly edits: { by: number; text: string }[] = [];
    /** Texts that a machine acknowledged alone. */
    readonly alone: string[] = [];
    readonly reports: string[] = [];
    private written = 0;
    /** True if the lines are nowhere in the database. */
    isPurged = false;
    /** True if answers may be about an obstacle. */
    private isDisturbed = false;

    constructor(machines: Mortal[], sessionId: string) {
      this.machines = machines;
      this.sessionId = sessionId;
      const [one, two] = machines.map(({ machine }) => machine.place);
      this.cwds = [one.cwd, one.home, two.home];
    }

    /** The files of the session on a machine, where agents and our lists look. Two names of one file are one. */
    filesOf({ machine: { place } }: Mortal): string[] {
      const found = new Map<number, string>();
      for (const folder of [join(place.home, ".pi"), join(place.state, "archive")])
        if (existsSync(folder))
          for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" }))
            if (/^[^.]*\.(?:jsonl|v2)$/.test(basename(name)) && basename(name).includes(this.sessionId)) {
              const file = join(folder, name);
              found.set(statSync(file).ino, file);
            }
      return [...found.values()];
    }

    get fact(): { isDeleted: boolean; archived: boolean; cwd: string } {
      const [state, archived, cwd] = suite
        .row(this.sessionId, "state, archived, (select facts from pi_fleet.described d where d.session_id = id)")
        .split("|");
      return { isDeleted: state !== "1", archived: archived === "t", cwd };
    }

    async request(by: Mortal, method: string, params: Json): Promise<Json> {
      const reply = await by.wire.request(method, params);
      if (reply.error) {
        const { name } = reply.error.data;
        this.reports.push(`  ${method}: ${name}: ${reply.error.message}`);
        const isInTheWay =
          this.isDisturbed && /^(?:session_locked|storage_failed|content_modified|outcome_unknown)$/.test(name);
        if (!REFUSALS.includes(name) && !isInTheWay) expect.fail(`${method}: ${JSON.stringify(reply.error)}`);
      } else this.reports.push(`  ${method}: done`);
      return reply;
    }

    async run(one: Step): Promise<void> {
      const { rival, by, fault } = one;
      const mortal = this.machines[by];
      const { fleet } = mortal.machine;
      this.isDisturbed = fault !== undefined || rival !== undefined;
      this.reports.push(JSON.stringify(one));
      if (rival !== undefined && rival.by !== by) await Promise.all([this.does(one), this.does(rival)]);
      else if (fault === "killed") await mortal.until(one.after ?? 0, () => this.does(one));
      else {
        const end = fault ? befall(fault, fleet) : () => {};
        await this.does(one);
        end();
      }
      if (this.isDisturbed) suite.endLeases();
      this.checkFiles();
    }

    private async does({ by, verb, n }: Step): Promise<void> {
      const machine = this.machines[by];
      const { sessionId, isDisturbed, fact: before } = this;
      if (verb === "edit") return this.edit(machine, by);
      if (verb === "list") return isDisturbed ? undefined : this.checkList(machine);
      if (verb === "open") return isDisturbed ? undefined : this.opens(machine);
      if (verb === "append") return this.append(machine);
      const [method, more] =
        verb === "purge"
          ? ["delete_session", { permanent: true }]
          : /do$/.test(verb)
            ? [verb, {}]
            : [`${verb}_session`, verb === "relocate" ? { cwd: this.cwds[n] } : {}];
      const { result } = await this.request(machine, method, { sessionId, ...more });
      if (verb === "purge" && result) this.isPurged = true;
      if (!result || isDisturbed) return;
      if (verb === "delete" || verb === "restore") expect(this.fact.isDeleted).toBe(verb === "delete");
      // A file that has more than a deleted session is moved by itself.
      else if (/archive/.test(verb) && !(before.isDeleted && this.edits.length > 0))
        expect(this.fact).toMatchObject({ isDeleted: false, archived: verb === "archive" });
    }

    private async append(machine: Mortal): Promise<void> {
      const { sessionId } = this;
      const { result } = await this.request(machine, "switch_session", { sessionId });
      if (!result) return;
      const text = `said ${++this.written}`;
      const { result: done } = await this.request(machine, "append", { entries: [user(text)] });
      if (done) (done.durability === "local" ? this.alone : this.said).push(text);
      await this.request(machine, "new_session", {});
      if (!this.isDisturbed)
        await suite.until(`select count(holder) from pi_fleet.session where id = '${sessionId}'`, "0");
    }

    /** Another program, which knows nothing of the fleet, writes to the file. */
    private edit(machine: Mortal, by: number): void {
      const [file] = this.filesOf(machine);
      if (file === undefined) return;
      const text = `edited ${++this.written}`;
      const last = JSON.parse(readFileSync(file, "utf8").trimEnd().split("\n").at(-1) as string);
      const parentId = last.type === "session" ? null : last.id;
      appendFileSync(file, `${userText(`edit${String(this.written).padStart(4, "0")}`, parentId, text)}\n`);
      this.edits.push({ by, text });
    }

    checkFiles(): void {
      for (const machine of this.machines) expect(this.filesOf(machine).slice(1), "two files").toEqual([]);
    }

    async opens(machine: Mortal): Promise<void> {
      const { sessionId } = this;
      const { isDeleted } = this.fact;
      const reply = await this.request(machine, "switch_session", { sessionId });
      if (isDeleted) {
        if (this.edits.length + this.alone.length > 0 && reply.result)
          return void (await machine.wire.result("new_session"));
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
      // A file with entries of its own comes to its place once the fleet has them.
      for (let n = 0; n < Math.min(2, this.edits.length); n++) {
        await machine.wire.result("switch_session", { sessionId });
        await machine.wire.result("new_session");
      }
      const files = this.filesOf(machine);
      expect(files).toHaveLength(1);
      expect([files[0], /\/archive\//.test(files[0])]).toEqual([files[0], this.fact.archived]);
      const [file] = files;
      const header = JSON.parse(readFileSync(file.endsWith(".v2") ? headerFile(file) : file, "utf8").split("\n")[0]);
      expect(this.fact.cwd).toContain(JSON.stringify(header.cwd));
    }

    async checkList({ wire }: Mortal): Promise<void> {
      const { isDeleted, archived, cwd } = this.fact;
      for (const asked of [false, true]) {
        const { sessions } = await wire.result("list_sessions", asked ? { archived: true } : {});
        const found = sessions.filter((one: Json) => one.sessionId === this.sessionId);
        if (isDeleted && this.edits.length + this.alone.length > 0) continue;
        expect([asked, found.length]).toEqual([asked, Number(!isDeleted && archived === asked)]);
        if (found.length > 0) expect(cwd).toContain(JSON.stringify(found[0].cwd));
      }
    }

    async finish(): Promise<void> {
      this.reports.push("finish");
      if (this.alone.length > 0) for (const machine of this.machines) await machine.upload();
      this.isDisturbed = false;
      for (const machine of this.machines) await this.checkList(machine);
      for (const machine of this.machines) await this.opens(machine);
      this.checkFiles();
      if (this.isPurged) return;
      if (this.fact.isDeleted) {
        await this.machines[0].wire.result("restore_session", { sessionId: this.sessionId });
        for (const machine of this.machines) await this.opens(machine);
      }
      this.said.push(...this.alone);
      if (this.alone.length > 0) for (const machine of this.machines) await this.opens(machine);
      for (const { by, text } of this.edits) {
        const { home } = this.machines[by].machine.place;
        const isKept = readdirSync(home, { recursive: true, encoding: "utf8" }).some(
          (name) => statSync(join(home, name)).isFile() && readFileSync(join(home, name), "utf8").includes(text),
        );
        expect([text, isKept]).toEqual([text, true]);
      }
    }
  }

  const runAll = async (kind: Kind, count: number, steps: readonly Step[]): Promise<void> => {
    const machines: Mortal[] = [];
    for (let n = 0; n < count; n++) machines.push(await new Mortal(kind).start());
    const { sessionId } = await suite.make(machines[0].machine, "text");
    const history = new History(machines, sessionId);
    try {
      for (const one of steps) await history.run(one);
      await history.finish();
    } catch (error) {
      (error as Error).message = `${history.reports.join("\n")}\n${(error as Error).message}`;
      throw error;
    } finally {
      for (const { machine } of machines) {
        await machine.lives.end();
        await machine.fleet.fleet.close();
      }
    }
  };

  const histories = async (kind: Kind, numRuns: number): Promise<void> =>
    fc.assert(
      fc.asyncProperty(fc.array(step(3, kind), { minLength: 3, maxLength: 14 }), (steps) => runAll(kind, 3, steps)),
      { seed: SEED, numRuns: numRuns * TIMES, endOnFailure: process.env.PI_SHRINK !== "1" },
    );

  test("whatever machines do to it one after the other", () => histories({ verbs: VERBS }, 2));
  const many: Readonly<Record<string, readonly [Kind, number]>> = {
    "one after the other": [{ verbs: VERBS }, 60],
    "and it is deleted for good": [{ verbs: [...VERBS, "purge"] }, 30],
    "at the same time": [{ verbs: VERBS, isCrowded: true }, 40],
    "while they die and lose the database": [{ verbs: VERBS, isFaulty: true }, 60],
    "with containers": [{ verbs: VERBS, store: "v2" }, 20],
    "while they die, with containers": [{ verbs: VERBS, store: "v2", isFaulty: true }, 20],
    "while they go on alone": [{ verbs: [...VERBS, "append"], isJournaled: true, isFaulty: true }, 40],
    "while they die and do it at the same time": [{ verbs: VERBS, isFaulty: true, isCrowded: true }, 30],
    "while other programs write to its files": [{ verbs: [...VERBS, "edit", "edit"] }, 30],
  };
  test.each(Object.entries(many))("whatever machines do to it %s (many times)", SWEEP, (_, [kind, count]) =>
    histories(kind, count),
  );
});
