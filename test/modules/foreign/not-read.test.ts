/** Files where sessions are kept that none can be read from: lists and doctor say of each how it is. */

import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { gooseDatabase, opencodeDatabase, rustDatabase, SQLITE } from "../../support/foreign/databases.ts";
import { wholeGooseExport } from "../../support/foreign/goose.ts";
import { wholeOpencodeExport } from "../../support/foreign/opencode.ts";
import { put, putSession, rootOf, serveLibrary } from "../../support/lifecycle.ts";
import { chain, headerText } from "../../support/lines.ts";
import { type Json, type Place, temporaryPlace } from "../../support/server.ts";
import { runHere } from "../../support/verbs.ts";

type Database = ReturnType<typeof SQLITE>;

test("another agent's database that is none, or has other tables, is named with its exit status", async () => {
  const place = temporaryPlace();
  const file = put(join(place.home, ".local/share/opencode/opencode.db"), "no database at all, but some words");
  const goose = put(join(place.home, ".local/share/goose/sessions/sessions.db"), "");
  const database = SQLITE(goose);
  database.exec("CREATE TABLE sessions_v9 (id TEXT)");
  database.close();
  const said = async (...args: string[]): Promise<[number | null, string]> => {
    const { status, stdout } = await runHere(place, args);
    return [status, stdout.replace(/\s+/g, " ")];
  };
  expect(await said("list", "--agents", "opencode")).toEqual([3, expect.stringMatching(/is no SQLite database\./)]);
  const unknown = /tables that this program does not know\. Nothing is wrong with it/;
  expect(await said("list", "--agents", "goose")).toEqual([0, expect.stringMatching(unknown)]);
  const { notRead, ok } = await serveLibrary(place).result("get_health");
  expect(notRead.map(({ path, isDamaged }: Json) => [path, isDamaged])).toEqual([
    [file, true],
    [goose, false],
  ]);
  expect(ok).toBe(false);
  expect(await said("doctor")).toEqual([3, expect.stringMatching(/opencode\.db has/)]);
  writeFileSync(file, "");
  expect((await serveLibrary(place).result("get_health")).ok).toBe(true);
});

/** Databases of each agent: where they are, and how they are made. */
const DATABASES: Record<string, readonly [path: (place: Place) => string, make: (file: string) => Database]> = {
  opencode: [
    ({ home }) => join(home, ".local/share/opencode/opencode.db"),
    (file) => opencodeDatabase(file, [wholeOpencodeExport()], { journal: "DELETE" }),
  ],
  goose: [
    ({ home }) => join(home, ".local/share/goose/sessions/sessions.db"),
    (file) => gooseDatabase(file, [wholeGooseExport()], { journal: "DELETE" }),
  ],
  pirust: [
    (place) => join(rootOf(place), "--home-me--", "x.sqlite"),
    (file) => rustDatabase(file, headerText(), chain(40), { journal: "DELETE" }),
  ],
};

function putDatabase(agent: string, place: Place): string {
  const [pathOf, make] = DATABASES[agent];
  const file = put(pathOf(place), "");
  make(file).close();
  return file;
}

const SIZE = 4096;
/** Puts bytes in the place of some of a database. */
const over = (whole: Buffer, from: number, to: number, byte = 0): Buffer => Buffer.from(whole).fill(byte, from, to);
const DAMAGES: Record<string, (whole: Buffer) => Buffer> = {
  "cut to 100 bytes": (whole) => whole.subarray(0, 100),
  "cut to a page": (whole) => whole.subarray(0, SIZE),
  "cut in half": (whole) => whole.subarray(0, Math.floor(whole.length / 2 / SIZE) * SIZE),
  "cut within a page": (whole) => whole.subarray(0, whole.length - SIZE / 2),
  "with NULs for its schema": (whole) => over(whole, 100, SIZE),
  "with NULs in its schema": (whole) => over(whole, SIZE / 2, SIZE),
  "overwritten after its header": (whole) => over(whole, 100, whole.length, 0x55),
};

for (const agent of Object.keys(DATABASES))
  test.each(Object.keys(DAMAGES))(
    `a database of ${agent}'s %s is damaged for lists, doctor and verify`,
    async (how) => {
      const place = temporaryPlace();
      const file = putDatabase(agent, place);
      const server = serveLibrary(place);
      const list = async (): Promise<Json[]> =>
        (await server.result("list_sessions", { agents: [agent] })).notRead ?? [];
      expect([await list(), (await server.result("get_health")).ok]).toEqual([[], true]);
      writeFileSync(file, DAMAGES[how](readFileSync(file)));
      const notRead = [{ path: file, agent, isDamaged: true, text: expect.stringMatching(/damaged: .*Restore it/) }];
      expect(await list()).toEqual(notRead);
      expect(await server.result("get_health")).toMatchObject({ ok: false, notRead });
      expect(await server.result("verify_sessions")).toMatchObject({ ok: false, notRead });
      const { error } = await server.request("switch_session", { sessionPath: file });
      if (error) expect(error.message).not.toMatch(/Nothing is wrong/);
    },
  );

test("a session that lost a page of its agent's database is damaged for lists and verify", async () => {
  const place = temporaryPlace();
  const file = putDatabase("opencode", place);
  const database = SQLITE(file);
  const [{ rootpage }] = database.prepare("SELECT rootpage FROM sqlite_master WHERE name = 'part'").all() as Json[];
  database.close();
  const bytes = readFileSync(file);
  writeFileSync(file, bytes.fill(0, (rootpage - 1) * SIZE, rootpage * SIZE));
  const server = serveLibrary(place);
  const [session] = (await server.result("list_sessions", { agents: ["opencode"] })).sessions;
  expect(session.isDamaged).toBe(true);
  const { damage, ok } = await server.result("verify_session", { sessionPath: session.sessionPath });
  expect([ok, damage[0].reason]).toEqual([false, expect.stringMatching(/^Page \d+ of the database cannot be read/)]);
});

test("a file of an unknown format among ours is named by a list of all, and by no other", async () => {
  const place = temporaryPlace();
  const folder = dirname(putSession(place, 1));
  const other = put(join(folder, "other.jsonl"), '{"kind":"x"}\n{"kind":"y"}\n');
  const server = serveLibrary(place);
  const { sessions, notRead } = await server.result("list_sessions");
  expect(sessions).toHaveLength(1);
  expect(notRead).toEqual([
    { path: other, text: expect.stringMatching(/of no agent that is known here\. Nothing is wrong/), isDamaged: false },
  ]);
  expect((await server.result("list_sessions", { cwd: place.cwd })).notRead).toBeUndefined();
});
