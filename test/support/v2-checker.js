/**
 * Session Store V2 by the documented rules, with nothing of ours: checks a container by reading every file whole, parsing
 * every line with JSON.parse and computing everything anew; and lays one out as any other program would.
 */

import { createHash } from "node:crypto";
import { lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

const sha = (bytes) => createHash("sha256").update(bytes).digest("hex");

const TABLE = Array.from({ length: 256 }, (_, n) => {
  let crc = n;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc >>> 0;
});

/** CRC-32C, a byte at a time, as eight upper-case digits. */
export function crcOf(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ TABLE[(crc ^ byte) & 0xff];
  return ((crc ^ 0xffffffff) >>> 0).toString(16).toUpperCase().padStart(8, "0");
}

const FRAME =
  "schema segmentSeq frameSeq entrySeq entryId parentEntryId entryType timestamp payloadSha256 payloadBytes payload";
const ROW = "schema entrySeq entryId segmentSeq frameSeq byteOffset byteLength crc32c state";
const CHECKPOINT =
  "schema checkpointSeq at headEntrySeq headEntryId snapshotRef compactedBeforeEntrySeq chainHash reason";
const EVENT =
  "schema migrationId phase at sourcePath targetPath sourceFormat targetFormat verification outcome errorClass correlationId";
const MANIFEST =
  "schema storeVersion sessionId sourceFormat createdAt updatedAt head counters files integrity invariants";

/** Expects that no other process may look into a folder, and that nothing but files and folders is in it. */
function walk(folder, demand) {
  demand((lstatSync(folder).mode & 0o077) === 0, `${folder}: others may look into it`);
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const info = lstatSync(path);
    demand(info.isFile() || info.isDirectory(), `${path}: neither file nor folder`);
    if (info.isDirectory()) walk(path, demand);
    else demand((info.mode & 0o077) === 0, `${path}: others may read it`);
  }
}

/**
 * Returns the faults of a container. `disk` has the files elsewhere than in the file system, where a death may have spoilt the
 * ledger and all checkpoints but the last; with `isExact`, the manifest has the last state.
 */
