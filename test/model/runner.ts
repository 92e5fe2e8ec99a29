/**
 * Runs traces of the model (rule.ts) with the real stores: each process of the model is a log of its own on a disk that
 * all share. A step that the real log cannot take at that moment is left out, so every trace runs; what counts is what
 * is there at its end.
 */

import { expect } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import { decodeText, toBytes } from "../../src/core/json/json.ts";
import type { Log, Store } from "../../src/core/ports/store.ts";
import { makeJsonlStore } from "../../src/storage/jsonl/store.ts";
import type { Locks } from "../../src/storage/locks/locks.ts";
import type { Durability } from "../../src/storage/log/write-state.ts";
import { FaultDisk } from "../support/disk.ts";
import { testEnv } from "../support/env.ts";
import { fileBytes, headerText, id, TIME, userText } from "../support/lines.ts";
import { type LockTable, locksOf } from "../support/locks.ts";
import type { Random } from "../support/random.ts";
import { beginning, FILE, FOLDER, idsOf, QUARANTINE } from "../support/sessions.ts";
import { CONTAINER, faultsOf, v2On } from "../support/v2.ts";
import { Death, ProcessDisk, Untimely } from "./shared-disk.ts";

export interface Setup {
  readonly store: "jsonl" | "v2";
  readonly durability: Durability;
  /** Changes that share one change time. */
  readonly changesATick?: number;
  readonly segmentBytes?: number;
  readonly checkpointEvery?: number;
  /** Each append is preceded by what a session does: lock, then look. */
  readonly asSession: boolean;
  /** Before which of its operations a call that reads lets others in; at random where it is left out. */
  readonly pauseAt?: number;
  /** True if no other process opens the log before all is done. */
  readonly isAlone?: boolean;
}

interface Step {
  readonly who: string;
  readonly what: string;
}

/** Number of further tries of an append with a retryable failure. */
const TRIES = 4;

interface Member {
  readonly name: string;
  disk: ProcessDisk;
  locks: Locks;
  log: Log | null;
  /** Written and not acknowledged. */
  pending: string[];
  /** A call of its is on the stack; it was let go on while another's is in the middle. */
  isBusy: boolean;
  isStill: boolean;
  /** The call only reads. */
  isReading: boolean;
  /** Operations of its last opening and look: where in the next one others come in. */
  counts: { open: number; look: number };
}

class Runner {
  readonly disk = new FaultDisk();
  readonly acknowledged: string[] = ["root"];
  /** The steps of the run, for a failure's message. */
  readonly reports: string[] = [];
  private readonly setup: Setup;
  private readonly random: Random;
  private readonly table: LockTable = new Map();
  private readonly members = new Map<string, Member>();
  private readonly trace: Step[];
  private cursor = 0;
  /** True during a write: other writers wait for its end, whether they know a lock or not. */
  private isInWrite = false;
  private entries = 0;
  private readonly pairs: string[][] = [];

  constructor(setup: Setup, trace: readonly string[], random: Random) {
    this.setup = setup;
    this.random = random;
    this.trace = trace.map((step) => ({ who: step[0], what: step.slice(2) }));
    if (setup.changesATick !== undefined) this.disk.changesATick = setup.changesATick;
  }

  get file(): string {
    return this.setup.store === "jsonl" ? FILE : CONTAINER;
  }

  /** Runs the trace. Returns the faults at its end. */
  async run(): Promise<string[]> {
    await this.prepare();
    while (this.cursor < this.trace.length) {
      this.play();
      await settled();
    }
    return this.finish();
  }

  private async prepare(): Promise<void> {
    const root = userText("root", null);
    this.disk.makeFolder(FOLDER);
    const store = this.storeOn(new ProcessDisk(this.disk), locksOf("first", this.table));
    (await store.publish(beginning(headerText(), this.file), [fileBytes(root)])).close();
  }

  private storeOn(disk: ProcessDisk, locks: Locks): Store {
    const { store, durability, segmentBytes, checkpointEvery = 1000 } = this.setup;
    if (store === "jsonl")
      return makeJsonlStore({ disk, env: testEnv(), locks, quarantine: QUARANTINE, durability, fileFor: () => FILE });
    const sizes = segmentBytes === undefined ? {} : { segmentBytes };
    return v2On(disk, { locks, durability, ...sizes, checkpointEvery: { entries: checkpointEvery, bytes: 1 << 20 } });
  }

  private member(name: string): Member {
    const known = this.members.get(name);
    if (known) return known;
    const made = { name, isBusy: false, isStill: false, isReading: false, counts: { open: 12, look: 6 } } as Member;
    this.members.set(name, made);
    this.begin(made);
    return made;
  }

