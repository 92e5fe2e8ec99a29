/** docs/session-store-v2.md is true: its examples are what the program writes, and its numbered steps read containers. */

import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import type { Env } from "../src/core/ports/env.ts";
import { realDisk } from "../src/storage/fs/disk.ts";
import { noLocks } from "../src/storage/locks/locks.ts";
import { makeSegmentedStore } from "../src/storage/v2/store.ts";
import { BEGINNING, testEnv } from "./support/env.ts";
import { chain, fileBytes, fileText, headerText, SESSION } from "./support/lines.ts";
import { Random } from "./support/random.ts";
import { type Json, serveHere, spawnServer, temporaryFolder, temporaryPlace, type Wire } from "./support/server.ts";
import { beginning } from "./support/sessions.ts";
import { SYSTEM } from "./support/tiers.ts";
// @ts-expect-error plain JavaScript, to check containers without the program
import { writeContainer } from "./support/v2-checker.js";
import { blobOf, crcText, type Fault, type Read, readContainer } from "./support/v2-document-reader.ts";

const document = readFileSync(new URL("../docs/session-store-v2.md", import.meta.url), "utf8");

const EXAMPLE = "01a1fbfd-c8fb-73d8-a62e-f8d31ebf075f";
const SECOND = "01a1fbfd-c8fb-73d8-a62e-f8d31ebf0760";
const SEGMENT = `${EXAMPLE}.v2/segments/0000000000000001.seg`;
const INDEX = `${EXAMPLE}.v2/index/offsets.jsonl`;

const EXAMPLES = fileURLToPath(new URL("../examples/containers/", import.meta.url));

/** The texts of the files in a folder whose names begin with an id, by their names. */
const textsIn = (folder: string, id: string): Map<string, string> =>
  new Map(
    readdirSync(folder, { recursive: true, encoding: "utf8" })
      .filter((name) => name.startsWith(id) && statSync(join(folder, name)).isFile())
      .map((name) => [name, readFileSync(join(folder, name), "utf8")]),
  );
const printed = textsIn(EXAMPLES, EXAMPLE);

/** Copies an example into a folder; returns the container. */
function layOut(folder: string, id = EXAMPLE): string {
  cpSync(EXAMPLES, folder, { recursive: true, filter: (path) => path === EXAMPLES || path.includes(id) });
  return join(folder, `${id}.v2`);
}

/** Serves a session of an example: the clock is that of its page, and entries get these ids. */
function serveExample(folder: string, id: string, entryIds: string[]) {
  let now = BEGINNING;
  const env: Partial<Env> = { now: () => now, sessionId: () => id, entryId: () => entryIds.shift() as string };
  const place = { ...temporaryPlace(), cwd: "/home/me/app" };
  const server = serveHere(["--store", "v2", "--session-dir", folder], { env, place });
  const tick = (): void => {
    now += 1000;
  };
  return { server, tick };
}

const serveAt = (folder: string, container: string) => serveHere(["--session-dir", folder, "--session", container]);

/** Reads a container by the steps, and holds that against what the program answers. */
async function shownAt(folder: string, container: string): Promise<Read> {
  const read = readContainer(container);
  await expectShown(read, serveAt(folder, container));
  return read;
}

const kindsOf = (faults: readonly { kind: string }[]): string[] => faults.map(({ kind }) => kind);
const idsOf = (lines: readonly string[]): string[] => lines.map((line) => JSON.parse(line).id);

const user = (content: string) => ({ type: "message", message: { role: "user", content, timestamp: 1769271746831 } });

