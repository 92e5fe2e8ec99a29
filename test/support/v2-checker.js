/**
 * Checks a Session Store V2 container against the documented rules, with nothing of ours: it reads every file whole,
 * parses every line with JSON.parse and computes everything anew. Run as a script it takes the path of a container,
 * prints what is wrong, and ends with 1 if anything is.
 */

import { createHash } from "node:crypto";
import { existsSync, lstatSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { crcOf } from "./v2-writer.js";

const sha = (bytes) => createHash("sha256").update(bytes).digest("hex");

const FRAME =
  "schema segmentSeq frameSeq entrySeq entryId parentEntryId entryType timestamp payloadSha256 payloadBytes payload";
const ROW = "schema entrySeq entryId segmentSeq frameSeq byteOffset byteLength crc32c state";
const CHECKPOINT =
  "schema checkpointSeq at headEntrySeq headEntryId snapshotRef compactedBeforeEntrySeq chainHash reason";
const EVENT =
  "schema migrationId phase at sourcePath targetPath sourceFormat targetFormat verification outcome errorClass correlationId";
const MANIFEST =
  "schema storeVersion sessionId sourceFormat createdAt updatedAt head counters files integrity invariants";

/** What is wrong with a container; nothing, if it keeps the rules. */
export function faultsOf(container) {
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

  const walk = (folder) => {
    demand((lstatSync(folder).mode & 0o077) === 0, `${folder}: others may look into it`);
    for (const name of readdirSync(folder)) {
      const path = join(folder, name);
      const info = lstatSync(path);
      demand(info.isFile() || info.isDirectory(), `${path}: neither file nor folder`);
      if (info.isDirectory()) walk(path);
      else demand((info.mode & 0o077) === 0, `${path}: others may read it`);
    }
  };
  walk(container);

  const header = JSON.parse(readFileSync(join(container, "header.jsonl"), "utf8"));
  const rows = linesIn(readFileSync(join(container, "index", "offsets.jsonl")), "index").map(({ bytes }) =>
    JSON.parse(bytes.toString()),
  );
  const names = readdirSync(join(container, "segments")).sort();
  let chain = "0".repeat(64);
  const chains = [chain];
  const ids = [];
  const parents = [];
  const children = new Map();
  const count = { entriesTotal: 0, messagesTotal: 0, compactionsTotal: 0, bytesTotal: 0 };
  let lastCrc = "00000000";
  names.forEach((name, i) => {
    demand(name === `${String(i + 1).padStart(16, "0")}.seg`, `segments/${name}: out of line`);
    const content = readFileSync(join(container, "segments", name));
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
      demand(frame.entryId === row.entryId && frame.entryId === frame.payload.id, `${where}: id`);
      demand((frame.parentEntryId ?? null) === (frame.payload.parentId ?? null), `${where}: parent`);
      demand(frame.entryType === frame.payload.type, `${where}: type`);
      chain = sha(chain + frame.payloadSha256);
      chains.push(chain);
      ids.push(frame.entryId);
      parents.push(frame.parentEntryId ?? null);
      if (frame.parentEntryId !== undefined)
        children.set(frame.parentEntryId, (children.get(frame.parentEntryId) ?? 0) + 1);
      if (frame.entryType === "message") count.messagesTotal++;
      if (frame.entryType === "compaction") count.compactionsTotal++;
      count.bytesTotal += bytes.length;
    });
  });
  demand(rows.length === count.entriesTotal, "the index has other rows than there are frames");
  demand(new Set(ids).size === ids.length, "an id stands twice");
  const known = new Set(ids);
  for (const parent of parents) demand(parent === null || known.has(parent), `the parent ${parent} is missing`);

  const manifest = JSON.parse(readFileSync(join(container, "manifest.json"), "utf8"));
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
  if (entrySeq === ids.length) {
    demand(integrity.lastCrc32c === lastCrc, "manifest: last checksum");
    const branchesTotal = [...children.values()].filter((found) => found > 1).length;
    for (const [name, value] of Object.entries({ ...count, branchesTotal }))
      demand(manifest.counters[name] === value, `manifest: ${name}`);
    demand(manifest.files.segmentCount === names.length, "manifest: segmentCount");
  }
  for (const name of readdirSync(join(container, "checkpoints"))) {
    if (!name.endsWith(".json")) continue;
    const checkpoint = JSON.parse(readFileSync(join(container, "checkpoints", name), "utf8"));
    exact(checkpoint, CHECKPOINT, name);
    demand(checkpoint.snapshotRef === `checkpoints/${name}`, `${name}: snapshotRef`);
    demand(checkpoint.headEntryId === ids[checkpoint.headEntrySeq - 1], `${name}: head`);
    demand(checkpoint.chainHash === chains[checkpoint.headEntrySeq], `${name}: chain`);
  }
  const ledger = join(container, "migrations", "ledger.jsonl");
  if (existsSync(ledger))
    for (const { bytes } of linesIn(readFileSync(ledger), "ledger"))
      exact(JSON.parse(bytes.toString()), EVENT, "ledger");
  return faults;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const faults = faultsOf(process.argv[2]);
  for (const fault of faults) console.log(fault);
  process.exitCode = faults.length > 0 ? 1 : 0;
}
