/** Files that are no session as we read it are named, and never called damaged. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { formatOf } from "../../src/storage/formats.ts";
import { put, serveLibrary } from "../support/lifecycle.ts";
import { temporaryPlace } from "../support/server.ts";

const LINE = '{"kind":"x","v":1}\n';
const ENTRY =
  '{"type":"message","id":"aaaaaaaa","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z","message":{}}\n';

describe("what a file is follows from its first bytes", () => {
  test.each([
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
    [undefined, `half a line\n${LINE}`],
    [undefined, Buffer.from([0, 1, 2, 3])],
  ])("%s", (name, bytes) => {
    expect(formatOf(Buffer.from(bytes), true)?.name).toBe(name);
  });

  test("a document that is longer than what is looked at", () => {
    const long = JSON.stringify([{ a: "x".repeat(100_000) }]).slice(0, 1 << 16);
    expect(formatOf(Buffer.from(long), false)?.name).toBe("json");
    expect(formatOf(Buffer.from(`${LINE.repeat(3)}{"half`), false)?.name).toBe("jsonl");
  });
});

const HEADER = { type: "session", id: "5f0c8a52-4f1a-4a3c-9d1e-0123456789ab", timestamp: "2026-01-01T00:00:00.000Z" };

describe("a session of a newer version", () => {
  test.each([
    ["entries of another shape", ['{"type":"entry","seq":1,"data":{}}', '{"type":"leaf","target":null}'], 0],
    ["an entry that is torn", ['{"type":"entry","seq":1,"data":{}}', '{"type":"entry","se', "{}"], 1],
  ])("%s", async (_, lines, faults) => {
    const place = temporaryPlace();
    const header = JSON.stringify({ ...HEADER, version: 4, cwd: place.home });
    const file = put(join(place.home, "x.jsonl"), `${[header, ...lines].join("\n")}\n`);
    const server = serveLibrary(place);
    const { damage, ok } = await server.result("verify_session", { sessionPath: file });
    expect(damage[0]).toMatchObject({ kind: "newer_version", reason: expect.stringMatching(/newer than version 3/) });
    expect(damage).toHaveLength(1 + faults);
    expect(ok).toBe(faults === 0);
  });
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
  const reasons = hidden.map(({ sessionPath, reason }: { sessionPath: string; reason: string }) => [
    sessionPath,
    reason,
  ]);
  expect(reasons).toContainEqual([other, "unknown_format"]);
  expect(reasons).toContainEqual([newer, "newer_version"]);
});
