/** What reading commands answer: entries, trees, messages and state, whole and in pages. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { type Framing, type HereServer, type Json, serveHere, temporaryFolder } from "../support/server.ts";

/** a-b-c-d, where e and f are beside c, and r is another root; the leaf is at d. */
async function session(): Promise<HereServer> {
  const server = serveHere(["--no-session", "--events", "none"]);
  await server.result("append", {
    entries: [
      user("one", { id: "a" }),
      assistant("two", { id: "b" }),
      user("three", { id: "c" }),
      assistant("four", { id: "d" }),
      user("beside", { id: "e", parentId: "b" }),
      { type: "custom", id: "f", parentId: "b", customType: "x", data: { n: 1 } },
      user("root", { id: "r", parentId: null }),
      { type: "label", id: "l", parentId: "d", targetId: "a", label: "start" },
    ],
  });
  await server.result("branch", { entryId: "d" });
  return server;
}

function ids(list: Json[]): string[] {
  return list.map(({ id, entryId }) => id ?? entryId);
}

/** All pages of a command, by the name of what they hold. */
async function pages(server: HereServer, method: string, member: string, params: object): Promise<Json[][]> {
  const found: Json[][] = [];
  let cursor: string | undefined;
  do {
    const page = await server.result(method, { ...params, ...(cursor === undefined ? {} : { cursor }) });
    found.push(page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
}

describe("get_entries", () => {
  test("answers the entries of all branches in file order", async () => {
    const server = await session();
    const { entries, leafId, ...rest } = await server.result("get_entries");
    expect(ids(entries)).toEqual(["a", "b", "c", "d", "e", "f", "r", "l"]);
    expect(entries[5]).toMatchObject({ type: "custom", parentId: "b", customType: "x", data: { n: 1 } });
    expect({ leafId, rest }).toEqual({ leafId: "d", rest: {} });
  });

  test.each<[object, string[]]>([
    [{ since: "d" }, ["e", "f", "r", "l"]],
    [{ since: "l" }, []],
    [{ types: ["custom", "label"] }, ["f", "l"]],
    [{ types: ["nope"] }, []],
    [{ types: [] }, []],
    [{ since: "a", types: ["message"] }, ["b", "c", "d", "e", "r"]],
  ])("answers some of them: %j", async (params, expected) => {
    const server = await session();
    expect(ids((await server.result("get_entries", params)).entries)).toEqual(expected);
    for (const limit of [1, 2, 3, 100])
      expect((await pages(server, "get_entries", "entries", { ...params, limit })).flatMap(ids)).toEqual(expected);
  });

  test("pages have a cursor as long as there is more", async () => {
    const server = await session();
    const found = await pages(server, "get_entries", "entries", { limit: 3 });
    expect(found.map(ids)).toEqual([
      ["a", "b", "c"],
      ["d", "e", "f"],
      ["r", "l"],
    ]);
    expect(await server.result("get_entries", { limit: 8 })).not.toHaveProperty("nextCursor");
  });

  test("refuses what it does not know", async () => {
    const server = await session();
    expect(await server.failure("get_entries", { since: "nope" })).toMatchObject({
      code: -32002,
      data: { name: "entry_not_found" },
    });
    for (const cursor of ["", "x", "-1", "1.5", "9".repeat(40)])
      expect(await server.failure("get_entries", { cursor })).toMatchObject({
        code: -32002,
        data: { name: "cursor_expired" },
      });
  });
});

describe("get_tree", () => {
  test("answers the nodes of all branches in file order", async () => {
    const server = await session();
    const { nodes, leafId } = await server.result("get_tree");
    expect(leafId).toBe("d");
    expect(nodes.map(({ timestamp, ...node }: Json) => ({ ...node, timestamp: typeof timestamp }))).toEqual(
      [
        { id: "a", parentId: null, type: "message", role: "user", preview: "one", label: "start", childCount: 1 },
        { id: "b", parentId: "a", type: "message", role: "assistant", preview: "two", childCount: 3 },
        { id: "c", parentId: "b", type: "message", role: "user", preview: "three", childCount: 1 },
        { id: "d", parentId: "c", type: "message", role: "assistant", preview: "four", childCount: 1 },
        { id: "e", parentId: "b", type: "message", role: "user", preview: "beside", childCount: 0 },
        { id: "f", parentId: "b", type: "custom", preview: "x", childCount: 0 },
        { id: "r", parentId: null, type: "message", role: "user", preview: "root", childCount: 0 },
        { id: "l", parentId: "d", type: "label", preview: "start", childCount: 0 },
      ].map((node) => ({ ...node, timestamp: "string" })),
    );
  });

  test("answers them in pages", async () => {
    const server = await session();
    for (const limit of [1, 3, 8, 9]) {
      const found = await pages(server, "get_tree", "nodes", { limit });
      expect(found.flatMap(ids)).toEqual(["a", "b", "c", "d", "e", "f", "r", "l"]);
      expect(Math.max(...found.map(({ length }) => length))).toBe(Math.min(limit, 8));
    }
    expect((await server.failure("get_tree", { cursor: "x" })).data.name).toBe("cursor_expired");
  });

  test("answers them nested, with the entries as they are stored", async () => {
    const server = await session();
    const { tree, leafId } = await server.result("get_tree", { format: "nested" });
    const shape = ({ entry, children }: Json): Json =>
      children.length === 0 ? entry.id : { [entry.id]: children.map(shape) };
    expect(tree.map(shape)).toEqual([{ a: [{ b: [{ c: [{ d: ["l"] }] }, "e", "f"] }] }, "r"]);
    expect(leafId).toBe("d");
    const { entries } = await server.result("get_entries");
    expect(tree[0].entry).toEqual(entries[0]);
    expect(tree[0]).toMatchObject({ label: "start", labelTimestamp: entries[7].timestamp });
    expect(tree[1]).toEqual({ entry: entries[6], children: [] });
  });

  test("is nested by default in Pi's dialect, flat in JSON-RPC", async () => {
    const server = serveHere(["--no-session", "--dialect", "pi", "--events", "none"]);
    await server.command("append", { entries: [user("one", { id: "a" })] });
    expect((await server.command("get_tree")).data).toMatchObject({
      tree: [{ entry: { id: "a" }, children: [] }],
      leafId: "a",
    });
    expect((await server.command("get_tree", { format: "flat" })).data.nodes).toHaveLength(1);
  });

  test("is that of the time when it was asked for, whatever comes before the reply leaves", async () => {
    const server = await session();
    const before = (await server.result("get_tree")).nodes;
    server.send([
      { jsonrpc: "2.0", id: "t", method: "get_tree" },
      { jsonrpc: "2.0", id: "a", method: "append", params: { entries: [user("more", { id: "m", parentId: "e" })] } },
      { jsonrpc: "2.0", id: "l", method: "set_label", params: { entryId: "e", label: "later" } },
    ]);
    const replies = (await server.next()) as Json[];
    expect(replies.find(({ id }) => id === "t").result.nodes).toEqual(before);
    expect((await server.result("get_tree")).nodes.find(({ id }: Json) => id === "e")).toMatchObject({
      label: "later",
      childCount: 1,
    });
  });

  test("of an empty session is empty", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    expect(await server.result("get_tree")).toEqual({ nodes: [], leafId: null });
    expect(await server.result("get_tree", { format: "nested" })).toEqual({ tree: [], leafId: null });
  });

  test("that was asked for before tells what has changed since", async () => {
    const server = await session();
    const before = (await server.result("get_tree")).nodes;
    await server.result("append", { entries: [user("more", { id: "m" })] });
    await server.result("set_label", { entryId: "e", label: "later" });
    const { nodes } = await server.result("get_tree");
    const expected = before.map((node: Json) => ({ ...node, childCount: node.childCount + (node.id === "d" ? 1 : 0) }));
    expect(nodes.slice(0, 8)).toEqual(
      expected.map((node: Json) => (node.id === "e" ? { ...node, label: "later" } : node)),
    );
    expect(nodes[8]).toMatchObject({ id: "m", parentId: "d", role: "user", preview: "more" });
    expect((await server.result("get_tree", { limit: 3 })).nodes).toEqual(nodes.slice(0, 3));
  });

  test("has previews on one line, cut to a hundred characters", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    await server.result("append", {
      entries: [user(`  two\nlines\t${"x".repeat(200)}`), user(""), { type: "session_info", name: "n" }],
    });
    const { nodes } = await server.result("get_tree");
    expect(nodes[0].preview).toMatch(/^two lines x+…$/);
    expect(nodes[0].preview).toHaveLength(100);
    expect(nodes[1]).not.toHaveProperty("preview");
    expect(nodes[2].preview).toBe("n");
  });
});

