/**
 * The documents of a Session Store V2 container (session-store-v2 reference, sections 3.4 to 3.6) and the pointer beside
 * it (section 0): what they hold, their text with members in the documented order, and the strict way to read them.
 * Members that are not documented are refused, for a store that says more than we know is not ours to judge.
 */

import { isMissing, isNoFile } from "../../core/errno.ts";
import { parse } from "../../core/json/json.ts";
import type { Verification } from "../../core/ports/migrations.ts";
import { type Disk, readWhole } from "../fs/disk.ts";
import { GENESIS, Malformed, NO_CRC, sha256 } from "./frame.ts";

export const MANIFEST_SCHEMA = "pi.session_store_v2.manifest.v1";
export const CHECKPOINT_SCHEMA = "pi.session_store_v2.checkpoint.v1";
export const EVENT_SCHEMA = "pi.session_store_v2.migration_event.v1";

/** No manifest, checkpoint or pointer that is longer is read or written. */
export const DOCUMENT_BYTES = 1 << 20;

export const FORMATS = ["jsonl_v3", "sqlite_v1", "native_v2"] as const;
export type SourceFormat = (typeof FORMATS)[number];

export const REASONS = ["periodic", "manual", "pre_migration", "post_migration", "recovery"] as const;
/** Why a checkpoint was made. */
export type Reason = (typeof REASONS)[number];

export const PHASES = [
  "planned",
  "staging_copy",
  "integrity_check",
  "cutover_commit",
  "rollback",
  "completed",
  "failed",
] as const;
export type Phase = (typeof PHASES)[number];

export const OUTCOMES = ["ok", "recoverable_error", "fatal_error"] as const;
export type Outcome = (typeof OUTCOMES)[number];

export const ERROR_CLASSES = ["integrity_mismatch", "index_corruption", "io_failure", "atomicity_violation"] as const;
export type ErrorClass = (typeof ERROR_CLASSES)[number];

/** Entry types that pi_agent_rust knows; any other is stored under its own name and reported as not exchangeable. */
export const EXCHANGEABLE_TYPES: ReadonlySet<string> = new Set([
  "message",
  "model_change",
  "thinking_level_change",
  "compaction",
  "branch_summary",
  "label",
  "session_info",
  "custom",
]);

export interface Head {
  readonly segmentSeq: number;
  readonly entrySeq: number;
  /** Empty for a store without entries. */
  readonly entryId: string;
}

export interface Counters {
  readonly entriesTotal: number;
  readonly messagesTotal: number;
  /** Entries that more than one entry continues. */
  readonly branchesTotal: number;
  readonly compactionsTotal: number;
  /** Of all frames, line feeds included. */
  readonly bytesTotal: number;
}

export interface ManifestInvariants {
  readonly parentLinksClosed: boolean;
  readonly monotonicEntrySeq: boolean;
  readonly monotonicSegmentSeq: boolean;
  readonly indexWithinSegmentBounds: boolean;
  readonly branchHeadsIndexed: boolean;
  readonly checkpointsMonotonic: boolean;
  readonly hashChainValid: boolean;
}

/** What is to be said of a store at one moment. Times are ISO 8601 in UTC. */
export interface ManifestFacts {
  /** A UUID. */
  readonly sessionId: string;
  /** What the session was before it came here; `native_v2` when it began here. */
  readonly sourceFormat: SourceFormat;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly head: Head;
  readonly counters: Counters;
  readonly segmentCount: number;
  readonly chainHash: string;
  /** Of the last frame. */
  readonly lastCrc32c: string;
  readonly invariants: ManifestInvariants;
}

export interface Manifest {
  readonly schema: typeof MANIFEST_SCHEMA;
  readonly storeVersion: 2;
  readonly sessionId: string;
  readonly sourceFormat: SourceFormat;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly head: Head;
  readonly counters: Counters;
  readonly files: typeof FILES & { readonly segmentCount: number };
  readonly integrity: {
    readonly chainHash: string;
    /** SHA-256 of the compact text of the document in which this is empty. */
    readonly manifestHash: string;
    readonly lastCrc32c: string;
  };
  readonly invariants: ManifestInvariants;
}

export interface Checkpoint {
  readonly schema: typeof CHECKPOINT_SCHEMA;
  readonly checkpointSeq: number;
  readonly at: string;
  readonly headEntrySeq: number;
  readonly headEntryId: string;
  /** Name of its own file in the container. */
  readonly snapshotRef: string;
  readonly compactedBeforeEntrySeq: number;
  readonly chainHash: string;
  readonly reason: Reason;
}

