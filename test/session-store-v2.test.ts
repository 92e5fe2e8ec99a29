/** docs/session-store-v2.md is true: its example is what the program writes, and its numbered steps read containers. */

import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Env } from "../src/core/env.ts";
import { realDisk } from "../src/core/store/disk.ts";
import { noLocks } from "../src/core/store/lock.ts";
import { segmentedStore } from "../src/core/store/segmented/store.ts";
import { testEnv } from "./support/env.ts";
import { chain, fileBytes, fileText, headerText, SESSION } from "./support/lines.ts";
import { Random } from "./support/random.ts";
import { serveHere, spawnServer, temporaryFolder, temporaryPlace, type Wire } from "./support/server.ts";
import { beginning } from "./support/sessions.ts";
import { crcText, type Read, readContainer } from "./support/v2-document-reader.ts";

const document = readFileSync(new URL("../docs/session-store-v2.md", import.meta.url), "utf8");

const EXAMPLE = "01a1fbfd-c8fb-73d8-a62e-f8d31ebf075f";
const SEGMENT = `${EXAMPLE}.v2/segments/0000000000000001.seg`;
const INDEX = `${EXAMPLE}.v2/index/offsets.jsonl`;

/** The files that the document prints, by their names. Those of lines end with a line feed, the documents do not. */
const printed = new Map(
  [...document.matchAll(/<!-- file: (\S+) -->\n\n```\w+\n([\s\S]*?)\n```/g)].map(([, name, text]) => [
    name.replace("<session-id>", EXAMPLE),
    /\.(jsonl|seg)$/.test(name) ? `${text}\n` : text,
  ]),
);

/** Lays the printed files out in a folder; returns the container. */
function layOut(folder: string): string {
  for (const [name, text] of printed) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return join(folder, `${EXAMPLE}.v2`);
}

const user = (content: string) => ({ type: "message", message: { role: "user", content, timestamp: 1769271746831 } });

describe("the example", () => {
  test("is what the program writes, byte for byte", async () => {
    let now = Date.parse("2026-01-24T16:22:26.831Z");
    const ids = ["a1b2c3d4", "b2c3d4e5", "c3d4e5f6"];
    const env: Partial<Env> = { now: () => now, sessionId: () => EXAMPLE, entryId: () => ids.shift() as string };
    const place = { ...temporaryPlace(), cwd: "/home/me/app" };
    const folder = temporaryFolder();
    const server = serveHere(["--store", "v2", "--session-dir", folder], { env, place });
    await server.result("append", { entries: [user("Ça va?")] });
    now += 1000;
    const entries = `[{"type":"custom","customType":"note","data":{"n":1.0}},${JSON.stringify(user("Et toi?"))}]`;
    server.send(`{"jsonrpc":"2.0","id":"both","method":"append","params":{"entries":${entries}}}`);
    await server.reply("both");
    now += 1000;
    await server.result("create_checkpoint");
    expect(await server.finish()).toMatchObject({ status: 0 });
    const written = new Map<string, string>();
    for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" }))
      if (statSync(join(folder, name)).isFile()) written.set(name, readFileSync(join(folder, name), "utf8"));
    written.delete(`${EXAMPLE}.v2/index-snapshot.bin`);
    expect(Object.fromEntries(printed)).toEqual(Object.fromEntries(written));
    for (const [name, text] of written)
      expect(document).toContain(
        `\`${name.replace(EXAMPLE, "<session-id>")}\`, ${Buffer.byteLength(text).toLocaleString("en")} bytes:`,
      );
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
    expect(read).toMatchObject({ leafId: "c3d4e5f6", told: [] });
    expect(read.ids).toEqual(["a1b2c3d4", "b2c3d4e5", "c3d4e5f6"]);
    expect(crcText(Buffer.from("123456789"))).toBe("E3069283");
  });

  test("cut at byte 1,200, before it had rows and a manifest of the rest, is one entry", () => {
    const folder = temporaryFolder();
    const container = layOut(folder);
    truncateSync(join(folder, SEGMENT), 1200);
    truncateSync(join(folder, INDEX), (printed.get(INDEX) as string).indexOf("\n") + 1);
    for (const name of ["checkpoints/0000000000000001.json", "manifest.json"]) truncateSync(join(container, name), 0);
    const read = readContainer(container);
    expect(read.ids).toEqual(["a1b2c3d4"]);
    expect(read.told.map(({ kind }) => kind)).toEqual(["torn_tail", "incomplete_batch"]);
  });
});

describe("containers that the program leaves are read by the steps as it reads them", () => {
  for (const seed of [1, 2, 3, 4, 5])
    test(`seed ${seed}`, async () => {
      const random = new Random(seed);
      const place = temporaryPlace();
      const folder = temporaryFolder();
      const args = ["--session-dir", folder, "--framing", "lines", "--dialect", "jsonrpc"];
      // Some begin in segments of 2,000 bytes, where the program itself goes on to 64 MiB.
      const begun = seed % 2 === 0 ? ["--session", await manySegments(folder, random)] : [];
      const server = spawnServer(["--store", "v2", ...args, ...begun], "lines", place);
      await converse(server, random);
      const container = (await server.result("get_state")).sessionFile as string;
      if (seed % 5 < 3) {
        // In the middle of appends.
        for (let i = random.int(30); i >= 0; i--) server.send(appendOf(random, i));
        await server.next();
        server.process.kill("SIGKILL");
        await server.exit;
      } else expect(await server.finish()).toMatchObject({ status: 0 });
      const read = readContainer(container, place.state);
      await expectSame(read, serveHere([...args, "--session", container], { place }));
    });
});