describe("get_messages", () => {
  test("answers the messages of the path, oldest first", async () => {
    const server = await session();
    const { messages } = await server.result("get_messages");
    expect(messages).toEqual(
      [user("one"), assistant("two"), user("three"), assistant("four")].map(({ message }) => message),
    );
    await server.result("branch", { entryId: "r" });
    expect(await server.result("get_messages")).toEqual({ messages: [{ role: "user", content: "root" }] });
    await server.result("branch", { entryId: null });
    expect(await server.result("get_messages")).toEqual({ messages: [] });
  });

  test("pages stay those of their path, whatever is appended or left meanwhile", async () => {
    const server = await session();
    const whole = (await server.result("get_messages")).messages;
    for (const limit of [1, 3, 4, 100])
      expect((await pages(server, "get_messages", "messages", { limit })).flat()).toEqual(whole);
    const first = await server.result("get_messages", { limit: 3 });
    await server.result("append", { entries: [user("five")] });
    await server.result("branch", { entryId: "r" });
    const second = await server.result("get_messages", { cursor: first.nextCursor });
    expect([...first.messages, ...second.messages]).toEqual(whole);
    expect(second).not.toHaveProperty("nextCursor");
    for (const cursor of ["", "x", "nope.1", "d.x", "d"])
      expect((await server.failure("get_messages", { cursor })).data.name, cursor).toBe("cursor_expired");
  });
});

