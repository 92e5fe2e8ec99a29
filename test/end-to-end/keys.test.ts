/** Idempotency: a request that is sent again, after a lost reply, a torn write or a restart, is done once. */

import { rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { append, nameOf } from "../support/asking.ts";
import { FaultDisk } from "../support/disk.ts";
import { assistant, user } from "../support/drafts.ts";
import { STORES, sessionOf } from "../support/hosts.ts";
import { library, listed, sessionId } from "../support/lifecycle.ts";
import { fileText, linesOf, userText } from "../support/lines.ts";
import { HereLives, type HereLivesOptions, imprint, readPlainly, sessionFiles } from "../support/proof.ts";
import { bytesOfSession, type StoreName } from "../support/proof-faults.ts";
import { call, type HereServer, type Json, serveHere, temporaryPlace, type Wire } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

/** A session with a user message, an answer and another user message, on the real disk. */
async function begunOn(store: StoreName): Promise<{ lives: HereLives; wire: Wire; file: string; ids: string[] }> {
  const lives = new StoreLives(store);
  const wire = await lives.start([]);
  const { entryIds } = await wire.result("append", { entries: [user("one"), assistant("two"), user("three")] });
  const { sessionFile } = await wire.result("get_state");
  return { lives, wire, file: sessionFile, ids: entryIds };
}

/** Servers that keep new sessions in one store. */
class StoreLives extends HereLives {
  private readonly store: StoreName;

  constructor(store: StoreName, options: HereLivesOptions = {}) {
    super(options);
    this.store = store;
  }

  override start(args: string[] = []): Promise<Wire> {
    return super.start(["--store", this.store, ...args]);
  }
}

function eventNames(wire: Wire): string[] {
  return wire.events.splice(0).map(({ method }) => method);
}

test("a torn batch that another program continued keeps its entries, and the retry does not claim them", async () => {
  const disk = new FaultDisk();
  const lives = new HereLives({ disk });
  let wire = await lives.start(["--session-dir", "/sessions"]);
  await wire.result("append", { entries: [user("before")] });
  const { sessionFile: file } = await wire.result("get_state");
  const params = { entries: [user("a"), user("b"), user("c")], idempotencyKey: "k" };
  const { entryIds } = await wire.result("append", params);
  await lives.kill();
  const lines = linesOf(disk.content(file) as Uint8Array).slice(0, 3);
  disk.put(file, Buffer.from(fileText(...lines, userText("f0000001", entryIds[0], "foreign"))));
  wire = await lives.start(["--session", file]);
  const again = await wire.result("append", params);
  expect(again.entryIds).toHaveLength(3);
  expect(again.entryIds).not.toContain(entryIds[0]);
  const { entries } = await wire.result("get_path");
  expect(entries.map(({ message }: Json) => message.content)).toEqual(["before", "a", "foreign", "a", "b", "c"]);
  await lives.kill();
  wire = await lives.start(["--session", file]);
  expect(await wire.result("append", params)).toEqual(again);
});

acrossTiers(describe, STORES)("--store %s", (store) => {
  const begun = () => begunOn(store);

  describe("a lost reply", () => {
    /** Lets the content reach the file and, once a commit waits for that, never says that it is durable. */
    class SilentDisk extends FaultDisk {
      reach: (() => void) | undefined;

      override sync = async (fd: number): Promise<void> => {
        if (!this.reach) return this.syncNow(fd);
        this.reach();
        await new Promise<never>(() => {});
      };
    }

    test.each([
      ["append", { entries: [user("a"), user("b")] }],
      ["set_label", { entryId: "first", label: "x" }],
      ["branch", { entryId: "first", summary: { summary: "left" }, label: "y" }],
    ])("of %s %j is answered after the restart, and nothing is written twice", async (method, params: Json) => {
      const disk = new SilentDisk();
      const lives = new StoreLives(store, { disk: disk as Disk });
      let wire = await lives.start(["--session-dir", "/sessions"]);
      await wire.result("append", { entries: [user("before", { id: "first" })] });
      const { sessionFile: file } = await wire.result("get_state");
      const reached = new Promise<void>((resolve) => {
        disk.reach = resolve;
      });
      wire.ask("lost", method, { ...params, idempotencyKey: "k" });
      await reached;
      await lives.kill();
      disk.reach = undefined;
      const bytes = Buffer.from(bytesOfSession(disk, file));
      wire = await lives.start(["--session", file]);
      const { entries } = await wire.result("get_entries");
      const result = await wire.result(method, { ...params, idempotencyKey: "k" });
      expect(Buffer.from(bytesOfSession(disk, file)).equals(bytes)).toBe(true);
      expect(result.leafId ?? result.entryId).toBe(entries.at(-1).id);
      if (method === "append") expect(result.entryIds).toEqual(entries.slice(1).map(({ id }: Json) => id));
      else if (method === "branch") expect(result.summaryEntryId).toBe(entries[1].id);
      // A host that learns that it is there relies on that, also when the power goes.
      const ids = entries.map(({ id }: Json) => id);
      for (const { disk: left } of disk.lasting()) {
        const next = await new StoreLives(store, { disk: left }).start(["--session", file]);
        expect((await next.result("get_entries")).entries.map(({ id }: Json) => id)).toEqual(ids);
      }
    });
  });

  describe("every command that writes answers a repeated key as at first", () => {
    const commands: [string, (ids: string[]) => Json][] = [
      ["append", () => ({ entries: [user("x")] })],
      ["append", ([first]) => ({ entries: [{ type: "label", targetId: first, label: "x" }, user("y")] })],
      ["set_label", ([first]) => ({ entryId: first, label: "x" })],
      ["set_label", ([first]) => ({ entryId: first, label: null })],
      ["set_session_name", () => ({ name: "of\ntwo lines" })],
      ["compact_append", ([, , third]) => ({ summary: "s", firstKeptEntryId: third, tokensBefore: 7 })],
      ["compact_append", () => ({ summary: "s", firstKeptEntryId: null, tokensBefore: 7 })],
      ["set_model", () => ({ provider: "openai", modelId: "m" })],
      ["set_thinking_level", () => ({ level: "high" })],
      ["edit_context", ([first]) => ({ targetId: first, replacement: null })],
      ["branch", ([first]) => ({ entryId: first, summary: { summary: "left" } })],
      ["branch", ([first]) => ({ entryId: first, label: "here" })],
      ["branch", ([, , third]) => ({ entryId: third, position: "before", label: "here" })],
      ["branch", ([first]) => ({ entryId: first, position: "before", summary: { summary: "s" }, label: "here" })],
      ["branch", () => ({ entryId: null, summary: { summary: "s" } })],
    ];

    test.each(commands)("%s", async (method, paramsOf) => {
      const { lives, wire, file, ids } = await begun();
      const params = { ...paramsOf(ids), idempotencyKey: "k" };
      eventNames(wire);
      const first = await wire.result(method, params);
      await wire.result("append", { entries: [user("later")] });
      const { leafId } = await wire.result("get_state");
      expect(eventNames(wire)).toContain("session_append");
      const { bytes } = imprint(file);
      expect(await wire.result(method, params), "in the same process").toEqual(first);
      for (const how of ["end", "kill"] as const) {
        await lives[how]();
        const next = await lives.start(["--session", file]);
        expect(await next.result(method, params), `after ${how}`).toEqual(first);
        expect(await next.result(method, { ...params, expectedLeafId: first?.leafId ?? null })).toEqual(first);
        expect((await next.result("get_state")).leafId, "a repeat does nothing").toBe(leafId);
        expect(eventNames(next)).toEqual(["session_start"]);
      }
      expect(imprint(file).bytes).toEqual(bytes);
    });

    test("also before the session is on disk", async () => {
      const lives = new StoreLives(store);
      const wire = await lives.start([]);
      const params = { provider: "openai", modelId: "m", idempotencyKey: "k" };
      expect(await wire.result("set_model", params)).toEqual(await wire.result("set_model", params));
      expect(await wire.result("get_state")).toMatchObject({ entryCount: 1, persisted: false });
    });

    test("when both requests are in one write, and when they are in one batch", async () => {
      const { wire } = await begun();
      const request = (id: number, idempotencyKey: string): Json =>
        call(id, "append", { entries: [user("x")], idempotencyKey });
      wire.send(request(101, "k"), request(102, "k"), [request(103, "b"), request(104, "b")]);
      const [first, second] = [await wire.reply(101), await wire.reply(102)];
      expect(second.result).toEqual(first.result);
      let batch = await wire.next();
      while (!Array.isArray(batch)) batch = await wire.next();
      expect(batch[1].result).toEqual(batch[0].result);
      expect((await wire.result("get_state")).entryCount).toBe(5);
    });
  });

  describe("a key", () => {
    test("that another command has used is refused, and nothing is written", async () => {
      const { lives, wire, file, ids } = await begun();
      await wire.result("append", { entries: [user("x")], idempotencyKey: "a" });
      await wire.result("set_label", { entryId: ids[0], label: "x", idempotencyKey: "b" });
      const { bytes } = imprint(file);
      const attempts: [string, Json][] = [
        ["set_label", { entryId: ids[0], label: "y", idempotencyKey: "a" }],
        ["set_model", { provider: "p", modelId: "m", idempotencyKey: "b" }],
        ["branch", { entryId: ids[0], summary: { summary: "s" }, idempotencyKey: "a" }],
        ["append", { entries: [user("y"), user("z")], idempotencyKey: "a" }],
        ["append", { entries: [user("y")], idempotencyKey: "b" }],
      ];
      // The process with the first result recognizes an append by its key alone.
      const [here, there] = [attempts.filter(([method]) => method !== "append"), attempts];
      for (const [method, params] of here) {
        const { data } = await wire.failure(method, params);
        expect(data).toMatchObject({ name: "invalid_params", issues: [{ path: "idempotencyKey" }] });
      }
      await lives.kill();
      const next = await lives.start(["--session", file]);
      for (const [method, params] of there)
        expect((await next.failure(method, params)).data.name, `${method} after the restart`).toBe("invalid_params");
      expect(imprint(file).bytes).toEqual(bytes);
    });

    test("belongs to its session: another session and a fork know nothing of it", async () => {
      const { lives, wire, file } = await begun();
      const params = { entries: [user("x")], idempotencyKey: "k" };
      const { entryIds } = await wire.result("append", params);
      for (const method of ["clone", "new_session"]) {
        await wire.result(method);
        expect((await wire.result("append", params)).entryIds).not.toEqual(entryIds);
      }
      await lives.kill();
      const next = await lives.start(["--session", file]);
      expect((await next.result("append", params)).entryIds).toEqual(entryIds);
    });
  });

  describe("a session that was asked for twice is made once", () => {
    const makers: [string, (ids: string[]) => Json][] = [
      ["fork", ([, , third]) => ({ entryId: third })],
      ["fork", ([, second]) => ({ entryId: second, position: "at" })],
      ["clone", () => ({})],
      ["new_session", () => ({ name: "new" })],
    ];

    test.each(makers)("%s", async (method, paramsOf) => {
      const { lives, wire, file, ids } = await begun();
      const params = { ...paramsOf(ids), idempotencyKey: "k" };
      const first = await wire.result(method, params);
      expect(await wire.result(method, params), "before its first entry").toEqual(first);
      if (method === "new_session") await wire.result("append", { entries: [user("x")] });
      const files = sessionFiles(lives.place.home);
      expect(files).toHaveLength(2);
      expect(readPlainly(first.sessionFile)[0].idempotencyKey).toBe("k");
      expect(await wire.result(method, params), "while it is current").toEqual(first);
      await wire.result("switch_session", { sessionPath: file });
      expect(await wire.result(method, params), "from the source").toEqual(first);
      expect((await wire.result("get_state")).sessionId, "it is current again").toBe(first.sessionId);
      for (const start of [file, first.sessionFile]) {
        await lives.kill();
        const next = await lives.start(["--session", start]);
        expect(await next.result(method, params), `restarted in ${start}`).toEqual(first);
        expect(await next.result(method, { ...params, expectedLeafId: "gone" })).toEqual(first);
        expect((await next.result("get_state")).sessionId).toBe(first.sessionId);
      }
      expect(sessionFiles(lives.place.home)).toEqual(files);
      for (const path of files) readPlainly(path);
    });

    test("and again when it is gone", async () => {
      const { lives, wire, file } = await begun();
      const first = await wire.result("clone", { idempotencyKey: "k" });
      await lives.end();
      rmSync(first.sessionFile, { recursive: true });
      const second = await (await lives.start(["--session", file])).result("clone", { idempotencyKey: "k" });
      expect(second.sessionId).toBe(first.sessionId);
      expect(readPlainly(second.sessionFile)).toHaveLength(4);
    });

    test("and again when it had no entry, and is nowhere", async () => {
      const { lives, wire, file } = await begun();
      const { sessionId } = await wire.result("new_session", { idempotencyKey: "empty" });
      await lives.kill();
      const next = await lives.start(["--session", file]);
      expect((await next.result("new_session", { idempotencyKey: "empty" })).sessionId).toBe(sessionId);
    });

    test("in a flat folder, whatever is made there later", async () => {
      const lives = new StoreLives(store);
      const args = ["--session-dir", join(lives.place.home, "flat")];
      const wire = await lives.start(args);
      await wire.result("append", { entries: [user("one")] });
      const { sessionFile } = await wire.result("get_state");
      const first = await wire.result("clone", { idempotencyKey: "k" });
      for (let n = 0; n < 20; n++) await wire.result("clone");
      await lives.kill();
      const next = await lives.start([...args, "--session", sessionFile]);
      expect(await next.result("clone", { idempotencyKey: "k" })).toEqual(first);
    });

    test("and no other request gets it: of another command, or to another session", async () => {
      const { lives, wire, file, ids } = await begun();
      const key = { idempotencyKey: "k" };
      const refused = { name: "invalid_params", issues: [{ path: "idempotencyKey" }] };
      await wire.result("fork", { entryId: ids[2], ...key });
      const others: [string, Json][] = [
        ["clone", {}],
        ["new_session", {}],
      ];
      const isRefused = async (server: Wire, attempts: readonly [string, Json][]): Promise<void> => {
        for (const [method, params] of attempts)
          expect((await server.failure(method, { ...params, ...key })).data, method).toMatchObject(refused);
      };
      await isRefused(wire, others);
      await wire.result("new_session");
      const { entryIds } = await wire.result("append", { entries: [user("another")] });
      await isRefused(wire, [...others, ["fork", { entryId: entryIds[0] }]]);
      const { sessionId } = await wire.result("get_state");
      await wire.result("new_session", { idempotencyKey: "new" });
      expect((await wire.failure("clone", { idempotencyKey: "new" })).data).toMatchObject(refused);
      await wire.result("append", { entries: [user("x")] });
      await wire.result("switch_session", { sessionId });
      expect((await wire.failure("fork", { entryId: entryIds[0], idempotencyKey: "new" })).data).toMatchObject(refused);
      const files = sessionFiles(lives.place.home);
      expect(files).toHaveLength(4);
      await lives.kill();
      await isRefused(await lives.start(["--session", file]), others);
      expect(sessionFiles(lives.place.home)).toEqual(files);
    });

    test("of two servers at once, too", async () => {
      const place = temporaryPlace();
      // Session files have names that begin with the time.
      const open = (args: string[], later: number): HereServer =>
        serveHere(["--store", store, ...args], { place, env: { now: () => Date.now() + 1000 * later } });
      const one = open([], 0);
      const { entryIds } = await one.result("append", { entries: [user("one"), assistant("two")] });
      const { sessionId: source } = await one.result("get_state");
      const two = open(["--session", source], 1);
      await two.result("get_state");
      const requests: [string, Json][] = [
        ["fork", { entryId: entryIds[1], position: "at" }],
        ["clone", {}],
      ];
      for (const [method, params] of requests) {
        const keyed = { ...params, idempotencyKey: method };
        const made = await Promise.all([one, two].map((server) => server.result(method, keyed)));
        expect(made[0], method).toEqual(made[1]);
        for (const server of [one, two]) await server.result("switch_session", { sessionId: source });
      }
      const keyed = { idempotencyKey: "new" };
      const begun = [await one.result("new_session", keyed), await two.result("new_session", keyed)];
      expect(begun[0].sessionId).toBe(begun[1].sessionId);
      await one.result("append", { entries: [user("first")], idempotencyKey: "first" });
      expect((await two.failure("append", { entries: [user("second")] })).data.name).toBe("already_exists");
      expect(await two.result("new_session", keyed)).toEqual(begun[0]);
      await two.result("append", { entries: [user("first")], idempotencyKey: "first" });
      expect((await two.result("get_messages")).messages).toHaveLength(1);
      const { sessions } = await two.result("list_sessions");
      expect(sessions).toHaveLength(4);
    });

    test("also when another server makes it right after the look for it", async () => {
      const place = temporaryPlace();
      const one = serveHere(["--store", store], { place });
      await one.result("append", { entries: [user("one")] });
      const { sessionId, sessionFile } = await one.result("get_state");
      let isHidden = false;
      const disk: Disk = Object.assign(Object.create(realDisk), {
        names(folder: string): string[] {
          if (!isHidden || folder !== dirname(sessionFile)) return realDisk.names(folder);
          isHidden = false;
          return [];
        },
      });
      const two = serveHere(["--store", store, "--session", sessionId], { place, disk });
      await two.result("get_state");
      const made = await one.result("clone", { idempotencyKey: "k" });
      isHidden = true;
      expect(await two.result("clone", { idempotencyKey: "k" })).toEqual(made);
      expect(isHidden).toBe(false);
    });

    test("when both requests are in one write", async () => {
      const { lives, wire, ids } = await begun();
      const params = { entryId: ids[2], idempotencyKey: "k" };
      wire.send(call(101, "fork", params), call(102, "fork", params), call(103, "get_state"));
      const [first, second, state] = [await wire.reply(101), await wire.reply(102), await wire.reply(103)];
      expect(second.result).toEqual(first.result);
      expect(state.result.sessionId).toBe(first.result.sessionId);
      expect(sessionFiles(lives.place.home)).toHaveLength(2);
    });
  });
});

acrossTiers(test, STORES)(
  "a key that another server has used meanwhile is known, as soon as that one cannot take it back (%s)",
  async (store) => {
    const { open } = sessionOf(store);
    const first = open(["--attach", "off"]);
    const [one, two] = ["one", "two"].map((key) => ({ entries: [user(key)], idempotencyKey: key }));
    await first.result("append", one);
    const second = open(["--attach", "off"]);
    // Looks the keys up that there are now.
    expect((await second.failure("append", one)).data.name).toBe("session_locked");
    const { entryIds } = await first.result("append", two);
    await first.finish();
    expect((await second.result("append", one)).entryIds).toHaveLength(1);
    expect((await second.result("append", two)).entryIds).toEqual(entryIds);
  },
);

describe("a command about a session that is not open", () => {
  const keyed = { idempotencyKey: "k" };

  test("is done once for its key, whichever session a repeat would be about", async () => {
    const { server } = library(2);
    for (const n of [1, 2]) await server.result("archive_session", { sessionId: sessionId(n) });
    const undone = await server.result("undo", keyed);
    expect(await server.result("undo", keyed)).toEqual(undone);
    expect(await listed(server)).toEqual([undone.sessionId]);
    const redone = await server.result("redo", keyed);
    expect(await server.result("redo", keyed)).toEqual(redone);
    expect(await listed(server)).toEqual([]);
    // The operation before it is one of the current session, and the repeat comes while the first is under way.
    const { sessionId: back } = await server.result("undo");
    await append(server, user("x"));
    await server.result("set_session_name", { name: "named" });
    await server.result("archive_session", { sessionId: back });
    const last = { idempotencyKey: "last" };
    server.ask("first", "undo", last);
    await new Promise((resolve) => setImmediate(resolve));
    server.ask("second", "undo", last);
    const { result: first } = await server.reply("first");
    expect((await server.reply("second")).result).toEqual(first);
    expect((await server.result("get_state")).sessionName).toBe("named");
    // Another operation that is named is another request.
    const { operations } = await server.result("list_operations", {});
    const { operationId } = operations.find(({ text }: Json) => text.includes("named"));
    expect((await server.result("undo", { operationId, ...last })).operationId).toBe(operationId);
  });

  test("is done once for its key, and only at the leaf that is expected", async () => {
    const { server, file } = library();
    const refused = { sessionPath: file, expectedLeafId: "0badbad0" };
    expect(await nameOf(server, "migrate_session", refused)).toBe("content_modified");
    const migrated = await server.result("migrate_session", { sessionPath: file, ...keyed });
    expect(await server.result("migrate_session", { sessionPath: file, ...keyed })).toEqual(migrated);
    const { sessionPath } = migrated;
    const named = { sessionPath, name: "named" };
    for (const method of ["create_checkpoint", "rollback_migration"])
      expect(await nameOf(server, method, { ...refused, sessionPath })).toBe("content_modified");
    expect(await nameOf(server, "set_session_name", { ...refused, ...named })).toBe("content_modified");
    const made = await server.result("create_checkpoint", { sessionPath, ...keyed });
    expect(await server.result("create_checkpoint", { sessionPath, ...keyed })).toEqual(made);
    const { checkpointSeq, headEntryId: expectedLeafId } = made;
    const next = { ...made, checkpointSeq: checkpointSeq + 1 };
    expect(await server.result("create_checkpoint", { sessionPath, expectedLeafId })).toEqual(next);
    await server.result("set_session_name", { ...named, ...keyed });
    expect(await nameOf(server, "undo", { sessionPath, expectedLeafId })).toBe("content_modified");
    const back = await server.result("rollback_migration", { sessionPath, ...keyed });
    expect(await server.result("rollback_migration", { sessionPath, ...keyed })).toEqual(back);
  });
});
