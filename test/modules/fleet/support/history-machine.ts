/**
 * Machines of random histories: each has a disk, and a process that dies, stops and loses its connections and is then
 * replaced by the next. Its hosts write to different sessions at a time.
 */

import { expect } from "vitest";
import { Failure } from "../../../../src/core/failure.ts";
import { toBytes } from "../../../../src/core/json/json.ts";
import type { Fleet } from "../../../../src/core/ports/fleet.ts";
import type { Log, Store } from "../../../../src/core/ports/store.ts";
import { arrive } from "../../../../src/modules/fleet/replica/arrival.ts";
import type { Outage } from "../../../../src/modules/fleet/replica/outage.ts";
import { makeFleetStore, withReplica } from "../../../../src/modules/fleet/store.ts";
import { getPointerFile } from "../../../../src/storage/fs/container-paths.ts";
import { exists } from "../../../../src/storage/fs/disk.ts";
import { removeTree } from "../../../../src/storage/fs/staging.ts";
import { makeJsonlStore } from "../../../../src/storage/jsonl/store.ts";
import { noLocks } from "../../../../src/storage/locks/locks.ts";
import type { FileLogOptions } from "../../../../src/storage/log/write-state.ts";
import { makeSegmentedStore } from "../../../../src/storage/v2/store.ts";
import { FaultDisk } from "../../../support/disk.ts";
import { wrapped } from "../../../support/disturbed.ts";
import { testEnv } from "../../../support/env.ts";
import { headerText, userText } from "../../../support/lines.ts";
import type { Random } from "../../../support/random.ts";
import { beginning, textsOf } from "../../../support/sessions.ts";
import { fleetOptions, journalOn } from "./table-fleet.ts";

/** Options of machines, and the things they work on. */
export interface HistoryOptions {
  readonly random: Random;
  readonly machines: number;
  /** Hosts of each machine, which write at the same time; by default one. */
  readonly hosts?: number;
  readonly sessions: number;
  /** Appends that each host tries. */
  readonly steps: number;
  /** Returns the way of a new process on a machine to the fleet. */
  fleetOf(machine: number, life: number): Fleet;
  /** True if a promotion may forget acknowledged lines: then the machine that wrote them at least quarantines them. */
  readonly mayLose?: boolean;
  /** A process is stopped for a while. */
  pause(): Promise<void>;
  readonly tries: number;
  /** Returns the outage of a process that goes on while the fleet is away; without it, all of them refuse. */
  outageOf?(fleet: Fleet): Outage | undefined;
  /** Waits before the fleet is asked again. */
  wait?(tries: number): Promise<void>;
}

/** An append, and the outcome that the host got. */
export interface Written {
  readonly machine: HistoryMachine;
  readonly sessionId: string;
  readonly texts: readonly string[];
  readonly began: number;
  outcome: "acknowledged" | "refused" | "unknown";
  ended: number;
  /** True if it was acknowledged while the fleet was away: then it has no place in time there. */
  isLocal?: boolean;
}

/** Notes shared by all machines of a history. */
export interface HistoryNotes {
  readonly written: Written[];
  /** Returns the next moment. */
  tick(): number;
  readonly counts: { kills: number; pauses: number; quarantined: number; replaced: number; branches: number };
}

export const sessionIdOf = (n: number): string => `01991f6e-1f1d-7c3e-b0a4-${String(n).padStart(12, "0")}`;

/** Wraps something so that a dead process has no effect, except by requests sent before. */
function mortal<T extends object>(thing: T, isDead: () => boolean, dead: () => unknown): T {
  return wrapped(thing, (call) => (isDead() ? dead() : call()));
}

/** A process of a machine, until it dies. */
class HistoryProcess {
  readonly outage: Outage | undefined;
  readonly copies: Store;
  /** Sessions that hosts write to now. */
  readonly busy = new Set<string>();
  private markDead!: () => void;
  /** Resolves when it is dead. */
  readonly died = new Promise<void>((resolve) => {
    this.markDead = resolve;
  });
  isDead = false;
  /** Resolves when it goes on; while it is stopped, its hosts begin nothing. */
  stopped: Promise<void> | undefined;
  private readonly ours: Fleet;
  private readonly fleet: Fleet;
  private readonly logs = new Map<string, Log>();
  private readonly machine: HistoryMachine;
  private readonly options: HistoryOptions;

