/** Sessions that another process writes to, as the verbs tell of them. */

import { expect, test } from "vitest";
import { putSession, sessionId } from "../../support/lifecycle.ts";
import { type HereServer, type Place, serveHere, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";

const NOW = Date.parse("2026-01-24T18:40:00.000Z");

/** A place with two sessions, the first of which a server writes to. */
async function held(store: "jsonl" | "v2"): Promise<{ place: Place; server: HereServer }> {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  putSession(place, 2);
  if (store === "v2") expect((await runHere(place, ["migrate", file, "--apply"])).status).toBe(0);
  const server = serveHere(["--no-session", "--events", "none"], { place });
  await server.result("open_session", { sessionId: sessionId(1) });
  await server.result("append", {
    sessionId: sessionId(1),
    entries: [{ type: "message", message: { role: "user", content: "go on" } }],
  });
  return { place, server };
}

acrossTiers(test, ["jsonl", "v2"] as const)(
  "list and status say which process has a session open (%s)",
  async (store) => {
    const { place, server } = await held(store);
    const run = (...args: string[]) => runHere(place, args, { now: NOW });
    const listed = (await run("list")).stdout.trimEnd().split("\n");
    expect(listed[1]).toContain("* say a0000000");
    expect(listed[2]).not.toContain("*");
    const below = `* ${sessionId(1)} is open in pi-session-server 0.0.0-test (process ${process.pid}).`;
    expect(listed.slice(3).join(" ")).toBe(below);
    const rows = JSON.parse((await run("list", "--json")).stdout).sessions;
    expect(rows.map(({ lockedBy }: { lockedBy?: { pid: number } }) => lockedBy?.pid)).toEqual([process.pid, undefined]);
    expect((await run("status", sessionId(1))).stdout).toContain(`(process ${process.pid}).`);
    expect((await run("status", sessionId(2))).stdout).not.toContain("Open in");
    await server.finish();
    expect((await run("list")).stdout).not.toContain("*");
    expect((await run("status", sessionId(1))).stdout).not.toContain("Open in");
  },
);

test("a host asks for holders, also in a first screen", async () => {
  const { place } = await held("jsonl");
  const asking = serveHere(["--no-session", "--events", "none"], { place });
  const cwd = "/home/me/project";
  for (const params of [{ holders: true }, { holders: true, quick: true, cwd }]) {
    const { sessions } = await asking.result("list_sessions", params);
    const found = sessions.map((row: { sessionId: string; lockedBy?: object }) => [
      row.sessionId,
      row.lockedBy !== undefined,
    ]);
    expect(Object.fromEntries(found)).toEqual({ [sessionId(1)]: true, [sessionId(2)]: false });
  }
  const { sessions } = await asking.result("list_sessions");
  expect(sessions.some((row: object) => "lockedBy" in row)).toBe(false);
});