/** One line of the migration ledger. */
export interface MigrationEvent {
  /** A UUID. */
  readonly migrationId: string;
  readonly phase: Phase;
  readonly at: string;
  readonly sourcePath: string;
  readonly targetPath: string;
  readonly sourceFormat: SourceFormat;
  readonly targetFormat: SourceFormat;
  readonly verification: Verification;
  readonly outcome: Outcome;
  readonly errorClass?: ErrorClass;
  readonly correlationId: string;
}

/**
 * The file `<session-id>.store.json` beside a container: which store is the session's truth. Giving it its name is the
 * one step in which that changes (INV-007). Without the file a session file beside a container is the truth.
 */
export interface Pointer {
  readonly active: SourceFormat;
  /** What the session was before it was migrated; said of databases only, and else a session file. */
  readonly sourceFormat?: "sqlite_v1";
  /** Of the container's manifest when the pointer was published. */
  readonly manifestHash: string;
  /** SHA-256 of the bytes of the session file that was migrated; null for a session that began in V2. */
  readonly snapshotId: string | null;
  /** Of the migration or rollback that published it. */
  readonly correlationId: string;
  /** Why it was rolled back, or why it failed; else null. */
  readonly reason: string | null;
  /** `cutover_commit` until the migration is verified, then `completed`; `rollback`; `failed`: an operator must act. */
  readonly phase: "cutover_commit" | "completed" | "rollback" | "failed";
  /** Name of the session file that was migrated, in the folder of the pointer; null for one that began in V2. */
  readonly source: string | null;
}

const ALL_INVARIANTS: ManifestInvariants = {
  parentLinksClosed: true,
  monotonicEntrySeq: true,
  monotonicSegmentSeq: true,
  indexWithinSegmentBounds: true,
  branchHeadsIndexed: true,
  checkpointsMonotonic: true,
  hashChainValid: true,
};

/** What a manifest says of a store in which everything holds. */
export const SOUND: ManifestInvariants = ALL_INVARIANTS;

const FILES = {
  segmentDir: "segments/",
  indexPath: "index/offsets.jsonl",
  checkpointDir: "checkpoints/",
  migrationLedgerPath: "migrations/ledger.jsonl",
} as const;

// --- formats of values -------------------------------------------------------------------------------------------

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const HASH = /^[0-9a-f]{64}$/;
const CRC = /^[0-9A-F]{8}$/;
const TIME = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;
const CORRELATION = /^[A-Za-z0-9._:-]{8,128}$/;
const WIRE_ID = /^[A-Za-z0-9_-]{1,128}$/;

export function isUuid(text: string): boolean {
  return UUID.test(text);
}

/** Whether an entry id is one that pi_agent_rust takes, too. */
export function isWireId(text: string): boolean {
  return WIRE_ID.test(text);
}

export function isCorrelationId(text: string): boolean {
  return CORRELATION.test(text);
}

// --- manifest ----------------------------------------------------------------------------------------------------

/** The manifest with its members in the documented order, and this hash. */
function ordered(manifest: Manifest, manifestHash: string): Manifest {
  const { head, counters, files, integrity, invariants } = manifest;
  return {
    schema: MANIFEST_SCHEMA,
    storeVersion: 2,
    sessionId: manifest.sessionId,
    sourceFormat: manifest.sourceFormat,
    createdAt: manifest.createdAt,
    updatedAt: manifest.updatedAt,
    head: { segmentSeq: head.segmentSeq, entrySeq: head.entrySeq, entryId: head.entryId },
    counters: {
      entriesTotal: counters.entriesTotal,
      messagesTotal: counters.messagesTotal,
      branchesTotal: counters.branchesTotal,
      compactionsTotal: counters.compactionsTotal,
      bytesTotal: counters.bytesTotal,
    },
    files: {
      segmentDir: FILES.segmentDir,
      segmentCount: files.segmentCount,
      indexPath: FILES.indexPath,
      checkpointDir: FILES.checkpointDir,
      migrationLedgerPath: FILES.migrationLedgerPath,
    },
    integrity: { chainHash: integrity.chainHash, manifestHash, lastCrc32c: integrity.lastCrc32c },
    invariants: {
      parentLinksClosed: invariants.parentLinksClosed,
      monotonicEntrySeq: invariants.monotonicEntrySeq,
      monotonicSegmentSeq: invariants.monotonicSegmentSeq,
      indexWithinSegmentBounds: invariants.indexWithinSegmentBounds,
      branchHeadsIndexed: invariants.branchHeadsIndexed,
      checkpointsMonotonic: invariants.checkpointsMonotonic,
      hashChainValid: invariants.hashChainValid,
    },
  };
}

