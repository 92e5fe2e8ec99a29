/** Pages joined are the whole, whatever happens between them; no reply is larger than the host allows. */

import { describe, expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { HereLives } from "../support/proof.ts";
import { Random } from "../support/random.ts";
import { type Framing, frame, type Json, type Wire } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

/** A session with some hundred entries of very different sizes, branches, labels, edits and a compaction. */
async function grown(lives: HereLives, wire: Wire, most = 150): Promise<string[]> {
  const random = new Random(7);
  const ids: string[] = [];
  for (let n = 0; n < most; n++) {
    const text = `${n} ${"é\u2028".repeat(random.int(30))}${random.hex(random.chance(0.1) ? 700 : 20)}`;
    const draft = random.chance(0.5) ? user(text) : assistant(text);
    if (n > 10 && random.chance(0.1)) draft.parentId = random.pick(ids);
    const { entryIds } = await wire.result("append", {
      entries: [draft, { type: "custom", customType: "n", data: n }],
    });
    ids.push(...entryIds);
    if (n % 20 === 5) await wire.result("set_label", { entryId: random.pick(ids), label: text.slice(0, 40) });
  }
  await wire.result("compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 });
  for (let n = 0; n < 40; n++) {
    const { entryIds } = await wire.result("append", { entries: [user(`late ${n} ${random.hex(40)}`)] });
    if (n % 4 === 0)
      await wire.result("edit_context", {
        targetId: entryIds[0],
        replacement: n % 8 === 0 ? null : { content: `edited ${"long ".repeat(150)}` },
      });
  }
  expect(lives.said).toEqual([]);
  return ids;
}

const LISTS: readonly { readonly method: string; readonly member: string; readonly params: Json }[] = [
  { method: "get_messages", member: "messages", params: {} },
  { method: "get_entries", member: "entries", params: {} },
  { method: "get_entries", member: "entries", params: { types: ["message", "label"] } },
  { method: "get_path", member: "entries", params: {} },
  { method: "get_tree", member: "nodes", params: { format: "flat" } },
];

/** All pages of a list, each asked for with the cursor of the one before. */
async function pages(
  wire: Wire,
  method: string,
  member: string,
  params: Json,
  between: () => Promise<unknown> = async () => {},
): Promise<Json[][]> {
  const found: Json[][] = [];
  let cursor: string | undefined;
  do {
    const result = await wire.result(method, { ...params, ...(cursor === undefined ? {} : { cursor }) });
    expect(result[member].length, "a page has something on it").toBeGreaterThan(0);
    found.push(result[member]);
    cursor = result.nextCursor;
    await between();
  } while (cursor !== undefined);
  return found;
}

describe("pages joined are the whole", () => {
  acrossTiers(test, [{ ...LISTS[0], most: 15 }, ...LISTS.map((list) => ({ ...list, most: 150 }))])(
    "$method $member $params, with any limit ($most)",
    async ({ method, member, params, most }) => {
      const lives = new HereLives();
      const wire = await lives.start([]);
      await grown(lives, wire, most);
      const whole = (await wire.result(method, params))[member];
      expect(whole.length).toBeGreaterThan(30);
      for (const limit of [1, 7, whole.length - 1, whole.length, whole.length + 1]) {
        const found = await pages(wire, method, member, { ...params, limit });
        expect(found.flat(), `limit ${limit}`).toEqual(whole);
        for (const page of found.slice(0, -1)) expect(page).toHaveLength(limit);
      }
    },
  );

  acrossTiers(test, LISTS)(
    "$method $member $params, with appends, labels and moves between the pages",
    async ({ method, member, params }) => {
      const lives = new HereLives();
      const wire = await lives.start([]);
      const ids = await grown(lives, wire);
      const whole = (await wire.result(method, params))[member];
      let n = 0;
      const found = await pages(wire, method, member, { ...params, limit: 25 }, async () => {
        n++;
        await wire.result("append", { entries: [user(`between ${n}`)] });
        if (n % 3 === 0) await wire.result("branch", { entryId: ids[n] });
      });
      // What is in file order goes on growing; a path and a context are those of the first page.
      const joined = found.flat();
      const counts =
        method === "get_tree" ? (node: Json): Json => ({ ...node, childCount: 0 }) : (item: Json): Json => item;
      expect(joined.slice(0, whole.length).map(counts)).toEqual(whole.map(counts));
      if (["get_messages", "get_path"].includes(method)) expect(joined).toHaveLength(whole.length);
      else expect(new Set(joined.map(({ id }) => id)).size).toBe(joined.length);
    },
  );

  test("get_entries since an entry, and from there in pages", SYSTEM, async () => {
    const lives = new HereLives();
    const wire = await lives.start([]);
    const ids = await grown(lives, wire);
    const { entries } = await wire.result("get_entries");
    const since = ids[100];
    const after = entries.slice(entries.findIndex(({ id }: Json) => id === since) + 1);
    expect((await wire.result("get_entries", { since })).entries).toEqual(after);
    expect((await pages(wire, "get_entries", "entries", { since, limit: 9 })).flat()).toEqual(after);
    const last = entries.at(-1).id;
    expect(await wire.result("get_entries", { since: last })).toEqual({ entries: [], leafId: last });
  });
});

describe("no reply is larger than the host allows", () => {
  const LIMIT = 4096;

  /** The bytes of each message the server sends, without what frames it. */
  function sizes(wire: Wire, framing: Framing): () => number[] {
    let said = Buffer.alloc(0);
    wire.output.on("data", (chunk: Buffer) => {
      said = Buffer.concat([said, chunk]);
    });
    return () => {
      if (framing === "lines")
        return said
          .toString("latin1")
          .split("\n")
          .slice(0, -1)
          .map(({ length }) => length);
      return [...said.toString("latin1").matchAll(/Content-Length: (\d+)/g)].map(([, length]) => Number(length));
    };
  }

  acrossTiers(test, [
    { framing: "lines", most: 30 },
    { framing: "lines", most: 150 },
    { framing: "headers", most: 150 },
  ] as const)("$framing: lists come in pages that fit, and joined are the whole ($most)", async ({ framing, most }) => {
    const lives = new HereLives({ framing });
    const wire = await lives.start(["--events", "none"]);
    await grown(lives, wire, most);
    const wholes: Json[] = [];
    for (const { method, member, params } of LISTS) wholes.push((await wire.result(method, params))[member]);
    await wire.result("initialize", { maxReplyBytes: LIMIT });
    const measured = sizes(wire, framing);
    for (const [index, { method, member, params }] of LISTS.entries()) {
      const found = await pages(wire, method, member, params);
      expect(found.flat(), method).toEqual(wholes[index]);
      expect(found.length).toBeGreaterThan(1);
      // Pages are not cut needlessly small.
      const bytes = Buffer.byteLength(JSON.stringify(wholes[index]));
      expect(found.length, `${method}: ${found.length} pages of ${bytes} bytes`).toBeLessThan((bytes / LIMIT) * 3 + 2);
    }
    expect(Math.max(...measured())).toBeLessThanOrEqual(LIMIT);
    expect(Math.max(...measured())).toBeGreaterThan(LIMIT / 2);
  });

  test("one item that is too large alone is refused, and the others can be had around it", async () => {
    const lives = new HereLives();
    const wire = await lives.start(["--events", "none"]);
    const drafts = [user("small", { id: "e1" }), user("x".repeat(9000), { id: "e2" }), user("last", { id: "e3" })];
    await wire.result("append", { entries: drafts });
    await wire.result("initialize", { maxReplyBytes: LIMIT });
    const measured = sizes(wire, "lines");
    for (const [method, params] of [
      ["get_entry", { entryId: "e2" }],
      ["get_path", { cursor: "e3.1" }],
      ["get_entries", { since: "e1" }],
      ["get_tree", { format: "nested" }],
      ["get_context", {}],
    ] as const) {
      const { data } = await wire.failure(method, params);
      expect(data, method).toMatchObject({ name: "message_too_large", retryable: false, limit: LIMIT });
    }
    const first = await wire.result("get_entries");
    expect(first.entries.map(({ id }: Json) => id)).toEqual(["e1"]);
    expect(first.nextCursor).toBeDefined();
    expect((await wire.result("get_entries", { since: "e2" })).entries.map(({ id }: Json) => id)).toEqual(["e3"]);
    expect((await wire.result("get_tree", { format: "flat" })).nodes).toHaveLength(3);
    expect(Math.max(...measured())).toBeLessThanOrEqual(LIMIT);
  });

  test("separators that a line must escape count as what they become", async () => {
    const lives = new HereLives();
    const wire = await lives.start(["--events", "none"]);
    await wire.result("append", { entries: [user("\u2028".repeat(1000), { id: "e1" })] });
    await wire.result("initialize", { maxReplyBytes: LIMIT });
    const measured = sizes(wire, "lines");
    expect((await wire.failure("get_entry", { entryId: "e1" })).data.name).toBe("message_too_large");
    expect(Math.max(...measured())).toBeLessThanOrEqual(LIMIT);
  });

  test("the replies of a batch are one message, and what does not fit says so", async () => {
    const lives = new HereLives();
    const wire = await lives.start(["--events", "none"]);
    await wire.result("append", { entries: [user("x".repeat(1500), { id: "e1" })] });
    await wire.result("initialize", { maxReplyBytes: LIMIT });
    const measured = sizes(wire, "lines");
    wire.send(
      [1, 2, 3].map((id) => ({ jsonrpc: "2.0", id: `b${id}`, method: "get_entry", params: { entryId: "e1" } })),
    );
    const batch = await wire.next();
    expect(batch.map(({ error }: Json) => error?.data.name)).toEqual([undefined, undefined, "message_too_large"]);
    expect(Math.max(...measured())).toBeLessThanOrEqual(LIMIT);
  });
});

describe("a cursor that names nothing", () => {
  test.each([
    "",
    "x",
    "-1",
    "1.5",
    "0x10",
    "1e3",
    "99999",
    ".",
    "nowhere.0",
    "e1.",
    "e1.-1",
    "e1.7",
    "\u0000",
    "9".repeat(400),
  ])("%j has expired", async (cursor) => {
    const lives = new HereLives();
    const wire = await lives.start([]);
    await wire.result("append", { entries: [user("a", { id: "e1" }), user("b", { id: "e2" })] });
    for (const { method, params } of LISTS) {
      const { code, data } = await wire.failure(method, { ...params, cursor });
      expect(data, method).toMatchObject({ name: "cursor_expired" });
      expect(code).toBe(-32002);
    }
  });

  test("of another session has expired", async () => {
    const lives = new HereLives();
    const wire = await lives.start([]);
    await wire.result("append", { entries: ["a", "b", "c"].map((text) => user(text)) });
    const cursors: [string, Json][] = [];
    for (const { method, params } of LISTS) {
      const { nextCursor } = await wire.result(method, { ...params, limit: 2 });
      cursors.push([method, { ...params, cursor: nextCursor }]);
    }
    await wire.result("new_session");
    await wire.result("append", { entries: [user("other")] });
    for (const [method, params] of cursors)
      expect((await wire.failure(method, params)).data.name).toBe("cursor_expired");
  });
});

describe("$/cancelRequest", () => {
  /** Requests in one write: a change, what waits for it to be durable, and what waits for that. */
  async function queued(lives: HereLives, cancel: Json): Promise<{ wire: Wire; replies: Json[] }> {
    const wire = await lives.start(["--events", "none"]);
    await wire.result("append", { entries: [user("a", { id: "e1" })] });
    const request = (id: Json, method: string, params: Json): string =>
      frame("lines", { jsonrpc: "2.0", id, method, params });
    wire.write(
      request(1, "append", { entries: [user("b", { id: "e2" })] }) +
        request(2, "clone", {}) +
        request(3, "append", { entries: [user("never", { id: "e3" })] }) +
        request("3", "append", { entries: [user("c", { id: "e4" })] }) +
        frame("lines", { jsonrpc: "2.0", method: "$/cancelRequest", params: cancel }) +
        request(5, "get_entries", {}),
    );
    return { wire, replies: await wire.take(5) };
  }

  test("of a request that waits: it is not run, and its reply comes in its turn", async () => {
    const lives = new HereLives();
    const { wire, replies } = await queued(lives, { id: 3 });
    expect(replies.map(({ id }) => id)).toEqual([1, 2, 3, "3", 5]);
    expect(replies[2].error).toMatchObject({ code: -32800, data: { name: "cancelled" } });
    expect(replies[3].result.leafId).toBe("e4");
    expect(replies[4].result.entries.map(({ id }: Json) => id)).toEqual(["e1", "e2", "e4"]);
    // The id is free again, and a cancellation of nothing is nothing.
    wire.send({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: 3 } });
    wire.send({ jsonrpc: "2.0", id: 3, method: "get_state" });
    expect((await wire.reply(3)).result.entryCount).toBe(3);
  });

  test("of a request that is running, was answered or never was: everything is applied whole", async () => {
    for (const id of [1, 2, 5, 77, null, { no: "id" }]) {
      const { replies } = await queued(new HereLives(), { id });
      expect(
        replies.map((reply) => reply.error),
        JSON.stringify(id),
      ).toEqual(Array(5).fill(undefined));
      expect(replies[4].result.entries).toHaveLength(4);
    }
  });
});
