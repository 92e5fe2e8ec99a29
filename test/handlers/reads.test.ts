/** Answers of reading commands: entries, trees, messages and state, whole and in pages. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { append, conversation, idsOf, nameOf, pages } from "../support/asking.ts";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere, temporaryFolder } from "../support/server.ts";

const empty = (): HereServer => serveHere(["--no-session", "--events", "none"]);

/** a-b-c-d, where e and f are next to c, and r is another root; the leaf is at d. */
async function session(): Promise<HereServer> {
  const server = empty();
  await append(
    server,
    user("one", { id: "a" }),
    assistant("two", { id: "b" }),
    user("three", { id: "c" }),
    assistant("four", { id: "d" }),
    user("beside", { id: "e", parentId: "b" }),
    { type: "custom", id: "f", parentId: "b", customType: "x", data: { n: 1 } },
    user("root", { id: "r", parentId: null }),
    { type: "label", id: "l", parentId: "d", targetId: "a", label: "start" },
  );
  await server.result("branch", { entryId: "d" });
  return server;
}

const idsIn = async (server: HereServer, params: object): Promise<string> =>
  idsOf((await server.result("get_entries", params)).entries).join("");

describe("get_entries", () => {
  test.each<[object, string]>([
    [{ since: "d" }, "efrl"],
    [{ types: ["custom", "label"] }, "fl"],
    [{ types: [] }, ""],
    [{ since: "a", types: ["message"] }, "bcder"],
  ])("answers some of them: %j", async (params, expected) => {
    expect(await idsIn(await session(), params)).toBe(expected);
  });
});

describe("get_tree", () => {
  test("answers the nodes of all branches in file order", async () => {
    const server = await session();
    const { nodes, leafId } = await server.result("get_tree");
    const said = { type: "message", role: "user" };
    const answered = { type: "message", role: "assistant" };
    expect([leafId, nodes.map(({ timestamp, ...node }: Json) => node)]).toEqual([
      "d",
      [
        { id: "a", parentId: null, ...said, preview: "one", label: "start", childCount: 1 },
        { id: "b", parentId: "a", ...answered, preview: "two", childCount: 3 },
        { id: "c", parentId: "b", ...said, preview: "three", childCount: 1 },
        { id: "d", parentId: "c", ...answered, preview: "four", childCount: 1 },
        { id: "e", parentId: "b", ...said, preview: "beside", childCount: 0 },
        { id: "f", parentId: "b", type: "custom", preview: "x", childCount: 0 },
        { id: "r", parentId: null, ...said, preview: "root", childCount: 0 },
        { id: "l", parentId: "d", type: "label", preview: "start", childCount: 0 },
      ],
    ]);
    for (const node of nodes) expect(node.timestamp).toEqual(expect.any(String));
  });

  test("answers them nested, with the entries as they are stored", async () => {
    const server = await session();
    const { tree, leafId } = await server.result("get_tree", { format: "nested" });
    const shape = ({ entry, children }: Json): Json =>
      children.length === 0 ? entry.id : { [entry.id]: children.map(shape) };
    expect(tree.map(shape)).toEqual([{ a: [{ b: [{ c: [{ d: ["l"] }] }, "e", "f"] }] }, "r"]);
    const { entries } = await server.result("get_entries");
    expect([tree[0].entry, leafId]).toEqual([entries[0], "d"]);
    expect(tree[0]).toMatchObject({ label: "start", labelTimestamp: entries[7].timestamp });
    expect(tree[1]).toEqual({ entry: entries[6], children: [] });
  });

  test("is that of the time when it was asked for, and tells later what has changed since", async () => {
    const server = await session();
    const before = (await server.result("get_tree")).nodes;
    server.send([
      { jsonrpc: "2.0", id: "t", method: "get_tree" },
      { jsonrpc: "2.0", id: "a", method: "append", params: { entries: [user("more", { id: "m", parentId: "e" })] } },
      { jsonrpc: "2.0", id: "l", method: "set_label", params: { entryId: "e", label: "later" } },
    ]);
    const replies = (await server.next()) as Json[];
    expect(replies.find(({ id }) => id === "t").result.nodes).toEqual(before);
    const { nodes } = await server.result("get_tree");
    const changed = (node: Json): Json => (node.id === "e" ? { ...node, label: "later", childCount: 1 } : node);
    expect(nodes.slice(0, 8)).toEqual(before.map(changed));
    expect(nodes[8]).toMatchObject({ id: "m", parentId: "e", role: "user", preview: "more" });
    expect((await server.result("get_tree", { limit: 3 })).nodes).toEqual(nodes.slice(0, 3));
  });

  test("has previews on one line, cut to a hundred characters", async () => {
    const long = user(`  two\nlines\t${"x".repeat(200)}`);
    const { server } = await conversation(long, user(""), { type: "session_info", name: "n" });
    const [first, second, third] = (await server.result("get_tree")).nodes;
    expect([first.preview.length, first.preview]).toEqual([100, expect.stringMatching(/^two lines x+…$/)]);
    expect(second).not.toHaveProperty("preview");
    expect(third.preview).toBe("n");
  });
});

