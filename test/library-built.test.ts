/** The library as it is installed: one file, which loads nothing that opening a session does not need. */

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { chain, fileText, headerText } from "./support/lines.ts";
import { temporaryFolder } from "./support/server.ts";
import { SYSTEM } from "./support/tiers.ts";

const LIBRARY = fileURLToPath(new URL("../dist/lib/index.js", import.meta.url));

/** Runs a script that has the library as `library`. Returns its JSON output. `handles`: most open files. */
function run(script: string, home: string, handles = 20_000): unknown {
  const text = `import * as library from ${JSON.stringify(LIBRARY)};\n${script}`;
  const options = { env: { HOME: home }, encoding: "utf8" } as const;
  const node = [process.execPath, "--input-type=module", "-e", text];
  const limited = ["-c", `ulimit -n ${handles} && exec "$@"`, "sh", ...node];
  return JSON.parse(execFileSync("sh", limited, options));
}

test("it imports no other file", () => {
  const imported = readFileSync(LIBRARY, "utf8").matchAll(/^(?:import|export)\b[^;]*?from "([^"]+)"/gm);
  expect([...imported].map(([, from]) => from).filter((from) => !from.startsWith("node:"))).toEqual([]);
});

test("opening a session loads no sockets, hashes or compression; writing to it loads what it needs", SYSTEM, () => {
  const home = temporaryFolder();
  const path = join(home, "session.jsonl");
  writeFileSync(path, fileText(headerText(), ...chain(3)));
  const script = `
    const loaded = () => ["net", "crypto", "zlib"].filter((name) => process.moduleLoadList.includes("NativeModule " + name));
    const before = loaded();
    const manager = library.SessionManager.open(${JSON.stringify(path)});
    const { messages } = manager.buildSessionContext();
    const opened = loaded();
    manager.appendMessage({ role: "user", content: "more", timestamp: 1 });
    const draws = loaded().includes("crypto");
    console.log(JSON.stringify({ before, opened, draws, messages: messages.length, entries: manager.getEntryCount() }));`;
  // Ids are drawn from the system's device, where there is one.
  const draws = !existsSync("/dev/urandom");
  expect(run(script, home)).toEqual({ before: [], opened: [], draws, messages: 3, entries: 4 });
});

test("sessions that are no session files are opened by a second file, which throws the same failures", SYSTEM, () => {
  const home = temporaryFolder();
  const path = join(home, "session.jsonl");
  const text = join(home, "notes.txt");
  const claude = join(home, "claude.jsonl");
  writeFileSync(path, fileText(headerText(), ...chain(3)));
  writeFileSync(text, "hello\n");
  const message = { role: "user", content: "hello" };
  const record = { type: "user", uuid: "u1", parentUuid: null, sessionId: "s1", timestamp: "2026-01-01T00:00:00.000Z" };
  writeFileSync(claude, `${JSON.stringify({ ...record, cwd: "/p", version: "2.0.0", message })}\n`);
  const script = `
    import { createRequire } from "node:module";
    const { SessionManager, Failure } = library;
    const { cache } = createRequire(import.meta.url);
    const isLoaded = () => Object.keys(cache).some((name) => name.endsWith("others.cjs"));
    SessionManager.open(${JSON.stringify(path)});
    const before = isLoaded();
    const failures = [];
    const refused = (act) => {
      try {
        act();
      } catch (error) {
        failures.push([error instanceof Failure, error.name]);
      }
    };
    refused(() => SessionManager.open(${JSON.stringify(text)}));
    const container = SessionManager.open(${JSON.stringify(join(home, "made.v2"))});
    container.appendMessage({ role: "user", content: "one", timestamp: 1 });
    container.close();
    const again = SessionManager.open(container.getSessionFile());
    const other = SessionManager.open(${JSON.stringify(claude)});
    refused(() => other.appendMessage({ role: "user", content: "more", timestamp: 1 }));
    const texts = [again, other].map((manager) => JSON.stringify(manager.buildSessionContext().messages[0].content));
    console.log(JSON.stringify({ before, after: isLoaded(), failures, texts }));`;
  const output = run(script, home) as { failures: unknown; texts: string[] };
  expect(output).toMatchObject({ before: false, after: true });
  expect(output.failures).toEqual([
    [true, "not_a_session"],
    [true, "read_only"],
  ]);
  expect(output.texts[0]).toContain("one");
  expect(output.texts[1]).toContain("hello");
});

test("it writes, forks and lists sessions, and finds the latest", SYSTEM, () => {
  const home = temporaryFolder();
  const script = `
    const { SessionManager, findMostRecentSession } = library;
    const manager = SessionManager.create("/p");
    manager.appendMessage({ role: "user", content: "one", timestamp: 1 });
    await manager.flush();
    const forked = SessionManager.forkFrom(manager.getSessionFile(), "/p");
    const listed = await SessionManager.listAll();
    console.log(JSON.stringify({
      listed: listed.map(({ id }) => id).sort(),
      made: [manager.getSessionId(), forked.getSessionId()].sort(),
      latest: findMostRecentSession(forked.getSessionDir()) === forked.getSessionFile(),
    }));`;
  const { listed, made, latest } = run(script, home) as Record<string, unknown>;
  expect([listed, latest]).toEqual([made, true]);
});

test("more managers append at a time than files may be open for", SYSTEM, () => {
  const home = temporaryFolder();
  const script = `
    const { SessionManager } = library;
    const managers = Array.from({ length: 90 }, () => SessionManager.create(${JSON.stringify(home)}, ${JSON.stringify(home)}));
    for (const manager of managers) manager.appendMessage({ role: "assistant", content: [{ type: "text", text: "a" }] });
    for (const manager of managers) manager.appendMessage({ role: "user", content: "b" });
    console.log(JSON.stringify(managers.map((manager) => manager.getEntryCount()).filter((count) => count !== 2)));`;
  expect(run(script, home, 300)).toEqual([]);
});
