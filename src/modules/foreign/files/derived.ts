/** The session that is derived from another agent's file, as far as that was read. */

import { basename, sep } from "node:path";
import { Ids } from "../../../core/foreign/ids.ts";
import { type Damage, makeDamage } from "../../../core/format/damage.ts";
import { type SessionHeader, toReadableHeader } from "../../../core/format/entry.ts";
import { areSameBytes, parse, toBytes } from "../../../core/json/json.ts";
import type { Env } from "../../../core/ports/env.ts";
import type { FidelityReport } from "../../../core/ports/fidelity.ts";
import type { Disk, FileInfo } from "../../../storage/fs/disk.ts";
import { readAt, readIfThere, useFile } from "../../../storage/fs/files.ts";
import { Derivation, type EntrySink, MOST_KEPT, type WaitingLines } from "../read/derivation.ts";
import { getNameInFolders } from "../read/file-name.ts";
import { LineRepairer, type SourceLine } from "../read/line-repair.ts";
import type { AboutSession, SourceBase, TranslatedEntry, Translator } from "../read/translator.ts";
import type { GatheredSession } from "./gathered.ts";
import { type Reach, readFirstRecord, readLines, requireDocumentSize } from "./source.ts";

/** Bytes at the beginning and the end of the read part that detect a rewritten file. */
const EDGE = 4096;
const LINE_FEED = 0x0a;

export interface DerivedOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly translator: Translator;
  readonly file: string;
  /** The session that the path means, if that is no file of its own. */
  readonly gathered?: GatheredSession | undefined;
  /** Returns whether a line is skipped: lists do not read all of a long file. */
  readonly skips?: (line: Uint8Array, offset: number) => boolean;
  /** Returns the working directory of a session whose records do not have it, by the folders of its file. */
  readonly cwdOf?: (file: string) => string | undefined;
  /** Returns the file of a session by the agent's own id, whose first `end` bytes another one continues. */
  readonly baseOf: (file: string, base: SourceBase) => string | undefined;
}

/** Files that one continues, over any number of steps, at most. */
const MOST_BASES = 100;

export class Derived {
  readonly damage: Damage[] = [];
  private readonly options: DerivedOptions;
  private readonly derivation: Derivation;
  private readonly reach: Reach = { offset: 0, lines: 0, isUnterminated: false, isUnfinished: false };
  private edges: { readonly first: Uint8Array; readonly last: Uint8Array } | undefined;

  constructor(options: DerivedOptions, sink: EntrySink) {
    const { translator, env, file } = options;
    this.options = options;
    const comesLater = (id: string): boolean => this.later?.has(id, this.at) === true;
    this.derivation = new Derivation(translator, env, toTranslatorName(file), sink, comesLater);
  }

  /** The records after the current one, at `at`; undefined if the format never asks, and for lists, which skip some. */
  private later: LaterRecords | undefined;
  private at = 0;
  /** True if records were read in another order than they name each other, when all of it was read at once. */
  private isOutOfOrder = false;

  /** True if other files have a part in it, whose changes the stamp of this one does not show. */
  hasOthers = false;

  /** Reads the new part of the file. */
  read(fd: number): void {
    const { disk, translator, gathered, skips } = this.options;
    if (gathered) {
      this.gather(gathered);
      return;
    }
    if (translator.base && this.reach.offset === 0) this.readBases(fd);
    const repairer = this.repairer((line, repair) => this.noteDamage(line, repair));
    const { idMember } = translator;
    this.later = idMember === undefined || skips ? undefined : new LaterRecords(disk, fd, idMember);
    const take = (bytes: Uint8Array, number: number, offset: number): void => {
      if (!skips?.(bytes, offset)) repairer.line({ bytes, number, offset });
    };
    if (translator.form.kind === "lines")
      readLines(disk, fd, this.reach, take, { hasEnd: (rest) => repairer.hasEnd(rest) });
    else {
      const { size } = disk.infoOf(fd);
      requireDocumentSize(this.options.file, size, translator.agent);
      let number = 0;
      for (const record of translator.form.records(readAt(disk, fd, 0, size))) take(record, ++number, 0);
      this.reach.offset = size;
      this.reach.lines = number;
    }
    repairer.end();
    if (!this.edges) this.isOutOfOrder = this.derivation.isOvertaken;
    this.edges = this.edgesOf(fd);
  }

