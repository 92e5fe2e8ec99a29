/**
 * The documents of a Session Store V2 container (session-store-v2 reference, sections 3.4 to 3.6) and of the pointer next to
 * it (section 0): their members, their text with members in the documented order, and their strict parsing. Undocumented
 * members are refused: a store with unknown facts cannot be judged.
 */

import { dirname } from "node:path";
import { isMissing, isNoFile } from "../../core/errno.ts";
import { isObject } from "../../core/format/loose.ts";
import { concat, toBytes, tryParse } from "../../core/json/json.ts";
import { type Disk, isAbsent, readWhole, writeAll } from "../fs/disk.ts";
import { putInPlaceNow, readIfFile, useFile } from "../fs/files.ts";
import { nameBackup } from "../fs/quarantine.ts";
import { CRC, GENESIS, Malformed, NO_CRC, readIfSound, SHA256, sha256, TIME } from "./frame.ts";

const MANIFEST_SCHEMA = "pi.session_store_v2.manifest.v1";
export const CHECKPOINT_SCHEMA = "pi.session_store_v2.checkpoint.v1";
const EVENT_SCHEMA = "pi.session_store_v2.migration_event.v1";

/** Bytes of the longest manifest, checkpoint, ledger event or pointer that is read. */
export const DOCUMENT_BYTES = 1 << 20;

/** Forms that a session is stored in: a JSONL file, a database of pi_agent_rust, a container. */
export const SOURCE_FORMATS = ["jsonl_v3", "sqlite_v1", "native_v2"] as const;
export type SourceFormat = (typeof SOURCE_FORMATS)[number];

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
export const CORRELATION = /^[A-Za-z0-9._:-]{8,128}$/;

export function isUuid(text: string): boolean {
  return UUID.test(text);
}

// --- shapes ------------------------------------------------------------------------------------------------------

// Types of the members, in the order of writing. zod could do this, but the library would load it for this alone: 90 KB, and
// an import that takes half as long again.

/** A check that returns the value, with the members of objects in order, or throws {@link Malformed} with the path. */
type Shape<T> = (value: unknown, path: string) => T;

type Of<S> = S extends Shape<infer T> ? T : never;

type Optional<T> = Shape<T> & { readonly isOptional: true };
type ObjectOf<S> = {
  readonly [N in keyof S as S[N] extends Optional<unknown> ? never : N]: Of<S[N]>;
} & {
  readonly [N in keyof S as S[N] extends Optional<unknown> ? N : never]?: Of<S[N]>;
};

function accept<T>(accepts: (value: unknown) => boolean, is: string): Shape<T> {
  return (value, path) => {
    if (accepts(value)) return value as T;
    throw new Malformed(`${path} is not ${is}`);
  };
}

const flag = accept<boolean>((value) => typeof value === "boolean", "true or false");

function text(pattern = /^/): Shape<string> {
  return accept((value) => typeof value === "string" && pattern.test(value), "as it must be");
}

function count(least = 0): Shape<number> {
  return accept((value) => Number.isSafeInteger(value) && (value as number) >= least, "a number that counts");
}

function constant<const T extends string | number>(expected: T): Shape<T> {
  return accept((value) => value === expected, JSON.stringify(expected));
}

function oneOf<const T extends string>(values: readonly T[]): Shape<T> {
  return accept((value) => values.includes(value as T), `one of ${values.join(", ")}`);
}

function orNull<T>(shape: Shape<T>): Shape<T | null> {
  return (value, path) => (value === null ? null : shape(value, path));
}

/** Lets a member be absent; null counts as absent. */
function optional<T>(shape: Shape<T>): Optional<T> {
  return Object.assign(((value, path) => shape(value, path)) as Shape<T>, { isOptional: true as const });
}

/** Accepts objects with these members and no others. */
function object<S extends Readonly<Record<string, Shape<unknown>>>>(members: S): Shape<ObjectOf<S>> {
  const check: Shape<ObjectOf<S>> = (value, path) => {
    if (!isObject(value)) throw new Malformed(`${path} is not a JSON object`);
    for (const name of Object.keys(value))
      if (!Object.hasOwn(members, name)) throw new Malformed(`${path} has no member ${name}`);
    const result: Record<string, unknown> = {};
    for (const [name, shape] of Object.entries(members)) {
      const isAbsent = (value[name] ?? null) === null;
      if (isAbsent && "isOptional" in shape) continue;
      if (value[name] === undefined) throw new Malformed(`${path}: the member ${name} is missing`);
      result[name] = shape(value[name], `${path}.${name}`);
    }
    return result as ObjectOf<S>;
  };
  return Object.assign(check, { members });
}