test("what is left of a batch that the manifest counts is shown, and the rest is lost", async () => {
  const folder = temporaryFolder();
  const begun = serveHere(["--store", "v2", "--session-dir", folder]);
  await begun.result("append", { entries: [user("one"), user("two"), user("three")] });
  const container = (await begun.result("get_state")).sessionFile as string;
  await begun.finish();
  rmSync(join(container, "index/offsets.jsonl"));
  const segment = join(container, "segments/0000000000000001.seg");
  truncateSync(segment, readFileSync(segment).lastIndexOf('{"schema"'));
  const server = serveHere(["--session-dir", folder, "--session", container]);
  const { entries } = await server.result("get_entries");
  expect(entries).toMatchObject([user("one"), user("two")]);
  const { diagnostics } = await server.result("get_state");
  expect(diagnostics.map(({ kind }: { kind: string }) => kind)).toEqual(["bad_index", "lost_entries"]);
});

describe("damage", () => {
  const lines = (name: string, changed: (lines: string[]) => string[]) => (container: string) => {
    const path = join(container, name);
    const found = readFileSync(path, "utf8").split("\n").slice(0, -1);
    writeFileSync(path, fileText(...changed(found)));
  };
  const segment = "segments/0000000000000001.seg";
  const index = "index/offsets.jsonl";
  const third = (change: (line: string) => string) =>
    lines(segment, (found) => found.map((line, i) => (i === 2 ? change(line) : line)));
  const cases: Record<string, (container: string) => void> = {
    "a payload": third((line) => line.replace("say a0000002", "say a000000x")),
    "a member's name": third((line) => line.replace('payload":', 'pxyload":')),
    "a line in two": third((line) => `${line.slice(0, 9)}\n${line.slice(10)}`),
    "a cut segment": (container) => truncateSync(join(container, segment), 1500),
    "an index that is missing": (container) => rmSync(join(container, index)),
    "a row that is none": lines(index, ([first, , ...rest]) => [first, "none", ...rest]),
    "a torn row": (container) => truncateSync(join(container, index), 300),
    "a frame too many": lines(segment, (found) => [...found, found[0]]),
    "a manifest of more": (container) => {
      for (const name of [segment, index]) lines(name, (found) => found.slice(0, 3))(container);
    },
  };
  for (const [name, damage] of Object.entries(cases))
    test(`${name}: what is whole is read, and the rest told, as by the program`, async () => {
      const folder = temporaryFolder();
      const container = await published(folder, chain(6));
      damage(container);
      const read = readContainer(container);
      const server = serveHere(["--session-dir", folder, "--session", container]);
      const { entries } = await server.result("get_entries");
      const { diagnostics } = await server.result("get_state");
      const whole = entries.filter((entry: { damaged?: boolean }) => entry.damaged !== true);
      expect(whole).toEqual(read.lines.map((line) => JSON.parse(line)));
      expect(read.told).not.toEqual([]);
      expect(diagnostics).not.toEqual([]);
    });
});

/** Makes a container of lines; returns its path. */
async function published(folder: string, lines: string[], segmentBytes?: number): Promise<string> {
  const container = join(folder, `${SESSION}.v2`);
  const store = segmentedStore({
    disk: realDisk,
    env: testEnv(),
    locks: noLocks,
    durability: "os",
    quarantine: join(folder, "quarantine"),
    containerFor: () => container,
    segmentBytes,
  });
  (await store.publish(beginning(headerText(), container), [fileBytes(...lines)])).close();
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
  for (let step = 0; step < 12; step++) {
    const { entries } = await server.result("get_entries");
    const { id } = random.pick<{ id: string }>(entries);
    await random.pick([
      () => server.result("append", { entries: [user("one")], idempotencyKey: `key ${random.hex(8)}` }),
      () =>
        server.result("append", { entries: [user("a"), { type: "custom", customType: "c", data: [1] }, user("b")] }),
      () => server.result("branch", { entryId: id }),
      () => server.result("set_label", { entryId: id, label: random.pick(["", "ä label"]) }),
      () => server.result("set_session_name", { name: `name ${random.hex(2)}` }),
      () => server.result("create_checkpoint"),
      () => compact(server),
    ])();
  }
}

/** Compacts from the leaf on, where something is there to compact. */
async function compact(server: Wire): Promise<void> {
  const { leafId } = await server.result("get_state");
  if (leafId !== null)
    await server.result("compact_append", { summary: "all of it", firstKeptEntryId: leafId, tokensBefore: 7 });
}

/** Holds what was read against what the program answers, which leaves out leaf markers that nothing continues. */
async function expectSame(read: Read, server: Wire): Promise<void> {
  const { entries, leafId } = await server.result("get_entries");
  const { diagnostics } = await server.result("get_state");
  const values = read.lines.map((line) => JSON.parse(line));
  const parents = new Set(values.map(({ parentId }) => parentId));
  const isShown = ({ id, customType }: { id: string; customType?: string }): boolean =>
    customType !== "pi-session-server.leaf" || parents.has(id);
  expect(entries).toEqual(values.filter(isShown));
  expect(leafId).toBe(read.leafId);
  const kinds = diagnostics.map(({ kind }: { kind: string }) => kind);
  expect(read.told.map(({ kind }) => kind)).toEqual(kinds.filter((kind: string) => /torn|batch|lost|bad/.test(kind)));
}
