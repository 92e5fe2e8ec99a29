/** References to media next to the session: resolved where a message is sent, reported where they cannot be. */

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { findAttachments, resolveAttachments } from "../../../src/core/format/attachments.ts";
import { decodeText, parse, toBytes } from "../../../src/core/json/json.ts";
import { entryText, fileText, headerText } from "../../support/lines.ts";
import { serveHere, temporaryPlace } from "../../support/server.ts";

const media = Buffer.from("some bytes of a picture!");
const hash = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
const sha256 = hash(media);

function reference(hash = sha256, encoding = "base64"): object {
  return { $piBlob: `sha256:${hash}`, sizeBytes: media.length, encoding };
}

function message(data: unknown): string {
  const picture = `{"type":"image","data":${JSON.stringify(data)},"mimeType":"image/png"}`;
  return `{"role":"user", "content":[{"type":"text","text":"1.0 $piBlob"},${picture}],"n":1.0}`;
}

test("a message without references is the same bytes", () => {
  const bytes = toBytes(message("AAAA"));
  expect(resolveAttachments(bytes, () => "never")).toBe(bytes);
});

test("a reference becomes the text, and every other byte stays", () => {
  const text = decodeText(resolveAttachments(toBytes(message(reference())), () => "QUJD=="));
  expect(text).toBe(message("QUJD=="));
  expect(parse(toBytes(text))).toMatchObject({ role: "user" });
  const bare = decodeText(resolveAttachments(toBytes(message(reference(sha256, "base64NoPad"))), () => "QUJD=="));
  expect(bare).toBe(message("QUJD"));
});

test("a reference that cannot be resolved stays", () => {
  for (const data of [reference(), reference("../../etc/passwd"), { $piBlob: 5 }, {}])
    expect(decodeText(resolveAttachments(toBytes(message(data)), () => null))).toBe(message(data));
});

/** A session file with one picture next to it. */
function sessionWithMedia(place: { home: string; cwd: string }, content: Buffer | null): string {
  const file = join(place.home, "media.jsonl");
  const entry = entryText("message", "a1b2c3d4", null, { message: JSON.parse(message(reference())) });
  writeFileSync(file, fileText(headerText({ id: "media", cwd: place.cwd }), entry));
  if (content) {
    mkdirSync(`${file}.blobs`);
    writeFileSync(join(`${file}.blobs`, sha256), content);
  }
  return file;
}

test("get_messages and forks have the media, get_entries what is stored", async () => {
  const place = temporaryPlace();
  const server = serveHere(["--session", sessionWithMedia(place, media)], { place, env: { sha256: hash } });
  const data = async (): Promise<unknown> => (await server.result("get_messages")).messages[0].content[1].data;
  expect(await data()).toBe(media.toString("base64"));
  expect((await server.result("get_entries")).entries[0].message.content[1].data).toEqual(reference());
  const before = await server.result("get_state");
  const { sessionFile } = await server.result("clone");
  expect(sessionFile).not.toBe(before.sessionFile);
  expect(existsSync(join(`${sessionFile}.blobs`, sha256))).toBe(true);
  expect(await data()).toBe(media.toString("base64"));
});

test.each([
  ["missing", null],
  ["damaged", Buffer.from("other bytes of the length")],
])("%s media is damage", async (_how, content) => {
  const place = temporaryPlace();
  const server = serveHere(["--session", sessionWithMedia(place, content)], { place, env: { sha256: hash } });
  expect((await server.result("get_messages")).messages[0].content[1].data).toEqual(reference());
  expect((await server.result("get_state")).diagnostics).toMatchObject([{ kind: "missing_blob", entryId: "a1b2c3d4" }]);
  expect(server.events.at(-1)).toMatchObject({ method: "session_damage" });
});

test("the files that a line names are found, and no text that looks like a name", () => {
  expect(findAttachments(toBytes(message(reference())))).toEqual([sha256]);
  const spaced = message(reference()).replace('"$piBlob":', '"$piBlob" : ');
  expect(findAttachments(toBytes(spaced))).toEqual([sha256]);
  for (const data of [JSON.stringify(reference()), reference("../../etc/passwd"), { $piBlob: 5 }, "AAAA"])
    expect(findAttachments(toBytes(message(data)))).toEqual([]);
});
