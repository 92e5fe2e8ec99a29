/**
 * A fleet in PostgreSQL. Each call is one statement and so one transaction without any state of the connection, so that
 * poolers which share connections by transaction work. Values are always parameters.
 */

import { type Failure, isAway } from "../../../core/failure.ts";
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
} from "../../../core/ports/fleet.ts";
import type { Holder } from "../../../core/ports/lock.ts";
import {
  type Appender,
  makeAppendStatement,
  makeClearStatement,
  makeLateStatement,
  makePartStatement,
  type SentBatch,
} from "./append-statement.ts";
import {
  type Connections,
  explainRefusal,
  isValueRefused,
  LACKED,
  MOVED,
  NOT_PROVEN,
  type SqlAnswer,
  type SqlQuestion,
} from "./connections.ts";
import { isSameEnd, NOTHING, parseEnd } from "./ends.ts";
import { dropSearchFacts, dropWords, isFound, toDescriptionRow, toStorableText } from "./fact-parts.ts";
import { parseStoredHead } from "./heads.ts";
import { type JointAppend, JointAppends } from "./joint-appends.ts";
import { KnownWords } from "./known-words.ts";
import { LineReader, makeMissingLinesFailure } from "./line-reader.ts";
import { type Pack, packLines, parseHeads, ROWS_AND_PACKS } from "./pack.ts";
import type { FleetProcesses } from "./processes.ts";
import { makeBeginsAgainCondition } from "./schema.ts";
import { getProvenDurability, getServerName, makeServerColumn, type ServerFact, WAITS_FOR } from "./server-fact.ts";
import { SqlBlobs } from "./sql-blobs.ts";
import type { SqlRow } from "./sql-values.ts";
import { parseHolderRow } from "./sql-values.ts";

/** Milliseconds without a sign of life after which others may take a session. An idle owner gives none. */
export const LEASE = 30_000;
/** The same after a write that ends a turn: another machine gets the session within seconds. */
const IDLE_LEASE = 5000;
/** Maximum attempts to take a session that was another process's and released, or lost with a server, before it is read. */
const MOST_TAKINGS = 3;
/** Milliseconds between two renewals by an owner that writes nothing during a turn. */
const RENEWED_EVERY = 10_000;
/** Milliseconds without a write after which an unfinished turn counts as abandoned. */
const LONGEST_SILENCE = 600_000;
/** Roles of the messages of a turn. */
const OF_TURNS: ReadonlySet<string> = new Set(["user", "assistant", "toolResult"]);
/** Heads that are fetched together. */
const HEADS_FETCHED = 16_000;

/** The writing process, as the database knows it. */
interface FleetWriter {
  /** Unique among all processes, forever. */
  readonly id: string;
  /** The name and machine that others see, as in its lock. */
  readonly shown: Holder;
  /** Those of its machine, itself among them. */
  readonly processes?: FleetProcesses;
}

/** A session that this process has. */
interface LeasedSession {
  /** The server that gave the lease. */
  readonly server: string | undefined;
  /**
   * Number of entries by the database's last answer. If it has fewer, as after a restored backup, nothing else here holds.
   */
  entries: number;
  /** True if nothing was written since the lease was taken, so that an operation is under way. */
  isNew: boolean;
  /** True if the last write left a turn unfinished. */
  isInTurn: boolean;
  /** The clock of the process when that was, or when the session was taken. */
  written: number;
  /** The process's clock at the last renewal; -Infinity: never. */
  renewed: number;
}

/** A batch with the data to send. */
interface PendingAppend extends JointAppend {
  readonly batch: FleetBatch;
  /** Digests of its attachments, which the fleet has. */
  readonly attached: readonly string[];
  /** Its packed lines, if it is stored in packs. */
  readonly packs?: readonly Pack[];
}