  /** A process that knows nothing. */
  private begin(member: Member): void {
    member.log = null;
    member.pending = [];
    member.disk = new ProcessDisk(this.disk);
    member.locks = locksOf(member.name, this.table);
    member.disk.prefixesOf = (path, bytes) => this.prefixes(path, bytes);
    member.disk.atPrefix = (path, prefix, length) => this.atPrefix(member, path, prefix > 0 && prefix < length);
    member.disk.holdsSyncs = this.setup.durability === "sync";
  }

  // --- steps ---------------------------------------------------------------------------------------------------

  /** Takes the next step, and with it the steps of others in its middle. */
  private play(): void {
    const { who, what } = this.trace[this.cursor++];
    if (who === "F") {
      this.foreign();
      return;
    }
    const member = this.member(who);
    if (member.isBusy) return;
    const acts: Record<string, () => void> = {
      open: () => this.open(member),
      die: () => this.kill(member),
      look: () => this.look(member),
      lock: () => this.quietly(member, "lock", () => member.log?.lock.acquire()),
      confirm: () => this.setup.asSession && this.look(member, false),
      "append 1": () => this.append(member, 1),
      "append 2": () => this.append(member, 2),
      commit: () => this.commit(member),
      "synced records": () => member.disk.passSync(),
      synced: () => member.disk.passSync(),
      "not synced": () => member.disk.passSync("EIO"),
      release: () => member.pending.length === 0 && this.quietly(member, "release", () => member.log?.lock.release()),
    };
    // All others are a part of a call that is over.
    acts[what]?.();
  }

  /** Runs one call of a member. A death ends it and it is never used again. */
  private during(member: Member, call: () => void): void {
    member.isBusy = true;
    member.disk.begin();
    try {
      call();
    } catch (error) {
      if (!(error instanceof Death)) throw error;
      this.drop(member);
    } finally {
      member.disk.before = null;
      member.disk.goOn();
      member.isBusy = false;
      member.isStill = false;
      member.isReading = false;
    }
  }

  /** The same where failures are a normal outcome. */
  private quietly(member: Member, what: string, call: () => void): void {
    this.during(member, () => {
      try {
        call();
      } catch (error) {
        if (error instanceof Untimely) return;
        if (!(error instanceof Failure)) throw error;
        this.reports.push(`${member.name} ${what}: ${error.name}: ${error.message}`);
      }
    });
  }

  private kill(member: Member): void {
    member.disk.die();
    this.drop(member);
  }

  private drop(member: Member): void {
    for (const [key, holder] of this.table) if (holder.client === member.name) this.table.delete(key);
    this.begin(member);
  }

  private open(member: Member): void {
    if (member.log) return;
    this.pauseIn(member, "open");
    this.quietly(member, "open", () => {
      member.log = this.storeOn(member.disk, member.locks).open(this.file);
      member.counts.open = member.disk.count;
    });
  }

  /** Lets others in at one of the operations of the next call, which only reads. */
  private pauseIn(member: Member, call: "open" | "look"): void {
    const at = this.setup.pauseAt ?? this.random.int(member.counts[call] + 1);
    member.isReading = true;
    member.disk.before = (number) => {
      if (number !== at) return;
      this.others(member);
      if (this.next?.who === member.name && this.next.what === "die") {
        this.cursor++;
        member.disk.die();
        throw new Death();
      }
    };
  }

  private get next(): Step | undefined {
    return this.trace[this.cursor];
  }

  /** Lets others work until it is this member's turn, in the middle of a call of its. */
  private others(member: Member): void {
    while (this.next && this.next.who !== member.name && !member.isStill) {
      if (this.next.who === "F" && this.isInWrite) return;
      const other = this.members.get(this.next.who);
      if (!other?.isBusy) this.play();
      else if (other.isStill || !other.isReading) return;
      else {
        // It goes on from here, with its present view; later writes come after that.
        other.isStill = true;
        other.disk.holdStill();
        this.cursor++;
      }
    }
  }

  private look(member: Member, isAlone = true): void {
    const { log } = member;
    if (!log) return;
    if (isAlone) this.pauseIn(member, "look");
    this.quietly(member, "look", () => {
      const change = log.refresh();
      member.counts.look = member.disk.count;
      if (change.kind === "replaced") this.reopen(member);
    });
  }

  private reopen(member: Member): void {
    const before = member.log as Log;
    member.log = before.reopen();
    before.close();
  }