describe("the example", () => {
  test("is what the program writes, byte for byte", async () => {
    const folder = temporaryFolder();
    const { server, tick } = serveExample(folder, EXAMPLE, ["a1b2c3d4", "b2c3d4e5", "c3d4e5f6"]);
    await server.result("append", { entries: [user("Ça va?")] });
    tick();
    const entries = `[{"type":"custom","customType":"note","data":{"n":1.0}},${JSON.stringify(user("Et toi?"))}]`;
    server.send(`{"jsonrpc":"2.0","id":"both","method":"append","params":{"entries":${entries}}}`);
    await server.reply("both");
    tick();
    await server.result("create_checkpoint");
    expect(await server.finish()).toMatchObject({ status: 0 });
    const written = textsIn(folder, EXAMPLE);
    written.delete(`${EXAMPLE}.v2/index-snapshot.bin`);
    expect(Object.fromEntries(printed)).toEqual(Object.fromEntries(written));
  });

  test("reads by the steps, and its table has what they compute", () => {
    const container = layOut(temporaryFolder());
    const read = readContainer(container);
    const segment = Buffer.from(printed.get(SEGMENT) as string);
    const rows = [...document.matchAll(/^\| \d \| (\d+) to (\d+) \| (\d+) to (\d+) \| `(\w+)` \| `(\w+)` \|$/gm)];
    expect(rows.map((row) => segment.toString("utf8", Number(row[3]), Number(row[4])))).toEqual(read.lines);
    expect(rows.map((row) => crcText(segment.subarray(Number(row[1]), Number(row[2]))))).toEqual(
      rows.map(([, , , , , crc]) => crc),
    );
    expect(rows.at(-1)?.[6]).toBe(read.chain);
    expect(read).toMatchObject({ leafId: "c3d4e5f6", faults: [] });
    expect(crcText(Buffer.from("123456789"))).toBe("E3069283");
  });

  test("cut at byte 1,200 is two entries and a loss, and one entry where rows, manifest and checkpoint name no more", async () => {
    const folder = temporaryFolder();
    const container = layOut(folder);
    truncateSync(join(folder, SEGMENT), 1200);
    truncateSync(join(folder, INDEX), (printed.get(INDEX) as string).indexOf("\n") + 1);
    const lost = await shownAt(folder, container);
    expect(idsOf(lost.lines)).toEqual(["a1b2c3d4", "b2c3d4e5"]);
    expect(kindsOf(lost.faults)).toEqual(["torn_tail", "lost_entries"]);
    for (const name of ["checkpoints/0000000000000001.json", "manifest.json"]) truncateSync(join(container, name), 0);
    const torn = await shownAt(folder, container);
    expect(idsOf(torn.lines)).toEqual(["a1b2c3d4"]);
    expect(kindsOf(torn.faults)).toEqual(["torn_tail", "incomplete_batch"]);
  });
});

describe("the second example", () => {
  test("is what the program writes, but for one byte", async () => {
    const folder = temporaryFolder();
    const { server, tick } = serveExample(folder, SECOND, ["a1b2c3d4", "b2c3d4e5", "c3d4e5f6", "d4e5f6a7"]);
    await server.result("append", { entries: [user("One?")] });
    tick();
    await server.result("append", { entries: [user("Two?")] });
    tick();
    await server.result("branch", { entryId: "a1b2c3d4" });
    await server.result("set_label", { entryId: "b2c3d4e5", label: "good" });
    expect(await server.finish()).toMatchObject({ status: 0 });
    const second = textsIn(EXAMPLES, SECOND);
    for (const [name, text] of second)
      expect(text).toBe(readFileSync(join(folder, name), "utf8").replace("Two?", "Twx?"));
    expect(second.size).toBe(3);
  });

  test("is shown as the page says, by the steps and by the program", async () => {
    const [, lines] = /^A reader shows:\n\n```text\n([\s\S]*?)\n```/m.exec(document) ?? [];
    const folder = temporaryFolder();
    const container = layOut(folder, SECOND);
    const read = await shownAt(folder, container);
    expect(read.lines).toEqual(lines.split("\n"));
    expect(read).toMatchObject({ leafId: "d4e5f6a7", name: null, labels: { b2c3d4e5: "good" } });
    expect(read.faults).toEqual([{ kind: "bad_body", entryId: "b2c3d4e5" }]);
  });
});

describe("containers that the program leaves are read by the steps as it reads them", () => {
  for (const seed of [1, 2])
    test(`seed ${seed}`, seed === 2 ? SYSTEM : {}, async () => {
      const random = new Random(seed);
      const place = temporaryPlace();
      const folder = temporaryFolder();
      const args = ["--session-dir", folder, "--framing", "lines", "--dialect", "jsonrpc"];
      // Some begin in segments of 2,000 bytes, where the program itself goes on to 64 MiB.
      const begun = seed % 2 === 0 ? ["--session", await manySegments(folder, random)] : [];
      const all = ["--store", "v2", ...args, ...begun];
      const spawned = seed === 2 ? spawnServer(all, "lines", place) : null;
      const server = spawned ?? serveHere(all, { place });
      await converse(server, random);
      const container = (await server.result("get_state")).sessionFile as string;
      if (spawned) {
        // In the middle of appends.
        for (let i = random.int(30); i >= 0; i--) spawned.send(appendOf(random, i));
        await spawned.next();
        spawned.process.kill("SIGKILL");
        await spawned.exit;
      } else expect(await server.finish()).toMatchObject({ status: 0 });
      const read = readContainer(container, place.state);
      await expectSame(read, serveHere([...args, "--session", container], { place }));
    });
});

