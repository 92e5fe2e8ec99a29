/** R: requests, replies, order, idempotency. */

import { readFileSync } from "node:fs";
import { expect } from "vitest";
import * as z from "zod";
import { table } from "../../../src/handlers/shared/table.ts";
import { call, cases, linesIn, serveLines, sessionFile } from "../../support/cases.ts";
import { user } from "../../support/drafts.ts";
import { gatedDisk } from "../../support/gated_disk.ts";
import { chain, id, userText } from "../../support/lines.ts";
import { type Json, kinds, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";

const QUIET = ["--no-session", "--events", "none"];

/** A hook that the host was asked, in the order of what was received. */
async function hookRequest(server: { next: () => Promise<Json> }): Promise<Json> {
  for (;;) {
    const message = await server.next();
    if (message.method?.startsWith("session_before_") && message.id !== undefined) return message;
  }
}

function residentMiB(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}

cases("R", [
  {
    id: "R1",
    fault: "an unknown method",
    async run() {
      const server = serveHere(QUIET);
      for (const id of [1, "a"]) {
        server.send(call(id, "no_such"));
        expect(await server.next()).toMatchObject({ id, error: { code: -32601 } });
      }
    },
  },
  {
    id: "R2",
    fault: "JSON that is none",
    async run() {
      const server = serveHere(QUIET);
      server.send('{"jsonrpc":"2.0","id":5,', "[1,", "nope");
      for (const reply of await server.take(3)) expect(reply).toMatchObject({ id: null, error: { code: -32700 } });
    },
  },
  {
    id: "R3",
    fault: "batches: valid, mixed, empty",
    async run() {
      const server = serveHere(QUIET);
      server.send([call(1, "get_state"), call(2, "no_such"), 5, { jsonrpc: "2.0", method: "get_state" }], []);
      const [replies, empty] = await server.take(2);
      const byId = new Map(replies.map((reply: Json) => [reply.id, reply]));
      expect(replies).toHaveLength(3);
      expect(byId.get(1)).toMatchObject({ result: { entryCount: 0 } });
      expect(byId.get(2)).toMatchObject({ error: { code: -32601 } });
      expect(byId.get(null)).toMatchObject({ error: { code: -32600 } });
      expect(empty).toMatchObject({ id: null, error: { code: -32600 } });
    },
  },
  {
    id: "R4",
    fault: "ids of every kind",
    async run() {
      const server = serveHere(QUIET);
      for (const id of [null, 1.5, "", 0, -1, "x".repeat(1000)]) {
        server.send(call(id, "get_last_assistant_text"));
        expect(await server.next()).toEqual({ jsonrpc: "2.0", id, result: { text: null } });
      }
      server.send(
        '{"jsonrpc":"2.0","id":{"a":1},"method":"get_state"}',
        '{"jsonrpc":"2.0","id":[1],"method":"get_state"}',
      );
      for (const reply of await server.take(2)) expect(reply).toMatchObject({ id: null, error: { code: -32600 } });
      // A number beyond what JavaScript counts comes back as it was.
      let raw = "";
      server.output.on("data", (chunk: Buffer) => {
        raw += chunk;
      });
      server.send('{"jsonrpc":"2.0","id":9007199254740993,"method":"get_last_assistant_text"}');
      await server.next();
      expect(raw).toContain('"id":9007199254740993');
    },
  },
  {
    id: "R6",
    fault: "a change as a notification",
    async run() {
      const server = serveHere(QUIET);
      server.send(
        { jsonrpc: "2.0", method: "append", params: { entries: [user("told", { id: "told" })] } },
        { jsonrpc: "2.0", method: "append", params: { entries: [] } },
        call(1, "get_entries"),
      );
      const reply = await server.next();
      expect([reply.id, reply.result.entries.map(({ id }: Json) => id)]).toEqual([1, ["told"]]);
    },
  },
  {
    id: "R7",
    fault: "params that are missing, unknown or of another type",
    async run() {
      const server = serveHere(QUIET);
      const before = await server.result("get_state");
      for (const [method, params, path] of [
        ["append", {}, "entries"],
        ["append", { entries: "x" }, "entries"],
        ["append", { entries: [{ type: 5 }] }, "entries.0.type"],
        ["append", { entries: [user("x")], extra: 1 }, "extra"],
        ["fork", { entryId: 5 }, "entryId"],
        ["set_label", { label: "a" }, "entryId"],
        ["branch", { entryId: "a", position: "behind" }, "position"],
        ["get_entries", { limit: 0 }, "limit"],
        ["append", [1], ""],
      ] as const) {
        const { code, data } = await server.failure(method, params);
        expect(code, method).toBe(-32602);
        expect(
          data.issues.map((issue: Json) => issue.path),
          JSON.stringify(params),
        ).toContain(path);
      }
      expect(await server.result("get_state")).toEqual(before);
    },
  },
  {
    id: "R8",
    fault: "calls before initialize, initialize twice, an unknown version",
    async run() {
      const server = serveHere(QUIET);
      expect((await server.result("get_state")).entryCount).toBe(0);
      const { code, data } = await server.failure("initialize", { protocolVersion: 99 });
      expect(code).toBe(-32602);
      expect(data.issues).toEqual([{ path: "protocolVersion", message: expect.stringContaining("version 1") }]);
      await server.result("initialize", { protocolVersion: 1 });
      expect(await server.failure("initialize")).toMatchObject({ code: -32600 });
    },
  },
  {
    id: "R10",
    fault: "a slow change, then a fast read and a fast change",
    async run() {
      const { disk, waits } = gatedDisk();
      const server = serveHere(["--events", "none"], { disk });
      server.send(call(1, "append", { entries: [user("a", { id: "a" })] }));
      const first = await waits();
      server.send(call(2, "get_state"), call(3, "append", { entries: [user("b", { id: "b" })] }), call(4, "get_state"));
      first.pass();
      const replies = server.take(4);
      (await waits()).pass();
      expect((await replies).map(({ id, result }) => [id, result.leafId])).toEqual([
        [1, "a"],
        [2, "a"],
        [3, "b"],
        [4, "b"],
      ]);
    },
  },
  {
    id: "R11",
    fault: "a session that waits for its host while another is asked",
    async run() {
      const { server, place } = serveLines(chain(3), { args: ["--events", "none"] });
      const beside = sessionFile(place, chain(2), "beside.jsonl", userHeader("beside"));
      await server.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }], events: [] } });
      const { sessionId } = await server.result("open_session", { sessionPath: beside });
      server.send(call("slow", "branch", { entryId: id(0) }));
      const asked = await hookRequest(server);
      expect((await server.result("get_state", { sessionId })).entryCount).toBe(2);
      expect((await server.result("append", { sessionId, entries: [user("x", { id: "x" })] })).leafId).toBe("x");
      server.send({ jsonrpc: "2.0", id: asked.id, result: {} });
      expect((await server.reply("slow")).result.leafId).toBe(id(0));
    },
  },
  {
    id: "R12",
    fault: "cancelling a change that waits, and one that is done",
    async run() {
      const { server, file } = serveLines(chain(3), { args: ["--events", "none"] });
      await server.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }], events: [] } });
      server.send(call("hooked", "branch", { entryId: id(0) }), call("queued", "append", { entries: [user("never")] }));
      await hookRequest(server);
      const cancel = (id: string): Json => ({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id } });
      server.send(cancel("queued"), cancel("hooked"));
      for (const id of ["hooked", "queued"])
        expect(await server.reply(id)).toMatchObject({ error: { code: -32800, data: { name: "cancelled" } } });
      expect((await server.result("get_state")).leafId).toBe(id(2));
      expect(linesIn(file)).toHaveLength(4);
      // What was applied is applied, and its reply says so.
      server.send(call("done", "append", { entries: [user("done", { id: "done" })] }), cancel("done"));
      expect((await server.next()).result.leafId).toBe("done");
    },
  },
  {
    id: "R13",
    fault: "a host that vetoes, fails or does not answer a hook",
    async run() {
      const hooks = ["session_before_switch", "session_before_fork", "session_before_tree"].map((name) => ({ name }));
      const { server, file, place } = serveLines(chain(3), { args: ["--hook-timeout", "20"] });
      const other = sessionFile(place, chain(2), "other.jsonl", userHeader("other"));
      await server.result("initialize", { capabilities: { hooks, events: [] } });
      // Whether the lock is taken before the host is asked or after it is no matter of the session.
      const now = async (): Promise<Json> => [
        { ...(await server.result("get_state")), lock: undefined },
        readFileSync(file, "latin1"),
      ];
      const before = await now();
      const answers: [string, Json][] = [
        ["says no", { result: { cancel: true } }],
        ["fails", { error: { code: 1, message: "crashed" } }],
        ["is silent", undefined],
      ];
      for (const [what, answer] of answers)
        for (const [method, params] of [
          ["switch_session", { sessionPath: other }],
          ["new_session", {}],
          ["fork", { entryId: id(0) }],
          ["clone", {}],
          ["branch", { entryId: id(0) }],
        ] as const) {
          server.send(call(`${what} ${method}`, method, params));
          const asked = await hookRequest(server);
          if (answer) server.send({ jsonrpc: "2.0", id: asked.id, ...answer });
          const { result, error } = await server.reply(`${what} ${method}`);
          expect(error, `${what} ${method}`).toBeUndefined();
          expect(result).toMatchObject({ cancelled: true, reason: expect.any(String) });
          expect(await now()).toEqual(before);
        }
    },
  },
  {
    id: "R14",
    fault: "a key that is sent again",
    async run() {
      const { server, file, place } = serveLines(chain(2), { args: ["--events", "none"] });
      const params = { entries: [user("once"), user("twice")], idempotencyKey: "k1" };
      const first = await server.result("append", params);
      expect(await server.result("append", params)).toEqual(first);
      await server.finish();
      // By another process, too.
      const next = serveHere(["--session", file, "--events", "none"], { place });
      expect(await next.result("append", params)).toEqual(first);
      expect(linesIn(file)).toHaveLength(5);
    },
  },
  {
    id: "R15",
    fault: "an expectedLeafId that is not the leaf any more",
    async run() {
      const { server, file } = serveLines(chain(3), { args: ["--events", "none"] });
      const { code, data } = await server.failure("append", { entries: [user("x")], expectedLeafId: id(1) });
      expect([code, data.name, data.leafId]).toEqual([-32801, "content_modified", id(2)]);
      expect(linesIn(file)).toHaveLength(4);
      await server.result("append", { entries: [user("x")], expectedLeafId: id(2) });
    },
  },
  {
    id: "R17",
    fault: "the tree of 20,000 entries in one line (a million in soak)",
    options: SYSTEM,
    async run() {
      const { server } = serveLines(chain(20_000), { args: ["--events", "none"] });
      await server.result("initialize", { maxReplyBytes: 1 << 18 });
      let cursor: string | undefined;
      let count = 0;
      do {
        const { nodes, nextCursor } = await server.result("get_tree", cursor === undefined ? {} : { cursor });
        count += nodes.length;
        cursor = nextCursor;
      } while (cursor !== undefined);
      expect(count).toBe(20_000);
    },
  },
  {
    id: "R18",
    fault: "messages of more than one reply may hold",
    async run() {
      const text = "x".repeat(10_000);
      const lines = Array.from({ length: 60 }, (_, n) => userText(id(n), n === 0 ? null : id(n - 1), text));
      const { server } = serveLines(lines, { args: ["--events", "none"] });
      expect((await server.result("get_messages")).messages).toHaveLength(60);
      await server.result("initialize", { maxReplyBytes: 100_000 });
      let cursor: string | undefined;
      let count = 0;
      do {
        const page = await server.result("get_messages", cursor === undefined ? {} : { cursor });
        expect(page.messages.length).toBeLessThan(10);
        count += page.messages.length;
        cursor = page.nextCursor;
      } while (cursor !== undefined);
      expect(count).toBe(60);
    },
  },
  {
    id: "R20",
    fault: "a reader that stalls",
    options: SWEEP,
    async run() {
      const place = temporaryPlace();
      const text = "x".repeat(100_000);
      const lines = Array.from({ length: 50 }, (_, n) => userText(id(n), n === 0 ? null : id(n - 1), text));
      const file = sessionFile(place, lines);
      const server = spawnServer(["--session", file, "--events", "none"], "lines", place);
      await server.result("get_state");
      server.stall();
      // 200 MB of replies; the last request is larger than what pipes hold, so that it ends when input is taken again.
      server.send(...Array.from({ length: 40 }, (_, n) => call(n, "get_entries")));
      await new Promise((resolve) => server.output.once("readable", resolve));
      const resident = residentMiB(server.process.pid as number);
      server.resume();
      expect((await server.take(40)).map((reply) => [reply.id, reply.result.entries.length])).toEqual(
        Array.from({ length: 40 }, (_, n) => [n, 50]),
      );
      expect(resident).toBeLessThan(200);
      expect((await server.finish()).status).toBe(0);
    },
  },
  {
    id: "R21",
    fault: "subscribing while others append",
    async run() {
      const { server } = serveLines(chain(2));
      const many = (from: number): Json[] =>
        Array.from({ length: 20 }, (_, n) =>
          call(`a${from + n}`, "append", { entries: [user("x", { id: `n${from + n}` })] }),
        );
      server.send(...many(0), call("look", "get_entries"), ...many(20), call("end", "get_state"));
      const messages: Json[] = [];
      do messages.push(await server.next());
      while (messages.at(-1).id !== "end");
      const at = messages.findIndex(({ id }) => id === "look");
      const known = messages[at].result.entries.map((entry: Json) => entry.id);
      for (const { method, params } of messages.slice(at))
        if (method === "session_append") known.push(...params.entryIds);
      expect(known).toEqual([id(0), id(1), ...Array.from({ length: 40 }, (_, n) => `n${n}`)]);
      const seqs = messages.flatMap(({ params }) => (params ? [params.seq] : []));
      expect(seqs).toEqual(seqs.map((_, n) => n + 1));
      // Each reply precedes the event it causes, and nothing stands between them.
      expect(kinds(messages).slice(1, 5)).toEqual(["#a0", "session_append", "#a1", "session_append"]);
    },
  },
  {
    id: "R22",
    fault: "a published schema that is not the one that is enforced",
    async run() {
      const server = serveHere(QUIET);
      const { methods, components } = await server.result("rpc.discover");
      const resolved = (param: Json): Json =>
        param.$ref ? components.contentDescriptors[param.$ref.split("/").pop()] : param;
      const published = new Map<string, Json>(methods.map((method: Json) => [method.name, method]));
      for (const { name, params } of table) {
        const { properties = {}, required = [] } = z.toJSONSchema(params, {
          io: "input",
          unrepresentable: "any",
        }) as Json;
        const told = published.get(name).params.map(resolved);
        expect(told.map((param: Json) => param.name).sort(), name).toEqual(Object.keys(properties).sort());
        const demanded = told.filter((param: Json) => param.required).map((param: Json) => param.name);
        expect(demanded.sort(), name).toEqual([...required].sort());
      }
    },
  },
]);

function userHeader(name: string): string {
  return JSON.stringify({ type: "session", version: 3, id: name, timestamp: "2026-01-24T16:22:26.831Z", cwd: "/" });
}
