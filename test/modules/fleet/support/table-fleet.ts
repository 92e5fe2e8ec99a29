/** A fleet in memory, whose calls fail before or after their effect, and checks of its state. */

import { expect } from "vitest";
import { Failure } from "../../../../src/core/failure.ts";
import { decodeText } from "../../../../src/core/json/json.ts";
import type {
  Fleet,
  FleetAttachment,
  FleetBatch,
  FleetEnd,
  FleetOutcome,
  FleetPart,
  FleetSession,
  LateFacts,
  LeaseResult,
  NotedFleet,
} from "../../../../src/core/ports/fleet.ts";
import type { Holder } from "../../../../src/core/ports/lock.ts";
import { extendEnd, isSameEnd, NOTHING } from "../../../../src/modules/fleet/postgres/ends.ts";
import { packLines, parsePackHeads, unpackLines } from "../../../../src/modules/fleet/postgres/pack.ts";
import { Journal } from "../../../../src/modules/fleet/replica/journal.ts";
import type { FleetOptions } from "../../../../src/modules/fleet/replica/options.ts";
import { type FleetConnection, makeFleetStores } from "../../../../src/modules/fleet/store.ts";
import type { Disk } from "../../../../src/storage/fs/disk.ts";
import { FaultDisk } from "../../../support/disk.ts";

interface Row {
  headerLine: Uint8Array;
  end: FleetEnd;
  epoch: number;
  holder: { id: string; shown: Holder } | null;
  isThere: boolean;
  isDeleted: boolean;
  lines: Uint8Array[];
  heads: string[];
  epochs: number[];
  indexed: number;
  /** Parts by their places, and by the positions of their first lines. */
  parts: Map<number, Map<number, FleetPart>>;
  /** Stretches of entries whose facts were given. */
  facts: (readonly [from: number, to: number])[];
}

/** Returns rows that stay as they are. */
function copied(rows: ReadonlyMap<string, Row>): Map<string, Row> {
  return new Map(
    Array.from(rows, ([id, { parts, lines, heads, epochs, facts, ...row }]) => [
      id,
      {
        ...{ ...row, lines: [...lines], heads: [...heads], epochs: [...epochs], facts: [...facts] },
        parts: new Map(Array.from(parts, ([place, kept]) => [place, new Map(kept)])),
      },
    ]),
  );
}

/** The database that several fleets are ways to. */
export class FleetTable {
  rows = new Map<string, Row>();
  /** Attachments by their digest, and the digests of those of each session. */
  readonly blobs = new Map<string, Uint8Array>();
  readonly attached = new Map<string, Set<string>>();
  /** Promotions until now: a fleet reports another server after each. */
  promotions = 0;
  /** The rows after each change, if a promotion may forget some. */
  past: Map<string, Row>[] | undefined;

  /** Packs that are made and opened. */
  readonly packings: Promise<void>[] = [];

  /** Notes that something was changed. */
  changed(): void {
    this.past?.push(copied(this.rows));
  }

  /** Promotes a standby that lacks the last changes. */
  promote(lost: number): void {
    this.promotions++;
    const { past } = this;
    if (!past || lost === 0) return;
    const kept = past.slice(0, Math.max(0, past.length - lost));
    this.rows = copied(kept.at(-1) ?? new Map());
    this.past = kept;
  }

  /** Has every process let go of its sessions. */
  leave(): void {
    for (const row of this.rows.values()) row.holder = null;
  }

  linesOf(sessionId: string): string[] {
    return (this.rows.get(sessionId)?.lines ?? []).map((line) => decodeText(line));
  }

  /** Fails unless everything that is true of every session in every moment is true. */
  check(): void {
    for (const [id, { lines, end, epochs, epoch, indexed, facts }] of this.rows) {
      let from = 0;
      for (const [first, past] of facts.toSorted(([a], [b]) => a - b)) {
        expect(first, `facts of ${id} are there once`).toBe(from);
        from = past;
      }
      expect(from, `facts of ${id}`).toBe(indexed);
      expect(extendEnd(NOTHING, lines), id).toEqual(end);
      expect(epochs, `epochs of ${id} never fall`).toEqual([...epochs].sort((a, b) => a - b));
      expect(Math.max(0, ...epochs), id).toBeLessThanOrEqual(epoch);
    }
  }
}

