/** Commands and verbs for all sessions, with those of other agents. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { CodexWriter } from "../../support/foreign/codex.ts";
import { FORMATS } from "../../support/foreign/formats.ts";
import { wholeOmpSession } from "../../support/foreign/omp.ts";
import { OpencodeWriter, words } from "../../support/foreign/opencode.ts";
import { put, serveLibrary } from "../../support/lifecycle.ts";
import { temporaryPlace } from "../../support/server.ts";
import { playVerbs, runHere } from "../../support/verbs.ts";

test("another agent's session is named by its id: it is read and imported, and a change says whose it is", async () => {
  const place = temporaryPlace();
  for (const { format, path, text } of FORMATS) {
    if (format === "copilot" || format === "goose") put(join(place.home, path), text);
    if (format === "goose") put(join(place.cwd, "given.json"), text);
  }
  const hashes = true;
  const { stdout } = await runHere(place, ["list", "--agents", "copilot", "--json"], { hashes });
  const id = JSON.parse(stdout).sessions[0].sessionId.slice(0, 8);
  const hashed = playVerbs(place, { id }, { hashes });
  for (const refused of ["delete {id}", "archive {id}", "relocate {id} {cwd}"])
    await hashed(`$ ${refused}\n! {...}import {id} copies it into a session of yours.{...}`);
  await hashed(`
    $ show ${id} :: Clean\\.
    $ verify ${id}
    - pi_agent_rust
    $ import ${id} :: It is now at
    !0 This machine has no {...}
    $ show given.json :: The second summary`);
});

test("Pi's needs are none of another agent's file", async () => {
  const place = temporaryPlace();
  const w = wholeOmpSession();
  w.add("message", { message: { role: "assistant", content: [] } });
  const sessionPath = put(join(place.cwd, "omp.jsonl"), w.text);
  const verified = await serveLibrary(place).result("verify_session", { sessionPath });
  expect(verified).toMatchObject({ ok: true, damage: [] });
});

type Forked = readonly [path: string, text: string][];

/** A session of Codex and a fork of it, whose copies have the time of the fork, and whose count of tokens goes on. */
function codexFork(): Forked {
  const [first, second] = ["1", "2"].map((n) => `01996f10-2222-7333-8444-55555555555${n}`);
  const original = new CodexWriter();
  original.meta({ id: first });
  original.context("gpt-5-codex", "medium");
  original.ask("First question");
  original.reply("First answer");
  const fork = new CodexWriter();
  fork.meta({ id: second, forked_from_id: first });
  Object.assign(fork, { spent: 100 });
  for (const { type, payload } of [...original.records]) fork.line(type as string, payload);
  original.ask("Goes on");
  original.reply("As it was");
  fork.ask("Another question");
  fork.reply("Another answer");
  const fileOf = (id: string): string => `.codex/sessions/2026/09/14/rollout-2026-09-14T08-00-00-${id}.jsonl`;
  return [
    [fileOf(first), original.text],
    [fileOf(second), fork.text],
  ];
}

/** An export of opencode's and a fork of it, whose copies have ids and times of their own. */
function opencodeFork(): Forked {
  const original = new OpencodeWriter();
  original.info = { ...original.info, id: "ses_a" };
  for (const text of ["One", "Two"]) {
    original.user([words(text)]);
    original.step([words(`${text} answered`)]);
  }
  const created = Date.UTC(2026, 9, 1);
  const time = { created: created + 1, completed: created + 2 };
  const fork = new OpencodeWriter();
  fork.info = { ...fork.info, id: "ses_b", parentID: "ses_a", time: { created, updated: created } };
  for (const { info, parts } of original.messages) {
    const id = fork.id("msg");
    const copies = parts.map((part) => ({ ...part, id: fork.id("prt"), messageID: id, sessionID: "ses_b" }));
    fork.messages.push({ info: { ...info, id, sessionID: "ses_b", time }, parts: copies });
  }
  fork.user([words("Three")], { time });
  fork.step([words("Three answered")]);
  return [
    ["ses_a.json", original.text],
    ["ses_b.json", fork.text],
  ];
}

test.each([
  ["Codex", codexFork, [2, 240, 0], [3, 360, 120]],
  ["opencode", opencodeFork, [3, 414, 0], [3, 414, 276]],
] as const)(
  "what a fork of %s has of its original counts once, also before that is imported",
  async (_, make, alone, both) => {
    const place = temporaryPlace();
    const [original, fork] = make().map(([path, text]) => put(join(place.home, path), text));
    const server = serveLibrary(place, ["--no-session"]);
    const spent = async (): Promise<number[]> => {
      const { totals } = await server.result("get_usage");
      return [totals.messages, totals.tokens.total, totals.inherited.tokens.total];
    };
    const { sessionPath } = await server.result("import_session", { path: fork });
    expect(await spent()).toEqual(alone);
    await server.result("import_session", { path: original });
    expect(await spent()).toEqual(both);
    await server.result("switch_session", { sessionPath });
    const { tokens, inherited } = await server.result("get_session_stats");
    expect(inherited.tokens.total).toBe(both[2]);
    expect(tokens.total).toBeGreaterThan(inherited.tokens.total);
    expect((await server.result("import_session", { path: fork })).outcome).toBe("known");
  },
);
