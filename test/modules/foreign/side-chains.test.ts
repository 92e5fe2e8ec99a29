/** Claude Code's side chains within the file of the session that began them: each is a session of its own. */

import { appendFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import type { FidelityReport } from "../../../src/core/ports/fidelity.ts";
import type { Session } from "../../../src/core/session/session.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { addSidechains, CLAUDE_SESSION, ClaudeWriter, randomClaudeSession } from "../../support/foreign/claude.ts";
import { contentsOf, put, serveLibrary } from "../../support/lifecycle.ts";
import { forSeeds } from "../../support/random.ts";
import { type Json, type Place, temporaryFolder, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import {
  damagedLines,
  diskWithForeign,
  drawnContext,
  entriesOf,
  FOREIGN_FILE,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requirePairedAtEveryLeaf,
  requireSound,
} from "./support/checks.ts";

function chainOf(text: string, name: string): Session {
  return foreignSessionOn(diskWithForeign(text), join(FOREIGN_FILE, name));
}

/** Returns the number of a report's records of side chains. */
function countRecords({ kinds }: FidelityReport): number {
  const chains = kinds.filter(({ kind }) => kind.startsWith("sidechain/"));
  return chains.reduce((sum, { preserved, derived, dropped }) => sum + preserved + derived + dropped, 0);
}

/** A session with a side chain that continues a record, or none. */
function makeChain(parent: (asked: string) => string | null, agentId?: string) {
  const w = new ClaudeWriter();
  const asked = w.ask("Look");
  const before = w.text.length;
  Object.assign(w, { isSidechain: true, agentId });
  const name = w.ask("At the shelves", parent(asked));
  w.reply("Marmalade.");
  const text = w.text.slice(before);
  Object.assign(w, { isSidechain: false, agentId: undefined, last: asked });
  w.reply("There is marmalade.");
  return { w, asked, name, text };
}

test("two that run at once are two sessions, and neither is in the one that began them", () => {
  const { writer, names, chainRecords } = addSidechains();
  const main = foreignSession(writer.text);
  requireSound(main);
  expect(requirePairedAtEveryLeaf(main)).toBe(1);
  expect(drawnContext(main)).toEqual([
    "user: Compare the shelves",
    "model: [toolu_one] [toolu_two]",
    "result: Jam.",
    "result: Honey.",
    "model: Jam and honey.",
  ]);
  const begun = entriesOf(main).filter(({ customType }) => customType === "claude:sidechain");
  expect(begun.map(({ data }) => data)).toEqual(names.map((id) => ({ id })));
  const report = fidelityOf(main.log);
  expect([report.warnings, report.records, countRecords(report)]).toEqual([[], writer.records.length, chainRecords]);
  const chains = names.map((name) => chainOf(writer.text, name));
  expect(chains.map((chain) => drawnContext(chain))).toEqual([
    ["user: Look at the first", "model: [toolu_a]", "result: marmalade", "model: Jam."],
    ["user: Look at the second", "model: Honey."],
  ]);
  const reports = chains.map(({ log }) => fidelityOf(log));
  expect(reports.reduce((sum, { records }) => sum + records, 0)).toBe(chainRecords);
  for (const { log } of chains) expect(log.header.parentSession).toBe(FOREIGN_FILE);
  expect(new Set([main, ...chains].map(({ id }) => id)).size).toBe(3);
  for (const chain of chains) requireSound(chain);
  // Records are identified by their lines in the file.
  const first = writer.records.findIndex(({ uuid }) => uuid === names[1]) + 1;
  expect(Math.min(...reports[1].kinds.map((kind) => kind.first))).toBe(first);
});

test("one is the same session as in a file of its own, where its records name the subagent", () => {
  const agentId = "a0123456789abcdef";
  const { w, text } = makeChain(() => null, agentId);
  const apart = foreignSession(text, `/elsewhere/project/${CLAUDE_SESSION}/subagents/agent-${agentId}.jsonl`);
  const within = chainOf(w.text, agentId);
  expect([within.id, entriesOf(within)]).toEqual([apart.id, entriesOf(apart)]);
});

test("a session that begins with one is told by the name of its file, and one that names no parents has one", () => {
  const w = new ClaudeWriter();
  w.isSidechain = true;
  const name = w.ask("Warm up", null);
  w.reply("Ready.");
  w.isSidechain = false;
  w.ask("Hello", null);
  w.reply("Hi.");
  for (const flat of [false, true]) {
    if (flat) for (const record of w.records) record.parentUuid = null;
    expect(drawnContext(foreignSession(w.text))).toEqual(["user: Hello", "model: Hi."]);
    expect(drawnContext(chainOf(w.text, name))).toEqual(["user: Warm up", "model: Ready."]);
  }
});

test("one that continues a record of the session begins there, and a path that names none is no session", () => {
  const { w, asked, name } = makeChain((asked) => asked);
  const chain = chainOf(w.text, name);
  expect(drawnContext(chain)).toEqual(["user: At the shelves", "model: Marmalade."]);
  for (const { log } of [chain, foreignSession(w.text)]) expect(fidelityOf(log).warnings).toEqual([]);
  for (const none of ["none", asked, `${name}.x`, `%${Buffer.from(name).toString("hex")}`])
    expect(() => chainOf(w.text, none)).toThrow("not recognised");
});

test("a record of one behind a torn record belongs to it", () => {
  const { w, name } = makeChain(() => null);
  const lines = w.lines.with(2, `{"type":"user","mess${w.lines[2]}`);
  const text = `${lines.join("\n")}\n`;
  const roles = drawnContext(chainOf(text, name)).map((line) => line.split(":")[0]);
  expect(roles).toEqual(["user", "model"]);
  expect(entriesOf(foreignSession(text)).map(({ customType }) => customType)).toContain("import:claude:damaged");
});

acrossTiers(test, [3, 30])(
  "in files that were damaged at random, each record is in one session, and each session is found (%i)",
  (count) => {
    forSeeds(count, (random) => {
      const { writer } = addSidechains(random.chance(0.5) ? randomClaudeSession(random, 4) : undefined);
      const disk = diskWithForeign(damagedLines(random, writer.lines));
      let main: Session;
      try {
        main = foreignSessionOn(disk);
      } catch {
        return;
      }
      requireSound(main);
      let records = 0;
      for (const path of main.log.foreign?.inner() ?? []) {
        const chain = foreignSessionOn(disk, path);
        requireSound(chain);
        records += fidelityOf(chain.log).records;
      }
      expect(records).toBe(countRecords(fidelityOf(main.log)));
    });
  },
);

function putSession(place: Place, { text }: ClaudeWriter): string {
  return put(join(place.home, ".claude", "projects", "-home-me-project", `${CLAUDE_SESSION}.jsonl`), text);
}

test("lists and searches find them, also in the middle of a long file, and lose them with it", async () => {
  const place = temporaryPlace();
  const lengthen = (w: ClaudeWriter): ClaudeWriter => {
    for (let n = 0; n < 10; n++) w.ask(`Turn ${n} ${"x".repeat(2000)}`);
    return w;
  };
  const { writer, names } = addSidechains(lengthen(new ClaudeWriter()));
  const file = putSession(place, lengthen(writer));
  const before = contentsOf(dirname(file));
  const server = serveLibrary(place);
  const list = async (on = server): Promise<Json[]> => (await on.result("list_sessions", { agents: "all" })).sessions;
  const listed = await list();
  const paths = [file, ...names.map((name) => join(file, name))];
  expect(listed.map(({ sessionPath }) => sessionPath).sort()).toEqual(paths);
  const [main, first, second] = paths.map((path) => listed.find(({ sessionPath }) => sessionPath === path) as Json);
  const begun = { agent: "claude", parentSession: file, forkedFrom: { sessionId: main.sessionId } };
  expect(first).toMatchObject({ ...begun, firstMessage: "Look at the first", messageCount: 4 });
  expect(second).toMatchObject({ ...begun, firstMessage: "Look at the second", messageCount: 2 });
  const request = { query: "marmalade", agents: "all", includeToolResults: true };
  const { hits } = await server.result("search_sessions", request);
  expect(hits.map(({ sessionPath }: Json) => sessionPath)).toEqual([paths[1]]);
  // Another process has them from what the first one kept.
  expect(await list(serveLibrary(place))).toEqual(listed);
  await server.result("switch_session", { sessionPath: paths[1] });
  expect(await server.result("get_state")).toMatchObject({ sessionId: first.sessionId, readOnly: true });
  expect(await server.result("verify_session")).toMatchObject({ ok: true, fidelity: { records: 4 } });
  expect(contentsOf(dirname(file))).toEqual(before);
  writer.isSidechain = true;
  const third = writer.ask("Look at the third", null);
  appendFileSync(file, `${writer.lines.at(-1)}\n`);
  expect((await list()).map(({ sessionPath }) => sessionPath).sort()).toEqual([...paths, join(file, third)].sort());
  rmSync(file);
  expect(await list()).toEqual([]);
});

test("they stay in lists that are made within a time, while other files are not read yet", async () => {
  const place = temporaryPlace();
  const { writer, names } = addSidechains();
  const file = putSession(place, writer);
  // The latest is read first.
  for (let n = 0; n < 8; n++) {
    const other = join(dirname(file), `00000000-0000-4000-8000-00000000000${n}.jsonl`);
    writeFileSync(
      other,
      new ClaudeWriter().text +
        writer.text.slice(0, 400).split("\n")[0] +
        "\n" +
        `{"type":"summary","summary":"${"filler ".repeat(100_000)}"}\n`,
    );
    utimesSync(other, n, n);
  }
  const server = serveLibrary(place);
  const paths = [file, ...names.map((name) => join(file, name))];
  for (let behind = 1, tries = 0; behind > 0 && tries < 500; tries++) {
    const page = await server.result("list_sessions", { agents: ["claude"], within: 1 });
    behind = page.behind ?? 0;
    const listed = page.sessions.map(({ sessionPath }: Json) => sessionPath);
    expect(listed).toEqual(expect.arrayContaining(paths));
  }
});

test("an import takes them along, each once, and knows those that came by themselves", async () => {
  const place = temporaryPlace();
  const { writer, names } = addSidechains();
  const file = putSession(place, writer);
  const server = serveLibrary(place);
  const alone = await server.result("import_session", { path: join(file, names[1]) });
  expect(alone).toMatchObject({ outcome: "new", entryCount: 2, fidelity: { records: 2 } });
  expect(alone.subagents).toBeUndefined();
  const all = await server.result("import_session", { path: file });
  expect(all).toMatchObject({ outcome: "new", fidelity: { records: writer.records.length } });
  const known = { outcome: "known", sessionId: alone.sessionId, sessionPath: alone.sessionPath };
  expect(all.subagents).toMatchObject([{ outcome: "new", entryCount: 4 }, known]);
  const { sessions } = await server.result("list_sessions");
  const [{ sessionId, sessionPath }] = all.subagents;
  const row = { sessionPath, parentSession: all.sessionPath, forkedFrom: { sessionId: all.sessionId } };
  expect(sessions.find((one: Json) => one.sessionId === sessionId)).toMatchObject(row);
  const again = await server.result("import_session", { path: file });
  expect([again, ...again.subagents].map(({ outcome }: Json) => outcome)).toEqual(["known", "known", "known"]);
  expect(again.subagents.map((one: Json) => one.sessionId)).toEqual(all.subagents.map((one: Json) => one.sessionId));
});

test("one is followed while the agent writes, and is another one where the file is", () => {
  const { writer, names } = addSidechains();
  const file = put(join(temporaryFolder(), `${CLAUDE_SESSION}.jsonl`), writer.text);
  const session = foreignSessionOn(realDisk, join(file, names[0]));
  const { length } = writer.text;
  const grown = (): number => session.refresh()?.positions.length ?? 0;
  writer.ask("Only here");
  writer.isSidechain = true;
  writer.ask("And below?", names[0]);
  appendFileSync(file, writer.text.slice(length));
  expect([grown(), grown()]).toEqual([1, 0]);
  expect(drawnContext(session)).toEqual(["user: Look at the first", "user: And below?"]);
  writeFileSync(file, writer.text.replaceAll("Look at the first", "Look at the last"));
  session.refresh();
  expect(drawnContext(session)).toEqual(["user: Look at the last", "user: And below?"]);
});
