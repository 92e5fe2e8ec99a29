/** The verbs migrate, rollback and status: what they print, and how they end. */

import { existsSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, test } from "vitest";
import { sessionFile } from "../support/cases.ts";
import { chain, headerText, id, SESSION, userText } from "../support/lines.ts";
import { temporaryPlace } from "../support/server.ts";
import { runHere } from "../support/verbs.ts";

test("a session goes to a container and back, dry by default", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(3), "s.jsonl");
  const before = readFileSync(file);
  const container = join(place.cwd, `${SESSION}.v2`);
  const run = (...args: string[]) => runHere(place, args, { hashes: true });
  const short = (path: string): string => path.replace(place.home, "~");

  expect(await run("migrate", file)).toEqual({
    stdout:
      `3 entries would go to ${short(container)}. --apply does it.\n` +
      "Pi would not see the session there, until rollback makes its file the session again.\n",
    stderr: "",
    status: 0,
  });
  expect(existsSync(container)).toBe(false);
  const done = await run("migrate", file, "--apply");
  expect([done.stderr, done.status]).toEqual(["", 0]);
  expect(done.stdout).toBe(
    `The session is now ${short(container)} (MIGRATED, 3 entries).\n` +
      `Pi does not see it there. rollback ${basename(container).slice(0, 13)} makes its file the session again.\n`,
  );
  expect((await run("migrate", "--help")).stdout).toMatch(
    /do\s+not\s+list\s+or\s+open\s+a\s+session\s+in\s+a\s+container/,
  );
  expect((await run("verify", container)).stdout).toBe("The session is sound.\n");
  const status = await run("status", container);
  expect(status.status).toBe(0);
  expect(status.stdout).toMatch(/^Session Store V2, MIGRATED \(completed\)\.\n/);
  expect(status.stdout).toContain("cutover_commit   ok\n");

  const back = await run("rollback", container, "--reason", "a test");
  expect([back.stderr, back.status]).toEqual(["", 0]);
  expect(back.stdout).toBe(
    `The session is now ${short(file)} (ROLLED_BACK, 3 entries).\nThe container is kept as ${short(container)}.rolled-back.\n`,
  );
  expect(readFileSync(file)).toEqual(before);
  expect((await run("status", file)).stdout).toMatch(/^A JSONL file, ROLLED_BACK \(rollback\)\.\nReason: a test\.\n/);
});

test("what hinders a migration is listed, and ends with 3", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, [...chain(2), userText(id(0), id(1), "other")], "s.jsonl", headerText({ id: "odd" }));
  const { stdout, status } = await runHere(place, ["migrate", file, "--dry-run"], { hashes: true });
  expect(status).toBe(3);
  expect(stdout).toMatch(/^The session cannot be migrated as it is:\n {2}invalid_id: .*\n {2}duplicate_id/);
});
