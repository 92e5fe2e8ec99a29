/** Shapes of other programs that are stored as they are, and what the host is told of them. */

import { describe, expect, test } from "vitest";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { type Json, serveHere } from "../support/server.ts";

const CALL = { type: "toolCall", id: "c", name: "read", arguments: { path: "a" } };

function said(role: string, content: Json, more: object = {}): Json {
  return { type: "message", message: { role, content, ...more } };
}

async function warningsOf(...entries: Json[]): Promise<Json[] | undefined> {
  const server = serveHere(["--no-session", "--events", "none"]);
  const { entryIds, warnings } = await server.result("append", { entries });
  expect(entryIds).toHaveLength(entries.length);
  return warnings;
}

describe("a block as the APIs of models have it is stored, and the host is told what Pi reads", () => {
  test.each<[string, Json, string, RegExp]>([
    [
      "tool_use",
      said("assistant", [{ type: "tool_use", id: "c", name: "read", input: {} }]),
      "content.0.type",
      /Pi knows no block tool_use.*Did you mean toolCall \(\{"type":"toolCall","id":/,
    ],
    [
      "tool_result",
      said("user", [
        { type: "text", text: "x" },
        { type: "tool_result", tool_use_id: "c", content: "x" },
      ]),
      "content.1.type",
      /knows no block tool_result.*message of its own.*"role":"toolResult","toolCallId"/,
    ],
    [
      "image_url",
      said("user", [{ type: "image_url", image_url: { url: "http://x" } }]),
      "content.0.type",
      /Did you mean image \(\{"type":"image","data":"<base64>","mimeType"/,
    ],
    [
      "an image with its source",
      said("user", [{ type: "image", source: { type: "base64", media_type: "image/png", data: "AA==" } }]),
      "content.0",
      /\{"type":"image","data":"<base64>","mimeType":"image\/png"\}/,
    ],
    [
      "an image as URL",
      said("user", [{ type: "image", data: "data:image/png;base64,AA==", mimeType: "image/png" }]),
      "content.0.data",
      /base64.*without/,
    ],
    ["input_text", said("user", [{ type: "input_text", text: "x" }]), "content.0.type", /Did you mean text/],
    ["a misspelt type", said("assistant", [{ ...CALL, type: "toolcall" }]), "content.0.type", /Did you mean toolCall/],
    ["a block of nobody's", said("user", [{ type: "hologram" }]), "content.0.type", /Pi knows no block hologram/],
    [
      "tool_calls beside the content",
      said("assistant", [], {
        tool_calls: [{ id: "c", type: "function", function: { name: "read", arguments: "{}" } }],
      }),
      "tool_calls",
      /blocks of the content.*\{"type":"toolCall"/,
    ],
    [
      "arguments as text",
      said("assistant", [{ ...CALL, arguments: '{"path":"a"}' }]),
      "content.0.arguments",
      /object, not its JSON text/,
    ],
    [
      "a call without arguments",
      said("assistant", [{ ...CALL, arguments: undefined }]),
      "content.0.arguments",
      /object/,
    ],
    ["a call without a name", said("assistant", [{ ...CALL, name: undefined }]), "content.0.name", /name/],
    ["a call without an id", said("assistant", [{ ...CALL, id: 5 }]), "content.0.id", /id/],
    ["a text without text", said("user", [{ type: "text", content: "x" }]), "content.0.text", /text/],
    ["a thought without text", said("assistant", [{ type: "thinking", text: "x" }]), "content.0.thinking", /thinking/],
    ["a result without the name of its tool", said("toolResult", [], { toolCallId: "c" }), "toolName", /toolName/],
  ])("%s", async (_shape, draft, path, sentence) => {
    expect(await warningsOf(user("a"), draft)).toEqual([
      { path: `entries.1.message.${path}`, message: expect.stringMatching(sentence) },
    ]);
  });

  test("also in a message of an extension", async () => {
    expect(
      await warningsOf({ type: "custom_message", customType: "x", content: [{ type: "image_url" }] }),
    ).toMatchObject([{ path: "entries.0.content.0.type" }]);
  });

  test("and not of each when there are many", async () => {
    const blocks = Array.from({ length: 1000 }, () => ({ type: "tool_use" }));
    const warnings = await warningsOf(said("assistant", blocks));
    expect(warnings).toHaveLength(11);
    expect(warnings?.at(-1)).toEqual({
      path: "entries.0.message.content",
      message: expect.stringContaining("990 more"),
    });
  });
});

describe("an entry whose type is a role", () => {
  const HINT = /\{"type":"message","message":\{"role":/;

  test.each<[string, Json]>([
    ["around a message", { type: "assistant", message: { role: "assistant", content: [] } }],
    ["around a message of the user", { type: "user", message: { role: "user", content: "x" } }],
    ["of whatever name", { type: "turn", message: { role: "user", content: "x" } }],
    ["around the members of one", { type: "user", content: "x" }],
  ])("is told what a message is: %s", async (_what, draft) => {
    expect(await warningsOf(draft)).toEqual([{ path: "entries.0.type", message: expect.stringMatching(HINT) }]);
  });
});

test("nothing is said of what Pi itself writes", async () => {
  const warnings = await warningsOf(
    user("a"),
    said("user", [
      { type: "text", text: "" },
      { type: "image", data: "AA==", mimeType: "image/png" },
      { type: "image", data: { $piBlob: "sha256:00", sizeBytes: 1 }, mimeType: "image/png" },
    ]),
    assistant("b"),
    said("assistant", [{ type: "thinking", thinking: "", thinkingSignature: "s" }, CALL]),
    toolCall("c"),
    toolResult("c", "r"),
    { type: "note_of_mine", message: "no role" },
    { type: "note_of_mine", message: { role: 5 } },
    { type: "custom_message", customType: "x", content: [{ type: "text", text: "x" }] },
    { type: "custom_message", customType: "x", content: "x" },
  );
  expect(warnings).toBeUndefined();
});