/** A session that begins again has none of its former lines. */
const END = `case when ${makeBeginsAgainCondition()} then 0 else entries end as entries,
  case when ${makeBeginsAgainCondition()} then 0 else bytes end as bytes,
  case when ${makeBeginsAgainCondition()} then pg_catalog.decode('${NOTHING.chain}', 'hex') else chain end as chain`;

const TAKE = (fact: ServerFact): string => `update pi_fleet.session
  set epoch = greatest(epoch, $3) + 1, holder = $4, holder_name = $5, holder_host = $6, holder_since = $7,
    lease_until = clock_timestamp() + $8::float8 * interval '1 millisecond'
  where tenant = $1 and id = $2 and state < 2
    and (holder = $4 or not ${makeBeginsAgainCondition()} and (holder is null or holder = $9 or lease_until <= clock_timestamp()))
  returning epoch, header, ${END}, indexed, ${makeServerColumn(fact)}, ${WAITS_FOR}`;

const BEGIN = `insert into pi_fleet.session (tenant, id, header, chain) values ($1, $2, $3, $4)
  on conflict (tenant, id) do nothing`;

/** Also returns the server if it has no such session. */
const LOOK = (
  fact: ServerFact,
): string => `select header, ${END}, epoch, state, ${makeBeginsAgainCondition()} as begins_again, holder_name, holder_host,
    holder_since, case when holder <> $3 and lease_until > clock_timestamp() then holder end as held, archived, one.server
  from (select ${makeServerColumn(fact)}) one left join pi_fleet.session on tenant = $1 and id = $2`;

const RELEASE = `update pi_fleet.session set holder = null, lease_until = null
  where tenant = $1 and id = $2 and epoch = $3 and holder = $4`;

/**
 * A row that is being written to gets its lease from that; waiting for it, with others locked, could be endless. A row with
 * more entries than were known at this time has got it.
 */
const RENEW = `update pi_fleet.session set lease_until = clock_timestamp() + $4::float8 * interval '1 millisecond'
  where tenant = $1 and id in (select x.id from pg_catalog.json_to_recordset($3::json) as known (id text, entries bigint)
    join pi_fleet.session x on x.tenant = $1 and x.id = known.id
    where x.holder = $2 and x.entries <= known.entries for update of x skip locked)
  returning id, entries`;

/** The heads of a stretch in one row, with line feeds between them. */
const HEADS = `select pg_catalog.min(seq) as first, pg_catalog.max(seq + count) as past, pg_catalog.string_agg(heads, e'\\n') as heads
  from (${ROWS_AND_PACKS}) as spine`;

export class PostgresFleet implements Fleet {
  private readonly connections: Connections;
  private readonly writer: FleetWriter;
  private readonly tenant: string;
  private readonly lease: number;
  private readonly keepsWords: boolean;
  /** Sessions that this process has. */
  private readonly held = new Map<string, LeasedSession>();
  private readonly words: KnownWords;
  /** Packs of parts that are to be sent. */
  private readonly packing = new WeakMap<object, Promise<Pack[]>>();
  private readonly blobs: SqlBlobs;
  /** Sessions whose last append the database would not take: until it takes one, no other session's is sent with theirs. */
  private readonly alone = new Set<string>();
  private readonly joint = new JointAppends<PendingAppend>((appends) => this.appendAll(appends));
  private renewing: NodeJS.Timeout | undefined;
  /** True if other processes of the machine can see that this one exited. */
  private isNoted = false;
  readonly tally = { commits: 0, unknown: 0, refusals: 0, takings: 0, waits: 0 };

  /**
   * `lease`: milliseconds without a sign of life during which no other process may take a session of this one. `keepsWords`:
   * whether other machines find its entries by their words.
   */
  constructor(
    connections: Connections,
    writer: FleetWriter,
    { lease = LEASE, tenant = "", keepsWords = true, now = Date.now } = {},
  ) {
    this.connections = connections;
    this.writer = writer;
    this.lease = lease;
    this.tenant = tenant;
    this.keepsWords = keepsWords;
    this.words = new KnownWords(now);
    this.blobs = new SqlBlobs(connections, tenant, now);
  }

