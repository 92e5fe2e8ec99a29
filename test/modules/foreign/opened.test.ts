/** Sessions of other agents over the wire: read like any other, never written, and taken along by a fork or an import. */

import { appendFileSync, mkdirSync, truncateSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { CLAUDE_SESSION, randomClaudeSession, wholeClaudeSession } from "../../support/foreign/claude.ts";
import { randomCodexSession } from "../../support/foreign/codex.ts";
import { opencodeDatabase } from "../../support/foreign/databases.ts";
import { OPENCODE_SESSION, wholeOpencodeExport } from "../../support/foreign/opencode.ts";
import { contentsOf, put, read, rootOf, serveLibrary } from "../../support/lifecycle.ts";
import { Random } from "../../support/random.ts";
import { type HereServer, type Place, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { entriesOf, fidelityOf, foreignSessionOn } from "./support/checks.ts";

function claudeFile(place: Place, text = wholeClaudeSession().text): string {
  return put(join(place.home, ".claude", "projects", "-home-me-project", `${CLAUDE_SESSION}.jsonl`), text);
}

function besides(file: string): Record<string, string> {
  return contentsOf(dirname(dirname(dirname(file))));
}

async function expectRefused(server: HereServer, method: string, params: object): Promise<void> {
  const { data, message } = await server.failure(method, params);
  expect([method, params, data.name]).toEqual([method, params, "read_only"]);
  expect(message).toContain("import_session makes it yours");
}

const HELLO = { entries: [{ type: "message", message: { role: "user", content: "hello" } }] };

test("one opens like any other, and nothing is written beside it", async () => {
  const place = temporaryPlace();
  const file = claudeFile(place);
  const before = besides(file);
  const server = serveLibrary(place);
  await server.result("switch_session", { sessionPath: file });
  const state = await server.result("get_state");
  const facts = { store: "foreign", readOnly: true, persisted: true, diagnostics: [] };
  const named = { sessionName: "My own title", cwd: "/home/me/project" };
  expect(state).toMatchObject({ sessionFile: file, ...facts, ...named });
  expect(await server.result("verify_session")).toMatchObject({ ok: true, damage: [] });
  expect(JSON.stringify(await server.result("get_tree"))).toContain("No, list the folders");
  const exported = join(place.home, "out.jsonl");
  await server.result("export_session", { outputPath: exported, format: "jsonl" });
  expect(JSON.parse(read(exported).split("\n")[0])).toMatchObject({ type: "session", version: 3 });
  await expectRefused(server, "append", HELLO);
  await expectRefused(server, "set_session_name", { name: "other" });
  await expectRefused(server, "create_checkpoint", {});
  await server.result("close_session", { sessionId: state.sessionId });
  for (const method of ["delete_session", "archive_session"])
    await expectRefused(server, method, { sessionPath: file });
  await expectRefused(server, "relocate_session", { sessionPath: file, cwd: place.cwd });
  expect(besides(file)).toEqual(before);
});

test.each(["alone", "with others"])("a document of more than 512 MB is refused, not read: %s", async (how) => {
  const place = temporaryPlace();
  const task = join(place.home, "tasks", "1784094124598");
  const file = put(join(task, "api_conversation_history.json"), '[{"role":"user","content":"hello"},');
  truncateSync(file, 2 ** 29 + 1);
  if (how !== "alone") put(join(task, "ui_messages.json"), "[]");
  const { data, message } = await serveLibrary(place).failure("switch_session", { sessionPath: file });
  expect(data).toMatchObject({ name: "not_a_session", format: "cline" });
  expect(message).toBe(
    `${file} is one JSON document of more than 512 MB, which this program does not read. It was left as it is.`,
  );
});

const ASKS = [
  ["migrate_session", {}],
  ["rollback_migration", {}],
  ["migration_status", {}],
  ["migrate_session", { dryRun: true }],
  ["migrate_session", { to: "jsonl" }],
  ["migrate_session", { to: "jsonl", dryRun: true }],
] as const;

acrossTiers(test, ["each method", "all parameters"])(
  "a migration of one is refused with what to do, wherever its session is (%s)",
  async (which) => {
    const place = temporaryPlace();
    const database = join(place.home, ".local/share/opencode/opencode.db");
    mkdirSync(dirname(database), { recursive: true });
    opencodeDatabase(database, [wholeOpencodeExport()]).close();
    const server = serveLibrary(place);
    const expectChange = async (more: object): Promise<void> => {
      for (const [method, params] of which === "each method" ? ASKS.slice(0, 3) : ASKS)
        await expectRefused(server, method, { ...params, ...more });
    };
    for (const sessionPath of [claudeFile(place), join(database, OPENCODE_SESSION)]) {
      await expectChange({ sessionPath });
      await server.result("switch_session", { sessionPath });
      if (which === "all parameters") await expectChange({ sessionPath });
      await expectChange({});
    }
  },
);

test("a clone is ours, in the folder of the session's directory", async () => {
  const place = temporaryPlace();
  const file = claudeFile(place);
  const before = besides(file);
  const server = serveLibrary(place);
  await server.result("switch_session", { sessionPath: file });
  const { leafId } = await server.result("get_state");
  await server.result("clone");
  const clone = await server.result("get_state");
  expect(clone).toMatchObject({ store: "jsonl", readOnly: false, parentSession: file, leafId });
  expect(clone.sessionFile.startsWith(rootOf(place))).toBe(true);
  await server.result("append", HELLO);
  expect(besides(file)).toEqual(before);
});

test("an import is new, then known, then continued; another past is a conflict", async () => {
  const place = temporaryPlace();
  const { lines } = randomClaudeSession(new Random(7), 8);
  const file = claudeFile(place, `${lines.slice(0, 20).join("\n")}\n`);
  const server = serveLibrary(place);
  const take = () => server.result("import_session", { path: file });
  const first = await take();
  expect(first).toMatchObject({ outcome: "new", fidelity: { agent: "claude", records: 20 } });
  expect(await take()).toEqual({ ...first, operationId: undefined, outcome: "known" });
  appendFileSync(file, `${lines.slice(20).join("\n")}\n`);
  const { sessionId, sessionPath } = first;
  expect(await take()).toMatchObject({ outcome: "continued", sessionId, sessionPath });
  const countIn = async (sessionPath: string): Promise<number> => {
    await server.result("switch_session", { sessionPath });
    return (await server.result("get_state")).entryCount;
  };
  // An answer that was not complete when it was imported stays next to the one that it became.
  expect((await countIn(sessionPath)) - (await countIn(file))).toBeLessThanOrEqual(1);
  writeFileSync(file, `${lines.join("\n").replaceAll("Turn 0", "Turn zero")}\n`);
  expect(await take()).toMatchObject({ outcome: "conflict" });
});

acrossTiers(test, [9, 3])(
  "wherever the source was cut, the rest continues its import (at each %ith line)",
  async (step) => {
    const { lines, text } = randomClaudeSession(new Random(3), 4);
    for (let cut = 1; cut < lines.length; cut += step) {
      const place = temporaryPlace();
      const file = claudeFile(place, `${lines.slice(0, cut).join("\n")}\n`);
      const server = serveLibrary(place);
      await server.result("import_session", { path: file });
      writeFileSync(file, text);
      const { outcome, sessionPath } = await server.result("import_session", { path: file });
      expect([cut, outcome]).toEqual([cut, "continued"]);
      await server.result("switch_session", { sessionPath });
      const context = await server.result("get_context", { strict: true });
      await server.result("switch_session", { sessionPath: file });
      expect(context.messages).toEqual((await server.result("get_context", { strict: true })).messages);
      server.end();
      await server.rest();
    }
  },
);

test.each([
  ["Claude Code", randomClaudeSession(new Random(5), 6).lines],
  ["Codex", randomCodexSession(new Random(5), 6).lines],
])("%s is followed while it writes", (_agent, lines) => {
  const place = temporaryPlace();
  const file = claudeFile(place, `${lines[0]}\n`);
  const open = () => foreignSessionOn(realDisk, file, place.state);
  const session = open();
  for (const line of lines.slice(1)) {
    const half = Math.floor(line.length / 2);
    appendFileSync(file, line.slice(0, half));
    session.refresh();
    const before = entriesOf(session);
    session.refresh();
    expect(entriesOf(session)).toEqual(before);
    appendFileSync(file, `${line.slice(half)}\n`);
    const refreshed = session.refresh();
    if (session.log.nodes.count > before.length) expect(refreshed?.positions.length).toBeGreaterThan(0);
  }
  const other = open();
  expect(entriesOf(session)).toEqual(entriesOf(other));
  expect(session.leafId).toBe(other.leafId);
  expect(fidelityOf(session.log)).toEqual(fidelityOf(other.log));
  writeFileSync(file, `${lines.slice(0, 9).join("\n")}\n`);
  session.refresh();
  expect(entriesOf(session)).toEqual(entriesOf(open()));
});

test("a confined server reads what is inside of its folders, and no link of another agent's leads it out", async () => {
  const place = temporaryPlace();
  const inside = put(join(place.cwd, "given", "session.jsonl"), wholeClaudeSession().text);
  const outside = claudeFile(place);
  const server = serveLibrary(place, ["--confine", "--allow-path", join(place.cwd, "given")]);
  await server.result("switch_session", { sessionPath: inside });
  expect(await server.result("get_state")).toMatchObject({ store: "foreign", readOnly: true });
  expect((await server.failure("switch_session", { sessionPath: outside })).data.name).toBe("path_outside_root");
  expect((await server.failure("import_session", { path: outside })).data.name).toBe("path_outside_root");
  expect((await server.result("import_session", { path: inside })).outcome).toBe("new");
  expect((await server.result("list_sessions", { agents: ["claude"] })).sessions).toEqual([]);
});