/** SHA-256 of the compact text in which the hash itself is empty. */
export function manifestHash(manifest: Manifest): string {
  return sha256(JSON.stringify(ordered(manifest, "")));
}

/** The manifest that says these things, with its hash. */
export function sealManifest(facts: ManifestFacts): Manifest {
  const { segmentCount, chainHash, lastCrc32c, ...rest } = facts;
  const manifest: Manifest = {
    ...rest,
    schema: MANIFEST_SCHEMA,
    storeVersion: 2,
    files: { ...FILES, segmentCount },
    integrity: { chainHash, manifestHash: "", lastCrc32c },
  };
  return ordered(manifest, manifestHash(manifest));
}

export function encodeManifest(manifest: Manifest): string {
  return JSON.stringify(ordered(manifest, manifest.integrity.manifestHash), null, 2);
}

/** Throws {@link Malformed}, also when the hash is not the document's. */
export function parseManifest(bytes: Uint8Array): Manifest {
  const top = documentOf(bytes, "manifest", [
    "schema",
    "storeVersion",
    "sessionId",
    "sourceFormat",
    "createdAt",
    "updatedAt",
    "head",
    "counters",
    "files",
    "integrity",
    "invariants",
  ]);
  top.constant("schema", MANIFEST_SCHEMA);
  top.constant("storeVersion", 2);
  const head = top.object("head", ["segmentSeq", "entrySeq", "entryId"]);
  const counters = top.object("counters", [
    "entriesTotal",
    "messagesTotal",
    "branchesTotal",
    "compactionsTotal",
    "bytesTotal",
  ]);
  const files = top.object("files", [
    "segmentDir",
    "segmentCount",
    "indexPath",
    "checkpointDir",
    "migrationLedgerPath",
  ]);
  for (const [name, path] of Object.entries(FILES)) files.constant(name, path);
  const integrity = top.object("integrity", ["chainHash", "manifestHash", "lastCrc32c"]);
  const invariants = top.object("invariants", Object.keys(ALL_INVARIANTS));
  const manifest: Manifest = {
    schema: MANIFEST_SCHEMA,
    storeVersion: 2,
    sessionId: top.text("sessionId", UUID),
    sourceFormat: top.oneOf("sourceFormat", FORMATS),
    createdAt: top.text("createdAt", TIME),
    updatedAt: top.text("updatedAt", TIME),
    head: {
      segmentSeq: head.count("segmentSeq"),
      entrySeq: head.count("entrySeq"),
      entryId: head.text("entryId"),
    },
    counters: {
      entriesTotal: counters.count("entriesTotal"),
      messagesTotal: counters.count("messagesTotal"),
      branchesTotal: counters.count("branchesTotal"),
      compactionsTotal: counters.count("compactionsTotal"),
      bytesTotal: counters.count("bytesTotal"),
    },
    files: { ...FILES, segmentCount: files.count("segmentCount") },
    integrity: {
      chainHash: integrity.text("chainHash", HASH),
      manifestHash: integrity.text("manifestHash", HASH),
      lastCrc32c: integrity.text("lastCrc32c", CRC),
    },
    invariants: {
      parentLinksClosed: invariants.flag("parentLinksClosed"),
      monotonicEntrySeq: invariants.flag("monotonicEntrySeq"),
      monotonicSegmentSeq: invariants.flag("monotonicSegmentSeq"),
      indexWithinSegmentBounds: invariants.flag("indexWithinSegmentBounds"),
      branchHeadsIndexed: invariants.flag("branchHeadsIndexed"),
      checkpointsMonotonic: invariants.flag("checkpointsMonotonic"),
      hashChainValid: invariants.flag("hashChainValid"),
    },
  };
  checkHead(manifest);
  if (manifestHash(manifest) !== manifest.integrity.manifestHash) throw new Malformed("manifest hash mismatch");
  return manifest;
}

/** The manifest at a path, or null when there is none that holds: nothing depends on it that frames do not tell. */
export function readManifest(disk: Disk, file: string): Manifest | null {
  try {
    return parseManifest(readWhole(disk, file));
  } catch (error) {
    if (error instanceof Malformed || isMissing(error) || isNoFile(error)) return null;
    throw error;
  }
}

/** A store has a head exactly when it has entries. */
function checkHead({ head, counters, files, integrity }: Manifest): void {
  const { segmentCount } = files;
  const { chainHash, lastCrc32c } = integrity;
  if (head.entrySeq !== counters.entriesTotal)
    throw new Malformed(`manifest: the head is entry ${head.entrySeq} of ${counters.entriesTotal}`);
  const isEmpty = head.entrySeq === 0;
  const fits = isEmpty
    ? head.segmentSeq === 0 &&
      head.entryId === "" &&
      segmentCount === 0 &&
      chainHash === GENESIS &&
      lastCrc32c === NO_CRC
    : head.segmentSeq > 0 && head.entryId !== "" && segmentCount > 0;
  if (!fits) throw new Malformed("manifest: head, segments and chain do not fit each other");
}

