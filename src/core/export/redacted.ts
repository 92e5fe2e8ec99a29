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
  const redacted = redactLog(log, redactor, found, positions);
  // Nothing is written through it, and its leaf is that of the session.
  const copy = new Session(redacted.log as unknown as Log, session.env);
  copy.moveLeaf(tree.leaf);
  return { session: copy, counts: redacted.total, unjudged: Object.fromEntries(unjudged) };
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

/** Returns what exports read of a log, redacted, and a function that counts the replacements in these entries. */
function redactLog(log: Log, redactor: LineRedactor, found: Uint8Array, positions: readonly number[]) {
  /** Entries of the export that are not counted yet, by position. */
  const uncounted = new Uint8Array(log.nodes.count);
  for (const position of positions) uncounted[position] = 1;
  const counts = new Map<string, number>();
  const headerLine = redactor.redact(log.headerLine, counts);
  const redactedHeader = parse(headerLine) as Record<string, unknown>;
  const header = Object.entries(log.header).map(([name, value]) => {
    const known = redactedHeader[name];
    return [name, typeof value !== "string" ? value : typeof known === "string" ? known : redactor.text(value)];
  });
  const read = (position: number): Uint8Array => {
    const line = log.read(position);
    const isFirst = uncounted[position] === 1;
    uncounted[position] = 0;
    // An entry that was not read before may have anything in it.
    const isClean = isFirst && found[position] === 0 && !redactor.hasKnown(line);
    return isClean ? line : redactor.redact(line, isFirst ? counts : new Map());
  };
  const { store, version, nodes, persisted, durableCount } = log;
  const redacted = {
    ...{ store, version, nodes, persisted, durableCount, headerLine },
    header: Object.fromEntries(header) as Log["header"],
    // The copy stores nothing of its own.
    ...{ file: null, stamp: null, lock: NO_LOCK, mayHideEntries: false, repairable: [], damage: [] },
    readOnly: new Failure("read_only"),
    length: (position) => log.length(position),
    read,
    *readMany(positions) {
      for (let index = 0; index < positions.length; index++) yield read(positions[index]);
    },
    *copy(positions) {
      for (let index = 0; index < positions.length; index++) yield* [read(positions[index]), LINE_FEED];
    },
    attachment: (position, sha256, size) => log.attachment(position, sha256, size),
    refresh: () => ({ kind: "none" }),
  } satisfies Partial<Log>;
  const total = (): Readonly<Record<string, number>> => {
    for (const [position, isOpen] of uncounted.entries()) if (isOpen === 1) read(position);
    return Object.fromEntries([...counts].sort());
  };
  return { log: redacted, total };
}

const LINE_FEED = toBytes("\n");

/** Yields a redacted session as lines: all entries in file order, or the path to the leaf. */
export function* redactLines({ log, tree }: Session, all: boolean): Generator<Uint8Array> {
  yield log.headerLine;
  yield LINE_FEED;
  yield* log.copy(all ? Int32Array.from({ length: log.nodes.count }, (_, position) => position) : tree.path());
}
