/**
 * A model of the rule "what was learned without the lock is a guess": some processes, one log, writes that others see one
 * piece at a time, death at any moment. Its steps are those of `Log` (src/core/ports/store.ts), so that its traces can be
 * run against the real stores.
 *
 * A record is two pieces, `a` its first half and `A` the rest with the line feed; a medium is the text of its pieces. A
 * JSONL log has one medium, its file; a V2 log has two, the frames and the index rows that name them.
 */

import type { System } from "./explorer.ts";

/** The modelled system, and its bounds. */
export interface World {
  readonly store: "jsonl" | "v2";
  readonly processes: number;
  /** Appends by all processes together, those that fail or die included. */
  readonly appends: number;
  /** Number of them that may have two records. */
  readonly pairs: number;
  /** Records of a program that knows no lock, each appended in one piece. */
  readonly foreign?: number;
  /** Several processes get the lock at once, as in network namespaces that share a volume. */
  readonly lockFails?: boolean;
  /** No stamp ever shows a change: what else keeps the rule is enough by itself. */
  readonly blind?: boolean;
  /** Writes and syncs that fail; none where it is left out. */
  readonly failures?: boolean;
}

/** The old behaviours, and some that were never there. */
export interface Mutation {
  /** The log is not compared with the medium when the lock is taken. */
  readonly noConfirm?: boolean;
  /** A verdict on the end of the log stays as it was reached without the lock. */
  readonly oldVerdict?: boolean;
  /** The cut bytes are not compared with the judged ones. */
  readonly cutBlindly?: boolean;
  /** A log with remains does not look for more at the taking of the lock. */
  readonly tornHidesMore?: boolean;
  /** A look reads the content first and takes the stamp afterwards. */
  readonly contentFirst?: boolean;
  /** A failed commit cuts back to the durable size, whatever lies there now. */
  readonly rollBackBlindly?: boolean;
  /** Before index rows are written, whatever is longer than the rows that are known is cut off. */
  readonly rowsCutBlindly?: boolean;
  /** A torn tail is closed with a line feed. */
  readonly seal?: boolean;
  /** The lock is let go before all is durable. */
  readonly releaseEarly?: boolean;
  /** A whole frame that has not the number that is due is taken for a torn one. */
  readonly wholeIsTorn?: boolean;
  /** No look after a write whether it lies at its intended place. */
  readonly noLookAfter?: boolean;
  /** An opening cuts bytes that it judges torn, without the lock. */
  readonly cutAtOpen?: boolean;
}

/** The knowledge of one process, and its position in its work. */
interface Process {
  /** The same for processes that know and do the same. */
  readonly number: number;
  /**
   * `-` has no log open; `o` is opening, having looked at the lock; `.` does nothing; `l` looks for changes, having taken
   * the stamp; `w` writes records; `i` writes index rows; `x` takes back, the rows being gone already.
   */
  readonly at: "-" | "o" | "." | "l" | "w" | "i" | "x";
  readonly lock: boolean;
  /** The log was compared with the medium since the lock was taken. */
  readonly sure: boolean;
  /** True if another process held the lock when the log was opened. */
  readonly live: boolean;
  /** The medium moved since the last look. */
  readonly moved: boolean;
  /** The known records, up to the judged ones. */
  readonly known: string;
  /** The start of judged remains, or -1, and their bytes. */
  readonly torn: number;
  readonly rest: string;
  /** Index rows that are known, and what lies after them and fits nothing. */
  readonly rows: string;
  readonly oddRows: string;
  /** Own records that are written and not durable. */
  readonly pending: string;
  /** Number of them in the running commit, and its position: `s` syncs records, `t` syncs rows. */
  readonly committing: number;
  readonly syncs: "" | "s" | "t";
  /** Records of the append that runs, and pieces that are still to be written. */
  readonly writing: string;
  readonly todo: string;
}

export interface State {
  readonly records: string;
  readonly index: string;
  /** Each record that was ever begun: `1` alone, `f` and `s` the two of a pair, `x` of a program without a lock. */
  readonly kinds: string;
  /** The number that each was given when it was written; a frame counts only where its number is due. */
  readonly numbers: string;
  readonly acknowledged: string;
  readonly processes: readonly Process[];
  /** The fault that a step caused. */
  readonly broken: string;
}

