/**
 * Connections to a database, and the meaning of its answers. A statement is a transaction of its own. No time limit is set
 * in the server and no cancel is sent: a commit that waits for its standby and is cancelled succeeds with a warning. A
 * connection whose server does not answer is dropped instead, and the outcome is unknown.
 */

import { Failure } from "../../../core/failure.ts";
import { sha256 } from "../../../storage/v2/frame.ts";
import type { Address } from "./address.ts";
import type { DatabaseClient, DatabaseServer, MakeClient, Notice, Rows, SqlStatement } from "./driver.ts";
import { makeUnfitFailure } from "./failures.ts";
import { explainMismatch, type KnownStore, makeKnownStore, requireSameStore } from "./identity.ts";
import {
  explainForgetting,
  getServerName,
  isFormer,
  parseServerPlace,
  readServerFact,
  type ServerFact,
  type ServerPlace,
} from "./server-fact.ts";

/**
 * Timeout in milliseconds of statements that change or read whole tables, or all rows of a session: an administrator
 * waits for them.
 */
export const BULK_TIMEOUT = 600_000;

/** The outcome of a statement. */
export type SqlAnswer =
  | ({ readonly kind: "done"; readonly by: ServerFact } & Rows)
  /** The server refused all of it: nothing was done. */
  | { readonly kind: "failed"; readonly code: string; readonly reason: string }
  /** It was not sent. */
  | { readonly kind: "away"; readonly reason: string }
  /** It was sent, and its outcome is unknown. */
  | { readonly kind: "unknown"; readonly reason: string; readonly code?: string };

/** A statement, or one whose text depends on the server's abilities. */
export type SqlQuestion = SqlStatement | ((fact: ServerFact) => SqlStatement);

/**
 * Sent once to a server without a pooler in front: a role may have time limits and transaction modes for other
 * programs. Behind a pooler the statements use the settings that they find, and may be refused and tried again.
 */
const OWN_SETTINGS = `select pg_catalog.set_config('statement_timeout', '0', false),
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false)`;
/** SQLSTATE of a change in a transaction that may only read. A promotion, or a disk with room again, may end that by itself. */
const READ_ONLY = "25006";
const READS_ONLY =
  "its transactions may only read: it is a standby, or its role or database has default_transaction_read_only = on, which a person set, or what watches its disk; set it to off to write there";
/** SQLSTATEs of transactions that were undone because of others: the same statement may succeed. */
const AGAIN = new Set(["40001", "40P01", "55P03"]);
/** SQLSTATEs after which a commit may have happened: connection or server is ending, or the outcome is unknown. */
const IN_DOUBT = /^(?:08|57P|40003)/;
/** SQLSTATEs that may also be a server's last, as when the disk of its log is full. */
const MAY_END = /^(?:53|58|XX)/;
const ENDING = new Set<unknown>(["FATAL", "PANIC"]);
const MOST_AGAIN = 5;
/** SQLSTATEs for a schema, a table and a column that are not there. */
export const NO_TABLES = new Set(["3F000", "42P01", "42703"]);
const TABLES_MISSING =
  "its tables are missing, or have another version: pi-session-server fleet migrate makes them, or says what to do";
/** SQLSTATE of a disk without room for the statement, which was undone. */
const DISK_FULL = "53100";
const NO_ROOM = "its disk is full; make room on the disk of its server, and writes go on by themselves";
/** Sentences with advice in place of the server's own, by SQLSTATE. */
const SENTENCES: ReadonlyMap<string, string> = new Map([
  ...[...NO_TABLES].map((code) => [code, TABLES_MISSING] as const),
  [READ_ONLY, READS_ONLY],
  [DISK_FULL, NO_ROOM],
]);
/**
 * SQLSTATEs of a prepared statement that the server no longer has under its name, has another one under it, or cannot run
 * any more. Nothing was done.
 */
