/**
 * A machine's record of each session: the end up to which its hosts got an acknowledgement. It shows that a database
 * lacks entries, because a backup was restored or a standby was promoted. A server writes the record before it replies,
 * as soon as the database or the journal has the entries. It does not sync the record, which makes nothing durable:
 * after a loss of power an earlier end is there.
 */

import { join } from "node:path";
import { parse, splitLines, toBytes, trimLine } from "../../../core/json/json.ts";
import type { FleetEnd, NotedFleet } from "../../../core/ports/fleet.ts";
import type { ReplicaStatus } from "../../../core/ports/replica.ts";
import type { Log } from "../../../core/ports/store.ts";
import { closeQuietly, type Disk, exists, readWhole, removeQuietly, writeAll } from "../../../storage/fs/disk.ts";
import { putInPlaceNow, readIfPresent } from "../../../storage/fs/files.ts";
import { listNames } from "../../../storage/fs/folders.ts";
import { sha256 } from "../../../storage/v2/frame.ts";

export interface AcknowledgedEnd {
  readonly sessionId: string;
  /** The path that its copy had then. */
  readonly sessionPath: string;
  readonly end: FleetEnd;
  /** Number of entries before those that were acknowledged with it; missing in records of older programs. */
  readonly first?: number;
  readonly durability: NonNullable<ReplicaStatus["durability"]>;
  /** Number of its entries in the database. */
  readonly had: number;
  /** Number of entries that no place has any more, or the least one; only in the record of a loss. */
  readonly lost?: number;
  readonly isLeast?: boolean;
  /** SHA-256 of its last line: identifies the end without reading the session. */
  readonly last?: string;
  /** The database server that had it, if known. */
  readonly server?: string;
  /** Missing in records of older programs. */
  readonly fleet?: NotedFleet;
  /** ISO 8601. */
  readonly at: string;
}

/** Maximum bytes of a record to which ends are appended; a longer one is rewritten with its last ends. */
const MOST_BYTES = 1 << 15;
const MOST_KEPT = 24;
/** Digits of a name that stand for the session, and for the fleet. */
const [OF_SESSION, OF_FLEET] = [32, 16];
const NAME = new RegExp(`^[0-9a-f]{${OF_SESSION}}-[0-9a-f]{${OF_FLEET}}(?:\\.lost)?\\.jsonl$`);
/** The end of the name of a record whose entries are nowhere any more. */
const LOST = ".lost.jsonl";

/** A number of lost entries. `isLeast`: there may be more. */
export interface LostCount {
  readonly entries: number;
  readonly isLeast: boolean;
}

/** An end, and the path of its record. */
export interface RecordedEnd extends AcknowledgedEnd {
  readonly record: string;
}

export class AcknowledgedEnds {
  private readonly disk: Disk;
  private readonly folder: string;
  private readonly now: () => string;
  private readonly own: NotedFleet | undefined;

  /** `now` returns the time in ISO 8601. `own`: the fleet of this process. */
  constructor(disk: Disk, folder: string, now: () => string, own: NotedFleet | undefined) {
    this.disk = disk;
    this.folder = folder;
    this.now = now;
    this.own = own;
  }

  /** The ends of the names of this fleet's records: by its store, which may have several addresses, and by its address. */
  private get suffixes(): string[] {
    const { store, address = "", tenant = "" } = this.own ?? {};
    const names = store === undefined ? [address] : [store, address];
    return names.map((name) => `-${sha256(`${name}\n${tenant}`).slice(0, OF_FLEET)}.jsonl`);
  }

  private filesOf(sessionId: string): string[] {
    // Ids are chosen by hosts, and names of files are not as free.
    return this.suffixes.map((suffix) => join(this.folder, `${sha256(sessionId).slice(0, OF_SESSION)}${suffix}`));
  }

  /** Notes an end, and returns it. Never throws: without a record, an earlier one is known. */
  note(noted: Omit<AcknowledgedEnd, "at">): AcknowledgedEnd {
    const acknowledged = { ...noted, at: this.now(), fleet: this.own && { ...this.own } };
    try {
      this.write(acknowledged);
    } catch {
      // The disk refuses it. The entries stay where they were acknowledged.
    }
    return acknowledged;
  }

