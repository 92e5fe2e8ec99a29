/** Containers of Session Store V2 for tests, and as a small program reads and checks them that shares no code with ours. */

import type { Store } from "../../src/core/ports/store.ts";
import { Session } from "../../src/core/session/session.ts";
import { type Disk, readWhole } from "../../src/storage/fs/disk.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { makeLeafMemory } from "../../src/storage/log/leaf-store.ts";
import { crc32c } from "../../src/storage/v2/crc32c.ts";
import {
  type Coordinates,
  type EntryFacts,
  encodeHead,
  getFrameLength,
  sha256,
  writeFrame,
} from "../../src/storage/v2/frame.ts";
import { makeSegmentedStore, type SegmentedStoreOptions } from "../../src/storage/v2/store.ts";
import { FaultDisk } from "./disk.ts";
import { testEnv } from "./env.ts";
import { fileBytes, headerText, SESSION } from "./lines.ts";
import { beginning, FOLDER, QUARANTINE, STATE } from "./sessions.ts";
// @ts-expect-error plain JavaScript, to check containers without the program
import { faultsOf as checkedFaults, crcOf } from "./v2-checker.js";

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

/** All bytes there are, but for times. */
export function contentsOf(disk: FaultDisk): string[] {
  return disk.paths().map((path) => `${path} ${Buffer.from(disk.content(path) as Uint8Array).toString("latin1")}`);
}

/** A change of the text of a file on a disk. */
export function rewriting(path: string, change: (text: string) => string): (disk: FaultDisk) => void {
  return (disk) =>
    disk.put(path, Buffer.from(change(Buffer.from(disk.content(path) as Uint8Array).toString("latin1")), "latin1"));
}

/** A change of the lines of a file, each with its line feed. */
export function relining(path: string, change: (lines: string[]) => readonly string[]): (disk: FaultDisk) => void {
  return rewriting(path, (text) => change(text.split(/(?<=\n)/)).join(""));
}

/** A change of one line of a file, counted from 0. */
export function lineOf(path: string, at: number, change: (line: string) => string): (disk: FaultDisk) => void {
  return relining(path, (lines) => lines.map((line, n) => (n === at ? change(line) : line)));
}

/** Leaves the first lines of a file. */
export function cutFile(disk: Disk, path: string, lines: number): void {
  const kept = linesAt(disk, path).slice(0, lines);
  const fd = disk.openAppend(path);
  disk.truncate(fd, Buffer.byteLength(kept.map((line) => `${line}\n`).join("")));
  disk.close(fd);
}

/** CRC-32C as eight upper-case digits. */
export function slowCrc(text: string): string {
  return crcOf(Buffer.from(text));
}

/**
 * Checks a container that was left in order by the rules of the reference, sections 2 and 3. With `exact`, its manifest has
 * its last state. Returns the faults.
 */
export function faultsOf(disk: Disk, container: string, exact = false): string[] {
  const read = (path: string) => Buffer.from(readWhole(disk, path));
  return checkedFaults(container, { read, names: (path: string) => disk.names(path) }, exact);
}

/** One frame by itself. */
export function encodeFrame(at: Coordinates, entry: EntryFacts, timestamp: string, payload: Uint8Array) {
  const payloadSha256 = sha256(payload);
  const head = encodeHead(at, entry, timestamp, payloadSha256, payload.length);
  const bytes = Buffer.alloc(getFrameLength(head, payload));
  const payloadStart = writeFrame(bytes, head, payload);
  return { bytes, payloadStart, payloadSha256, crc: crc32c(bytes) };
}

// --- sessions for tests ------------------------------------------------------------------------------------------

export const CONTAINER = `${FOLDER}/${SESSION}.v2`;

export type Options = Partial<SegmentedStoreOptions> & { readonly seed?: number };

export function v2On(disk: Disk, more: Options = {}): Store {
  return makeSegmentedStore({
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
  return new Session(v2On(disk, { seed, ...more }).open(CONTAINER), testEnv(seed), makeLeafMemory(disk, STATE, true));
}
