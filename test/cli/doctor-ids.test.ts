/** What a verb prints as the name of a session is one that every verb takes. */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { put, putSession, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, userText } from "../support/lines.ts";
import { type Json, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

test("doctor names damaged sessions so that show and verify find them, whatever their ids are", async () => {
  const place = temporaryPlace();
  const cwd = place.cwd;
  const damaged = [...chain(2), "{ torn"];
  // Two ids that begin alike, a header that is lost under two kinds of names, and one that was archived.
  putSession(place, 1, { lines: damaged, cwd });
  putSession(place, 2, { lines: damaged, cwd });
  const folder = join(rootOf(place), "--x--");
  for (const name of ["notes.jsonl", "my_notes.jsonl"])
    put(join(folder, name), [`{"type":"session"`, ...chain(2), ""].join("\n"));
  putSession(place, 3, { lines: damaged, cwd });
  const server = serveLibrary(place);
  await server.result("archive_session", { sessionId: sessionId(3) });
  const health = await server.result("get_health");
  expect(health.damaged).toHaveLength(5);
  const { stdout } = await runHere(place, ["doctor"]);
  for (const { shortId, sessionPath } of health.damaged as Json[]) {
    const name = shortId ?? sessionPath;
    expect(stdout).toContain(shortId ?? "notes.jsonl");
    for (const verb of ["show", "verify"]) {
      const { stderr } = await runHere(place, [verb, name]);
      expect([verb, name, stderr]).toEqual([verb, name, expect.not.stringMatching(/No session|sessions have an id/)]);
    }
  }
});

acrossTiers(test, [1 << 18, 3 << 20])(
  "the candidates of an ambiguous id say what was said in a session of many bytes, and its name (%i)",
  async (bytes) => {
    const place = temporaryPlace();
    const long = "x".repeat(bytes);
    const lines = [
      userText("u1", null, "Mend the parser"),
      ...["u2", "u3", "u4"].map((id) => userText(id, "u1", long)),
    ];
    const [one, two] = [1, 2].map((n) => putSession(place, n, { lines }));
    writeFileSync(
      two,
      `${readFileSync(two, "utf8")}${JSON.stringify({ type: "session_info", id: "n1", parentId: "u4", timestamp: "2026-01-24T16:22:26.831Z", name: "The parser" })}\n`,
    );
    const { data } = await serveLibrary(place).failure("open_session", { sessionId: sessionId(1).slice(0, 12) });
    const found = Object.fromEntries(
      data.candidates.map((one: Json) => [one.sessionPath, [one.firstMessage, one.name]]),
    );
    expect(found).toEqual({ [one]: ["Mend the parser", null], [two]: ["Mend the parser", "The parser"] });
  },
);