  private write(acknowledged: AcknowledgedEnd, file = this.filesOf(acknowledged.sessionId)[0]): void {
    const { disk } = this;
    const ends = [acknowledged];
    if (exists(disk, file)) {
      const fd = disk.openAppend(file);
      try {
        if (disk.infoOf(fd).size < MOST_BYTES) return writeAll(disk, fd, toLines(ends));
      } finally {
        closeQuietly(disk, fd);
      }
      ends.unshift(...this.read(file).slice(0, MOST_KEPT).reverse());
    } else disk.makeFolder(this.folder);
    putInPlaceNow(disk, file, toLines(ends), { replace: true, sync: false });
  }

  /**
   * Returns how many of the entries that were acknowledged here are lost, by the ends in the record of a session. A commit is in a
   * database as a whole or not at all. `isThere`: whether the last line of a commit is there, by its SHA-256.
   */
  countLost(sessionId: string, isThere: (last: string) => boolean, record?: string): LostCount {
    const files = record === undefined ? this.filesOf(sessionId) : [record];
    const ends = files.map((file) => this.read(file)).find(({ length }) => length > 0) ?? [];
    let entries = 0;
    let before = Number.POSITIVE_INFINITY;
    for (const { end, last, first } of ends) {
      if (last === undefined || first === undefined) break;
      if (isThere(last)) return { entries: Math.max(1, entries), isLeast: false };
      entries += Math.max(0, Math.min(before, end.entries) - first);
      before = Math.min(before, first);
    }
    return { entries: Math.max(1, entries), isLeast: before > 0 };
  }

  /** Returns the SHA-256 of the last lines of the commits in the record of a session. */
  lastLines(sessionId: string): ReadonlySet<string> {
    return new Set(this.filesOf(sessionId).flatMap((file) => this.read(file).flatMap(({ last }) => last ?? [])));
  }

  /** Returns the last end of a session; undefined if there is no record, or the disk refuses to read it. */
  of(sessionId: string): AcknowledgedEnd | undefined {
    for (const file of this.filesOf(sessionId)) {
      const [found] = this.read(file);
      if (found?.sessionId === sessionId) return found;
    }
    return undefined;
  }

  /**
   * Puts the end of a session into the record of its losses, so that the loss is reported until a person removes that. Never
   * throws.
   */
  keepLoss(acknowledged: AcknowledgedEnd, { entries, isLeast }: LostCount): void {
    const files = this.filesOf(acknowledged.sessionId);
    try {
      this.write({ ...acknowledged, lost: entries, isLeast }, files[0].replace(/\.jsonl$/, LOST));
      for (const file of files) removeQuietly(this.disk, file);
    } catch {
      // It is reported until the next acknowledgement.
    }
  }

  /**
   * Returns the last ends of all sessions of this fleet, and the records of losses. Records of another store at this
   * address count, too: a person has this one take its place.
   */
  all(records = this.records()): RecordedEnd[] {
    const { suffixes } = this;
    const isNamedSo = ({ record }: RecordedEnd, suffix: string): boolean =>
      record.replace(LOST, ".jsonl").endsWith(suffix);
    const others = records
      .filter((one) => !suffixes.some((suffix) => isNamedSo(one, suffix)) && this.isHere(one))
      .sort((a, b) => (a.at < b.at ? -1 : 1));
    // If a session has two records, the one of the store is later.
    const own = suffixes.toReversed().flatMap((suffix) => records.filter((one) => isNamedSo(one, suffix)));
    // Each loss counts by itself.
    const keyOf = ({ sessionId, record, end }: RecordedEnd): string =>
      `${record.endsWith(LOST) ? end.chain : ""} ${sessionId}`;
    return [...new Map([...others, ...own].map((one) => [keyOf(one), one])).values()];
  }

  /** Returns the ids of sessions that belong to other fleets, or to other tenants of this one, by their records. */
  idsElsewhere(): ReadonlySet<string> {
    const records = this.records();
    const here = new Set(this.all(records).map(({ sessionId }) => sessionId));
    const others = records.filter(({ fleet, sessionId }) => fleet !== undefined && !here.has(sessionId));
    return new Set(others.map(({ sessionId }) => sessionId));
  }

