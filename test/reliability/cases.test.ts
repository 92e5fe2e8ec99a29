/** The rows of docs/reliability.md that no other test shows, and a look whether each row has a test. */

import {
  appendFileSync,
  chmodSync,
  existsSync,
  ftruncateSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { expect, type TestOptions, test } from "vitest";
import * as z from "zod";
import { commandTable } from "../../src/handlers/shared/table.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { makeFileLocks } from "../../src/storage/locks/locks.ts";
import { PROGRAM } from "../support/build.ts";
import { call, idsIn, letRest, linesIn, said, serveContent, serveLines, sessionFile } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { listTogether } from "../support/listing.ts";
import { need, needs } from "../support/needs.ts";
import { imprint } from "../support/proof.ts";
import { type Json, serveHere, spawnCommand, spawnServer, temporaryPlace } from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";
import { IS_WHOLE } from "../support/whole.ts";

const NOTE = read("docs/reliability.md");

/** Each row with its id, and what names it: the fault. One that names several ids leaves them to others. */
const ROWS = [...NOTE.matchAll(/^\| ([A-Z]\d+(?:, [A-Z]\d+)*) \| (.+?) \| .+ \| *(.*?) \|$/gm)].map(
  ([, ids, fault, shown]) => ({ ids: ids.split(", "), fault, shown }),
);
const NOT_SHOWN = [...NOTE.slice(NOTE.indexOf("### Not shown")).matchAll(/^\| ([A-Z]\d+.*?) \|/gm)].flatMap(([, ids]) =>
  ids.split(", "),
);

const QUIET = ["--events", "none"];
/** Servers without joins: the tests are about the lock. */
const ALONE = ["--attach", "off", ...QUIET];

const cases: string[] = [];

/** Declares the case of a row. */
function shows(row: string, options: TestOptions, run: () => Promise<void>): void {
  cases.push(row);
  test(`${row} ${ROWS.find(({ ids }) => ids[0] === row)?.fault}`, options, run);
}

test("every row of the document has a case here or names the tests that show it", () => {
  const open = ROWS.filter(({ ids, shown }) => shown === "" && !NOT_SHOWN.includes(ids[0]));
  expect(open.map(({ ids: [row] }) => row).sort()).toEqual(cases.sort());
  expect(ROWS.flatMap(({ ids }) => ids).length).toBeGreaterThan(120);
});

test("the document names tests that exist, and every test file of this folder", () => {
  const named = [...NOTE.matchAll(/`((?:confine|links|[\w-]+\/[\w./-]+))`/g)].map(([, name]) => `test/${name}`);
  const isThere = (name: string): boolean =>
    [".test.ts", ".ts", ""].some((end) => existsSync(new URL(`../../${name}${end}`, import.meta.url)));
  if (IS_WHOLE) expect(named.filter((name) => !isThere(name))).toEqual([]);
  const own = readdirSync(new URL(".", import.meta.url)).filter((name) => name !== "cases.test.ts");
  for (const name of own) expect(named).toContain(`test/reliability/${name.replace(".test.ts", "")}`);
});

/** The page that the rows come from, where it is at hand. */
const PAGE = new URL("../../../shared/reference/reliability-cases.md", import.meta.url);

const THE_PAGE = need("the page of cases", "put it at ../shared/reference/reliability-cases.md", () =>
  existsSync(PAGE),
);

test("every case of the page has a row", needs(THE_PAGE), () => {
  const known = [...ROWS.flatMap(({ ids }) => ids), ...NOT_SHOWN];
  const sections = new Set(known.map(([section]) => section));
  const listed = [...readFileSync(PAGE, "utf8").matchAll(/^\| ([A-Z]\d+) /gm)].map(([, row]) => row);
  // Later findings have rows of their own.
  for (const row of listed.filter(([section]) => sections.has(section))) expect(known).toContain(row);
});

function read(file: string): string {
  return readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
}

/** All that a server writes. */
function listening(server: { output: NodeJS.ReadableStream }): { raw: string } {
  const heard = { raw: "" };
  server.output.on("data", (chunk: Buffer) => {
    heard.raw += chunk;
  });
  return heard;
}

shows("F11", SYSTEM, async () => {
  const script =
    // It begins once the program serves.
    "setInterval(() => { if (process.listenerCount('SIGTERM') === 0) return; " +
    "console.log('stray'); process.stdout.write('stray'); process.emitWarning('stray'); }, 1).unref()";
  const place = temporaryPlace();
  const env = { ...place.variables, NODE_OPTIONS: `--import "data:text/javascript,${encodeURIComponent(script)}"` };
  const server = spawnServer(["--no-session", ...QUIET], "lines", { ...place, variables: env });
  // The host's end fails on anything that is no frame.
  for (let n = 0; n < 200; n++) expect((await server.result("get_state")).entryCount).toBe(0);
  expect((await server.finish()).messages).toEqual([]);
  expect(server.stderr).toContain("stray");
});

shows("R11", {}, async () => {
  const { server, place } = serveLines(chain(3), { args: QUIET });
  const other = sessionFile(place, chain(2), "beside.jsonl", headerText({ id: "beside" }));
  await server.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }], events: [] } });
  const { sessionId } = await server.result("open_session", { sessionPath: other });
  server.send(call("slow", "branch", { entryId: id(0) }));
  let asked: Json;
  do asked = await server.next();
  while (asked.method !== "session_before_tree");
  expect((await server.result("get_state", { sessionId })).entryCount).toBe(2);
  expect((await server.result("append", { sessionId, entries: [user("x", { id: "x" })] })).leafId).toBe("x");
  server.send({ jsonrpc: "2.0", id: asked.id, result: {} });
  expect((await server.reply("slow")).result.leafId).toBe(id(0));
});