const NOT_KEPT = new Set(["26000", "42P05", "0A000"]);
/** Milliseconds for which closing waits for answers. */
const LEAVING = 1000;
/** Milliseconds for which statements get the answer of the last one, if no server has answered for the patience of a request. */
const SHARED = 500;

/** In place of a SQLSTATE: another server answers than the one that the statement is for. */
export const MOVED = "moved";
/** In that place, too: a statement could not be made, as of values that are too long. */
const UNMADE = "unmade";
/** Shows that the server's process is alive. */
const STILL_THERE = "select 1";
/** Is answered with a warning if warnings arrive, and changes nothing. */
const WARNED = "commit";
/** The SQLSTATE of a row that needs another one. */
export const LACKED = "23503";
/** SQLSTATE of a division by zero, by which a statement undoes itself if its conditions do not hold. */
export const NOT_PROVEN = "22012";
/** The SQLSTATE of a row that is there already, because another one was faster. */
const FASTER = "23505";
/** In place of a SQLSTATE: the server refuses each connection until a person changes something. */
const REFUSED = "refused";
/** The same for a server that does not prove its identity, and for one without TLS. */
const UNTRUSTED = "untrusted";
const PLAIN = "plain";
/** Codes of the system, and a sentence of the driver, which has no code for it. */
const OF_TRUST = /^(?:CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_(?:GET|VERIFY)_|INVALID_(?:CA|PURPOSE)|ERR_TLS_CERT_)/;
const NO_TLS = "The server does not support SSL connections";
/** SQLSTATEs of such refusals, and of those of statements, with advice. */
const REMEDIES: ReadonlyMap<string, string> = new Map([
  ["28P01", "correct the password, in PI_FLEET_URL, the file of --fleet, PGPASSWORD or ~/.pgpass"],
  ["28000", "use a role that may connect, or have pg_hba.conf let this one in"],
  ["3D000", "make that database, or name another one in the URL of the fleet"],
  [UNTRUSTED, "have its certificate renewed, or name who signed it (sslrootcert) in the URL of the fleet"],
  [PLAIN, "turn ssl on there, or say sslmode=disable in the URL of the fleet where the network is trusted"],
  ["42501", "use the role that it is meant for, or have the owner of the tables grant it"],
]);
/** The SQLSTATE of a refused role, also if its directory (LDAP, PAM, RADIUS) is unreachable. */
const NOT_LET_IN = "28000";
/** PostgreSQL's functions that refuse it for good. `auth_failed` refuses it for a directory that is away, too. */
const LASTING_ROUTINES: ReadonlySet<unknown> = new Set(["ClientAuthentication", "InitializeSessionUserId"]);
/** The methods of `auth_failed` without a directory: only its sentence names the method, here in English. */
const WITHOUT_DIRECTORY = /(?:peer|ident|certificate) authentication failed/i;
/** Classes of SQLSTATE for values: of a wrong form, against a rule of the tables, beyond a limit of the server. */
const OF_VALUES = /^(?:22|23|54)/;
/**
 * Milliseconds after which an unused connection is closed. Making one takes as long as fifty statements (6 ms without
 * TLS), so it is longer than the 10 s between two renewals of leases: a process in the middle of a turn keeps one.
 */
const IDLE = 15_000;
/** Milliseconds until the system probes the other end, instead of two hours. */
const ASKED_AFTER = 30_000;
const CLOSED = "the fleet was closed";

interface ConnectionLimits {
  readonly address: Address;
  /** Returns it as it is now, for each new connection; by default it stays. */
  readonly readAddress?: () => Address;
  readonly driver: () => Promise<MakeClient>;
  /** Connections at a time, at most. */
  readonly most: number;
  /** Milliseconds within which a connection is made. */
  readonly connectWithin: number;
  /** Milliseconds within which a statement is answered. */
  readonly answerWithin: number;
  /** Milliseconds for which a request waits for a server that does not answer. */
  readonly patience?: number;
  /** The store that is known there; by default the one that is met first. */
  readonly store?: KnownStore;
}

