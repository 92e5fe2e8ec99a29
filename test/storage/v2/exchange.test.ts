/**
 * What we write is what the contract says: by its JSON Schema, and by a checker that shares no code with us; and what
 * another writer laid out by the same rules is a session here.
 */

import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import { indexFile, pointerFile, segmentFile } from "../../../src/storage/fs/container-paths.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { jsonlStore } from "../../../src/storage/jsonl/store.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { audit, type InvariantId } from "../../../src/storage/v2/audit.ts";
import { migrate } from "../../../src/storage/v2/migration.ts";
import type { MigrationOptions } from "../../../src/storage/v2/migration-steps.ts";
import { rollBack } from "../../../src/storage/v2/rollback.ts";
import { STATES, TRANSITIONS } from "../../../src/storage/v2/states.ts";
import { segmentedStore } from "../../../src/storage/v2/store.ts";
import { testEnv } from "../../support/env.ts";
import { assistantText, entryText, fileText, headerText, id, SESSION, TIME, userText } from "../../support/lines.ts";
import { forSeeds, forSeedsAsync } from "../../support/random.ts";
import { SYSTEM } from "../../support/tiers.ts";

const script = (name: string) => fileURLToPath(new URL(`../../support/${name}`, import.meta.url));
const CONTRACT = JSON.parse(
  readFileSync(new URL("../../../docs/schema/session_store_v2_contract.json", import.meta.url), "utf8"),
);

const ajv = new Ajv2020({ allErrors: true, strict: true, strictTypes: false, strictRequired: false });
ajv.addSchema(CONTRACT);
const validator = (name: string) => ajv.compile({ $ref: `pi.session_store_v2.contract.v1#/$defs/${name}` });
const valid = {
  manifest: validator("manifest"),
  frame: validator("segmentFrame"),
  row: validator("offsetIndex"),
  checkpoint: validator("checkpoint"),
  event: validator("migrationEvent"),
  transition: validator("stateTransition"),
};

let folder: string;
let container: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "v2-exchange-"));
  container = join(folder, `${SESSION}.v2`);
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const LINES = [
  userText(id(0), null, "café ☃"),
  assistantText(id(1), id(0), "x".repeat(700)),
  entryText("usage", id(2), id(1), { n: 1 }).replace(":1}", ":1.0}"),
  userText(id(3), id(0)),
  entryText("compaction", id(4), id(3), { summary: "s", firstKeptEntryId: id(3), tokensBefore: 1 }),
  userText(id(5), id(4), "y".repeat(1500)),
];

function options(): MigrationOptions {
  const env = testEnv();
  const common = { disk: realDisk, env, locks: noLocks, durability: "sync", quarantine: join(folder, "q") } as const;
  const files = jsonlStore({ ...common, fileFor: () => join(folder, "a.jsonl") });
  const containers = segmentedStore({
    ...common,
    containerFor: () => container,
    segmentBytes: 3000,
    checkpointEvery: { entries: 4, bytes: 1 << 20 },
  });
  return {
    disk: realDisk,
    env,
    locks: noLocks,
    segmentBytes: 3000,
    openFile: (file, readOnly) => files.open(file, readOnly),
    openContainer: (path, readOnly) => containers.open(path, readOnly),
    fileFor: (_header, at) => join(at, "a.jsonl"),
  };
}

/** A container of ours: migrated, continued by appends, with several segments and checkpoints. */
async function ours(): Promise<void> {
  const file = join(folder, "a.jsonl");
  writeFileSync(file, fileText(headerText(), ...LINES));
  await migrate(options(), file);
  const log = options().openContainer(container);
  for (let i = 6; i < 20; i++) {
    log.append([bytesOf(userText(id(i), id(i - 1), "z".repeat(i * 20)))]);
    await log.commit();
  }
  log.close();
}

const documentsIn = (name: string): unknown[] =>
  readFileSync(join(container, name), "utf8")
    .trimEnd()
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

