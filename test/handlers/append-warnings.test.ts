/** Shapes of other programs, and what may not be meant so: stored as they are, and the host is told. */

import { describe, expect, test } from "vitest";
import { conversation, restarted } from "../support/asking.ts";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { type Json, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const CALL = { type: "toolCall", id: "c", name: "read", arguments: { path: "a" } };
const IMAGE = { type: "image", data: "AA==", mimeType: "image/png" };

function said(role: string, content?: Json, more: object = {}): Json {
  return { type: "message", message: { role, ...(content === undefined ? {} : { content }), ...more } };
}
const asked = (...content: Json[]): Json => said("user", content);
const answered = (block: object): Json => said("assistant", [{ ...CALL, ...block }]);

async function warningsOf(...entries: Json[]): Promise<Json[] | undefined> {
  const { server } = await conversation();
  const { entryIds, warnings } = await server.result("append", { entries });
  expect(entryIds).toHaveLength(entries.length);
  return warnings;
}

const FUNCTION = { id: "c", type: "function", function: { name: "read", arguments: "{}" } };
const TEXT = { type: "text", text: "x" };
const SOURCE = { type: "base64", media_type: "image/png", data: "AA==" };

test.each<[path: string, draft: Json, meant: string]>([
  ["content.0.type", said("assistant", [{ type: "tool_use", input: {} }]), 'toolCall ({"type":"toolCall","id":'],
  ["content.1.type", asked(TEXT, { type: "tool_result" }), '"role":"toolResult","toolCallId"'],
  ["content.0.type", asked({ type: "image_url", image_url: {} }), 'image ({"type":"image","data":"<base64>"'],
  ["content.0", asked({ type: "image", source: SOURCE }), '{"type":"image","data":"<base64>","mimeType":"image/png"}'],
  ["content.0.data", asked({ ...IMAGE, data: "data:image/png;base64,AA==" }), "base64"],
  ["content.0.type", asked({ type: "input_text", text: "x" }), "Did you mean text"],
  ["content.0.type", answered({ type: "toolcall" }), "Did you mean toolCall"],
  ["content.0.type", asked({ type: "hologram" }), "Pi knows no block hologram"],
  ["tool_calls", said("assistant", [], { tool_calls: [FUNCTION] }), '{"type":"toolCall"'],
  ["content.0.arguments", answered({ arguments: '{"path":"a"}' }), "object, not its JSON text"],
  ["content.0.arguments", answered({ arguments: undefined }), "object"],
  ["content.0.name", answered({ name: undefined }), "name"],
  ["content.0.id", answered({ id: 5 }), "id"],
  ["content.0.text", asked({ type: "text", content: "x" }), "text"],
  ["content.0.thinking", said("assistant", [{ type: "thinking", text: "x" }]), "thinking"],
  ["toolName", said("toolResult", [], { toolCallId: "c" }), "toolName"],
])("a block as the APIs of models have it: a warning at %s names what Pi reads (%#)", async (path, draft, meant) => {
  const warning = { path: `entries.1.message.${path}`, message: expect.stringContaining(meant) };
  expect(await warningsOf(user("a"), draft)).toEqual([warning]);
});

test("also in a message of an extension, and not of each block when there are many", async () => {
  const extension = { type: "custom_message", customType: "x", content: [{ type: "image_url" }] };
  expect(await warningsOf(extension)).toMatchObject([{ path: "entries.0.content.0.type" }]);
  const warnings = await warningsOf(said("assistant", Array(1000).fill({ type: "tool_use" })));
  expect(warnings).toHaveLength(11);
  const more = { path: "entries.0.message.content", message: expect.stringContaining("990 more") };
  expect(warnings?.at(-1)).toEqual(more);
});

test.each<[string, Json]>([
  ["around a message", { type: "assistant", message: { role: "assistant", content: [] } }],
  ["of whatever name", { type: "turn", message: { role: "user", content: "x" } }],
  ["around the members of one", { type: "user", content: "x" }],
])("an entry whose type is a role is told what a message is: %s", async (_what, draft) => {
  const message = expect.stringMatching(/\{"type":"message","message":\{"role":/);
  expect(await warningsOf(draft)).toEqual([{ path: "entries.0.type", message }]);
});

test("nothing is said of what Pi itself writes", async () => {
  const warnings = await warningsOf(
    user("a"),
    asked({ type: "text", text: "" }, IMAGE, { ...IMAGE, data: { $piBlob: "sha256:00", sizeBytes: 1 } }),
    assistant("b"),
    said("assistant", [{ type: "thinking", thinking: "", thinkingSignature: "s" }, CALL]),
    toolCall("c"),
    toolResult("c", "r"),
    said("system", "", { sections: {} }),
    said("bashExecution", undefined, { command: "ls", output: "" }),
    { type: "todo_list" },
    { type: "custom", customType: "mesage" },
    { type: "note_of_mine", message: "no role" },
    { type: "note_of_mine", message: { role: 5 } },
    { type: "custom_message", customType: "x", content: [{ type: "text", text: "x" }] },
    { type: "custom_message", customType: "x", content: "x" },
  );
  expect(warnings).toBeUndefined();
});

test.each<[Json, string, RegExp]>([
  [said("tool", "x"), "message.role", /toolResult/],
  [said("asistant", "x"), "message.role", /assistant/],
  [said("Tool_Result"), "message.role", /toolResult/],
  [said("narrator", "x"), "message.role", /knows no role narrator/],
  [said("system", "You are."), "message.role", /sections/],
  [said("user"), "message.content", /without content/],
  [said("toolResult", [], { toolName: "x" }), "message.toolCallId", /call/],
  [said("assistant", "x"), "message.content", /block/],
  [{ type: "mesage", message: { role: "user", content: "x" } }, "type", /message/],
  [{ type: "modelChange", provider: "x", modelId: "y" }, "type", /model_change/],
  [{ type: "labels" }, "type", /label/],
])("what may not be meant so is said: %j", async (draft, path, about) => {
  expect(await warningsOf(user("a"), draft)).toEqual([
    { path: `entries.1.${path}`, message: expect.stringMatching(about) },
  ]);
});

acrossTiers(describe, ["jsonl", "v2"])("in the store %s", (store) => {
  test("a repeat of the key is answered with the same warnings, after a restart, too", async () => {
    const server = serveHere(["--store", store, "--events", "none"]);
    for (const [n, draft] of [said("narrator", "x"), said("user", "x")].entries()) {
      const params = { entries: [user("a"), draft], idempotencyKey: `${n}` };
      const first = await server.result("append", params);
      expect([first.warnings?.length, first.leafId]).toEqual([n === 0 ? 1 : undefined, first.entryIds[1]]);
      expect((await server.result("get_entry", { entryId: first.leafId })).entry).toMatchObject(draft);
      expect(await server.result("append", params)).toEqual(first);
    }
    const { entryIds } = await server.result("append", { entries: [said("narrator", "x")], idempotencyKey: "k" });
    const again = await restarted(server);
    const repeated = await again.result("append", { entries: [said("narrator", "x")], idempotencyKey: "k" });
    expect(repeated).toMatchObject({ entryIds, warnings: [{ path: "entries.0.message.role" }] });
  });
});
