/** L: files as they are found. */

import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { expect } from "vitest";
import {
  cases,
  damageKinds,
  fileOf,
  idsIn,
  letRest,
  linesIn,
  said,
  serveContent,
  sessionFile,
} from "../../support/cases.ts";
import { user } from "../../support/drafts.ts";
import { chain, entryText, fileText, headerText, id, TIME, userText } from "../../support/lines.ts";
import { MKFIFO, needs } from "../../support/needs.ts";
import { imprint } from "../../support/proof.ts";
import { range, share } from "../../support/random.ts";
import { type Json, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";
import { SWEEP } from "../../support/tiers.ts";

const QUIET = ["--events", "none"];

/** Opens each content with the server that is there, and hands over what it tells. */
async function openEach(
  contents: readonly (string | Uint8Array)[],
  check: (server: Json, n: number) => Promise<void>,
): Promise<void> {
  const place = temporaryPlace();
  const server = serveHere(QUIET, { place });
  for (const [n, content] of contents.entries()) {
    const file = fileOf(place, content, `session-${n}.jsonl`);
    const before = imprint(file);
    await server.result("switch_session", { sessionPath: file });
    await check(server, n);
    expect(imprint(file), `file ${n}`).toEqual(before);
  }
}

async function opening(content: string | Uint8Array): Promise<Json> {
  const place = temporaryPlace();
  const file = fileOf(place, content);
  const before = imprint(file);
  const { data } = await serveHere(QUIET, { place }).failure("switch_session", { sessionPath: file });
  expect(imprint(file)).toEqual(before);
  return data;
}

cases("L", [
  {
    id: "L1",
    fault: "the last record cut at every byte",
    async run() {
      const whole = fileText(headerText(), ...chain(4));
      const from = whole.length - chain(4)[3].length - 1;
      // At every byte of it the reader cuts in test/storage/log/lines.test.ts.
      const contents = share(range(from + 1, whole.length - 1), 30).map((cut) => whole.slice(0, cut));
      await openEach(contents, async (server, n) => {
        expect(await idsIn(server), `cut ${n}`).toEqual([id(0), id(1), id(2)]);
        expect(await damageKinds(server)).toEqual(["torn_tail"]);
      });
    },
  },
  {
    id: "L2",
    fault: "a torn tail, an append, another opening, three times",
    async run() {
      const { server: first, file, place } = serveContent(fileText(headerText(), ...chain(2)));
      await first.finish();
      const acknowledged = [id(0), id(1)];
      for (let round = 0; round < 3; round++) {
        const torn = `{"type":"message","id":"torn-${round}","parentId":"${acknowledged.at(-1)}","mess`;
        appendFileSync(file, torn);
        if (round < 2) letRest(file);
        const server = serveHere(["--session", file], { place });
        acknowledged.push(...(await server.result("append", { entries: [user(`round ${round}`)] })).entryIds);
        expect(await idsIn(server)).toEqual(acknowledged);
        const { messages } = await server.finish();
        expect(messages.filter(({ error }) => error)).toEqual([]);
        const reader = serveHere(["--session", file], { place });
        expect(await idsIn(reader)).toEqual(acknowledged);
        await reader.finish();
        // Nothing of the torn bytes is gone: they are kept aside, or stand in the file.
        const kept = readdirSync(join(place.state, "quarantine")).map((name) =>
          readFileSync(join(place.state, "quarantine", name), "utf8"),
        );
        expect([...kept, readFileSync(file, "utf8")].join("\n")).toContain(torn);
      }
    },
  },
  {
    id: "L3",
    fault: "a torn prefix glued to a whole record",
    async run() {
      const next = userText(id(2), id(1));
      const prefixes = [1, 20, 70, 120].map((cut) => userText(id(9), id(1)).slice(0, cut));
      await openEach(
        prefixes.map((prefix) => fileText(headerText(), ...chain(2), prefix + next, userText(id(3), id(2)))),
        async (server) => {
          expect((await idsIn(server)).slice(-2)).toEqual([id(2), id(3)]);
          expect((await server.result("get_state")).diagnostics.length).toBeGreaterThan(0);
        },
      );
    },
  },
  {
    id: "L5",
    fault: "one flipped bit in each kind of member",
    async run() {
      const lines = chain(4);
      const bytes = Buffer.from(fileText(headerText(), ...lines));
      const start = bytes.indexOf(lines[1]);
      const places = [
        '"type"',
        "message",
        '"id"',
        id(1),
        '"parentId"',
        id(0),
        "timestamp",
        TIME,
        '"role"',
        "user",
        "say",
        "}}",
      ];
      const contents = places.map((text) => {
        const flipped = Buffer.from(bytes);
        flipped[bytes.indexOf(text, start) + 1] ^= 4;
        return flipped;
      });
      await openEach(contents, async (server, n) => {
        const ids = await idsIn(server);
        for (const other of [id(0), id(2), id(3)]) expect(ids, `bit in ${places[n]}`).toContain(other);
      });
    },
  },
  {
    id: "L6",
    fault: "a bad line in the middle whose children follow",
    async run() {
      const { server } = serveContent(
        fileText(headerText(), ...chain(2), '{"type":"mess\0\0', ...chain(3, 3).map(relink)),
      );
      expect(await said(server)).toEqual([0, 1, 3, 4, 5].map((n) => `say ${id(n)}`));
      expect((await damageKinds(server)).sort()).toEqual(["bad_line", "missing_parent"]);
    },
  },
  {
    id: "L7",
    fault: "stray JSON values between and after the entries",
    async run() {
      const strays = ["1", '"x"', "[]", "null", "true", "{}"];
      const { server, file } = serveContent(fileText(headerText(), ...strays, ...chain(3), ...strays));
      expect((await server.result("get_state")).leafId).toBe(id(2));
      expect(await damageKinds(server)).toEqual(Array(12).fill("bad_line"));
      const { leafId } = await server.result("append", { entries: [user("next")] });
      expect(JSON.parse(linesIn(file).at(-1) as string)).toMatchObject({ id: leafId, parentId: id(2) });
    },
  },
  {
    id: "L8",
    fault: "ids that are none, or odd",
    async run() {
      const text = (n: string): string =>
        `{"type":"message"${n},"parentId":null,"timestamp":"${TIME}","message":{"role":"user","content":"x"}}`;
      const odd = ["__proto__", "constructor", "x".repeat(10_240), "~2", " "];
      const lines = ["", ',"id":5', ',"id":""', ...odd.map((name) => `,"id":${JSON.stringify(name)}`)].map(text);
      const { server } = serveContent(fileText(headerText(), ...lines));
      const ids = await idsIn(server);
      expect(ids).toHaveLength(8);
      expect(ids.slice(3)).toEqual(odd);
      // What is stored is given as it is stored, and found under its text.
      expect(ids[1]).toBe(5);
      for (const entryId of ids.map(String))
        expect((await server.result("get_entry", { entryId })).entry.message.content).toBe("x");
      expect(await server.failure("get_entry", { entryId: "toString" })).toMatchObject({
        data: { name: "entry_not_found" },
      });
      expect(({} as Json).id).toBeUndefined();
    },
  },
  {
    id: "L10",
    fault: "headers: two, late, alone, none; empty files",
    async run() {
      const file = (...lines: string[]): string => fileText(...lines);
      const found: unknown[] = [];
      await openEach(
        [
          file(headerText(), ...chain(2), headerText({ id: "second" }), ...chain(1, 2)),
          file(...chain(1), headerText(), ...chain(1, 1)),
          file(headerText()),
          file(...chain(2)),
        ],
        async (server) => {
          const { entryCount, readOnly } = await server.result("get_state");
          found.push([entryCount, readOnly, await damageKinds(server)]);
        },
      );
      expect(found).toEqual([
        [3, false, ["extra_header"]],
        [2, false, ["bad_line"]],
        [0, false, []],
        [2, true, ["bad_header"]],
      ]);
      for (const content of ["", "  \n\n \t\n", "no session\n", "{}\n", "[1,2]\n"])
        expect(await opening(content)).toMatchObject({ name: "not_a_session", retryable: false });
    },
  },
  {
    id: "L11",
    fault: "a byte order mark, UTF-16, gzip",
    async run() {
      const text = fileText(headerText(), ...chain(3));
      await openEach([`\ufeff${text}`], async (server) => expect(await idsIn(server)).toHaveLength(3));
      for (const content of [Buffer.from(text, "utf16le"), Buffer.from(`\ufeff${text}`, "utf16le"), gzipSync(text)])
        expect((await opening(content)).name).toBe("not_a_session");
    },
  },
  {
    id: "L12",
    fault: "CR LF; no final line feed; reading only",
    async run() {
      const text = fileText(headerText(), ...chain(3));
      const contents = [text.replaceAll("\n", "\r\n"), text.slice(0, -1)];
      await openEach(contents, async (server) => {
        expect(await said(server)).toHaveLength(3);
        expect(await damageKinds(server)).toEqual([]);
      });
      const place = temporaryPlace();
      const file = fileOf(place, contents[1]);
      const before = imprint(file);
      const server = serveHere(["--session", file, "--read-only"], { place });
      expect((await server.failure("append", { entries: [user("x")] })).data.name).toBe("read_only");
      await server.result("verify_session");
      expect((await server.finish()).status).toBe(0);
      expect(imprint(file)).toEqual(before);
    },
  },
  {
    id: "L13",
    fault: "versions 1, 2, 3, none, 99, a text, negative",
    async run() {
      const place = temporaryPlace();
      for (const [version, writable] of [
        [1, true],
        [2, true],
        [3, true],
        [undefined, true],
        ["3", true],
        [99, false],
        [-1, false],
      ] as const) {
        const name = `version-${version}.jsonl`;
        const file = sessionFile(place, chain(3), name, headerText({ version }));
        const before = imprint(file);
        const server = serveHere(["--session", file, ...QUIET], { place });
        expect(await said(server), name).toHaveLength(3);
        expect(imprint(file)).toEqual(before);
        const { result, error } = await server.request("append", { entries: [user("next")] });
        if (writable) {
          expect(result.leafId, name).toBeTruthy();
          expect(JSON.parse(linesIn(file)[0]).version).toBe(version === "3" ? "3" : 3);
          if (version === 1 || version === undefined || version === 2)
            expect(readFileSync(`${file}.v${version ?? 1}.bak`, "latin1")).toBe(before.bytes);
        } else {
          expect(error.data.name).toBe("unsupported_version");
          expect(imprint(file)).toEqual(before);
        }
        await server.finish();
      }
    },
  },
  {
    id: "L14",
    fault: "types and members that nobody knows",
    async run() {
      const odd = `{"type":"from_the_future","id":"${id(1)}","parentId":"${id(0)}","timestamp":"${TIME}","deep":{"a":[1.0,{}]},"b":1e2}`;
      const more = userText(id(2), id(1)).replace('"type"', '"type"').replace(/}$/, ',"later":  1.50}');
      const { server, file, place } = serveContent(fileText(headerText(), userText(id(0), null), odd, more));
      await server.result("append", { entries: [user("next")] });
      const { sessionFile: forked } = await server.result("clone");
      await server.finish();
      for (const written of [file, forked]) expect(linesIn(written).slice(2, 4)).toEqual([odd, more]);
      expect(place.cwd).toBeTruthy();
    },
  },
  {
    id: "L15",
    fault: "numbers and duplicate members that a parser would change",
    async run() {
      const odd = entryText("custom", id(1), id(0), { customType: "x" }).replace(
        /}$/,
        ',"a":9007199254740993,"b":1e400,"c":-0,"d":1.0,"a":2}',
      );
      const { server, file } = serveContent(fileText(headerText(), userText(id(0), null), odd));
      let raw = "";
      server.output.on("data", (chunk: Buffer) => {
        raw += chunk;
      });
      await server.result("get_entry", { entryId: id(1) });
      expect(raw).toContain(odd);
      await server.result("append", { entries: [user("next")] });
      const { sessionFile: forked } = await server.result("fork", { entryId: id(1), position: "at" });
      for (const written of [file, forked]) expect(linesIn(written)[2]).toBe(odd);
    },
  },
  {
    id: "L17",
    fault: "messages of shapes that are none",
    async run() {
      const shapes: unknown[] = [
        null,
        5,
        "text",
        [],
        {},
        { role: "user", content: null },
        { role: "user", content: "text" },
        { role: "assistant", content: [{ type: "unheard_of" }, null, 5] },
        { role: "assistant" },
        { role: "nobody", content: {} },
        { role: "hookMessage", customType: "x", content: "hook" },
        { role: "toolResult", content: "text" },
        { role: null },
      ];
      const lines = shapes.map((message, n) => entryText("message", id(n), n === 0 ? null : id(n - 1), { message }));
      const { server } = serveContent(fileText(headerText(), ...lines));
      for (const method of ["get_messages", "get_context", "get_tree", "get_entries", "get_path", "get_session_stats"])
        await server.result(method);
      await server.result("get_context", { strict: true, explain: true });
      await server.result("get_fork_messages");
      await server.result("get_last_assistant_text");
      await server.result("verify_session");
      await server.result("export_html");
      expect(await idsIn(server)).toHaveLength(shapes.length);
    },
  },
  {
    id: "L18",
    fault: "one line of 64 MiB",
    options: SWEEP,
    async run() {
      const place = temporaryPlace();
      const large = userText(id(1), id(0), "y".repeat(64 << 20));
      const file = sessionFile(place, [userText(id(0), null), large, userText(id(2), id(1))]);
      const server = spawnServer(["--session", file, ...QUIET], "lines", place);
      expect((await server.result("get_state")).entryCount).toBe(3);
      const status = (): string => readFileSync(`/proc/${server.process.pid}/status`, "utf8");
      const peak = (): number => Number(/^VmHWM:\s+(\d+) kB$/m.exec(status())?.[1]) / 1024;
      if (process.platform === "linux") expect(peak()).toBeLessThan(300);
      await server.result("append", { entries: [user("small")] });
      const { entry } = await server.result("get_entry", { entryId: id(1) });
      expect(entry.message.content).toHaveLength(64 << 20);
      if (process.platform === "linux") expect(peak()).toBeLessThan(600);
    },
  },
  {
    id: "L19",
    fault: "a line longer than a string can be",
    options: SWEEP,
    async run() {
      const place = temporaryPlace();
      const file = sessionFile(place, chain(2));
      const fd = openSync(file, "r+");
      const end = readFileSync(file).length;
      const far = 560 * 1024 * 1024;
      writeSync(fd, userText(id(2), id(1)).slice(0, 150), end);
      // The middle is a hole in the file, which reads as zeros.
      ftruncateSync(fd, far);
      writeSync(fd, `"}}\n${userText(id(3), id(1))}\n`, far);
      letRest(file);
      const server = spawnServer(["--session", file, ...QUIET], "lines", place);
      const { leafId, diagnostics } = await server.result("get_state");
      expect(leafId).toBe(id(3));
      expect((await server.result("append", { entries: [user("next", { id: "next" })] })).leafId).toBe("next");
      const reply = await server.request("get_messages");
      expect(reply.result.messages.at(-1).content).toBe("next");
      // It is told of when it is met: at opening, or with the first look at its body.
      const { ok, damage } = await server.result("verify_session");
      expect([ok, damage.length > 0 || diagnostics.length > 0]).toEqual([false, true]);
    },
  },
  {
    id: "L20",
    fault: "timestamps that are missing, wrong, local, out of order, far away",
    async run() {
      const times = [
        undefined,
        "yesterday",
        "2026-01-24T10:00:00",
        "9999-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00Z",
        5,
      ];
      const lines = times.map((timestamp, n) =>
        entryText("message", id(n), n === 0 ? null : id(n - 1), {
          timestamp,
          message: { role: "user", content: `m${n}` },
        }),
      );
      const { server } = serveContent(fileText(headerText({ timestamp: "no time" }), ...lines));
      let raw = "";
      server.output.on("data", (chunk: Buffer) => {
        raw += chunk;
      });
      expect(await said(server)).toEqual(times.map((_, n) => `m${n}`));
      for (const method of ["get_tree", "get_state", "get_session_stats", "export_html"]) await server.result(method);
      expect(raw).not.toMatch(/NaN|Invalid Date/);
    },
  },
  {
    id: "L21",
    fault: "parents among files: of both names, missing, relative, itself, in a circle",
    async run() {
      const place = temporaryPlace();
      const named = (name: string, more: Json): string =>
        sessionFile(place, chain(2), `${name}.jsonl`, headerText({ id: name, ...more }));
      const other = join(place.cwd, "b.jsonl");
      const files: [string, string | null][] = [
        [named("a", { parentSession: other }), other],
        [named("b", { branchedFrom: join(place.cwd, "a.jsonl") }), join(place.cwd, "a.jsonl")],
        [named("c", { parentSession: "/nowhere/x.jsonl", branchedFrom: other }), "/nowhere/x.jsonl"],
        [named("d", { parentSession: "../relative.jsonl" }), "../relative.jsonl"],
        [named("e", { parentSession: join(place.cwd, "e.jsonl") }), join(place.cwd, "e.jsonl")],
      ];
      const server = serveHere(QUIET, { place });
      for (const [file, parent] of files) {
        await server.result("switch_session", { sessionPath: file });
        const { parentSession, entryCount } = await server.result("get_state");
        expect([parentSession, entryCount], file).toEqual([parent, 2]);
        await server.result("clone");
      }
    },
  },
  {
    id: "L23",
    fault: "a path that is a folder, a FIFO, a device, a circle of links, or not readable",
    options: needs(MKFIFO),
    async run() {
      const place = temporaryPlace();
      const at = (name: string): string => join(place.cwd, name);
      execFileSync("mkfifo", [at("fifo.jsonl")]);
      symlinkSync(at("loop.jsonl"), at("loop.jsonl"));
      const closed = fileOf(place, fileText(headerText()), "closed.jsonl");
      chmodSync(closed, 0);
      const server = serveHere(QUIET, { place });
      const failure = async (sessionPath: string): Promise<string> =>
        (await server.failure("switch_session", { sessionPath })).data.name;
      for (const path of [place.cwd, at("fifo.jsonl"), "/dev/null", "/dev/zero"])
        expect(await failure(path), path).toBe("not_a_session");
      expect(await failure(at("loop.jsonl"))).toBe("storage_failed");
      expect(await failure(at("missing.jsonl"))).toBe("session_not_found");
      // Root reads everything.
      if (process.getuid?.() !== 0) expect(await failure(closed)).toBe("storage_failed");
    },
  },
]);

/** The first of a chain that begins anew continues what is lost. */
function relink(line: string, n: number): string {
  return n === 0 ? line.replace('"parentId":null', `"parentId":"${id(2)}"`) : line;
}
