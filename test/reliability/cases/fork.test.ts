/** K: forks, clones, switching. */

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { call, cases, idsIn, linesIn, said, serveLines, sessionFile } from "../../support/cases.ts";
import { user } from "../../support/drafts.ts";
import { chain, entryText, headerText, id, userText } from "../../support/lines.ts";
import { randomModel } from "../../support/model.ts";
import { imprint, sessionFiles } from "../../support/proof.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";

const QUIET = ["--events", "none"];

async function contextOf(server: HereServer, leafId?: string): Promise<Json> {
  const { messages, model, thinkingLevel } = await server.result("get_context", leafId === undefined ? {} : { leafId });
  return { messages, model, thinkingLevel };
}

/** Whether every entry that an entry names is there. */
function expectClosed(lines: readonly string[]): void {
  const ids = new Set<string>();
  for (const line of lines.slice(1)) {
    const entry = JSON.parse(line);
    if (entry.parentId !== null) expect(ids).toContain(entry.parentId);
    if (entry.type === "label") expect(ids).toContain(entry.targetId);
    ids.add(entry.id);
  }
}

cases("K", [
  {
    id: "K1",
    fault: "a fork before the first message",
    async run() {
      const { server, file } = serveLines(chain(3), { args: QUIET });
      const { sessionFile: forked, text } = await server.result("fork", { entryId: id(0) });
      expect(text).toBe(`say ${id(0)}`);
      expect(linesIn(forked)).toHaveLength(1);
      expect(JSON.parse(linesIn(forked)[0]).parentSession).toBe(file);
      expect(await said(server)).toEqual([]);
    },
  },
  {
    id: "K2",
    fault: "forks at and before every kind of entry of random trees",
    options: SYSTEM,
    async run() {
      await forSeedsAsync(1, async (random) => {
        const model = randomModel(random, { entries: 25 });
        const { server, file } = serveLines(model.lines(), { args: QUIET });
        for (const entry of model.entries) {
          const positions = (entry.message as Json)?.role === "user" ? ["at", "before"] : ["at"];
          for (const position of positions) {
            const end = position === "at" ? entry.id : entry.parentId;
            const expected = end === null ? [] : (await contextOf(server, end)).messages;
            const { sessionFile: forked } = await server.result("fork", { entryId: entry.id, position });
            expect((await contextOf(server)).messages, `${entry.type} ${entry.id} ${position}`).toEqual(expected);
            expectClosed(linesIn(forked));
            await server.result("switch_session", { sessionPath: file });
          }
        }
      });
    },
  },
  {
    id: "K3",
    fault: "labels on the path, in chains, as parents, as kept entries",
    async run() {
      const label = (n: number, parent: number, target: number): string =>
        entryText("label", id(n), id(parent), { targetId: id(target), label: `l${n}` });
      const lines = [
        ...chain(2),
        label(2, 1, 0),
        label(3, 2, 1),
        userText(id(4), id(3)),
        entryText("compaction", id(5), id(4), { summary: "s", firstKeptEntryId: id(3), tokensBefore: 1 }),
        userText(id(6), id(5)),
      ];
      const { server } = serveLines(lines, { args: QUIET });
      const expected = await said(server);
      const { sessionFile: cloned } = await server.result("clone");
      expect(await said(server)).toEqual(expected);
      expectClosed(linesIn(cloned));
      const { nodes } = await server.result("get_tree");
      expect(nodes.filter((node: Json) => node.label).map((node: Json) => [node.id, node.label])).toEqual([
        [id(0), "l2"],
        [id(1), "l3"],
      ]);
    },
  },
  {
    id: "K5",
    fault: "a disk that fails at each step of a fork",
    async run() {
      const place = temporaryPlace();
      const file = sessionFile(place, chain(50));
      const before = imprint(file);
      let steps = -1;
      const counted = ["create", "write", "sync", "syncFolder", "link", "rename", "makeFolder", "openRead"] as const;
      const failing = new Proxy(realDisk, {
        get(target, name: keyof Disk) {
          const operation = target[name] as (...args: unknown[]) => unknown;
          if (!counted.includes(name as never)) return operation;
          return (...args: unknown[]) => {
            if (steps >= 0 && steps-- === 0) throw Object.assign(new Error("no room"), { code: "ENOSPC" });
            return operation(...args);
          };
        },
      });
      const server = serveHere(["--session", file, ...QUIET], { place, disk: failing });
      await server.result("get_state");
      let failed = 0;
      for (let at = 0; ; at++) {
        const known = sessionFiles(place.home);
        steps = at;
        const { result, error } = await server.request("clone");
        const passed = steps >= 0;
        steps = -1;
        const made = sessionFiles(place.home).filter((path) => !known.includes(path));
        if (result) expect(linesIn(result.sessionFile)).toHaveLength(51);
        else {
          failed++;
          expect(["storage_full", "storage_failed"]).toContain(error.data.name);
          expect((await server.result("get_state")).sessionFile).toBe(file);
        }
        // A name leads to a whole file.
        for (const path of made) expect(linesIn(path)).toHaveLength(51);
        expect(imprint(file)).toEqual(before);
        await server.result("switch_session", { sessionPath: file });
        if (passed) break;
      }
      expect(failed).toBeGreaterThan(3);
    },
  },
  {
    id: "K6",
    fault: "a fork of what is not saved, of a fork at once, and while an append is under way",
    async run() {
      const server = serveHere(QUIET);
      await server.result("set_model", { provider: "p", modelId: "m" });
      expect((await server.result("get_state")).persisted).toBe(false);
      const first = await server.result("clone");
      expect(linesIn(first.sessionFile).length).toBeGreaterThan(0);
      server.send(
        call(1, "append", { entries: [user("a", { id: "a" })] }),
        call(2, "fork", { entryId: "a", position: "at" }),
        call(3, "clone"),
        call(4, "append", { entries: [user("b", { id: "b" })] }),
      );
      const [, second, third] = await server.take(4);
      expect(JSON.parse(linesIn(third.result.sessionFile)[0]).parentSession).toBe(second.result.sessionFile);
      expect((await idsIn(server)).slice(-2)).toEqual(["a", "b"]);
      expect(linesIn(second.result.sessionFile).map((line) => JSON.parse(line).id)).not.toContain("b");
    },
  },
  {
    id: "K7",
    fault: "two forks in one millisecond; a name that is taken",
    async run() {
      const { server, file, place } = serveLines(chain(3), { args: QUIET });
      const names = new Set([file]);
      for (let n = 0; n < 20; n++) {
        server.send(call("f", "clone"), call("s", "switch_session", { sessionPath: file }));
        const [{ result }] = await server.take(2);
        names.add(result.sessionFile);
      }
      expect(names.size).toBe(21);
      const taken = join(place.cwd, "taken.jsonl");
      writeFileSync(taken, "mine");
      const other = serveHere(["--session", taken, ...QUIET], { place });
      expect((await other.failure("append", { entries: [user("x")] })).data.name).toBe("not_a_session");
      expect(readFileSync(taken, "utf8")).toBe("mine");
    },
  },
  {
    id: "K8",
    fault: "a parent that is moved or deleted later",
    async run() {
      const { server, file, place } = serveLines(chain(3), { args: QUIET });
      const { sessionFile: forked } = await server.result("fork", { entryId: id(2), position: "at" });
      await server.finish();
      rmSync(file);
      const reader = serveHere(["--session", forked, ...QUIET], { place });
      expect(await said(reader)).toHaveLength(3);
      expect((await reader.result("get_state")).parentSession).toBe(file);
      await reader.result("append", { entries: [user("next")] });
    },
  },
  {
    id: "K10",
    fault: "a fork that is asked for twice",
    async run() {
      const { server, place } = serveLines(chain(3), { args: QUIET });
      const params = { entryId: id(2), idempotencyKey: "click" };
      server.send(call(1, "fork", params), call(2, "fork", params));
      const [one, two] = await server.take(2);
      expect(two.result).toEqual(one.result);
      expect(sessionFiles(place.home)).toHaveLength(2);
    },
  },
  {
    id: "K11",
    fault: "usage of what was inherited",
    async run() {
      const usage = { input: 10, output: 5, cacheRead: 0, cacheWrite: 0, totalTokens: 15, cost: { total: 0.5 } };
      const answer = { type: "message", message: { role: "assistant", content: [], usage, provider: "p", model: "m" } };
      const server = serveHere(QUIET);
      await server.result("append", { entries: [user("a"), answer] });
      await server.result("clone");
      await server.result("append", { entries: [user("b"), answer, answer] });
      const { own, inherited, tokens } = await server.result("get_session_stats");
      expect([own.tokens.total, inherited.tokens.total, tokens.total]).toEqual([30, 15, 45]);
      expect([own.cost, inherited.cost]).toEqual([1, 0.5]);
    },
  },
  {
    id: "K12",
    fault: "what a fork can begin before, with compactions, images, empty texts",
    async run() {
      const image = { type: "image", data: "AAAA", mimeType: "image/png" };
      const content = (n: number, parent: number | null, body: unknown): string =>
        entryText("message", id(n), parent === null ? null : id(parent), { message: { role: "user", content: body } });
      const lines = [
        content(0, null, "first"),
        content(1, 0, [image, { type: "text", text: "picture" }]),
        content(2, 1, ""),
        content(3, 2, [image]),
        userText(id(4), id(0), "elsewhere"),
        entryText("compaction", id(5), id(3), { summary: "s", firstKeptEntryId: id(3), tokensBefore: 1 }),
        content(6, 5, "last"),
      ];
      const { server, file } = serveLines(lines, { args: QUIET });
      const { messages } = await server.result("get_fork_messages");
      expect(messages.map(({ text }: Json) => text)).toEqual(["first", "picture", "elsewhere", "last"]);
      expect((await server.result("get_fork_messages", { scope: "path" })).messages).toHaveLength(3);
      for (const { entryId, text } of messages) {
        expect((await server.result("fork", { entryId })).text).toBe(text);
        await server.result("switch_session", { sessionPath: file });
      }
    },
  },
  {
    id: "K13",
    fault: "switching to what is damaged, missing, locked, the same, of another directory",
    async run() {
      // Nobody is let in or joins: what is looked at is the lock.
      const { server, file, place } = serveLines(chain(3), { args: [...QUIET, "--attach", "off"] });
      const not = join(place.cwd, "not.jsonl");
      writeFileSync(not, "no session");
      for (const [sessionPath, name] of [
        [not, "not_a_session"],
        [join(place.cwd, "missing.jsonl"), "session_not_found"],
      ]) {
        expect((await server.failure("switch_session", { sessionPath })).data.name).toBe(name);
        expect((await server.result("get_state")).sessionFile).toBe(file);
      }
      await server.result("append", { entries: [user("still here")] });
      expect((await server.result("switch_session", { sessionPath: file })).leafId).toBeTruthy();
      const elsewhere = sessionFile(place, chain(2), "other.jsonl", headerText({ id: "other", cwd: "/elsewhere" }));
      const holder = serveHere(["--session", elsewhere, ...QUIET], { place });
      await holder.result("append", { entries: [user("held")] });
      // A session that another process writes to is opened to be read.
      await server.result("switch_session", { sessionPath: elsewhere });
      const { readOnly, lockedBy, cwd } = await server.result("get_state");
      expect([readOnly, lockedBy.pid, cwd]).toEqual([true, process.pid, "/elsewhere"]);
      // A place that was looked at there is left without a trace.
      expect(await server.result("branch", { entryId: id(0) })).toMatchObject({ durable: false });
      await server.result("switch_session", { sessionPath: file });
      expect((await holder.result("get_state")).leafId).not.toBe(id(0));
      expect(linesIn(elsewhere)).toHaveLength(4);
    },
  },
  {
    id: "K14",
    fault: "switching to and fro",
    async run() {
      const { server, file, place } = serveLines(chain(3), { args: QUIET });
      const other = sessionFile(place, chain(4), "other.jsonl", headerText({ id: "other" }));
      const before = [imprint(file), imprint(other)];
      for (const sessionPath of [other, file, other, file]) await server.result("switch_session", { sessionPath });
      await server.finish();
      expect([imprint(file), imprint(other)]).toEqual(before);
    },
  },
]);
