/**
 * Random histories of machines that work on the sessions of one fleet: they die, stop and lose their connections. Each
 * line is written once by one machine, which notes what it was told; afterwards that is held against what the fleet has.
 */

import { expect } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import { LEAF_MARKER } from "../../src/core/format/head.ts";
import { bytesOf } from "../../src/core/json/json.ts";
import type { Fleet } from "../../src/core/ports/fleet.ts";
import type { Log, Store } from "../../src/core/ports/store.ts";
import { arrive } from "../../src/storage/fleet/arrival.ts";
import type { Outage } from "../../src/storage/fleet/outage.ts";
import { copying, fleetStore } from "../../src/storage/fleet/store.ts";
import { pointerFile } from "../../src/storage/fs/container-paths.ts";
import { removeTree } from "../../src/storage/fs/staging.ts";
import { jsonlStore } from "../../src/storage/jsonl/store.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import type { FileLogOptions } from "../../src/storage/log/file-log.ts";
import { segmentedStore } from "../../src/storage/v2/store.ts";
import { FaultDisk } from "./disk.ts";
import { testEnv } from "./env.ts";
import { fleetOptions } from "./fleet.ts";
import { headerText, userText } from "./lines.ts";
import type { Random } from "./random.ts";
import { beginning, textsOf } from "./sessions.ts";

type Told = "acknowledged" | "refused" | "unknown";

interface Written {
  readonly machine: HistoryMachine;
  readonly sessionId: string;
  readonly texts: readonly string[];
  readonly began: number;
  told: Told;
  ended: number;
  /** Whether it was acknowledged while the fleet was away: then it has no place in time there. */
  isLocal?: boolean;
}

export interface HistoryOptions {
  readonly random: Random;
  readonly machines: number;
  readonly sessions: number;
  /** Lines that each machine tries to write. */
  readonly steps: number;
  /** Returns the way of a new process on a machine to the fleet. */
  fleetOf(machine: number, life: number): Fleet;
  /** Whether a promotion may forget what was acknowledged: then it is at least kept aside by the machine that wrote it. */
  readonly mayLose?: boolean;
  /** A process is stopped for a while. */
  pause(): Promise<void>;
  readonly tries: number;
  /** Returns the outage of a process that goes on while the fleet is away; without it, all of them refuse. */
  outageOf?(fleet: Fleet): Outage | undefined;
  /** Waits before the fleet is asked again. */
  wait?(tries: number): Promise<void>;
}

export interface HistoryFigures {
  acknowledged: number;
  /** Of these, while the fleet was away. */
  local: number;
  /** Branches that were made because others wrote meanwhile. */
  branches: number;
  refused: number;
  unknown: number;
  kills: number;
  pauses: number;
  setAside: number;
  replaced: number;
  /** Entries that were acknowledged and forgotten, while others had written: they are kept aside. */
  forgotten: number;
}

export const sessionIdOf = (n: number): string => `01991f6e-1f1d-7c3e-b0a4-${String(n).padStart(12, "0")}`;

/** Nothing that a dead process does has any effect, but for what it had sent. */
function mortal<T extends object>(thing: T, isDead: () => boolean, dead: () => unknown): T {
  return new Proxy(thing, {
    get(target, name) {
      const member = target[name as keyof T] as unknown;
      if (typeof member !== "function") return member;
      return (...args: unknown[]) =>
        isDead() ? dead() : (member as (...given: unknown[]) => unknown).apply(target, args);
    },
  });
}

class HistoryMachine {
  private readonly disk = new FaultDisk();
  private readonly options: HistoryOptions;
  private readonly number: number;
  private readonly ending: "jsonl" | "v2";
  private life = 0;
  private count = 0;
  private kill = (): void => {};
  private fleet!: Fleet;
  private outage: Outage | undefined;
  private store!: Store;
  private copies!: Store;
  private readonly logs = new Map<string, Log>();
  /** Lines that gave way, and those of copies that were moved away. */
  readonly aside: string[] = [];
  private readonly written: Written[];
  private readonly tick: () => number;
  private readonly figures: HistoryFigures;

  constructor(
    options: HistoryOptions,
    number: number,
    history: { written: Written[]; tick: () => number; figures: HistoryFigures },
  ) {
    this.options = options;
    this.number = number;
    this.ending = number % 2 === 0 ? "jsonl" : "v2";
    this.written = history.written;
    this.tick = history.tick;
    this.figures = history.figures;
    this.disk.makeFolder("/root/sessions");
    this.start();
  }