  get server(): string | undefined {
    return this.connections.fact && getServerName(this.connections.fact);
  }

  async take(sessionId: string, above: number, headerLine?: Uint8Array): Promise<LeaseResult> {
    if (!this.isNoted) this.writer.processes?.note(this.writer.id);
    this.isNoted = true;
    let ended: string | undefined;
    for (let tries = 0; tries < MOST_TAKINGS; tries++) {
      const taking = await this.takeOnce(sessionId, above, headerLine, ended);
      if (typeof taking === "object") {
        if (taking.kind === "taken") this.tally.takings++;
        return taking;
      }
      ended = taking;
    }
    return { kind: "away", reason: "others took the session and let go of it just now" };
  }

  /**
   * Returns undefined if it has to be tried again: another process had the session, and released it or lost its lease before
   * the question for the owner; or it was begun. Returns the id of an owner that has exited.
   */
  private async takeOnce(
    sessionId: string,
    above: number,
    headerLine: Uint8Array | undefined,
    ended: string | undefined,
  ): Promise<LeaseResult | string | undefined> {
    const { id, shown } = this.writer;
    const by = [id, shown.client, shown.host ?? null, shown.since, this.lease];
    const values = [this.tenant, sessionId, above, ...by, ended ?? null];
    const taken = await this.connections.run((fact) => ({ text: TAKE(fact), values }));
    if (taken.kind !== "done") return failed(taken);
    const [row] = taken.rows;
    if (row) {
      const end = parseEnd(row);
      this.hold(sessionId, { server: getServerName(taken.by), entries: end.entries });
      const numbers = { epoch: Number(row.epoch), indexed: Number(row.indexed) };
      return {
        kind: "taken",
        ...numbers,
        headerLine: row.header as Uint8Array,
        end,
        durability: getProvenDurability(taken.by, row),
        server: getServerName(taken.by),
      };
    }
    this.held.delete(sessionId);
    const looked = await this.connections.run(this.looking(sessionId));
    if (looked.kind !== "done") return failed(looked);
    const [there] = looked.rows;
    if (typeof there?.state === "number") {
      const holder = this.holderIn(there);
      // A session that was to begin again, but got no lines, is still deleted.
      if (there.state === 2 || (there.begins_again && !holder)) return { kind: "deleted" };
      if (holder) return { kind: "held", holder, end: parseEnd(there) };
      return there.held === null ? undefined : String(there.held);
    }
    if (!headerLine) return { kind: "missing" };
    const begun = await this.connections.run({
      text: BEGIN,
      values: [this.tenant, sessionId, bytes(headerLine), Buffer.from(NOTHING.chain, "hex")],
    });
    // It may be missing on a server that was promoted meanwhile.
    return begun.kind === "done" ? undefined : failed(begun);
  }

  /** Returns the other owner of a session, unless it is known to have exited. */
  private holderIn(row: SqlRow): Holder | null {
    return row.held && !this.writer.processes?.hasEnded(String(row.held)) ? parseHolderRow(row) : null;
  }

  private looking(sessionId: string): SqlQuestion {
    return (fact) => ({ text: LOOK(fact), values: [this.tenant, sessionId, this.writer.id] });
  }

  /** Keeps the lease from now on, also while this process writes nothing. */
  private hold(sessionId: string, known: Pick<LeasedSession, "server" | "entries">): void {
    const isInTurn = this.held.get(sessionId)?.isInTurn === true;
    const written = performance.now();
    this.held.set(sessionId, { ...known, isNew: true, isInTurn, written, renewed: Number.NEGATIVE_INFINITY });
    this.renewing ??= setInterval(() => void this.renewAll(), RENEWED_EVERY).unref();
  }