describe("damage", () => {
  const segment = "segments/0000000000000001.seg";
  const index = "index/offsets.jsonl";
  const lines = (name: string, changed: (lines: string[]) => string[]) => (container: string) => {
    const path = join(container, name);
    writeFileSync(path, fileText(...changed(readFileSync(path, "utf8").split("\n").slice(0, -1))));
  };
  const third = (change: (line: string) => string) => lines(segment, (found) => found.with(2, change(found[2])));
  const head = 'payload":{"type":"message","id":"';
  const cutTo = (name: string, size: number) => (container: string) => truncateSync(join(container, name), size);

  const shortened = [segment, index].map((name) => lines(name, (found) => found.slice(0, 3)));
  // An entry that is spelled in another way than the program spells it.
  const spelled = chain(6).map((text) => text.replace(/^\{("type":"message"),(.*)\}$/, "{ $2, $1}"));

  test.each<[string, (container: string) => void, lines?: string[]]>([
    ["a payload", third((line) => line.replace("say a0000002", "say a000000x"))],
    ["a member's name", third((line) => line.replace('payload":', 'pxyload":'))],
    ["a frame's own time", third((line) => line.replace("2026", "2025"))],
    ["the head of an entry", third((line) => line.replace(`${head}a`, `${head}b`))],
    ["the type of an entry that is spelled oddly", third((line) => line.replace("entryType", "entryTxpe")), spelled],
    ["the payload of one", third((line) => line.replace('"payload"', '"pxyload"')), spelled],
    ["all heads of an entry", third((line) => line.replaceAll("a0000002", "b0000002"))],
    ["a line in two", third((line) => `${line.slice(0, 9)}\n${line.slice(10)}`)],
    ["a byte less", third((line) => line.replace("say", "sa"))],
    ["bytes between lines", lines(segment, ([first, ...rest]) => [first, "not a frame", ...rest])],
    ["a line feed less", lines(segment, ([first, second, ...rest]) => [first + second, ...rest])],
    ["a line less", lines(segment, ([first, , ...rest]) => [first, ...rest])],
    ["lines in another order", lines(segment, ([first, second, ...rest]) => [second, first, ...rest])],
    ["a cut segment", cutTo(segment, 1500)],
    ["an index that is missing", (container) => rmSync(join(container, index))],
    ["a row that is none", lines(index, ([first, , ...rest]) => [first, "none", ...rest])],
    ["a torn row", cutTo(index, 300)],
    ["a frame too many", lines(segment, (found) => [...found, found[0]])],
    ["the header", (container) => writeFileSync(join(container, "header.jsonl"), '{"type":"sess')],
    ["a manifest of more", (container) => void shortened.map((shorten) => shorten(container))],
  ])("%s: what is whole is read, and the rest told, as by the program", async (_, damage, lines = chain(6)) => {
    const folder = temporaryFolder();
    const container = await published(folder, lines);
    damage(container);
    const read = await shownAt(folder, container);
    expect(read.faults).not.toEqual([]);
    if (lines === spelled) expect([kindsOf(read.faults), idsOf(read.lines)]).toEqual([["bad_body"], idsOf(spelled)]);
  });
});

test("repeated ids, cycles, missing parents, ids that are numbers and markers are read as by the program", async () => {
  const folder = temporaryFolder();
  const leaf = { type: "custom", customType: "pi-session-server.leaf" };
  const container = written(folder, [
    { ...user("one"), id: "a0000000", parentId: null },
    { ...user("own parent"), id: "a0000001", parentId: "a0000001" },
    { ...user("cycle"), id: "a0000002", parentId: "a0000004" },
    { ...user("cycle"), id: "a0000003", parentId: "a0000002" },
    { ...user("cycle"), id: "a0000004", parentId: "a0000003" },
    { ...user("no parent"), id: "a0000005", parentId: "f0000000" },
    { ...user("number"), id: 5, parentId: "a0000000" },
    { ...user("of a number"), id: "a0000006", parentId: 5 },
    { ...user("again"), id: "a0000006", parentId: "a0000000" },
    { ...user("of the first"), id: "a0000007", parentId: "a0000006" },
    { ...user("once more"), id: "a0000006", parentId: null },
    { type: "label", id: "a0000008", parentId: "a0000007", targetId: "a0000006", label: "first" },
    { ...leaf, id: "a0000009", parentId: "a0000008" },
    { ...leaf, id: "a000000a", parentId: "a0000009" },
    { type: "session_info", id: "a000000b", parentId: "a0000008", name: "\u00a0 name\t" },
  ]);
  const read = await shownAt(folder, container);
  expect(kindsOf(read.faults)).toEqual(["duplicate_id", "duplicate_id", "missing_parent", "cycle", "cycle"]);
  expect(idsOf(read.lines)).not.toContain("a0000009");
});

