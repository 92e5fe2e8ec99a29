/** Where the frames of a store lie: names of its files, columns of byte ranges, and what its end is like. */

import { basename, dirname, join } from "node:path";
import { Column } from "../../core/tree/nodes.ts";
import { GENESIS, NO_CRC } from "./frame.ts";

/** What the name of a container ends with. */
export const CONTAINER = ".v2";
/** What that of the pointer beside one ends with. */
export const POINTER = ".store.json";

/** Whether a path names a container. */
export function isContainerName(path: string): boolean {
  const name = basename(path);
  return name.endsWith(CONTAINER) && name.length > CONTAINER.length && !name.startsWith(".");
}

/** The file beside a container that says whether it is the session. */
export function pointerFile(container: string): string {
  return join(dirname(container), `${basename(container, CONTAINER)}${POINTER}`);
}

/** Sixteen digits, as files that are counted bear them. */
export function numbered(seq: number, ending: string): string {
  return `${String(seq).padStart(16, "0")}.${ending}`;
}

/** The number of a file that is counted, or 0 for any other. */
export function numberOf(name: string, ending: string): number {
  const digits = new RegExp(`^(\\d{16})\\.${ending}$`).exec(name)?.[1];
  return digits === undefined ? 0 : Number(digits);
}

export const headerFile = (container: string): string => join(container, "header.jsonl");
export const manifestFile = (container: string): string => join(container, "manifest.json");
export const segmentFolder = (container: string): string => join(container, "segments");
export const segmentFile = (container: string, seq: number): string =>
  join(container, "segments", numbered(seq, "seg"));
export const indexFile = (container: string): string => join(container, "index", "offsets.jsonl");
export const checkpointFolder = (container: string): string => join(container, "checkpoints");
export const checkpointFile = (container: string, seq: number): string =>
  join(container, "checkpoints", numbered(seq, "json"));
export const ledgerFile = (container: string): string => join(container, "migrations", "ledger.jsonl");
export const temporaryFolder = (container: string): string => join(container, "tmp");
export const spineFile = (container: string): string => join(container, "index-snapshot.bin");

/** The folders of a container. */
export const FOLDERS: readonly string[] = ["segments", "index", "checkpoints", "migrations", "tmp"];
/** That of the attachments, where there are any. */
export const BLOBS = "blobs";

/** The files that lie in the container's own folder, as a pattern. */
const FILES = [headerFile, manifestFile, spineFile].map((of) => basename(of("")).replaceAll(".", "\\.")).join("|");

/**
 * A path to a part of a container, whether that is the session, being built, or put away. Of the names in it each is one
 * that we give, so that a folder of the user's that happens to end with .v2 is none.
 */
const PART = new RegExp(
  `^(.*)/([^/]+\\.v2(?:\\.(?:staging|rolled-back|damaged)[^/]*)?)/((?:${[...FOLDERS, BLOBS].join("|")})(?:/[^/]+)?|\\.?(?:${FILES})[^/]*)$`,
);

/** Returns the folder above the container that a path leads into, and the names from the container on. */
export function partsOfContainer(path: string): { above: string; parts: string[] } | undefined {
  // Most paths lead into none.
  if (!path.includes(CONTAINER)) return undefined;
  const [, above, container, rest] = PART.exec(path) ?? [];
  return container === undefined ? undefined : { above, parts: [container, ...rest.split("/")] };
}

/** Where one frame lies, and in it its payload. */
export interface Place {
  readonly segmentSeq: number;
  /** Of the frame in its segment. */
  readonly start: number;
  /** Of the frame, line feed included. */
  readonly length: number;
  /** Of the payload, from the start of the frame. */
  readonly payloadStart: number;
  readonly payloadLength: number;
  readonly crc: number;
}

/** The columns of places, by the names under which they are kept. */
export type PlaceColumns = {
  readonly segments: Uint32Array;
  readonly starts: Float64Array;
  readonly lengths: Uint32Array;
  readonly payloadStarts: Uint32Array;
  readonly payloadLengths: Uint32Array;
  readonly crcs: Uint32Array;
};

/** Places by position. */
export class Places {
  readonly segments: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly starts: Column<Float64Array> = new Column(new Float64Array(16));
  readonly lengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly payloadStarts: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly payloadLengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly crcs: Column<Uint32Array> = new Column(new Uint32Array(16));

  set(position: number, place: Place): void {
    this.segments.set(position, place.segmentSeq);
    this.starts.set(position, place.start);
    this.lengths.set(position, place.length);
    this.payloadStarts.set(position, place.payloadStart);
    this.payloadLengths.set(position, place.payloadLength);
    this.crcs.set(position, place.crc);
  }

  /** Takes over the place of a position that others have, at the same one or at another. */
  copy(from: Places, position: number, at = position): void {
    this.segments.set(at, from.segments.values[position]);
    this.starts.set(at, from.starts.values[position]);
    this.lengths.set(at, from.lengths.values[position]);
    this.payloadStarts.set(at, from.payloadStarts.values[position]);
    this.payloadLengths.set(at, from.payloadLengths.values[position]);
    this.crcs.set(at, from.crcs.values[position]);
  }

  /** Views of the columns by their names, as far as `count`. */
  columns(count: number): PlaceColumns {
    const { segments, starts, lengths, payloadStarts, payloadLengths, crcs } = this;
    return {
      segments: segments.values.subarray(0, count),
      starts: starts.values.subarray(0, count),
      lengths: lengths.values.subarray(0, count),
      payloadStarts: payloadStarts.values.subarray(0, count),
      payloadLengths: payloadLengths.values.subarray(0, count),
      crcs: crcs.values.subarray(0, count),
    };
  }

  /** Makes columns those of these places. */
  take(columns: PlaceColumns): void {
    this.segments.values = columns.segments;
    this.starts.values = columns.starts;
    this.lengths.values = columns.lengths;
    this.payloadStarts.values = columns.payloadStarts;
    this.payloadLengths.values = columns.payloadLengths;
    this.crcs.values = columns.crcs;
  }

  /** Whether the frame of a position stands right behind that of another. */
  follows(before: number, position: number): boolean {
    return (
      this.segments.values[position] === this.segments.values[before] &&
      this.starts.values[position] === this.starts.values[before] + this.lengths.values[before]
    );
  }
}

/** The end of a store: what the next frame continues, and what a manifest tells of it. */
export interface Tail {
  /** The last segment, 0 when there is none. */
  readonly segmentSeq: number;
  /** Of the last frame in it. */
  readonly frameSeq: number;
  /** Where its frames end. */
  readonly segmentSize: number;
  /** Of the last frame of all. */
  readonly entrySeq: number;
  readonly chainHash: string;
  /** Of the last frame, as text. */
  readonly lastCrc: string;
  /** Bytes of all frames. */
  readonly bytesTotal: number;
  readonly segmentCount: number;
}

export const EMPTY_TAIL: Tail = {
  segmentSeq: 0,
  frameSeq: 0,
  segmentSize: 0,
  entrySeq: 0,
  chainHash: GENESIS,
  lastCrc: NO_CRC,
  bytesTotal: 0,
  segmentCount: 0,
};