  /**
   * Renews the leases of active sessions: just taken and not written to, or in the middle of a turn. The lease of an idle
   * session expires without any statement, so that no process has to ask for it. After a failure another process may take
   * the session, which the next write finds out.
   */
  private async renewAll(): Promise<void> {
    const asked = performance.now();
    const isDue = ({ isNew, isInTurn, written }: LeasedSession): boolean =>
      (isNew || isInTurn) && asked - written < LONGEST_SILENCE;
    const sessions = new Map([...this.held].filter(([, session]) => isDue(session)));
    if (sessions.size === 0) return;
    const known = Array.from(sessions, ([id, { entries }]) => ({ id: toStorableText(id), entries }));
    const answer = await this.connections.run({
      text: RENEW,
      values: [this.tenant, this.writer.id, JSON.stringify(known), this.lease],
    });
    if (answer.kind !== "done") return;
    for (const { id, entries } of answer.rows) {
      const session = sessions.get(String(id));
      if (session && Number(entries) >= session.entries) session.renewed = asked;
    }
  }

  renewedAgo(sessionId: string): number {
    const { renewed } = this.held.get(sessionId) ?? {};
    return performance.now() - (renewed ?? Number.NEGATIVE_INFINITY);
  }

  mayBeTaken(sessionId: string): boolean {
    const held = this.held.get(sessionId);
    return held !== undefined && !held.isNew && !held.isInTurn && performance.now() - held.written >= IDLE_LEASE;
  }

  prepare(part: FleetPart): void {
    // It is asked for again when the part is sent.
    this.packed(part, part.from)?.catch(() => {});
  }

  /** Returns the packed lines of a part or batch; undefined if it is not stored in packs, or has no lines of its own. */
  private packed(sent: FleetPart | FleetBatch, from: FleetEnd): Promise<Pack[]> | undefined {
    const { lines, heads, stretches } = sent;
    if (!stretches || lines.length === 0) return undefined;
    const packs = this.packing.get(sent) ?? packLines(from, lines, heads, stretches);
    this.packing.set(sent, packs);
    return packs;
  }

  async keepPart(part: FleetPart, sent?: () => void): Promise<FleetOutcome> {
    const by = this.appender(part.sessionId);
    if (isSameEnd(part.from, part.before)) {
      const cleared = await this.commit(makeClearStatement(part, by), []);
      if (cleared.kind !== "committed") return cleared;
    }
    return this.commit(makePartStatement(part, by, await this.packed(part, part.from)), [], sent);
  }

  private appender(sessionId: string): Appender {
    const { tenant, lease, writer } = this;
    return { tenant, lease, holder: writer.id, server: this.held.get(sessionId)?.server };
  }

  async append(batch: FleetBatch): Promise<FleetOutcome> {
    const { forgotten } = this.blobs;
    const outcome = await this.appendOnce(batch);
    // Attachments that were removed meanwhile are sent again; the stored parts stay.
    const isLacking = outcome.kind === "refused" && this.blobs.forgotten !== forgotten;
    const last = isLacking ? await this.appendOnce(batch) : outcome;
    if (last.kind === "committed") this.tally.commits++;
    else if (last.kind === "unknown") this.tally.unknown++;
    else if (last.kind !== "away") this.tally.refusals++;
    return last;
  }

  private async appendOnce(batch: FleetBatch): Promise<FleetOutcome> {
    let attached: readonly string[];
    try {
      attached = await this.blobs.put(batch.attachments ?? []);
    } catch (error) {
      // The disk may have refused one, or the database for good.
      if (!isAway(error)) throw error;
      return { kind: "away", reason: (error as Failure).message };
    }
    const { sessionId } = batch;
    const isAlone = this.alone.has(sessionId);
    const append = { batch, attached, sessionId, server: this.held.get(sessionId)?.server, isAlone };
    // Lines that are kept in packs, or are there already, have a statement of their own.
    const packs = await this.packed(batch, batch.before);
    if (batch.stretches) return (await this.appendAll([{ ...append, packs }]))[0];
    return this.joint.append(append);
  }