shows("R22", {}, async () => {
  const { methods, components } = await serveHere(["--no-session", ...QUIET]).result("rpc.discover");
  const resolved = (param: Json): Json =>
    param.$ref ? components.contentDescriptors[param.$ref.split("/").pop()] : param;
  const published = new Map<string, Json>(methods.map((method: Json) => [method.name, method]));
  for (const { name, params } of commandTable) {
    const enforced = z.toJSONSchema(params, { io: "input", unrepresentable: "any" }) as Json;
    const listed = published.get(name).params.map(resolved);
    const names = (list: Json[]): string[] => list.map((param) => param.name).sort();
    expect(names(listed), name).toEqual(Object.keys(enforced.properties ?? {}).sort());
    expect(names(listed.filter(({ required }: Json) => required)), name).toEqual([...(enforced.required ?? [])].sort());
  }
});

shows("L18", SWEEP, async () => {
  const place = temporaryPlace();
  const large = userText(id(1), id(0), "y".repeat(64 << 20));
  const file = sessionFile(place, [userText(id(0), null), large, userText(id(2), id(1))]);
  const server = spawnServer(["--session", file, ...QUIET], "lines", place);
  const expectPeakBelow = (megabytes: number): void => {
    if (process.platform !== "linux") return;
    const status = readFileSync(`/proc/${server.process.pid}/status`, "utf8");
    expect(Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024).toBeLessThan(megabytes);
  };
  expect((await server.result("get_state")).entryCount).toBe(3);
  expectPeakBelow(300);
  await server.result("append", { entries: [user("small")] });
  const { entry } = await server.result("get_entry", { entryId: id(1) });
  expect(entry.message.content).toHaveLength(64 << 20);
  expectPeakBelow(600);
});

