/** Claude Code's side chains within the file of the session that began them: each is a session of its own. */

import { appendFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import type { Session } from "../../src/core/session/session.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import {
  damagedLines,
  diskWithForeign,
  entriesOf,
  FOREIGN_FILE,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requirePairedAtEveryLeaf,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import { CLAUDE_SESSION, ClaudeWriter, randomClaudeSession, said, withSideChains } from "../support/foreign/claude.ts";
import { contentsOf, put, serveLibrary } from "../support/lifecycle.ts";
import { forSeeds } from "../support/random.ts";
import { type Json, type Place, temporaryFolder, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

function chainOf(text: string, name: string): Session {
  return foreignSessionOn(diskWithForeign(text), join(FOREIGN_FILE, name));
}

function saidIn(session: Session): unknown[] {
  return strictContext(session).map(({ content }) =>
    Array.isArray(content) ? content.map(({ text, name }) => text ?? name).join() : content,
  );
}

test("two that run at once are two sessions, and neither is in the one that began them", () => {
  const { writer, names, sideRecords } = withSideChains();
  const main = foreignSession(writer.text);
  requireSound(main);
  expect(requirePairedAtEveryLeaf(main)).toBe(1);
  expect(saidIn(main)).toEqual(["Compare the shelves", "Task,Task", "Jam.", "Honey.", "Jam and honey."]);
  const begun = entriesOf(main).filter(({ customType }) => customType === "claude:sidechain");
  expect(begun.map(({ data }) => data)).toEqual(names.map((id) => ({ id })));
  const report = fidelityOf(main.log);
  expect(report.warnings).toEqual([]);
  expect(report.records).toBe(writer.records.length);
  const aside = report.kinds.filter(({ kind }) => kind.startsWith("sidechain/"));
  expect(aside.reduce((sum, { preserved, derived, dropped }) => sum + preserved + derived + dropped, 0)).toBe(
    sideRecords,
  );
  const chains = names.map((name) => chainOf(writer.text, name));
  expect(chains.map(saidIn)).toEqual([
    ["Look at the first", "Bash", "marmalade", "Jam."],
    ["Look at the second", "Honey."],
  ]);
  const reports = chains.map(({ log }) => fidelityOf(log));
  expect(reports.reduce((sum, { records }) => sum + records, 0)).toBe(sideRecords);
  for (const { log } of chains) expect(log.header.parentSession).toBe(FOREIGN_FILE);
  expect(new Set([main, ...chains].map(({ id }) => id)).size).toBe(3);
  for (const chain of chains) requireSound(chain);
  // Records are told by their lines in the file.
  const first = writer.records.findIndex(({ uuid }) => uuid === names[1]) + 1;
  expect(Math.min(...reports[1].kinds.map((kind) => kind.first))).toBe(first);
});

test("one is the same session as in a file of its own, where its records name the subagent", () => {
  const agentId = "a0123456789abcdef";
  const w = new ClaudeWriter();
  w.human("Look");
  const begin = w.records.length;
  Object.assign(w, { isSidechain: true, agentId, last: null });
  w.human("At the shelves");
  w.answer([said("Marmalade.")]);
  const end = w.records.length;
  Object.assign(w, { isSidechain: false, agentId: undefined });
  w.answer([said("There is marmalade.")], w.records[0].uuid as string);
  const own = `${w.lines.slice(begin, end).join("\n")}\n`;
  const apart = foreignSession(own, `/elsewhere/project/${CLAUDE_SESSION}/subagents/agent-${agentId}.jsonl`);
  const within = chainOf(w.text, agentId);
  expect([within.id, entriesOf(within)]).toEqual([apart.id, entriesOf(apart)]);
});

test("a session that begins with one is told by the name of its file, and one that names no parents has one", () => {
  const w = new ClaudeWriter();
  w.isSidechain = true;
  const name = w.human("Warm up", null);
  w.answer([said("Ready.")]);
  w.isSidechain = false;
  w.human("Hello", null);
  w.answer([said("Hi.")]);
  for (const flat of [false, true]) {
    if (flat) for (const record of w.records) record.parentUuid = null;
    expect(saidIn(foreignSession(w.text))).toEqual(["Hello", "Hi."]);
    expect(saidIn(chainOf(w.text, name))).toEqual(["Warm up", "Ready."]);
  }
});

test("one that continues a record of the session begins there, and a path that names none is no session", () => {
  const w = new ClaudeWriter();
  const asked = w.human("Look");
  w.isSidechain = true;
  const name = w.human("At the shelves", asked);
  w.isSidechain = false;
  const chain = chainOf(w.text, name);
  expect(saidIn(chain)).toEqual(["At the shelves"]);
  expect(fidelityOf(chain.log).warnings).toEqual([]);
  expect(fidelityOf(foreignSession(w.text).log).warnings).toEqual([]);
  for (const none of ["none", asked, `${name}.x`, `%${Buffer.from(name).toString("hex")}`])
    expect(() => chainOf(w.text, none)).toThrow("not recognised");
});

acrossTiers(test, [3, 30])(
  "in files that were damaged at random, each record is in one session, and each session is found (%i)",
  (count) => {
    forSeeds(count, (random) => {
      const { writer } = withSideChains(random.chance(0.5) ? randomClaudeSession(random, 4) : undefined);
      const file = FOREIGN_FILE;
      const disk = diskWithForeign(damagedLines(random, writer.lines), file);
      let main: Session;
      try {
        main = foreignSessionOn(disk, file);
      } catch {
        return;
      }
      requireSound(main);
      requirePairedAtEveryLeaf(main);
      let aside = 0;
      for (const { kind, preserved, derived, dropped } of fidelityOf(main.log).kinds)
        if (kind.startsWith("sidechain/")) aside += preserved + derived + dropped;
      for (const path of main.log.foreign?.inner() ?? []) {
        const chain = foreignSessionOn(disk, path);
        requireSound(chain);
        requirePairedAtEveryLeaf(chain);
        aside -= fidelityOf(chain.log).records;
      }
      expect(aside).toBe(0);
    });
  },
);

function putSession(place: Place, writer: ClaudeWriter): string {
  return put(join(place.home, ".claude", "projects", "-home-me-project", `${CLAUDE_SESSION}.jsonl`), writer.text);
}

test("lists and searches find them, also in the middle of a long file, and lose them with it", async () => {
  const place = temporaryPlace();
  const long = new ClaudeWriter();
  for (let n = 0; n < 10; n++) long.human(`Turn ${n} ${"x".repeat(2000)}`);
  const { writer, names } = withSideChains(long);
  for (let n = 0; n < 10; n++) writer.human(`Turn ${n} ${"x".repeat(2000)}`);
  const file = putSession(place, writer);
  const before = contentsOf(dirname(file));
  const server = serveLibrary(place);
  const list = async (on = server): Promise<Json[]> => (await on.result("list_sessions", { agents: "all" })).sessions;
  const listed = await list();
  const paths = [file, ...names.map((name) => join(file, name))];
  expect(listed.map(({ sessionPath }) => sessionPath).sort()).toEqual(paths);
  const main = listed.find(({ sessionPath }) => sessionPath === file) as Json;
  const [first, second] = paths.slice(1).map((path) => listed.find(({ sessionPath }) => sessionPath === path) as Json);
  expect(first).toMatchObject({
    agent: "claude",
    firstMessage: "Look at the first",
    messageCount: 4,
    parentSession: file,
    forkedFrom: { sessionId: main.sessionId },
  });
  expect(second).toMatchObject({ firstMessage: "Look at the second", messageCount: 2, parentSession: file });
  const { hits } = await server.result("search_sessions", {
    query: "marmalade",
    agents: "all",
    includeToolResults: true,
  });
  expect(hits.map(({ sessionPath }: Json) => sessionPath)).toEqual([paths[1]]);
  // Another process has them from what the first one kept.
  expect(await list(serveLibrary(place))).toEqual(listed);
  await server.result("switch_session", { sessionPath: paths[1] });
  expect(await server.result("get_state")).toMatchObject({ sessionId: first.sessionId, readOnly: true });
  expect(await server.result("verify_session")).toMatchObject({ ok: true, fidelity: { records: 4 } });
  expect(contentsOf(dirname(file))).toEqual(before);
  writer.isSidechain = true;
  const third = writer.human("Look at the third", null);
  const { lines } = writer;
  appendFileSync(file, `${lines[lines.length - 1]}\n`);
  expect((await list()).map(({ sessionPath }) => sessionPath).sort()).toEqual([...paths, join(file, third)].sort());
  rmSync(file);
  expect(await list()).toEqual([]);
});

test("an import takes them along, each once, and knows those that came by themselves", async () => {
  const place = temporaryPlace();
  const { writer, names } = withSideChains();
  const file = putSession(place, writer);
  const server = serveLibrary(place);
  const alone = await server.result("import_session", { path: join(file, names[1]) });
  expect(alone).toMatchObject({ outcome: "new", entryCount: 2, fidelity: { records: 2 } });
  expect(alone.subagents).toBeUndefined();
  const all = await server.result("import_session", { path: file });
  expect(all).toMatchObject({ outcome: "new", fidelity: { records: writer.records.length } });
  expect(all.subagents).toMatchObject([
    { outcome: "new", entryCount: 4 },
    { outcome: "known", sessionId: alone.sessionId, sessionPath: alone.sessionPath },
  ]);
  const { sessions } = await server.result("list_sessions");
  const [{ sessionId, sessionPath }] = all.subagents;
  expect(sessions.find((one: Json) => one.sessionId === sessionId)).toMatchObject({
    sessionPath,
    parentSession: all.sessionPath,
    forkedFrom: { sessionId: all.sessionId },
  });
  const again = await server.result("import_session", { path: file });
  expect([again, ...again.subagents].map(({ outcome }: Json) => outcome)).toEqual(["known", "known", "known"]);
  expect(again.subagents.map((one: Json) => one.sessionId)).toEqual(all.subagents.map((one: Json) => one.sessionId));
});

test("one is followed while the agent writes, and is another one where the file is", () => {
  const { writer, names } = withSideChains();
  const file = put(join(temporaryFolder(), `${CLAUDE_SESSION}.jsonl`), writer.text);
  const session = foreignSessionOn(realDisk, join(file, names[0]));
  const { length } = writer.lines;
  const grown = (): number => session.refresh()?.positions.length ?? 0;
  writer.human("Only here");
  Object.assign(writer, { isSidechain: true });
  writer.human("And below?", names[0]);
  appendFileSync(file, `${writer.lines.slice(length).join("\n")}\n`);
  expect(grown()).toBe(1);
  expect(saidIn(session)).toEqual(["Look at the first", "And below?"]);
  expect(grown()).toBe(0);
  writeFileSync(file, writer.text.replaceAll("Look at the first", "Look at the last"));
  session.refresh();
  expect(saidIn(session)).toEqual(["Look at the last", "And below?"]);
});