test("blobs are found and checked as by the program", async () => {
  const folder = temporaryFolder();
  const bytes = Buffer.from("Hi!");
  const digest = createHash("sha256").update(bytes).digest("hex");
  const data = { $piBlob: `sha256:${digest}`, sizeBytes: 3, encoding: "base64" };
  const content = [{ type: "image", mimeType: "image/png", data }];
  const entry = { type: "message", id: "a0000000", parentId: null, message: { role: "user", content } };
  const container = await published(folder, [JSON.stringify(entry)]);
  expect(blobOf(container, data)).toBeNull();
  mkdirSync(join(container, "blobs"));
  writeFileSync(join(container, "blobs", digest), bytes);
  expect(blobOf(container, data)).toBe(bytes.toString("base64"));
  const env: Partial<Env> = { sha256: () => digest };
  const server = serveHere(["--session-dir", folder, "--session", container], { env });
  const { messages } = await server.result("get_messages");
  expect(messages[0].content[0].data).toBe(blobOf(container, data));
  expect((await server.result("get_entries")).entries[0].message.content).toEqual(content);
  rmSync(join(container, "blobs", digest));
  expect((await server.result("get_messages")).messages[0].content[0].data).toEqual(data);
  expect((await server.result("get_state")).diagnostics).toMatchObject([{ kind: "missing_blob", entryId: "a0000000" }]);
});

/** Expects that neither the steps nor the program take a container for the session. */
async function expectNoSession(folder: string, container: string): Promise<void> {
  expect(() => readContainer(container)).toThrow("not the session");
  const failure = await serveHere(["--session-dir", folder]).failure("switch_session", { sessionPath: container });
  expect(failure).toMatchObject({ data: { name: "not_a_session" } });
}

test("a container without a pointer is the session unless a session file of its id lies beside it", async () => {
  const folder = temporaryFolder();
  const container = layOut(folder, SECOND);
  writeFileSync(join(folder, "other.jsonl"), headerText({ id: SECOND }));
  await expectNoSession(folder, container);
  writeFileSync(join(folder, "other.jsonl"), headerText());
  expect(readContainer(container).lines).toHaveLength(3);
});

test("a container without a pointer is the session if its ledger tells of a migration whose file is gone", async () => {
  const folder = temporaryFolder();
  const container = written(folder, [{ ...user("one"), id: "a0000000", parentId: null }]);
  const event = {
    schema: "pi.session_store_v2.migration_event.v1",
    migrationId: EXAMPLE,
    phase: "completed",
    at: "2026-01-24T16:22:26.831Z",
    sourcePath: "was.jsonl",
    targetPath: `${SESSION}.v2`,
    sourceFormat: "jsonl_v3",
    targetFormat: "native_v2",
    verification: { entryCountMatch: true, hashChainMatch: true, indexConsistent: true },
    outcome: "ok",
    correlationId: "migration-1",
  };
  writeFileSync(join(container, "migrations/ledger.jsonl"), fileText(JSON.stringify(event)));
  writeFileSync(join(folder, "other.jsonl"), fileText(headerText()));
  await shownAt(folder, container);
  writeFileSync(join(folder, "was.jsonl"), fileText(headerText()));
  await expectNoSession(folder, container);
});

/** Makes a container of lines; returns its path. */
async function published(folder: string, lines: string[], segmentBytes?: number): Promise<string> {
  const container = join(folder, `${SESSION}.v2`);
  const store = makeSegmentedStore({
    disk: realDisk,
    env: testEnv(),
    locks: noLocks,
    durability: "os",
    quarantine: join(folder, "quarantine"),
    containerFor: () => container,
    segmentBytes,
  });
  (await store.publish(beginning(headerText(), container), [fileBytes(...lines)])).close();
  // The program's own cache shows more of damage than the rest of the container.
  rmSync(join(container, "index-snapshot.bin"), { force: true });
  return container;
}