shows("L19", SWEEP, async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(2));
  const fd = openSync(file, "r+");
  const far = 560 * 1024 * 1024;
  writeSync(fd, userText(id(2), id(1)).slice(0, 150), statSync(file).size);
  // The middle is a hole in the file, which reads as zeros.
  ftruncateSync(fd, far);
  writeSync(fd, `"}}\n${userText(id(3), id(1))}\n`, far);
  letRest(file);
  const server = spawnServer(["--session", file, ...QUIET], "lines", place);
  const { leafId, diagnostics } = await server.result("get_state");
  expect(leafId).toBe(id(3));
  expect((await server.result("append", { entries: [user("next", { id: "next" })] })).leafId).toBe("next");
  expect((await server.result("get_messages")).messages.at(-1).content).toBe("next");
  // It is reported when it is met: at opening, or with the first look at its body.
  const { ok, damage } = await server.result("verify_session");
  expect([ok, damage.length > 0 || diagnostics.length > 0]).toEqual([false, true]);
});

shows("L20", {}, async () => {
  const times = [undefined, "yesterday", "2026-01-24T10:00:00", "9999-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z", 5];
  const lines = times.map((timestamp, n) => {
    const message = { role: "user", content: `m${n}` };
    return entryText("message", id(n), n === 0 ? null : id(n - 1), { timestamp, message });
  });
  const { server } = serveContent(fileText(headerText({ timestamp: "no time" }), ...lines));
  const heard = listening(server);
  expect(await said(server)).toEqual(times.map((_, n) => `m${n}`));
  for (const method of ["get_tree", "get_state", "get_session_stats", "export_html"]) await server.result(method);
  expect(heard.raw).not.toMatch(/NaN|Invalid Date/);
});

shows("L21", {}, async () => {
  const place = temporaryPlace();
  const at = (name: string): string => join(place.cwd, name);
  const server = serveHere(QUIET, { place });
  for (const [name, header, parent] of [
    ["a", { parentSession: at("b.jsonl") }, at("b.jsonl")],
    ["b", { branchedFrom: at("a.jsonl") }, at("a.jsonl")],
    ["c", { parentSession: "/nowhere/x.jsonl", branchedFrom: at("b.jsonl") }, "/nowhere/x.jsonl"],
    ["d", { parentSession: "../relative.jsonl" }, "../relative.jsonl"],
    ["e", { parentSession: at("e.jsonl") }, at("e.jsonl")],
  ] as const) {
    const sessionPath = sessionFile(place, chain(2), `${name}.jsonl`, headerText({ id: name, ...header }));
    await server.result("switch_session", { sessionPath });
    const { parentSession, entryCount } = await server.result("get_state");
    expect([parentSession, entryCount], name).toEqual([parent, 2]);
    await server.result("clone");
  }
});

shows("C8", SYSTEM, async () => {
  const server = spawnServer(QUIET);
  await server.result("append", { entries: [user("a", { id: "a" })] });
  const { sessionFile } = await server.result("get_state");
  await server.result("prepare_compaction", { keepRecentTokens: 1 });
  server.process.kill("SIGKILL");
  await server.exit;
  const next = serveHere(["--session", sessionFile, ...QUIET], { place: server.place });
  expect(await next.result("get_state")).toMatchObject({ isCompacting: false, leafId: "a", diagnostics: [] });
  expect(linesIn(sessionFile)).toHaveLength(2);
});

shows("K8", {}, async () => {
  const { server, file, place } = serveLines(chain(3), { args: QUIET });
  const { sessionFile: forked } = await server.result("fork", { entryId: id(2), position: "at" });
  await server.finish();
  rmSync(file);
  const reader = serveHere(["--session", forked, ...QUIET], { place });
  expect(await said(reader)).toHaveLength(3);
  expect((await reader.result("get_state")).parentSession).toBe(file);
  await reader.result("append", { entries: [user("next")] });
});

