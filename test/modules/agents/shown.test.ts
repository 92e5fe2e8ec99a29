/** What editors are shown of the sessions on this machine, as other hosts are. */

import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { editorHere } from "../../support/acp.ts";
import { put, putSession, sessionId } from "../../support/lifecycle.ts";
import { fileText, headerText } from "../../support/lines.ts";
import { type Json, temporaryPlace } from "../../support/server.ts";

test("an editor finds the sessions of a directory by every path that leads to it", async () => {
  const place = temporaryPlace();
  const [real, link] = [join(place.home, "real"), join(place.home, "link")];
  mkdirSync(real);
  symlinkSync(real, link);
  putSession(place, 1, { cwd: real });
  putSession(place, 2, { cwd: link });
  putSession(place, 3, { cwd: `${real}-other` });
  const editor = await editorHere([], { place });
  for (const cwd of [real, `${real}/`, `${real}/../real`, link, `${link}/`]) {
    const { sessions } = await editor.result("session/list", { cwd });
    const ids = sessions.map((session: Json) => session.sessionId).sort();
    expect([cwd, ids]).toEqual([cwd, [sessionId(1), sessionId(2)]]);
  }
});

test("an editor is sent U+FFFD in place of half of a surrogate pair", async () => {
  const place = temporaryPlace();
  const line =
    '{"type":"message","id":"00000001","parentId":null,"timestamp":"2026-01-24T16:22:26.831Z","message":{"role":"user","content":"cut \\ud83d","timestamp":1}}';
  const file = put(join(place.home, "half.jsonl"), fileText(headerText({ id: "half", cwd: place.cwd }), line));
  const editor = await editorHere(["--session", file], { place });
  const chunks: Buffer[] = [];
  editor.server.output.on("data", (bytes: Buffer) => chunks.push(bytes));
  await editor.result("session/load", { sessionId: "half", cwd: place.cwd, mcpServers: [] });
  expect(`${Buffer.concat(chunks)}`).toMatch(/^(?!.*\\ud83d).*cut /s);
});