// --- checkpoint --------------------------------------------------------------------------------------------------

/** Name of a checkpoint's file in its container. */
export function snapshotRef(checkpointSeq: number): string {
  return `checkpoints/${String(checkpointSeq).padStart(16, "0")}.json`;
}

export function encodeCheckpoint(checkpoint: Checkpoint): string {
  return pretty({
    schema: CHECKPOINT_SCHEMA,
    checkpointSeq: checkpoint.checkpointSeq,
    at: checkpoint.at,
    headEntrySeq: checkpoint.headEntrySeq,
    headEntryId: checkpoint.headEntryId,
    snapshotRef: snapshotRef(checkpoint.checkpointSeq),
    compactedBeforeEntrySeq: checkpoint.compactedBeforeEntrySeq,
    chainHash: checkpoint.chainHash,
    reason: checkpoint.reason,
  });
}

/** `seq` is what the file's name says. Throws {@link Malformed}. */
export function parseCheckpoint(bytes: Uint8Array, seq: number): Checkpoint {
  const top = documentOf(bytes, "checkpoint", [
    "schema",
    "checkpointSeq",
    "at",
    "headEntrySeq",
    "headEntryId",
    "snapshotRef",
    "compactedBeforeEntrySeq",
    "chainHash",
    "reason",
  ]);
  top.constant("schema", CHECKPOINT_SCHEMA);
  top.constant("checkpointSeq", seq);
  top.constant("snapshotRef", snapshotRef(seq));
  const checkpoint: Checkpoint = {
    schema: CHECKPOINT_SCHEMA,
    checkpointSeq: seq,
    at: top.text("at", TIME),
    headEntrySeq: top.count("headEntrySeq", 1),
    headEntryId: top.text("headEntryId", /./su),
    snapshotRef: snapshotRef(seq),
    compactedBeforeEntrySeq: top.count("compactedBeforeEntrySeq"),
    chainHash: top.text("chainHash", HASH),
    reason: top.oneOf("reason", REASONS),
  };
  if (checkpoint.compactedBeforeEntrySeq > checkpoint.headEntrySeq)
    throw new Malformed("checkpoint: it is compacted beyond its head");
  return checkpoint;
}

// --- migration event ---------------------------------------------------------------------------------------------

/** The event's line, with its line feed. */
export function encodeEvent(event: MigrationEvent): string {
  const { verification, errorClass } = event;
  return `${JSON.stringify({
    schema: EVENT_SCHEMA,
    migrationId: event.migrationId,
    phase: event.phase,
    at: event.at,
    sourcePath: event.sourcePath,
    targetPath: event.targetPath,
    sourceFormat: event.sourceFormat,
    targetFormat: event.targetFormat,
    verification: {
      entryCountMatch: verification.entryCountMatch,
      hashChainMatch: verification.hashChainMatch,
      indexConsistent: verification.indexConsistent,
    },
    outcome: event.outcome,
    ...(errorClass === undefined ? {} : { errorClass }),
    correlationId: event.correlationId,
  })}\n`;
}

/** The event of a line without its line feed. Throws {@link Malformed}. */
export function parseEvent(line: Uint8Array): MigrationEvent {
  const top = documentOf(
    line,
    "event",
    [
      "schema",
      "migrationId",
      "phase",
      "at",
      "sourcePath",
      "targetPath",
      "sourceFormat",
      "targetFormat",
      "verification",
      "outcome",
      "correlationId",
    ],
    ["errorClass"],
  );
  top.constant("schema", EVENT_SCHEMA);
  const verification = top.object("verification", ["entryCountMatch", "hashChainMatch", "indexConsistent"]);
  return {
    migrationId: top.text("migrationId", UUID),
    phase: top.oneOf("phase", PHASES),
    at: top.text("at", TIME),
    sourcePath: top.text("sourcePath", /./su),
    targetPath: top.text("targetPath", /./su),
    sourceFormat: top.oneOf("sourceFormat", FORMATS),
    targetFormat: top.oneOf("targetFormat", FORMATS),
    verification: {
      entryCountMatch: verification.flag("entryCountMatch"),
      hashChainMatch: verification.flag("hashChainMatch"),
      indexConsistent: verification.flag("indexConsistent"),
    },
    outcome: top.oneOf("outcome", OUTCOMES),
    ...(top.has("errorClass") ? { errorClass: top.oneOf("errorClass", ERROR_CLASSES) } : {}),
    correlationId: top.text("correlationId", CORRELATION),
  };
}

