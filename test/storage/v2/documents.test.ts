/** Documents, states and ledger of a container: the reference's vectors, strict reading, and the table of states. */

import { describe, expect, test } from "vitest";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import {
  appendEvent,
  CHECKPOINT_SCHEMA,
  type Checkpoint,
  DOCUMENT_BYTES,
  encodeCheckpoint,
  encodeEvent,
  encodeManifest,
  encodePointer,
  getSnapshotRef,
  hashManifest,
  type ManifestFacts,
  type MigrationEvent,
  type Pointer,
  parseCheckpoint,
  parseEvent,
  parseManifest,
  parsePointer,
  readLedger,
  SOUND,
  sealManifest,
} from "../../../src/storage/v2/documents.ts";
import { GENESIS, Malformed, NO_CRC } from "../../../src/storage/v2/frame.ts";
import { STATES, StateMachine, TRANSITIONS } from "../../../src/storage/v2/states.ts";
import { FaultDisk } from "../../support/disk.ts";

const AT = "2026-02-03T22:53:00.000Z";
const SESSION = "f4c03c8c-cf0a-4c90-9535-e95f2d02b393";

/** The store of two frames of the reference, section 3.9. */
const TWO: ManifestFacts = {
  sessionId: SESSION,
  sourceFormat: "jsonl_v3",
  createdAt: AT,
  updatedAt: AT,
  head: { segmentSeq: 1, entrySeq: 2, entryId: "b2c3d4e5" },
  counters: { entriesTotal: 2, messagesTotal: 1, branchesTotal: 0, compactionsTotal: 0, bytesTotal: 866 },
  segmentCount: 1,
  chainHash: "b47c0c937b4af4e97337119f7c2b374a48944aaf45ed1ba364e4cc693c36eb87",
  lastCrc32c: "5E3EC91E",
  invariants: SOUND,
};

const EMPTY: ManifestFacts = {
  ...TWO,
  head: { segmentSeq: 0, entrySeq: 0, entryId: "" },
  counters: { entriesTotal: 0, messagesTotal: 0, branchesTotal: 0, compactionsTotal: 0, bytesTotal: 0 },
  segmentCount: 0,
  chainHash: GENESIS,
  lastCrc32c: NO_CRC,
};

const CHECKPOINT: Checkpoint = {
  schema: CHECKPOINT_SCHEMA,
  checkpointSeq: 3,
  at: AT,
  headEntrySeq: 2,
  headEntryId: "b2c3d4e5",
  snapshotRef: getSnapshotRef(3),
  compactedBeforeEntrySeq: 0,
  chainHash: TWO.chainHash,
  reason: "periodic",
};

const EVENT: MigrationEvent = {
  migrationId: SESSION,
  phase: "completed",
  at: AT,
  sourcePath: "a.jsonl",
  targetPath: `${SESSION}.v2`,
  sourceFormat: "jsonl_v3",
  targetFormat: "native_v2",
  verification: { entryCountMatch: true, hashChainMatch: true, indexConsistent: true },
  outcome: "ok",
  correlationId: "migration-1",
};

const POINTER: Pointer = {
  active: "native_v2",
  manifestHash: GENESIS,
  snapshotId: TWO.chainHash,
  correlationId: "migration-1",
  reason: null,
  phase: "completed",
  source: "a.jsonl",
};

/** Each kind of document: its text, and how it is read. */
const KINDS: Record<string, { text: string; read: (bytes: Uint8Array) => unknown; value: unknown }> = {
  manifest: { text: encodeManifest(sealManifest(TWO)), read: parseManifest, value: sealManifest(TWO) },
  checkpoint: { text: encodeCheckpoint(CHECKPOINT), read: (bytes) => parseCheckpoint(bytes, 3), value: CHECKPOINT },
  event: { text: encodeEvent(EVENT).trimEnd(), read: parseEvent, value: EVENT },
  pointer: { text: encodePointer(POINTER), read: parsePointer, value: POINTER },
};

