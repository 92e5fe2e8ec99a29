/**
 * A folder with announcements beside sessions is nothing to everybody who goes through folders of sessions.
 *
 * @module-tag system
 */

import { readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { LEFTOVER_KINDS } from "../../../src/core/ports/leftovers.ts";
import { attachmentsWith, beside, opened } from "../../support/attaching.ts";
import { user } from "../../support/drafts.ts";
import { CWD, contentsOf, putSession, rootOf, serveLibrary } from "../../support/lifecycle.ts";
import { type Json, temporaryPlace } from "../../support/server.ts";

/**
 * Members whose values differ from run to run. Which session a lock was of is known by the number of its file, which another
 * file may have by then.
 */
const VOLATILE =
  /^(?:locks|modified|oldest|since|deletedAt|id|operationId|newOperationId|time|sizeBytes|space|catalog|took)$/;
/** Ids that are made, whole or as short as a list has them, times, and hashes. */
const MADE_UP = /01991f6e-0000-7000-8000-\d+|\d{4}-\d\d-\d\dT[\d:.-]{12}Z|\b[0-9a-f]{16}(?:[0-9a-f]{48})?\b/g;

/** What is left over of sessions, but for announcements. */
const WRITTEN = LEFTOVER_KINDS.filter((kind) => kind !== "announcement");

function withoutAnnounced(value: unknown): unknown {
  return Array.isArray(value)
    ? value.filter((one) => one?.kind !== "announcement" && one?.kind !== "stale_locks")
    : value;
}

interface Life {
  /** All replies. */
  readonly said: readonly string[];
  /** Paths of all files in the end, but for announcements. */
  readonly left: readonly string[];
  readonly announced: (string[] | null)[];
}

/** Does everything that goes through folders with sessions, where holders are announced or are not. */
async function lifeOf(isAnnounced: boolean): Promise<Life> {
  const place = temporaryPlace();
  const plain = (text: string): string =>
    text.replaceAll(place.home, "~").replaceAll(basename(place.home), "~").replaceAll(MADE_UP, "*");
  const root = rootOf(place);
  const files = [putSession(place, 1), putSession(place, 2), putSession(place, 3, { folder: root })];
  const server = serveLibrary(place, ["--attach", "off"]);
  const said: string[] = [];
  const ask = async (method: string, params: Json = {}): Promise<Json> => {
    const result = await server.result(method, params);
    // Lists are ordered by times.
    const text = JSON.stringify(result, (key, value) => (VOLATILE.test(key) ? undefined : withoutAnnounced(value)));
    said.push(
      `${method} ${plain(text)
        .split(/(?=\{)|,(?=\{)|(?=\])/)
        .sort()
        .join(" ")}`,
    );
    return result;
  };
  await ask("switch_session", { sessionPath: files[1] });
  await ask("migrate_session");
  await ask("new_session");
  const folder = dirname(files[0]);
  const container = join(folder, readdirSync(folder).find((name) => name.endsWith(".v2")) as string);
  if (isAnnounced)
    for (const session of [files[0], container, files[2]]) expect(opened(attachmentsWith(), session)).not.toBeNull();
  const announced = (): (string[] | null)[] => [folder, root].map(beside);
  const before = announced();

  for (const sessionPath of [files[0], container]) {
    await ask("switch_session", { sessionPath });
    await ask("append", { entries: [user("more")] });
    await ask("verify_session");
    await ask("fork", { entryId: (await server.result("get_entries")).entries.at(-1).id });
    const { movedTo } = await ask("archive_session", { sessionPath });
    await ask("list_sessions", { archived: true });
    await ask("unarchive_session", { sessionPath: movedTo });
    await ask("delete_session", { sessionPath });
    await ask("undo");
    const { movedTo: elsewhere } = await ask("relocate_session", { sessionPath, cwd: place.cwd });
    await ask("relocate_session", { sessionPath: elsewhere, cwd: CWD, allowMissing: true });
  }
  await ask("switch_session", { sessionPath: container });
  await ask("rollback_migration");
  await ask("switch_session", { sessionPath: files[0] });
  await ask("migrate_session");
  await ask("new_session");
  for (const method of ["list_sessions", "verify_sessions", "get_health", "fix_health"]) await ask(method);
  await ask("search_sessions", { query: "more" });
  // Nobody has the lock of these sessions: what is announced would go.
  for (const method of ["list_leftovers", "prune_leftovers"]) await ask(method, { kinds: WRITTEN });
  await server.finish();
  expect(announced()).toEqual(before);
  const left = Object.keys(contentsOf(root)).filter((path) => !path.includes("/.pi-session-server/"));
  return { said, left: left.map(plain).sort(), announced: before };
}

test("sessions that are announced are listed, checked, moved and removed as others are", async () => {
  const [there, missing] = [await lifeOf(true), await lifeOf(false)];
  expect(there.announced.map((names) => names?.length)).toEqual([4, 2]);
  expect(missing.announced).toEqual([null, null]);
  expect(there.left).toEqual(missing.left);
  expect(there.said).toEqual(missing.said);
});