describe("get_fork_messages", () => {
  test("answers the user messages of all branches, or of the path", async () => {
    const server = await session();
    const all = await server.result("get_fork_messages");
    expect(all.messages.map(({ entryId, text }: Json) => [entryId, text])).toEqual([
      ["a", "one"],
      ["c", "three"],
      ["e", "beside"],
      ["r", "root"],
    ]);
    expect(await server.result("get_fork_messages", { scope: "all" })).toEqual(all);
    expect(ids((await server.result("get_fork_messages", { scope: "path" })).messages)).toEqual(["a", "c"]);
    await server.result("branch", { entryId: "e" });
    expect(ids((await server.result("get_fork_messages", { scope: "path" })).messages)).toEqual(["a", "e"]);
  });

  test.each(["all", "path"])("answers them in pages: %s", async (scope) => {
    const server = await session();
    const last = { type: "message", id: "z", message: { role: "user", content: [{ type: "text", text: "last" }] } };
    await server.result("append", { entries: [user(""), last] });
    const whole = (await server.result("get_fork_messages", { scope })).messages;
    expect(whole.at(-1)).toEqual({ entryId: "z", text: "last" });
    for (const limit of [1, 2, 100]) {
      const found = await pages(server, "get_fork_messages", "messages", { scope, limit });
      expect(found.flat()).toEqual(whole);
      expect(Math.max(...found.map(({ length }) => length))).toBe(Math.min(limit, whole.length));
    }
    for (const cursor of ["x", "99", "z.99"])
      expect((await server.failure("get_fork_messages", { scope, cursor })).data.name, cursor).toBe("cursor_expired");
  });

  test.each([1, 200])("has the texts that a parser finds, however they are written: %i times", async (times) => {
    const file = join(temporaryFolder(), "s.jsonl");
    const contents = [
      '"a\\u0062c\\/d"',
      '"\\"q\\"\\n\\t\\\\"',
      '[{"type":"text","text":"one "},{"type":"image"},{"text":"two","type":"te\\u0078t"}]',
      '[{"type":"text","text":"x","text":"last"}]',
      ' "spaced" ',
      '"first","content":"again"',
    ];
    const lines = Array.from({ length: times }, () => contents)
      .flat()
      .map(
        (content, n) =>
          `{"type":"message","id":"e${n}","parentId":null,"timestamp":"t","message":{"role":"user","content":${content}}}`,
      );
    writeFileSync(file, [`{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}`, ...lines, ""].join("\n"));
    const server = serveHere(["--session", file, "--read-only", "--events", "none"]);
    const { messages } = await server.result("get_fork_messages");
    const texts = ["abc/d", '"q"\n\t\\', "one two", "last", "spaced", "again"];
    const all = Array.from({ length: times }, () => texts).flat();
    expect(messages).toEqual(all.map((text, n) => ({ entryId: `e${n}`, text })));
    const { nodes } = await server.result("get_tree");
    expect(nodes.map(({ preview }: Json) => preview)).toEqual(all.map((text) => text.replace(/\s+/g, " ").trim()));
  });

  test("every one of them can be forked before", async () => {
    const server = await session();
    await server.result("append", {
      entries: [
        {
          type: "message",
          id: "i",
          message: { role: "user", content: [{ type: "image", data: "", mimeType: "image/png" }] },
        },
      ],
    });
    await server.result("compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 });
    const { messages } = await server.result("get_fork_messages");
    expect(ids(messages)).not.toContain("i");
    for (const { entryId, text } of messages) {
      const other = await session();
      expect((await other.result("fork", { entryId })).text).toBe(text);
    }
  });
});

describe("get_last_assistant_text", () => {
  test.each<[string, Json[], string | null]>([
    ["none", [user("x")], null],
    ["the last", [assistant("one"), user("x"), assistant("two"), user("y")], "two"],
    [
      "text blocks joined and trimmed",
      [
        {
          type: "message",
          message: {
            role: "assistant",
            content: [
              { type: "text", text: " a" },
              { type: "thinking", thinking: "t" },
              { type: "text", text: "b " },
            ],
          },
        },
      ],
      "ab",
    ],
    ["no text in the last", [assistant("one"), toolCall("1"), toolResult("1", "x")], null],
    [
      "one aborted before it said anything is passed over",
      [assistant("one"), { type: "message", message: { role: "assistant", content: [], stopReason: "aborted" } }],
      "one",
    ],
    [
      "one aborted in the middle",
      [
        assistant("one"),
        {
          type: "message",
          message: { role: "assistant", content: [{ type: "text", text: "half" }], stopReason: "aborted" },
        },
      ],
      "half",
    ],
  ])("%s", async (_what, entries, text) => {
    const server = serveHere(["--no-session", "--events", "none"]);
    await server.result("append", { entries });
    expect(await server.result("get_last_assistant_text")).toEqual({ text });
  });

  test("is that of the path", async () => {
    const server = await session();
    expect((await server.result("get_last_assistant_text")).text).toBe("four");
    await server.result("branch", { entryId: "c" });
    expect((await server.result("get_last_assistant_text")).text).toBe("two");
    await server.result("branch", { entryId: "r" });
    expect((await server.result("get_last_assistant_text")).text).toBeNull();
  });
});

describe("get_state", () => {
  test("tells where the session stands", async () => {
    const server = await session();
    expect(await server.result("get_state")).toMatchObject({
      sessionFile: null,
      sessionName: null,
      cwd: server.place.cwd,
      parentSession: null,
      leafId: "d",
      model: { provider: "anthropic", id: "claude-sonnet-4-5" },
      thinkingLevel: "off",
      messageCount: 4,
      entryCount: 8,
      branchCount: 1,
      persisted: false,
      readOnly: false,
      store: "memory",
      version: 3,
      diagnostics: [],
      isStreaming: false,
      isCompacting: false,
      pendingMessageCount: 0,
    });
  });

  test("tells model and level of the path", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    await server.result("append", {
      entries: [
        { type: "model_change", id: "m1", provider: "openai", modelId: "gpt-4o" },
        { type: "thinking_level_change", id: "t1", thinkingLevel: "high" },
        assistant("x", { id: "x" }),
      ],
    });
    const at = async (entryId: string | null): Promise<unknown> => {
      await server.result("branch", { entryId });
      const { model, thinkingLevel } = await server.result("get_state");
      return [model?.id ?? null, thinkingLevel];
    };
    expect(await at("x")).toEqual(["claude-sonnet-4-5", "high"]);
    expect(await at("t1")).toEqual(["gpt-4o", "high"]);
    expect(await at("m1")).toEqual(["gpt-4o", "off"]);
    expect(await at(null)).toEqual([null, "off"]);
  });
});