class DatabaseConnection {
  readonly client: DatabaseClient;
  fact: ServerFact = { durability: "primary", version: "" };
  isOver = false;
  /** The clock of the process when its last statement was answered. */
  usedAt = 0;
  /** Warnings that came since the statement was sent. */
  readonly warnings: string[] = [];

  constructor(client: DatabaseClient) {
    this.client = client;
    client.on("error", () => {
      this.isOver = true;
    });
    client.on("end", () => {
      this.isOver = true;
    });
    client.on("notice", ({ severity, message }: Notice) => {
      if (severity === "WARNING") this.warnings.push(message ?? "a warning");
    });
  }

  drop(): void {
    this.isOver = true;
    this.client.connection.stream.destroy();
  }
}

export class Connections {
  private readonly options: ConnectionLimits;
  private readonly idle: DatabaseConnection[] = [];
  private readonly open = new Set<DatabaseConnection>();
  /** Statements that wait until there are fewer; with an answer, they are not sent. */
  private readonly waiting: ((answer?: SqlAnswer) => void)[] = [];
  private busy = 0;
  /** Called when no statement runs or waits. */
  private answered: () => void = () => {};
  private isClosed = false;
  private sweeping: NodeJS.Timeout | undefined;
  /** The first of the statements since then that no server answered, and the last one. */
  private lost: { readonly since: number; readonly at: number; readonly answer: SqlAnswer } | undefined;
  /** The server that answered last. */
  fact: ServerFact | undefined;
  /** The latest known primary, kept here because reading the note on disk is too expensive for each commit. */
  private latest: ServerPlace | undefined;
  private readonly store: KnownStore;

  constructor(options: ConnectionLimits) {
    this.options = options;
    this.store = options.store ?? makeKnownStore();
  }