/** Fails unless packed lines come out unchanged. */
async function requirePacked(...[before, lines, heads, stretches]: Parameters<typeof packLines>): Promise<void> {
  const packs = await packLines(before, lines, heads, stretches);
  const opened = (await Promise.all(packs.map(unpackLines))).flat();
  expect(opened.map((line) => decodeText(line))).toEqual(lines.map((line) => decodeText(line)));
  expect(packs.flatMap(parsePackHeads)).toEqual(heads);
}

/** The fault of a call of the fleet: it does not arrive, or its answer does not; `late`, it arrives after the next. */
export type FleetFault = "before" | "after" | "late";

const away = (): Failure => new Failure("storage_failed", "test: the fleet is away", { fleet: true });

export class MemoryFleet implements Fleet {
  readonly table: FleetTable;
  readonly holder: { id: string; shown: Holder };
  /** Calls until now, by name. */
  readonly calls: string[] = [];
  /** Returns the fault of the call of that number, from 0 on. */
  faultAt: (call: number, name: string) => FleetFault | undefined = () => undefined;
  /** The rule that this fleet breaks, for tests of the tests. */
  breaks: "nothing" | "epoch" | "both" | "taking" | "above" = "nothing";
  /** The durability that it reports for commits. */
  durability: "replicated" | "primary" = "replicated";
  /** The server that answered last, and the servers of the sessions' leases. */
  server = "0";
  tally = { commits: 0, unknown: 0, refusals: 0, takings: 0, waits: 0 };
  private readonly takenAt = new Map<string, string>();
  /** Runs before a call arrives. */
  turns: () => Promise<void> = () => Promise.resolve();
  /** True if leases have run out: any machine may take a session. */
  leasesEnd = false;
  /** Milliseconds since it last gave more time for what this process has, though nothing was written. */
  renewed = Number.POSITIVE_INFINITY;
  /** True if leases of sessions that rest have run out. */
  isIdle = false;
  private late: (() => void)[] = [];

  constructor(table = new FleetTable(), name = "this server") {
    this.table = table;
    this.holder = {
      id: name,
      shown: { client: name, pid: 0, since: "2026-01-24T16:22:26.831Z", host: `host of ${name}` },
    };
  }

  /** Runs a call with what happens to it. Returns its result, or the fault. */
  private async call<T>(name: string, run: () => T): Promise<{ result: T } | FleetFault> {
    const fault = this.faultAt(this.calls.length, name);
    this.calls.push(name);
    await this.turns();
    if (fault === "before") return fault;
    if (fault === "late") {
      this.late.push(run);
      return fault;
    }
    const result = run();
    for (const old of this.late.splice(0)) old();
    if (!fault) this.server = String(this.table.promotions);
    return fault ?? { result };
  }

  /** Runs a call whose failures are thrown. */
  private async read<T>(name: string, run: () => T): Promise<T> {
    const answer = await this.call(name, run);
    if (typeof answer === "string") throw away();
    return answer.result;
  }

  /** Runs a change. */
  private async outcome(name: string, run: () => FleetOutcome): Promise<FleetOutcome> {
    const answer = await this.call(name, run);
    if (answer === "before") return { kind: "away", reason: "test: before" };
    return typeof answer === "string" ? { kind: "unknown", reason: `test: ${answer}` } : answer.result;
  }

  renewedAgo(): number {
    return this.renewed;
  }

  mayBeTaken(): boolean {
    return this.isIdle;
  }

  async take(sessionId: string, above = 0, headerLine?: Uint8Array): Promise<LeaseResult> {
    const answer = await this.call("take", () => this.taken(sessionId, above, headerLine));
    return typeof answer === "string" ? { kind: "away", reason: `test: ${answer}` } : answer.result;
  }

  private taken(sessionId: string, above: number, headerLine?: Uint8Array): LeaseResult {
    const { rows } = this.table;
    let row = rows.get(sessionId);
    if (!row && headerLine) {
      row = {
        ...{ headerLine, end: NOTHING, epoch: 0, holder: null, isThere: false, isDeleted: false },
        ...{ lines: [], heads: [], epochs: [], indexed: 0, facts: [], parts: new Map() },
      };
      rows.set(sessionId, row);
    }
    if (!row) return { kind: "missing" };
    if (row.isDeleted) return { kind: "deleted" };
    if (row.holder && row.holder.id !== this.holder.id && !this.leasesEnd)
      return { kind: "held", holder: row.holder.shown, end: row.end };
    const isOurs = this.breaks === "taking" && row.holder?.id === this.holder.id;
    row.holder = this.holder;
    if (!isOurs) row.epoch = (this.breaks === "above" ? row.epoch : Math.max(row.epoch, above)) + 1;
    const { durability } = this;
    const server = String(this.table.promotions);
    this.takenAt.set(sessionId, server);
    this.table.changed();
    const { epoch, headerLine: header, end, indexed } = row;
    return { kind: "taken", epoch, headerLine: header, end, indexed, durability, server };
  }

