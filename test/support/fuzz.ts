/** Random and spoiled messages, and who has to be answered how often. */

import { expect } from "vitest";
import { assistant, toolCall, toolResult, user } from "./drafts.ts";
import { collectGarbage } from "./garbage.ts";
import type { Random } from "./random.ts";
import { type Framing, frame, type Json, serveHere } from "./server.ts";

/** Requests that are right, to be spoiled. None of them ends the server or waits for the host. */
const REQUESTS: readonly [string, Json][] = [
  ["append", { entries: [user("é 😀 \u2028"), assistant("b"), toolCall("1"), toolResult("1", "x")] }],
  ["append", { entries: [{ type: "custom", customType: "x", data: [1.5, -0, 1e21, null, true, { a: [] }] }] }],
  ["append", { entries: [user("k")], idempotencyKey: "k", expectedLeafId: null }],
  ["branch", { entryId: null }],
  ["branch", { entryId: "a", position: "before", summary: { summary: "s", details: {} }, label: "l" }],
  ["compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 10 }],
  ["compact-append", { summary: "s", firstKeptEntryId: "b", tokensBefore: 10 }],
  ["set_label", { entryId: "b", label: "l" }],
  ["set_session_name", { name: "n" }],
  ["set_model", { provider: "p", modelId: "m" }],
  ["set_thinking_level", { level: "high" }],
  ["edit_context", { targetId: "a", replacement: { content: "x" } }],
  ["get_entries", { since: "a", limit: 2, types: ["message"] }],
  ["get_entry", { entryId: "a" }],
  ["get_path", {}],
  ["get_tree", { format: "nested", limit: 3 }],
  ["get_tree", { cursor: "1" }],
  ["get_messages", { limit: 1, cursor: "b.1" }],
  ["get_context", { strict: true, explain: true }],
  ["get_fork_messages", { scope: "path" }],
  ["get_last_assistant_text", {}],
  ["get_session_stats", {}],
  ["get_state", {}],
  ["prepare_compaction", { keepRecentTokens: 1 }],
  ["fork", { entryId: "a", position: "at" }],
  ["clone", {}],
  ["new_session", { name: "n", newSessionId: "s" }],
  ["switch_session", { sessionId: "s" }],
  ["switch_session", { sessionPath: "/nowhere" }],
  ["verify_session", {}],
  ["repair_session", { dryRun: true }],
  ["initialize", { protocolVersion: 1, clientInfo: { name: "x" } }],
  ["rpc.discover", {}],
  ["prompt", { message: "x" }],
  ["no_such", {}],
];

const ODD: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e308, 2 ** 53, "", " ", "a\0b", "\ud800", "\u2028\u2029\u0085", "__proto__"],
  ...["x".repeat(3000), [], {}, [[]], [null], { a: { b: { c: {} } } }],
];

const TEXT_PIECES = ["\0", "\ufeff", "\t", ...'{ } [ ] " \\ , : null 1e999 - \\u "id": "method":5,'.split(" ")];

const BAD_HEADERS = [
  "Content-Length: x\r\n\r\n",
  "Content-Length: -1\r\n\r\n",
  "Nonsense\r\n",
  "Content-Type: y\r\n\r\n",
  "content-length:\r\n\r\n",
];

/** Puts something odd somewhere into a value. */
function spoilValue(value: Json, random: Random): Json {
  if (typeof value !== "object" || value === null || random.chance(0.15)) return random.pick(ODD);
  const copy = Array.isArray(value) ? [...value] : { ...value };
  const names = Object.keys(copy);
  const name = names.length === 0 ? "x" : random.pick(names);
  if (Array.isArray(copy) && (names.length === 0 || random.chance(0.2)))
    copy.splice(random.int(copy.length + 1), random.int(2), random.pick(ODD));
  else if (!Array.isArray(copy) && random.chance(0.2)) delete copy[name];
  else if (!Array.isArray(copy) && random.chance(0.15))
    copy[random.pick(["extra", "toString", "", "sessionId", "_meta"])] = random.pick(ODD);
  else copy[name] = spoilValue(copy[name], random);
  return copy;
}