/** Returns a value with the members of its objects in order. It checks nothing, so that no write fails because of it. */
function inOrder<T>(shape: Shape<T>, value: T): T {
  if (!("members" in shape)) return value;
  const given = value as Readonly<Record<string, unknown>>;
  const ordered: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(shape.members as Readonly<Record<string, Shape<unknown>>>))
    if (given[name] !== undefined) ordered[name] = inOrder(member, given[name]);
  return ordered as T;
}

// --- manifest ----------------------------------------------------------------------------------------------------

const time = text(TIME);
const hash = text(SHA256);
const name = text(/./su);

const INVARIANTS = [
  "parentLinksClosed",
  "monotonicEntrySeq",
  "monotonicSegmentSeq",
  "indexWithinSegmentBounds",
  "branchHeadsIndexed",
  "checkpointsMonotonic",
  "hashChainValid",
] as const;

function eachOf<const N extends string, T>(names: readonly N[], value: T): Readonly<Record<N, T>> {
  return Object.fromEntries(names.map((name) => [name, value])) as Record<N, T>;
}

const MANIFEST = object({
  schema: constant(MANIFEST_SCHEMA),
  storeVersion: constant(2),
  sessionId: text(UUID),
  /** Format of the session before it was migrated; `native_v2` when it began in V2. */
  sourceFormat: oneOf(SOURCE_FORMATS),
  createdAt: time,
  updatedAt: time,
  /** The last entry; its id is empty for a store without entries. */
  head: object({ segmentSeq: count(), entrySeq: count(), entryId: text() }),
  counters: object({
    entriesTotal: count(),
    messagesTotal: count(),
    /** Entries that more than one entry continues. */
    branchesTotal: count(),
    compactionsTotal: count(),
    /** Bytes of all frames, line feeds included. */
    bytesTotal: count(),
  }),
  files: object({
    segmentDir: constant("segments/"),
    segmentCount: count(),
    indexPath: constant("index/offsets.jsonl"),
    checkpointDir: constant("checkpoints/"),
    migrationLedgerPath: constant("migrations/ledger.jsonl"),
  }),
  integrity: object({
    chainHash: hash,
    /** SHA-256 of the compact text of the document with this member empty. */
    manifestHash: hash,
    /** Checksum of the last frame. */
    lastCrc32c: text(CRC),
  }),
  invariants: object(eachOf(INVARIANTS, flag)),
});

/** The manifest of a store. Times are ISO 8601 in UTC, and ids of sessions are UUIDs. */
export type Manifest = Of<typeof MANIFEST>;
export type Counters = Manifest["counters"];

/** The invariants of a sound store. */
export const SOUND: Manifest["invariants"] = eachOf(INVARIANTS, true);

/** The part of a manifest that differs from store to store. */
export type ManifestFacts = Omit<Manifest, "schema" | "storeVersion" | "files" | "integrity"> &
  Pick<Manifest["files"], "segmentCount"> &
  Omit<Manifest["integrity"], "manifestHash">;

/** Returns the manifest with its members in the documented order and with this hash. */
function withHash(manifest: Manifest, manifestHash: string): Manifest {
  return inOrder(MANIFEST, { ...manifest, integrity: { ...manifest.integrity, manifestHash } });
}

/** Returns the SHA-256 of a manifest's compact text with the hash itself empty. */
export function hashManifest(manifest: Manifest): string {
  return sha256(JSON.stringify(withHash(manifest, "")));
}

/** Returns the manifest that has these facts, with its hash. */
export function sealManifest({ segmentCount, chainHash, lastCrc32c, ...facts }: ManifestFacts): Manifest {
  const manifest: Manifest = {
    ...facts,
    schema: MANIFEST_SCHEMA,
    storeVersion: 2,
    files: {
      segmentDir: "segments/",
      segmentCount,
      indexPath: "index/offsets.jsonl",
      checkpointDir: "checkpoints/",
      migrationLedgerPath: "migrations/ledger.jsonl",
    },
    integrity: { chainHash, manifestHash: "", lastCrc32c },
  };
  return withHash(manifest, hashManifest(manifest));
}

export function encodeManifest(manifest: Manifest): string {
  return pretty(inOrder(MANIFEST, manifest));
}

/** Parses a manifest. Throws {@link Malformed}, also when its hash is not the document's. */
export function parseManifest(bytes: Uint8Array): Manifest {
  const manifest = documentOf(bytes, "manifest", MANIFEST);
  checkHead(manifest);
  if (hashManifest(manifest) !== manifest.integrity.manifestHash) throw new Malformed("manifest hash mismatch");
  return manifest;
}

/** Returns the manifest at a path, or null when it is missing or invalid: frames have all that depends on it. */
export function readManifest(disk: Disk, file: string): Manifest | null {
  return readIfFile(() => readIfSound(() => parseManifest(readWhole(disk, file))));
}

