/** Links in the place of our files: none leads out of a container, and lists follow the same links as opening. */

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { toFolderName } from "../src/storage/fs/paths.ts";
import { assistant, user } from "./support/drafts.ts";
import { contentsOf, listed, putSession, rootOf, serveLibrary, sessionId } from "./support/lifecycle.ts";
import { id, userText } from "./support/lines.ts";
import { MKFIFO, needs } from "./support/needs.ts";
import { type HereServer, type Json, serveHere, temporaryFolder, temporaryPlace } from "./support/server.ts";
import { pictureOf } from "./support/swaps.ts";
import { SWEEP } from "./support/tiers.ts";

const QUIET = ["--events", "none"];
const PARTS = [
  ...["segments/0000000000000001.seg", "segments", "index/offsets.jsonl", "index", "header.jsonl", ""],
  ...["manifest.json", "index-snapshot.bin", "checkpoints", "tmp", "migrations"],
];

/** A container with two entries, closed, and a copy of it elsewhere. */
async function container() {
  const place = temporaryPlace();
  const maker = serveHere(["--store", "v2", ...QUIET], { place });
  await maker.result("append", { entries: [user("one"), assistant("two")] });
  const { sessionFile: file } = await maker.result("get_state");
  await maker.result("create_checkpoint");
  await maker.finish();
  const outside = join(temporaryFolder(), "copy.v2");
  cpSync(file, outside, { recursive: true, preserveTimestamps: true });
  return { place, file, outside };
}

/** The parts with one representative each. */
const FEW = ["segments", "index/offsets.jsonl", "", "manifest.json", "checkpoints"];

/** Runs a test for each of some parts of a container, in the sweep where another part shows the same. */
function testParts(title: string, parts: Iterable<string>, run: (part: string) => Promise<void>): void {
  for (const part of parts) test.each([part || "all of it"])(title, FEW.includes(part) ? {} : SWEEP, () => run(part));
}

function replaceByLink(file: string, part: string, outside: string, moved = false): void {
  const path = join(file, part).replace(/\/$/, "");
  renameSync(path, moved ? join(outside, part) : `${path}.aside`);
  symlinkSync(join(outside, part), path);
}

/** Necessary files of entries; the rest is made anew in the link's place. */
const NEEDED = new Set(PARTS.slice(0, 6));

testParts("a part of a container that is a link is not read, nor written through (%s)", PARTS, async (part) => {
  const { place, file, outside } = await container();
  const before = pictureOf(dirname(outside));
  replaceByLink(file, part, outside);
  const server = serveHere(QUIET, { place });
  const { error } = await server.request("switch_session", { sessionPath: file });
  expect([part, error?.code]).toEqual([part, NEEDED.has(part) ? -32803 : undefined]);
  if (!NEEDED.has(part)) {
    await server.result("append", { entries: [user("three")] });
    await server.request("create_checkpoint");
    expect([part, (await server.result("get_entries")).entries.length]).toEqual([part, 3]);
    // Others open it meanwhile, too.
    const reader = serveHere(QUIET, { place });
    await reader.result("open_session", { sessionPath: file });
    await reader.finish();
  }
  await server.finish();
  expect([part, pictureOf(dirname(outside))]).toEqual([part, before]);
});

for (const [to, moved] of [
  ["a copy", false],
  ["where it lies now", true],
] as const)
  testParts(
    `a part of an open container that becomes a link to ${to} is refused at the next use (%s)`,
    moved ? NEEDED : PARTS,
    async (part) => {
      const { place, file, outside } = await container();
      const server = serveHere(["--session", file, ...QUIET], { place });
      await server.result("append", { entries: [user("three")] });
      if (moved) rmSync(join(outside, part), { recursive: true });
      replaceByLink(file, part, outside, moved);
      // A file that is open when it is moved away may be written before that is seen, and then is as it was.
      const picture = (): unknown => {
        const found = moved
          ? Object.entries(contentsOf(dirname(outside)))
          : pictureOf(dirname(outside)).map((it) => [it]);
        // Its lock is there during a write.
        return found.filter(([path]) => !/writer\.(lock|holder)\b/.test(path));
      };
      const before = picture();
      const { error } = await server.request("append", { entries: [user("four")] });
      expect([part, error?.code]).toEqual([part, NEEDED.has(part) ? -32803 : undefined]);
      // A checkpoint needs its folder, too.
      await server.request("create_checkpoint");
      await server.finish();
      expect([part, picture()]).toEqual([part, before]);
    },
  );