  constructor(machine: HistoryMachine, options: HistoryOptions, life: number) {
    this.machine = machine;
    this.options = options;
    const { number, ending, quarantined } = machine;
    const { tries, wait } = options;
    const isDead = (): boolean => this.isDead;
    const never = new Promise(() => {});
    this.ours = options.fleetOf(number, life);
    this.fleet = mortal(this.ours, isDead, () => never);
    this.outage = options.outageOf?.(this.fleet);
    const disk = mortal(machine.disk, isDead, () => {
      throw Object.assign(new Error("the process is gone"), { code: "EIO" });
    });
    const patience = async (n: number): Promise<boolean> => {
      if (n < tries) await wait?.(n);
      return n < tries;
    };
    const env = testEnv(number * 100 + life + 1);
    const common: FileLogOptions = withReplica(
      { disk, env, locks: noLocks, quarantine: "/root/quarantine", durability: "sync" },
      fleetOptions(this.fleet, {
        ...{ patience, trustedFor: 1e9, disk, outage: this.outage, quarantined },
        // A line has about 150 bytes: some processes keep every commit in packs, some those of two or three lines.
        long: [0, 200, 1e9][(number + life + 1) % 3],
        // Every other process sends those of two or three lines in parts.
        partBytes: [200, 2 << 20][(life + 1) % 2],
      }),
    );
    const fileFor = ({ id }: { id: string }): string => machine.fileOf(id);
    this.copies =
      ending === "v2"
        ? makeSegmentedStore({ ...common, containerFor: fileFor, segmentBytes: 1 << 20 })
        : makeJsonlStore({ ...common, fileFor });
  }

  die(): void {
    this.isDead = true;
    this.markDead();
    void this.ours.close();
  }

  async log(sessionId: string): Promise<Log> {
    const known = this.logs.get(sessionId);
    if (known) return known;
    const { machine, fleet, copies } = this;
    const store = makeFleetStore(copies);
    const file = machine.fileOf(sessionId);
    const place = {
      ...{ fleet, catalog: undefined, stores: [copies], open: store.open, storeAt: () => copies, filesOf: () => [] },
      ...{ holds: () => true, isListed: () => true, isInPlace: () => true, isUnreadable: () => false },
      ...{ headerAt: () => undefined, acknowledged: () => undefined, readEntries: () => [], moveToBackup: () => null },
      ...{ restoreBackup: () => {}, salvage: () => {}, moveToTrash: async () => false },
      bringTo: async (path: string) => path,
      journal: journalOn(machine.disk),
      find: (): string => {
        throw new Failure("session_not_found");
      },
      placeFor: ({ id }: { id: string }) => ({ path: machine.fileOf(id) }),
    };
    try {
      await arrive(place, machine.isHere(sessionId) ? { sessionPath: file } : { sessionId });
    } catch (error) {
      // A machine that goes on alone may begin a session that another one has, too.
      if (!this.outage || !this.options.random.chance(0.3)) throw error;
    }
    const log = machine.isHere(sessionId)
      ? store.open(file)
      : store.create(beginning(headerText({ id: sessionId }), file));
    this.logs.set(sessionId, log);
    return log;
  }

  /** Returns the log that is in the place of one now. */
  refreshed(sessionId: string, log: Log): Log {
    if (log.refresh().kind !== "replaced") return log;
    const { counts } = this.machine.notes;
    const next = log.reopen();
    log.close();
    if (next.nodes.count > 0 && next.nodes.isMarker(next.nodes.count - 1)) counts.branches++;
    this.logs.set(sessionId, next);
    counts.replaced++;
    return next;
  }

  close(sessionId: string): void {
    this.logs.get(sessionId)?.close();
    this.logs.delete(sessionId);
  }
}

export class HistoryMachine {
  readonly disk = new FaultDisk();
  readonly number: number;
  readonly ending: "jsonl" | "v2";
  /** Quarantined lines, and those of copies that were moved away. */
  readonly quarantined: string[] = [];
  readonly notes: HistoryNotes;
  private readonly options: HistoryOptions;
  private life = 0;
  private count = 0;
  private readonly hosts: number;
  private process: HistoryProcess;

  constructor(options: HistoryOptions, number: number, notes: HistoryNotes) {
    this.options = options;
    this.number = number;
    this.ending = number % 2 === 0 ? "jsonl" : "v2";
    this.notes = notes;
    this.disk.makeFolder("/root/sessions");
    this.hosts = options.hosts ?? 1;
    this.process = this.begun();
  }

  private begun(): HistoryProcess {
    return new HistoryProcess(this, this.options, this.life++);
  }

  fileOf(id: string): string {
    return `/root/sessions/${id}.${this.ending}`;
  }

  isHere(id: string): boolean {
    const file = this.fileOf(id);
    return exists(this.disk, file) || (this.ending === "v2" && exists(this.disk, getPointerFile(file)));
  }

  async run(): Promise<void> {
    await Promise.all(Array.from({ length: this.hosts }, () => this.host()));
  }

  private async host(): Promise<void> {
    const { random, steps, sessions } = this.options;
    for (let n = 0; n < steps; n++) {
      const { process } = this;
      const sessionId = sessionIdOf(random.int(sessions));
      if (process.busy.has(sessionId)) continue;
      process.busy.add(sessionId);
      // A dead process does not continue its step.
      await Promise.race([process.died, this.step(process, sessionId)]);
      process.busy.delete(sessionId);
    }
  }

