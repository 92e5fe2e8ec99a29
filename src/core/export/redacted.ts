/** A session without its secrets, for any export: a log over the real one, whose lines are redacted as they are read. */

import { Failure } from "../failure.ts";
import { parse, toBytes } from "../json/json.ts";
import { NO_LOCK } from "../ports/lock.ts";
import type { Log } from "../ports/store.ts";
import type { LineRedactor } from "../redact/main.ts";
import { Session } from "../session/session.ts";
import { getBranches } from "./branches.ts";

/** A session to export, and the counts of its removed parts. */
interface RedactedSession {
  readonly session: Session;
  /** Returns how often each kind was replaced in the export. */
  counts(): Readonly<Record<string, number>>;
  /** Parts that cannot be examined: they stay as they are, except damaged lines, which are left out. */
  readonly unjudged: Readonly<Record<string, number>>;
}

/** Damage whose bytes are not read as entries. */
const UNREAD = new Set(["bad_line", "bad_body", "bad_header", "torn_tail", "extra_header", "lost_entries"]);
/** Entries that are shown if and only if their target is. */
const EVERYWHERE = new Set(["label", "session_info"]);
/** Entries between two turns for others. */
const STEP = 64;

interface RedactionOptions {
  /** Every branch, or the path to the leaf. */
  readonly all: boolean;
  readonly allowUnjudged: boolean;
  /** The home of the exporting person. */
  readonly home: string | undefined;
  readonly pause: () => Promise<void>;
}

/**
 * Reads the entries to export and learns their secrets. Throws unjudged for a part that cannot be searched, unless the
 * caller allows that.
 */
export async function removeSecrets(
  session: Session,
  redactor: LineRedactor,
  { all, allowUnjudged, home, pause }: RedactionOptions,
): Promise<RedactedSession> {
  const { log, tree } = session;
  const positions = shownPositions(session, all);
  const unjudged = new Map<string, number>();
  /** 1 for an entry with a finding, by position. */
  const found = new Uint8Array(log.nodes.count);
  // The home of the working directory is the session's own.
  redactor.texts.homes.learn(session.cwd);
  if (home !== undefined) redactor.texts.homes.learnHome(home);
  redactor.learn(log.headerLine, unjudged);
  for (const [index, position] of positions.entries()) {
    found[position] = redactor.learn(log.read(position), unjudged) ? 1 : 0;
    if (index % STEP === STEP - 1) await pause();
  }
  const damaged = session.diagnostics.filter(({ kind }) => UNREAD.has(kind)).length;
  if (damaged > 0) unjudged.set("damage", damaged);
  if (unjudged.size > 0 && !allowUnjudged) throw toUnjudgedFailure(unjudged);
  redactor.texts.knowAll();
  const redacted = new RedactedLog(log, redactor, found, positions);
  // Nothing is written through it, and its leaf is that of the session.
  const copy = new Session(redacted as unknown as Log, session.env);
  copy.moveLeaf(tree.leaf);
  return { session: copy, counts: () => redacted.total(), unjudged: Object.fromEntries(unjudged) };
}

/** Returns the entries that an export shows, in file order. */
function shownPositions(session: Session, all: boolean): number[] {
  const { nodes } = session.log;
  if (all) return Array.from({ length: nodes.count }, (_, position) => position);
  const shown = new Set(getBranches(session, "path").flatMap(({ own }) => own));
  for (let position = 0; position < nodes.count; position++)
    if (EVERYWHERE.has(nodes.type(position))) shown.add(position);
  return [...shown].sort((a, b) => a - b);
}

const NAMES: Readonly<Record<string, readonly [one: string, many: string]>> = {
  image: ["image", "images"],
  binary: ["stretch of binary data", "stretches of binary data"],
  attachment: ["attachment", "attachments"],
  damage: ["damaged place", "damaged places"],
  id: ["id that looks like a secret", "ids that look like secrets"],
};

function toUnjudgedFailure(unjudged: ReadonlyMap<string, number>): Failure {
  const list = [...unjudged].map(([kind, count]) => `${count} ${NAMES[kind][count === 1 ? 0 : 1]}`).join(", ");
  const sentence =
    `Nothing was written, because this cannot be searched for secrets: ${list}. Look at it, then set allowUnjudged: ` +
    "damaged places are then left out, and the rest stays as it is.";
  return new Failure("unjudged", sentence, { unjudged: Object.fromEntries(unjudged) });
}

