/** Recognises containers of a newer program, which are not damaged: the known parts are read, and nothing is written. */

import { CURRENT_VERSION } from "../../core/format/entry.ts";
import { parse } from "../../core/json/json.ts";
import { getPointerFile, indexFile, manifestFile } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { readAt, readBeginning, readIfFile, useFile } from "../fs/files.ts";
import type { Container } from "./container.ts";
import { DOCUMENT_BYTES, SOURCE_FORMATS } from "./documents.ts";

/** The schema of a document, frame or row, with the versions of the store and of its kind. */
const SCHEMA = /^\s*\{\s*"schema"\s*:\s*"(pi\.session_store_v(\d+)\.(\w+)\.v(\d+))"/;
/** Bytes of a line that are searched for its schema, and bytes at the end of an index that contain its last row. */
const SEEN = 1024;

/** Returns a clause about the first part of a container that is of a newer version; null if none is. */
export function findNewerPart(container: Container): string | null {
  const { disk, file, folder, header, entries } = container;
  if (typeof header.version === "number" && header.version > CURRENT_VERSION)
    return `header.jsonl with format version ${header.version}`;
  return (
    findNewerPointer(disk, getPointerFile(file)) ??
    newerManifest(disk, folder) ??
    (entries.damage.length > 0 ? newerLine(container) : null)
  );
}

/** Returns the same of a pointer file. */
export function findNewerPointer(disk: Disk, file: string): string | null {
  const { active } = documentAt(disk, file);
  const isNewer =
    typeof active === "string" && /^[a-z]+_v[1-9]\d*$/.test(active) && !SOURCE_FORMATS.includes(active as never);
  return isNewer ? `a pointer to the store ${active}` : null;
}

function newerManifest(disk: Disk, folder: string): string | null {
  const { schema, storeVersion } = documentAt(disk, manifestFile(folder));
  if (typeof storeVersion === "number" && storeVersion > 2) return `manifest.json with storeVersion ${storeVersion}`;
  const newer = newerSchema(JSON.stringify({ schema }));
  return newer && `manifest.json with the schema ${newer}`;
}

/** Returns the same of index rows and frames: of the first and the last, so that no flipped bit looks like it. */
function newerLine(container: Container): string | null {
  const { disk, folder, entries, reader, extents } = container;
  const rows = readIfFile(() =>
    useFile(disk, disk.openRead(indexFile(folder)), (fd) => {
      const { size } = disk.infoOf(fd);
      const [first, last] = [0, Math.max(0, size - SEEN)].map((at) =>
        textOf(readAt(disk, fd, at, Math.min(SEEN, size))),
      );
      return [first, last.trimEnd().split("\n").at(-1) ?? ""];
    }),
  );
  const [row] = (rows ?? []).map(newerSchema);
  if (row && rows?.every(newerSchema)) return `index rows with the schema ${row}`;
  const { count } = entries.nodes;
  if (count === 0) return null;
  const frames = [0, count - 1].map((position) => {
    const { segmentSeq, start, length } = extents.at(position);
    return newerSchema(textOf(reader.bytes(segmentSeq, start, Math.min(length, SEEN))));
  });
  const isSure = count > 1 || container.crcAt(0) === extents.crcs.values[0];
  return frames.every((schema) => schema !== null) && isSure ? `frames with the schema ${frames[0]}` : null;
}

function documentAt(disk: Disk, file: string): Readonly<Record<string, unknown>> {
  try {
    const bytes = readIfFile(() => readBeginning(disk, file, DOCUMENT_BYTES));
    return (bytes && (parse(bytes) as Record<string, unknown> | null)) || {};
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) return {};
    throw error;
  }
}

/** Returns the schema at the start of a line if it is newer than the known ones. */
function newerSchema(line: string): string | null {
  const [, schema, store, , kind] = SCHEMA.exec(line) ?? [];
  return schema !== undefined && (Number(store) > 2 || Number(kind) > 1) ? schema : null;
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}