  private lines(log: Log, count: number): { ids: string[]; lines: Uint8Array[] } {
    const ids: string[] = [];
    const lines: Uint8Array[] = [];
    let parentId = log.nodes.count > 0 ? log.nodes.id(log.nodes.count - 1) : null;
    for (let index = 0; index < count; index++) {
      const entryId = id(++this.entries);
      const batch = count > 1 ? { _batch: { session: log.header.id, index, count } } : {};
      const entry = { type: "message", id: entryId, parentId, timestamp: TIME, ...batch };
      lines.push(toBytes(JSON.stringify({ ...entry, message: { role: "user", content: `say ${entryId}` } })));
      ids.push(entryId);
      parentId = entryId;
    }
    if (count > 1) this.pairs.push(ids);
    return { ids, lines };
  }

  private append(member: Member, count: number): void {
    const { log } = member;
    if (!log) return;
    const { ids, lines } = this.lines(log, count);
    this.quietly(member, "append", () => {
      log.append(lines);
      if (this.setup.durability === "os") this.acknowledged.push(...ids);
      else member.pending.push(...ids);
    });
  }

  /** Each line shows in two steps: some of it, and all of it. */
  private prefixes(path: string, bytes: Uint8Array): number[] {
    if (!isRecords(path) && !isRows(path)) return [bytes.length];
    const found: number[] = [0];
    let start = 0;
    for (let end = bytes.indexOf(0x0a); end >= 0; end = bytes.indexOf(0x0a, start)) {
      const length = end - start;
      if (length > 0) found.push(start + this.random.pick([1, length >> 1, length - 1, length]));
      found.push(end + 1);
      start = end + 1;
    }
    return found;
  }

  /** Lets others see what there is of a write, until its writer goes on, fails or dies. */
  private atPrefix(member: Member, path: string, isInWrite: boolean): void {
    if (!isRecords(path) && !isRows(path)) return;
    const wasBusy = member.isBusy;
    member.isBusy = true;
    this.isInWrite = isInWrite;
    try {
      this.letOthersSee(member, path);
    } finally {
      this.isInWrite = false;
      member.isBusy = wasBusy;
    }
  }

  private letOthersSee(member: Member, path: string): void {
    this.tryLocks(member);
    const isMine = ({ who }: Step): boolean => who === member.name;
    const inOneGo = ["written", "commit", "synced records", "rows written"];
    // If an append is durable at once, rows are written within it.
    const skips = (): boolean =>
      isRows(path) && this.setup.durability === "os" && inOneGo.includes(this.next?.what ?? "");
    for (;;) {
      this.others(member);
      if (!this.next || !isMine(this.next) || !skips()) break;
      this.cursor++;
    }
    const { next } = this;
    if (!next || !isMine(next)) return;
    if (next.what === "die") {
      this.cursor++;
      member.disk.die();
      throw new Death();
    }
    if (next.what === "full") {
      this.cursor++;
      throw Object.assign(new Error("no room"), { code: "ENOSPC" });
    }
    if (next.what === (isRows(path) ? "write row" : "write")) this.cursor++;
  }

  /** Expects that no process gets the lock in the middle of another's write. */
  private tryLocks(holder: Member): void {
    if (!this.random.chance(0.1)) return;
    for (const member of this.members.values()) {
      if (member === holder || member.isBusy || !member.log) continue;
      this.during(member, () => {
        try {
          member.log?.lock.acquire();
          this.reports.push(`FAULT: ${member.name} got the lock in the middle of a write of ${holder.name}`);
        } catch (error) {
          if (!(error instanceof Failure) || error.name !== "session_locked") throw error;
        }
      });
    }
  }

  private commit(member: Member): void {
    const { log } = member;
    if (!log || member.pending.length === 0) return;
    const ids = [...member.pending];
    log.commit().then(
      () => {
        if (member.log !== log) return;
        this.acknowledged.push(...ids);
        member.pending = member.pending.filter((entryId) => !ids.includes(entryId));
      },
      (error) => {
        if (error instanceof Death) this.drop(member);
        else if (!(error instanceof Failure)) throw error;
        else if (member.log === log) {
          this.reports.push(`${member.name} commit: ${error.name}: ${error.message}`);
          member.pending = [];
        }
      },
    );
  }

  /** A program that knows no lock adds a line. */
  private foreign(): void {
    const entryId = id(++this.entries);
    const fd = this.disk.openAppend(this.file);
    this.disk.write(fd, fileBytes(userText(entryId, "root")));
    this.disk.close(fd);
    this.acknowledged.push(entryId);
  }

  // --- the end -------------------------------------------------------------------------------------------------