describe("maxReplyBytes", () => {
  const LIMIT = 8192;

  /** A server with that limit and 200 messages, and everything it says from then on. */
  async function limited(text: string, framing: Framing = "lines"): Promise<{ server: HereServer; said: Buffer[] }> {
    const server = serveHere(["--no-session", "--events", "none"], { framing });
    await server.result("initialize", { maxReplyBytes: LIMIT });
    const entries = Array.from({ length: 200 }, (_, i) => user(text.repeat(i), { id: `n${i}` }));
    server.send({ jsonrpc: "2.0", id: "append", method: "append", params: { entries } });
    await server.reply("append");
    const said: Buffer[] = [];
    server.output.on("data", (chunk: Buffer) => said.push(chunk));
    return { server, said };
  }

  function longestFrame(said: Buffer[]): number {
    const lines = Buffer.concat(said).toString("utf8").split("\n");
    return Math.max(...lines.map((line) => Buffer.byteLength(line) + 1));
  }

  test.each([
    ["get_entries", "entries"],
    ["get_messages", "messages"],
    ["get_tree", "nodes"],
    ["get_fork_messages", "messages"],
  ])("cuts %s into pages that are no larger, and leaves nothing out", async (method, member) => {
    const { server, said } = await limited("é");
    const found = (await pages(server, method, member, {})).flat();
    expect(longestFrame(said)).toBeGreaterThan(LIMIT / 4);
    expect(longestFrame(said)).toBeLessThanOrEqual(LIMIT);
    await server.finish();
    const free = serveHere(["--no-session", "--events", "none"]);
    await free.result("append", {
      entries: Array.from({ length: 200 }, (_, i) => user("é".repeat(i), { id: `n${i}` })),
    });
    const plain = (items: Json[]): Json[] => items.map(({ timestamp, _batch, ...rest }) => rest);
    expect(plain(found)).toEqual(plain((await free.result(method))[member]));
  });

  test.each<Framing>(["lines", "headers"])("counts what the framing adds: %s", async (framing) => {
    const { server, said } = await limited("\u2028", framing);
    expect((await pages(server, "get_entries", "entries", {})).flat()).toHaveLength(200);
    if (framing === "lines") expect(longestFrame(said)).toBeLessThanOrEqual(LIMIT);
  });

  test("fails with message_too_large where one alone is larger, in a batch too", async () => {
    const { server } = await limited("x");
    await server.result("append", { entries: [user("x".repeat(LIMIT), { id: "big" }), user("small", { id: "last" })] });
    const first = await server.result("get_entries", { since: "n198" });
    expect(ids(first.entries)).toEqual(["n199"]);
    const error = { code: -32803, data: { name: "message_too_large", limit: LIMIT } };
    expect(await server.failure("get_entries", { cursor: first.nextCursor })).toMatchObject(error);
    expect(ids((await server.result("get_entries", { since: "big" })).entries)).toEqual(["last"]);
    server.send([
      { jsonrpc: "2.0", id: "a", method: "get_entries", params: { since: "n199" } },
      { jsonrpc: "2.0", id: "b", method: "get_last_assistant_text" },
    ]);
    expect(await server.next()).toMatchObject([
      { id: "a", error },
      { id: "b", result: { text: null } },
    ]);
  });
});