  async append(batch: FleetBatch): Promise<FleetOutcome> {
    const { lines, heads, before, stretches } = batch;
    if (this.takenAt.get(batch.sessionId) !== String(this.table.promotions)) return { kind: "refused" };
    if (stretches && batch.place === undefined)
      this.table.packings.push(requirePacked(before, lines, heads, stretches));
    if (batch.attachments?.length && !(await this.given(batch.attachments)))
      return { kind: "away", reason: "test: an attachment" };
    return this.outcome("append", () => this.appended(batch));
  }

  /** Keeps attachments, each in a call of its own. Returns whether all are there. */
  private async given(attachments: FleetBatch["attachments"] = []): Promise<boolean> {
    for (const { sha256, read } of attachments) {
      const bytes = read();
      if (!bytes || this.table.blobs.has(sha256)) continue;
      const answer = await this.call("give", () => void this.table.blobs.set(sha256, bytes));
      if (typeof answer === "string") return false;
    }
    return true;
  }

  private attached(sessionId: string, attachments: FleetBatch["attachments"] = []): void {
    const { blobs, attached } = this.table;
    const there = attachments.filter(({ sha256 }) => blobs.has(sha256)).map(({ sha256 }) => sha256);
    attached.set(sessionId, new Set([...(attached.get(sessionId) ?? []), ...there]));
  }

  async attach(sessionId: string, attachments: readonly FleetAttachment[]): Promise<void> {
    if (await this.given(attachments)) this.attached(sessionId, attachments);
  }

  attachments(sessionId: string): Promise<string[]> {
    return this.read("attachments", () => [...(this.table.attached.get(sessionId) ?? [])]);
  }

  attachment(sha256: string): Promise<Uint8Array | null> {
    return this.read("attachment", () => this.table.blobs.get(sha256) ?? null);
  }

  /** Returns the row of a session, if this process may write there. */
  private heldRow({ sessionId, epoch, before }: Pick<FleetBatch, "sessionId" | "epoch" | "before">): Row | undefined {
    const row = this.table.rows.get(sessionId);
    const { breaks } = this;
    if (!row || row.isDeleted || !(isSameEnd(row.end, before) || breaks === "both")) return undefined;
    const isWriter = row.epoch === epoch && row.holder?.id === this.holder.id;
    return isWriter || breaks === "epoch" || breaks === "both" ? row : undefined;
  }

  async keepPart(part: FleetPart, sent?: () => void): Promise<FleetOutcome> {
    if (this.takenAt.get(part.sessionId) !== String(this.table.promotions)) return { kind: "refused" };
    this.table.packings.push(requirePacked(part.from, part.lines, part.heads, part.stretches));
    sent?.();
    return this.outcome("keepPart", () => this.kept(part));
  }

  private kept(part: FleetPart): FleetOutcome {
    const row = this.heldRow(part);
    if (!row) return { kind: "refused" };
    expect(extendEnd(part.from, part.lines)).toEqual(part.stretches.at(-1));
    expect(part.heads).toHaveLength(part.lines.length);
    // A first part of another commit: what earlier ones have left goes.
    if (isSameEnd(part.from, part.before))
      for (const place of row.parts.keys()) if (place !== part.place) row.parts.delete(place);
    const lines = part.lines.map((line) => Uint8Array.from(line));
    const kept = row.parts.get(part.place) ?? new Map<number, FleetPart>();
    row.parts.set(part.place, kept.set(part.from.entries, { ...part, lines }));
    this.table.changed();
    return { kind: "committed", durability: this.durability };
  }