  /** Appends to several sessions that were taken on one server. Each has an outcome of its own. */
  private async appendAll(appends: readonly PendingAppend[]): Promise<FleetOutcome[]> {
    const [{ sessionId, server }] = appends;
    const batches = appends.map((append) => this.sentBatch(append));
    // The server from when they were queued: a later change of the first session's server does not concern the others.
    const by = { ...this.appender(sessionId), server };
    const answer = await this.connections.run((fact) =>
      makeAppendStatement(batches, { ...by, isDirect: fact.isDirect }),
    );
    // Nothing was done; a refusal of one append is not one of the others.
    if (answer.kind === "failed" && appends.length > 1)
      return Promise.all(appends.map(async (one) => (await this.appendAll([one]))[0]));
    if (answer.kind !== "done") {
      const outcome = this.outcomeOf(answer);
      if (answer.kind === "away") this.joint.turnAway(outcome);
      const [{ batch }] = appends;
      const outcomes =
        isValueRefused(answer) && isFound(batch.facts)
          ? await this.appendAll([{ ...appends[0], batch: { ...batch, facts: dropSearchFacts(batch.facts) } }])
          : appends.map(() => outcome);
      if (answer.kind === "failed" && outcome.kind !== "refused") this.alone.add(sessionId);
      return outcomes;
    }
    const durability = getProvenDurability(answer.by, answer.rows[0]);
    const done = new Set(String(answer.rows[0].done ?? "").split(","));
    return batches.map(({ batch, facts }, n) => {
      if (!done.has(String(n))) return { kind: "refused" };
      this.alone.delete(batch.sessionId);
      const held = this.held.get(batch.sessionId);
      if (held) {
        held.entries = batch.after.entries;
        held.isNew = false;
        held.isInTurn = this.isInTurnAfter(batch);
        held.written = performance.now();
      }
      this.words.note(facts.words ?? []);
      return { kind: "committed", durability };
    });
  }

  private sentBatch({ batch, attached, packs }: PendingAppend): SentBatch {
    const { description, texts, spendings } = this.keepsWords ? batch.facts : dropWords(batch.facts);
    const described = description && toDescriptionRow(batch.sessionId, description);
    const lease = this.isInTurnAfter(batch) ? this.lease : Math.min(IDLE_LEASE, this.lease);
    return { batch, facts: { described, texts, words: this.words.unseen(texts), spendings, attached }, packs, lease };
  }

  /** Returns whether a turn is unfinished after a batch, which may have no message of a turn. */
  private isInTurnAfter(batch: FleetBatch): boolean {
    return leavesTurn(batch) ?? this.held.get(batch.sessionId)?.isInTurn === true;
  }

  async addFacts(late: LateFacts): Promise<FleetOutcome> {
    const facts = this.keepsWords ? late : dropWords(late);
    const words = this.words.unseen(facts.texts);
    const by = { tenant: this.tenant, holder: this.writer.id };
    const outcome = await this.commit(() => makeLateStatement(facts, by, { ...facts, words }), words);
    return outcome.kind === "unfit" && outcome.isOfValue && isFound(facts)
      ? this.addFacts(dropSearchFacts(facts))
      : outcome;
  }

  /** Runs a statement that returns a row if it was done. */
  private async commit(statement: SqlQuestion, words: readonly string[], sent?: () => void): Promise<FleetOutcome> {
    const answer = await this.connections.run(statement, sent);
    if (answer.kind !== "done") return this.outcomeOf(answer);
    if (answer.rows.length === 0) return { kind: "refused" };
    this.words.note(words);
    return { kind: "committed", durability: getProvenDurability(answer.by, answer.rows[0]) };
  }

