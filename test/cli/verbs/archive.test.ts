/** Archiving by age and the lists it goes with, as a person uses them. */

import { appendFileSync } from "node:fs";
import { expect, test } from "vitest";
import { putSession, sessionId } from "../../support/lifecycle.ts";
import { entryText } from "../../support/lines.ts";
import { temporaryPlace } from "../../support/server.ts";
import { runHere } from "../../support/verbs.ts";

const DAY = 86_400_000;
const NOW = Date.parse("2026-01-24T18:40:00.000Z") + 100 * DAY;

/** Two sessions of which nothing was said for a hundred days. */
function ready() {
  const place = temporaryPlace();
  const files = [1, 2].map((n) => putSession(place, n));
  const asked: string[] = [];
  const answering = (answer: string) => ({
    answer: async (question: string) => {
      asked.push(question);
      return answer;
    },
  });
  const run = (args: string[], answer?: string) =>
    runHere(place, args, {
      now: NOW,
      ...(answer === undefined ? {} : { terminal: answering(answer) }),
    });
  return { place, files, run, asked };
}

test("archive --until shows what it chose, asks, and moves nothing before", async () => {
  const { run, asked } = ready();
  expect((await run(["list", "--until", "101d"])).stdout).toBe("There are no sessions.\n");
  expect((await run(["archive", "--until", "101d", "--yes"])).stdout).toBe("There are no such sessions.\n");
  const ids = [1, 2].map((n) => sessionId(n));
  const shown = (await run(["archive", "--until", "90d", "--dry-run", "--plain"])).stdout;
  for (const id of ids) expect(shown).toContain(id.slice(0, 8));

  const no = await run(["archive", "--until", "90d"], "n");
  expect([no.stderr, no.status]).toEqual(["pi-session-server: Nothing was archived.\n", 1]);
  expect(asked[0]).toContain(ids[0].slice(0, 8));
  expect(asked[0]).toMatch(/\nArchive these 2 sessions\? \[y\/N\] $/);
  const nobody = await run(["archive", "--until", "90d"]);
  expect([nobody.status, nobody.stderr]).toEqual([2, expect.stringContaining("--yes")]);
  expect(JSON.parse((await run(["list", "--archived", "--json"])).stdout).total).toBe(0);

  expect((await run(["archive", "--until", "90d"], "y")).stdout).toBe(
    "2 sessions are in the archive now; undo brings them back.\n",
  );
  const archived = async () => JSON.parse((await run(["list", "--archived", "--json"])).stdout).total;
  expect(await archived()).toBe(2);
  expect((await run(["operations"])).stdout).toMatch(/\n[0-9a-f]{8} .* 2 sessions +Archived 2 sessions\.\n$/);
  expect((await run(["undo"])).stdout).toBe("Took back: Archived 2 sessions.\nredo brings them back.\n");
  expect(await archived()).toBe(0);
});

test.each([
  ["archive", "--until", "90d"],
  ["delete", sessionId(1), sessionId(2)],
])("%s leaves alone what was continued before the answer", async (...args) => {
  const { place, files } = ready();
  const answer = async (): Promise<string> => {
    const message = { role: "user", content: "one more thing" };
    appendFileSync(files[1], `${entryText("message", "cafe0001", "a0000002", { message })}\n`);
    return "y";
  };
  const { stdout, stderr, status } = await runHere(place, args, { now: NOW, terminal: { answer } });
  expect([stderr, status]).toEqual(["", 1]);
  expect(stdout).toContain("was continued since it was listed");
  const { sessions } = JSON.parse((await runHere(place, ["list", "--json"], { now: NOW })).stdout);
  expect(sessions.map((row: { sessionId: string }) => row.sessionId)).toEqual([sessionId(2)]);
});

test("archive takes sessions or --until, and says what its other options go with", async () => {
  const { run } = ready();
  for (const [args, said] of [
    [["archive"], "archive needs <session...>"],
    [["archive", "--until", "90d", sessionId(1)], "either sessions or --until"],
    [["archive", sessionId(1), "--yes"], "--yes goes with --until"],
  ] as const) {
    const { status, stderr } = await run([...args]);
    expect([status, stderr]).toEqual([2, expect.stringContaining(said)]);
  }
});

test("list --unnamed leaves out sessions with a name, as --named the others", async () => {
  const { run } = ready();
  await run(["rename", sessionId(1), "Refactor auth"]);
  const listed = async (flag: string) =>
    JSON.parse((await run(["list", flag, "--json"])).stdout).sessions.map(
      (row: { sessionId: string }) => row.sessionId,
    );
  expect([await listed("--unnamed"), await listed("--named")]).toEqual([[sessionId(2)], [sessionId(1)]]);
});

test("verify --all counts what is only incomplete for Pi apart from what is damaged", async () => {
  const { place, run } = ready();
  const message = { role: "assistant", content: [{ type: "text", text: "x" }], provider: "p", model: "m" };
  const [one, two] = [1, 2].map((n) => putSession(place, n));
  appendFileSync(
    one,
    `${JSON.stringify({ type: "message", id: "cafe0001", parentId: null, timestamp: "2026-01-24T16:22:26.831Z", message })}\n`,
  );
  appendFileSync(two, "no JSON\n");
  const { stdout, status } = await run(["verify", "--all"]);
  expect(stdout.trimEnd().split("\n\n").at(-1)?.replace(/\s+/g, " ")).toBe(
    "2 sessions, 1 damaged; of 1 nothing is lost, but Pi's interface fails on messages that lack something, which repair adds.",
  );
  expect(status).toBe(3);
});
