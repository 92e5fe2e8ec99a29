/** P: permissions, paths, texts of strangers. */

import { spawn } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect } from "vitest";
import { PROGRAM } from "../../support/build.ts";
import { cases, letRest, serveContent, serveLines, sessionFile } from "../../support/cases.ts";
import { user } from "../../support/drafts.ts";
import { putSession, serveLibrary, sessionId } from "../../support/lifecycle.ts";
import { chain, entryText, fileText, headerText, id, userText } from "../../support/lines.ts";
import { lookAt } from "../../support/pages.ts";
import { imprint } from "../../support/proof.ts";
import {
  type HereServer,
  type Json,
  type Place,
  programEnvironment,
  SpawnedServer,
  serveHere,
  temporaryPlace,
} from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";

const QUIET = ["--events", "none"];
const CANARY = "canary-7f3a9c";

function spawnWithUmask(umask: string, args: string[], place: Place): SpawnedServer {
  const child = spawn("sh", ["-c", `umask ${umask}; exec "$0" "$@"`, process.execPath, PROGRAM, ...args], {
    cwd: place.cwd,
    env: programEnvironment(place),
    stdio: ["pipe", "pipe", "pipe"],
  });
  return new SpawnedServer(child, "lines", place);
}

/** Modes of everything below a folder, but for what was there. */
function modes(folder: string, known: readonly string[] = []): Map<string, string> {
  const found = new Map<string, string>();
  for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    const stats = statSync(join(folder, name));
    if (!known.includes(name))
      found.set(name, `${stats.isDirectory() ? "folder" : "file"} ${(stats.mode & 0o7777).toString(8)}`);
  }
  return found;
}

function expectPrivate(found: Map<string, string>): void {
  expect([...found].filter(([, mode]) => mode !== "folder 700" && mode !== "file 600")).toEqual([]);
}

/** Everything a server answers, in both members. */
async function answer(server: HereServer, method: string, params: Json): Promise<string> {
  return JSON.stringify(await server.request(method, params));
}