  private gather(gathered: GatheredSession): void {
    const { records, warnings, lost = [] } = gathered.read();
    const repairer = this.repairer((line, repair) => this.noteDamage({ ...line, offset: 0 }, repair));
    for (const { bytes, number } of records) {
      repairer.line({ bytes, number, offset: 0 });
      this.reach.lines = number;
    }
    repairer.end();
    for (const sentence of [...warnings, ...lost]) this.derivation.warn(sentence);
    for (const reason of lost) this.damage.push(makeDamage("bad_line", reason, false));
  }

  /** Returns the line repairer that passes the records of lines to the derivation; `note` reports each repair. */
  private repairer(note: (line: SourceLine, repair?: string) => void): LineRepairer {
    const { derivation } = this;
    return new LineRepairer(this.options.translator, {
      take: ({ bytes, number, offset }) => {
        this.at = offset;
        return derivation.take(bytes, number);
      },
      lose(line) {
        derivation.keepDamaged(line.bytes, line.number);
        note(line);
      },
      join(record, lines) {
        derivation.take(record.bytes, record.number);
        derivation.noteContinued(record.number, lines);
        note(record, `line feeds were written into the record; it is read from ${lines} lines`);
      },
    });
  }

  /** Reads the beginnings of other files that the file continues, the first of all first. */
  private readBases(fd: number): void {
    const { disk, translator, file, baseOf } = this.options;
    const chain: (SourceBase & { readonly file: string })[] = [];
    let base = translator.base?.(readFirstRecord(disk, fd));
    this.hasOthers = base !== undefined;
    for (let at = file; base !== undefined; ) {
      const found = chain.length < MOST_BASES ? baseOf(at, base) : undefined;
      if (found === undefined || chain.some((known) => known.file === found)) {
        this.derivation.warn(
          `The beginning of the session is in another file, that of ${base.nativeId}, which was not found.`,
        );
        break;
      }
      chain.unshift({ ...base, file: found });
      at = found;
      base = useFile(disk, disk.openRead(found), (other) => translator.base?.(readFirstRecord(disk, other)));
    }
    for (const one of chain) this.derivation.inherit(() => this.readBase(one));
  }

  private readBase({ file, end, isOwn }: SourceBase & { readonly file: string }): void {
    const { disk } = this.options;
    const reach: Reach = { offset: 0, lines: 0, isUnterminated: false, isUnfinished: false };
    const repairer = this.repairer(() => {});
    const read = (fd: number, past?: number): void => {
      readLines(disk, fd, reach, (bytes, number, offset) => repairer.line({ bytes, number, offset }), { past });
      repairer.end();
    };
    useFile(disk, disk.openRead(file), (fd) => {
      read(fd, end);
      this.derivation.mark();
      if (!isOwn) return;
      read(fd);
      this.derivation.back();
    });
  }

  /** Returns whether the file still begins with the read part, so that only its end is new. */
  isContinuedBy(fd: number, { size }: Pick<FileInfo, "size">): boolean {
    const { edges, reach } = this;
    if (!this.isFollowed || !edges || size < reach.offset) return false;
    // A last line that was read as a whole one changes its meaning if it goes on.
    if (reach.isUnterminated && size > reach.offset && !this.hasLineFeed(fd)) return false;
    const now = this.edgesOf(fd);
    return now !== undefined && areSameBytes(now.first, edges.first) && areSameBytes(now.last, edges.last);
  }

  /** Returns whether the new part is read alone. Any form but lines is read anew as a whole. */
  get isFollowed(): boolean {
    return this.options.translator.form.kind === "lines" && !this.options.gathered;
  }

  /** Returns whether all of it has to be read anew, because records came that others before them had named. */
  get isOvertaken(): boolean {
    return this.derivation.isOvertaken && !this.isOutOfOrder;
  }

  waitingEntries(): readonly TranslatedEntry[] {
    return this.derivation.waitingEntries();
  }

  waiting(): WaitingLines {
    return this.derivation.waiting();
  }