describe("get_fork_messages", () => {
  test.each(["all", "path"])("answers them in pages: %s", async (scope) => {
    const server = await session();
    const content = [{ type: "text", text: "last" }];
    await append(server, user(""), { type: "message", id: "z", message: { role: "user", content } });
    const whole = (await server.result("get_fork_messages", { scope })).messages;
    expect(whole.at(-1)).toEqual({ entryId: "z", text: "last" });
    for (const limit of [1, 2, 100]) {
      const found = await pages(server, "get_fork_messages", "messages", { scope, limit });
      expect(found.flat()).toEqual(whole);
      expect(Math.max(...found.map(({ length }) => length))).toBe(Math.min(limit, whole.length));
    }
    await server.result("initialize", { maxReplyBytes: 1024 });
    expect((await pages(server, "get_fork_messages", "messages", { scope })).flat()).toEqual(whole);
    for (const cursor of ["x", "10", "z.6"])
      expect(await nameOf(server, "get_fork_messages", { scope, cursor }), cursor).toBe("cursor_expired");
  });

  test.each([1, 200])("has the texts that a parser finds, however they are written: %i times", async (times) => {
    const file = join(temporaryFolder(), "s.jsonl");
    const written: [content: string, text: string][] = [
      ['"a\\u0062c\\/d"', "abc/d"],
      ['"\\"q\\"\\n\\t\\\\"', '"q"\n\t\\'],
      ['[{"type":"text","text":"one "},{"type":"image"},{"text":"two","type":"te\\u0078t"}]', "one two"],
      ['[{"type":"text","text":"x","text":"last"}]', "last"],
      [' "spaced" ', "spaced"],
      ['"first","content":"again"', "again"],
    ];
    const all = Array.from({ length: times }, () => written).flat();
    const line = ([content]: [string, string], n: number): string =>
      `{"type":"message","id":"e${n}","parentId":null,"timestamp":"t","message":{"role":"user","content":${content}}}\n`;
    const header = '{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}\n';
    writeFileSync(file, header + all.map(line).join(""));
    const server = serveHere(["--session", file, "--read-only", "--events", "none"]);
    const { messages } = await server.result("get_fork_messages");
    expect(messages).toEqual(all.map(([, text], n) => ({ entryId: `e${n}`, text })));
    const { nodes } = await server.result("get_tree");
    expect(nodes.map(({ preview }: Json) => preview)).toEqual(all.map(([, text]) => text.replace(/\s+/g, " ").trim()));
  });

  test("every one of them can be forked before", async () => {
    const server = await session();
    const image = { type: "image", data: "", mimeType: "image/png" };
    const none = { type: "text", text: "" };
    for (const content of ["", [image], [none, none]])
      await append(server, { type: "message", message: { role: "user", content } });
    await server.result("compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 });
    const { messages } = await server.result("get_fork_messages");
    // Those without text are left out.
    expect(idsOf(messages)).toEqual(["a", "c", "e", "r"]);
    for (const { entryId, text } of messages)
      expect((await (await session()).result("fork", { entryId })).text).toBe(text);
  });
});

describe("get_last_assistant_text", () => {
  const said = (texts: string[], more: object = {}): Json => {
    const content = texts.map((text) =>
      text === "hm" ? { type: "thinking", thinking: text } : { type: "text", text },
    );
    return { type: "message", message: { role: "assistant", content, ...more } };
  };

  test.each<[string, Json[], string | null]>([
    ["none", [user("x")], null],
    ["the last", [assistant("one"), user("x"), assistant("two"), user("y")], "two"],
    ["text blocks joined and trimmed", [said([" a", "hm", "b "])], "ab"],
    ["no text in the last", [assistant("one"), toolCall("1"), toolResult("1", "x")], null],
    ["one before one that said nothing", [assistant("one"), said([], { stopReason: "aborted" })], "one"],
    ["one aborted in the middle", [assistant("one"), said(["half"], { stopReason: "aborted" })], "half"],
  ])("%s", async (_what, entries, text) => {
    const { server } = await conversation(...entries);
    expect(await server.result("get_last_assistant_text")).toEqual({ text });
  });
});

describe("from the end", () => {
  test.each([
    ["get_entries", "entries"],
    ["get_path", "entries"],
    ["get_messages", "messages"],
    ["get_context", "messages"],
  ])("the last page of %s comes first, and then those before it", async (method, member) => {
    const server = await session();
    const { [member]: all } = await server.result(method);
    const found = await pages(server, method, member, { fromEnd: true, limit: 3 });
    expect(found.map(({ length }) => length)).toEqual(all.length === 8 ? [3, 3, 2] : [3, 1]);
    expect(found.reverse().flat()).toEqual(all);
    await server.result("initialize", { maxReplyBytes: 1024 });
    const pagesBack = await pages(server, method, member, { fromEnd: true });
    expect(pagesBack.reverse().flat()).toEqual(all);
    expect(await nameOf(server, method, { fromEnd: true, cursor: "d.99" })).toBe("cursor_expired");
    // An index after the last one.
    const cursor = all.length === 8 ? "8" : "d.4";
    expect(await nameOf(server, method, { cursor })).toBe("cursor_expired");
  });

  test("get_entries keeps to its types and to what comes after an entry, and what comes meanwhile moves no page", async () => {
    const server = await session();
    const params = { fromEnd: true, types: ["message"], since: "b", limit: 2 };
    const found = await pages(server, "get_entries", "entries", params);
    expect(found.map((page) => idsOf(page).join(""))).toEqual(["er", "cd"]);
    const { nextCursor: cursor } = await server.result("get_entries", { fromEnd: true, limit: 2 });
    await append(server, user("later", { id: "z" }));
    expect(await idsIn(server, { fromEnd: true, limit: 2, cursor })).toBe("ef");
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
  expect(await nameOf(server, "get_context", { explain: true })).toBe("message_too_large");
});

const PICTURE = { type: "image", mimeType: "image/png", data: "iVBORw0KGgo".padEnd(3000, "A") };
const SHOWN = [{ type: "text", text: "look" }, PICTURE];
const OMITTED = { type: "text", text: "[image omitted]" };

test("what is needed for a summary of a branch can be had below any limit, and the failure says how", async () => {
  const { server } = await conversation({ type: "message", message: { role: "user", content: SHOWN } });
  await server.result("initialize", { maxReplyBytes: 1500 });
  const params = { targetId: null };
  const { message } = await server.failure("prepare_branch_summary", params);
  expect(message).toContain('without pictures (images: "omit")');
  expect(message).toContain("without messages (messages: false)");
  const bare = await server.result("prepare_branch_summary", { ...params, images: "omit" });
  const { entriesToSummarize, ...rest } = bare;
  expect(entriesToSummarize[0].message.content[1]).toEqual(OMITTED);
  expect(await server.result("prepare_branch_summary", { ...params, messages: false })).toEqual(rest);
});

test("entries come without the data of pictures where the host asks for it", async () => {
  const { server } = await conversation(
    { type: "message", id: "a", message: { role: "user", content: SHOWN } },
    { type: "custom_message", id: "b", customType: "x", content: SHOWN, display: true },
  );
  const placed = (entryId: string): Json[] => [SHOWN[0], { ...PICTURE, data: { entryId, block: 1 } }];
  for (const method of ["get_entries", "get_path"]) {
    const { entries } = await server.result(method, { images: "reference" });
    expect([entries[0].message.content, entries[1].content]).toEqual([placed("a"), placed("b")]);
    expect((await server.result(method)).entries[1].content).toEqual(SHOWN);
  }
  const { entry } = await server.result("get_entry", { entryId: "a", images: "omit" });
  expect(entry.message.content[1]).toEqual(OMITTED);
});
