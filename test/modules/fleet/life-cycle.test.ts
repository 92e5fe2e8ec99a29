/**
 * Deleting, restoring, archiving, relocating, importing and repairing sessions of a fleet, and taking that back: another
 * machine sees it. What the fleet did not confirm, or the disk refused in the middle, is finished by the same again.
 * Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";
import { AWAY, fleetSuite, instead, type Machine, meddle, play } from "./support/sql-machines.ts";

const STORES = ["jsonl", "v2"];

/** Steps of a machine with a session that is archived on another one. */
const backFromArchive = (by: string, other: string): string => `
  ${other} archive_session; both lists - s; ${by} unarchive_session; both lists s; ${by} undo; both lists - s
  ${by} redo; both lists s; ${by} unarchive_session ! path_outside_root`;

/** The undo of something that the fleet does not confirm. Who tries again by itself would take something else back. */
const unconfirmedUndo = (done: string, finishes: string, last: string): string => `
  one name older; ${done}; one befalls unconfirmed; one undo ! storage_failed final ~ ${finishes}; one heals; ${last}`;

const SCENES: Readonly<Record<string, string>> = {
  "one that is deleted is gone for all, and restoring or undoing brings it back for all": `
    one delete_session; two lists -; two open_session ! session_not_found; one restore_session; two lists s
    one delete_session; two lists -; one undo; two lists s; one redo; row state = 2; one undo
    two reads text; one write later; two delete_session; two lists -
    two restore_session; both lists s; one reads later`,
  "one whose copy is here comes back, though the trash has an older state of it": `
    one delete_session; two restore_session; two write later; one open_session; one close_session; two delete_session
    one restore_session path; both lists s; one holds later; one restore_session path ! already_exists; two lists s`,
  "one that is deleted for good is never begun again": `
    two switch_session; one delete_session permanent; two append late ! session_not_found; one lists -`,
  "one that another machine writes to is neither deleted nor archived, and stays as it is": `
    two switch_session; two append mine; one delete_session ! session_locked; one archive_session ! session_locked
    one holds text; two append mine, too; two reads too`,
  "one that is archived comes back on a machine that did not archive it": `
    two reads text; ${backFromArchive("two", "one")}; ${backFromArchive("one", "two")}`,
  "a relocation is for all, and a name that another machine gave meanwhile stays through it, its undo and its redo": `
    two name X; one relocate_session to home; two shows = name:X cwd:home; three open_session
    three shows here = cwd:home; three close_session; two name Y; one undo; two shows = name:Y cwd:cwd
    two name Z; one redo; two shows = name:Z cwd:home`,
  "one that is relocated while another machine has it open keeps its directory when that writes": `
    two switch_session; one relocate_session to home; two name Y; both shows = name:Y cwd:home; one reads text
    two reads text; both shows here = name:Y cwd:home`,
  "a name that another machine gave meanwhile stays when the archiving is taken back": `
    one archive_session; two name X; one undo; both shows = name:X`,
  "the undo of the relocation of an archived session has its directory and the archive again for all": `
    one archive_session; one relocate_session to home; two shows = cwd:home; one undo; two lists - s
    two shows archived = cwd:cwd; two reads text; two shows archived = cwd:cwd`,
  "a relocation that the fleet did not confirm is finished by the same again, and is one operation": `
    one befalls unconfirmed; one relocate_session to home ! storage_failed ~ Repeat it; two shows = cwd:cwd; one heals
    one relocate_session to home; two shows = cwd:home; one relocate_session to home ! already_exists
    one undo; two shows = cwd:cwd`,
  "the undo of an archiving that the fleet did not confirm is finished by what the failure names": unconfirmedUndo(
    "one archive_session",
    "unarchive_session",
    "one unarchive_session; two shows = name:older cwd:cwd; row state = 1",
  ),
  "and that of an end of it": unconfirmedUndo(
    "one archive_session; one unarchive_session",
    "archive_session",
    "one archive_session; two lists - s; row state = 1",
  ),
  "and that of a relocation": unconfirmedUndo(
    "one relocate_session to home",
    "relocate_session to .*/project",
    "one relocate_session to cwd; two shows = name:older cwd:cwd; row state = 1",
  ),
  "and that of a restoration": unconfirmedUndo(
    "one delete_session; one restore_session",
    "delete_session",
    "one delete_session; two lists -; row state = 2",
  ),
  "the undo of a deletion that the fleet did not confirm is finished by restore_session": `
    one delete_session; one befalls unrestored; one undo ! storage_failed final ~ Restore it again; one heals
    one restore_session; two lists s`,
  "one that is deleted for good is so for all when the same is done again, and the failure says which": `
    one befalls unconfirmed; one delete_session permanent ! storage_failed ~ delete_session with permanent
    row state = 1; one heals; one delete_session permanent; row state = 2; two lists -`,
  "one whose file another program takes away before it is deleted stays for others": `
    one befalls robbed; one delete_session path ! session_not_found; one heals; row state = 1; two name X; two shows = name:X`,
  "one whose file another program takes away before it is deleted for good stays for others": `
    one befalls robbed; one delete_session path permanent ! session_not_found; one heals; row state = 1; two lists s`,
  "a relocation begins where the session is, and its undo brings the session there": `
    two relocate_session to home; one relocate_session to cwd; both shows = cwd:cwd; one holds text
    one undo; both shows = cwd:home; both shows here = cwd:home`,
  "a relocation that another machine relocated further is not taken back": `
    one relocate_session to home; two relocate_session to theirs; one undo ! ground_moved ~ {theirs}; both shows = cwd:theirs
    both reads text; both shows here = cwd:theirs; two undo; one undo; both shows = cwd:cwd`,
  "one that another machine has archived is a family of its own": `
    two get_session_family = root:{s} nodes.length:1 nodes.0.parentSession:null; one archive_session
    two get_session_family = root:{s} nodes.length:1 nodes.0.parentSession:null`,
  "an undo of a deletion on a machine that has the session elsewhere again leaves one file of it": `
    one delete_session; two restore_session; two relocate_session to home; one reads text
    one undo ! ground_moved ~ is at .* already; one restore_session ! already_exists; one reads text
    one list_trash = total:1 items.0.restored:true; two list_trash = total:0
    one archive_session; both lists - s; two reads text; one delete_session; both lists -; three restore_session
    both lists - s; both reads text; both shows archived = cwd:home`,
  "a restore of what another machine brought back, and moved, brings the file of the trash there": `
    one delete_session; two restore_session; two archive_session; one restore_session; both lists - s
    one unarchive_session; one undo; both lists - s; two unarchive_session; both reads text; both lists s`,
  "an undo says so where another machine has moved the session back meanwhile": `
    one archive_session; one unarchive_session; two archive_session; one undo ! ground_moved ~ archived it since
    both lists - s; two unarchive_session; both lists s`,
  "one that another machine deleted is neither listed nor found nor moved, and comes back from any": `
    two reads text; one delete_session; both lists -; two lists -; two open_session ! session_not_found ~ was deleted
    two delete_session ! session_not_found ~ was deleted; two archive_session ! session_not_found
    two relocate_session to home ! session_not_found; two open_session path ! session_not_found
    two restore_session; both lists s; both reads text; two delete_session permanent; both open_session ! session_not_found
    both lists -; one restore_session; both lists s; both reads text`,
  "one that is deleted for good leaves no older copy in the trash of this machine": `
    one delete_session; two restore_session; two write more; one reads more; one list_trash = total:1
    one delete_session permanent; one list_trash = total:0; one restore_session ! session_not_found; both lists -`,
  "what another machine left unfinished is where the fleet has it": `
    two reads text; one befalls unconfirmed; one archive_session ! storage_failed; one heals; both lists s; both reads text
    one shows here = cwd:cwd; two archive_session; both lists - s; one reads text; two reads text
    two befalls unconfirmed; two delete_session ! storage_failed; two heals; both lists - s; both reads text
    two undo ! ground_moved ~ The next older operation; two unarchive_session; both lists s; both reads text`,
  "a restore whose lines another machine begins to give at the same moment says so": `
    one delete_session; one prune; one befalls unbegun; one restore_session ! storage_failed retryable ~ Restore it again
    one heals; one restore_session; two lists s`,
};

