/** The context as providers take it, why an entry is in it, and without the data of pictures. */

import { describe, expect, test } from "vitest";
import { conversation, resultOfText, talk } from "../support/asking.ts";
import { toolResult, user } from "../support/drafts.ts";
import type { HereServer, Json } from "../support/server.ts";
import { calls, pairingFaults } from "../support/turns.ts";

/** Returns the strict context of these entries: its entries by their indexes, and its messages, which are paired. */
async function strict(server: HereServer, ids: readonly string[]): Promise<{ of: number[]; messages: Json[] }> {
  const { entryIds, messages } = await server.result("get_context", { strict: true });
  expect(pairingFaults(messages)).toEqual([]);
  expect(entryIds).toHaveLength(messages.length);
  return { of: entryIds.map((id: string) => ids.indexOf(id)), messages };
}

describe("strict", () => {
  test.each<[string, string, number[], string[]]>([
    ["a message of nothing but calls without results goes", "u a | c :1 | u b | c :2 | u c", [0, 2, 4], []],
    [
      "results without a call go: of nobody, of another message's call, before their call",
      "r 1 nobody's | u a | r 2 early | c b: 2 | a c | r 2 late",
      [1, 3, 4],
      ["b", "c"],
    ],
    ["a second result of one call goes", "u a | c b: 1 | r 1 c | r 1 d", [0, 1, 2], ["b 1"]],
    ["what stands between a call and its result comes behind", "u a | c b: 1 | u x | r 1 c", [0, 1, 3, 2], ["b 1"]],
    ["calls without a result are taken out of their message", "u a | c b: 1 2 | r 2 c", [0, 1, 2], ["b 2"]],
  ])("%s", async (_what, turns, expected, answers) => {
    const entries = talk(turns);
    // Thoughts alone are nothing.
    const only = entries.find(({ message }) => message.content[0]?.id === "2");
    const thoughts = [{ type: "thinking", thinking: "hm", thinkingSignature: "s" }, { type: "redactedThinking" }];
    if (answers.length === 0) only?.message.content.unshift(...thoughts);
    const { server, ids } = await conversation(...entries);
    const { of, messages } = await strict(server, ids);
    expect(of).toEqual(expected);
    const said = messages.filter(({ role }) => role === "assistant");
    const blocks = said.map(({ content }) => content.map(({ text, id }: Json) => text ?? id).join(" "));
    expect(blocks).toEqual(answers);
  });

  test("a context in which everything is paired stays as it is, and blocks that stay keep their bytes", async () => {
    const { server } = await conversation(...talk("u a | c b: 1 2 | r 2 c | r 1 d"));
    const { strict: _, ...loose } = await server.result("get_context");
    expect(await server.result("get_context", { strict: true })).toEqual(loose);
    const call = (id: string): string =>
      `{"type":"toolCall","id":"${id}","name":"f","arguments":{"n":12345678901234567890}}`;
    const entry = (message: string): string => `{"type":"message","message":${message}}`;
    const asking = entry(`{"role":"assistant","content":[${call("1")} , ${call("2")}],"x":1.0}`);
    const answer = entry('{"role":"toolResult","toolCallId":"2","content":[]}');
    await resultOfText(server, "append", `{"entries":[${asking},${answer}]}`);
    const received: Buffer[] = [];
    server.output.on("data", (chunk: Buffer) => received.push(chunk));
    await server.result("get_context", { strict: true });
    expect(Buffer.concat(received).toString()).toContain(`{"role":"assistant","content":[${call("2")}],"x":1.0,`);
  });

  test.each([
    ["empty", "", ""],
    ["repeated", "same", "same"],
  ])("ids that are %s are paired by position", async (_, first, second) => {
    const [one, two, three, four] = ["one", "two", "three", "four"].map((text) => toolResult(first, text));
    const both = calls("", first, second);
    const { server, ids } = await conversation(user("a"), both, one, two, calls("", first), three, both, four);
    const { of, messages } = await strict(server, ids);
    expect([of, messages[6].content.length]).toEqual([[0, 1, 2, 3, 4, 5, 6, 7], 1]);
  });

  test("a nameless result takes no call whose own result is there", async () => {
    const { server } = await conversation(user("a"), calls("", "1", "2"), toolResult("", "x"), toolResult("1", "y"));
    const { messages } = await server.result("get_context", { strict: true });
    expect(messages.map(({ role }: Json) => role)).toEqual(["user", "assistant", "toolResult", "toolResult"]);
  });

  test("a call that an edit puts in place or takes away counts as the model sees it", async () => {
    const { server, ids } = await conversation(...talk("u a | c b: 1 | r 1 c | u d"));
    await server.result("edit_context", { targetId: ids[1], replacement: { content: "no call any more" } });
    expect((await strict(server, ids)).of).toEqual([0, 1, 3]);
    await server.result("edit_context", { targetId: ids[1], replacement: null });
    expect((await strict(server, ids)).of).toEqual([0, 3]);
  });
});