export function faultsOf(container, disk = undefined, isExact = false) {
  const { read, names } = disk ?? { read: readFileSync, names: readdirSync };
  const faults = [];
  const demand = (holds, fault) => {
    if (!holds) faults.push(fault);
  };
  const exact = (object, members, where) => {
    for (const name of Object.keys(object)) demand(members.split(" ").includes(name), `${where}: member ${name}`);
  };
  const linesIn = (bytes, where) => {
    const lines = [];
    let start = 0;
    for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, start)) {
      lines.push({ start, bytes: bytes.subarray(start, end + 1) });
      start = end + 1;
    }
    demand(start === bytes.length, `${where}: unterminated`);
    return lines;
  };
  if (!disk) walk(container, demand);

  const header = JSON.parse(read(join(container, "header.jsonl")).toString());
  const rows = linesIn(read(join(container, "index", "offsets.jsonl")), "index").map(({ bytes }) =>
    JSON.parse(bytes.toString()),
  );
  const segments = names(join(container, "segments")).sort();
  let chain = "0".repeat(64);
  const chains = [chain];
  const ids = [];
  const children = new Map();
  const count = { entriesTotal: 0, messagesTotal: 0, compactionsTotal: 0, bytesTotal: 0 };
  let lastCrc = "00000000";
  segments.forEach((name, i) => {
    demand(name === `${String(i + 1).padStart(16, "0")}.seg`, `segments/${name}: out of line`);
    const content = read(join(container, "segments", name));
    demand(content.length <= 64 * 1024 * 1024, `${name}: too large`);
    linesIn(content, name).forEach(({ start, bytes }, k) => {
      const where = `${name} frame ${k + 1}`;
      const frame = JSON.parse(bytes.toString());
      exact(frame, FRAME, where);
      const row = rows[count.entriesTotal] ?? {};
      exact(row, ROW, `row of ${where}`);
      demand(frame.schema === "pi.session_store_v2.segment_frame.v1", `${where}: schema`);
      demand(row.schema === "pi.session_store_v2.offset_index.v1" && row.state === "active", `row of ${where}`);
      count.entriesTotal++;
      demand(frame.segmentSeq === i + 1 && row.segmentSeq === i + 1, `${where}: segmentSeq`);
      demand(frame.frameSeq === k + 1 && row.frameSeq === k + 1, `${where}: frameSeq`);
      demand(frame.entrySeq === count.entriesTotal && row.entrySeq === count.entriesTotal, `${where}: entrySeq`);
      demand(row.byteOffset === start && row.byteLength === bytes.length, `${where}: place`);
      lastCrc = crcOf(bytes);
      demand(row.crc32c === lastCrc, `${where}: checksum`);
      // The payload is the last member, in the very bytes that were hashed.
      const mark = bytes.indexOf(',"payload":') + ',"payload":'.length;
      const payload = bytes.subarray(mark, bytes.length - 2);
      demand(payload.length === frame.payloadBytes, `${where}: payloadBytes`);
      demand(sha(payload) === frame.payloadSha256, `${where}: payloadSha256`);
      demand(frame.entryId === row.entryId && frame.entryId === String(frame.payload.id), `${where}: id`);
      demand((frame.parentEntryId ?? null) === (frame.payload.parentId ?? null), `${where}: parent`);
      demand(frame.entryType === frame.payload.type, `${where}: type`);
      chain = sha(chain + frame.payloadSha256);
      chains.push(chain);
      demand(!ids.includes(frame.entryId), `${where}: the id stands twice`);
      const parent = frame.parentEntryId;
      demand(parent === undefined || ids.includes(parent), `${where}: the parent is missing`);
      if (parent !== undefined) children.set(parent, (children.get(parent) ?? 0) + 1);
      ids.push(frame.entryId);
      if (frame.entryType === "message") count.messagesTotal++;
      if (frame.entryType === "compaction") count.compactionsTotal++;
      count.bytesTotal += bytes.length;
    });
  });
  demand(rows.length === count.entriesTotal, "the index has other rows than there are frames");

  const manifest = JSON.parse(read(join(container, "manifest.json")));
  exact(manifest, MANIFEST, "manifest");
  const { integrity } = manifest;
  const hashed = { ...manifest, integrity: { ...integrity, manifestHash: "" } };
  demand(sha(JSON.stringify(hashed)) === integrity.manifestHash, "manifest: hash");
  demand(manifest.sessionId === header.id, "manifest: session");
  demand(Object.values(manifest.invariants).every(Boolean), "manifest: invariants");
  const { entrySeq } = manifest.head;
  demand(entrySeq <= ids.length, "manifest: head beyond the end");
  demand(manifest.head.entryId === (ids[entrySeq - 1] ?? ""), "manifest: head");
  demand(integrity.chainHash === chains[entrySeq], "manifest: chain");
  demand(!isExact || entrySeq === ids.length, `the manifest ends at ${entrySeq}, not ${ids.length}`);
  if (entrySeq === ids.length) {
    demand(integrity.lastCrc32c === lastCrc, "manifest: last checksum");
    const branchesTotal = [...children.values()].filter((found) => found > 1).length;
    for (const [name, value] of Object.entries({ ...count, branchesTotal }))
      demand(manifest.counters[name] === value, `manifest: ${name}`);
    demand(manifest.files.segmentCount === segments.length, "manifest: segmentCount");
  }
  const checkpoints = names(join(container, "checkpoints")).filter((name) => name.endsWith(".json"));
  for (const name of checkpoints.sort().slice(disk ? -1 : 0)) {
    const checkpoint = JSON.parse(read(join(container, "checkpoints", name)));
    exact(checkpoint, CHECKPOINT, name);
    demand(checkpoint.snapshotRef === `checkpoints/${name}`, `${name}: snapshotRef`);
    demand(checkpoint.headEntryId === ids[checkpoint.headEntrySeq - 1], `${name}: head`);
    demand(checkpoint.chainHash === chains[checkpoint.headEntrySeq], `${name}: chain`);
  }
  if (!disk && names(join(container, "migrations")).includes("ledger.jsonl"))
    for (const { bytes } of linesIn(read(join(container, "migrations", "ledger.jsonl")), "ledger"))
      exact(JSON.parse(bytes.toString()), EVENT, "ledger");
  return faults;
}