  /** Runs a statement. `sent` is called when the server got all of it, unless it has answered. Never rejects. */
  async run(question: SqlQuestion, sent?: () => void): Promise<SqlAnswer> {
    const asked = performance.now();
    const { at = Number.NEGATIVE_INFINITY, answer: last } = this.lost ?? {};
    const isLasting = asked - this.lostSince >= (this.options.patience ?? Number.POSITIVE_INFINITY);
    if (last?.kind === "away" && isLasting && asked - at < SHARED) return last;
    while (this.busy >= this.options.most) {
      const known = await new Promise<SqlAnswer | undefined>((resolve) => this.waiting.push(resolve));
      if (known) return known;
    }
    this.busy++;
    try {
      let answer = await this.runOnce(question, sent);
      for (let n = 1; n < MOST_AGAIN && answer.kind === "failed" && AGAIN.has(answer.code); n++) {
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 10 * 2 ** n));
        answer = await this.runOnce(question);
      }
      const isLost = answer.kind === "away" || answer.kind === "unknown";
      this.lost = isLost ? { since: Math.min(asked, this.lostSince), at: performance.now(), answer } : undefined;
      // Those that wait would find out the same, a few at a time.
      if (answer.kind === "away" && this.open.size === 0) for (const tell of this.waiting.splice(0)) tell(answer);
      return answer;
    } finally {
      this.busy--;
      const next = this.waiting.shift();
      if (next) next();
      else if (this.busy === 0) this.answered();
    }
  }

  /** The clock of the process when the first statement was asked that no server has answered since; Infinity: none. */
  get lostSince(): number {
    return this.lost?.since ?? Number.POSITIVE_INFINITY;
  }

  /** Runs a statement that only reads. Throws storage_failed. */
  async read(question: SqlQuestion): Promise<Rows["rows"]> {
    let answer = await this.run(question);
    // The connection may have been one of a server that is gone.
    if (answer.kind === "unknown") answer = await this.run(question);
    if (answer.kind === "done") return answer.rows;
    throw toSqlFailure(answer);
  }

  private async runOnce(question: SqlQuestion, sent?: () => void): Promise<SqlAnswer> {
    let connection: DatabaseConnection;
    try {
      connection = await this.connection();
    } catch (error) {
      const code = refusalCode(error);
      return code === undefined
        ? { kind: "away", reason: reasonOf(error) }
        : { kind: "failed", code, reason: reasonOf(error) };
    }
    const put = async (): Promise<SqlAnswer> => {
      let statement: SqlStatement;
      try {
        statement = typeof question === "function" ? question(connection.fact) : question;
      } catch (error) {
        return { kind: "failed", code: UNMADE, reason: reasonOf(error) };
      }
      return this.isMeant(connection.fact, statement)
        ? this.ask(connection, statement, sent)
        : { kind: "failed", code: MOVED, reason: "another server is the primary by now" };
    };
    let answer = await put();
    if (answer.kind === "failed" && connection.fact.isDirect && NOT_KEPT.has(answer.code)) {
      connection.fact = { ...connection.fact, isDirect: false };
      answer = await put();
    }
    if (answer.kind !== "done") this.look();
    if (this.isClosed) connection.drop();
    if (connection.isOver) this.forget(connection);
    else this.rest(connection);
    return answer;
  }

  /** Keeps a connection for later, and closes connections that were unused for long. */
  private rest(connection: DatabaseConnection): void {
    connection.client.unref();
    connection.usedAt = performance.now();
    this.idle.push(connection);
    this.sweeping ??= setInterval(() => this.sweep(), IDLE / 2).unref();
  }

  /** Closes connections that were unused for long. The last used one is used next. */
  private sweep(): void {
    while (this.idle.length > 0 && performance.now() - this.idle[0].usedAt >= IDLE) {
      const [unused] = this.idle.splice(0, 1);
      this.forget(unused);
      unused.client.end().catch(() => {});
    }
    if (this.idle.length > 0) return;
    clearInterval(this.sweeping);
    this.sweeping = undefined;
  }

  private async ask(connection: DatabaseConnection, statement: SqlStatement, sent?: () => void): Promise<SqlAnswer> {
    const { client, warnings } = connection;
    let isAnswered = false;
    let late: NodeJS.Timeout | undefined;
    const lateness = new Promise<never>((_, reject) => {
      late = setTimeout(
        () => {
          connection.drop();
          // Unused ones lead to the same server, and the next statement would wait as long there.
          for (const unused of this.idle.splice(0)) {
            unused.drop();
            this.forget(unused);
          }
          const isWaiting = connection.fact.durability === "replicated";
          const why = isWaiting ? "; it may wait for a standby, which synchronous_standby_names asks for" : "";
          reject(new Error(`it did not answer in time${why}`));
        },
        Math.max(this.options.answerWithin, statement.within ?? 0),
      );
    });
    warnings.length = 0;
    client.ref();
    try {
      const isKept = connection.fact.isDirect && statement.isRepeated;
      const asked = client.query(isKept ? { ...statement, name: nameFor(statement.text) } : statement);
      if (sent) whenWritten(client, () => isAnswered || sent());
      const { rows } = await Promise.race([asked, lateness]);
      // Several statements have a list of results instead.
      const doubt = statement.text === WARNED ? undefined : this.doubtIn(connection, rows?.[0] ?? {});
      if (doubt === undefined) return { kind: "done", rows, by: connection.fact };
      connection.drop();
      return { kind: "unknown", reason: doubt };
    } catch (error) {
      const { code, severity } = error as { code?: unknown; severity?: unknown };
      const isAnswer = typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) && severity !== undefined;
      // The server may refuse, and then find that it cannot: only its next answer shows that it lives.
      const isUndoneThere =
        isAnswer &&
        isUndone(code, severity) &&
        (!MAY_END.test(code) ||
          (await Promise.race([client.query({ text: STILL_THERE }), lateness]).then(
            () => true,
            () => false,
          )));
      if (isUndoneThere) return { kind: "failed", code, reason: SENTENCES.get(code) ?? reasonOf(error) };
      connection.drop();
      return { kind: "unknown", reason: reasonOf(error), ...(isAnswer ? { code } : {}) };
    } finally {
      isAnswered = true;
      clearTimeout(late);
    }
  }

  /**
   * Returns why an answer does not count, if so: a commit that its standby may have lost, or that may be forgotten, and
   * any answer of a former primary. Records the server if the answer names it.
   */
  private doubtIn(connection: DatabaseConnection, row: Readonly<Record<string, unknown>>): string | undefined {
    if (connection.warnings.length > 0) return connection.warnings.join("; ");
    const place = parseServerPlace(row.server);
    const against = isFormer(place, this.latest) ? explainMismatch(place, this.store) : undefined;
    if (against !== undefined) return against;
    if (place) this.note(connection, place);
    return explainForgetting(row);
  }

  /** Notes which server answers at the other end of a connection. */
  private note(connection: DatabaseConnection, place: ServerPlace): void {
    if (isFormer(this.latest, place)) {
      this.latest = place;
      void this.store.note({ latest: place });
    }
    if (getServerName(connection.fact) !== getServerName({ ...connection.fact, place }))
      connection.fact = { ...connection.fact, place };
    this.fact = connection.fact;
  }

  /** Returns whether a statement is meant for a server, as far as either is known. */
  private isMeant(fact: ServerFact, { server }: SqlStatement): boolean {
    const name = getServerName(fact);
    return server === undefined || name === undefined || (server === name && !isFormer(fact.place, this.latest));
  }

  /** Returns whether warnings of the server come through. */
  private async hears(connection: DatabaseConnection): Promise<boolean> {
    const answer = await this.ask(connection, { text: WARNED });
    if (answer.kind === "unknown") throw new Error(answer.reason);
    return connection.warnings.length > 0;
  }

  /** Looks whether a process of this machine has met a later primary. */
  private look(): void {
    this.latest = this.store.known().latest;
  }

  /** Returns a connection that waits for work, or makes one. */
  private async connection(): Promise<DatabaseConnection> {
    for (let known = this.idle.pop(); known; known = this.idle.pop()) {
      if (known.isOver) this.look();
      else if (!isFormer(known.fact.place, this.latest)) {
        this.fact = known.fact;
        return known;
      }
      known.drop();
      this.forget(known);
    }
    if (this.isClosed) throw new Error(CLOSED);
    const make = await this.options.driver();
    const { server } = this.options.readAddress?.() ?? this.options.address;
    const connection = await this.connect(make, server);
    this.fact = connection.fact;
    return connection;
  }

  /** Connects to the server. Throws if it is read-only. */
  private async connect(make: MakeClient, server: DatabaseServer): Promise<DatabaseConnection> {
    const within = { connectionTimeoutMillis: this.options.connectWithin };
    const config = { ...server, ...within, keepAlive: true, keepAliveInitialDelayMillis: ASKED_AFTER };
    const connection = new DatabaseConnection(make(config));
    try {
      await connection.client.connect();
      this.open.add(connection);
      const ask = (statement: SqlStatement): Promise<SqlAnswer> => this.ask(connection, statement);
      connection.fact = await readServerFact(ask, () => this.hears(connection), connection.client.processID);
      if (connection.fact.isDirect) await ask({ text: OWN_SETTINGS });
      await requireSameStore(ask, connection.fact.place, this.store, this.options.store !== undefined);
      if (this.isClosed) throw new Error(CLOSED);
      this.look();
      return connection;
    } catch (error) {
      connection.drop();
      this.forget(connection);
      throw error;
    }
  }

  private forget(connection: DatabaseConnection): void {
    this.open.delete(connection);
  }

  /** Closes the connections after the pending answers; slower ones are abandoned after a moment. */
  async close(): Promise<void> {
    let late: NodeJS.Timeout | undefined;
    const moment = new Promise<void>((resolve) => {
      late = setTimeout(resolve, LEAVING);
    });
    const answered = new Promise<void>((resolve) => {
      this.answered = resolve;
    });
    if (this.busy > 0) await Promise.race([answered, moment]);
    this.isClosed = true;
    clearInterval(this.sweeping);
    const idle = this.idle.splice(0);
    await Promise.race([Promise.allSettled(idle.map(({ client }) => client.end())), moment]);
    clearTimeout(late);
    for (const connection of this.open) connection.drop();
    this.open.clear();
  }
}

