/**
 * A machine's record of each session: the end up to which its hosts got an acknowledgement. It shows that a database
 * lacks entries, because a backup was restored or a standby was promoted. A server writes the record before it replies,
 * as soon as the database or the journal has the entries. It does not sync the record, which makes nothing durable:
 * after a loss of power an earlier end is there. Ends that the disk refuses are in memory until it takes them.
 */

import { basename, join } from "node:path";
import { parse, splitLines, toBytes, trimLine } from "../../../core/json/json.ts";
import type { FleetEnd, NotedFleet } from "../../../core/ports/fleet.ts";
import type { ReplicaStatus } from "../../../core/ports/replica.ts";
import type { Log } from "../../../core/ports/store.ts";
import { type EntryIdentity, identifyEntry } from "../../../core/session/added-branch.ts";
import { closeQuietly, type Disk, exists, readWhole, removeQuietly, writeAll } from "../../../storage/fs/disk.ts";
import { putInPlaceNow, readIfPresent } from "../../../storage/fs/files.ts";
import { listNames } from "../../../storage/fs/folders.ts";
import { sha256 } from "../../../storage/v2/frame.ts";

/** The last entry of a commit. */
interface LastEntry extends Partial<EntryIdentity> {
  /** SHA-256 of its line: identifies the end without reading the session. */
  readonly last?: string;
}

/** A commit whose entries no place has any more, by its last entry; `entries` is their number. */
interface LostCommit extends LastEntry {
  readonly entries: number;
}

/** `content` is missing in records of older programs. */
export interface AcknowledgedEnd extends LastEntry {
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
  /** The commits with these entries, as far as they are known; missing in records of older programs. */
  readonly commits?: readonly LostCommit[];
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

type Loss = LostCount & Required<Pick<AcknowledgedEnd, "commits">>;

/** Entries of a session, in which acknowledged ones are recognised under other ids, and as repeats of their keys. */
export class FoundEntries {
  private readonly sessionId: string;
  private readonly digests = new Set<string>();

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }

  add(line: Uint8Array): void {
    for (const digest of Object.values(identifyLast(line, this.sessionId))) this.digests.add(digest);
  }

  has({ last, content, repeat }: LastEntry): boolean {
    return [last, content, repeat].some((digest) => digest !== undefined && this.digests.has(digest));
  }

  hasLine(line: Uint8Array): boolean {
    return this.has(identifyLast(line, this.sessionId));
  }
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
  private readonly complain: (sentence: string) => void;
  /** Ends that are still to be written, because the disk has refused them, by the path of their record, the last one last. */
  private readonly left = new Map<string, AcknowledgedEnd[]>();
  /** Records that may end with a part of a line that the disk refused. */
  private readonly torn = new Set<string>();
  /** Sessions whose refused ends were reported. */
  private readonly reported = new Set<string>();

  /** `now` returns the time in ISO 8601. `own`: the fleet of this process. `complain` reports a refused record to a person. */
  constructor(
    disk: Disk,
    folder: string,
    now: () => string,
    own: NotedFleet | undefined,
    complain: (sentence: string) => void = () => {},
  ) {
    this.disk = disk;
    this.folder = folder;
    this.now = now;
    this.own = own;
    this.complain = complain;
  }