const filesIn = (name: string, ending: string): string[] =>
  readdirSync(join(container, name))
    .filter((found) => found.endsWith(ending))
    .map((found) => join(name, found));

describe("the contract", () => {
  test("every document that we write is valid, and the bundle of them", async () => {
    await ours();
    const checkpoints = filesIn("checkpoints", ".json").map((name) =>
      JSON.parse(readFileSync(join(container, name), "utf8")),
    );
    const bundle = {
      schema: "pi.session_store_v2.contract.v1",
      manifest: JSON.parse(readFileSync(join(container, "manifest.json"), "utf8")),
      segmentFrames: filesIn("segments", ".seg").flatMap(documentsIn),
      offsetIndex: documentsIn("index/offsets.jsonl"),
      checkpoints,
      migrationEvents: documentsIn("migrations/ledger.jsonl"),
      stateTransitions: [],
    };
    expect(bundle.segmentFrames).toHaveLength(20);
    expect(bundle.offsetIndex).toHaveLength(20);
    expect(checkpoints.length).toBeGreaterThan(1);
    expect(bundle.migrationEvents).toHaveLength(5);
    expect(filesIn("segments", ".seg").length).toBeGreaterThan(2);
    const validate = ajv.getSchema("pi.session_store_v2.contract.v1");
    expect(validate?.(bundle), JSON.stringify(validate?.errors)).toBe(true);
    const done = await rollBack(options(), container, { reason: "a test" });
    for (const transition of done.transitions) expect(valid.transition(transition)).toBe(true);
    container = done.keptAt as string;
    for (const event of documentsIn("migrations/ledger.jsonl"))
      expect(valid.event(event), JSON.stringify(valid.event.errors)).toBe(true);
  });

  test("a member too many or missing makes each of them invalid", async () => {
    await ours();
    const samples: [keyof typeof valid, unknown][] = [
      ["manifest", JSON.parse(readFileSync(join(container, "manifest.json"), "utf8"))],
      ["frame", documentsIn(filesIn("segments", ".seg")[0])[0]],
      ["row", documentsIn("index/offsets.jsonl")[0]],
      ["checkpoint", JSON.parse(readFileSync(join(container, filesIn("checkpoints", ".json")[0]), "utf8"))],
      ["event", documentsIn("migrations/ledger.jsonl")[0]],
    ];
    for (const [kind, sample] of samples) {
      expect(valid[kind](sample), kind).toBe(true);
      expect(valid[kind]({ ...(sample as object), more: 1 }), kind).toBe(false);
      for (const name of Object.keys(sample as object)) {
        const { [name]: _, ...less } = sample as Record<string, unknown>;
        expect(valid[kind](less), `${kind} without ${name}`).toBe(false);
      }
    }
  });

  test("it allows the moves of our table and no other", () => {
    for (const fromState of STATES)
      for (const toState of STATES)
        expect(valid.transition({ fromState, toState, reason: "a test", at: TIME }), `${fromState} ${toState}`).toBe(
          TRANSITIONS[fromState].includes(toState),
        );
  });
});

describe("another program", SYSTEM, () => {
  test("finds nothing wrong in a store of ours", async () => {
    await ours();
    expect(execFileSync(process.execPath, [script("v2-checker.js"), container], { encoding: "utf8" })).toBe("");
  });

  test("finds what is wrong in a store of ours that was damaged", async () => {
    await ours();
    const file = segmentFile(container, 1);
    const bytes = readFileSync(file);
    bytes[bytes.indexOf("café")] ^= 1;
    writeFileSync(file, bytes);
    expect(() => execFileSync(process.execPath, [script("v2-checker.js"), container], { stdio: "pipe" })).toThrow();
  });

  test("lays out a store that opens here, is sound, and goes on", async () => {
    execFileSync(process.execPath, [script("v2-writer.js"), container], {
      input: fileText(headerText(), ...LINES),
    });
    expect(await audit(realDisk, container)).toMatchObject({ ok: true, findings: [] });
    const log = options().openContainer(container);
    expect(log.damage).toEqual([]);
    expect(LINES.map((_, position) => textOf(log.read(position)))).toEqual(LINES);
    expect(textOf(log.headerLine)).toBe(headerText());
    log.append([bytesOf(userText(id(6), id(5)))]);
    await log.commit();
    log.close();
    expect(await audit(realDisk, container)).toMatchObject({ ok: true, findings: [] });
    expect(execFileSync(process.execPath, [script("v2-checker.js"), container], { encoding: "utf8" })).toBe("");
  });
});

