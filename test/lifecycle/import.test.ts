/** Importing: once, byte for byte, next to whatever is there. */

import { appendFileSync, readdirSync, statSync, unlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { toFolderName } from "../../src/storage/fs/paths.ts";
import { nameOf } from "../support/asking.ts";
import { linesIn } from "../support/cases.ts";
import { CWD, library, listed, put, putSession, read, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, fileText, headerText, id, userText } from "../support/lines.ts";
import { meddleWith } from "../support/meddling.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

/** A file that comes from elsewhere. */
function incoming(place: Place, name: string, lines: readonly string[], header: Record<string, unknown> = {}): string {
  const text = fileText(headerText({ id: sessionId(1), cwd: CWD, ...header }), ...lines);
  return put(join(place.home, "incoming", name), text);
}

async function outcomeOf(server: HereServer, path: string): Promise<string> {
  return (await server.result("import_session", { path })).outcome;
}

test("a session comes in byte for byte, and a second time is known", async () => {
  const { place, server, contents } = library(0);
  const path = incoming(place, "from-mail.jsonl", chain(3));
  const first = await server.result("import_session", { path });
  const sessionPath = join(rootOf(place), toFolderName(CWD), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
  const about = { sessionId: sessionId(1), sessionPath, cwd: CWD, entryCount: 3, version: 3, damage: [] };
  expect(first).toEqual({ ...about, operationId: expect.stringMatching(/^[0-9a-f]{12}$/), outcome: "new" });
  const look = (): unknown[] => {
    const { mode, mtimeMs, ino } = statSync(sessionPath);
    return [contents(), mode & 0o777, mtimeMs, ino];
  };
  const before = look();
  expect(before.slice(0, 2)).toEqual([{ [sessionPath]: read(path) }, 0o600]);
  expect(await listed(server)).toEqual([sessionId(1)]);
  const copy = put(join(place.home, "again", "other name.jsonl"), read(path));
  for (const again of [path, copy, sessionPath])
    expect(await server.result("import_session", { path: again })).toEqual({ ...about, outcome: "known" });
  expect(look()).toEqual(before);
});

test("files of version 1 and 2 and of pi_agent_rust come in as they are", async () => {
  const { place, server } = library(0);
  const v1 = fileURLToPath(new URL("../../examples/old-v1.jsonl", import.meta.url));
  const ofRust = { id: sessionId(2), provider: "Alibaba", modelId: "qwen", leafId: id(0), branchedFrom: "/x/y.jsonl" };
  const name = "2026-02-03T22-52-06.410Z_01991f6e.jsonl";
  const rust = incoming(
    place,
    name,
    chain(2).map((line) => line.replace('"parentId":null,', "")),
    ofRust,
  );
  const v2 = incoming(place, "v2.jsonl", chain(2), { id: sessionId(3), version: 2 });
  for (const [path, version] of [
    [v1, 1],
    [rust, 3],
    [v2, 2],
  ] as const) {
    const { sessionPath, ...result } = await server.result("import_session", { path });
    expect(result).toMatchObject({ outcome: "new", version, damage: [] });
    expect(read(sessionPath)).toBe(read(path));
    // The first write publishes it as version 3, which keeps the other files next to it: still the same session.
    await server.result("set_session_name", { sessionPath, name: "written to" });
    expect(await outcomeOf(server, path)).toBe("known");
  }
  expect((await listed(server)).length).toBe(3);
});

test("damage is reported and comes in as it is", async () => {
  const { place, server } = library(0);
  const path = incoming(place, "damaged.jsonl", [...chain(2), "}{", userText(id(3), id(2))]);
  appendFileSync(path, '{"type":"mess');
  const { damage, sessionPath, outcome } = await server.result("import_session", { path });
  expect(damage.map(({ kind }: Json) => kind).sort()).toEqual(["bad_line", "missing_parent", "torn_tail"]);
  expect([outcome, read(sessionPath), await outcomeOf(server, path)]).toEqual(["new", read(path), "known"]);
});

test("a session without its header is refused; with --confine one comes from an allowed folder", async () => {
  const { place, server } = library(0);
  const headless = put(join(place.home, "incoming", "file.jsonl"), `{"type":"sess\n${chain(1)[0]}\n`);
  expect(await nameOf(server, "import_session", { path: headless })).toBe("corrupt");
  expect(readdirSync(place.home)).not.toContain(".pi");
  const path = incoming(place, "x.jsonl", chain(1));
  expect(await outcomeOf(serveLibrary(place, ["--confine", "--allow-path", dirname(path)]), path)).toBe("new");
});

test("a longer copy continues the session; a shorter one adds nothing", async () => {
  const { place, server, contents } = library(0);
  const short = incoming(place, "short.jsonl", chain(2));
  const { sessionPath } = await server.result("import_session", { path: short });
  const long = incoming(place, "long.jsonl", chain(5));
  const about = { sessionId: sessionId(1), sessionPath };
  const went = await server.result("import_session", { path: long });
  expect(went).toMatchObject({ ...about, outcome: "continued", entryCount: 5 });
  for (const path of [short, long])
    expect(await server.result("import_session", { path })).toMatchObject({ ...about, outcome: "known" });
  expect(contents()).toEqual({ [sessionPath]: read(long) });
});

test.each([
  ["a torn tail", '{"type":"mess'],
  ["a bad line", "}{\n"],
  ["a bad line and a torn tail", '}{\n{"type":'],
  ["an empty line", "\n"],
])("a copy that has only %s behind the entries that are here brings nothing", async (_, rest) => {
  const { place, server, file, contents } = library();
  const before = contents();
  const path = put(join(place.home, "incoming", "damaged.jsonl"), `${read(file)}${rest}`);
  const { outcome, operationId } = await server.result("import_session", { path });
  expect([outcome, operationId, contents()]).toEqual(["known", undefined, before]);
});

test.each([1, 20])("a copy goes on where a torn write left the session (less %i bytes)", async (cut) => {
  const { place, server, file } = library();
  const whole = incoming(place, "whole.jsonl", chain(4));
  writeFileSync(file, read(whole).slice(0, read(file).length - cut));
  expect(await outcomeOf(server, whole)).toBe("continued");
  expect(read(file)).toBe(read(whole));
});

test("what continues a session that is open here is seen there", async () => {
  const { place, file } = library();
  const server = serveHere(["--session", file], { place });
  expect(await outcomeOf(server, incoming(place, "whole.jsonl", chain(5)))).toBe("continued");
  const { entries, leafId } = await server.result("get_entries");
  // Another program's entry is taken in before the next write, or when nothing else is going on.
  expect(entries.length).toBeGreaterThanOrEqual(3);
  expect([id(2), id(4)]).toContain(leafId);
  await server.result("set_session_name", { name: "on top" });
  expect((await server.result("get_path")).entries.length).toBe(6);
});

test("a session that this server writes to is not continued, and the failure says how to close it", async () => {
  const { place, file } = library();
  const server = serveHere(["--session", file, "--events", "none"], { place });
  const { sessionId } = await server.result("get_state");
  await server.result("set_model", { provider: "p", modelId: "m" });
  const path = put(join(place.home, "incoming", "more.jsonl"), `${read(file)}${userText("b0000000", id(2))}\n`);
  const { data, message } = await server.failure("import_session", { path });
  expect(data).toMatchObject({ name: "session_locked", sessionId, sessionPath: file, retryable: false });
  expect(message).toContain("open in this server. close_session closes it");
  await server.result("close_session");
  expect(await outcomeOf(server, path)).toBe("continued");
});

test("a session that another process writes to is not continued", async () => {
  const { place, server, file } = library();
  const holder = serveHere(["--session", file, "--events", "none"], { place });
  await holder.result("set_model", { provider: "p", modelId: "m" });
  const held = read(file);
  const path = put(join(place.home, "incoming", "more.jsonl"), `${held}${userText("b0000000", id(2))}\n`);
  const { data } = await server.failure("import_session", { path });
  expect(data).toMatchObject({ name: "session_locked", holder: { pid: process.pid } });
  expect(read(file)).toBe(held);
});

/** The lines of a session that takes several writes; one line is longer than the others take. */
const LONG = [
  ...chain(1),
  ...Array.from({ length: 32 }, (_, n) => userText(id(n + 1), id(n), "x".repeat(n === 6 ? 1_100_000 : 100_000))),
];
const THEIRS = userText("b0000000", id(0), "theirs");
const full = (): Error => Object.assign(new Error("full"), { code: "ENOSPC" });

/**
 * A session with the first of these lines, a copy with all, and a server on a disk that calls `meanwhile` right before or
 * after the n-th long write, and throws its result.
 */
function long(when: "before" | "after", at: number, meanwhile: (file: string) => Error | undefined) {
  const place = temporaryPlace();
  const file = putSession(place, 1, { lines: LONG.slice(0, 1) });
  let writes = 0;
  const write = (_fd: number, bytes: Uint8Array): void => {
    const failure = bytes.length > 100_000 && ++writes === at ? meanwhile(file) : undefined;
    if (failure) throw failure;
  };
  const disk = when === "before" ? meddleWith({ write }) : meddleWith({}, { write });
  const server = serveHere(["--events", "none"], { place, disk });
  return { file, server, path: incoming(place, "long.jsonl", LONG) };
}

for (const [when, at, text] of [
  ["before", 1, `${THEIRS}\n`],
  ["before", 2, `${THEIRS}\n`],
  ["after", 2, `${THEIRS}\n`],
  ["after", 2, THEIRS],
  ["before", 4, `${THEIRS}\n`],
  ["after", 4, THEIRS],
] as const)
  test.each([[when, at]])(
    "what another program appends %s piece %d of a copy stays, and all of the copy comes",
    at === 2 && !(when === "after" && text !== THEIRS) ? SYSTEM : SWEEP,
    async () => {
      const { file, server, path } = long(when, at, (file) => void appendFileSync(file, text));
      const went = await server.result("import_session", { path });
      expect(went).toMatchObject({ outcome: "continued", sessionPath: file });
      const lines = linesIn(file).slice(1);
      expect(lines.filter((line) => line !== THEIRS)).toEqual(LONG);
      expect(lines).toHaveLength(LONG.length + 1);
      expect((await server.result("verify_session", { sessionPath: file })).ok).toBe(true);
      expect(await outcomeOf(server, path)).toBe("known");
    },
  );

test("what another program appends before the disk refuses a piece stays, beside the pieces that came", async () => {
  const { file, server, path } = long("before", 2, (file) => {
    appendFileSync(file, `${THEIRS}\n`);
    return full();
  });
  const { message } = await server.failure("import_session", { path });
  expect(message).not.toContain("Nothing was changed");
  const lines = linesIn(file).slice(1);
  expect([lines.at(-1), lines.slice(0, -1)]).toEqual([THEIRS, LONG.slice(0, lines.length - 1)]);
});

test("a copy of which the disk refuses a piece leaves the session as it was", async () => {
  const { file, server, path } = long("before", 2, full);
  const before = read(file);
  expect(await nameOf(server, "import_session", { path })).toBe("storage_full");
  expect(read(file)).toBe(before);
  expect(await outcomeOf(server, path)).toBe("continued");
  expect(read(file)).toBe(read(path));
});

test("what came of a copy before the disk refused more of it is said to be there, and the same again brings the rest", async () => {
  const place = temporaryPlace();
  // The session lacks lines in the middle, too, so that they are added entry by entry, 500 at a time.
  const lines = chain(1200);
  const other = userText("b0000000", id(0), "other");
  const file = putSession(place, 1, { lines: [lines[0], other] });
  const path = incoming(place, "more.jsonl", [...lines, other]);
  let syncs = 0;
  const sync = (): void => {
    if (++syncs === 2) throw full();
  };
  const server = serveHere(["--events", "none"], { place, disk: meddleWith({ sync }) });
  const { data, message } = await server.failure("import_session", { path });
  expect([data.name, message]).toEqual(["storage_full", expect.not.stringContaining("Nothing was changed")]);
  expect(linesIn(file)).toHaveLength(503);
  expect([await outcomeOf(server, path), linesIn(file).length]).toEqual(["continued", 1202]);
});

test("a copy that went another way becomes a session of its own, once, beside the one it conflicts with", async () => {
  const { place, server, file, contents } = library(1, [], undefined, { lines: chain(4) });
  const ours = read(file);
  const other = [...chain(2), userText("b0000002", id(1), "their way")];
  const theirs = incoming(place, "conflict.jsonl", other, { thinkingLevel: "high" });
  const result = await server.result("import_session", { path: theirs });
  expect(result).toMatchObject({ outcome: "conflict", conflictsWith: file, entryCount: 3 });
  expect(result.sessionId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const [header, ...lines] = linesIn(result.sessionPath);
  expect([read(file), lines]).toEqual([ours, other]);
  const own = { id: result.sessionId, parentSession: file };
  expect(JSON.parse(header)).toEqual({ ...JSON.parse(linesIn(theirs)[0]), ...own });
  const family = await server.result("get_session_family", { sessionId: result.sessionId });
  expect(family).toMatchObject({ root: sessionId(1), nodes: [{}, { forkedAtEntryId: id(1) }] });
  const known = { ...result, operationId: undefined, outcome: "known" };
  expect(await server.result("import_session", { path: theirs })).toEqual(known);
  // It goes on on its own; the copy is a part of it still.
  await server.result("set_session_name", { sessionPath: result.sessionPath, name: "theirs" });
  expect(await server.result("import_session", { path: theirs })).toEqual(known);
  expect(Object.keys(contents()).length).toBe(2);
});

test("an archived or relocated session is known, and goes on where it is", async () => {
  const { place, server, file, contents } = library();
  const path = incoming(place, "copy.jsonl", chain(3));
  const { movedTo } = await server.result("archive_session", { sessionPath: file });
  expect(await server.result("import_session", { path })).toMatchObject({ outcome: "known", sessionPath: movedTo });
  const longer = incoming(place, "longer.jsonl", chain(4));
  expect(await outcomeOf(server, longer)).toBe("continued");
  expect([read(movedTo), contents()]).toEqual([read(longer), {}]);
  const back = await server.result("unarchive_session", { sessionPath: movedTo });
  const params = { sessionPath: back.movedTo, cwd: "/elsewhere", allowMissing: true };
  const { movedTo: sessionPath } = await server.result("relocate_session", params);
  expect(await server.result("import_session", { path })).toMatchObject({ outcome: "known", sessionPath });
});

test("nothing of a header becomes a path", async () => {
  const { place, server } = library(0);
  const odd = [
    { id: "../../../evil", cwd: "/a" },
    { id: "a/b", cwd: "../../b" },
    { id: "x".repeat(300), cwd: "/c" },
    { id: "nul\u0000", cwd: "/d\u0000e" },
    { id: "fine", cwd: `/${"long/".repeat(2000)}` },
    { id: "time", timestamp: "../../../../tmp/x", cwd: "/e" },
  ];
  for (const [index, header] of odd.entries()) {
    const path = incoming(place, `${index}.jsonl`, chain(1), header);
    const { sessionPath, outcome } = await server.result("import_session", { path });
    expect([outcome, dirname(dirname(sessionPath)), read(sessionPath)]).toEqual(["new", rootOf(place), read(path)]);
    expect(await outcomeOf(server, path)).toBe("known");
  }
  expect((await listed(server)).length).toBe(odd.length);
});

test("another session's file of the same name is left alone", async () => {
  const { place, server, file: taken } = library(1, [], undefined, { header: { id: "another" } });
  const before = read(taken);
  const path = incoming(place, "copy.jsonl", chain(3));
  const { sessionPath, outcome } = await server.result("import_session", { path });
  expect([outcome, sessionPath === taken, read(taken)]).toEqual(["new", false, before]);
  expect(await listed(server)).toEqual([sessionId(1), "another"].sort());
});

test("attachments come along", async () => {
  const { place, server } = library(0);
  const path = incoming(place, "media.jsonl", chain(1));
  const name = "ab".repeat(32);
  put(join(`${path}.blobs`, name), "media");
  put(join(`${path}.blobs`, ".pending-x"), "no attachment");
  const { sessionPath } = await server.result("import_session", { path });
  const blob = join(`${sessionPath}.blobs`, name);
  expect([readdirSync(dirname(blob)), read(blob)]).toEqual([[name], "media"]);
  // A later import completes the missing files.
  unlinkSync(blob);
  await server.result("import_session", { path });
  expect(readdirSync(dirname(blob))).toEqual([name]);
});

test("tells how far it is", async () => {
  const place = temporaryPlace();
  const server = serveHere([], { place });
  const path = incoming(place, "long.jsonl", chain(2500));
  await server.result("import_session", { path, _meta: { progressToken: "p" } });
  expect(server.events.filter(({ method }: Json) => method === "$/progress").length).toBeGreaterThan(3);
});
