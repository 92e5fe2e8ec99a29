/**
 * Facts that follow their lines. A long commit is acknowledged when its lines are there; words and usage are added
 * later, in pieces small enough to delay no caller. A process that is interrupted leaves the rest to the next one that
 * looks for such sessions.
 */

import { parseSessionHeader, toReadableHeader } from "../../../core/format/entry.ts";
import type { Fleet, LateFacts } from "../../../core/ports/fleet.ts";
import type { BehindSession } from "../../../core/ports/fleet-admin-queries.ts";
import type { Log, Store } from "../../../core/ports/store.ts";
import { findPositionAfter } from "../postgres/ends.ts";
import { dropWords } from "../postgres/fact-parts.ts";
import { extractFacts, type FactsBase, type FactsSource, isAllInherited, makeFactsBase } from "./facts.ts";

/** Bytes of lines whose facts are gathered and sent together: 10 ms here, and as much there. */
const PIECE_BYTES = 128 << 10;
/** The same if no caller waits for anything else. */
const LARGE_PIECE_BYTES = 1 << 20;

/** Entries of a session whose facts are missing, up to the common end of log and fleet. */
export interface LateStretch {
  readonly epoch: number;
  readonly from: number;
  readonly to: number;
  /** Notes that they are there up to a position. */
  added(to: number): void;
  /** Records that the known state may be wrong: the facts may be there, or another process may have added them. */
  doubted(): void;
}

/** The adding of late facts by a process that has the session and its lines. */
export class LateWork {
  private readonly log: Log;
  private readonly fleet: Fleet;
  private readonly stretch: () => LateStretch | null;
  private running: Promise<void> | undefined;
  private isOver = false;
  private pieceBytes = PIECE_BYTES;
  /** Position up to which entries are inherited, as isAllInherited computes it. */
  private known: { readonly at: number; readonly begins: boolean } | undefined;

  /** `stretch` returns the missing part; null if nothing is missing, or this process may not add it. */
  constructor(log: Log, fleet: Fleet, stretch: () => LateStretch | null) {
    this.log = log;
    this.fleet = fleet;
    this.stretch = stretch;
  }

  /** Resolves when the running work has ended, which continues in larger pieces. */
  finish(): Promise<void> {
    this.pieceBytes = LARGE_PIECE_BYTES;
    return this.running ?? Promise.resolve();
  }

  /** Begins to add missing facts, unless that is running. */
  begin(): void {
    if (this.running || this.stretch() === null) return;
    // Unreadable or refused entries are left to other processes.
    this.running = this.run()
      .catch(() => {})
      .finally(() => {
        this.running = undefined;
      });
  }

  /** Leaves the rest to other processes. */
  end(): void {
    this.isOver = true;
  }

  private async run(): Promise<void> {
    for (;;) {
      // Requests that came meanwhile go first.
      await new Promise((resolve) => setImmediate(resolve));
      const stretch = this.isOver ? null : this.stretch();
      if (stretch === null) return;
      const { epoch, from } = stretch;
      const { log } = this;
      const base = makeFactsBase(log.header);
      const begins = this.known?.at === from ? this.known.begins : isAllInherited(log, base, from);
      const to = findPositionAfter(log, from, stretch.to, this.pieceBytes);
      const found = extractFacts(log, base, begins, from, to);
      const outcome = await this.fleet.addFacts({ sessionId: base.id, epoch, from, to, ...factsIn(found) });
      if (outcome.kind === "refused" || outcome.kind === "unknown") stretch.doubted();
      if (outcome.kind !== "committed") return;
      this.known = { at: to, begins: found.begins };
      stretch.added(to);
    }
  }
}

function factsIn({ texts, spendings }: ReturnType<typeof extractFacts>): Pick<LateFacts, "texts" | "spendings"> {
  return { texts, spendings };
}

/** The means to add facts of sessions whose lines are only in the fleet. */
interface LatePlace {
  readonly fleet: Fleet;
  readonly memory: Store;
}

/** Adds the facts of a session that another process left. Returns whether all are there now. */
export async function finishFacts(place: LatePlace, session: BehindSession): Promise<boolean> {
  const { fleet } = place;
  const { id, epoch, end, headerLine } = session;
  const stored = parseSessionHeader(headerLine);
  if (!stored) return false;
  const header = toReadableHeader(stored);
  const base: FactsBase = { ...makeFactsBase(header), id };
  const sourceOf = (lines: readonly Uint8Array[]): FactsSource => {
    const log = place.memory.create({ headerLine, header });
    log.append(lines);
    return log;
  };
  let begins = session.indexed === 0 ? base.parentSession !== null : await beginsBefore(place, session, base, sourceOf);
  let from = session.indexed;
  for await (const lines of fleet.lines(id, from, end.entries)) {
    for (let first = 0; first < lines.length; ) {
      let past = first + 1;
      for (let bytes = lines[first].length; past < lines.length; past++) {
        bytes += lines[past].length;
        if (bytes > PIECE_BYTES) break;
      }
      const found = extractFacts(sourceOf(lines.slice(first, past)), base, begins, 0, past - first, from);
      const to = from + past - first;
      const late = { sessionId: id, epoch, from, to, ...factsIn(found) };
      const outcome = await fleet.addFacts(session.isWordless ? dropWords(late) : late);
      if (outcome.kind !== "committed") return false;
      begins = found.begins;
      [first, from] = [past, to];
    }
  }
  return true;
}

/** See isAllInherited; earlier lines are fetched only if the last of them was inherited. */
async function beginsBefore(
  { fleet }: LatePlace,
  { id, indexed }: BehindSession,
  base: FactsBase,
  sourceOf: (lines: readonly Uint8Array[]) => FactsSource,
): Promise<boolean> {
  for (const from of [indexed - 1, 0]) {
    let begins = base.parentSession !== null;
    for await (const lines of begins ? fleet.lines(id, from, indexed) : [])
      begins &&= isAllInherited(sourceOf(lines), base, lines.length);
    if (!begins) return false;
  }
  return true;
}

/** Milliseconds until a server looks for the first time; one that ends soon never does. */
const FIRST_LOOK = 10_000;
/**
 * Average milliseconds between two looks after one without result. Each look makes a connection: of 10,000 idle servers
 * the database gets eleven a second.
 */
const EVERY = 900_000;

/**
 * Searches, now and then, for sessions whose facts a process left behind that has ended. `finish` adds the facts of one, and
 * returns whether there was one. Returns a function that ends the search.
 */
export function sweepLateFacts(finish: () => Promise<boolean>, first = FIRST_LOOK): () => void {
  let isOver = false;
  let timer: NodeJS.Timeout;
  const lookAfter = (milliseconds: number): void => {
    timer = setTimeout(async () => {
      try {
        while (!isOver && (await finish())) {
          // The next one.
        }
      } catch {
        // The database is unreachable, or its tables have another version; it is tried again later.
      }
      if (!isOver) lookAfter(EVERY * (0.5 + Math.random()));
    }, milliseconds).unref();
  };
  lookAfter(first);
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}