shows("X1", SYSTEM, async () => {
  const { server, file, place } = serveLines(chain(2), { args: ALONE });
  await server.result("append", { entries: [user("mine")] });
  const second = spawnServer(["--session", file, "--attach", "off"], "lines", place);
  expect(await second.result("get_state")).toMatchObject({
    readOnly: true,
    lockedBy: { pid: process.pid, client: expect.stringContaining("pi-session-server") },
  });
  expect(await second.failure("append", { entries: [user("theirs")] })).toMatchObject({
    code: -32803,
    data: { name: "session_locked", retryable: true, holder: { pid: process.pid } },
  });
  // It follows what the other writes.
  const { leafId } = await server.result("append", { entries: [user("more")] });
  let event: Json;
  do event = await second.next();
  while (event.method !== "session_append");
  expect(event.params).toMatchObject({ origin: "foreign", leafId, entryIds: [leafId], entries: [{ id: leafId }] });
  await server.finish();
  expect((await second.result("append", { entries: [user("now")] })).leafId).toBeTruthy();
  expect((await second.result("get_state")).readOnly).toBe(false);
});

shows("X2", SYSTEM, async () => {
  const { server, file, place } = serveLines(chain(2), { args: ALONE });
  symlinkSync(file, join(place.cwd, "link.jsonl"));
  linkSync(file, join(place.cwd, "hard.jsonl"));
  await server.result("append", { entries: [user("mine", { id: "mine" })] });
  const second = spawnServer(ALONE, "lines", place);
  for (const name of ["link.jsonl", "hard.jsonl", "session.jsonl", "./../project/session.jsonl"]) {
    const { sessionId } = await second.result("open_session", { sessionPath: name });
    const { data } = await second.failure("append", { sessionId, entries: [user("x")] });
    expect(data.name, name).toBe("session_locked");
    // So the next name is one that it has not opened yet.
    await second.result("close_session", { sessionId });
    // In this process it is the same session.
    await server.result("open_session", { sessionPath: name });
    await server.result("switch_session", { sessionPath: name });
    expect((await server.result("append", { entries: [user("x")] })).leafId, name).toBeTruthy();
  }
  expect(await idsIn(serveHere(["--session", file, ...ALONE], { place }))).toHaveLength(7);
});

shows("X5", SYSTEM, async () => {
  const { server, file, place } = serveLines(chain(2), { args: ALONE });
  await server.result("append", { entries: [user("mine")] });
  const note = join(place.cwd, readdirSync(place.cwd).find((name) => name.endsWith(".holder")) as string);
  const second = spawnServer(ALONE, "lines", place);
  for (const content of [readFileSync(note, "utf8"), "", "{", "null", "[]", undefined]) {
    if (content === undefined) rmSync(note);
    else writeFileSync(note, content);
    const owner = content?.includes("pid") ? `process ${process.pid}` : "another process";
    const { sessionId } = await second.result("open_session", { sessionPath: file });
    const { data, message } = await second.failure("append", { sessionId, entries: [user("x")] });
    expect([data.name, message], String(content)).toEqual(["session_locked", expect.stringContaining(owner)]);
    await second.result("close_session", { sessionId });
  }
  // With a file where the state folder should be, nothing of ours can be kept there.
  const other = temporaryPlace();
  writeFileSync(other.state, "");
  const third = sessionFile(other, chain(2));
  const [writer, rival] = [0, 1].map(() => spawnServer(["--session", third, ...ALONE], "lines", other));
  expect((await writer.result("append", { entries: [user("x")] })).leafId).toBeTruthy();
  expect((await rival.failure("append", { entries: [user("y")] })).data.name).toBe("session_locked");
  expect((await writer.finish()).status).toBe(0);
  // Locks in files then have no place: a server that cannot lock does not write.
  const makeFolder = (): never => {
    throw Object.assign(new Error("read-only file system"), { code: "EROFS" });
  };
  const stateFolder = join(other.home, "state");
  const locks = makeFileLocks({ disk: { ...realDisk, makeFolder }, stateFolder, client: "us", now: () => "" });
  expect(() => locks.acquire({ device: 7, inode: 71 })).toThrow(/PI_SESSION_SERVER_STATE_DIR/);
});

