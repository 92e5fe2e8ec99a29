/**
 * Counts the usage of sessions: the entries of each by quarter of an hour and model, continued when it has grown. It
 * reads bodies of messages, so it runs on the first request of usage, and not with the heads that a list needs.
 */

import { isDerivedId } from "../../core/foreign/ids.ts";
import { HEAD_BYTES, toRole } from "../../core/format/node-reader.ts";
import { skipSpace, tryParse } from "../../core/json/json.ts";
import type { Log } from "../../core/ports/store.ts";
import { AT, NO_QUARTER, ROW_LENGTH, sumCost, toQuarter } from "../../core/search/usage.ts";
import { addUsage, ForkBeginning, getEntryUsage, makeUsage, mayCost } from "../../core/session/stats.ts";
import { KNOWN_TYPES, ROLES } from "../../core/tree/nodes.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { readAt, useAndClose, useFile } from "../fs/files.ts";
import { readHeader } from "../fs/header.ts";
import { type LineVisitor, scanLines } from "../log/lines.ts";
import type { CatalogOptions } from "./cached-rows.ts";
import type { SessionRow } from "./session-row.ts";
import { chunk, getActivity, getEntryMessage, heads, type SessionSummary } from "./summary.ts";
import type { ModelNames, SessionUsage } from "./usage-record.ts";

/** Returns the state of a row's file; usage that was counted in this state is up to date. */
export function getUsageState({ state, mark }: SessionRow): string {
  return `${state} ${mark}`;
}

/** Counts the usage of a session, continuing `known` if that is of the same file. Throws the failures of reading it. */
export function countUsage(
  { disk, openLog }: Pick<CatalogOptions, "disk" | "openLog">,
  { path, facts: { base, life, size, now } }: SessionRow,
  models: ModelNames,
  known: SessionUsage | undefined,
  family?: CountedEntries,
): SessionUsage {
  const isImportedFork = base.parentSession !== null && now.agent === undefined && isDerivedId(base.id);
  // Only its header names the entries copied from the original.
  const header = (isImportedFork && readHeader(disk, path)) || base;
  const from = known?.life === life && known.reach <= base.reach ? known : undefined;
  const counter = new UsageCounter(base, models, from, header, family);
  const begin = from?.reach ?? 0;
  const last = new UsageCounter(base, models, undefined, header, family);
  if (isContainerName(path) || now.agent !== undefined)
    useAndClose(openLog(path), (log) => countLog(log, counter, begin, base.reach));
  else
    useFile(disk, disk.openRead(path), (fd) => {
      countLines(disk, fd, counter, begin, base.reach);
      last.begins = counter.begins;
      if (base.reach < size && size - base.reach <= LONGEST_LINE) {
        const line = readAt(disk, fd, base.reach, size - base.reach);
        if (tryParse(line) !== undefined) addLine(last, base.reach, line, 0, line.length);
      }
    });
  const { rows, begins, damaged } = counter;
  const first = counter.first ?? last.first ?? null;
  return { life, reach: base.reach, begins, first, rows, tail: last.rows, damaged, cost: sumCost(rows, last.rows) };
}

/** The counted entries of a family of forks, while the session is read that counts the others. */
interface CountedEntries {
  readonly ids: Set<unknown>;
  /** True if the session counts its copied entries, because its original is gone. */
  readonly isHeir: boolean;
}

/** Adds entries to the figures of one session. */
export class UsageCounter {
  readonly rows: number[];
  /** The id of the first entry that may cost something. */
  first: string | undefined;
  private readonly family: CountedEntries | undefined;
  private readonly beginning: ForkBeginning;
  damaged: number;
  private readonly born: number;
  readonly models: ModelNames;
  /** Places of rows, by quarter, model and origin. */
  private readonly places = new Map<string, number>();

  constructor(
    base: SessionSummary,
    models: ModelNames,
    known: SessionUsage | undefined,
    header: object = base,
    family?: CountedEntries,
  ) {
    this.models = models;
    this.family = family;
    this.first = known?.first ?? undefined;
    this.born = Date.parse(base.timestamp ?? "");
    this.beginning = new ForkBeginning(header, known?.begins ?? base.parentSession !== null);
    this.damaged = known?.damaged ?? 0;
    this.rows = [...(known?.rows ?? [])];
    for (let at = 0; at < this.rows.length; at += ROW_LENGTH) this.places.set(this.rows.slice(at, at + 3).join(), at);
  }

  /** True if all entries so far were copied from the fork's original. */
  get begins(): boolean {
    return this.beginning.goesOn;
  }
  set begins(goesOn: boolean) {
    this.beginning.goesOn = goesOn;
  }