/** A copy of a document with one member, by path, set to something else; undefined takes it out. */
function changed(text: string, path: readonly string[], value: unknown): Uint8Array {
  const document = JSON.parse(text);
  let at = document;
  for (const name of path.slice(0, -1)) at = at[name];
  at[path[path.length - 1]] = value;
  return toBytes(JSON.stringify(document));
}

/** The paths of all members of an object. */
function pathsIn(value: object, above: readonly string[] = []): string[][] {
  return Object.entries(value).flatMap(([name, member]) =>
    typeof member === "object" && member !== null
      ? [[...above, name], ...pathsIn(member, [...above, name])]
      : [[...above, name]],
  );
}

describe("documents", () => {
  test("the manifest hashes of the reference come out", () => {
    expect(hashManifest(sealManifest(TWO))).toBe("76b8b3f0a32ca05569093620dae817fa6c7f4f0e9bb6caa50670f805e971b441");
    expect(hashManifest(sealManifest(EMPTY))).toBe("7d3bbb05831ab674636be9d3c76936300e6aacfceae455e8f7d8e1cc29076276");
  });

  test("the members of a manifest are read in any order", () => {
    const reversed = Object.fromEntries(Object.entries(sealManifest(TWO)).reverse());
    expect(parseManifest(toBytes(JSON.stringify(reversed, null, 7)))).toEqual(sealManifest(TWO));
  });

  test.each(Object.keys(KINDS))("a %s reads back as it was written, and with any member amiss is refused", (kind) => {
    const { text, read, value } = KINDS[kind];
    expect(read(toBytes(text))).toEqual(value);
    for (const path of pathsIn(JSON.parse(text))) {
      const name = path.join(".");
      expect(() => read(changed(text, path, undefined)), `without ${name}`).toThrow(Malformed);
      expect(() => read(changed(text, path, [1])), `${name} as a list`).toThrow(Malformed);
      expect(() => read(changed(text, [...path.slice(0, -1), "extra"], 1)), `extra beside ${name}`).toThrow(Malformed);
    }
    for (const none of ["[]", text.slice(0, -1)]) expect(() => read(toBytes(none))).toThrow(Malformed);
    expect(() => read(toBytes(`${text}${" ".repeat(DOCUMENT_BYTES)}`))).toThrow(/byte read limit/);
  });

  test.each([
    [["createdAt"], "2026-02-03T22:53:00.001Z"],
    [["counters", "messagesTotal"], 2],
    [["invariants", "hashChainValid"], false],
  ])("a manifest whose %j is not that of its hash is refused", (path, value) => {
    expect(() => parseManifest(changed(KINDS.manifest.text, path, value))).toThrow("manifest hash mismatch");
  });

  test("a manifest whose head does not fit its counts is refused, hash or not", () => {
    const sealed = (facts: ManifestFacts) => parseManifest(toBytes(encodeManifest(sealManifest(facts))));
    for (const facts of [
      { ...TWO, head: { ...TWO.head, entrySeq: 3 } },
      { ...TWO, head: { ...TWO.head, segmentSeq: 0 } },
      { ...TWO, segmentCount: 0 },
      { ...EMPTY, chainHash: TWO.chainHash },
      { ...EMPTY, lastCrc32c: "5E3EC91E" },
    ])
      expect(() => sealed(facts)).toThrow(Malformed);
    expect(sealed(EMPTY)).toEqual(sealManifest(EMPTY));
  });

  test("a checkpoint is that of its file's name, and is not compacted beyond its head", () => {
    const text = encodeCheckpoint(CHECKPOINT);
    expect(() => parseCheckpoint(toBytes(text), 4)).toThrow(Malformed);
    for (const [name, value] of [
      ["compactedBeforeEntrySeq", 3],
      ["headEntrySeq", 0],
      ["reason", "because"],
    ] as const)
      expect(() => parseCheckpoint(changed(text, [name], value), 3), name).toThrow(Malformed);
  });

  test.each(["../a.jsonl", "/etc/passwd", "a\\b", ""])("a pointer does not lead out of its folder to %j", (source) => {
    expect(() => parsePointer(changed(encodePointer(POINTER), ["source"], source))).toThrow(Malformed);
  });
});

