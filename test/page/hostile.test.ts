/** Everything that a session says, in every place where it can, as hostile as it comes: nothing runs, loads or breaks out. */

import { expect, test } from "vitest";
import { fileOf } from "../support/cases.ts";
import { lookAt } from "../support/pages.ts";
import { PAYLOADS, sessionSaying } from "../support/payloads.ts";
import { serveHere, temporaryPlace } from "../support/server.ts";

test("no payload runs, loads or breaks out, wherever a session says it", async () => {
  expect(PAYLOADS.length).toBeGreaterThanOrEqual(100);
  const place = temporaryPlace();
  const server = serveHere(["--no-session", "--events", "none"], { place });
  for (const [n, payload] of PAYLOADS.entries()) {
    const sessionPath = fileOf(place, sessionSaying(payload), `${n}.jsonl`);
    const { content } = await server.result("export_session", { sessionPath, format: "html" });
    try {
      const { text, addresses } = lookAt(content);
      for (const address of addresses) expect(address).toMatch(/^(?:https?:\/\/|mailto:)/);
      const word = /[a-z]{5,}/.exec(payload)?.[0];
      if (word !== undefined) expect(text).toContain(word);
    } catch (error) {
      throw new Error(`payload ${n}, ${JSON.stringify(payload.slice(0, 200))}: ${(error as Error).message}`);
    }
  }
});