shows("X8", SYSTEM, () => listTogether(3, 20));

shows("X12", SYSTEM, async () => {
  const { server, file, place } = serveLines(chain(4), { args: ALONE });
  const late = spawnServer(["--session", file, ...ALONE], "lines", place);
  await late.result("get_state");
  await server.result("append", { entries: [user("mine", { id: "mine" })] });
  // It stands elsewhere, and would leave a mark of that behind if it were the writer.
  expect(await late.result("branch", { entryId: id(1) })).toMatchObject({ durable: false });
  const before = imprint(file);
  expect((await late.finish()).status).toBe(0);
  expect(late.stderr).toBe("");
  expect(imprint(file)).toEqual(before);
  expect((await server.result("append", { entries: [user("next", { id: "next" })] })).leafId).toBe("next");
  await server.finish();
  expect((await idsIn(serveHere(["--session", file, ...ALONE], { place }))).slice(-2)).toEqual(["mine", "next"]);
});

shows("D8", {}, async () => {
  const place = temporaryPlace();
  const folder = join(place.home, "sessions");
  mkdirSync(folder);
  const others = [".a.jsonl.12-1.tmp", "a.jsonl.v2.bak", "a.jsonl.damaged.bak", ".hidden.jsonl", "a.jsonl.icloud"];
  for (const name of ["a.jsonl", "a.json", ...others])
    writeFileSync(join(folder, name), fileText(headerText({ id: "real" }), ...chain(2)));
  writeFileSync(join(folder, "placeholder.jsonl"), "");
  const server = serveHere(["--session-dir", folder, ...QUIET], { place });
  const { sessions, total } = await server.result("list_sessions");
  expect([sessions.map(({ sessionPath }: Json) => sessionPath), total]).toEqual([[join(folder, "a.jsonl")], 1]);
});

shows("P1", SYSTEM, async () => {
  const place = temporaryPlace();
  const torn = sessionFile(place, [...chain(3), '{"type":"mess'], "torn.jsonl");
  const damaged = sessionFile(place, [...chain(2), "}{", userText(id(3), id(2))], "damaged.jsonl");
  appendFileSync(torn, '{"type":"message","id":"half');
  for (const file of [torn, damaged]) {
    chmodSync(file, 0o600);
    letRest(file);
  }
  const namesIn = (): string[] => readdirSync(place.home, { recursive: true, encoding: "utf8" });
  const known = namesIn();
  /** Names of everything that came since, all of it private. */
  const expectPrivate = (): string => {
    // A socket becomes private right after it is bound, in a folder that is (modules/attach/attach).
    const names = namesIn().filter((name) => !known.includes(name) && !name.endsWith(".sock"));
    for (const name of names) {
      const stats = statSync(join(place.home, name), { throwIfNoEntry: false });
      // An announcement's temporary file is gone by now.
      if (!stats) continue;
      expect([name, (stats.mode & 0o7777).toString(8)]).toEqual([name, stats.isDirectory() ? "700" : "600"]);
    }
    return names.join("\n");
  };
  const words = ["sh", "-c", 'umask 000; exec "$0" "$@"', process.execPath, PROGRAM, ...QUIET];
  const server = spawnCommand(words, "lines", place);
  await server.result("append", { entries: [user("a", { id: "a" }), user("b")] });
  await server.result("branch", { entryId: "a" });
  await server.result("clone");
  // Files are looked at while the locks are held, too.
  await server.result("append", { entries: [user("c")] });
  expectPrivate();
  for (const sessionPath of [torn, damaged]) {
    await server.result("switch_session", { sessionPath });
    await server.result("append", { entries: [user("more")] });
  }
  expect((await server.result("repair_session")).backupPath).toMatch(/damaged\.bak$/);
  await server.result("export_html", { outputPath: "page.html" });
  await server.result("list_sessions");
  expect((await server.finish()).status).toBe(0);
  const names = expectPrivate();
  for (const part of ["state/leaves", "state/quarantine/", ".jsonl", "damaged.bak", "page.html"])
    expect(names).toContain(part);
  expect([statSync(torn).mode & 0o777, statSync(damaged).mode & 0o777]).toEqual([0o600, 0o600]);
});