  /** Returns the outcome of a commit for an answer other than "done". */
  private outcomeOf(answer: Exclude<SqlAnswer, { kind: "done" }>): FleetOutcome {
    // An attachment was removed, or another server was promoted that had not got it.
    if (answer.kind === "failed" && answer.code === LACKED) this.blobs.forget();
    if (answer.kind === "failed" && [MOVED, NOT_PROVEN, LACKED].includes(answer.code)) return { kind: "refused" };
    return answer.kind === "unknown" ? { kind: "unknown", reason: answer.reason } : failed(answer);
  }

  async release(sessionId: string, epoch: number): Promise<void> {
    this.held.delete(sessionId);
    this.alone.delete(sessionId);
    await this.connections.run({ text: RELEASE, values: [this.tenant, sessionId, epoch, this.writer.id] });
  }

  async look(sessionId: string): Promise<FleetSession | null> {
    const [row] = await this.connections.read(this.looking(sessionId));
    if (row?.state !== 1) return null;
    const holder = this.holderIn(row);
    const [headerLine, epoch, archived] = [row.header as Uint8Array, Number(row.epoch), row.archived === true];
    return { id: sessionId, headerLine, end: parseEnd(row), epoch, holder, archived };
  }

  async isMissing(sessionId: string): Promise<boolean> {
    const [row] = await this.connections.read(this.looking(sessionId));
    return typeof row?.state !== "number" || (row.state === 0 && !row.begins_again);
  }

  async *lines(sessionId: string, from: number, to: number): AsyncIterable<readonly Uint8Array[]> {
    const reader = new LineReader(this.connections, this.tenant, sessionId, to);
    let next = from < to ? reader.after(from) : undefined;
    while (next) {
      const { lines, past } = await next;
      next = past < to ? reader.after(past) : undefined;
      // The next ones are fetched while these are used. If they are not needed, their failure is ignored.
      next?.catch(() => {});
      yield lines;
    }
  }

  async *heads(sessionId: string, from: number, to: number): AsyncIterable<readonly string[]> {
    for (let at = from; at < to; ) {
      const past = Math.min(to, at + HEADS_FETCHED);
      const [row] = await this.connections.read({ text: HEADS, values: [this.tenant, sessionId, at, past] });
      const found = row && parseHeads(row, at, to);
      if (!found || found.length < past - at) throw makeMissingLinesFailure(sessionId);
      yield found;
      at += found.length;
    }
  }

  attachments(sessionId: string): Promise<readonly string[]> {
    return this.blobs.of(sessionId);
  }

  attachment(sha256: string): Promise<Uint8Array | null> {
    return this.blobs.read(sha256);
  }

  attach(sessionId: string, attachments: readonly FleetAttachment[]): Promise<void> {
    return this.blobs.attach(sessionId, attachments);
  }

  async close(): Promise<void> {
    clearInterval(this.renewing);
    await this.connections.close();
    if (this.isNoted) this.writer.processes?.forget(this.writer.id);
  }
}

/** Returns the result for a failed question; a lease whose answer was lost may be asked for again. */
function failed(answer: Exclude<SqlAnswer, { kind: "done" }>) {
  const reason = explainRefusal(answer);
  if (reason === undefined) return { kind: "away", reason: answer.reason } as const;
  return { kind: "unfit", reason, ...(isValueRefused(answer) ? { isOfValue: true } : {}) } as const;
}

/**
 * Returns whether a batch leaves a turn unfinished: its last message has to be answered, or calls tools. Undefined: it has
 * no message.
 */
function leavesTurn({ heads, lines }: FleetBatch): boolean | undefined {
  const roleAt = (n: number): string => parseStoredHead(heads[n])?.role ?? "";
  let last = heads.length - 1;
  while (last >= 0 && !OF_TURNS.has(roleAt(last))) last--;
  if (last < 0) return undefined;
  return roleAt(last) !== "assistant" || bytes(lines[last]).includes('"stopReason":"toolUse"');
}

function bytes(line: Uint8Array): Buffer {
  return Buffer.from(line.buffer, line.byteOffset, line.length);
}