  /** Adds an entry that may have usage, or that shows the beginning of a fork's own entries. */
  add(entry: Readonly<Record<string, unknown>>, type: string, role: string): void {
    const isTaken = this.beginning.take(entry);
    if (!mayCost(type, role)) return;
    const source = type === "message" ? getEntryMessage(entry) : entry;
    const spent = makeUsage();
    addUsage(spent, getEntryUsage(entry));
    const isAnswer = role === "assistant";
    const { tokens, cost } = spent;
    if (!isAnswer && tokens.total === 0 && cost === 0) return;
    if (typeof entry.id === "string") this.first ??= entry.id;
    const isInherited = isTaken && !this.isUncounted(entry.id);
    if (!isInherited) this.family?.ids.add(entry.id);
    const model = this.models.indexOf(source?.provider, source?.model);
    const { rows } = this;
    const own = toQuarter(getActivity(entry));
    const at = this.placeOf(own === NO_QUARTER ? toQuarter(this.born) : own, model, isInherited ? 1 : 0);
    rows[at + AT.messages] += isAnswer ? 1 : 0;
    rows[at + AT.unpriced] += tokens.total > 0 && cost === 0 ? 1 : 0;
    rows[at + AT.input] += tokens.input;
    rows[at + AT.output] += tokens.output;
    rows[at + AT.cacheRead] += tokens.cacheRead;
    rows[at + AT.cacheWrite] += tokens.cacheWrite;
    rows[at + AT.total] += tokens.total;
    rows[at + AT.cost] += cost;
  }

  /** True if a copied entry counts here, because it counts in no other session of the family. */
  private isUncounted(id: unknown): boolean {
    return this.family?.isHeir === true && !this.family.ids.has(id);
  }

  private placeOf(quarter: number, model: number, inherited: number): number {
    const key = [quarter, model, inherited].join();
    let at = this.places.get(key);
    if (at !== undefined) return at;
    at = this.rows.length;
    this.places.set(key, at);
    this.rows.push(quarter, model, inherited, 0, 0, 0, 0, 0, 0, 0, 0);
    return at;
  }
}

/** Bytes beyond which a line is not read. */
const LONGEST_LINE = 64 << 20;
const CLOSE_BRACE = 0x7d;
const CARRIAGE_RETURN = 0x0d;
/** Without this name a line has no usage. Looking for it takes a tenth of the time of parsing the line. */
const USAGE = Buffer.from('"usage"');
const ASSISTANT = Buffer.from('"assistant"');

function countLines(disk: Disk, fd: number, counter: UsageCounter, from: number, past: number): void {
  const visitor: LineVisitor = {
    line: (_number, start, b, at, end) => addLine(counter, start, b, at, end),
    long(_number, start, length) {
      if (length > LONGEST_LINE) counter.damaged++;
      else addLine(counter, start, readAt(disk, fd, start, length), 0, length);
    },
  };
  scanLines(disk, fd, from, HEAD_BYTES, visitor, chunk, past);
}

/** Adds the line `b[at, end)`, which is at `start` in the file. */
function addLine(counter: UsageCounter, start: number, b: Uint8Array, at: number, end: number): void {
  let past = end;
  while (past > at && b[past - 1] === CARRIAGE_RETURN) past--;
  if (past === at) return;
  const isUsual = b[past - 1] === CLOSE_BRACE && heads.readFast(b, at, past);
  const type = isUsual ? (KNOWN_TYPES[heads.type] ?? "") : "";
  const role = isUsual ? ROLES[heads.role] : "";
  if (isUsual && !counter.begins && !mayCost(type, role)) return;
  const line = Buffer.from(b.buffer, b.byteOffset + at, past - at);
  const needed =
    counter.begins || (isUsual ? role === "assistant" || line.includes(USAGE) : isOddNeeded(line, start, counter));
  if (!needed) return;
  const entry = tryParse(line);
  if (typeof entry !== "object" || entry === null) {
    // The first line may begin with a mark; it is the header, and was read already.
    if (start > 0) counter.damaged++;
    return;
  }
  const { type: ownType } = entry as { type?: unknown };
  if (typeof ownType === "string" && ownType !== "session")
    counter.add(
      entry as Readonly<Record<string, unknown>>,
      ownType,
      ownType === "message" ? toRole(getEntryMessage(entry)?.role) : "",
    );
}

/** Returns whether a line of another form than the usual one has to be parsed. One that was cut off is damaged. */
function isOddNeeded(line: Buffer, start: number, counter: UsageCounter): boolean {
  if (line.includes(USAGE) || line.includes(ASSISTANT)) return true;
  if (line[line.length - 1] === CLOSE_BRACE || skipSpace(line, 0, line.length) === line.length) return false;
  if (start > 0 && !isPadded(line)) counter.damaged++;
  return false;
}

/** Returns whether a line ends with white space after its content. */
function isPadded(line: Buffer): boolean {
  return line
    .toString("latin1", Math.max(0, line.length - 64))
    .trimEnd()
    .endsWith("}");
}

/** Adds the entries of a log between two positions: for sessions that are not plain files of lines. */
function countLog(log: Log, counter: UsageCounter, from: number, past: number): void {
  const { nodes } = log;
  for (let position = from; position < Math.min(past, nodes.count); position++) {
    const type = nodes.type(position);
    const role = nodes.role(position);
    if (!counter.begins && !mayCost(type, role)) continue;
    const entry = log.length(position) > LONGEST_LINE ? undefined : tryParse(log.read(position));
    if (typeof entry === "object" && entry !== null) counter.add(entry as Record<string, unknown>, type, role);
    else counter.damaged++;
  }
}
