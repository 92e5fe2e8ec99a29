/** Containers of Session Store V2 as a small program reads and checks them that shares no code with ours. */

import { createHash } from "node:crypto";
import type { Store } from "../../src/core/ports/store.ts";
import { Session } from "../../src/core/session/session.ts";
import { type Disk, readWhole } from "../../src/storage/fs/disk.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { leafMemory } from "../../src/storage/log/leaf-store.ts";
import { crc32c } from "../../src/storage/v2/crc32c.ts";
import {
  type Coordinates,
  type EntryFacts,
  encodeHead,
  frameBytes,
  sha256,
  writeFrame,
} from "../../src/storage/v2/frame.ts";
import { type SegmentedStoreOptions, segmentedStore } from "../../src/storage/v2/store.ts";
import { FaultDisk } from "./disk.ts";
import { testEnv } from "./env.ts";
import { fileBytes, headerText, SESSION } from "./lines.ts";
import { beginning, FOLDER, QUARANTINE, STATE } from "./sessions.ts";

const GENESIS = "0".repeat(64);

interface RawFrame {
  readonly line: string;
  readonly payload: string;
  readonly value: Record<string, unknown>;
}

function textAt(disk: Disk, path: string): string {
  return Buffer.from(readWhole(disk, path)).toString("utf8");
}

function linesAt(disk: Disk, path: string): string[] {
  const text = textAt(disk, path);
  if (text !== "" && !text.endsWith("\n")) throw new Error(`${path} ends within a line`);
  return text.split("\n").slice(0, -1);
}

/** The frames of a container, segment by segment. Our own writer puts the payload last. */
export function framesOf(disk: Disk, container: string): RawFrame[][] {
  return disk
    .names(`${container}/segments`)
    .filter((name) => name.endsWith(".seg"))
    .sort()
    .map((name) =>
      linesAt(disk, `${container}/segments/${name}`).map((line) => {
        const payload = line.slice(line.indexOf(',"payload":') + 11, -1);
        return { line: `${line}\n`, payload, value: JSON.parse(line) as Record<string, unknown> };
      }),
    );
}

/** The session in a container as one text: header and entries, each with its line feed. */
export function storedText(disk: Disk, container: string): string {
  const entries = framesOf(disk, container).flat();
  return textAt(disk, `${container}/header.jsonl`) + entries.map(({ payload }) => `${payload}\n`).join("");
}

/** Leaves the first lines of a file. */
export function cutFile(disk: Disk, path: string, lines: number): void {
  const kept = linesAt(disk, path).slice(0, lines);
  const fd = disk.openAppend(path);
  disk.truncate(fd, Buffer.byteLength(kept.map((line) => `${line}\n`).join("")));
  disk.close(fd);
}

const TABLE = Array.from({ length: 256 }, (_, n) => {
  let crc = n;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc >>> 0;
});

/** CRC-32C, a byte at a time, as eight upper-case digits. */
export function slowCrc(text: string): string {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text)) crc = (crc >>> 8) ^ TABLE[(crc ^ byte) & 0xff];
  return ((crc ^ 0xffffffff) >>> 0).toString(16).toUpperCase().padStart(8, "0");
}

const sha = (text: string) => createHash("sha256").update(text).digest("hex");

/**
 * Holds a container that was left in order against the rules of the reference, sections 2 and 3: numbers, hashes,
 * index, chain, permissions. With `exact`, its manifest tells of its last state. Answers what is wrong.
 */
