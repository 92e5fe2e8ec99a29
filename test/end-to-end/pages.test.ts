/** Pages joined are the whole, whatever happens between them; no reply is larger than the host allows. */

import { describe, expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { HereLives } from "../support/proof.ts";
import { Random } from "../support/random.ts";
import { call, type Framing, type Json, type Wire } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

/** A session with some hundred entries of very different sizes, branches, labels, edits and a compaction. */
async function grown(
  args: string[] = [],
  most = 150,
  framing: Framing = "lines",
): Promise<{ wire: Wire; ids: string[] }> {
  const lives = new HereLives({ framing });
  const wire = await lives.start(args);
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
    const replacement = n % 8 === 0 ? null : { content: `edited ${"long ".repeat(150)}` };
    if (n % 4 === 0) await wire.result("edit_context", { targetId: entryIds[0], replacement });
  }
  expect(lives.said).toEqual([]);
  return { wire, ids };
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

acrossTiers(test, [{ ...LISTS[0], most: 15 }, ...LISTS.map((list) => ({ ...list, most: 150 }))])(
  "pages joined are the whole, with any limit, and with appends and moves between them: $method $member $params ($most)",
  async ({ method, member, params, most }) => {
    const { wire, ids } = await grown([], most);
    const whole = (await wire.result(method, params))[member];
    expect(whole.length).toBeGreaterThan(30);
    for (const limit of [1, 7, whole.length - 1, whole.length, whole.length + 1]) {
      const found = await pages(wire, method, member, { ...params, limit });
      expect(found.flat(), `limit ${limit}`).toEqual(whole);
      for (const page of found.slice(0, -1)) expect(page).toHaveLength(limit);
    }
    let n = 0;
    const found = await pages(wire, method, member, { ...params, limit: 25 }, async () => {
      n++;
      await wire.result("append", { entries: [user(`between ${n}`)] });
      if (n % 3 === 0) await wire.result("branch", { entryId: ids[n] });
    });
    // Pages in file order go on growing; a path and a context are those of the first page.
    const joined = found.flat();
    const same = (item: Json): Json => (method === "get_tree" ? { ...item, childCount: 0 } : item);
    expect(joined.slice(0, whole.length).map(same)).toEqual(whole.map(same));
    if (["get_messages", "get_path"].includes(method)) expect(joined).toHaveLength(whole.length);
    else expect(new Set(joined.map(({ id }) => id)).size).toBe(joined.length);
  },
);

test("get_entries comes in pages from after an entry, too, and has none after the last", async () => {
  const wire = await new HereLives().start([]);
  const { entryIds } = await wire.result("append", { entries: ["a", "b", "c", "d", "e"].map((text) => user(text)) });
  const found = await pages(wire, "get_entries", "entries", { since: entryIds[0], limit: 3 });
  expect(found.map((page) => page.map(({ id }) => id))).toEqual([entryIds.slice(1, 4), entryIds.slice(4)]);
  const [last] = entryIds.slice(-1);
  expect(await wire.result("get_entries", { since: last })).toEqual({ entries: [], leafId: last });
});

describe("no reply is larger than the host allows", () => {
  const LIMIT = 4096;

  /** Sets the limit. Returns the bytes of each message the server sends from then on, without what frames it. */
  async function limited(wire: Wire, framing: Framing = "lines"): Promise<() => number[]> {
    await wire.result("initialize", { maxReplyBytes: LIMIT });
    const said: Buffer[] = [];
    wire.output.on("data", (chunk: Buffer) => said.push(chunk));
    return () => {
      const text = Buffer.concat(said).toString("latin1");
      if (framing === "headers")
        return [...text.matchAll(/Content-Length: (\d+)/g)].map(([, length]) => Number(length));
      return text.split("\n").map(({ length }) => length);
    };
  }

  async function started(...entries: Json[]): Promise<Wire> {
    const wire = await new HereLives().start(["--events", "none"]);
    await wire.result("append", { entries });
    return wire;
  }

  acrossTiers(test, [
    { framing: "lines", most: 30 },
    { framing: "lines", most: 150 },
    { framing: "headers", most: 150 },
  ] as const)("$framing: lists come in pages that fit, and joined are the whole ($most)", async ({ framing, most }) => {
    const { wire } = await grown(["--events", "none"], most, framing);
    const wholes: Json[] = [];
    for (const { method, member, params } of LISTS) wholes.push((await wire.result(method, params))[member]);
    const measured = await limited(wire, framing);
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

  test("one item that is too large alone is refused by whatever has it", async () => {
    const texts = ["small", "x".repeat(9000), "last"];
    const wire = await started(...texts.map((text, n) => user(text, { id: `e${n + 1}` })));
    const measured = await limited(wire);
    for (const [method, params] of [
      ["get_entry", { entryId: "e2" }],
      ["get_path", { cursor: "e3.1" }],
      ["get_tree", { format: "nested" }],
      ["get_context", {}],
    ] as const) {
      const { data } = await wire.failure(method, params);
      expect(data, method).toMatchObject({ name: "message_too_large", retryable: false, limit: LIMIT });
    }
    expect((await wire.result("get_tree", { format: "flat" })).nodes).toHaveLength(3);
    expect(Math.max(...measured())).toBeLessThanOrEqual(LIMIT);
  });

  test("separators that a line must escape count as what they become", async () => {
    const wire = await started(user("\u2028".repeat(1000), { id: "e1" }));
    await limited(wire);
    expect((await wire.failure("get_entry", { entryId: "e1" })).data.name).toBe("message_too_large");
  });

  test("the replies of a batch are one message, and what does not fit says so", async () => {
    const wire = await started(user("x".repeat(1500), { id: "e1" }));
    const measured = await limited(wire);
    wire.send([1, 2, 3].map((id) => call(`b${id}`, "get_entry", { entryId: "e1" })));
    const names = (await wire.next()).map(({ error }: Json) => error?.data.name);
    expect(names).toEqual([undefined, undefined, "message_too_large"]);
    expect(Math.max(...measured())).toBeLessThanOrEqual(LIMIT);
  });
});

test("a cursor that names nothing, or something of another session, has expired", async () => {
  const wire = await new HereLives().start([]);
  const cursors = " x -1 1.5 0x10 1e3 99999 . nowhere.0 e1. e1.-1 e1.1 e1.7 3 \0".split(" ");
  await wire.result("append", { entries: ["e1", "e2", "e3"].map((id) => user(id, { id })) });
  const given: [string, Json][] = [];
  for (const { method, params } of LISTS) {
    const { nextCursor } = await wire.result(method, { ...params, limit: 2 });
    given.push([method, { ...params, cursor: nextCursor }]);
    for (const cursor of [...cursors, "9".repeat(400)]) {
      const { code, data } = await wire.failure(method, { ...params, cursor });
      expect([code, data.name], `${method} ${cursor}`).toEqual([-32002, "cursor_expired"]);
    }
  }
  await wire.result("new_session");
  await wire.result("append", { entries: [user("other")] });
  for (const [method, params] of given) expect((await wire.failure(method, params)).data.name).toBe("cursor_expired");
});