/** Makes a container of entries by what the page says of frames and rows, and of nothing else; returns its path. */
function written(folder: string, entries: readonly Record<string, unknown>[]): string {
  const container = join(folder, `${SESSION}.v2`);
  const lines = entries.map((entry) => JSON.stringify(entry));
  writeContainer(container, headerText(), lines, { isBare: true });
  return container;
}

/** Makes a container with several small segments; returns its path. */
async function manySegments(folder: string, random: Random): Promise<string> {
  const container = await published(folder, chain(10 + random.int(20)), 2000);
  expect(readdirSync(join(container, "segments")).length).toBeGreaterThan(2);
  return container;
}

function appendOf(random: Random, id: unknown): object {
  const entries = Array.from({ length: 1 + random.int(4) }, () => user("ü".repeat(random.int(300))));
  return { jsonrpc: "2.0", id: `kill-${id}`, method: "append", params: { entries } };
}

/** Says and does things in the current session. */
async function converse(server: Wire, random: Random): Promise<void> {
  await server.result("append", { entries: [user("Hello"), user('\u2028 and \\u0041 "quoted"')] });
  for (let step = 0; step < 8; step++) {
    const { entries } = await server.result("get_entries");
    const { id } = random.pick<{ id: string }>(entries);
    await random.pick([
      () => server.result("append", { entries: [user("one")], idempotencyKey: `key ${random.hex(8)}` }),
      () => server.result("append", { entries: [user("a"), { type: "custom", customType: "c" }, user("b")] }),
      () => server.result("branch", { entryId: id }),
      () => server.result("set_label", { entryId: id, label: random.pick(["", "ä label"]) }),
      () => server.result("set_session_name", { name: `name ${random.hex(2)}` }),
      () => server.result("create_checkpoint"),
      () => throughHead(server, random, id),
      () => compact(server),
    ])();
  }
}

/** Writes through a head, or moves or ends it, and goes back to the shared leaf. */
async function throughHead(server: Wire, random: Random, entryId: string): Promise<void> {
  const { sessionId } = await server.result("get_state");
  const head = random.pick(["a", "b.2"]);
  await server.result("open_session", { sessionId, head });
  await random.pick([
    () => server.result("append", { entries: [user("by a head")] }),
    () => server.result("branch", { entryId: random.pick([null, entryId]) }),
    () => server.request("delete_head", { head }),
  ])();
  await server.result("open_session", { sessionId, leaf: "shared" });
}

/** Compacts from the leaf on, where something is there to compact. */
async function compact(server: Wire): Promise<void> {
  const { leafId } = await server.result("get_state");
  if (leafId !== null)
    await server.result("compact_append", { summary: "all of it", firstKeptEntryId: leafId, tokensBefore: 7 });
}

/** Compares the independent reading with the program's answers, including damage of entries. */
async function expectShown(read: Read, server: Wire): Promise<void> {
  const { entries, leafId } = await server.result("get_entries");
  const { diagnostics, sessionName } = await server.result("get_state");
  const { nodes } = await server.result("get_tree");
  expect(entries).toEqual(read.lines.map((line) => JSON.parse(line)));
  expect({ leafId, sessionName }).toEqual({ leafId: read.leafId, sessionName: read.name });
  const { heads } = await server.result("list_heads");
  expect(Object.fromEntries(heads.map((head: Json) => [head.name, head.leafId]))).toEqual(read.heads);
  const labelled = nodes.flatMap(({ id, label }: Json) => (label === undefined ? [] : [[id, label]]));
  expect(labelled).toEqual(Object.entries(read.labels));
  const kinds = diagnostics.map(({ kind, entryId }: Fault) => (entryId === undefined ? { kind } : { kind, entryId }));
  for (const found of read.faults) expect(kinds).toContainEqual(found);
}

/** The same for a container without damage; the program reports nothing else. */
async function expectSame(read: Read, server: Wire): Promise<void> {
  await expectShown(read, server);
  const { diagnostics } = await server.result("get_state");
  expect(kindsOf(read.faults)).toEqual(
    kindsOf(diagnostics).filter((kind) => kind !== "ambiguous_leaf" && kind !== "newer_branch"),
  );
}
