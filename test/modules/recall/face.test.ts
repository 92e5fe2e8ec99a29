/** The protocol on the wire of the server: how clients are known to begin, by name and by their first message. */

import { expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { chain, put } from "../../support/searching.ts";
import { call, type Json, type Place, serveHere, temporaryPlace } from "../../support/server.ts";
import { MODERN_META } from "./support/recall.ts";

function placed(): Place {
  const place = temporaryPlace();
  put(place, "01aaaaaa-1111", chain(user("Which cache for profiles?"), assistant("Redis.")));
  return place;
}

const initialize = (protocolVersion: string, clientInfo: Json, capabilities: Json = {}): Json[] => [
  call(0, "initialize", { protocolVersion, capabilities, clientInfo }),
  { jsonrpc: "2.0", method: "notifications/initialized" },
];

/** The first lines of clients (2026-11), and whether the requests after them carry their version. */
const CLIENTS: readonly (readonly [client: string, first: readonly Json[], meta: Json | undefined])[] = [
  [
    "Claude Code 2.1.317",
    [
      call(0, "server/discover", {
        _meta: { ...MODERN_META, "io.modelcontextprotocol/clientCapabilities": { roots: {} } },
      }),
    ],
    MODERN_META,
  ],
  [
    "Codex 0.165.0",
    initialize("2025-06-18", { name: "codex-mcp-client", title: "Codex", version: "0.165.0" }, { elicitation: {} }),
    undefined,
  ],
  ["Pi 1.6.0", initialize("2025-11-25", { name: "pi", version: "1.6.0" }), undefined],
];

test.each(
  CLIENTS.flatMap(([client, ...rest]) => [[], ["--dialect", "mcp"]].map((args) => [client, args, ...rest] as const)),
)("%s is served with %j", async (_client, args, first, _meta) => {
  const server = serveHere(["--read-only", "--attach", "off", ...args], { place: placed() });
  for (const message of first) server.send(message);
  const begun = await server.next();
  expect(begun.id).toBe(0);
  expect(begun.result.instructions).toMatch(/^Search past coding-agent sessions/);
  server.send(call(1, "tools/list", { _meta }));
  expect((await server.next()).result.tools.length).toBe(6);
  server.send(call(2, "tools/call", { name: "find", arguments: { query: "cache for profiles" }, _meta }));
  expect((await server.next()).result.content[0].text).toMatch(/1\. 01aaaaaa#/);
  expect((await server.finish()).messages).toEqual([]);
});

test("a broken or too long line costs only itself, and its reply has no id that no client gave", async () => {
  const server = serveHere(["--dialect", "mcp", "--max-message-bytes", "1000"], { place: placed() });
  server.write('{"jsonrpc":"2.0","id":1,"method":"server/dis\n\n\xff\xfe\n');
  for (const _ of [1, 2])
    expect(await server.next()).toEqual({ jsonrpc: "2.0", error: expect.objectContaining({ code: -32700 }) });
  server.send(call("long", "tools/list", { pad: "x".repeat(2000) }));
  expect(await server.next()).toMatchObject({ id: "long", error: { code: -32600 } });
  server.send(call(2, "server/discover", { _meta: MODERN_META }));
  expect((await server.next()).result.resultType).toBe("complete");
  expect(await server.finish()).toEqual({ messages: [], status: 0 });
});

test("a model learns why a command failed", async () => {
  const place = placed();
  put(place, "01bbbbbb-1111", chain(user("Another question.")));
  const server = serveHere(["--dialect", "mcp"], { place });
  server.send(
    call(1, "tools/call", { name: "compare", arguments: { a: "01aaaaaa", b: "01bbbbbb" }, _meta: MODERN_META }),
  );
  const { isError, content } = (await server.next()).result;
  expect([isError, content[0].text]).toEqual([true, "The call failed (unrelated_sessions)."]);
  await server.finish();
});

test("other dialects are recognised as before", async () => {
  const server = serveHere(["--no-session"], { place: placed() });
  server.send(call(1, "initialize", { protocolVersion: 1 }));
  expect((await server.reply(1)).result.capabilities.dialects).toContain("mcp");
  // A version that is no date is a mistake of a host of ours.
  const other = serveHere(["--no-session"], { place: placed() });
  other.send(call(1, "initialize", { protocolVersion: "1" }));
  expect((await other.next()).error.data.name).toBe("invalid_params");
});