  private appended(batch: FleetBatch): FleetOutcome {
    const { sessionId, epoch, before, after, facts, attachments, place } = batch;
    const row = this.heldRow(batch);
    if (!row) return { kind: "refused" };
    let { lines, heads } = batch;
    if (place !== undefined) {
      const parts = [...(row.parts.get(place)?.values() ?? [])].sort((a, b) => a.from.entries - b.from.entries);
      lines = parts.flatMap((part) => part.lines);
      heads = parts.flatMap((part) => part.heads);
      const kept = parts.flatMap((part) => part.stretches.map(({ chain }) => chain));
      if (JSON.stringify(kept) !== JSON.stringify(batch.stretches?.map(({ chain }) => chain)))
        return { kind: "refused" };
      row.parts.delete(place);
    }
    expect(extendEnd(before, lines)).toEqual(after);
    expect(heads).toHaveLength(lines.length);
    row.lines.push(...lines.map((line) => Uint8Array.from(line)));
    row.epochs.push(...lines.map(() => epoch));
    row.heads.push(...heads);
    row.end = after;
    if (!facts.areBehind) {
      row.facts.push([before.entries, after.entries]);
      if (row.indexed === before.entries) row.indexed = after.entries;
    }
    row.isThere = true;
    this.attached(sessionId, attachments);
    this.table.changed();
    return { kind: "committed", durability: this.durability };
  }

  addFacts(facts: LateFacts): Promise<FleetOutcome> {
    return this.outcome("addFacts", () => this.addedLate(facts));
  }

  private addedLate({ sessionId, epoch, from, to, texts }: LateFacts): FleetOutcome {
    const row = this.table.rows.get(sessionId);
    if (!row || row.isDeleted || row.epoch !== epoch || row.indexed !== from || row.end.entries < to)
      return { kind: "refused" };
    const messages = row.lines
      .slice(from, to)
      .flatMap((one, n) => (decodeText(one).includes('"type":"message"') ? [from + n] : []));
    expect([...new Set(texts.map(({ position }) => position))]).toEqual(messages);
    row.facts.push([from, to]);
    row.indexed = to;
    this.table.changed();
    return { kind: "committed", durability: this.durability };
  }

  async release(sessionId: string, epoch: number): Promise<void> {
    await this.call("release", () => {
      const row = this.table.rows.get(sessionId);
      if (row?.epoch === epoch && row.holder?.id === this.holder.id) row.holder = null;
    });
  }

  async look(sessionId: string): Promise<FleetSession | null> {
    const row = await this.read("look", () => this.table.rows.get(sessionId));
    if (!row?.isThere || row.isDeleted) return null;
    const { headerLine, end, epoch, holder } = row;
    const other = holder?.id === this.holder.id ? null : (holder?.shown ?? null);
    return { id: sessionId, headerLine, end, epoch, holder: other };
  }

  isMissing(sessionId: string): Promise<boolean> {
    return this.read("isMissing", () => this.table.rows.get(sessionId)?.isThere !== true);
  }

  async *lines(sessionId: string, from: number, to: number): AsyncIterable<readonly Uint8Array[]> {
    for (let at = from; at < to; at += 3)
      yield (await this.rowFor("lines", sessionId)).lines.slice(at, Math.min(to, at + 3));
  }

  async *heads(sessionId: string, from: number, to: number): AsyncIterable<readonly string[]> {
    for (let at = from; at < to; at += 5)
      yield (await this.rowFor("heads", sessionId)).heads.slice(at, Math.min(to, at + 5));
  }

  private rowFor(call: string, sessionId: string): Promise<Row> {
    return this.read(call, () => {
      const row = this.table.rows.get(sessionId);
      if (!row) throw away();
      return row;
    });
  }

  async close(): Promise<void> {}
}

/** Options for working copies of a fleet. `tries`: how often it is asked again before a copy gives up. */
export function fleetOptions(
  fleet: Fleet,
  more: Partial<FleetOptions> & { tries?: number; quarantined?: string[]; disk?: Disk } = {},
): FleetOptions & FleetConnection {
  const { tries = 0, quarantined = [], disk = new FaultDisk(), ...rest } = more;
  return {
    fleet,
    trustedFor: 1000,
    followedEvery: 0,
    elapsed: () => 0,
    patience: async (n) => n < tries,
    quarantineEntries({ header }, lines) {
      quarantined.push(...lines.map((line) => decodeText(line)));
      return `/aside/${header.id}`;
    },
    journal: journalOn(disk),
    makeStores(place) {
      return makeFleetStores(this, place);
    },
    close: () => fleet.close(),
    ...rest,
  };
}

/** Returns the journal of a machine with this disk, as one process has it that uses a fleet. */
export function journalOn(disk: Disk, own?: NotedFleet, complain?: (sentence: string) => void): Journal {
  return new Journal(disk, "/root/state/fleet-journal", () => "2026-01-24T16:22:26.831Z", own, complain);
}