  /** Returns the last ends of copies here that other tenants of this store have acknowledged; of one session, if named. */
  ofOtherTenants(sessionId?: string): AcknowledgedEnd[] {
    const { suffixes, disk, folder, own } = this;
    if (!own) return [];
    const { store, tenant, address } = own;
    const isOther = ({ fleet }: AcknowledgedEnd): boolean =>
      fleet !== undefined &&
      fleet.tenant !== tenant &&
      ((store !== undefined && fleet.store === store) || dropTenant(fleet.address) === dropTenant(address));
    const stem = sessionId === undefined ? "" : sha256(sessionId).slice(0, OF_SESSION);
    const isAsked = (name: string): boolean =>
      NAME.test(name) &&
      name.startsWith(stem) &&
      !suffixes.some((suffix) => name.replace(LOST, ".jsonl").endsWith(suffix));
    return listNames(disk, folder)
      .filter(isAsked)
      .flatMap((name) => this.read(join(folder, name)).slice(0, 1))
      .filter(isOther);
  }

  private isHere({ fleet }: AcknowledgedEnd): boolean {
    const { address, tenant = "" } = this.own ?? {};
    return fleet !== undefined && fleet.address === address && (fleet.tenant ?? "") === tenant;
  }

  private records(): RecordedEnd[] {
    const { disk, folder } = this;
    try {
      return listNames(disk, folder)
        .filter((name) => NAME.test(name))
        .flatMap((name) => {
          const record = join(folder, name);
          const ends = this.read(record);
          const counted = name.endsWith(LOST) ? ends.filter(({ lost }) => lost !== undefined) : ends.slice(0, 1);
          return counted.map((end) => ({ ...end, record }));
        });
    } catch {
      return [];
    }
  }

  /** Returns the ends in a record, the last one first. A line that a loss of power cut or zeroed is skipped. */
  private read(file: string): AcknowledgedEnd[] {
    try {
      const bytes = readIfPresent(() => readWhole(this.disk, file)) ?? new Uint8Array();
      return [...splitLines(bytes)].reverse().flatMap((line) => parsedEnd(line) ?? []);
    } catch {
      return [];
    }
  }
}

/** Returns an address without its tenant. */
function dropTenant(address: string): string {
  return address.replace(/([?&])tenant=[^&]*&?/, "$1").replace(/[?&]$/, "");
}

/** Returns the SHA-256 of a line. */
export function hashLine(line: Uint8Array): string {
  return sha256(trimLine(line));
}

/** Returns whether a log has an acknowledged end, as far as its last line shows. */
export function hasEnd(log: Log, { end: { entries }, last }: AcknowledgedEnd): boolean {
  if (entries === 0) return true;
  return log.nodes.count >= entries && (last === undefined || hashLine(log.read(entries - 1)) === last);
}

/** Returns which of some lines, by their SHA-256, a log has, at whichever place. */
export function findLines(log: Log, hashes: ReadonlySet<string>): ReadonlySet<string> {
  const found = new Set<string>();
  for (let position = log.nodes.count - 1; found.size < hashes.size && position >= 0; position--) {
    const hash = hashLine(log.read(position));
    if (hashes.has(hash)) found.add(hash);
  }
  return found;
}

/** Returns whether a log has the last line before an acknowledged end, at whichever place. */
export function hasLast(log: Log, { last }: AcknowledgedEnd): boolean {
  return last !== undefined && findLines(log, new Set([last])).size > 0;
}

function toLines(ends: readonly AcknowledgedEnd[]): Uint8Array {
  return toBytes(ends.map((end) => `${JSON.stringify(end)}\n`).join(""));
}

function parsedEnd(line: Uint8Array): AcknowledgedEnd | undefined {
  try {
    const one = parse(line) as Partial<AcknowledgedEnd> | null;
    const { entries, bytes, chain } = one?.end ?? {};
    const isEnd = Number.isSafeInteger(entries) && Number.isSafeInteger(bytes) && /^[0-9a-f]{64}$/.test(chain ?? "");
    return isEnd && typeof one?.sessionId === "string" ? (one as AcknowledgedEnd) : undefined;
  } catch {
    return undefined;
  }
}