describe("the audit", () => {
  /** Changes bytes of a file where a text stands. */
  const change = (file: string, from: string, to: string): void => {
    const text = readFileSync(file, "latin1");
    expect(text).toContain(from);
    writeFileSync(file, text.replace(from, to), "latin1");
  };

  const cases: [InvariantId, string, () => void][] = [
    [
      "INV-001",
      "a parent that is no entry",
      () => change(segmentFile(container, 1), `"parentEntryId":"${id(0)}"`, `"parentEntryId":"${id(99)}"`),
    ],
    [
      "INV-002",
      "an entry number that is left out",
      () => change(segmentFile(container, 1), '"entrySeq":2', '"entrySeq":3'),
    ],
    ["INV-003", "a row that leads elsewhere", () => change(indexFile(container), '"byteOffset":0', '"byteOffset":7')],
    [
      "INV-003",
      "a checksum that does not fit",
      () => change(indexFile(container), '"crc32c":"', '"crc32c":"00000000","x":"'),
    ],
    [
      "INV-004",
      "a checkpoint of another head",
      () => change(join(container, filesIn("checkpoints", ".json")[0]), '"headEntrySeq": 6', '"headEntrySeq": 5'),
    ],
    [
      "INV-004",
      "a manifest that was changed",
      () => change(join(container, "manifest.json"), '"messagesTotal": ', '"messagesTotal": 1'),
    ],
    ["INV-005", "a payload that is not the one that was hashed", () => change(segmentFile(container, 1), "say", "SAY")],
    [
      "INV-007",
      "a cutover that was not brought to its end",
      () => change(pointerFile(container), '"completed"', '"cutover_commit"'),
    ],
    [
      "INV-007",
      "a session file beside the store that took its place",
      () => cpSync(join(folder, "a.jsonl.migrated"), join(folder, "a.jsonl")),
    ],
  ];
  test.each(cases)("%s: %s", async (invariant, _name, damage) => {
    writeFileSync(join(folder, "a.jsonl"), fileText(headerText(), ...LINES.map((line) => line.replace("café", "say"))));
    await migrate(options(), join(folder, "a.jsonl"));
    damage();
    const found = await audit(realDisk, container);
    expect(found.ok).toBe(false);
    expect(found.invariants[invariant], JSON.stringify(found.findings)).toBe(false);
  });

  test("any byte of segments, index, manifest and checkpoints that is flipped is found", async () => {
    await ours();
    const files = [
      join(container, "manifest.json"),
      indexFile(container),
      ...[...filesIn("segments", ".seg"), ...filesIn("checkpoints", ".json")].map((name) => join(container, name)),
    ];
    await forSeedsAsync(12, async (random) => {
      const file = random.pick(files);
      const bytes = readFileSync(file);
      const at = random.int(bytes.length);
      const flipped = Buffer.from(bytes);
      flipped[at] ^= 1 << random.int(8);
      writeFileSync(file, flipped);
      const { ok } = await audit(realDisk, container);
      writeFileSync(file, bytes);
      // White space and the case of a letter in a document mean nothing; what they say is held against the frames.
      if (ok) expect(JSON.parse(flipped.toString())).toEqual(expect.anything());
      if (file.includes("/segments/") || file.includes("/index/")) expect(ok, `${file} at ${at}`).toBe(false);
    });
    forSeeds(1, () => expect(files.length).toBeGreaterThan(5));
    expect((await audit(realDisk, container)).ok).toBe(true);
  });
});