/** Throws {@link Malformed} unless the manifest has a head exactly when it has entries. */
function checkHead({ head, counters, files: { segmentCount }, integrity }: Manifest): void {
  if (head.entrySeq !== counters.entriesTotal)
    throw new Malformed(`manifest: the head is entry ${head.entrySeq} of ${counters.entriesTotal}`);
  const isEmpty = head.segmentSeq === 0 && head.entryId === "" && segmentCount === 0;
  const isGenesis = integrity.chainHash === GENESIS && integrity.lastCrc32c === NO_CRC;
  const fits =
    head.entrySeq === 0 ? isEmpty && isGenesis : head.segmentSeq > 0 && head.entryId !== "" && segmentCount > 0;
  if (!fits) throw new Malformed("manifest: head, segments and chain do not fit each other");
}

// --- checkpoint --------------------------------------------------------------------------------------------------

const CHECKPOINT = object({
  schema: constant(CHECKPOINT_SCHEMA),
  checkpointSeq: count(1),
  at: time,
  headEntrySeq: count(1),
  headEntryId: name,
  /** Name of its own file in the container. */
  snapshotRef: name,
  compactedBeforeEntrySeq: count(),
  chainHash: hash,
  reason: oneOf(["periodic", "manual", "pre_migration", "post_migration", "recovery"]),
});
export type Checkpoint = Of<typeof CHECKPOINT>;
export type CheckpointReason = Checkpoint["reason"];

/** Returns the name of a checkpoint's file in its container. */
export function getSnapshotRef(checkpointSeq: number): string {
  return `checkpoints/${String(checkpointSeq).padStart(16, "0")}.json`;
}

export function encodeCheckpoint(checkpoint: Checkpoint): string {
  return pretty(inOrder(CHECKPOINT, checkpoint));
}

/** Parses a checkpoint; `seq` is the number in the file's name. Throws {@link Malformed}. */
export function parseCheckpoint(bytes: Uint8Array, seq: number): Checkpoint {
  const checkpoint = documentOf(bytes, "checkpoint", CHECKPOINT);
  if (checkpoint.checkpointSeq !== seq || checkpoint.snapshotRef !== getSnapshotRef(seq))
    throw new Malformed(`checkpoint: it is not number ${seq}`);
  if (checkpoint.compactedBeforeEntrySeq > checkpoint.headEntrySeq)
    throw new Malformed("checkpoint: it is compacted beyond its head");
  return checkpoint;
}

// --- migration event ---------------------------------------------------------------------------------------------

const EVENT = object({
  schema: constant(EVENT_SCHEMA),
  migrationId: text(UUID),
  phase: oneOf(["planned", "staging_copy", "integrity_check", "cutover_commit", "rollback", "completed", "failed"]),
  at: time,
  sourcePath: name,
  targetPath: name,
  sourceFormat: oneOf(SOURCE_FORMATS),
  targetFormat: oneOf(SOURCE_FORMATS),
  verification: object({ entryCountMatch: flag, hashChainMatch: flag, indexConsistent: flag }),
  outcome: oneOf(["ok", "recoverable_error", "fatal_error"]),
  errorClass: optional(oneOf(["integrity_mismatch", "index_corruption", "io_failure", "atomicity_violation"])),
  correlationId: text(CORRELATION),
});
/** One line of the migration ledger. */
export type MigrationEvent = Omit<Of<typeof EVENT>, "schema">;
export type ErrorClass = NonNullable<MigrationEvent["errorClass"]>;

/** Returns the event's line, with its line feed. */
export function encodeEvent(event: MigrationEvent): string {
  return `${JSON.stringify(inOrder(EVENT, { ...event, schema: EVENT_SCHEMA }))}\n`;
}

/** Parses the line of an event, without its line feed. Throws {@link Malformed}. */
export function parseEvent(line: Uint8Array): MigrationEvent {
  const { schema: _, ...event } = documentOf(line, "event", EVENT);
  return event;
}

/**
 * The migration ledger of a container (session-store-v2 reference, section 3.6): an append-only file, an event on a
 * line. A torn write at its end was never acknowledged, and the next event replaces it.
 */
interface Ledger {
  /** The events that can be read. */
  readonly events: readonly MigrationEvent[];
  /** Bytes of each line that is an event, line feed included. */
  readonly lines: readonly Uint8Array[];
  /** Bytes of whole lines. */
  readonly size: number;
  /** Bytes after them that a torn write left. */
  readonly torn: number;
  /** The first line that is no event; null where every line is one. */
  readonly fault: { readonly line: number; readonly reason: string } | null;
}