describe("states", () => {
  // exchange.test.ts holds the table against the contract of the seed.
  test.each(STATES)("%s leads where the table says, and nowhere else", (from) => {
    expect(STATES).toHaveLength(9);
    for (const to of STATES) {
      const machine = new StateMachine(() => AT, from);
      const move = () => machine.to(to, "a test");
      if (TRANSITIONS[from].includes(to)) {
        move();
        expect(machine.state).toBe(to);
        expect(machine.history).toEqual([{ fromState: from, toState: to, reason: "a test", at: AT }]);
        continue;
      }
      const refused = { name: "storage_failed", retryable: false, details: { fromState: from, toState: to } };
      expect(move, `to ${to}`).toThrow(expect.objectContaining(refused));
      expect([machine.state, machine.history]).toEqual([from, []]);
    }
  });

  test("a way with a step that does not exist is not begun", () => {
    const machine = new StateMachine(() => AT);
    // A shorter way could reach only the last state of the second.
    for (const way of [["DIRTY", "INDEXED"] as const, ["DIRTY", "CLEAN", "DIRTY"] as const])
      expect(() => machine.through(way, "a test")).toThrow("cannot pass through");
    expect(machine.state).toBe("CLEAN");
    machine.through(["DIRTY", "SEGMENT_SEALED", "INDEXED", "CHECKPOINTED", "ROLLED_BACK"], "a test");
    expect(machine.state).toBe("ROLLED_BACK");
  });

  test("only the latest moves are remembered", () => {
    const machine = new StateMachine(() => AT, "DIRTY");
    for (let i = 0; i < 40; i++) machine.through(["SEGMENT_SEALED", "INDEXED", "DIRTY"], String(i));
    expect([machine.history.length, machine.history.at(-1)?.reason]).toEqual([32, "39"]);
  });
});

describe("ledger", () => {
  const FILE = "/s/ledger.jsonl";
  const LINE = encodeEvent(EVENT);

  test("events are appended one behind the other, durable when that is told", async () => {
    const disk = new FaultDisk();
    disk.put("/s/other", toBytes(""));
    await appendEvent(disk, FILE, EVENT);
    await appendEvent(disk, FILE, { ...EVENT, phase: "rollback", errorClass: "io_failure" });
    const after = disk.after({ names: "synced", content: "synced" });
    const { events, torn } = readLedger(after, FILE);
    expect(torn).toBe(0);
    expect(events).toEqual([EVENT, { ...EVENT, phase: "rollback", errorClass: "io_failure" }]);
  });

  test("what a torn write left at the end gives way to the next event", async () => {
    const disk = new FaultDisk();
    disk.put(FILE, toBytes(LINE + LINE.slice(0, 100)));
    expect(readLedger(disk, FILE)).toMatchObject({ events: [EVENT], torn: 100 });
    await appendEvent(disk, FILE, EVENT);
    expect(decodeText(disk.content(FILE) as Uint8Array)).toBe(LINE + LINE);
  });

  test.each([
    ["no JSON", "nonsense\n"],
    ["an unknown member", LINE.replace('"outcome"', '"more":1,"outcome"')],
    ["an unknown phase", LINE.replace('"completed"', '"done"')],
  ])("a ledger that holds %s tells it, and is kept beside the one that the next event begins", async (_name, line) => {
    const disk = new FaultDisk();
    disk.put(FILE, toBytes(LINE + line + LINE));
    const before = disk.content(FILE);
    expect(readLedger(disk, FILE)).toMatchObject({ events: [EVENT, EVENT], fault: { line: 2 } });
    await appendEvent(disk, FILE, EVENT);
    expect(readLedger(disk, FILE)).toMatchObject({ events: [EVENT, EVENT, EVENT], fault: null });
    expect(disk.content(`${FILE}.damaged.bak`)).toEqual(before);
  });
});