export function faultsOf(disk: Disk, container: string, exact = false): string[] {
  const faults: string[] = [];
  const demand = (holds: boolean, fault: string): void => {
    if (!holds) faults.push(fault);
  };
  const rows = linesAt(disk, `${container}/index/offsets.jsonl`).map((line) => JSON.parse(line));
  const segments = framesOf(disk, container);
  const checkpoint = lastCheckpoint(disk, container);
  const ids = new Set<unknown>();
  let entrySeq = 0;
  let chain = GENESIS;
  let bytes = 0;
  for (const [n, frames] of segments.entries()) {
    let offset = 0;
    for (const [i, { line, payload, value }] of frames.entries()) {
      const at = `frame ${i + 1} of segment ${n + 1}`;
      const row = rows[entrySeq++] ?? {};
      const entry = JSON.parse(payload);
      demand(value.segmentSeq === n + 1 && value.frameSeq === i + 1 && value.entrySeq === entrySeq, `${at}: numbers`);
      demand(value.payloadSha256 === sha(payload), `${at}: hash`);
      demand(value.payloadBytes === Buffer.byteLength(payload), `${at}: length`);
      demand(String(entry.id) === value.entryId && entry.type === value.entryType, `${at}: entry`);
      demand((entry.parentId ?? undefined) === value.parentEntryId, `${at}: parent`);
      demand(value.parentEntryId === undefined || ids.has(value.parentEntryId), `${at}: the parent is not known`);
      demand(!ids.has(value.entryId), `${at}: the id stands twice`);
      ids.add(value.entryId);
      demand(row.entrySeq === entrySeq && row.entryId === value.entryId && row.state === "active", `${at}: row`);
      demand(row.segmentSeq === n + 1 && row.frameSeq === i + 1, `${at}: row numbers`);
      demand(row.byteOffset === offset && row.byteLength === Buffer.byteLength(line), `${at}: row range`);
      demand(row.crc32c === slowCrc(line), `${at}: checksum`);
      offset += Buffer.byteLength(line);
      chain = sha(chain + value.payloadSha256);
      if (entrySeq === checkpoint.headEntrySeq) demand(chain === checkpoint.chainHash, `${at}: chain`);
    }
    bytes += offset;
  }
  demand(rows.length === entrySeq, `the index has ${rows.length} rows for ${entrySeq} frames`);
  const manifest = JSON.parse(textAt(disk, `${container}/manifest.json`));
  demand(manifest.head.entrySeq <= entrySeq, "the manifest tells of more");
  const sealed = { ...manifest, integrity: { ...manifest.integrity, manifestHash: "" } };
  demand(manifest.integrity.manifestHash === sha(JSON.stringify(sealed)), "manifest hash");
  if (exact) {
    demand(manifest.head.entrySeq === entrySeq, `the manifest ends at ${manifest.head.entrySeq}, not ${entrySeq}`);
    demand(manifest.integrity.chainHash === chain, "manifest chain");
    demand(manifest.counters.bytesTotal === bytes, "manifest bytes");
    demand(manifest.files.segmentCount === segments.length, "manifest segments");
  }
  return faults;
}

function lastCheckpoint(disk: Disk, container: string): { headEntrySeq?: number; chainHash?: string } {
  const name = disk
    .names(`${container}/checkpoints`)
    .filter((file) => file.endsWith(".json"))
    .sort()
    .at(-1);
  return name === undefined ? {} : JSON.parse(textAt(disk, `${container}/checkpoints/${name}`));
}

/** One frame by itself. */
export function encodeFrame(at: Coordinates, entry: EntryFacts, timestamp: string, payload: Uint8Array) {
  const payloadSha256 = sha256(payload);
  const head = encodeHead(at, entry, timestamp, payloadSha256, payload.length);
  const bytes = Buffer.alloc(frameBytes(head, payload));
  const payloadStart = writeFrame(bytes, head, payload);
  return { bytes, payloadStart, payloadSha256, crc: crc32c(bytes) };
}

// --- sessions for tests ------------------------------------------------------------------------------------------

export const CONTAINER = `${FOLDER}/${SESSION}.v2`;

export type Options = Partial<SegmentedStoreOptions> & { readonly seed?: number };

export function v2On(disk: Disk, more: Options = {}): Store {
  return segmentedStore({
    disk,
    env: testEnv(more.seed),
    locks: noLocks,
    quarantine: QUARANTINE,
    durability: "sync",
    containerFor: (header) => `${FOLDER}/${header.id}.v2`,
    ...more,
  });
}

/** A disk with one session, in the container {@link CONTAINER}. */
export async function containerWith(lines: readonly string[], more: Options = {}): Promise<FaultDisk> {
  const disk = new FaultDisk();
  disk.makeFolder(FOLDER);
  (await v2On(disk, more).publish(beginning(headerText(), CONTAINER), [fileBytes(...lines)])).close();
  return disk.after();
}

/** The session in a container, as the server opens it. */
export function openV2(disk: Disk, more: Options = {}, seed = 2): Session {
  return new Session(v2On(disk, { seed, ...more }).open(CONTAINER), testEnv(seed), leafMemory(disk, STATE, true));
}