const CLOSED: Process = {
  ...{ number: 0, lock: false, sure: false, live: false, moved: false, known: "", torn: -1, rest: "", rows: "" },
  ...({ at: "-", oddRows: "", pending: "", committing: 0, syncs: "", writing: "", todo: "" } as const),
};

const A = "a".charCodeAt(0);

function letter(n: number): string {
  return String.fromCharCode(A + n);
}

function numberOf(record: string): number {
  return record.charCodeAt(0) - A;
}

/** Returns the pieces of records. */
function piecesOf(records: string): string {
  let pieces = "";
  for (const record of records) pieces += record + record.toUpperCase();
  return pieces;
}

function isEnd(piece: string): boolean {
  return piece < "a";
}

interface Line {
  readonly start: number;
  readonly end: number;
  /** Its record, or the record that ends there; empty without one. */
  readonly record: string;
  /** Nothing else is in it. */
  readonly isWhole: boolean;
}

const split = new Map<string, readonly Line[]>();

/** Returns the lines of a medium; the last may lack its end. */
function linesOf(medium: string): readonly Line[] {
  const known = split.get(medium);
  if (known) return known;
  const lines: Line[] = [];
  let start = 0;
  for (let at = 0; at < medium.length; at++) {
    if (!isEnd(medium[at])) continue;
    const record = at > start && medium[at] === medium[at - 1].toUpperCase() ? medium[at - 1] : "";
    lines.push({ start, end: at + 1, record, isWhole: record !== "" && at === start + 1 });
    start = at + 1;
  }
  if (start < medium.length) lines.push({ start, end: medium.length, record: "", isWhole: false });
  split.set(medium, lines);
  return lines;
}

/** Returns the records that lie whole somewhere in a medium. */
function wholeIn(medium: string): string {
  let records = "";
  for (const { record } of linesOf(medium)) records += record;
  return records;
}

/** Returns how many pieces two media have in common at their beginnings, in whole lines. */
function commonLines(a: string, b: string): number {
  let length = 0;
  for (const { end, isWhole } of linesOf(a)) {
    if (!isWhole || a.slice(0, end) !== b.slice(0, end)) break;
    length = end;
  }
  return length;
}

type Verdict = Pick<Process, "known" | "torn" | "rest">;

