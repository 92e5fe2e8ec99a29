/** The guide docs/recall.md: its transcripts are what the verbs print. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { put } from "../../support/searching.ts";
import { type Json, temporaryPlace } from "../../support/server.ts";
import { runHere, wordsIn } from "../../support/verbs.ts";

const guide = readFileSync(new URL("../../../docs/recall.md", import.meta.url), "utf8");

const at = (time: string, draft: Json): Json => ({
  ...draft,
  timestamp: time,
  message: { ...draft.message, timestamp: Date.parse(time) },
});

/** The session of the guide, with a branch that revised the first. */
function branched(): Json[] {
  const [first, later] = ["2026-03-10T12:00:00Z", "2026-03-12T12:00:00Z"];
  return [
    { id: "e0000001", parentId: null, ...at(first, user("Which cache shall we use for profiles? Redis?")) },
    { id: "e0000002", parentId: "e0000001", ...at(first, assistant("Redis, because it expires keys.")) },
    { id: "e0000003", parentId: "e0000002", ...at(first, user("Set it up.")) },
    { id: "e0000004", parentId: "e0000003", ...at(first, assistant("It is set up.")) },
    { id: "e0000005", parentId: "e0000002", ...at(later, user("Too heavy: keep the profiles in memory.")) },
    { id: "e0000006", parentId: "e0000005", ...at(later, assistant("They are in a map now.")) },
  ];
}

test("the guide has 4 to 6 KB, and each transcript in it is what the verbs print", async () => {
  expect(Buffer.byteLength(guide)).toBeGreaterThan(4000);
  expect(Buffer.byteLength(guide)).toBeLessThan(6600);
  const place = temporaryPlace();
  put(place, "01aaaaaa-1111", branched(), { cwd: `${place.home}/shop` });
  let played = 0;
  for (const [, , text] of guide.matchAll(/^(````|```)text\n([\s\S]*?)\n\1$/gm)) {
    for (const [, typed, printed = ""] of text.matchAll(/^\$ pi-session-server (.*)\n?((?:(?!^\$ )[\s\S])*)/gm)) {
      const { stdout, stderr } = await runHere(place, wordsIn(typed), { variables: { TZ: "UTC" } });
      const timeless = stdout.replace(/\d\d:\d\d:\d\d/, "<time>").trimEnd();
      expect({ typed, stdout: timeless, stderr }).toEqual({ typed, stdout: printed.trimEnd(), stderr: "" });
      played++;
    }
  }
  expect(played).toBe(4);
});
