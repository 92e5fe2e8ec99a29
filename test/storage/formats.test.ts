/** Files that are no session as we read it are named, and never called damaged. */

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { findStrangeFormat } from "../../src/storage/fs/formats.ts";
import { FaultDisk } from "../support/disk.ts";
import { contentsOf, put, serveLibrary } from "../support/lifecycle.ts";
import { fileText } from "../support/lines.ts";
import { type Json, temporaryPlace } from "../support/server.ts";

const LINE = '{"kind":"x","v":1}\n';
const ENTRY =
  '{"type":"message","id":"aaaaaaaa","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z","message":{}}\n';

test.each<[string | undefined, string | Uint8Array]>([
  ["zstd", Buffer.from("28b52ffd04006100", "hex")],
  ["gzip", Buffer.from("1f8b0800", "hex")],
  ["zip", Buffer.from("504b0304", "hex")],
  ["empty", "[]"],
  ["empty", " {}\n"],
  ["empty", "null"],
  ["json", '{"chats":[1]}'],
  ["json", '[{"a":1}]'],
  ["jsonl", LINE + LINE],
  [undefined, ""],
  [undefined, "some words"],
  [undefined, LINE + ENTRY],
  [undefined, `{"type":"session","version":3}\n${LINE}`],
  // Damage in the header of a session.
  [undefined, `{"type":"sessioo","version":3,"id":"x","timestamp":"t","cwd":"/"}\n${ENTRY}`],
  ["jsonl", `{"type":"sessions","version":3,"id":"x","timestamp":"t","cwd":"/"}\n${ENTRY}`],
  ["jsonl", `{"type":"sessioo","version":3,"id":"x","timestamp":"t","cwd":"/"}\n${LINE}`],
  [undefined, `half a line\n${LINE}`],
  ["jsonl", `${LINE}half a line\n${LINE}`],
  [undefined, `${LINE}half a line\n${LINE}${ENTRY}`],
  [undefined, Buffer.from([0, 1, 2, 3])],
  // Longer than the examined part.
  ["json", JSON.stringify([{ a: "x".repeat(100_000) }])],
  ["jsonl", LINE.repeat(4000)],
  ["json", `{"a":"${"x".repeat(1 << 16)}`],
  [undefined, `{"type":"message","id":"${"x".repeat(1 << 16)}`],
])("what a file is follows from its first bytes: %s", (name, content) => {
  const disk = new FaultDisk();
  disk.put("/x", Buffer.from(content));
  expect(findStrangeFormat(disk, "/x")?.name).toBe(name);
});

const HEADER = { type: "session", id: "5f0c8a52-4f1a-4a3c-9d1e-0123456789ab", timestamp: "2026-01-01T00:00:00.000Z" };

test.each([
  ["entries of another shape", ['{"type":"entry","seq":1,"data":{}}', '{"type":"leaf","target":null}'], 0],
  ["an entry that is torn", ['{"type":"entry","seq":1,"data":{}}', '{"type":"entry","se', "{}"], 1],
])("a session of a newer version with %s", async (_, lines, faults) => {
  const place = temporaryPlace();
  const header = JSON.stringify({ ...HEADER, version: 4, cwd: place.home });
  const file = put(join(place.home, "x.jsonl"), fileText(header, ...lines));
  const { damage, ok } = await serveLibrary(place).result("verify_session", { sessionPath: file });
  expect(damage[0]).toMatchObject({ kind: "newer_version", reason: expect.stringMatching(/newer than version 3/) });
  expect([damage.length, ok]).toEqual([1 + faults, faults === 0]);
});

describe("a container of a newer version is read, and nothing of it is called damaged or written", () => {
  const inFile =
    (name: string, from: string | RegExp, to: string) =>
    (container: string): void => {
      const path = name === "" ? container.replace(/\.v2$/, ".store.json") : join(container, name);
      const text = readFileSync(path, "latin1");
      expect(text.search(from)).toBeGreaterThanOrEqual(0);
      writeFileSync(path, text.replaceAll(from as string, to), "latin1");
    };

  test.each([
    ["its header", inFile("header.jsonl", '"version":3', '"version":4')],
    ["the version of its store", inFile("manifest.json", '"storeVersion": 2', '"storeVersion": 3')],
    ["the schema of its manifest", inFile("manifest.json", "manifest.v1", "manifest.v2")],
    ["the schema of its frames", inFile("segments/0000000000000001.seg", "segment_frame.v1", "segment_frame.v2")],
    ["the schema of its index", inFile("index/offsets.jsonl", "offset_index.v1", "offset_index.v2")],
    ["the store that its pointer names", inFile("", "native_v2", "native_v3")],
  ])("by %s", async (_, change) => {
    const place = temporaryPlace();
    const maker = serveLibrary(place, ["--store", "v2"]);
    await maker.result("append", { entries: [JSON.parse(SAID), { ...JSON.parse(SAID), id: "bbbbbbbb" }] });
    const { sessionFile: sessionPath } = await maker.result("get_state");
    await maker.finish();
    change(sessionPath);
    rmSync(join(sessionPath, "index-snapshot.bin"), { force: true });
    const before = Object.entries(contentsOf(join(sessionPath, "..")));
    const server = serveLibrary(place);
    const { sessions, notRead } = await server.result("list_sessions");
    expect([sessions.length, sessions[0].isDamaged, notRead]).toEqual([1, undefined, undefined]);
    const damage = [{ kind: "newer_version", reason: expect.stringMatching(/newer than this program knows/) }];
    expect(await server.result("verify_session", { sessionPath })).toMatchObject({ damage, ok: true });
    expect(await server.result("verify_sessions")).toMatchObject({ damaged: [], ok: true });
    expect(await server.result("get_health")).toMatchObject({ damaged: [], ok: true });
    await server.result("switch_session", { sessionPath });
    expect(await server.result("get_state")).toMatchObject({ entryCount: 2, readOnly: true, diagnostics: damage });
    expect((await server.result("repair_session")).repaired).toEqual([]);
    for (const [command, params] of [
      ["append", { entries: [JSON.parse(SAID.replace("aaaaaaaa", "cccccccc"))] }],
      ["create_checkpoint", {}],
      ["set_session_name", { name: "x" }],
      ["rollback_migration", {}],
    ] as const) {
      const { data, message } = await server.failure(command, params);
      expect([command, data.name]).toEqual([command, "unsupported_version"]);
      expect(message).toMatch(/a newer version of this program/);
    }
    await server.finish();
    const isListed = ([name]: [string, unknown]) => !/writer\.|index-snapshot/.test(name);
    expect(Object.entries(contentsOf(join(sessionPath, ".."))).filter(isListed)).toEqual(before.filter(isListed));
  });
});