  private start(): void {
    let isDead = false;
    const ours = this.options.fleetOf(this.number, this.life++);
    this.kill = () => {
      isDead = true;
      void ours.close();
    };
    const gone = (): never => {
      throw Object.assign(new Error("the process is gone"), { code: "EIO" });
    };
    const disk = mortal(this.disk, () => isDead, gone);
    this.fleet = mortal(
      ours,
      () => isDead,
      () => new Promise(() => {}),
    );
    const { tries, wait } = this.options;
    this.outage = this.options.outageOf?.(this.fleet);
    const patience = async (n: number): Promise<boolean> => {
      if (n < tries) await wait?.(n);
      return n < tries;
    };
    const common: FileLogOptions = copying(
      {
        disk,
        env: testEnv(this.number * 100 + this.life),
        locks: noLocks,
        quarantine: "/root/quarantine",
        durability: "sync",
      },
      fleetOptions(this.fleet, {
        ...{ patience, trustedFor: 1e9, disk, outage: this.outage, aside: this.aside },
        // A line has about 150 bytes: some processes keep every commit in packs, some those of two or three lines.
        long: [0, 200, 1e9][(this.number + this.life) % 3],
        // Every other process sends those of two or three lines in parts.
        partBytes: [200, 2 << 20][this.life % 2],
      }),
    );
    const fileFor = ({ id }: { id: string }): string => this.fileOf(id);
    this.copies =
      this.ending === "v2"
        ? segmentedStore({ ...common, containerFor: fileFor, segmentBytes: 1 << 20 })
        : jsonlStore({ ...common, cwd: "/root", fileFor });
    this.store = fleetStore(this.copies);
    this.logs.clear();
  }

  private fileOf(id: string): string {
    return `/root/sessions/${id}.${this.ending}`;
  }

  private isHere(id: string): boolean {
    const file = this.fileOf(id);
    // What a dead process was about to put there lies beside it, under longer names.
    const isOfIt = (path: string): boolean =>
      path === file || path.startsWith(`${file}/`) || (this.ending === "v2" && path === pointerFile(file));
    return this.disk.paths().some(isOfIt);
  }

  private async log(sessionId: string): Promise<Log> {
    const known = this.logs.get(sessionId);
    if (known) return known;
    const find = (): string => {
      throw new Failure("session_not_found");
    };
    const where = this.isHere(sessionId) ? { sessionPath: this.fileOf(sessionId) } : { sessionId };
    const holds = (): boolean => true;
    const placeFor = ({ id }: { id: string }): { path: string; store: string } => {
      const store = this.ending === "v2" ? "v2" : "jsonl";
      return { path: this.fileOf(id), store };
    };
    const { open } = this.store;
    const place = { fleet: this.fleet, catalog: undefined, find, holds, open, stores: [this.copies], placeFor };
    try {
      await arrive(place, where);
    } catch (error) {
      // Who goes on alone may begin a session that another has, too.
      if (!this.outage || !this.options.random.chance(0.3)) throw error;
    }
    const log = this.isHere(sessionId)
      ? this.store.open(this.fileOf(sessionId))
      : this.store.create(beginning(headerText({ id: sessionId }), this.fileOf(sessionId)));
    this.logs.set(sessionId, log);
    return log;
  }

  async run(): Promise<void> {
    const { random, steps, sessions } = this.options;
    for (let n = 0; n < steps; n++) await this.step(sessionIdOf(random.int(sessions)));
  }

  private async step(sessionId: string): Promise<void> {
    const { random } = this.options;
    let log: Log;
    try {
      log = await this.log(sessionId);
      if (!random.chance(0.1)) await log.ready?.();
      log = this.refreshed(sessionId, log);
    } catch {
      // The fleet is away: another time.
      return;
    }
    if (random.chance(0.1)) {
      this.figures.pauses++;
      await this.options.pause();
    }
    await this.write(sessionId, log);
    if (random.chance(0.15)) this.close(sessionId);
  }

  /** Returns the log that is in the place of one now. */
  private refreshed(sessionId: string, log: Log): Log {
    if (log.refresh().kind !== "replaced") return log;
    const next = log.reopen();
    log.close();
    if (next.nodes.count > 0 && next.nodes.isMarker(next.nodes.count - 1)) this.figures.branches++;
    this.logs.set(sessionId, next);
    this.figures.replaced++;
    return next;
  }