describe("whole sessions of a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  /** Two machines, and a session that the first has made and left. */
  const pair = async (kind = "jsonl", disk?: Disk) => {
    const args = ["--store", kind];
    const [one, two] = [await suite.machine({ disk, args }), await suite.machine({ args })];
    const { sessionId, sessionFile } = await suite.make(one, "one");
    const { home } = one.place;
    return { one, two, home, sessionId, sessionFile, file: join(home, "carried.jsonl") };
  };
  const seenBy = async ({ wire }: Machine, params: Json = {}): Promise<string[]> =>
    (await wire.result("list_sessions", params)).sessions.map(({ sessionId }: Json) => sessionId);
  const listed = async ({ wire }: Machine, sessionId: string): Promise<Json | undefined> =>
    (await wire.result("list_sessions")).sessions.find((one: Json) => one.sessionId === sessionId);

  // Bytes between entries are not in the fleet.
  test("the undo of a repair brings nothing back that another machine deleted", () =>
    play(
      suite,
      `one damages; one switch_session path; one repair_session; one leave; two delete_session; one undo path = kind:repair
      row state = 2; two lists -`,
    ));

  acrossTiers(describe, STORES)("with copies as %s", (kind) => {
    test.each(Object.entries(SCENES))("%s", (_, script) => play(suite, script, { args: ["--store", kind] }));

    test("one that is deleted for good, of which the disk keeps a rest, is deleted for all", async () => {
      const remove = (path: string): void => {
        if (path.includes(".relocated.bak")) throw Object.assign(new Error("refused"), { code: "EACCES" });
        realDisk.remove(path);
      };
      const script = `one relocate_session to home
        one delete_session permanent ! storage_failed ~ The session is deleted, but the disk refused to remove
        row state = 2; two lists -`;
      await play(suite, script, { disk: { ...realDisk, remove }, args: ["--store", kind] });
    });

    test("one comes to the archive of this machine, and out of it, when it is opened, and is there once", async () => {
      const { one: first, two: one, sessionId } = await pair(kind);
      await suite.read(one, { sessionId });
      await suite.leave(one.wire, sessionId);
      const { sessionPath, movedTo } = await one.wire.result("archive_session", { sessionId });
      for (const by of ["archived for all", "brought back by another machine", "archived by another machine"]) {
        const sessionFile = by.startsWith("archived") ? movedTo : sessionPath;
        for (const where of [
          { sessionId },
          { sessionId: sessionId.slice(0, -1) },
          { sessionPath },
          { sessionPath: movedTo },
        ]) {
          if (by.startsWith("brought")) await first.wire.request("unarchive_session", { sessionId });
          if (by.startsWith("archived by")) await first.wire.request("archive_session", { sessionId });
          await suite.write(first, sessionId, `by the first, ${by}`);
          expect(await one.wire.result("switch_session", where)).toMatchObject({ sessionFile });
          expect(JSON.stringify(await one.wire.result("get_messages"))).toContain(`by the first, ${by}`);
          await one.wire.result("append", { entries: [user(`here, ${by}`)] });
          await suite.leave(one.wire, sessionId);
        }
        expect(await suite.read(first, { sessionId })).toContain(`here, ${by}`);
        await suite.leave(first.wire, sessionId);
      }
      expect((await one.wire.failure("archive_session", { sessionId })).data.name).toBe("path_outside_root");
      expect((await one.wire.result("delete_session", { sessionId })).sessionPath).toBe(movedTo);
      expect((await one.wire.failure("open_session", { sessionId })).data.name).toBe("session_not_found");
    });

    test.each(["relocate", "undo"])(
      "one that cannot be read after a relocation (%s) is let go, and the failure says what finishes it",
      async (what) => {
        let isRefused = (_path: string): boolean => false;
        const refusing =
          (open: Disk["openRead"]): Disk["openRead"] =>
          (path, plain) => {
            if (isRefused(path)) throw Object.assign(new Error("refused"), { code: "EIO" });
            return open(path, plain);
          };
        const [openRead, openAppend] = [realDisk.openRead, realDisk.openAppend].map(refusing);
        const { one, two, home, sessionId, sessionFile } = await pair(kind, { ...realDisk, openRead, openAppend });
        const isUndo = what === "undo";
        if (isUndo) await one.wire.result("relocate_session", { sessionId, cwd: home });
        const folder = dirname(sessionFile);
        isRefused = (path) =>
          path.startsWith(dirname(folder)) && path.includes(sessionId) && path.startsWith(folder) === isUndo;
        const { message, data } = await (isUndo
          ? one.wire.failure("undo", {})
          : one.wire.failure("relocate_session", { sessionId, cwd: home }));
        isRefused = () => false;
        expect(data).toMatchObject({ name: "storage_failed", retryable: !isUndo });
        expect(message).toMatch(/(?:^|\. )Done on this machine.*relocate_session to the directory that it has here/);
        // No machine waits for a lease.
        await suite.write(two, sessionId, "X");
        const cwd = isUndo ? one.place.cwd : home;
        expect(await listed(two, sessionId)).not.toMatchObject({ cwd });
        await one.wire.result("relocate_session", { sessionId, cwd });
        expect(await listed(two, sessionId)).toMatchObject({ cwd, messageCount: 3 });
      },
    );
  });

  test("one that was deleted elsewhere is brought back by the beginning of its id", async () => {
    const { one, two, sessionId } = await pair();
    await one.wire.result("delete_session", { sessionId });
    const beginning = sessionId.slice(0, -1);
    expect(await two.wire.result("restore_session", { sessionId: beginning })).toMatchObject({ sessionId });
    expect(suite.row(sessionId)).toBe("1");
  });

  test("one at the place of another is not brought back in its stead", async () => {
    const { one, two, sessionId, sessionFile } = await pair();
    const other = await suite.make(one, "of the other");
    await one.wire.result("delete_session", { sessionId });
    await two.wire.result("delete_session", { sessionId: other.sessionId });
    renameSync(other.sessionFile, sessionFile);
    expect((await one.wire.failure("restore_session", { sessionPath: sessionFile })).data.name).toBe("already_exists");
    expect([sessionId, other.sessionId].map((id) => suite.row(id))).toEqual(["2", "2"]);
  });

  test.each(["--continue", "--session-id"])(
    "a server that is started with %s begins no deleted session anew",
    async (how) => {
      const { one, two, sessionId } = await pair();
      await suite.read(two, { sessionId });
      await two.lives.end();
      await one.wire.result("delete_session", { sessionId });
      const place = { ...two.place, cwd: one.place.cwd };
      const { wire, lives } = await suite.machine({ place, args: how === "--continue" ? [how] : [how, sessionId] });
      const { result } = await wire.request("get_state");
      if (how === "--continue") expect(result.sessionId).not.toBe(sessionId);
      else expect([result, lives.said.join()]).toEqual([undefined, expect.stringContaining("was deleted")]);
    },
  );

  test("a relocation tells nothing of lines that the fleet has not got", async () => {
    const { one, two, home, sessionId, sessionFile } = await pair();
    await one.wire.result("switch_session", { sessionId });
    await one.wire.result("set_session_name", { name: "told" });
    await suite.leave(one.wire, sessionId);
    const end = instead(one.fleet.fleet, "take", (take) => async (...given) => {
      end();
      writeFileSync(sessionFile, readFileSync(sessionFile, "utf8").replace('"told"', '"of another"'));
      return take(...given);
    });
    const { movedTo } = await one.wire.result("relocate_session", { sessionId, cwd: home });
    expect(readFileSync(movedTo, "utf8")).toContain('"told"');
    expect(await listed(two, sessionId)).toMatchObject({ name: "told", cwd: home });
  });

  test("a whole id means that session, wherever it is, and not one whose id goes on", async () => {
    const [one, two] = [await suite.machine(), await suite.machine()];
    for (const newSessionId of ["task-1", "job-1", "way-1", "task-10", "task-11", "job-10", "way-10"]) {
      const { wire } = newSessionId.endsWith("-1") ? one : two;
      await wire.result("new_session", { newSessionId });
      await wire.result("append", { entries: [user(`in ${newSessionId}`)] });
      await wire.result("new_session");
    }
    expect(await suite.read(two, { sessionPath: (await listed(two, "way-1")).sessionPath })).toContain('in way-1"');
    for (const sessionId of ["task-1", "job-1"]) {
      expect(await suite.read(two, { sessionId })).toContain(`in ${sessionId}"`);
      await two.wire.result("archive_session", { sessionId });
      expect(await suite.read(two, { sessionId })).toContain(`in ${sessionId}"`);
    }
    for (const sessionId of ["job-10", "jo"]) expect(await suite.read(two, { sessionId })).toContain('in job-10"');
    expect((await two.wire.failure("open_session", { sessionId: "task" })).data.name).toBe("ambiguous_id");
    await two.wire.result("delete_session", { sessionId: "task-1" });
    expect(suite.row("task-1")).toBe("2");
  });

  test("a file of one is known again where the session is not, and continues it unless another machine writes", async () => {
    const { one, two, sessionId, sessionFile, file } = await pair();
    writeFileSync(file, readFileSync(sessionFile));
    const imported = { sessionId, outcome: "known" };
    expect(await two.wire.result("import_session", { path: file })).toMatchObject(imported);
    await one.wire.result("switch_session", { sessionId });
    await one.wire.result("append", { entries: [user("by the other")] });
    expect(await two.wire.result("import_session", { path: file })).toMatchObject(imported);
    const now = readFileSync(sessionFile, "utf8");
    const last = now.trimEnd().split("\n").at(-1) as string;
    writeFileSync(file, `${now}${last.replace(/"id":"[^"]+"/, '"id":"further"')}\n`);
    const { message, data } = await two.wire.failure("import_session", { path: file });
    expect([data.name, message]).toEqual(["session_locked", expect.stringMatching(/is writing to this session/)]);
    expect(suite.row(sessionId, "entries")).toBe("3");
    await suite.leave(one.wire, sessionId);
    expect(await two.wire.result("import_session", { path: file })).toMatchObject({ sessionId, outcome: "continued" });
    expect(suite.row(sessionId, "entries")).toBe("4");
  });

  test("an import that the fleet has not got says so, and the same again gives it", async () => {
    const { one, two, sessionFile, file: path } = await pair();
    writeFileSync(path, readFileSync(sessionFile, "utf8").replace(/"id":"[^"]+"/, '"id":"carried"'));
    const end = meddle(one.fleet, (text) =>
      text.includes("pi_fleet.entry") && !text.startsWith("select") ? AWAY : undefined,
    );
    const { message, data } = await one.wire.failure("import_session", { path });
    expect([data.name, message]).toEqual(["storage_failed", expect.stringMatching(/on this machine.*Import it again/)]);
    expect(readFileSync(data.sessionPath, "utf8")).toBe(readFileSync(path, "utf8"));
    end();
    expect(await one.wire.result("import_session", { path })).toMatchObject({ outcome: "known" });
    expect(await seenBy(two)).toContain("carried");
    meddle(one.fleet, () => AWAY);
    writeFileSync(path, readFileSync(path, "utf8").replace("carried", "second"));
    expect((await one.wire.failure("import_session", { path })).message).toMatch(/Nothing was changed. Try again/);
    expect(await seenBy(one, { here: true, query: "second" })).toEqual([]);
  });

  test("a session that another machine deleted is in the trash of each, and comes back by a part of its name", async () => {
    const [one, two] = [await suite.machine(), await suite.machine()];
    const { sessionId } = await suite.make(one, "text");
    await one.wire.result("switch_session", { sessionId });
    await one.wire.result("set_session_name", { name: "Fix the parser" });
    await suite.leave(one.wire, sessionId);
    await one.wire.result("delete_session", { sessionId });
    const deleted = { sessionId, name: "Fix the parser", firstMessage: "text", messageCount: 2 };
    const trash = ({ wire }: Machine) => wire.result("list_trash");
    expect(await trash(one)).toMatchObject({ items: [{ ...deleted, itemPath: expect.any(String) }], total: 1 });
    expect(await trash(two)).toMatchObject({ items: [{ ...deleted, itemPath: null }], total: 1, totalBytes: 0 });
    const heal = meddle(two.fleet, () => AWAY);
    expect(await trash(two)).toMatchObject({ items: [], limited: expect.stringContaining("test: away") });
    heal();
    const variables = { PI_FLEET_URL: suite.url };
    const { status, stderr } = await runHere(two.place, ["restore", "parser"], { variables });
    expect(`${status} ${stderr}`).toBe("0 ");
    expect((await trash(two)).items).toEqual([]);
    expect(await suite.read(one, { sessionId })).toContain("answer to text");
  });

  test.each(["job", "a name of two words", "jobs-1"])(
    "a file with the id '%s' is imported, whatever ids are here",
    async (id) => {
      const { one, two, sessionFile, file: path } = await pair();
      for (const newSessionId of ["jobs-10", "jobs-11"]) {
        await two.wire.result("new_session", { newSessionId });
        await two.wire.result("append", { entries: [user("other")] });
      }
      writeFileSync(path, readFileSync(sessionFile, "utf8").replace(/"id":"[^"]+"/, `"id":"${id}"`));
      expect(await two.wire.result("import_session", { path })).toMatchObject({ outcome: "new", sessionId: id });
      expect(await seenBy(one)).toContain(id);
      expect(await two.wire.result("import_session", { path })).toMatchObject({ outcome: "known" });
    },
  );

  test.each([false, true])("a copy whose lines are damaged is whole again (after a repair: %s)", async (repairs) => {
    const { one, sessionId, sessionFile: sessionPath } = await pair();
    writeFileSync(sessionPath, readFileSync(sessionPath, "utf8").replace('"answer to one"', '"answer'));
    if (repairs) await one.wire.request("repair_session", { sessionPath });
    await one.wire.result("switch_session", repairs ? { sessionPath } : { sessionId });
    if (repairs) await one.wire.request("repair_session");
    await one.wire.result("append", { entries: [user("after the damage")] });
    const texts = JSON.stringify((await one.wire.result("get_entries")).entries);
    for (const said of ['"one"', '"answer to one"']) expect(texts).toContain(said);
  });
});