function spoilText(text: string, random: Random): string {
  let spoiled = text;
  for (let changes = random.int(3); changes >= 0; changes--) {
    const at = random.int(spoiled.length + 1);
    const cut = random.chance(0.5) ? random.int(6) : 0;
    spoiled = spoiled.slice(0, at) + (random.chance(0.6) ? random.pick(TEXT_PIECES) : "") + spoiled.slice(at + cut);
  }
  return spoiled.replaceAll("\n", " ");
}

/** The ids of a payload that must be answered once each. */
function usableIds(payload: string, dialect: string): string[] {
  const idOf = (item: Json): string[] => {
    if (typeof item !== "object" || item === null || Array.isArray(item) || typeof item.id !== "string") return [];
    // An item like an answer to a question of the server answers no request.
    if (dialect === "jsonrpc" && !("method" in item) && ("result" in item || "error" in item)) return [];
    return [item.id];
  };
  try {
    const value = JSON.parse(payload);
    return Array.isArray(value) && dialect === "jsonrpc" ? value.flatMap(idOf) : idOf(value);
  } catch {
    return [];
  }
}

/** Sends so many frames to one server; answers how many of them had to be answered. */
export async function fuzz(
  random: Random,
  framing: Framing,
  dialect: "jsonrpc" | "pi",
  frames: number,
  store: "memory" | "jsonl" | "v2" = "memory",
): Promise<number> {
  const where = store === "memory" ? ["--no-session"] : ["--store", store, "--durability", "os"];
  const server = serveHere([...where, "--framing", framing, "--dialect", dialect, "--events", "none"], { framing });
  const request = (id: string, method: string, params: Json): Json =>
    dialect === "pi" ? { id, type: method, ...params } : { jsonrpc: "2.0", id, method, params };
  const awaited = new Map<string, number>();
  let sent = 0;
  let expected = 0;
  let heap = 0;
  const handle = (message: Json): void => {
    for (const reply of Array.isArray(message) ? message : [message]) {
      if (JSON.stringify(reply).includes("internal_error")) expect(reply).toBe("no bug");
      if (typeof reply.id !== "string") continue;
      const left = awaited.get(reply.id) ?? 0;
      if (left === 0) expect(reply).toBe("awaited");
      if (left === 1) awaited.delete(reply.id);
      else awaited.set(reply.id, left - 1);
    }
  };
  for (let round = 0; sent < frames; round++) {
    let chunk = "";
    for (let n = 0; n < 200; n++, sent++) {
      const id = `q${sent}`;
      const [method, params] = random.pick(REQUESTS);
      let message = request(id, method, params);
      if (random.chance(0.5)) message = spoilValue(message, random);
      let payload = JSON.stringify(random.chance(0.03) ? [message, request(`${id}b`, "get_state", {})] : message);
      if (random.chance(0.3)) payload = spoilText(payload, random);
      if (framing === "headers" && random.chance(0.02)) chunk += random.pick(BAD_HEADERS);
      chunk += frame(framing, payload);
      for (const usable of usableIds(payload, dialect)) {
        awaited.set(usable, (awaited.get(usable) ?? 0) + 1);
        expected++;
      }
    }
    // A new session, so that the stored one does not grow; and a request whose answer must be as usual.
    chunk += frame(framing, request(`n${round}`, "new_session", {}), request(`f${round}`, "get_state", {}));
    awaited.set(`n${round}`, 1);
    server.write(chunk);
    for (let message = await server.next(); message.id !== `f${round}`; message = await server.next()) handle(message);
    if (round === 4) {
      collectGarbage();
      heap = process.memoryUsage().heapUsed;
    }
  }
  // One by one: many messages are still to come, and none is needed.
  server.end();
  for (let message: Json; ; handle(message)) {
    message = await server.next().catch(() => undefined);
    if (message === undefined) break;
  }
  expect(await server.done).toBe(0);
  expect([...awaited.keys()]).toEqual([]);
  collectGarbage();
  const grown = (process.memoryUsage().heapUsed - heap) / (1 << 20);
  expect(grown, "MiB that are left behind").toBeLessThan(40);
  return expected;
}