  private async write(sessionId: string, log: Log): Promise<void> {
    const { random } = this.options;
    const texts: string[] = [];
    let parent = log.nodes.count === 0 ? null : log.nodes.id(log.nodes.count - 1);
    for (let n = 1 + random.int(3); n > 0; n--) {
      const id = `m${this.number}l${this.life}n${this.count++}`;
      texts.push(userText(id, parent));
      parent = id;
    }
    const [began, ended] = [this.tick(), Number.POSITIVE_INFINITY];
    const op: Written = { machine: this, sessionId, texts, began, told: "unknown", ended };
    this.written.push(op);
    let commit: Promise<void>;
    try {
      log.append(texts.map((text) => bytesOf(text)));
      commit = log.commit();
    } catch (error) {
      this.note(op, error, sessionId);
      return;
    }
    if (random.chance(0.05)) {
      commit.catch(() => {});
      for (let turns = random.int(12); turns > 0; turns--) await Promise.resolve();
      this.kill();
      this.figures.kills++;
      this.figures.unknown++;
      this.start();
      return;
    }
    try {
      await commit;
      op.told = "acknowledged";
      op.isLocal = log.durability === "local";
      if (op.isLocal) this.figures.local += texts.length;
      this.figures.acknowledged += texts.length;
      op.ended = this.tick();
    } catch (error) {
      this.note(op, error, sessionId);
    }
  }

  private note(op: Written, error: unknown, sessionId: string): void {
    const { name } = error as Error;
    expect(
      ["outcome_unknown", "storage_failed", "session_locked", "content_modified", "read_only"],
      String(error),
    ).toContain(name);
    op.told = name === "outcome_unknown" ? "unknown" : "refused";
    if (op.told === "unknown") this.figures.unknown++;
    else this.figures.refused++;
    if (name === "read_only") this.setAside(sessionId);
  }

  /** Moves a copy away that the fleet does not continue, as its failure says. */
  private setAside(sessionId: string): void {
    if (this.isHere(sessionId)) {
      const log = this.copies.open(this.fileOf(sessionId));
      this.aside.push(...textsOf(log));
      log.close();
    }
    this.close(sessionId);
    this.figures.setAside++;
    const file = this.fileOf(sessionId);
    if (this.ending === "jsonl") this.disk.remove(file);
    else {
      this.disk.remove(pointerFile(file));
      removeTree(this.disk, file);
    }
  }

  private close(sessionId: string): void {
    this.logs.get(sessionId)?.close();
    this.logs.delete(sessionId);
  }

  /** Brings every session here, and returns their lines. */
  async finalLines(sessions: number): Promise<Map<string, string[]>> {
    const lines = new Map<string, string[]>();
    for (let n = 0; n < sessions; n++) {
      const id = sessionIdOf(n);
      this.close(id);
      for (let tries = 0, waits = 0; tries < 2; tries++) {
        let log = await this.log(id);
        for (let asked = 0; asked < 200 && this.outage?.lasts; asked++) await this.options.wait?.(1);
        if (log.persisted) await log.ready?.();
        log = this.refreshed(id, log);
        // What was put in its place has a branch to give.
        if (log.persisted) await log.ready?.();
        try {
          if (log.persisted) log.acquireLock();
        } catch (error) {
          const { name } = error as Error;
          // Another machine has only just closed it: its letting go waits for what it had sent before.
          if (name === "session_locked" && waits++ < 100) {
            await this.options.wait?.(1);
            tries--;
            continue;
          }
          expect(name, String(error)).toBe("read_only");
          this.setAside(id);
          continue;
        }
        // What a dead process left, and nobody has heard of.
        if (log.persisted) await this.givenBack(log);
        lines.set(id, textsOf(log));
        this.close(id);
        break;
      }
    }
    return lines;
  }

  /** Has lines that only this copy has given to the fleet, with one more. */
  private async givenBack(log: Log): Promise<void> {
    const id = `m${this.number}end${this.count++}`;
    const text = userText(id, log.nodes.count === 0 ? null : log.nodes.id(log.nodes.count - 1));
    const [sessionId, began] = [log.header.id, this.tick()];
    const op: Written = { machine: this, sessionId, texts: [text], began, told: "unknown", ended: 0 };
    this.written.push(op);
    log.append([bytesOf(text)]);
    await log.commit();
    op.told = "acknowledged";
    op.ended = this.tick();
  }
}

