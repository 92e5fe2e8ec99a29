/**
 * Lays out a Session Store V2 container by the documented rules, with nothing of ours: what it writes is what any other
 * program would. Run as a script it takes the path of a container and reads entries, one a line, from stdin.
 */

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const sha = (text) => createHash("sha256").update(text).digest("hex");

/** CRC-32C, bit by bit. */
export function crcOf(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ((crc ^ 0xffffffff) >>> 0).toString(16).toUpperCase().padStart(8, "0");
}

const number = (seq) => String(seq).padStart(16, "0");

/** Writes the container of these entry lines, which hold one JSON object each. */
function writeContainer(container, header, lines, { segmentBytes = 64 * 1024 * 1024, at } = {}) {
  const time = at ?? new Date().toISOString();
  for (const name of ["segments", "index", "checkpoints", "migrations", "tmp"])
    mkdirSync(join(container, name), { recursive: true, mode: 0o700 });
  const put = (name, text) => writeFileSync(join(container, name), text, { mode: 0o600 });
  put("header.jsonl", `${header}\n`);

  let chain = "0".repeat(64);
  let crc = "00000000";
  let [segmentSeq, frameSeq, size, bytesTotal] = [0, 0, 0, 0];
  let [messages, compactions] = [0, 0];
  const children = new Map();
  const segments = [];
  const rows = [];
  let entryId = "";
  lines.forEach((line, position) => {
    const entry = JSON.parse(line);
    entryId = entry.id;
    const hash = sha(line);
    const frameAt = (segment, frame) =>
      Buffer.from(
        `{"schema":"pi.session_store_v2.segment_frame.v1","segmentSeq":${segment},"frameSeq":${frame},` +
          `"entrySeq":${position + 1},"entryId":${JSON.stringify(entry.id)},` +
          `${entry.parentId === null ? "" : `"parentEntryId":${JSON.stringify(entry.parentId)},`}` +
          `"entryType":${JSON.stringify(entry.type)},"timestamp":"${time}","payloadSha256":"${hash}",` +
          `"payloadBytes":${Buffer.byteLength(line)},"payload":${line}}\n`,
      );
    let frame = frameAt(segmentSeq, frameSeq + 1);
    if (segmentSeq === 0 || (size > 0 && size + frame.length > segmentBytes)) {
      segmentSeq++;
      frameSeq = 0;
      size = 0;
      segments.push([]);
      frame = frameAt(segmentSeq, 1);
    }
    frameSeq++;
    crc = crcOf(frame);
    rows.push(
      `{"schema":"pi.session_store_v2.offset_index.v1","entrySeq":${position + 1},"entryId":${JSON.stringify(entry.id)},` +
        `"segmentSeq":${segmentSeq},"frameSeq":${frameSeq},"byteOffset":${size},"byteLength":${frame.length},` +
        `"crc32c":"${crc}","state":"active"}\n`,
    );
    segments[segmentSeq - 1].push(frame);
    size += frame.length;
    bytesTotal += frame.length;
    chain = sha(chain + hash);
    if (entry.type === "message") messages++;
    if (entry.type === "compaction") compactions++;
    if (entry.parentId !== null) children.set(entry.parentId, (children.get(entry.parentId) ?? 0) + 1);
  });
  segments.forEach((frames, i) => {
    put(`segments/${number(i + 1)}.seg`, Buffer.concat(frames));
  });
  put("index/offsets.jsonl", rows.join(""));
  put("migrations/ledger.jsonl", "");
  if (lines.length > 0)
    put(
      `checkpoints/${number(1)}.json`,
      JSON.stringify(
        {
          schema: "pi.session_store_v2.checkpoint.v1",
          checkpointSeq: 1,
          at: time,
          headEntrySeq: lines.length,
          headEntryId: entryId,
          snapshotRef: `checkpoints/${number(1)}.json`,
          compactedBeforeEntrySeq: 0,
          chainHash: chain,
          reason: "manual",
        },
        null,
        2,
      ),
    );
  const manifest = {
    schema: "pi.session_store_v2.manifest.v1",
    storeVersion: 2,
    sessionId: JSON.parse(header).id,
    sourceFormat: "native_v2",
    createdAt: time,
    updatedAt: time,
    head: { segmentSeq, entrySeq: lines.length, entryId },
    counters: {
      entriesTotal: lines.length,
      messagesTotal: messages,
      branchesTotal: [...children.values()].filter((count) => count > 1).length,
      compactionsTotal: compactions,
      bytesTotal,
    },
    files: {
      segmentDir: "segments/",
      segmentCount: segments.length,
      indexPath: "index/offsets.jsonl",
      checkpointDir: "checkpoints/",
      migrationLedgerPath: "migrations/ledger.jsonl",
    },
    integrity: { chainHash: chain, manifestHash: "", lastCrc32c: crc },
    invariants: {
      parentLinksClosed: true,
      monotonicEntrySeq: true,
      monotonicSegmentSeq: true,
      indexWithinSegmentBounds: true,
      branchHeadsIndexed: true,
      checkpointsMonotonic: true,
      hashChainValid: true,
    },
  };
  manifest.integrity.manifestHash = sha(JSON.stringify(manifest));
  put("manifest.json", JSON.stringify(manifest, null, 2));
  const pointer = {
    active: "native_v2",
    manifestHash: manifest.integrity.manifestHash,
    snapshotId: null,
    correlationId: "another-program",
    reason: null,
    phase: "completed",
    source: null,
  };
  writeFileSync(join(dirname(container), `${basename(container, ".v2")}.store.json`), JSON.stringify(pointer), {
    mode: 0o600,
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [header, ...lines] = readFileSync(0, "utf8").trimEnd().split("\n");
  writeContainer(process.argv[2], header, lines);
}