describe("explain", () => {
  test("each entry of the path is in or out for a reason, and takes tokens when it is in", async () => {
    const change = { type: "model_change", provider: "p", modelId: "m" };
    const { server, ids } = await conversation(
      user("cut away"),
      change,
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
    expect(await server.result("get_context")).not.toHaveProperty("explain");
    // An older compaction is covered by the newer one.
    const { entryId: newer } = await server.result("compact_append", compaction);
    const again = (await server.result("get_context", { explain: true })).explain;
    expect(again[5]).toEqual({ entryId: compacted, in: false, reason: "compacted", by: newer, tokens: 0 });
  });

  test("with strict it tells what is not paired and what is shown in part", async () => {
    const results = ["0", "1"].map((id) => toolResult(id, "x"));
    const { server } = await conversation(results[0], calls("b", "1", "2"), results[1], calls("", "3"));
    const { explain } = await server.result("get_context", { explain: true, strict: true });
    const reasons = explain.map((one: Json) => `${one.reason} ${one.in}`);
    expect(reasons).toEqual(["unpaired false", "shown_in_part true", "shown true", "unpaired false"]);
  });
});

describe("pictures", () => {
  const picture = { type: "image", mimeType: "image/png", data: "iVBORw0KGgo".padEnd(4000, "A") };
  const look = { type: "text", text: "look" };
  const omitted = { type: "text", text: "[image omitted]" };
  const shown = { type: "message", message: { role: "user", content: [look, picture] } };

  test("are left out, or named by their place, where the host asks for it", async () => {
    const { server, ids } = await conversation(shown, user("and?"));
    const places = { omit: omitted, reference: { ...picture, data: { entryId: ids[0], block: 1 } } };
    for (const [images, block] of Object.entries(places))
      for (const method of ["get_context", "get_messages"]) {
        const { messages } = await server.result(method, { images });
        expect(messages[0].content, `${method} ${images}`).toEqual([look, block]);
        expect(messages[1]).toMatchObject({ role: "user", content: "and?" });
      }
    const explained = await server.result("get_context", { explain: true });
    expect(explained.messages[0].content[1]).toEqual(picture);
    const { explain } = await server.result("get_context", { explain: true, images: "reference" });
    expect(explain).toEqual(explained.explain);
  });

  test("keep nobody with a limit from the context, or from a compaction", async () => {
    const { server } = await conversation(shown, user("and?"));
    await server.result("initialize", { maxReplyBytes: 2048 });
    expect((await server.failure("get_context")).message).toContain('images: "omit"');
    expect((await server.result("get_context", { images: "omit" })).messages).toHaveLength(2);
    const wanted = { keepRecentTokens: 0 };
    const { messagesToSummarize } = await server.result("prepare_compaction", { ...wanted, images: "omit" });
    expect(messagesToSummarize[0].content[1]).toEqual(omitted);
    const bare = await server.result("prepare_compaction", { ...wanted, messages: false });
    for (const member of ["messagesToSummarize", "turnPrefixMessages"]) expect(bare).not.toHaveProperty(member);
    expect(bare.conversationText).toContain("look");
  });
});