/** Reads all events, oldest first; none when there is no file. */
export function readLedger(disk: Disk, file: string): Ledger {
  const bytes = readIfFile(() => readWhole(disk, file)) ?? new Uint8Array(0);
  const events: MigrationEvent[] = [];
  const lines: Uint8Array[] = [];
  let fault: Ledger["fault"] = null;
  let start = 0;
  let line = 0;
  for (let end = bytes.indexOf(0x0a); end >= 0; end = bytes.indexOf(0x0a, start)) {
    line++;
    try {
      if (end > start) {
        events.push(parseEvent(bytes.subarray(start, end)));
        lines.push(bytes.subarray(start, end + 1));
      }
    } catch (error) {
      if (!(error instanceof Malformed)) throw error;
      fault ??= { line, reason: error.message };
    }
    start = end + 1;
  }
  return { events, lines, size: start, torn: bytes.length - start, fault };
}

/** Appends an event durably. Throws errno errors. */
export async function appendEvent(disk: Disk, file: string, event: MigrationEvent): Promise<void> {
  if (appendEventNow(disk, file, event)) await disk.syncFolder(dirname(file));
}

/**
 * Does the same synchronously. Returns whether a file is new; then the caller must fsync its folder. A ledger with a damaged
 * line is kept next to the new one, which has the readable events.
 */
export function appendEventNow(disk: Disk, file: string, event: MigrationEvent): boolean {
  const { lines, size, torn, fault } = readLedger(disk, file);
  const line = toBytes(encodeEvent(event));
  if (fault !== null) {
    replaceLedger(disk, file, concat([...lines, line]));
    return true;
  }
  const isNew = isAbsent(disk, file);
  if (isNew) disk.makeFolder(dirname(file));
  useFile(disk, isNew ? disk.create(file) : disk.openAppend(file), (fd) => {
    if (torn > 0) disk.truncate(fd, size);
    writeAll(disk, fd, line);
    disk.syncNow(fd);
  });
  return isNew;
}

/** Puts a ledger of these bytes in the place of a damaged one, which is kept as `*.damaged.bak`. */
function replaceLedger(disk: Disk, file: string, bytes: Uint8Array): void {
  putInPlaceNow(disk, nameBackup(disk, file, "damaged"), readWhole(disk, file), { replace: false, sync: true });
  putInPlaceNow(disk, file, bytes, { replace: true, sync: true });
}

// --- pointer -----------------------------------------------------------------------------------------------------

const POINTER = object({
  active: oneOf(SOURCE_FORMATS),
  /** Hash of the container's manifest when the pointer was published. */
  manifestHash: hash,
  /** SHA-256 of the bytes of the session file that was migrated; null for a session that began in V2. */
  snapshotId: orNull(hash),
  /** Id of the migration or rollback that published it. */
  correlationId: text(CORRELATION),
  /** Reason for the rollback or the failure; else null. */
  reason: orNull(text()),
  /** `cutover_commit` until verified, then `completed`; `rollback` from its start; `failed`: an operator must act. */
  phase: oneOf(["cutover_commit", "completed", "rollback", "failed"]),
  /**
   * Name of the session file that was migrated, in the folder of the pointer; null for one that began in V2. It is a
   * name and not a path, so that it cannot lead out of the folder.
   */
  source: orNull(text(/^[^/\\\0]+$/)),
  /** Format of the session before it was migrated, unless that was a session file. */
  sourceFormat: optional(constant("sqlite_v1")),
});
/**
 * The file `<session-id>.store.json` next to a container, which decides which store is the session. Only its rename into
 * place changes this (INV-007). Without it, a session file that the container was made from is the session if it is there
 * (see `readOrigin`).
 */
export type Pointer = Of<typeof POINTER>;

export function encodePointer(pointer: Pointer): string {
  return pretty(inOrder(POINTER, pointer));
}

/** Parses a pointer. Throws {@link Malformed}. */
export function parsePointer(bytes: Uint8Array): Pointer {
  return documentOf(bytes, "pointer", POINTER);
}

/** Returns the pointer at a path, or null if it is missing. Throws {@link Malformed} if it is not a pointer. */
export function readPointer(disk: Disk, file: string): Pointer | null {
  try {
    return parsePointer(readWhole(disk, file));
  } catch (error) {
    if (isMissing(error)) return null;
    if (isNoFile(error)) throw new Malformed("it is not a file");
    throw error;
  }
}

// --- reading and writing -----------------------------------------------------------------------------------------

function pretty(value: object): string {
  return JSON.stringify(value, null, 2);
}

function documentOf<T>(bytes: Uint8Array, kind: string, shape: Shape<T>): T {
  if (bytes.length > DOCUMENT_BYTES) throw new Malformed(`${kind} is over the byte read limit of ${DOCUMENT_BYTES}`);
  const value = tryParse(bytes);
  if (value === undefined) throw new Malformed(`${kind} is not JSON`);
  return shape(value, kind);
}
