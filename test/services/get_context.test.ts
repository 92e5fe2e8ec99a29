import { describe, expect, test } from "vitest";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { calls, pairingFaults } from "../support/turns.ts";

async function serverWith(...entries: Json[]): Promise<{ server: HereServer; ids: string[] }> {
  const server = serveHere(["--no-session"]);
  const { entryIds } = await server.result("append", { entries });
  return { server, ids: entryIds };
}

/** The strict context: the entries it comes from, and its messages, which are paired. */
async function strict(server: HereServer): Promise<{ entryIds: string[]; messages: Json[] }> {
  const context = await server.result("get_context", { strict: true });
  expect(pairingFaults(context.messages)).toEqual([]);
  expect(context.entryIds).toHaveLength(context.messages.length);
  return context;
}

describe("strict", () => {
  test("a context in which everything is paired stays as it is", async () => {
    const { server } = await serverWith(user("a"), calls("b", "1", "2"), toolResult("2", "c"), toolResult("1", "d"));
    const { strict: _, ...loose } = await server.result("get_context");
    expect(await server.result("get_context", { strict: true })).toEqual(loose);
  });

  test("calls without a result are taken out of their message", async () => {
    const { server, ids } = await serverWith(user("a"), calls("b", "1", "2"), toolResult("2", "c"));
    const { messages, entryIds } = await strict(server);
    expect(entryIds).toEqual(ids);
    expect(messages[1].content).toEqual([
      { type: "text", text: "b" },
      { type: "toolCall", id: "2", name: "read", arguments: { path: "a.txt" } },
    ]);
  });

  test("a message with nothing else goes, as does one with nothing but thoughts", async () => {
    const thinking = calls("", "2");
    thinking.message.content.unshift({ type: "thinking", thinking: "hm", thinkingSignature: "s" });
    const { server, ids } = await serverWith(user("a"), calls("", "1"), user("b"), thinking, user("c"));
    expect((await strict(server)).entryIds).toEqual([ids[0], ids[2], ids[4]]);
  });

  test("results without a call go: of nobody, of another message's call, before their call", async () => {
    const { server, ids } = await serverWith(
      toolResult("1", "nobody's"),
      user("a"),
      toolResult("2", "too early"),
      calls("b", "2"),
      assistant("c"),
      toolResult("2", "too late"),
    );
    const { entryIds, messages } = await strict(server);
    expect(entryIds).toEqual([ids[1], ids[3], ids[4]]);
    expect(messages[1].content).toEqual([{ type: "text", text: "b" }]);
  });

  test("a second result of one call goes", async () => {
    const { server, ids } = await serverWith(user("a"), calls("b", "1"), toolResult("1", "c"), toolResult("1", "d"));
    expect((await strict(server)).entryIds).toEqual(ids.slice(0, 3));
  });

  test("what stands between a call and its result comes behind the result", async () => {
    const { server, ids } = await serverWith(user("a"), calls("b", "1"), user("hurry"), toolResult("1", "c"));
    expect((await strict(server)).entryIds).toEqual([ids[0], ids[1], ids[3], ids[2]]);
  });

  test.each([
    ["empty", "", ""],
    ["repeated", "same", "same"],
  ])("ids that are %s are paired by position", async (_, first, second) => {
    const { server, ids } = await serverWith(
      user("a"),
      calls("", first, second),
      toolResult(first, "one"),
      toolResult(second, "two"),
      calls("", first),
      toolResult(first, "three"),
      calls("", first, second),
      toolResult(first, "four"),
    );
    const { entryIds, messages } = await strict(server);
    expect(entryIds).toEqual(ids);
    expect(messages[6].content).toHaveLength(1);
  });

  test("a nameless result takes no call whose own result is there", async () => {
    const { server } = await serverWith(user("a"), calls("", "1", "2"), toolResult("", "x"), toolResult("1", "y"));
    const { messages } = await server.result("get_context", { strict: true });
    expect(messages.map((message: Json) => message.role)).toEqual(["user", "assistant", "toolResult", "toolResult"]);
  });

  test("a call that an edit puts in place or takes away counts as the model sees it", async () => {
    const { server, ids } = await serverWith(user("a"), calls("b", "1"), toolResult("1", "c"), user("d"));
    await server.result("edit_context", { targetId: ids[1], replacement: { content: "no call any more" } });
    expect((await strict(server)).entryIds).toEqual([ids[0], ids[1], ids[3]]);
    await server.result("edit_context", { targetId: ids[1], replacement: null });
    expect((await strict(server)).entryIds).toEqual([ids[0], ids[3]]);
  });

  test("blocks that stay keep their bytes", async () => {
    const server = serveHere(["--no-session"]);
    const call = (id: string): string =>
      `{"type":"toolCall","id":"${id}","name":"f","arguments":{"n":12345678901234567890}}`;
    const entry = (message: string): string => `{"type":"message","message":${message}}`;
    const entries = [
      entry(`{"role":"assistant","content":[${call("1")} , ${call("2")}],"x":1.0}`),
      entry('{"role":"toolResult","toolCallId":"2","content":[]}'),
    ];
    server.send(`{"jsonrpc":"2.0","id":"a","method":"append","params":{"entries":[${entries}]}}`);
    await server.reply("a");
    const received: Buffer[] = [];
    server.output.on("data", (chunk: Buffer) => received.push(chunk));
    await server.result("get_context", { strict: true });
    expect(Buffer.concat(received).toString()).toContain(`{"role":"assistant","content":[${call("2")}],"x":1.0,`);
  });
});