/**
 * Returns whether an error of the server means that nothing of a statement was done. Severity ERROR does, but the word
 * is translated if the server speaks another language.
 */
function isUndone(code: string, severity: unknown): boolean {
  if (IN_DOUBT.test(code) || ENDING.has(severity)) return false;
  return severity === "ERROR" || !MAY_END.test(code);
}

/** Returns whether an answer is that the server does not take a value, however often it is sent. Nothing was done. */
export function isValueRefused(answer: SqlAnswer): boolean {
  if (answer.kind !== "failed" || [NOT_PROVEN, LACKED, FASTER].includes(answer.code)) return false;
  return answer.code === UNMADE || OF_VALUES.test(answer.code);
}

/** Returns why a server refuses a statement permanently, and what to do; undefined if it may accept it later. */
export function explainRefusal(answer: SqlAnswer): string | undefined {
  if (answer.kind !== "failed") return undefined;
  const { code, reason } = answer;
  if (isValueRefused(answer)) return `${reason}; write it otherwise, or without --fleet`;
  const remedy = REMEDIES.get(code);
  if (remedy !== undefined) return `${reason}; ${remedy}`;
  return code === REFUSED || NO_TABLES.has(code) ? reason : undefined;
}

/** Returns the failure of a statement that was not carried out. */
export function toSqlFailure(answer: Exclude<SqlAnswer, { kind: "done" }>): Failure {
  const refusal = explainRefusal(answer);
  if (refusal !== undefined) return makeUnfitFailure(refusal);
  const text = { what: `The fleet's database cannot be used (${answer.reason}).`, advice: "Try again." };
  return new Failure("storage_failed", text, { fleet: true }, { cause: new Error(answer.reason) });
}

