/** The tools for agents on sessions of other agents. */

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { chain, put } from "../../support/searching.ts";
import { type Place, temporaryPlace } from "../../support/server.ts";
import { recallHere } from "../recall/support/recall.ts";

const T1 = "2026-03-10T12:00:00Z";

function putClaude(place: Place, text: string, answer: string): void {
  const id = "7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11";
  const common = { sessionId: id, cwd: "/home/me/shop", version: "2.1.0", userType: "external", isSidechain: false };
  const lines = [
    { ...common, parentUuid: null, type: "user", uuid: "a1", timestamp: T1, message: { role: "user", content: text } },
    {
      ...{ ...common, parentUuid: "a1", type: "assistant", uuid: "a2", timestamp: T1, requestId: "r" },
      message: {
        id: "m",
        type: "message",
        role: "assistant",
        model: "claude",
        content: [{ type: "text", text: answer }],
      },
    },
  ];
  const file = join(place.home, ".claude/projects/-home-me-shop", `${id}.jsonl`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
}

test("a question in words finds what was said in them, with its answer", async () => {
  const place = temporaryPlace();
  put(place, "01aaaaaa-1111", chain(user("Which cache shall we use for the user profiles?")));
  putClaude(place, "Which cache did the shop use for profiles?", "The shop keeps profiles in memcached.");
  const { call } = recallHere({ place });
  const text = await call("find", { query: "why did we choose redis as profile cache?" });
  const [head] = text.split("\n");
  expect(head).toMatch(/^2 sessions match scope; all read up to \d\d:\d\d:\d\d/);
  expect(text).toMatch(
    / · claude · assistant · .*\n```\nThe shop keeps profiles in memcached\.\n```\nasked #\w+: "Which cache did the shop use for profiles\?"/,
  );
});