shows("P8", {}, async () => {
  const canary = "canary-7f3a9c";
  const place = temporaryPlace();
  const file = sessionFile(place, [userText(id(0), null, canary), `{"${canary}`, userText(id(1), id(0))]);
  writeFileSync(join(place.cwd, "not.jsonl"), `${canary} is no session\n`);
  let isFull = false;
  const disk: Disk = {
    ...realDisk,
    write(fd, bytes) {
      if (isFull) throw Object.assign(new Error(`EIO: ${canary}`), { code: "EIO" });
      return realDisk.write(fd, bytes);
    },
  };
  const server = serveHere(["--session", file, ...QUIET], { place, disk });
  const replies: Json[] = [];
  for (const [method, params] of [
    ["switch_session", { sessionPath: "not.jsonl" }],
    ["switch_session", { sessionPath: "missing.jsonl" }],
    ["get_entry", { entryId: "nowhere" }],
    ["append", { entries: [{ type: "message", parentId: "nowhere" }] }],
    ["append", { entries: canary }],
    ["verify_session", {}],
    ["repair_session", { dryRun: true }],
  ] as const)
    replies.push(await server.request(method, params));
  replies.push((await server.result("get_state")).diagnostics);
  isFull = true;
  replies.push(await server.failure("append", { entries: [user("x")] }));
  for (const reply of replies.map((each) => JSON.stringify(each))) {
    expect(reply).not.toContain(canary);
    expect(reply).not.toMatch(/\\n +at |node:internal|\.ts:\d+/);
  }
});

shows("P9", SYSTEM, async () => {
  const deep = (depth: number): string => `${"[".repeat(depth)}${"]".repeat(depth)}`;
  const content = [{ type: "toolCall", id: "c", name: "n", arguments: "DEEP" }];
  const calls = entryText("message", id(1), id(0), { message: { role: "assistant", content } });
  const custom = entryText("custom", id(2), id(1), { customType: "x", data: "DEEP" });
  const lines = [
    userText(id(0), null),
    calls.replace('"DEEP"', `{"a":${deep(50_000)}}`),
    custom.replace('"DEEP"', deep(50_000)),
    userText(id(3), id(2)),
  ];
  const { server } = serveContent(fileText(headerText(), ...lines));
  for (const [method, params] of [
    ["get_messages", {}],
    ["get_entries", {}],
    ["get_tree", {}],
    ["get_path", {}],
    ["get_context", { strict: true, explain: true }],
    ["get_session_stats", {}],
    ["verify_session", {}],
    ["repair_session", { dryRun: true }],
    ["export_html", {}],
    ["prepare_compaction", { keepRecentTokens: 1 }],
    ["prepare_branch_summary", { targetId: id(0) }],
    ["compare_branches", { a: id(0) }],
    ["search_sessions", { query: "say" }],
    ["clone", {}],
  ] as const)
    expect((await server.request(method, params)).error, method).toBeUndefined();
  for (const [text, code] of [
    [`"append","params":{"entries":[{"type":"odd","data":${deep(50_000)}}]}`, undefined],
    [`"get_entries","params":${deep(100_000)}`, -32602],
    [`"get_state","params":{"a":${"9".repeat(100_000)}}`, -32602],
  ] as const) {
    server.write(`${deep(200_000)}\n{"jsonrpc":"2.0","id":"deep","method":${text}}\n`);
    expect((await server.reply("deep")).error?.code).toBe(code);
  }
});