cases("P", [
  {
    id: "P1",
    fault: "umask 000",
    options: SYSTEM,
    async run() {
      const place = temporaryPlace();
      const torn = sessionFile(place, [...chain(3), '{"type":"mess'], "torn.jsonl");
      const damaged = sessionFile(place, [...chain(2), "}{", userText(id(3), id(2))], "damaged.jsonl");
      appendFileSync(torn, '{"type":"message","id":"half');
      for (const file of [torn, damaged]) {
        chmodSync(file, 0o600);
        letRest(file);
      }
      const known = readdirSync(place.home, { recursive: true, encoding: "utf8" });
      const server = spawnWithUmask("000", QUIET, place);
      await server.result("append", { entries: [user("a", { id: "a" }), user("b")] });
      await server.result("branch", { entryId: "a" });
      await server.result("clone");
      // Files are looked at while the locks are held, too.
      await server.result("append", { entries: [user("c")] });
      expectPrivate(modes(place.home, known));
      for (const sessionPath of [torn, damaged]) {
        await server.result("switch_session", { sessionPath });
        await server.result("append", { entries: [user("more")] });
      }
      expect((await server.result("repair_session")).backupPath).toMatch(/damaged\.bak$/);
      await server.result("export_html", { outputPath: "page.html" });
      await server.result("list_sessions");
      expect((await server.finish()).status).toBe(0);
      const found = modes(place.home, known);
      expectPrivate(found);
      const names = [...found.keys()].join("\n");
      for (const part of ["state/leaves", "state/quarantine/", ".jsonl", "damaged.bak", "page.html"])
        expect(names).toContain(part);
      expect([statSync(torn).mode & 0o777, statSync(damaged).mode & 0o777]).toEqual([0o600, 0o600]);
    },
  },
  {
    id: "P2",
    fault: "modes that are stricter, or the user's own choice",
    async run() {
      for (const mode of [0o400, 0o640, 0o600]) {
        const { server, file } = serveLines(chain(3), { args: QUIET, header: headerText({ version: 2 }) });
        chmodSync(file, mode);
        const { error } = await server.request("append", { entries: [user("x")] });
        // Who may not write is told so; root may.
        if (error) expect(error.data.name).toBe("storage_failed");
        else for (const path of [file, `${file}.v2.bak`]) expect(statSync(path).mode & 0o777).toBe(mode);
      }
    },
  },
  {
    id: "P3",
    fault: "ids and paths of attackers",
    options: SYSTEM,
    async run() {
      const place = temporaryPlace();
      const secret = join(place.home, "secret.txt");
      writeFileSync(secret, `${CANARY}\n`);
      const outside = sessionFile(place, [userText(id(0), null, CANARY)], "../outside.jsonl");
      const root = join(place.home, "sessions");
      mkdirSync(root);
      const inside = sessionFile({ ...place, cwd: root }, chain(2));
      symlinkSync(outside, join(root, "link.jsonl"));
      symlinkSync(place.home, join(root, "folder"));
      const ids = [
        "../x",
        "/etc/passwd",
        "*",
        "%2e%2e",
        "a\0b",
        "x".repeat(300),
        "..",
        ".",
        "a/b",
        "a\\b",
        " ",
        "-",
        "s*",
        "\u202e",
      ];
      for (const confined of [true, false]) {
        const args = ["--session-dir", root, "--session", inside, ...QUIET, ...(confined ? ["--confine"] : [])];
        const server = serveHere(args, { place });
        const before = [imprint(inside), imprint(outside)];
        for (const sessionId of ids) {
          const { data, code } = await server.failure("switch_session", { sessionId });
          expect([code === -32602 || ["invalid_id", "session_not_found"].includes(data.name), sessionId]).toEqual([
            true,
            sessionId,
          ]);
          const made = await server.failure("new_session", { newSessionId: sessionId });
          expect(made.code === -32602 || made.data.name === "invalid_id", sessionId).toBe(true);
        }
        const paths = [
          secret,
          "/etc/passwd",
          "../secret.txt",
          join(root, "..", "secret.txt"),
          join(root, "folder", "secret.txt"),
          "a\0b.jsonl",
          "con",
          "/proc/self/environ",
        ];
        for (const sessionPath of paths)
          for (const method of ["switch_session", "open_session", "verify_session"]) {
            const reply = await answer(server, method, { sessionPath });
            expect(reply, `${method} ${sessionPath}`).toContain('"error"');
            expect(reply).not.toContain(CANARY);
            expect(reply).not.toContain("root:");
            if (confined && !sessionPath.includes("\0")) expect(reply).toContain("path_outside_root");
          }
        if (confined) {
          for (const sessionPath of [outside, join(root, "link.jsonl"), join(root, "folder", "outside.jsonl")])
            expect((await server.failure("switch_session", { sessionPath })).data.name, sessionPath).toBe(
              "path_outside_root",
            );
          for (const outputPath of [join(place.home, "page.html"), join(root, "folder", "page.html")])
            expect((await server.failure("export_html", { outputPath })).data.name).toBe("path_outside_root");
          await server.result("export_html", { outputPath: join(root, "page.html") });
        }
        expect((await server.failure("export_html", { outputPath: inside })).data.name).toBe("already_exists");
        expect((await server.result("get_state")).sessionFile).toBe(inside);
        await server.finish();
        expect([imprint(inside), imprint(outside)]).toEqual(before);
        expect(readdirSync(root).filter((name) => name.endsWith(".jsonl"))).toEqual(
          [inside, join(root, "link.jsonl")].map((file) => basename(file)).sort(),
        );
        expect(readFileSync(secret, "utf8")).toBe(`${CANARY}\n`);
      }
    },
  },
  {
    id: "P4",
    fault: "deleting by a beginning of an id or a pattern",
    async run() {
      const place = temporaryPlace();
      const files = [1, 2].map((n) => putSession(place, n));
      const before = files.map(imprint);
      const server = serveLibrary(place);
      const whole = sessionId(1);
      for (const named of [
        whole.slice(0, -1),
        whole.slice(0, 8),
        "*",
        "0*",
        "?",
        "..",
        "../x",
        ".",
        "%2e",
        `${whole}\0`,
      ])
        for (const method of ["delete_session", "archive_session"]) {
          const { code } = await server.failure(method, { sessionId: named });
          expect(code, `${method} ${named}`).toBeLessThan(0);
        }
      for (const sessionPath of [dirname(files[0]), join(dirname(files[0]), "*.jsonl")])
        expect((await server.failure("delete_session", { sessionPath })).code, sessionPath).toBeLessThan(0);
      expect(files.map(imprint)).toEqual(before);
      await server.result("delete_session", { sessionId: whole, permanent: true });
      expect(files.map((file) => existsSync(file))).toEqual([false, true]);
    },
  },
  {
    id: "P6",
    fault: "names and texts with markup, control characters, escapes, marks of direction",
    async run() {
      const nasty = `</title><script>alert(1)</script><img src=x onerror=alert(1)>" onload="x' \u001b[31m\u202egnp.exe\u0000\u009b31m`;
      const place = temporaryPlace();
      const folder = join(place.home, "sessions");
      mkdirSync(folder);
      const lines = [
        entryText("session_info", id(0), null, { name: nasty }),
        entryText("message", id(1), id(0), {
          timestamp: nasty,
          message: { role: nasty, content: nasty, toolName: nasty },
        }),
        entryText("message", id(2), id(1), {
          message: {
            role: "assistant",
            content: [
              { type: "toolCall", id: nasty, name: nasty, arguments: { [nasty]: nasty } },
              { type: "image", mimeType: `image/png" onload="x`, data: "AAAA" },
              { type: "image", mimeType: "image/png", data: '"><script>' },
            ],
          },
        }),
        entryText("custom_message", id(3), id(2), { customType: nasty, content: nasty, display: true }),
        entryText("model_change", id(4), id(3), { provider: nasty, modelId: nasty }),
        entryText("compaction", id(5), id(4), { summary: nasty, firstKeptEntryId: id(0), tokensBefore: 1 }),
      ];
      sessionFile({ ...place, cwd: folder }, lines, "nasty.jsonl", headerText({ id: "nasty", cwd: nasty }));
      const server = serveHere(["--session-dir", folder, "--session", join(folder, "nasty.jsonl"), ...QUIET], {
        place,
      });
      let raw = "";
      server.output.on("data", (chunk: Buffer) => {
        raw += chunk;
      });
      const { sessions } = await server.result("list_sessions");
      expect(sessions[0]).toMatchObject({ cwd: nasty });
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
      expect(raw.replaceAll("\n", "")).not.toMatch(/[\u0000-\u001f]/);
      const { path } = await server.result("export_html", { outputPath: "page.html" });
      lookAt(readFileSync(path, "utf8"));
    },
  },
  {
    id: "P7",
    fault: "secrets in exports for others",
    why: "an export gives the session as it is; with `redact` it leaves out the secrets that it knows, which `test/handlers/redaction.test.ts` shows",
  },
  {
    id: "P8",
    fault: "failures that could tell too much",
    async run() {
      const place = temporaryPlace();
      const file = sessionFile(place, [userText(id(0), null, CANARY), `{"${CANARY}`, userText(id(1), id(0))]);
      const not = join(place.cwd, "not.jsonl");
      writeFileSync(not, `${CANARY} is no session\n`);
      const server = serveHere(["--session", file, ...QUIET], { place });
      const replies = [
        await answer(server, "switch_session", { sessionPath: "not.jsonl" }),
        await answer(server, "switch_session", { sessionPath: "missing.jsonl" }),
        await answer(server, "get_entry", { entryId: "nowhere" }),
        await answer(server, "append", { entries: [{ type: "message", parentId: "nowhere" }] }),
        await answer(server, "verify_session", {}),
        await answer(server, "repair_session", { dryRun: true }),
        await answer(server, "append", { entries: CANARY }),
        JSON.stringify((await server.result("get_state")).diagnostics),
      ];
      for (const reply of replies) {
        expect(reply).not.toContain(CANARY);
        expect(reply).not.toMatch(/\\n +at |node:internal|\.ts:\d+/);
      }
    },
  },
  {
    id: "P9",
    fault: "JSON made to exhaust: depth, size, numbers, in requests and in files",
    options: SYSTEM,
    async run() {
      const deep = (depth: number): string => `${"[".repeat(depth)}${"]".repeat(depth)}`;
      const call = entryText("message", id(1), id(0), {
        message: { role: "assistant", content: [{ type: "toolCall", id: "c", name: "n", arguments: "DEEP" }] },
      }).replace('"DEEP"', `{"a":${deep(50_000)}}`);
      const custom = entryText("custom", id(2), id(1), { customType: "x", data: "DEEP" }).replace(
        '"DEEP"',
        deep(50_000),
      );
      const lines = [userText(id(0), null), call, custom, userText(id(3), id(2))];
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
      ] as const) {
        const { error } = await server.request(method, params);
        expect(error, method).toBeUndefined();
      }
      server.write(
        `{"jsonrpc":"2.0","id":1,"method":"append","params":{"entries":[{"type":"odd","data":${deep(50_000)}}]}}\n`,
      );
      expect((await server.reply(1)).error).toBeUndefined();
      server.write(`{"jsonrpc":"2.0","id":2,"method":"get_entries","params":${deep(100_000)}}\n`);
      expect((await server.reply(2)).error.code).toBe(-32602);
      server.write(
        `${deep(200_000)}\n{"jsonrpc":"2.0","id":3,"method":"get_state","params":{"a":${"9".repeat(100_000)}}}\n`,
      );
      expect((await server.reply(3)).error.code).toBe(-32602);
    },
  },
]);