  /** Number of sessions with acknowledged ends that the disk refuses to record. */
  get unrecorded(): number {
    this.retry();
    return this.left.size;
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

  /** Notes an end, and returns it. Never throws: an end that the disk refuses is written later. */
  note(noted: Omit<AcknowledgedEnd, "at">): AcknowledgedEnd {
    const acknowledged = { ...noted, at: this.now(), fleet: this.own && { ...this.own } };
    const { sessionId } = acknowledged;
    const [file] = this.filesOf(sessionId);
    this.left.set(file, [...(this.left.get(file) ?? []), acknowledged].slice(-MOST_KEPT));
    try {
      this.writeLeft(file);
      this.retry();
    } catch (error) {
      if (this.reported.has(sessionId)) return acknowledged;
      this.reported.add(sessionId);
      this.complain(
        `The disk refuses the record of what was acknowledged in session ${sessionId} (${(error as Error).message}). Until it takes the record, this machine would not notice that a restored backup or a promoted standby lacks these entries. Make room; the server then writes it by itself.`,
      );
    }
    return acknowledged;
  }

  /** Writes ends that the disk has refused, as far as it takes them now. Never throws. */
  retry(): void {
    try {
      for (const file of this.left.keys()) this.writeLeft(file);
    } catch {
      // The disk refuses them again.
    }
  }

  /** Writes the ends that are left for a record one by one, so that a refusal costs the same however many they are. */
  private writeLeft(file: string): void {
    for (let [next, ...rest] = this.left.get(file) ?? []; next !== undefined; [next, ...rest] = rest)
      try {
        this.write(next, file);
        this.torn.delete(file);
        if (rest.length > 0) this.left.set(file, rest);
        else this.left.delete(file);
      } catch (error) {
        this.torn.add(file);
        throw error;
      }
  }

  private write(acknowledged: AcknowledgedEnd, file: string): void {
    const { disk } = this;
    const ends = [acknowledged];
    if (exists(disk, file)) {
      const fd = disk.openAppend(file);
      try {
        if (disk.infoOf(fd).size < MOST_BYTES)
          return writeAll(disk, fd, toLines(ends, this.torn.has(file) ? "\n" : ""));
      } finally {
        closeQuietly(disk, fd);
      }
      ends.unshift(...this.readWritten(file).slice(0, MOST_KEPT).reverse());
    } else disk.makeFolder(this.folder);
    putInPlaceNow(disk, file, toLines(ends), { replace: true, sync: false });
  }

  /**
   * Returns the entries acknowledged here that are not among those that were found, by the ends in the record of a session. A
   * commit is in a database as a whole or not at all.
   */
  findLoss(sessionId: string, found: FoundEntries, record?: string): Loss {
    const commits: LostCommit[] = [];
    let before = Number.POSITIVE_INFINITY;
    let isLeast = true;
    for (const { end, first, last, content, repeat } of this.endsOf(sessionId, record)) {
      const isThere = found.has({ last, content, repeat });
      isLeast = !isThere && first !== 0;
      // All that was acknowledged before an end without entries of its own is there under other ids, or in the record of a loss.
      if (first === undefined || last === undefined || (isThere && first === end.entries)) break;
      const entries = Math.max(0, Math.min(before, end.entries) - first);
      if (!isThere && entries > 0) commits.push({ entries, last, content, repeat });
      before = Math.min(before, first);
    }
    const entries = countEntries(commits);
    return { entries: isLeast ? Math.max(1, entries) : entries, isLeast, commits };
  }

  /** Returns the ends in the record of a session, the last one first. */
  endsOf(sessionId: string, record?: string): AcknowledgedEnd[] {
    const files = record === undefined ? this.filesOf(sessionId) : [record];
    return files.map((file) => this.read(file)).find(({ length }) => length > 0) ?? [];
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
  keepLoss(acknowledged: AcknowledgedEnd, { entries, isLeast, commits }: Loss): void {
    const files = this.filesOf(acknowledged.sessionId);
    try {
      this.write({ ...acknowledged, lost: entries, isLeast, commits }, files[0].replace(/\.jsonl$/, LOST));
      for (const file of files) {
        removeQuietly(this.disk, file);
        this.left.delete(file);
      }
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
      const names = new Set([...listNames(disk, folder), ...Array.from(this.left.keys(), (file) => basename(file))]);
      return [...names]
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

  /** Returns the ends in a record, and those that the disk has refused for it, the last one first. */
  private read(file: string): AcknowledgedEnd[] {
    const left = this.left.get(file) ?? [];
    const written = this.readWritten(file);
    if (left.length === 0) return written;
    // Another process may have written later ones.
    return [...left.toReversed(), ...written].sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0));
  }

  /** Returns the ends in a record, the last one first. A line that a loss of power cut or zeroed is skipped. */
  private readWritten(file: string): AcknowledgedEnd[] {
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

/** Returns what is recorded of the last line of a commit. */
export function identifyLast(line: Uint8Array, sessionId: string): LastEntry {
  return { last: hashLine(line), ...identifyEntry(line, sessionId, sha256) };
}

/** Returns whether a log has an acknowledged end, as far as its last line shows. */
export function hasEnd(log: Log, { end: { entries }, last }: AcknowledgedEnd): boolean {
  if (entries === 0) return true;
  return log.nodes.count >= entries && (last === undefined || hashLine(log.read(entries - 1)) === last);
}

/** Returns the entries of a log. */
export function findEntries(log: Log): FoundEntries {
  const found = new FoundEntries(log.header.id);
  for (let position = 0; position < log.nodes.count; position++) found.add(log.read(position));
  return found;
}

/** Returns how many entries of a recorded loss are still not among those that were found. */
export function countStillLost(
  { lost = 0, isLeast = true, commits, ...last }: AcknowledgedEnd,
  found: FoundEntries,
): LostCount {
  const lacking = (commits ?? [{ ...last, entries: lost }]).filter((commit) => !found.has(commit));
  const entries = countEntries(lacking);
  return { entries, isLeast: isLeast && entries > 0 };
}

function countEntries(commits: readonly LostCommit[]): number {
  return commits.reduce((sum, { entries }) => sum + entries, 0);
}

function toLines(ends: readonly AcknowledgedEnd[], before = ""): Uint8Array {
  return toBytes(before + ends.map((end) => `${JSON.stringify(end)}\n`).join(""));
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