/** Returns in place of a SQLSTATE why no connection can be made, if that is permanent. */
function refusalCode(error: unknown): string | undefined {
  if (error instanceof Failure && !error.retryable) return REFUSED;
  const { code, message, routine } = error as { code?: unknown; message?: unknown; routine?: unknown };
  if (message === NO_TLS) return PLAIN;
  if (typeof code === "string" && OF_TRUST.test(code)) return UNTRUSTED;
  const isLasting = LASTING_ROUTINES.has(routine) || WITHOUT_DIRECTORY.test(reasonOf(error));
  if (code === NOT_LET_IN && !isLasting) return undefined;
  return typeof code === "string" && REMEDIES.has(code) && "severity" in (error as object) ? code : undefined;
}

/** Calls `run` when the socket has accepted the written bytes. The driver writes in the next turn. */
function whenWritten({ connection: { stream } }: DatabaseClient, run: () => void): void {
  setImmediate(() => {
    if (stream.writableLength === 0) run();
    else stream.once("drain", run);
  });
}

/** Names of prepared statements, which are few. */
const names = new Map<string, string>();

/** Returns the name of a prepared statement: unique for its text, whichever process prepared it. */
function nameFor(text: string): string {
  const name = names.get(text) ?? `pi_${sha256(text).slice(0, 32)}`;
  names.set(text, name);
  return name;
}

/** Returns why something failed, in one line. Some errors of the system have no message but those they consist of. */
function reasonOf(error: unknown): string {
  const { message, code, errors } = error as { message?: string; code?: string; errors?: unknown[] };
  const text = message || (errors && errors.length > 0 ? reasonOf(errors[0]) : "") || code || "no reason given";
  return text.replace(/\s+/g, " ").trim();
}