// --- pointer -----------------------------------------------------------------------------------------------------

export function encodePointer(pointer: Pointer): string {
  const { active, manifestHash: hash, snapshotId, correlationId, reason, phase, source, sourceFormat } = pointer;
  const told = { active, manifestHash: hash, snapshotId, correlationId, reason, phase, source };
  return pretty(sourceFormat === undefined ? told : { ...told, sourceFormat });
}

/** Throws {@link Malformed}. */
export function parsePointer(bytes: Uint8Array): Pointer {
  const top = documentOf(
    bytes,
    "pointer",
    ["active", "manifestHash", "snapshotId", "correlationId", "reason", "phase", "source"],
    ["sourceFormat"],
  );
  return {
    active: top.oneOf("active", FORMATS),
    ...(top.has("sourceFormat") ? { sourceFormat: top.oneOf("sourceFormat", ["sqlite_v1"] as const) } : {}),
    manifestHash: top.text("manifestHash", HASH),
    snapshotId: top.textOrNull("snapshotId", HASH),
    correlationId: top.text("correlationId", CORRELATION),
    reason: top.textOrNull("reason"),
    phase: top.oneOf("phase", ["cutover_commit", "completed", "rollback", "failed"] as const),
    // A name and no path: it may not lead out of the folder.
    source: top.textOrNull("source", /^[^/\\\0]+$/),
  };
}

/** The pointer at a path, or null when there is none. Throws {@link Malformed} when it is something else. */
export function readPointer(disk: Disk, file: string): Pointer | null {
  try {
    return parsePointer(readWhole(disk, file));
  } catch (error) {
    if (isMissing(error)) return null;
    if (isNoFile(error)) throw new Malformed("it is no file");
    throw error;
  }
}

// --- reading strictly --------------------------------------------------------------------------------------------

function pretty(value: object): string {
  return JSON.stringify(value, null, 2);
}

/** An object whose members are all expected, and all there but the optional ones. */
class Members {
  private readonly value: Readonly<Record<string, unknown>>;
  private readonly path: string;

  constructor(value: unknown, path: string, names: readonly string[], optional: readonly string[]) {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw new Malformed(`${path} is not a JSON object`);
    this.value = value as Record<string, unknown>;
    this.path = path;
    for (const name of Object.keys(value))
      if (!names.includes(name) && !optional.includes(name)) throw new Malformed(`${path} has no member ${name}`);
    for (const name of names)
      if (!Object.hasOwn(value, name)) throw new Malformed(`${path}: the member ${name} is missing`);
  }

  private refuse(name: string, is: string): never {
    throw new Malformed(`${this.path}.${name} is not ${is}`);
  }

  /** Whether an optional member is there; null counts as absent. */
  has(name: string): boolean {
    return (this.value[name] ?? null) !== null;
  }

  constant(name: string, expected: string | number): void {
    if (this.value[name] !== expected) this.refuse(name, JSON.stringify(expected));
  }

  text(name: string, pattern?: RegExp): string {
    const value = this.value[name];
    if (typeof value !== "string" || (pattern && !pattern.test(value))) this.refuse(name, "as it must be");
    return value;
  }

  textOrNull(name: string, pattern?: RegExp): string | null {
    return this.value[name] === null ? null : this.text(name, pattern);
  }

  count(name: string, least = 0): number {
    const value = this.value[name];
    if (!Number.isSafeInteger(value) || (value as number) < least) this.refuse(name, "a number that counts");
    return value as number;
  }

  flag(name: string): boolean {
    const value = this.value[name];
    if (typeof value !== "boolean") this.refuse(name, "true or false");
    return value;
  }

  oneOf<T extends string>(name: string, values: readonly T[]): T {
    const value = this.value[name];
    if (!values.includes(value as T)) this.refuse(name, `one of ${values.join(", ")}`);
    return value as T;
  }

  object(name: string, names: readonly string[]): Members {
    return new Members(this.value[name], `${this.path}.${name}`, names, []);
  }
}

function documentOf(
  bytes: Uint8Array,
  kind: string,
  names: readonly string[],
  optional: readonly string[] = [],
): Members {
  if (bytes.length > DOCUMENT_BYTES) throw new Malformed(`${kind} is over the byte read limit of ${DOCUMENT_BYTES}`);
  let value: unknown;
  try {
    value = parse(bytes);
  } catch {
    throw new Malformed(`${kind} is not JSON`);
  }
  return new Members(value, kind, names, optional);
}