export function ruleOf(world: World, mutation: Mutation = {}): System<State> {
  const isV2 = world.store === "v2";
  const interned = new Map<string, Process>();

  /** Returns the one process of those that know and do the same. */
  function intern(process: Process): Process {
    const key = keyOf(process);
    const known = interned.get(key);
    if (known) return known;
    const numbered = { ...process, number: interned.size + 1 };
    interned.set(key, numbered);
    return numbered;
  }

  /** Returns a reader's view of records: their end, and the supposed remains of a write. */
  function check({ kinds, numbers }: State, records: string): Verdict & { isCorrupt: boolean } {
    const lines = linesOf(records);
    let end = 0;
    let count = 0;
    let last: Line | undefined;
    let isCorrupt = false;
    for (const line of lines) {
      if (isV2) {
        const isDue = line.isWhole && Number(numbers[numberOf(line.record)]) === count;
        if (!isDue) {
          // A whole frame is no torn one, whatever its number.
          isCorrupt = lines.some(
            ({ start, isWhole }) => isWhole && start >= (mutation.wholeIsTorn ? line.end : line.start),
          );
          break;
        }
      } else if (!isEnd(records[line.end - 1])) break;
      end = line.end;
      count++;
      last = line;
    }
    if (isCorrupt) return { known: records.slice(0, end), torn: -1, rest: "", isCorrupt };
    if (last && last.record !== "" && kinds[numberOf(last.record)] === "f") end = last.start;
    const rest = records.slice(end);
    return { known: records.slice(0, end), torn: rest === "" ? -1 : end, rest, isCorrupt };
  }

  /** Returns the rows that name the present records, and the rows after them. */
  function rowsFor(known: string, index: string): Pick<Process, "rows" | "oddRows"> {
    const length = commonLines(index, known);
    return { rows: index.slice(0, length), oddRows: index.slice(length) };
  }

  /** Reads everything anew. Who opens while another writes leaves to that one what the index does not hold. */
  function readAll(state: State, live: boolean): Partial<Process> {
    const { known, torn, rest } = check(state, state.records);
    if (!isV2) return { known, torn, rest };
    if (!live) return { known, torn, rest, ...rowsFor(known, state.index) };
    const { rows } = rowsFor(known, state.index);
    return { known: rows, torn: -1, rest: "", rows, oddRows: "" };
  }

  /** Looks for changes without the lock. */
  function look(state: State, process: Process): Partial<Process> {
    const keeps = mutation.oldVerdict && process.torn >= 0;
    if (!isV2) {
      if (keeps && state.records.startsWith(process.known + process.rest)) return { known: state.records };
      return readAll(state, false);
    }
    const { rows } = rowsFor(check(state, state.records).known, state.index);
    const grows = rows.startsWith(process.rows) && (rows.startsWith(process.known) || process.known.startsWith(rows));
    if (!grows) return readAll(state, anyLock(state, process));
    if (rows.length <= process.known.length) return { rows, oddRows: "" };
    const isKept = keeps || mutation.tornHidesMore;
    return { rows, oddRows: "", known: rows, ...(isKept ? {} : { torn: -1, rest: "" }) };
  }

  /** Compares the log with the medium under the lock. */
  function confirm(state: State, process: Process): Partial<Process> {
    if (mutation.tornHidesMore && process.torn >= 0) return {};
    if (mutation.oldVerdict && process.torn >= 0) return look(state, process);
    return readAll(state, false);
  }

  function anyLock(state: State, but?: Process): boolean {
    return state.processes.some((process) => process !== but && process.lock);
  }

  /** Returns the state with one process changed, and its changes of the media known to the others. */
  function put(state: State, i: number, process: Partial<Process>, media: Partial<State> = {}): State {
    const moves =
      (media.records !== undefined && media.records !== state.records) ||
      (media.index !== undefined && media.index !== state.index);
    const isSeen = moves && !world.blind;
    const processes = state.processes.map((other, j) => {
      if (j === i) return process === CLOSED ? CLOSED : intern({ ...other, ...process });
      return isSeen && other.at !== "-" && !other.moved ? intern({ ...other, moved: true }) : other;
    });
    return { ...state, ...media, processes };
  }

  /** Returns the fault of cutting the records to a length: another process may yet acknowledge the cut ones. */
  function brokenBy(state: State, i: number, length: number): string {
    if (world.lockFails) return "";
    const gone = wholeIn(state.records.slice(length)) + state.records.slice(length).toLowerCase();
    const harms = state.processes.some(
      ({ pending, writing }, j) => j !== i && [...pending, ...writing].some((record) => gone.includes(record)),
    );
    return harms ? "bytes that another process writes are cut" : "";
  }

  function cut(state: State, i: number, length: number, process: Partial<Process>): State {
    return put(state, i, process, { records: state.records.slice(0, length), broken: brokenBy(state, i, length) });
  }

  /** Gives up all own records that are not durable. */
  function rollBack(state: State, i: number): State {
    const process = state.processes[i];
    const own = piecesOf(process.pending);
    const done: Partial<Process> = { at: ".", pending: "", committing: 0, syncs: "", todo: "", writing: "" };
    if (mutation.rollBackBlindly) {
      const length = Math.max(0, process.known.indexOf(process.pending[0]));
      return cut(state, i, length, { ...done, known: process.known.slice(0, length) });
    }
    const isProved = state.records === process.known && process.known.endsWith(own);
    if (!isProved) return put(state, i, { ...done, sure: false });
    const length = state.records.length - own.length;
    return cut(state, i, length, { ...done, known: process.known.slice(0, length) });
  }

  /** The same where rows were written too: those go first, if they are proved to be ours and last. */
  function rollBackRows(state: State, i: number, written: string): State {
    const { rows } = state.processes[i];
    if (written === "") return rollBack(state, i);
    const isProved = mutation.rowsCutBlindly || state.index === rows + written;
    if (!isProved)
      return put(state, i, { at: ".", pending: "", committing: 0, syncs: "", todo: "", writing: "", sure: false });
    return put(state, i, { at: "x", todo: "" }, { index: state.index.slice(0, rows.length) });
  }

  /** Returns the rows that a commit writes: those of its own records and of records found without any before them. */
  function dueRows({ known, rows, pending, committing }: Process): string {
    const end = committing === 0 ? known.length : known.indexOf(pending[committing - 1]) + 2;
    return known.slice(rows.length, end);
  }

  function* stepsOf(state: State, i: number): Generator<[string, State]> {
    const process = state.processes[i];
    const held = anyLock(state);
    if (process.at === "-") {
      yield ["open", put(state, i, { at: "o", live: held })];
      return;
    }
    yield ["die", put(state, i, CLOSED)];
    switch (process.at) {
      case "o": {
        const read = readAll(state, process.live);
        const { torn } = { ...process, ...read };
        const opened: Partial<Process> = { at: ".", ...read };
        const isCut = mutation.cutAtOpen && torn >= 0;
        yield ["opened", isCut ? cut(state, i, torn, { ...opened, torn: -1, rest: "" }) : put(state, i, opened)];
        return;
      }
      case "l":
        if (mutation.contentFirst) yield ["looked", put(state, i, { at: ".", moved: false })];
        else yield ["looked", put(state, i, { at: ".", ...look(state, process) })];
        return;
      case "w":
        yield* writes(state, i, process);
        return;
      case "i":
        yield* writesRows(state, i, process);
        return;
      case "x":
        yield ["taken back", rollBack(state, i)];
        return;
      default:
        yield* acts(state, i, process, held);
    }
  }

  function* acts(state: State, i: number, process: Process, held: boolean): Generator<[string, State]> {
    if (process.moved && !process.lock)
      yield ["look", put(state, i, { at: "l", ...(mutation.contentFirst ? look(state, process) : { moved: false }) })];
    if (!process.lock && (!held || world.lockFails))
      yield ["lock", put(state, i, { lock: true, sure: mutation.noConfirm === true })];
    if (process.lock) {
      const looksAgain = process.moved && !mutation.noConfirm;
      if ((!process.sure || looksAgain) && process.committing === 0)
        yield ["confirm", put(state, i, { sure: true, moved: false, ...confirm(state, process) })];
      if (process.sure && !looksAgain) yield* changes(state, i, process);
      if (process.pending !== "" && process.committing === 0)
        yield ["commit", put(state, i, { committing: process.pending.length, syncs: "s" })];
      if ((process.pending === "" && process.committing === 0) || mutation.releaseEarly)
        yield ["release", put(state, i, { lock: false, sure: false })];
    }
    if (process.committing > 0) yield* commits(state, i, process);
  }

  /** The steps of the only writer, once it knows the records. */
  function* changes(state: State, i: number, process: Process): Generator<[string, State]> {
    const { known, torn, rest, rows, oddRows } = process;
    if (torn >= 0) {
      const clean = { known: known.slice(0, torn), torn: -1, rest: "" };
      if (mutation.seal) {
        const records = `${state.records}\n`;
        yield ["seal", put(state, i, { known: records, torn: -1, rest: "" }, { records })];
      } else if (mutation.cutBlindly) yield ["cut", cut(state, i, torn, clean)];
      else if (known.length === torn && state.records === known + rest) yield ["cut", cut(state, i, torn, clean)];
      else yield ["doubt", put(state, i, { sure: false })];
      return;
    }
    if (oddRows !== "") {
      const isProved = mutation.rowsCutBlindly || state.index === rows + oddRows;
      if (isProved) yield ["cut rows", put(state, i, { oddRows: "" }, { index: rows })];
      else yield ["doubt", put(state, i, { sure: false })];
      return;
    }
    const begun = state.kinds.replaceAll("x", "").replaceAll("s", "").length;
    if (begun >= world.appends) return;
    if (check(state, state.records).isCorrupt) return;
    // The one look before each append: the size must be the known one.
    if (state.records.length !== known.length && !mutation.noConfirm) {
      yield ["doubt", put(state, i, { sure: false })];
      return;
    }
    const pairs = [...state.kinds].filter((kind) => kind === "f").length;
    for (const kinds of pairs < world.pairs ? ["1", "fs"] : ["1"]) {
      const first = state.kinds.length;
      const count = wholeIn(known).length;
      let writing = "";
      let numbers = "";
      for (let n = 0; n < kinds.length; n++) {
        writing += letter(first + n);
        numbers += String(count + n);
      }
      const begins = { kinds: state.kinds + kinds, numbers: state.numbers + numbers };
      yield [`append ${kinds.length}`, put(state, i, { at: "w", writing, todo: piecesOf(writing) }, begins)];
    }
  }

  function* writes(state: State, i: number, process: Process): Generator<[string, State]> {
    const { writing, todo, known, pending } = process;
    const pieces = piecesOf(writing);
    const written = pieces.slice(0, pieces.length - todo.length);
    if (todo !== "") {
      yield ["write", put(state, i, { todo: todo.slice(1) }, { records: state.records + todo[0] })];
      if (!world.failures) return;
      const isProved = state.records === known + written;
      const failed: Partial<Process> = { at: ".", writing: "", todo: "" };
      yield ["full", isProved ? cut(state, i, known.length, failed) : put(state, i, { ...failed, sure: false })];
      return;
    }
    const expected = known.length + pieces.length;
    const taken: Partial<Process> = { at: ".", writing: "", pending: pending + writing };
    if (state.records.length === expected || mutation.noLookAfter) {
      yield ["written", put(state, i, { ...taken, known: known + pieces })];
      return;
    }
    const failed: Partial<Process> = { at: ".", writing: "", sure: false };
    if (!isV2) {
      const { known: now, torn, rest } = check(state, state.records);
      const there = wholeIn(now);
      const isThere = [...writing].every((record) => there.includes(record));
      yield isThere
        ? ["written among others'", put(state, i, { ...taken, known: now, torn, rest })]
        : ["lost", put(state, i, failed)];
      return;
    }
    yield state.records.endsWith(pieces)
      ? ["taken out", cut(state, i, state.records.length - pieces.length, failed)]
      : ["lost", put(state, i, failed)];
  }

  function* commits(state: State, i: number, process: Process): Generator<[string, State]> {
    const { syncs, pending, committing, rows } = process;
    const done = (): State => {
      const acknowledged = [...state.acknowledged, ...pending.slice(0, committing)].sort().join("");
      const left = { committing: 0, syncs: "", pending: pending.slice(committing) } as const;
      return put(state, i, { ...left, rows: isV2 ? rows + dueRows(process) : "" }, { acknowledged });
    };
    if (world.failures) yield ["not synced", rollBackRows(state, i, syncs === "t" ? rowsWritten(state, process) : "")];
    if (!isV2 || syncs === "t") {
      yield ["synced", done()];
      return;
    }
    // Another process may have cut the records to name.
    if (!state.records.startsWith(process.known) && !mutation.noLookAfter) {
      yield ["gone", rollBack(state, i)];
      return;
    }
    const writing: Partial<Process> = { at: "i", todo: dueRows(process) };
    if (state.index.length === rows.length) yield ["synced records", put(state, i, writing)];
    else if (mutation.rowsCutBlindly)
      yield ["synced records, rows cut", put(state, i, writing, { index: state.index.slice(0, rows.length) })];
    else yield ["rows moved", rollBack(state, i)];
  }

  function rowsWritten(state: State, { rows }: Process): string {
    return state.index.slice(rows.length);
  }

  function* writesRows(state: State, i: number, process: Process): Generator<[string, State]> {
    const { todo, rows } = process;
    const due = dueRows(process);
    if (todo !== "") {
      yield ["write row", put(state, i, { todo: todo.slice(1) }, { index: state.index + todo[0] })];
      if (world.failures) yield ["full", rollBackRows(state, i, due.slice(0, due.length - todo.length))];
      return;
    }
    if (state.index.length === rows.length + due.length || mutation.noLookAfter)
      yield ["rows written", put(state, i, { at: ".", syncs: "t" })];
    else yield ["rows moved", rollBackRows(state, i, due)];
  }

  /** Returns whether a process is in the middle of a write: readers see it half done, while writers wait for its end. */
  function isBusy(state: State, but = -1): boolean {
    return state.processes.some((process, i) => {
      const { at, writing, todo } = process;
      if (i === but || todo === "") return false;
      return at === "w" ? todo !== piecesOf(writing) : at === "i" && todo !== dueRows(process);
    });
  }

  function* steps(state: State): Generator<readonly [string, State]> {
    for (let i = 0; i < state.processes.length; i++) {
      const waits = world.lockFails === true && isBusy(state, i);
      for (const [name, after] of stepsOf(state, i)) {
        if (waits && (after.records !== state.records || after.index !== state.index)) continue;
        yield [`${"PQRS"[i]} ${name}`, after];
      }
    }
    const wrote = [...state.kinds].filter((kind) => kind === "x").length;
    if (wrote < (world.foreign ?? 0) && !isBusy(state)) {
      const record = letter(state.kinds.length);
      const acknowledged = [...state.acknowledged, record].sort().join("");
      const shown = { kinds: `${state.kinds}x`, numbers: `${state.numbers}9`, acknowledged };
      yield ["F append", put(state, -1, {}, { records: state.records + piecesOf(record), ...shown })];
    }
  }

  function faults(state: State): string[] {
    const found: string[] = [];
    if (state.broken !== "") found.push(state.broken);
    const there = wholeIn(state.records);
    for (const record of state.acknowledged) {
      const first = there.indexOf(record);
      if (first < 0) found.push("an acknowledged record is lost");
      else if (there.indexOf(record, first + 1) >= 0) found.push("a record is there twice");
      if (isV2 && !world.lockFails && !wholeIn(state.index).includes(record))
        found.push("the row of an acknowledged record is lost");
    }
    for (const process of state.processes) if (process.at === ".") found.push(...faultsOf(state, process));
    if (!world.lockFails) found.push(...faultsOfMedia(state));
    return found;
  }

  function faultsOf(state: State, process: Process): string[] {
    const { known, rest, torn, rows, oddRows, lock, sure, moved, committing, pending } = process;
    const found: string[] = [];
    const holds = lock && sure && !moved && !world.lockFails && !(world.blind && world.foreign);
    if (holds && (state.records !== known + rest || (torn >= 0 && torn !== known.length)))
      found.push("the writer does not know the log");
    if (holds && isV2 && committing === 0 && pending === "" && state.index !== rows + oddRows)
      found.push("the writer does not know what rows are there");
    if (lock && sure && pending !== "") {
      // Of the acknowledged records, all before the last of ours are known.
      const before = state.records.slice(0, state.records.indexOf(piecesOf(pending.slice(-1))));
      const mine = wholeIn(known);
      if ([...wholeIn(before)].some((record) => state.acknowledged.includes(record) && !mine.includes(record)))
        found.push("a process that appended does not know an earlier acknowledged record");
    }
    if (!lock && !moved && committing === 0 && !world.blind && !world.lockFails) {
      const isKnown = isV2
        ? rows === rowsFor(check(state, state.records).known, state.index).rows
        : state.records === known + rest;
      if (!isKnown) found.push("a reader with the stamp of the log does not know its content");
    }
    return found;
  }

  /** Returns the faults of the media themselves, as long as the lock excludes. */
  function faultsOfMedia({ records, index, kinds, processes }: State): string[] {
    const found: string[] = [];
    const lines = linesOf(records);
    if (!world.foreign)
      for (const [n, { isWhole, record }] of lines.entries()) {
        const next = lines[n + 1];
        if (next === undefined) break;
        const isHalf = kinds[numberOf(record)] === "f" && next.isWhole && kinds[numberOf(next.record)] !== "s";
        if (!isWhole || isHalf) found.push("remains of a dead write lie before other records");
      }
    if (!isV2) return found;
    const isTakingBack = processes.some(({ at }) => at === "x");
    for (const [n, row] of linesOf(index).entries()) {
      if (!row.isWhole) {
        if (n + 1 < linesOf(index).length) found.push("remains of a dead write lie before other rows");
      } else if (!isTakingBack && lines[n]?.record !== row.record) found.push("a row names what is not there");
    }
    return found;
  }

  return {
    initial: {
      ...{ records: "", index: "", kinds: "", numbers: "", acknowledged: "", broken: "" },
      processes: Array.from({ length: world.processes }, () => CLOSED),
    },
    steps,
    faults,
    keyOf({ records, index, kinds, numbers, acknowledged, processes, broken }) {
      const each = processes.map(({ number }) => number).sort((a, b) => a - b);
      return `${records},${index},${kinds},${isV2 ? numbers : ""},${acknowledged},${broken},${each}`;
    },
  };
}

function keyOf(process: Omit<Process, "number">): string {
  const { at, lock, sure, live, moved, known, torn, rest, rows, oddRows, pending, committing, syncs, writing, todo } =
    process;
  const bits = (lock ? 1 : 0) | (sure ? 2 : 0) | (live ? 4 : 0) | (moved ? 8 : 0);
  return `${at}${bits}${syncs}${committing}${known}|${torn < 0 ? "" : torn}${rest}|${rows}|${oddRows}|${pending}|${writing}|${todo.length}`;
}