test("lists and searches follow links as opening does: out of the folders unless they are confined", async () => {
  const place = temporaryPlace();
  const outside = putSession(place, 1, { folder: temporaryFolder(), lines: [userText(id(0), null, "canary outside")] });
  const inside = putSession(place, 2, { lines: [userText(id(0), null, "canary inside")] });
  putSession(place, 3, { header: { parentSession: outside } });
  symlinkSync(outside, join(dirname(inside), "link.jsonl"));
  symlinkSync(dirname(outside), join(rootOf(place), toFolderName("/linked")));
  const hits = async (server: HereServer): Promise<string[]> => {
    const found = await server.result("search_sessions", { query: "canary" });
    return [...new Set<string>(found.hits.map((hit: Json) => hit.sessionId))].sort();
  };
  const open = serveLibrary(place);
  expect(new Set(await listed(open))).toEqual(new Set([1, 2, 3].map(sessionId)));
  expect(await hits(open)).toEqual([1, 2].map(sessionId));
  // The other server's index is no way there.
  const confined = serveLibrary(place, ["--confine"]);
  expect(await listed(confined)).toEqual([2, 3].map(sessionId));
  expect(await hits(confined)).toEqual([sessionId(2)]);
  const { nodes } = await confined.result("get_session_family", { sessionId: sessionId(3) });
  expect(nodes.map((node: Json) => node.sessionId)).toEqual([sessionId(3)]);
  expect((await confined.failure("switch_session", { sessionId: sessionId(1) })).data.name).toBe("session_not_found");
});

test("a link among what dead servers left is in nobody's way", async () => {
  const place = temporaryPlace();
  const inside = putSession(place, 1, { cwd: place.cwd });
  symlinkSync(join(temporaryFolder(), "gone"), join(dirname(inside), ".x.jsonl.1-1.tmp"));
  symlinkSync(temporaryFolder(), join(dirname(inside), ".x.v2.staging.1-1"));
  for (const store of ["jsonl", "v2"]) {
    const server = serveHere(["--confine", "--store", store, ...QUIET], { place });
    await server.result("append", { entries: [user("one")] });
    await server.finish();
  }
});

/** Puts something at the path of a part that is no part of a container. */
const WRONG: Record<string, (path: string) => void> = {
  nothing: () => {},
  "a folder": (path) => mkdirSync(path),
  "a pipe": (path) => execFileSync("mkfifo", [path]),
  "an empty file": (path) => writeFileSync(path, ""),
};

/** Runs a test for nothing and a pipe in the place of some parts, and in the sweep for everything else but `without`. */
function testWrong(title: string, run: (kind: string, part: string) => Promise<void>, without = ""): void {
  for (const kind of Object.keys(WRONG))
    for (const part of PARTS.filter((name) => name !== "" && `${kind} ${name}` !== without)) {
      const isFirst = kind === "nothing" ? FEW.includes(part) : `${kind} ${part}` === "a pipe manifest.json";
      const options = { ...(isFirst ? {} : SWEEP), ...(kind === "a pipe" ? needs(MKFIFO) : {}) };
      test.each([[kind, part]])(`${title} (%s)`, options, run);
    }
}

testWrong(
  "what is acknowledged where %s has taken the place of a part of an open container is read by the next server",
  async (kind, part) => {
    const { place, file } = await container();
    const server = serveHere(["--session", file, ...QUIET], { place });
    await server.result("append", { entries: [user("three")] });
    rmSync(join(file, part), { recursive: true });
    WRONG[kind](join(file, part));
    const { result } = await server.request("append", { entries: [user("four")] });
    await server.finish();
    const next = serveHere(QUIET, { place });
    const { result: opened, error } = await next.request("switch_session", { sessionPath: file });
    const { entries } = opened ? await next.result("get_entries") : { entries: [] };
    await next.finish();
    const texts = entries.map(({ message }: Json) => message?.content);
    expect([part, error?.message, texts.includes("four")]).toEqual([part, error?.message, result !== undefined]);
  },
);

testWrong(
  "a container with %s in the place of a part is read, verified, repaired, written",
  async (kind, part) => {
    const { place, file } = await container();
    rmSync(join(file, part), { recursive: true });
    WRONG[kind](join(file, part));
    const server = serveHere(QUIET, { place });
    await server.result("switch_session", { sessionPath: file });
    const { entries } = await server.result("get_entries");
    expect([part, entries.length]).toEqual([part, part.startsWith("segments") ? 0 : 2]);
    await server.result("verify_session", { sessionPath: file });
    await server.result("repair_session");
    await server.result("append", { entries: [user("three")] });
    await server.finish();
    const next = serveHere(QUIET, { place });
    await next.result("switch_session", { sessionPath: file });
    const { entries: later } = await next.result("get_entries");
    expect([part, later.at(-1).message.content]).toEqual([part, "three"]);
    expect((await next.result("verify_session")).damage.filter(({ kind }: Json) => kind !== "bad_index")).toEqual([]);
    if (part === "manifest.json") expect(statSync(join(file, part)).isFile()).toBe(true);
    await next.finish();
  },
  "nothing header.jsonl",
);
