/** A person sees in lists which sessions are damaged, and in show that more was said than what comes before the leaf. */

import { appendFileSync, linkSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { candidatesOf } from "../../../src/storage/catalog/candidates.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { putSession, serveLibrary, sessionId } from "../../support/lifecycle.ts";
import { temporaryFolder, temporaryPlace } from "../../support/server.ts";
import { runHere } from "../../support/verbs.ts";

test("list marks damaged sessions, and keeps the mark when they grow", async () => {
  const place = temporaryPlace();
  const damaged = putSession(place, 1);
  putSession(place, 2);
  appendFileSync(damaged, "no entry\n");
  const server = serveLibrary(place);
  const marked = async () =>
    (await server.result("list_sessions")).sessions
      .filter(({ isDamaged }: { isDamaged?: true }) => isDamaged)
      .map((row: { sessionId: string }) => row.sessionId);
  expect(await marked()).toEqual([sessionId(1)]);
  const entry = {
    type: "custom",
    id: "cafe0001",
    parentId: null,
    timestamp: "2026-01-24T16:22:26.831Z",
    customType: "x",
  };
  appendFileSync(damaged, `${JSON.stringify(entry)}\n`);
  expect(await marked()).toEqual([sessionId(1)]);
  const { stdout, status } = await runHere(place, ["list"]);
  expect(stdout.split("\n").filter((line) => / ! /.test(line))).toHaveLength(1);
  expect(status).toBe(0);
});

test("after going back before the first message, show says that there is more", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const server = serveLibrary(place);
  await server.result("switch_session", { sessionPath: file });
  await server.result("branch", { entryId: null });
  await server.finish();
  for (const flag of [[], ["--path"]]) {
    const { stdout } = await runHere(place, ["show", sessionId(1), ...flag]);
    expect(stdout).toMatch(/^Nothing is before the place where it goes on\. tree shows/);
  }
});

test("a session whose first message is longer than what is read at first is described by it", () => {
  const file = join(temporaryFolder(), "2026-01-24T16-22-26-831Z_5f0c8a52.jsonl");
  const at = "2026-01-01T00:00:00.000Z";
  const header = { type: "session", version: 3, id: "5f0c8a52", timestamp: at, cwd: "/p" };
  const said = (id: string, parentId: string | null, content: unknown): object => ({
    type: "message",
    id,
    parentId,
    timestamp: at,
    message: { role: "user", content, timestamp: 1 },
  });
  const picture = { type: "image", data: "A".repeat(9 << 20), mimeType: "image/png" };
  const lines = [
    header,
    said("a0000001", null, [{ type: "text", text: "Look at it" }, picture]),
    said("a0000002", "a0000001", "Two"),
  ];
  writeFileSync(file, `${lines.map((line) => JSON.stringify(line)).join("\n")}\n`);
  const [candidate] = candidatesOf(realDisk, [file], () => {
    throw new Error("no container");
  });
  expect(candidate.firstMessage).toBe("Look at it");
});

test("a session whose archiving was cut off between its two names is listed and counted once", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  putSession(place, 2);
  const server = serveLibrary(place);
  const listed = async (archived: boolean) => (await server.result("list_sessions", { archived })).sessions;
  await server.result("archive_session", { sessionPath: file });
  const [{ sessionPath: archived }] = await listed(true);
  mkdirSync(dirname(file), { recursive: true });
  linkSync(archived, file);
  expect((await listed(false)).map((row: { sessionPath: string }) => row.sessionPath)).toContain(file);
  expect(await listed(true)).toEqual([]);
  expect((await server.result("get_usage")).archivedLeftOut).toBe(0);
  // The rest of it is done by archiving once more.
  await server.result("archive_session", { sessionPath: file });
  expect([await listed(true), await listed(false)].map(({ length }) => length)).toEqual([1, 1]);
});