  private async step(process: HistoryProcess, sessionId: string): Promise<void> {
    const { random } = this.options;
    await process.stopped;
    let log: Log;
    try {
      log = await process.log(sessionId);
      if (!random.chance(0.1)) await log.replica?.ready();
      log = process.refreshed(sessionId, log);
    } catch {
      // The fleet is away: another time.
      return;
    }
    if (random.chance(0.1 / this.hosts)) {
      this.notes.counts.pauses++;
      process.stopped = this.options.pause();
    }
    await process.stopped;
    await this.write(process, log);
    if (random.chance(0.15)) process.close(sessionId);
  }

  private async write(process: HistoryProcess, log: Log): Promise<void> {
    const { random } = this.options;
    const op = this.begins(log, 1 + random.int(3));
    let commit: Promise<void>;
    try {
      log.append(op.texts.map((text) => toBytes(text)));
      commit = log.commit();
    } catch (error) {
      return this.note(process, op, error);
    }
    if (random.chance(0.05 / this.hosts)) {
      commit.catch(() => {});
      for (let turns = random.int(12); turns > 0; turns--) await Promise.resolve();
      // Another host may have been the one that it died at.
      if (process.isDead) return;
      process.die();
      this.notes.counts.kills++;
      this.process = this.begun();
      return;
    }
    try {
      await commit;
      if (!process.isDead) this.acknowledge(op, log);
    } catch (error) {
      this.note(process, op, error);
    }
  }

  /** Returns the append of some lines at the end of a log, with the outcome unknown until the host gets one. */
  private begins(log: Log, lines: number, name = `l${this.life}n`): Written {
    const texts: string[] = [];
    let parent = log.nodes.count === 0 ? null : log.nodes.id(log.nodes.count - 1);
    for (let n = lines; n > 0; n--) {
      const id = `m${this.number}${name}${this.count++}`;
      texts.push(userText(id, parent));
      parent = id;
    }
    const [began, ended] = [this.notes.tick(), Number.POSITIVE_INFINITY];
    const op: Written = { machine: this, sessionId: log.header.id, texts, began, outcome: "unknown", ended };
    this.notes.written.push(op);
    return op;
  }

  private acknowledge(op: Written, log: Log): void {
    op.outcome = "acknowledged";
    op.isLocal = log.replica?.status.durability === "local";
    op.ended = this.notes.tick();
  }

  private note(process: HistoryProcess, op: Written, error: unknown): void {
    if (process.isDead) return;
    const { name } = error as Error;
    expect(
      ["outcome_unknown", "storage_failed", "session_locked", "content_modified", "already_exists", "read_only"],
      String(error),
    ).toContain(name);
    op.outcome = name === "outcome_unknown" ? "unknown" : "refused";
    if (name === "read_only") this.quarantine(op.sessionId);
  }

  /** Moves a copy away that the fleet does not continue, as its failure says. */
  private quarantine(sessionId: string): void {
    if (this.isHere(sessionId)) {
      const log = this.process.copies.open(this.fileOf(sessionId));
      this.quarantined.push(...textsOf(log));
      log.close();
    }
    this.process.close(sessionId);
    this.notes.counts.quarantined++;
    const file = this.fileOf(sessionId);
    if (this.ending === "jsonl") this.disk.remove(file);
    else {
      this.disk.remove(getPointerFile(file));
      removeTree(this.disk, file);
    }
  }

  /** Brings sessions here, and returns their lines. */
  async finalLines(ids: readonly string[]): Promise<Map<string, string[]>> {
    const { process } = this;
    const lines = new Map<string, string[]>();
    for (const id of ids) {
      process.close(id);
      for (let tries = 0, waits = 0; tries < 2; tries++) {
        let log = await process.log(id);
        for (let asked = 0; asked < 200 && process.outage?.lasts; asked++) await this.options.wait?.(1);
        if (log.persisted) await log.replica?.ready();
        log = process.refreshed(id, log);
        // The log in its place has a branch to upload.
        if (log.persisted) await log.replica?.ready();
        try {
          if (log.persisted) log.lock.acquire();
        } catch (error) {
          const { name } = error as Error;
          // Another machine has only just closed it: the release waits for requests sent before.
          if (name === "session_locked" && waits++ < 100) {
            await this.options.wait?.(1);
            tries--;
            continue;
          }
          expect(name, String(error)).toBe("read_only");
          this.quarantine(id);
          continue;
        }
        // Unreported lines of a dead process are uploaded to the fleet, with one line more.
        if (log.persisted) {
          const op = this.begins(log, 1, "end");
          log.append(op.texts.map((text) => toBytes(text)));
          await log.commit();
          this.acknowledge(op, log);
        }
        lines.set(id, textsOf(log));
        process.close(id);
        break;
      }
    }
    return lines;
  }
}