/** Lays out the container of these entry lines, which hold one JSON object each; with `isBare`, without any document. */
export function writeContainer(container, header, lines, { isBare = false, at = "2026-01-24T16:22:26.831Z" } = {}) {
  const seq = String(1).padStart(16, "0");
  for (const name of ["segments", "index", "checkpoints", "migrations", "tmp"])
    mkdirSync(join(container, name), { recursive: true, mode: 0o700 });
  const put = (name, text) => writeFileSync(join(container, name), text, { mode: 0o600 });
  put("header.jsonl", `${header}\n`);

  const entries = lines.map((line) => JSON.parse(line));
  let chain = "0".repeat(64);
  let crc = "00000000";
  let segment = "";
  let rows = "";
  entries.forEach((entry, n) => {
    const numbers = { segmentSeq: 1, frameSeq: n + 1, entrySeq: n + 1 };
    const head = {
      schema: "pi.session_store_v2.segment_frame.v1",
      ...numbers,
      entryId: String(entry.id),
      parentEntryId: entry.parentId === null ? undefined : String(entry.parentId),
      entryType: entry.type,
      timestamp: at,
      payloadSha256: sha(lines[n]),
      payloadBytes: Buffer.byteLength(lines[n]),
    };
    const frame = Buffer.from(`${JSON.stringify(head).slice(0, -1)},"payload":${lines[n]}}\n`);
    crc = crcOf(frame);
    const place = { byteOffset: Buffer.byteLength(segment), byteLength: frame.length, crc32c: crc, state: "active" };
    const row = { schema: "pi.session_store_v2.offset_index.v1", entrySeq: n + 1, entryId: head.entryId, ...numbers };
    rows += `${JSON.stringify({ ...row, ...place })}\n`;
    segment += frame.toString();
    chain = sha(chain + head.payloadSha256);
  });
  put(`segments/${seq}.seg`, segment);
  put("index/offsets.jsonl", rows);
  if (isBare) return;
  put("migrations/ledger.jsonl", "");
  const entryId = entries.at(-1).id;
  const checkpoint = {
    schema: "pi.session_store_v2.checkpoint.v1",
    checkpointSeq: 1,
    at,
    headEntrySeq: lines.length,
    headEntryId: entryId,
    snapshotRef: `checkpoints/${seq}.json`,
    compactedBeforeEntrySeq: 0,
    chainHash: chain,
    reason: "manual",
  };
  put(`checkpoints/${seq}.json`, JSON.stringify(checkpoint, null, 2));
  const parents = entries.map(({ parentId }) => parentId).filter((parentId) => parentId !== null);
  const countOf = (type) => entries.filter((entry) => entry.type === type).length;
  const invariants =
    "parentLinksClosed monotonicEntrySeq monotonicSegmentSeq indexWithinSegmentBounds branchHeadsIndexed " +
    "checkpointsMonotonic hashChainValid";
  const manifest = {
    schema: "pi.session_store_v2.manifest.v1",
    storeVersion: 2,
    sessionId: JSON.parse(header).id,
    sourceFormat: "native_v2",
    createdAt: at,
    updatedAt: at,
    head: { segmentSeq: 1, entrySeq: lines.length, entryId },
    counters: {
      entriesTotal: lines.length,
      messagesTotal: countOf("message"),
      branchesTotal: new Set(parents.filter((parent, n) => parents.indexOf(parent) < n)).size,
      compactionsTotal: countOf("compaction"),
      bytesTotal: Buffer.byteLength(segment),
    },
    files: {
      segmentDir: "segments/",
      segmentCount: 1,
      indexPath: "index/offsets.jsonl",
      checkpointDir: "checkpoints/",
      migrationLedgerPath: "migrations/ledger.jsonl",
    },
    integrity: { chainHash: chain, manifestHash: "", lastCrc32c: crc },
    invariants: Object.fromEntries(invariants.split(" ").map((name) => [name, true])),
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
  const place = join(dirname(container), `${basename(container, ".v2")}.store.json`);
  writeFileSync(place, JSON.stringify(pointer), { mode: 0o600 });
}
