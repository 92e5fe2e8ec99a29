/** Any bytes on the input: everything that comes back is a frame, a request behind it is answered, the end is in order. */

import { expect, test } from "vitest";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { type Framing, frame, type Json, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

/** A part of the rounds shows the rule, and all of them are gone through in the sweep. */
const FEW = 40;
const ROUNDS = 200;

/** Numbers below a bound that look random and are the same for the same seed. */
function generator(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const REQUESTS: [string, Json][] = [
  [
    "append",
    { entries: [user("é 😀 \u2028", { id: "a" }), assistant("b", { id: "b" }), toolCall("1"), toolResult("1", "x")] },
  ],
  [
    "append",
    {
      entries: [{ type: "custom", customType: "x", data: [1.5, -0, 1e21, null, true, { a: [] }] }],
      idempotencyKey: "k",
    },
  ],
  ["branch", { entryId: "a", summary: { summary: "s", details: {} }, label: "l" }],
  ["branch", { entryId: null }],
  ["compact_append", { summary: "s", firstKeptEntryId: "b", tokensBefore: 10 }],
  ["set_label", { entryId: "b", label: "l" }],
  ["set_session_name", { name: "n", expectedLeafId: "b" }],
  ["get_entries", { since: "a", limit: 2, types: ["message"] }],
  ["get_tree", { format: "nested" }],
  ["get_messages", { limit: 1, cursor: "b.1" }],
  ["fork", { entryId: "a", position: "at" }],
  ["clone", {}],
  ["new_session", { name: "n", newSessionId: "s" }],
  ["initialize", { protocolVersion: 1, capabilities: { events: ["session_append"], hooks: [] } }],
  ["get_state", {}],
];

/** Bytes that mean something to the reader. */
const PIECES = [
  "\n",
  "\r\n",
  "{",
  "}",
  "[",
  "]",
  '"',
  "\\",
  ",",
  ":",
  "\0",
  "\ufeff",
  "null",
  "Content-Length: 5\r\n\r\n",
  "1e999",
  "[]\n",
];

function spoiled(bytes: Buffer, below: (bound: number) => number): Buffer {
  let result = bytes;
  for (let changes = below(4); changes >= 0; changes--) {
    const at = below(result.length + 1);
    const to = Math.min(result.length, at + below(20));
    const between = [
      Buffer.from(PIECES[below(PIECES.length)]),
      Buffer.from([below(256)]),
      Buffer.alloc(0),
      result.subarray(at, to),
      result.subarray(below(result.length + 1)).subarray(0, 30),
    ][below(5)];
    result = Buffer.concat([result.subarray(0, at), between, result.subarray(below(2) === 0 ? at : to)]);
  }
  return result;
}

const CASES: readonly { framing: Framing; dialect: string; rounds: number }[] = [
  { framing: "lines", dialect: "jsonrpc", rounds: FEW },
  { framing: "lines", dialect: "jsonrpc", rounds: ROUNDS },
  { framing: "lines", dialect: "pi", rounds: ROUNDS },
  { framing: "headers", dialect: "jsonrpc", rounds: ROUNDS },
];

acrossTiers(test, CASES)("$framing in the dialect $dialect, $rounds times", async ({ framing, dialect, rounds }) => {
  for (let round = 0; round < rounds; round++) {
    const below = generator(round * 7919 + dialect.length + framing.length);
    const requests = Array.from({ length: 1 + below(6) }, (_, id) => {
      const [method, params] = REQUESTS[below(REQUESTS.length)];
      return dialect === "pi" ? { id, type: method, ...params } : { jsonrpc: "2.0", id, method, params };
    });
    const server = serveHere(["--no-session", "--framing", framing, "--dialect", dialect], { framing });
    server.write(spoiled(Buffer.from(frame(framing, ...requests)), below));
    if (framing === "lines") {
      // A line cannot spoil the next.
      server.write("\n");
      server.send(
        dialect === "pi" ? { id: "last", type: "get_state" } : { jsonrpc: "2.0", id: "last", method: "get_state" },
      );
      const reply = await server.reply("last");
      expect(reply.result ?? reply.data, `round ${round}`).toMatchObject({ store: "memory" });
    }
    const { messages, status } = await server.finish();
    expect(status, `round ${round}`).toBe(0);
    const bugs = [...server.events, ...messages.flat()].filter((message) =>
      JSON.stringify(message).includes("internal_error"),
    );
    expect(bugs, `round ${round}`).toEqual([]);
  }
});