  /** Returns the fidelity of each record, and of a last line that is not whole. */
  fidelity(): FidelityReport {
    return this.reach.isUnfinished ? this.derivation.unfinished(this.reach.lines + 1) : this.derivation.report();
  }

  /** Returns the facts of the session. */
  about(): AboutSession {
    return this.derivation.about();
  }

  /** Returns whether a line feed comes after the read part. */
  private hasLineFeed(fd: number): boolean {
    return readIfThere(this.options.disk, fd, this.reach.offset, 1)?.[0] === LINE_FEED;
  }

  /** Returns the edges of the read part; undefined if the file ends before. */
  private edgesOf(fd: number): { first: Uint8Array; last: Uint8Array } | undefined {
    const { disk } = this.options;
    const length = Math.min(this.reach.offset, EDGE);
    const first = readIfThere(disk, fd, 0, length);
    const last = readIfThere(disk, fd, this.reach.offset - length, length);
    return first && last ? { first, last } : undefined;
  }

  private noteDamage({ bytes: { length }, number: line, offset: byteOffset }: SourceLine, repair?: string): void {
    const salvaged = repair !== undefined || length <= MOST_KEPT;
    const reason = repair ?? `bytes that are no JSON${salvaged ? "; they are kept as an entry" : ""}`;
    this.damage.push({ kind: "bad_line", line, byteOffset, length, reason, salvaged });
  }
}

/** Returns the name of a file as translators get it. */
export function toTranslatorName(file: string): string {
  return getNameInFolders(file.split(sep));
}

/** Returns the header of a session. `parentSession`: the file of the session that its parent is. */
export function makeForeignHeader(
  { file, translator, env, cwdOf }: Pick<DerivedOptions, "file" | "translator" | "env" | "cwdOf">,
  { nativeId = basename(file), ownId, cwd, started, leafId, ...about }: AboutSession,
  parentSession: string | undefined,
): { header: SessionHeader; line: Uint8Array } {
  const header = {
    type: "session",
    version: 3,
    id: ownId ?? new Ids(translator.agent, env.sha256).session(nativeId),
    timestamp: started,
    cwd: cwd ?? cwdOf?.(file),
    parentSession: parentSession ?? about.parentSession,
    // Before the first entry, as pi_agent_rust writes it.
    leafId: leafId === null ? "" : leafId,
    importedFrom: { agent: translator.agent, id: nativeId },
  };
  const line = toBytes(JSON.stringify(header));
  return { header: toReadableHeader(JSON.parse(JSON.stringify(header))), line };
}

// --- records that come later than others that name them -------------------------------------------------------------

/** Bytes of an id that are looked for. */
const LONGEST_ID = 100;

class LaterRecords {
  private readonly disk: Disk;
  private readonly fd: number;
  private readonly member: string;
  /** The lines that may be the records with these ids, by offset and length: the last of each. */
  private places: Map<string, readonly [offset: number, length: number]> | undefined;

  /** `member`: the name of the member that is the id of a record. */
  constructor(disk: Disk, fd: number, member: string) {
    this.disk = disk;
    this.fd = fd;
    this.member = member;
  }

  /** Returns whether a record with an id begins after an offset. */
  has(id: string, offset: number): boolean {
    this.places ??= this.find(offset);
    const [at, length] = this.places.get(id) ?? [-1, 0];
    if (at <= offset) return false;
    try {
      const record = parse(readAt(this.disk, this.fd, at, length)) as Readonly<Record<string, unknown>> | null;
      return record?.[this.member] === id;
    } catch {
      return false;
    }
  }

  private find(offset: number): Map<string, readonly [number, number]> {
    const places = new Map<string, readonly [number, number]>();
    const before = Buffer.from(`"${this.member}":"`);
    const reach: Reach = { offset, lines: 0, isUnterminated: false, isUnfinished: false };
    readLines(this.disk, this.fd, reach, (bytes, _, at) => {
      const line = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
      for (let found = line.indexOf(before); found >= 0; found = line.indexOf(before, found)) {
        found += before.length;
        const end = line.indexOf(0x22, found);
        if (end >= 0 && end - found <= LONGEST_ID) places.set(line.toString("latin1", found, end), [at, line.length]);
      }
    });
    return places;
  }
}
