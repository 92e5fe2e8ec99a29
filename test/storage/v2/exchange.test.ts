/**
 * The program's containers keep the contract: by its JSON Schema, and by a checker that shares no code with the
 * program; and another writer's container by the same rules is a session here.
 */

import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import { getPointerFile, indexFile, segmentFile } from "../../../src/storage/fs/container-paths.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { makeJsonlStore } from "../../../src/storage/jsonl/store.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { audit, type InvariantId } from "../../../src/storage/v2/audit.ts";
import { migrate } from "../../../src/storage/v2/migration.ts";
import type { MigrationOptions } from "../../../src/storage/v2/migration-steps.ts";
import { rollBack } from "../../../src/storage/v2/rollback.ts";
import { STATES, TRANSITIONS } from "../../../src/storage/v2/states.ts";
import { makeSegmentedStore } from "../../../src/storage/v2/store.ts";
import { testEnv } from "../../support/env.ts";
import { assistantText, entryText, fileText, headerText, id, SESSION, TIME, userText } from "../../support/lines.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { textsOf } from "../../support/sessions.ts";
// @ts-expect-error plain JavaScript, to check containers without the program
import { faultsOf, writeContainer } from "../../support/v2-checker.js";

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
  const files = makeJsonlStore({ ...common, fileFor: () => join(folder, "a.jsonl") });
  const containers = makeSegmentedStore({
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
    log.append([toBytes(userText(id(i), id(i - 1), "z".repeat(i * 20)))]);
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
  const jsonIn = (name: string) => JSON.parse(readFileSync(join(container, name), "utf8"));

  test("every document that we write is valid, and the bundle of them", async () => {
    await ours();
    const bundle = {
      schema: "pi.session_store_v2.contract.v1",
      manifest: jsonIn("manifest.json"),
      segmentFrames: filesIn("segments", ".seg").flatMap(documentsIn),
      offsetIndex: documentsIn("index/offsets.jsonl"),
      checkpoints: filesIn("checkpoints", ".json").map(jsonIn),
      migrationEvents: documentsIn("migrations/ledger.jsonl"),
      stateTransitions: [],
    };
    const { segmentFrames, offsetIndex, migrationEvents, checkpoints } = bundle;
    expect([segmentFrames, offsetIndex, migrationEvents].map(({ length }) => length)).toEqual([20, 20, 5]);
    expect(checkpoints.length).toBeGreaterThan(1);
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
      ["manifest", jsonIn("manifest.json")],
      ["frame", documentsIn(filesIn("segments", ".seg")[0])[0]],
      ["row", documentsIn("index/offsets.jsonl")[0]],
      ["checkpoint", jsonIn(filesIn("checkpoints", ".json")[0])],
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

describe("another program", () => {
  test("lays out a store that opens here, is sound, and goes on", async () => {
    writeContainer(container, headerText(), LINES);
    const sound = { ok: true, findings: [] };
    expect(await audit(realDisk, container)).toMatchObject(sound);
    const log = options().openContainer(container);
    expect([log.damage, textsOf(log), decodeText(log.headerLine)]).toEqual([[], LINES, headerText()]);
    log.append([toBytes(userText(id(6), id(5)))]);
    await log.commit();
    log.close();
    expect(await audit(realDisk, container)).toMatchObject(sound);
    expect(faultsOf(container)).toEqual([]);
  });
});

describe("the audit", () => {
  const [segment, index] = [() => segmentFile(container, 1), () => indexFile(container)];
  const [manifest, file] = [() => join(container, "manifest.json"), () => join(folder, "a.jsonl")];
  /** Changes bytes of a file where a text stands. */
  const change = (file: string, from: string, to: string): void => {
    const text = readFileSync(file, "latin1");
    expect(text).toContain(from);
    writeFileSync(file, text.replace(from, to), "latin1");
  };

  const pointsElsewhere = () => change(segment(), `"parentEntryId":"${id(0)}"`, `"parentEntryId":"${id(99)}"`);
  const checkpoint = () => join(container, filesIn("checkpoints", ".json")[0]);
  const cases: [InvariantId, string, () => void][] = [
    ["INV-001", "a parent that is no entry", pointsElsewhere],
    ["INV-002", "an entry number that is left out", () => change(segment(), '"entrySeq":2', '"entrySeq":3')],
    ["INV-003", "a row that leads elsewhere", () => change(index(), '"byteOffset":0', '"byteOffset":7')],
    ["INV-003", "a checksum that does not fit", () => change(index(), '"crc32c":"', '"crc32c":"00000000","x":"')],
    ["INV-004", "a checkpoint of another head", () => change(checkpoint(), '"headEntrySeq": 6', '"headEntrySeq": 5')],
    ["INV-004", "a manifest that was changed", () => change(manifest(), '"messagesTotal": ', '"messagesTotal": 1')],
    ["INV-005", "a payload that is not the one that was hashed", () => change(segment(), "say", "SAY")],
    [
      "INV-007",
      "a cutover that was cut off",
      () => change(getPointerFile(container), '"completed"', '"cutover_commit"'),
    ],
    ["INV-007", "a session file in the place of its own", () => cpSync(`${file()}.migrated`, file())],
  ];
  test.each(cases)("%s: %s", async (invariant, _name, damage) => {
    writeFileSync(file(), fileText(headerText(), ...LINES.map((line) => line.replace("café", "say"))));
    await migrate(options(), file());
    damage();
    const found = await audit(realDisk, container);
    expect(found.ok).toBe(false);
    expect(found.invariants[invariant], JSON.stringify(found.findings)).toBe(false);
  });

  test("any byte of segments, index, manifest and checkpoints that is flipped is found", async () => {
    await ours();
    const parts = [...filesIn("segments", ".seg"), ...filesIn("checkpoints", ".json")];
    const files = [manifest(), index(), ...parts.map((name) => join(container, name))];
    await forSeedsAsync(12, async (random) => {
      const path = random.pick(files);
      const bytes = readFileSync(path);
      const at = random.int(bytes.length);
      const flipped = Buffer.from(bytes);
      flipped[at] ^= 1 << random.int(8);
      writeFileSync(path, flipped);
      const { ok } = await audit(realDisk, container);
      writeFileSync(path, bytes);
      // White space and the case of a letter in a document mean nothing; the values are checked against the frames.
      if (ok) expect(JSON.parse(flipped.toString())).toEqual(expect.anything());
      if (path.includes("/segments/") || path.includes("/index/")) expect(ok, `${path} at ${at}`).toBe(false);
    });
    expect(files.length).toBeGreaterThan(5);
    expect([(await audit(realDisk, container)).ok, faultsOf(container)]).toEqual([true, []]);
    // The checker that others have finds damage, too.
    change(segment(), "caf", "kaf");
    expect(faultsOf(container)).not.toEqual([]);
  });
});