/** The part of a log that exports read. */
type ReadableLog = Pick<
  Log,
  | "store"
  | "file"
  | "header"
  | "headerLine"
  | "version"
  | "nodes"
  | "damage"
  | "readOnly"
  | "lock"
  | "persisted"
  | "durableCount"
  | "stamp"
  | "mayHideEntries"
  | "repairable"
  | "length"
  | "read"
  | "readMany"
  | "copy"
  | "attachment"
  | "refresh"
>;

class RedactedLog implements ReadableLog {
  private readonly log: Log;
  private readonly redactor: LineRedactor;
  private readonly found: Uint8Array;
  /** Entries of the export that are not counted yet, by position. */
  private readonly uncounted: Uint8Array;
  private readonly counts = new Map<string, number>();
  readonly header: Log["header"];
  readonly headerLine: Uint8Array;
  readonly readOnly = new Failure("read_only");
  readonly lock = NO_LOCK;
  readonly mayHideEntries = false;
  readonly repairable = [];

  constructor(log: Log, redactor: LineRedactor, found: Uint8Array, positions: readonly number[]) {
    this.log = log;
    this.redactor = redactor;
    this.found = found;
    this.uncounted = new Uint8Array(log.nodes.count);
    for (const position of positions) this.uncounted[position] = 1;
    this.headerLine = redactor.redact(log.headerLine, this.counts);
    const redactedHeader = parse(this.headerLine) as Record<string, unknown>;
    const header: Record<string, unknown> = { ...log.header };
    for (const [name, value] of Object.entries(header))
      if (typeof value === "string")
        header[name] = typeof redactedHeader[name] === "string" ? redactedHeader[name] : redactor.text(value);
    this.header = header as Log["header"];
  }

  get store(): string {
    return this.log.store;
  }

  /** None: the copy stores nothing of its own. */
  get file(): null {
    return null;
  }

  get version(): number {
    return this.log.version;
  }

  get nodes(): Log["nodes"] {
    return this.log.nodes;
  }

  get damage(): Log["damage"] {
    return [];
  }

  get persisted(): boolean {
    return this.log.persisted;
  }

  get durableCount(): number {
    return this.log.durableCount;
  }

  get stamp(): null {
    return null;
  }

  length(position: number): number {
    return this.log.length(position);
  }

  read(position: number): Uint8Array {
    const line = this.log.read(position);
    const isFirst = this.uncounted[position] === 1;
    this.uncounted[position] = 0;
    // An entry that was not read before may have anything in it.
    const isClean = isFirst && this.found[position] === 0 && !this.redactor.hasKnown(line);
    return isClean ? line : this.redactor.redact(line, isFirst ? this.counts : new Map());
  }

  *readMany(positions: ArrayLike<number>): Generator<Uint8Array> {
    for (let index = 0; index < positions.length; index++) yield this.read(positions[index]);
  }

  *copy(positions: ArrayLike<number>): Generator<Uint8Array> {
    for (const line of this.readMany(positions)) {
      yield line;
      yield LINE_FEED;
    }
  }

  attachment(position: number, sha256: string, sizeBytes: number): string | null {
    return this.log.attachment(position, sha256, sizeBytes);
  }

  refresh(): ReturnType<Log["refresh"]> {
    return { kind: "none" };
  }

  total(): Readonly<Record<string, number>> {
    for (let position = 0; position < this.uncounted.length; position++)
      if (this.uncounted[position] === 1) this.read(position);
    return Object.fromEntries([...this.counts].sort());
  }
}

const LINE_FEED = toBytes("\n");

/** Yields a redacted session as lines: all entries in file order, or the path to the leaf. */
export function* redactLines({ log, tree }: Session, all: boolean): Generator<Uint8Array> {
  yield log.headerLine;
  yield LINE_FEED;
  yield* log.copy(all ? Int32Array.from({ length: log.nodes.count }, (_, position) => position) : tree.path());
}
