/** Finds damage to the documents of a container that costs no entry, and that opening the container passes over. */

import { basename, join } from "node:path";
import { type Damage, makeDamage } from "../../core/format/damage.ts";
import {
  checkpointFile,
  checkpointFolder,
  indexFile,
  ledgerFile,
  manifestFile,
  parseNumberedName,
  segmentFolder,
} from "../fs/container-paths.ts";
import { exists, openFile, readWhole } from "../fs/disk.ts";
import { getInfo, guardErrno, useFile } from "../fs/files.ts";
import { listNames } from "../fs/folders.ts";
import { scanLines } from "../log/lines.ts";
import type { Container } from "./container.ts";
import { getSnapshotRef, parseCheckpoint, readLedger, readManifest } from "./documents.ts";
import { decodeRow, readIfSound } from "./frame.ts";

/** Returns the damage that a repair removes by building the container anew. Throws storage_failed. */
export function findDocumentFaults(container: Container): Damage[] {
  return guardErrno("looking at the session", () => [...faultsOf(container)]).map((fault) =>
    makeDamage("bad_index", `${fault}; no entry depends on it`, true),
  );
}

function* faultsOf(container: Container): Generator<string> {
  const { disk, folder, end } = container;
  const manifest = manifestFile(folder);
  if (exists(disk, manifest) && readManifest(disk, manifest) === null) yield "manifest.json is damaged";
  for (const name of listNames(disk, checkpointFolder(folder))) {
    const seq = parseNumberedName(name, "json");
    if (seq > 0 && readIfSound(() => parseCheckpoint(readWhole(disk, checkpointFile(folder, seq)), seq)) === null)
      yield `${getSnapshotRef(seq)} is damaged`;
  }
  const { fault, torn } = readLedger(disk, ledgerFile(folder));
  const ledger = join("migrations", basename(ledgerFile(folder)));
  if (fault) yield `line ${fault.line} of ${ledger} is damaged`;
  else if (torn > 0) yield `the last event of ${ledger} was cut off`;
  for (const name of listNames(disk, segmentFolder(folder)).filter((found) => found.endsWith(".seg")))
    if (parseNumberedName(name, "seg") === 0 || getInfo(disk, join(segmentFolder(folder), name))?.kind !== "file")
      yield `segments/${name} is no part of the session`;
  // Damage of the index that is reported already need not be found again.
  const row = end.indexFault === null && exists(disk, indexFile(folder)) ? wrongRow(container) : 0;
  if (row > 0) yield `row ${row} of index/offsets.jsonl is not that of its entry`;
}

/** Returns the number of the first wrong row of the index, which a cache reported; 0 if there is no such row. */
function wrongRow({ disk, folder, extents, entries, end }: Container): number {
  let wrong = 0;
  let count = 0;
  const check = (b: Uint8Array, at: number, to: number): void => {
    const place = count++;
    if (wrong > 0 || place >= entries.nodes.count) return;
    const row = readIfSound(() => decodeRow(b, at, to));
    const { segmentSeq, start, length, crc } = extents.at(place);
    const isRight =
      row?.entrySeq === place + 1 &&
      row.segmentSeq === segmentSeq &&
      row.byteOffset === start &&
      row.byteLength === length &&
      Number.parseInt(row.crc32c, 16) === crc;
    if (!isRight) wrong = count;
  };
  useFile(disk, openFile(disk, indexFile(folder)), (fd) =>
    scanLines(
      disk,
      fd,
      0,
      0,
      { line: (_n, _start, b, at, to) => check(b, at, to), long: () => count++ },
      undefined,
      end.indexEnd,
    ),
  );
  return wrong;
}
