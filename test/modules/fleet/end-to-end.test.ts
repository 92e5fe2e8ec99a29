/** A server whose sessions are also in a fleet: the events of a host, and the effect of a repeated request. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import * as z from "zod";
import { Failure } from "../../../src/core/failure.ts";
import { LEAF_MARKER } from "../../../src/core/format/node-reader.ts";
import { declarations } from "../../../src/handlers/shared/declarations.ts";
import { assistant, user } from "../../support/drafts.ts";
import { HereLives } from "../../support/proof.ts";
import { type Json, temporaryFolder, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";
import { entriesOf, FleetServer, idsOf } from "./support/server.ts";

const NOWHERE = "01991f6e-1f1d-7c3e-b0a4-000000000000";

test("every change has a result that says where it is, but for one, and so in Pi's dialect", async () => {
  const changes = declarations.commands.filter(({ effect }) => effect === "write" || effect === "replace");
  const silent = changes.filter(({ result }) => !(result instanceof z.ZodObject && "durability" in result.shape));
  expect(silent.map(({ name }) => name)).toEqual(["set_thinking_level"]);
  const ofPi = changes.flatMap(({ name, pi }) => (pi ? [name] : []));
  expect(ofPi.sort()).toEqual(["new_session", "set_model", "set_session_name"]);
  const one = await new FleetServer([], { isJournaled: true }).start("--dialect", "pi");
  const said: Json[] = [];
  const appended = (): Json[] => said.filter(({ type }) => type === "session_append");
  const heard = async (count: number): Promise<void> => {
    while (appended().length < count) said.push(...(await one.wire.take(1)));
  };
  one.wire.send({ id: "1", type: "append", entries: [user("one")] });
  await heard(1);
  one.loses();
  one.wire.send({ id: "2", type: "append", entries: [user("two")] });
  one.wire.send({ id: "3", type: "set_session_name", name: "away" });
  one.wire.send({ id: "4", type: "set_thinking_level", level: "high" });
  await heard(4);
  const reply = (id: string): Json => said.find((message) => message.id === id);
  expect(reply("2").data.durability).toBe("local");
  // As Pi has them.
  for (const id of ["3", "4"]) expect([reply(id).success, "data" in reply(id)]).toEqual([true, false]);
  expect(appended().map(({ durability }) => durability)).toEqual([undefined, "local", "local", "local"]);
});

test("losses that cannot be asked for count as unknown", async () => {
  const rowsOf = async (): Promise<never> => {
    throw new Failure("storage_failed", "test: a damaged page", { fleet: true });
  };
  const one = await new FleetServer([], { adminQueries: { rowsOf } as never }).start();
  await one.append("one");
  expect((await one.result("get_health")).fleet).toMatchObject({ away: null, lacking: null, commits: 0 });
});

test("writes that wait behind one that no database answered fail with it, each once, and later ones are tried anew", async () => {
  const one = new FleetServer();
  const { sessionFile, sessionId } = await one.make(["one"]);
  await one.start("--session", sessionFile);
  await one.state();
  const { fleet } = one;
  one.loses();
  let answer = (): void => {};
  const hung = new Promise<void>((resolve) => {
    answer = resolve;
  });
  fleet.turns = () => hung;
  fleet.calls.length = 0;
  const writes = ["two", "three", "four"];
  for (const id of writes) one.wire.ask(id, "append", { entries: entriesOf(id) });
  one.wire.ask("read", "get_entries", {});
  await vi.waitFor(() => expect(fleet.calls).toEqual(["take"]));
  answer();
  for (const id of writes) {
    const { data } = (await one.wire.reply(id)).error;
    expect(data).toMatchObject({ name: "storage_failed", fleet: true, retryable: true });
  }
  expect([idsOf((await one.wire.reply("read")).result), fleet.calls]).toEqual([["one"], ["take"]]);
  one.heals();
  await one.append("five");
  expect(one.inFleet(sessionId)).toEqual(["one", "five"]);
});

test("a session that a host has left is given to the fleet within seconds after that is back", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] });
  onTestFinished(() => void vi.useRealTimers());
  const one = await new FleetServer([], { isJournaled: true }).start();
  const sessionId = await one.begin();
  one.loses();
  await one.append("two");
  await one.result("clone");
  const clone = (await one.state()).sessionId;
  await one.result("new_session");
  one.heals();
  await one.until(
    () => one.inFleet(sessionId).length === 2 && one.inFleet(clone).length >= 2,
    () => vi.advanceTimersByTimeAsync(1000),
  );
  expect(one.inFleet(sessionId)).toEqual(["one", "two"]);
});

test.each([
  ["--read-only", "postgres://db.example/agents", "with --read-only"],
  ["--no-session", "postgres://db.example/agents", "with --read-only or --no-session"],
  ["--read-only", "", "list_sessions"],
  ["--no-session", "", "list_sessions"],
])("with %s (at '%s') it is said what to do about a session of the fleet: %s", async (option, url, words) => {
  const place = temporaryPlace();
  const lives = new HereLives({ place: { ...place, variables: { ...place.variables, PI_FLEET_URL: url } } });
  const wire = await lives.start([option]);
  expect(await wire.failure("open_session", { sessionId: NOWHERE })).toMatchObject({
    ...{ message: expect.stringContaining(words), data: { name: "session_not_found" } },
  });
});

acrossTiers(describe, ["jsonl", "v2"])("with sessions as %s", (store) => {
  const args = ["--store", store];

  test("a commit that nobody knows of is told so, and the same request again has one effect", async () => {
    const one = await new FleetServer(args).start();
    const sessionId = await one.begin();
    for (const fault of ["after", "late"] as const) {
      const id = `two-${fault}`;
      const params = { entries: entriesOf(id), idempotencyKey: `key-${fault}` };
      one.loses(fault);
      // Requests behind it read the state before it.
      const asked = [{ method: "append", params }, { method: "get_entries" }];
      one.wire.send(...asked.map((request) => ({ jsonrpc: "2.0", id: `${request.method} ${fault}`, ...request })));
      const unknown = { name: "outcome_unknown", retryable: true };
      expect((await one.wire.reply(`append ${fault}`)).error.data).toMatchObject(unknown);
      expect(idsOf((await one.wire.reply(`get_entries ${fault}`)).result)).not.toContain(id);
      // As long as the fleet is away, it stays unknown.
      expect((await one.refused("append", params)).name).toBe("outcome_unknown");
      one.heals();
      for (let n = 0; n < 2; n++) expect((await one.result("append", params)).entryIds).toEqual([id]);
    }
    const all = ["one", "two-after", "two-late"];
    expect([one.inFleet(sessionId), await one.ids()]).toEqual([all, all]);
    expect(one.heard("session_append").map(({ entryIds }) => entryIds)).toEqual(all.map((id) => [id]));
  });

  test("while the fleet is away, each reply and event says that it is only here, until it is back", async () => {
    const one = await new FleetServer(args, { isJournaled: true }).start();
    expect(await one.append("one")).not.toHaveProperty("durability");
    const { sessionId, durability } = await one.state();
    expect(durability).toBe("replicated");
    one.loses();
    const params = { entries: [...entriesOf("two"), assistant("three", { id: "three" })], idempotencyKey: "key" };
    const local = { durability: "local" };
    for (let n = 0; n < 2; n++)
      expect(await one.result("append", params)).toMatchObject({ entryIds: ["two", "three"], ...local });
    expect(await one.result("set_session_name", { name: "away" })).toMatchObject(local);
    expect(await one.result("set_thinking_level", { level: "high" })).toBe(null);
    expect(one.heard("session_append").at(-1)).toMatchObject(local);
    expect(await one.state()).toMatchObject(local);
    await one.result("fork", { entryId: "three", position: "at" });
    const fork = (await one.state()).sessionId;
    expect(one.inFleet(fork)).toEqual([]);
    await one.result("switch_session", { sessionId });
    one.heals();
    // The first append after it is back uploads the missing lines.
    await one.until(one.isGiven, (n) => one.append(`after${n}`));
    expect(one.inFleet(sessionId).slice(0, 3)).toEqual(["one", "two", "three"]);
    await one.result("switch_session", { sessionId: fork });
    await one.append("in-the-fork");
    expect(one.inFleet(fork)).toHaveLength(4);
    expect(one.heard("session_append")[1]).toMatchObject(local);
    const changes = one.heard("session_durability_changed").filter((event) => event.sessionId === sessionId);
    expect([changes[0], changes.at(-1)]).toMatchObject([local, { durability: "replicated" }]);
    await one.lives.end();
    expect(one.lives.said).toEqual([]);
    one.fleet.table.check();
    // A server that ends says what only this machine has.
    const { table } = one.fleet;
    const options = { isJournaled: true, table, place: one.lives.place, adminQueries: {} as never };
    const again = await new FleetServer(args, options).start();
    again.loses();
    expect(await again.append("more")).toMatchObject(local);
    await again.lives.end();
    expect(again.lives.said).toEqual([expect.stringContaining("fleet push")]);
  });

  test("kept lines that are damaged are left out and counted, and hide nothing else", async () => {
    const one = await new FleetServer(args).start();
    const sessionId = await one.begin();
    const folder = join(one.lives.place.state, "quarantine");
    mkdirSync(folder, { recursive: true });
    const timestamp = "2026-01-24T16:22:26.831Z";
    const header = { type: "session", version: 3, id: sessionId, timestamp, cwd: "/" };
    const kept = (id: unknown, parentId: unknown): string =>
      JSON.stringify({ type: "message", id, parentId, timestamp, ...user(String(id)) });
    const put = (name: string, ...lines: string[]): string => {
      const path = join(folder, `${name}.refused.bin`);
      writeFileSync(path, [JSON.stringify(header), ...lines, ""].join("\n"));
      return path;
    };
    const bad = [
      ...["null", "{not", "", "7", "[1]", '{"id":"no-type"}', '{"type":"session","id":"s"}'],
      ...[kept(5, "one"), kept("number", 5)],
    ];
    put("all", ...bad);
    const some = put("some", kept("good", "one"), ...bad, kept("more", "good"));
    const { kept: listed } = await one.result("list_kept");
    expect(listed.map(({ entryCount, damagedLines, text }: Json) => [entryCount, damagedLines, text]).sort()).toEqual([
      [0, bad.length, null],
      [2, bad.length, "good"],
    ]);
    const recovered = { entryIds: ["good", "more"], damagedLines: bad.length };
    expect(await one.result("recover_kept", { keptAt: some })).toMatchObject(recovered);
    // Parents are before their children: a circle of them is no branch.
    for (const circle of [[kept("x", "x")], [kept("x", "y"), kept("y", "x")]]) {
      const keptAt = put(`circle of ${circle.length}`, ...circle);
      expect((await one.refused("recover_kept", { keptAt })).name).toBe("entry_not_found");
    }
    expect(await one.ids()).toEqual(["one", "good", "more"]);
    expect((await one.result("verify_session")).damage).toEqual([]);
  });

  test("kept lines of entries that the session has with other bytes are left out and named, until the request names them", async () => {
    const one = await new FleetServer(args).start();
    const sessionId = await one.begin();
    await one.append("two");
    const lines: string[] = one.fleet.table.linesOf(sessionId);
    const [first, second] = lines.map((line) => JSON.parse(line));
    const folder = join(one.lives.place.state, "quarantine");
    mkdirSync(folder, { recursive: true });
    const keptAt = join(folder, "edited.refused.bin");
    const header = { type: "session", version: 3, id: sessionId, timestamp: first.timestamp, cwd: "/" };
    const edited = { ...first, ...user("edited") };
    // Another machine gave this one back after an entry with a new id.
    const moved = { ...second, parentId: "elsewhere" };
    const more = { ...second, ...user("more"), id: "more", parentId: "two" };
    writeFileSync(keptAt, [header, edited, moved, more].map((line) => `${JSON.stringify(line)}\n`).join(""));
    for (const entryIds of [["more"], [], []])
      expect(await one.result("recover_kept", { keptAt })).toMatchObject({ entryIds, edited: ["one"], renamed: [] });
    expect((await one.result("list_kept")).kept).toMatchObject([{ keptAt }]);
    expect(one.inFleet(sessionId).slice(0, 3)).toEqual(["one", "two", "more"]);
    const named = await one.result("recover_kept", { keptAt, edited: ["one"] });
    expect(named).toMatchObject({ edited: [], renamed: [{ from: "one" }] });
    expect(await one.ids()).toEqual(["one", "two", "more", named.renamed[0].to]);
    expect(await one.result("recover_kept", { keptAt })).toMatchObject({ entryIds: [], edited: [] });
    expect((await one.result("list_kept")).kept).toEqual([]);
  });

  test("what was refused is not there twice after the host has repeated it with its key, and what continues it is there", async () => {
    const one = await new FleetServer(args).start();
    const sessionId = await one.begin();
    const { table } = one.fleet;
    const two = await new FleetServer(args, { table, name: "two" }).takeOver(sessionId, "theirs");
    const request = { entries: [user("mine"), user("more")], idempotencyKey: "key" };
    const { keptAt } = await one.refused("append", request);
    await two.lives.end();
    const [header, ...lines] = readFileSync(keptAt, "utf8").trimEnd().split("\n");
    const [first, last] = lines.map((line) => JSON.parse(line).id);
    const { timestamp } = JSON.parse(lines[0]);
    const kept = (name: string, ...lines: (Json | string)[]): string => {
      const texts = lines.map((line) => (typeof line === "string" ? line : JSON.stringify({ timestamp, ...line })));
      const path = keptAt.replace(".refused", `-${name}.refused`);
      writeFileSync(path, [header, ...texts, ""].join("\n"));
      return path;
    };
    const marker = { type: "custom", id: "marker", parentId: "one", customType: LEAF_MARKER };
    const next = { type: "message", id: "next", parentId: last, ...user("next") };
    // Another command had its key, so that this one is no repeat.
    const _batch = { session: sessionId, key: "another", index: 0, count: 1 };
    const label = { type: "label", id: "label", parentId: "next", targetId: first, _batch };
    const marked = kept("marked", marker, ...lines);
    const continued = kept("continued", ...lines, next, label);
    await one.result("append", { entries: [user("another")], idempotencyKey: "another" });
    const { entryIds } = await one.result("append", request);
    expect(entryIds).not.toContain(first);
    for (const path of [keptAt, marked])
      expect(await one.result("recover_kept", { keptAt: path })).toMatchObject({ entryIds: [], renamed: [] });
    const recovered = { entryIds: ["next", "label"], renamed: [] };
    expect(await one.result("recover_kept", { keptAt: continued })).toMatchObject(recovered);
    expect((await one.path("next")).slice(-3)).toEqual([...entryIds, "next"]);
    const { entries } = await one.result("get_entries");
    expect(entries.find(({ id }: Json) => id === "label").targetId).toBe(entryIds[0]);
    const texts = entries.map(({ message }: Json) => message?.content).filter(Boolean);
    expect(texts).toEqual(["one", "theirs", "another", "mine", "more", "next"]);
    table.check();
  });

  test.each([false, true])(
    "a server whose session another machine has taken ends with 0, and its moved leaf refuses nothing (that one ended: %s)",
    async (isOver) => {
      const one = await new FleetServer(args).start();
      const sessionId = await one.begin();
      await one.append("more");
      await one.result("branch", { entryId: "one" });
      const { table } = one.fleet;
      const two = await new FleetServer(args, { table, name: "two" }).takeOver(sessionId, "theirs");
      if (isOver) await two.end();
      await one.result("shutdown");
      await one.lives.end();
      expect([await one.lives.done, one.lives.said]).toEqual([0, []]);
      if (!isOver) await two.end();
      await one.start();
      await one.result("switch_session", { sessionId });
      expect([await one.ids(), (await one.result("list_kept")).kept]).toEqual([["one", "more", "theirs"], []]);
    },
  );

  test("what was refused is offered as a branch, byte for byte, and once", async () => {
    const one = await new FleetServer(args).start();
    const sessionId = await one.begin();
    const { table } = one.fleet;
    const two = await new FleetServer(args, { table, name: "two" }).takeOver(sessionId, "theirs", "taken");
    const entries = [...entriesOf("mine"), user("other", { id: "taken" }), ...entriesOf("last")];
    const request = { entries, idempotencyKey: "key" };
    const refused = await one.refused("append", request);
    const { keptAt } = refused;
    const holder = { client: "two", host: "host of two" };
    expect(refused).toMatchObject({ name: "session_locked", retryable: true, holder });
    expect([one.inFleet(sessionId), await one.ids()]).toEqual([["one", "theirs", "taken"], ["one"]]);
    await two.lives.end();
    const { kept } = await one.result("list_kept");
    expect(kept).toEqual([expect.objectContaining({ keptAt, sessionId, entryCount: 3, text: "mine" })]);
    // A path that is not one of those is not read.
    const { sessionFile } = await one.state();
    for (const keptAt of [sessionFile, `${kept[0].keptAt}/../../../etc/passwd`, "/etc/passwd"])
      expect((await one.refused("recover_kept", { keptAt })).name).toBe("not_a_session");
    await one.append("on");
    const recovered = await one.result("recover_kept", { keptAt });
    const [{ to }] = recovered.renamed;
    const renamed = [{ from: "taken", to }];
    expect(recovered).toMatchObject({ entryIds: ["mine", to, "last"], leafId: "on", renamed });
    // The host repeats it all the same.
    expect((await one.result("append", request)).entryIds).toEqual(["mine", to, "last"]);
    expect(one.inFleet(sessionId).slice(0, 7)).toEqual(["one", "theirs", "taken", "on", "mine", to, "last"]);
    expect(await one.path("last")).toEqual(["one", "mine", to, "last"]);
    await one.append("further");
    expect(await one.path("further")).toEqual(["one", "theirs", "taken", "on", "further"]);
    await one.lives.end();
    const again = await new FleetServer(args, { table }).start();
    await again.result("switch_session", { sessionId });
    expect((await again.state()).leafId).toBe("further");
    const recover = async (...args: string[]): Promise<string> =>
      (await runHere(one.lives.place, ["recover", ...args], { hashes: true })).stdout;
    expect(await recover()).toContain(keptAt);
    const bytes = readFileSync(keptAt);
    expect(await recover(keptAt)).toContain("has all of it already");
    expect(await recover()).toContain("No refused entries are kept");
    expect(readFileSync(keptAt.replace("refused", "recovered"))).toEqual(bytes);
    await again.result("new_session");
    expect((await again.refused("recover_kept", { keptAt })).name).toBe("not_a_session");
    table.check();
  });

  test.each(["after", "late", "before", "nowhere"] as const)(
    "a fork or clone of which nobody knows is there once (%s)",
    async (fault) => {
      const one = await new FleetServer(args).start();
      const { fleet } = one;
      const { append } = fleet;
      fleet.leasesEnd = true;
      // Its source is in another folder than the new sessions here.
      await one.result("new_session", { cwd: temporaryFolder() });
      await one.result("append", { entries: [...entriesOf("one"), assistant("two"), user("three")] });
      const { sessionId, sessionFile } = await one.state();
      const made = new Set([sessionId]);
      for (const isNew of [false, true])
        for (const [method, more, count] of [
          ["fork", { entryId: "one", position: "at" }, 1],
          ["clone", {}, 3],
        ] as const) {
          const asked = { sessionId, ...more, idempotencyKey: `${method} ${isNew}` };
          await one.result("switch_session", { sessionPath: sessionFile });
          if (fault === "nowhere") fleet.append = async () => ({ kind: "unknown", reason: "test: no answer" });
          else fleet.faultAt = (_, name) => (name === "append" ? fault : name === "take" ? undefined : "before");
          const name = fault === "before" ? "storage_failed" : "outcome_unknown";
          expect((await one.refused(method, asked)).name).toBe(name);
          // As long as it cannot be confirmed, others may take it.
          for (let times = 0; fault === "nowhere" && times < 2; times++) {
            expect(await one.refused(method, asked)).toMatchObject({ retryable: true });
            const others = [...fleet.table.rows].filter(([id]) => !made.has(id));
            expect(others.map(([, { holder }]) => holder)).toEqual([null]);
          }
          one.loses();
          expect(await one.refused(method, asked)).toMatchObject({ name, retryable: true });
          if (isNew) {
            await one.lives.kill();
            await one.start("--session", sessionFile);
          }
          one.heals();
          fleet.append = append;
          const { sessionId: id } = await one.result(method, asked);
          expect(one.inFleet(id)).toHaveLength(count);
          expect(await one.result(method, asked)).toMatchObject({ sessionId: id });
          made.add(id);
        }
      expect(made.size).toBe(5);
      const there = [...fleet.table.rows].filter(([, { isThere }]) => isThere).map(([id]) => id);
      const { sessions } = await one.result("list_sessions");
      for (const ids of [there, sessions.map((row: Json) => row.sessionId)])
        expect(ids.sort()).toEqual([...made].sort());
      fleet.table.check();
    },
  );

  test.each([
    [
      ["before", "repeated", "after"],
      ["before", "after"],
    ],
    [["before", "repeated"], ["before"]],
    [["repeated"], []],
  ])("what the host repeats on another machine is there once, and is not lost (%j)", async (keys, left) => {
    const one = await new FleetServer(args, { isJournaled: true }).start();
    const sessionId = await one.begin();
    const request = (key: string, id = key) => ({ entries: [user(key, { id })], idempotencyKey: key });
    one.loses();
    for (const key of keys) expect(await one.result("append", request(key))).toMatchObject({ durability: "local" });
    const two = await new FleetServer(args, { table: one.fleet.table, leasesEnd: true }).start();
    await two.result("switch_session", { sessionId });
    await two.result("append", request("repeated", "theirs"));
    await two.end();
    one.heals();
    await one.until(one.isGiven, () => one.refused("append", { entries: entriesOf("no"), expectedLeafId: "other" }));
    expect(one.inFleet(sessionId).slice(0, 2 + left.length)).toEqual(["one", "theirs", ...left]);
    const { diagnostics, leafId } = await one.state();
    expect(leafId).toBe(keys.at(-1) === "repeated" ? "theirs" : "after");
    const renamed = [{ from: "repeated", to: "theirs" }];
    const reason = expect.stringMatching(new RegExp(`The ${left.length} entries.*repeated elsewhere`));
    const meant = left.length === 0 ? [] : [expect.objectContaining({ kind: "diverged", renamed, reason })];
    expect(one.heard("session_damage").flatMap(({ damage }) => damage)).toEqual(meant);
    expect(diagnostics).toEqual(meant);
    for (const [key, id] of [["repeated", "theirs"], ...left.map((key) => [key, key])])
      expect((await one.result("append", request(key))).entryIds).toEqual([id]);
    one.fleet.table.check();
  });

  test("a branch that others overtake before it is sent keeps its parents, and each of its entries is there once", async () => {
    const one = await new FleetServer(args, { isJournaled: true }).start();
    const sessionId = await one.begin();
    const request = (key: string, id = key) => ({ entries: [user(key, { id })], idempotencyKey: key });
    one.loses();
    for (const key of ["before", "repeated", "next", "same", "after"]) await one.result("append", request(key));
    const write = async (...requests: Json[]): Promise<void> => {
      const two = await new FleetServer(args, { table: one.fleet.table, leasesEnd: true }).start();
      await two.result("switch_session", { sessionId });
      for (const params of requests) await two.result("append", params);
      await two.end();
    };
    await write(request("repeated", "theirs"), { entries: entriesOf("same") });
    one.fleet.faultAt = (_, name) => (name === "append" ? "before" : undefined);
    const ask = () => one.refused("append", { entries: entriesOf("no"), expectedLeafId: "other" });
    await one.until(() => one.heard("session_damage").length > 0, ask);
    await write({ entries: entriesOf("more") });
    one.heals();
    await one.until(one.isGiven, ask);
    const there = one.fleet.table.linesOf(sessionId).map((text) => JSON.parse(text));
    const messages = there.filter(({ type }) => type === "message").map(({ id, parentId }) => [id, parentId]);
    const renamed = messages[6][0];
    expect(messages).toEqual([
      ["one", null],
      ["theirs", "one"],
      ["same", "theirs"],
      ["more", "same"],
      ["before", "one"],
      ["next", "theirs"],
      [renamed, "next"],
      ["after", renamed],
    ]);
    expect((await one.result("list_kept")).kept).toEqual([]);
    one.fleet.table.check();
  });

  test.each([
    ["mine", "shared"],
    ["same", "shared"],
    ["same", "own"],
  ])("where others wrote, its entries are a branch, and the host stays there (%s, %s leaf)", async (id, leaf) => {
    const one = await new FleetServer(args, { isJournaled: true }).start();
    const sessionId = await one.begin();
    await one.result("switch_session", { sessionId, leaf });
    one.loses();
    const mine = { entries: [user("mine", { id })], idempotencyKey: "mine" };
    expect((await one.result("append", mine)).entryIds).toEqual([id]);
    const two = await new FleetServer(args, { table: one.fleet.table }).takeOver(sessionId, "same");
    await two.lives.end();
    one.heals();
    // Nothing is written: the leaf is still that entry when the branch is made.
    await one.until(one.isGiven, () => one.refused("append", { entries: entriesOf("after"), expectedLeafId: "other" }));
    const { leafId, diagnostics, branchCount } = await one.state();
    const isRenamed = id === "same";
    expect([leafId !== id, branchCount, one.inFleet(sessionId).slice(0, 3)]).toEqual([
      ...[isRenamed, 1, ["one", "same", leafId]],
    ]);
    // It gets the new id, and a repeated request finds the same entry.
    const renames = isRenamed ? { renamed: [{ from: "same", to: leafId }] } : {};
    expect(diagnostics).toEqual([expect.objectContaining({ kind: "diverged", salvaged: true, ...renames })]);
    expect(diagnostics[0].reason.includes("got another id")).toBe(isRenamed);
    const damage = one.heard("session_damage").flatMap((params) => params.damage);
    expect(damage).toEqual([expect.objectContaining({ kind: "diverged", ...renames })]);
    expect((await one.result("append", mine)).entryIds).toEqual([leafId]);
    const texts = (await one.result("get_messages")).messages.map(({ content }: Json) => content);
    expect(texts.slice(0, 2)).toEqual(["one", "mine"]);
    expect((await one.result("verify_session", {})).ok).toBe(true);
    one.fleet.table.check();
  });
});