describe("from the end", () => {
  const METHODS = [
    ["get_entries", "entries"],
    ["get_path", "entries"],
    ["get_messages", "messages"],
    ["get_context", "messages"],
  ] as const;

  test.each(METHODS)("the last page of %s comes first, and then those before it", async (method, member) => {
    const server = await session();
    const { [member]: all } = await server.result(method);
    const found = await pages(server, method, member, { fromEnd: true, limit: 3 });
    expect(found.map(({ length }) => length)).toEqual(all.length === 8 ? [3, 3, 2] : [3, 1]);
    expect(found.reverse().flat()).toEqual(all);
    await server.result("initialize", { maxReplyBytes: 1024 });
    const byRoom = await pages(server, method, member, { fromEnd: true });
    expect(byRoom.reverse().flat()).toEqual(all);
    expect((await server.failure(method, { fromEnd: true, cursor: "d.99" })).data.name).toBe("cursor_expired");
  });

  test("get_entries keeps to its types and to what comes after an entry", async () => {
    const server = await session();
    const params = { fromEnd: true, types: ["message"], since: "b", limit: 2 };
    expect((await pages(server, "get_entries", "entries", params)).map(ids)).toEqual([
      ["e", "r"],
      ["c", "d"],
    ]);
  });

  test("what comes meanwhile moves no page", async () => {
    const server = await session();
    const { nextCursor } = await server.result("get_entries", { fromEnd: true, limit: 2 });
    await server.result("append", { entries: [user("later", { id: "z" })] });
    const { entries } = await server.result("get_entries", { fromEnd: true, limit: 2, cursor: nextCursor });
    expect(ids(entries)).toEqual(["e", "f"]);
  });
});

