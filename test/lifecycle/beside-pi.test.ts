/**
 * A program that knows no lock and no record of ours opens a session file by its name after an operation on the whole
 * session was cut off, and appends to it: there is one session, and its line is in it, or in a file that is kept next to it.
 */

import { expect, test } from "vitest";
import { toBytes } from "../../src/core/json/json.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { cutOffs, FILE, FOLDER, TEXT } from "../support/cut-off.ts";
import { FaultDisk } from "../support/disk.ts";
import { id, SESSION, userText } from "../support/lines.ts";
import { type HereServer, type Json, type Place, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const THEIRS = "7e117e11";
const LINE = `${userText(THEIRS, id(1))}\n`;

/** The same for each server: the records of operations are found again on the disk. */
const PLACE: Place = {
  home: "/home/me",
  state: "/state",
  cwd: "/home/me",
  variables: { HOME: "/home/me", PI_SESSION_SERVER_STATE_DIR: "/state" },
};

const serveOn = (disk: FaultDisk, ...args: string[]): HereServer =>
  serveHere(["--events", "none", "--session-dir", FOLDER, ...args], { disk, locks: noLocks, place: PLACE });

async function ask(disk: FaultDisk, method: string, params: Json): Promise<Json> {
  const server = method === "repair_session" ? serveOn(disk, "--session", FILE) : serveOn(disk);
  const { result, error } = await server.request(method, params);
  await server.finish();
  if (error) throw Object.assign(new Error(error.message), { code: error.data.name });
  return result;
}

/** Appends to the session file that a program finds; returns whether there was one. */
function appendOther(disk: FaultDisk): boolean {
  const found = disk.paths().find((path) => path.endsWith(`${SESSION}.jsonl`) && !path.startsWith("/state/"));
  if (found === undefined) return false;
  const fd = disk.openAppend(found);
  disk.write(fd, toBytes(LINE));
  disk.close(fd);
  return true;
}

const one = { sessionId: SESSION };

const OPERATIONS = [
  { method: "repair_session", params: {}, text: `${TEXT}{"type":"mess\n` },
  { method: "relocate_session", params: { ...one, cwd: "/home/me/other", allowMissing: true }, text: TEXT },
  { method: "archive_session", params: one, text: TEXT },
  { method: "delete_session", params: one, text: TEXT },
  { method: "restore_session", params: one, text: TEXT, before: "delete_session" },
  { method: "unarchive_session", params: one, text: TEXT, before: "archive_session" },
];

const CASES = [{ ...OPERATIONS[0], ofMany: 4 }, ...OPERATIONS.map((operation) => ({ ...operation, ofMany: 1 }))];

acrossTiers(test, CASES)(
  "$method that is cut off leaves one session, and a line that comes then stays (one of $ofMany)",
  async ({ method, params, text, before, ofMany }: (typeof CASES)[number]) => {
    const begin = async (): Promise<FaultDisk> => {
      const disk = new FaultDisk();
      disk.put(FILE, toBytes(text));
      if (before !== undefined) await ask(disk, before, one);
      return disk.after();
    };
    const go = (disk: FaultDisk): Promise<Json> => ask(disk, method, params);
    const found = await cutOffs({ begin, go }, true);
    let written = 0;
    for (const { disk, at } of found.filter((_, n) => n % ofMany === 0)) {
      const sessions = async (): Promise<number> => {
        const lists = [false, true].map((archived) => ask(disk, "list_sessions", { archived }));
        // A file that has both names is in the list and in the archive.
        return Math.max(...(await Promise.all(lists)).map((list) => list.sessions.length));
      };
      const had = await sessions();
      expect(had, at).toBeLessThan(2);
      if (!appendOther(disk)) continue;
      written++;
      expect(await sessions(), at).toBe(1);
      for (const again of [false, true]) {
        if (again) await go(disk).catch(() => {});
        const holding = disk.paths().filter((path) => Buffer.from(disk.content(path) as Uint8Array).includes(THEIRS));
        expect(holding.length, `${at}, ${again}`).toBeGreaterThan(0);
        expect(await sessions(), `${at}, ${again}`).toBeLessThan(2);
      }
    }
    expect(written).toBeGreaterThan(0);
  },
);