test("a container that a newer program wrote to since it was opened is not written", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place, ["--store", "v2"]);
  await server.result("append", { entries: [JSON.parse(SAID)] });
  const { sessionFile } = await server.result("get_state");
  await server.finish();
  const again = serveLibrary(place, ["--session", sessionFile]);
  const manifest = join(sessionFile, "manifest.json");
  const newer = readFileSync(manifest, "utf8").replace('"storeVersion": 2', '"storeVersion": 3');
  writeFileSync(manifest, newer);
  const { data } = await again.failure("append", { entries: [JSON.parse(SAID.replace("aaaaaaaa", "cccccccc"))] });
  expect(data.name).toBe("unsupported_version");
  await again.finish();
  expect(readFileSync(manifest, "utf8")).toBe(newer);
});

test("what cannot be opened is named with what to do, and no list of damage has it", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const { sessionFile } = await server.result("get_state");
  const folder = join(sessionFile, "..");
  const zst = put(join(folder, "rollout.jsonl.zst"), "");
  writeFileSync(zst, Buffer.from("28b52ffd04006100", "hex"));
  const other = put(join(folder, "other.jsonl"), LINE + LINE);
  const newer = put(join(folder, "newer.jsonl"), `${JSON.stringify({ ...HEADER, version: 4, cwd: place.home })}\n`);
  const { error: refused } = await server.request("switch_session", { sessionPath: other });
  expect(refused.data).toMatchObject({ name: "not_a_session", format: "jsonl" });
  expect(refused.message).toMatch(/of no agent that is known here\. Nothing is wrong with it\./);
  expect((await server.request("switch_session", { sessionPath: zst })).error.message).not.toMatch(/header/);
  const { damaged, hidden } = await server.result("get_health");
  expect(damaged).toEqual([]);
  for (const [sessionPath, reason] of [
    [other, "unknown_format"],
    [newer, "newer_version"],
  ])
    expect(hidden).toContainEqual(expect.objectContaining({ sessionPath, reason }));
});

test.each([
  ["a document with nothing in it", "[]", true],
  ["an empty object", "{}", true],
  ["nothing at all", "", true],
  ["what gzip made", Buffer.from("1f8b080000000000", "hex"), true],
  ["what zstd made", Buffer.from("28b52ffd04006100", "hex"), true],
  ["lines of another program", LINE + LINE, true],
  ["a newer version", `${JSON.stringify({ ...HEADER, version: 4, cwd: "/" })}\n`, true],
  ["some words", "some words\n", false],
  ["a page", "<html></html>\n", false],
])("lists, doctor and verify agree whether a file is damaged: %s", async (_, content, isSound) => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const { sessionFile } = await server.result("get_state");
  put(join(sessionFile, "..", "x.jsonl"), content);
  const { notRead = [] } = await server.result("list_sessions", { headerOnly: true });
  const verified = await server.result("verify_sessions");
  expect([
    !notRead.some(({ isDamaged }: Json) => isDamaged),
    (await server.result("get_health")).ok,
    verified.ok,
    verified.damaged.length === 0,
  ]).toEqual([isSound, isSound, isSound, isSound]);
});

const SAID = ENTRY.replace('"message":{}', '"message":{"role":"user","content":"Hello","timestamp":1}');

test("a version that is none of ours, and another agent's entries of our types, are no damage", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const header = JSON.stringify({ ...HEADER, version: 0, cwd: place.home });
  const other = put(join(place.home, "other.jsonl"), `${header}\n{"type":"turn","seq":1}\n`);
  expect((await server.result("verify_session", { sessionPath: other })).ok).toBe(true);
  const droid = put(join(place.home, "droid.jsonl"), `{"type":"session_start","id":"x","title":"y"}\n${SAID}`);
  const refused = await server.failure("switch_session", { sessionPath: droid });
  expect(refused.data).toMatchObject({ name: "not_a_session", format: "jsonl" });
  // A session that lost its header is one all the same.
  const lost = put(join(place.home, "lost.jsonl"), `{"type":"sess\n${SAID}`);
  expect((await server.result("verify_session", { sessionPath: lost })).ok).toBe(false);
});