describe("explain", () => {
  test("each entry of the path is in or out for a reason, and takes tokens when it is in", async () => {
    const { server, ids } = await serverWith(
      user("cut away"),
      { type: "model_change", provider: "p", modelId: "m" },
      user("kept"),
      user("edited"),
      user("left out"),
    );
    const compaction = { summary: "12345678", firstKeptEntryId: ids[2], tokensBefore: 1 };
    const { entryId: compacted } = await server.result("compact_append", compaction);
    const { entryId: edit } = await server.result("edit_context", { targetId: ids[3], replacement: { content: "x" } });
    const { entryId: leftOut } = await server.result("edit_context", { targetId: ids[4], replacement: null });
    const { explain } = await server.result("get_context", { explain: true });
    expect(explain).toEqual([
      { entryId: ids[0], in: false, reason: "compacted", by: compacted, tokens: 0 },
      { entryId: ids[1], in: false, reason: "not_for_model", tokens: 0 },
      { entryId: ids[2], in: true, reason: "shown", tokens: 1 },
      { entryId: ids[3], in: true, reason: "edited", by: edit, tokens: 1 },
      { entryId: ids[4], in: false, reason: "left_out", by: leftOut, tokens: 0 },
      { entryId: compacted, in: true, reason: "shown", tokens: 2 },
      { entryId: edit, in: false, reason: "not_for_model", tokens: 0 },
      { entryId: leftOut, in: false, reason: "not_for_model", tokens: 0 },
    ]);
  });

  test("an older compaction is covered by the newer one", async () => {
    const { server, ids } = await serverWith(user("a"), user("b"));
    const compaction = { summary: "s", firstKeptEntryId: ids[1], tokensBefore: 1 };
    const { entryId: older } = await server.result("compact_append", compaction);
    const { entryId: newer } = await server.result("compact_append", compaction);
    const { explain } = await server.result("get_context", { explain: true });
    expect(explain[2]).toEqual({ entryId: older, in: false, reason: "compacted", by: newer, tokens: 0 });
  });

  test("with strict it tells what is not paired and what is shown in part", async () => {
    const { server } = await serverWith(
      toolResult("0", "x"),
      calls("b", "1", "2"),
      toolResult("1", "y"),
      calls("", "3"),
    );
    const { explain } = await server.result("get_context", { explain: true, strict: true });
    expect(explain.map(({ reason }: Json) => reason)).toEqual(["unpaired", "shown_in_part", "shown", "unpaired"]);
    expect(explain.map((one: Json) => one.in)).toEqual([false, true, true, false]);
  });

  test("it is not there unless it is asked for", async () => {
    const { server } = await serverWith(user("a"));
    expect(await server.result("get_context")).not.toHaveProperty("explain");
  });
});

describe("pictures", () => {
  const DATA = "iVBORw0KGgo".padEnd(4000, "A");
  const picture = { type: "image", mimeType: "image/png", data: DATA };
  const shown = { role: "user", content: [{ type: "text", text: "look" }, picture] };
  const served = async () => serverWith({ type: "message", message: shown }, user("and?"));

  test("are left out, or named by their place, where the host asks for it", async () => {
    const { server, ids } = await served();
    const places = {
      omit: { type: "text", text: "[image omitted]" },
      reference: { ...picture, data: { entryId: ids[0], block: 1 } },
    };
    for (const [images, block] of Object.entries(places))
      for (const method of ["get_context", "get_messages"]) {
        const { messages } = await server.result(method, { images });
        expect(messages[0].content, `${method} ${images}`).toEqual([{ type: "text", text: "look" }, block]);
        expect(messages[1]).toMatchObject({ role: "user", content: "and?" });
      }
    expect((await server.result("get_context")).messages[0].content[1]).toEqual(picture);
    const explained = await server.result("get_context", { explain: true });
    expect((await server.result("get_context", { explain: true, images: "reference" })).explain).toEqual(
      explained.explain,
    );
  });

  test("keep nobody with a limit from the context, or from a compaction", async () => {
    const { server } = await served();
    await server.result("initialize", { maxReplyBytes: 2048 });
    expect((await server.failure("get_context")).message).toContain('images: "omit"');
    expect((await server.result("get_context", { images: "omit" })).messages).toHaveLength(2);
    const wanted = { keepRecentTokens: 0 };
    const { messagesToSummarize } = await server.result("prepare_compaction", { ...wanted, images: "omit" });
    expect(messagesToSummarize[0].content[1]).toEqual({ type: "text", text: "[image omitted]" });
    const bare = await server.result("prepare_compaction", { ...wanted, messages: false });
    expect(bare).not.toHaveProperty("messagesToSummarize");
    expect(bare).not.toHaveProperty("turnPrefixMessages");
    expect(bare.conversationText).toContain("look");
  });
});