/** Runs a history, and fails unless what the fleet has afterwards is what was told. `linesOf` reads the fleet. */
export async function runHistory(
  options: HistoryOptions,
  settle: () => Promise<void>,
  linesOf: (sessionId: string) => readonly string[],
): Promise<HistoryFigures> {
  const written: Written[] = [];
  const figures = {
    acknowledged: 0,
    local: 0,
    branches: 0,
    refused: 0,
    unknown: 0,
    kills: 0,
    pauses: 0,
    setAside: 0,
    replaced: 0,
    forgotten: 0,
  };
  let now = 0;
  const history = { written, tick: () => ++now, figures };
  const machines = Array.from({ length: options.machines }, (_, n) => new HistoryMachine(options, n, history));
  await Promise.all(machines.map((machine) => machine.run()));
  await settle();
  for (const machine of machines) {
    const lines = await machine.finalLines(options.sessions);
    for (const [id, texts] of lines) expect(texts, `the copy of ${id}`).toEqual(linesOf(id));
  }
  for (let n = 0; n < options.sessions; n++) {
    const id = sessionIdOf(n);
    requireParents(linesOf(id));
    const lines = linesOf(id).filter((line) => !line.includes(LEAF_MARKER));
    const ours = written.filter(({ sessionId }) => sessionId === id);
    const forgotten = options.mayLose ? ours.filter((one) => isForgotten(one, lines)) : [];
    figures.forgotten += forgotten.reduce((sum, { texts }) => sum + texts.length, 0);
    // What was forgotten goes into a branch together with what was acknowledged while the fleet was away.
    const isOrdered = !options.mayLose || !written.some(({ isLocal }) => isLocal);
    requireTrue(
      ours.filter((one) => !forgotten.includes(one)),
      lines,
      isOrdered,
    );
  }
  return figures;
}

/** Returns whether lines that were acknowledged are not there. Fails unless the machine that wrote them has kept them. */
function isForgotten({ machine, told, texts }: Written, lines: readonly string[]): boolean {
  if (told !== "acknowledged" || texts.some((text) => lines.includes(text))) return false;
  for (const text of texts) expect(machine.aside.includes(text), `lost: ${text}`).toBe(true);
  return true;
}

/** Fails unless each line comes after the one that it continues. */
function requireParents(lines: readonly string[]): void {
  const ids = new Set<string | null>([null]);
  for (const line of lines) {
    const { id, parentId } = JSON.parse(line) as { id: string; parentId: string | null };
    expect(ids.has(parentId), `without its parent: ${line}`).toBe(true);
    ids.add(id);
  }
}

/** Fails unless a session's lines are those that were told, once each, and in an order in which they can have come. */
function requireTrue(written: readonly Written[], lines: readonly string[], isOrdered: boolean): void {
  const places = new Map<string, number>();
  for (const [place, line] of lines.entries()) {
    expect(places.has(line), `there twice: ${line}`).toBe(false);
    places.set(line, place);
  }
  const known = new Set(written.flatMap(({ texts }) => texts));
  for (const line of lines) expect(known.has(line), `nobody wrote: ${line}`).toBe(true);
  const acknowledged: { began: number; ended: number; first: number; last: number }[] = [];
  for (const { told, texts, began, ended, isLocal } of written) {
    const found = texts.map((text) => places.get(text));
    if (told === "refused") expect(found, `a ghost: ${texts[0]}`).toEqual(texts.map(() => undefined));
    const isThere = found[0] !== undefined;
    expect(found, `together: ${texts[0]}`).toEqual(
      texts.map((_, n) => (isThere ? (found[0] as number) + n : undefined)),
    );
    if (told !== "acknowledged") continue;
    expect(isThere, `lost: ${texts[0]}`).toBe(true);
    if (isLocal) continue;
    acknowledged.push({ began, ended, first: found[0] as number, last: found.at(-1) as number });
  }
  if (!isOrdered) return;
  // Whatever was acknowledged before another was asked for comes before it.
  acknowledged.sort((a, b) => a.ended - b.ended);
  let latest = -1;
  const byBeginning = [...acknowledged].sort((a, b) => a.began - b.began);
  let next = 0;
  for (const { began, first } of byBeginning) {
    for (; next < acknowledged.length && acknowledged[next].ended < began; next++)
      latest = Math.max(latest, acknowledged[next].last);
    expect(first, "in the order of time").toBeGreaterThan(latest);
  }
}