test("the pages of get_context have the ids of their messages, and the first one says why", async () => {
  const server = await session();
  const whole = await server.result("get_context", { explain: true });
  const first = await server.result("get_context", { explain: true, limit: 3 });
  expect(first).toMatchObject({ entryIds: ["a", "b", "c"], explain: whole.explain });
  const { explain, ...second } = await server.result("get_context", { explain: true, cursor: first.nextCursor });
  expect(second).toEqual({ ...whole, explain: undefined, messages: whole.messages.slice(3), entryIds: ["d"] });
  expect(explain).toBe(undefined);
  await server.result("initialize", { maxReplyBytes: 1024 });
  expect((await server.result("get_context", { explain: true, limit: 4 })).messages.length).toBeLessThan(4);
  // A host that knows no pages never takes the first one for the whole.
  expect((await server.failure("get_context", { explain: true })).data.name).toBe("message_too_large");
});

test("what is needed for a summary of a branch can be had below any limit, and the failure says how", async () => {
  const server = serveHere(["--no-session", "--events", "none"]);
  const image = { type: "image", mimeType: "image/png", data: "A".repeat(3000) };
  const content = [{ type: "text", text: "look" }, image];
  await server.result("append", { entries: [{ type: "message", message: { role: "user", content } }] });
  await server.result("initialize", { maxReplyBytes: 1500 });
  const params = { targetId: null };
  const { message } = await server.failure("prepare_branch_summary", params);
  expect(message).toContain('without pictures (images: "omit")');
  expect(message).toContain("without messages (messages: false)");
  const bare = await server.result("prepare_branch_summary", { ...params, images: "omit" });
  expect(bare.entriesToSummarize).toHaveLength(1);
  const { entriesToSummarize, ...rest } = bare;
  expect(await server.result("prepare_branch_summary", { ...params, messages: false })).toEqual(rest);
});

test("entries come without the data of pictures where the host asks for it", async () => {
  const server = serveHere(["--no-session", "--events", "none"]);
  const image = { type: "image", mimeType: "image/png", data: "iVBORw0KGgo" };
  const content = [{ type: "text", text: "look" }, image];
  await server.result("append", {
    entries: [
      { type: "message", id: "a", message: { role: "user", content } },
      { type: "custom_message", id: "b", customType: "x", content, display: true },
    ],
  });
  for (const method of ["get_entries", "get_path"]) {
    const { entries } = await server.result(method, { images: "reference" });
    expect(entries[0].message.content).toEqual([content[0], { ...image, data: { entryId: "a", block: 1 } }]);
    expect(entries[1].content).toEqual([content[0], { ...image, data: { entryId: "b", block: 1 } }]);
    expect((await server.result(method)).entries[1].content).toEqual(content);
  }
  const { entriesToSummarize } = await server.result("prepare_branch_summary", { targetId: null, images: "omit" });
  expect(entriesToSummarize[0].message.content[1]).toEqual({ type: "text", text: "[image omitted]" });
  const { entry } = await server.result("get_entry", { entryId: "a", images: "omit" });
  expect(entry.message.content[1]).toEqual({ type: "text", text: "[image omitted]" });
});
