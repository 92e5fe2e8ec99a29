/** Rollouts that Codex has compressed: named everywhere, and read where Node has zstd. */

import { join } from "node:path";
import * as zlib from "node:zlib";
import { expect, test } from "vitest";
import { readCompressedRollout } from "../../../src/modules/foreign/files/compressed.ts";
import { getAgentPlaces, listFiles, listUnread } from "../../../src/modules/foreign/files/places.ts";
import { CODEX_SESSION, wholeCodexSession } from "../../support/foreign/codex.ts";
import { put, serveLibrary } from "../../support/lifecycle.ts";
import { need, needs } from "../../support/needs.ts";
import { temporaryPlace } from "../../support/server.ts";
import { diskWithForeign } from "./support/checks.ts";

const ZSTD = need("zstd", "Node 22.15 and later", () => "zstdCompressSync" in zlib);

const PLAIN = `.codex/sessions/2026/09/14/rollout-2026-09-14T08-00-00-${CODEX_SESSION}.jsonl`;

const codex = getAgentPlaces({ HOME: "/home/me" }).filter(({ agent }) => agent === "codex");

function diskWith(names: readonly string[], text = "x") {
  const disk = diskWithForeign("x", "/other");
  for (const name of names) disk.put(join("/home/me", name), Buffer.from(text));
  return disk;
}

test.each([
  [PLAIN, [PLAIN, `${PLAIN}.zst`]],
  [PLAIN, [`${PLAIN}.zst`, PLAIN]],
  [`${PLAIN}.zst`, [`${PLAIN}.zst`]],
])("%s is found of one session's files, of plain and compressed ones the plain", (found, names) => {
  expect([...listFiles(diskWith(names), codex)]).toEqual([join("/home/me", found)]);
});

test("what is decompressed is a session like any other; what cannot be is none", () => {
  const { text } = wholeCodexSession();
  const file = `/home/me/${PLAIN}.zst`;
  const disk = diskWithForeign("packed", file);
  const session = readCompressedRollout(disk, file, () => Buffer.from(text));
  const { records } = session?.read() ?? { records: [] };
  expect([...records].map(({ bytes }) => Buffer.from(bytes).toString())).toEqual(text.trimEnd().split("\n"));
  expect(session?.translator.agent).toBe("codex");
  const fails = (): never => {
    throw new Error("no zstd");
  };
  expect(readCompressedRollout(disk, file, fails)).toBeUndefined();
  expect(readCompressedRollout(disk, file.replace("rollout-", "other-"), () => Buffer.from(text))).toBeUndefined();
});

test("is read where Node has zstd", needs(ZSTD), async () => {
  const place = temporaryPlace();
  const packed = (zlib as { readonly zstdCompressSync?: (bytes: Uint8Array) => Uint8Array }).zstdCompressSync;
  const file = put(join(place.home, `${PLAIN}.zst`), packed?.(Buffer.from(wholeCodexSession().text)) ?? "");
  const server = serveLibrary(place);
  const { sessions } = await server.result("list_sessions", { agents: ["codex"] });
  expect(sessions).toMatchObject([{ sessionPath: file, name: expect.not.stringMatching(/zstd/) }]);
  await server.result("switch_session", { sessionPath: file });
  expect((await server.result("get_messages")).messages.length).toBeGreaterThan(3);
});

test("a list has what its name tells, and opening says what it is", async () => {
  const place = temporaryPlace();
  const file = put(join(place.home, `${PLAIN}.zst`), "(\u00b5");
  const server = serveLibrary(place);
  const { sessions } = await server.result("list_sessions", { agents: ["codex"] });
  expect(sessions).toMatchObject([{ sessionPath: file, agent: "codex", name: expect.stringMatching(/zstd/) }]);
  expect(sessions[0].created).toMatch(/^2026-09-1[345]T/);
});

test("where Node has no zstd, lists, searches and doctor say how many cannot be read", async () => {
  const other = `${PLAIN.replace(CODEX_SESSION, "01991f6e-1f1d-7c3e-b0a4-0242ac120002")}.zst`;
  const disk = diskWith([`${PLAIN}.zst`, other], "(\u00b5");
  expect(listUnread(disk, codex, undefined, true)).toEqual([]);
  const [{ text, ...unread }, ...rest] = listUnread(disk, codex, undefined, false);
  expect([unread, rest]).toEqual([{ path: "/home/me/.codex/sessions", agent: "codex", isDamaged: false }, []]);
  expect(text).toMatch(/^2 sessions below .* Use Node 22\.15 or newer\.$/);

  const place = temporaryPlace();
  put(join(place.home, `${PLAIN}.zst`), "(\u00b5");
  const server = serveLibrary(place);
  for (const [command, params] of [
    ["list_sessions", { agents: ["codex"] }],
    ["search_sessions", { agents: ["codex"], query: "x" }],
    ["get_health", {}],
  ] as const) {
    const { notRead = [] } = await server.result(command, params);
    expect([command, notRead.length]).toEqual([command, "zstdDecompressSync" in zlib ? 0 : 1]);
  }
});