  private async finish(): Promise<string[]> {
    const wrong = this.reports.filter((line) => line.startsWith("FAULT"));
    for (const member of [...this.members.values()]) {
      member.disk.holdsSyncs = false;
      while (member.disk.passSync()) await settled();
      this.commit(member);
      await settled();
      this.quietly(member, "release", () => member.log?.lock.release());
    }
    for (const member of this.members.values()) wrong.push(...this.findMissing(member));
    if (!this.setup.isAlone) {
      const late = this.member("Z");
      this.open(late);
      late.disk.holdsSyncs = false;
    }
    for (const member of this.members.values()) if (member.log) wrong.push(...(await this.write(member)));
    const fresh = this.storeOn(new ProcessDisk(this.disk), locksOf("reader", this.table)).open(this.file);
    wrong.push(...this.compare(fresh));
    for (const member of this.members.values()) {
      if (!member.log) continue;
      this.look(member, false);
      const ids = idsOf(member.log);
      if (ids.join() !== idsOf(fresh).join()) wrong.push(`${member.name} knows ${ids}, and there is ${idsOf(fresh)}`);
    }
    fresh.close();
    return wrong;
  }

  /** Looks, and returns the acknowledged entries that are unknown after that. */
  private findMissing(member: Member): string[] {
    this.look(member, false);
    if (!member.log) return [];
    const known = new Set(idsOf(member.log));
    const missing = this.acknowledged.filter((entryId) => !known.has(entryId));
    return missing.length === 0 ? [] : [`${member.name} looked and does not know ${missing}`];
  }

  /** Appends as a session does. Returns what kept it from that. */
  private async write(member: Member): Promise<string[]> {
    for (let tries = 1; ; tries++)
      try {
        member.log?.lock.acquire();
        if (member.log?.refresh().kind === "replaced") this.reopen(member);
        const log = member.log as Log;
        const { ids, lines } = this.lines(log, 1);
        log.append(lines);
        await log.commit();
        this.acknowledged.push(...ids);
        log.lock.release();
        return [];
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        member.log?.lock.release();
        if (tries < TRIES) continue;
        return [`${member.name} cannot append: ${error.name}: ${error.message}`];
      }
  }

  private compare(fresh: Log): string[] {
    const wrong: string[] = [];
    const stored = this.storedIds();
    const known = new Set(idsOf(fresh));
    for (const entryId of this.acknowledged) {
      const times = stored.filter((other) => other === entryId).length;
      if (times !== 1) wrong.push(`acknowledged ${entryId} is stored ${times} times`);
      else if (!known.has(entryId)) wrong.push(`acknowledged ${entryId} is stored and not read`);
    }
    // Lines of a program without a lock among ours keep remains of ours from being cut.
    if (this.trace.some(({ who }) => who === "F")) return wrong;
    for (const pair of this.pairs) {
      const there = pair.filter((entryId) => known.has(entryId)).length;
      if (there === 1) wrong.push(`of the pair ${pair} one is there`);
    }
    for (const { kind, reason } of fresh.damage) wrong.push(`damage ${kind}: ${reason}`);
    if (fresh.readOnly) wrong.push(`it can only be read: ${fresh.readOnly.message}`);
    if (this.setup.store === "v2" && wrong.length === 0) wrong.push(...faultsOf(this.disk, this.file));
    return wrong;
  }

  /** Ids of all whole records on the medium, read without the stores. */
  private storedIds(): string[] {
    const ids: string[] = [];
    for (const path of this.disk.paths().filter((each) => each.startsWith(this.file) && isRecords(each)))
      for (const line of decodeText(this.disk.content(path) as Uint8Array).split("\n")) {
        const at = line.indexOf(PAYLOAD);
        const text = at < 0 ? line : line.slice(at + PAYLOAD.length, -1);
        // A line that was added to a torn one is whole in it.
        const value = parsed(text) ?? parsed(text.slice(Math.max(0, text.lastIndexOf('{"type":"message","id":"'))));
        if (value !== undefined && value.type !== "session" && (path === FILE || at >= 0)) ids.push(value.id);
      }
    return ids;
  }
}

/** Runs a trace, and expects that all is in order at its end. */
export async function requireOrder(setup: Setup, trace: readonly string[], random: Random): Promise<void> {
  const runner = new Runner(setup, trace, random);
  expect(await runner.run(), [JSON.stringify(setup), trace.join(", "), ...runner.reports].join("\n")).toEqual([]);
}

const PAYLOAD = ',"payload":';

function parsed(text: string): { type: string; id: string } | undefined {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isRecords(path: string): boolean {
  return path === FILE || path.endsWith(".seg");
}

function isRows(path: string): boolean {
  return path.endsWith("offsets.jsonl");
}

/** Resolves when everything that was waiting for nothing else has run. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
