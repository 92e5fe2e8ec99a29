/** Files of this machine that are not moved, though the fleet has, had or deleted a session with their id. */

import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import type { FleetConnection } from "../../../src/modules/fleet/store.ts";
import { POWER_CUTS } from "../../support/disk.ts";
import { SESSION, userText } from "../../support/lines.ts";
import { found, line, Machine, written } from "./support/machine.ts";
import { Scene } from "./support/scene.ts";
import { entriesOf, FleetServer } from "./support/server.ts";
import { FleetTable } from "./support/table-fleet.ts";

/** The keeper, as far as an opening asks it. */
const keeperOf = (table: FleetTable): FleetConnection["adminQueries"] =>
  ({
    async row(id: string) {
      const row = table.rows.get(id);
      return row ? { ...row, id, state: row.isDeleted ? "deleted" : "there", isRemoved: false } : null;
    },
    restore: async () => false,
  }) as unknown as FleetConnection["adminQueries"];

/** A session of a machine whose server has ended, and what deletes it. */
async function made(...ids: string[]) {
  const table = new FleetTable();
  const machine = () => new FleetServer([], { table, adminQueries: keeperOf(table), leasesEnd: true });
  const one = machine();
  const { sessionId, sessionFile } = await one.make(ids);
  const remove = (): void => {
    const row = table.rows.get(sessionId);
    if (row) Object.assign(row, { isDeleted: true, epoch: row.epoch + 1 });
  };
  return { one, machine, sessionId, sessionFile, remove };
}

test("a shorter file of a deleted session with an entry of its own stays, and opens", async () => {
  const { one, machine, sessionId, sessionFile, remove } = await made("one", "two");
  appendFileSync(sessionFile, `${userText("onlyhere", "two")}\n`);
  await (await machine().takeOver(sessionId, "three", "four", "five")).end();
  remove();
  await one.start();
  await one.result("switch_session", { sessionId });
  expect([existsSync(sessionFile), (await one.ids()).includes("onlyhere")]).toEqual([true, true]);
});

test("another file with the id stays: an unrelated one, and a copy that is opened by its path", async () => {
  const { one, sessionFile } = await made("one", "two", "three");
  const whole = readFileSync(sessionFile, "utf8");
  const [header] = whole.split("\n");
  for (const [name, text] of [
    ["mine.jsonl", `${header}\n${userText("other1", null)}\n`],
    ["aaa.jsonl", whole],
    ["zzz.jsonl", whole],
  ]) {
    const second = join(dirname(sessionFile), name);
    writeFileSync(second, text);
    await one.start();
    await one.result("switch_session", { sessionPath: name === "mine.jsonl" ? sessionFile : second });
    await one.end();
    expect([name, existsSync(second), existsSync(sessionFile)]).toEqual([name, true, true]);
    rmSync(second);
  }
});

test("a long copy without its first lines comes again", async () => {
  const { one, sessionId, sessionFile } = await made(...Array.from({ length: 500 }, (_, n) => `e${n}`));
  const bytes = readFileSync(sessionFile);
  writeFileSync(sessionFile, bytes.fill(0, 0, Math.floor(bytes.length * 0.6)));
  await one.start();
  await one.result("switch_session", { sessionId });
  await one.append("next");
  expect(await one.ids()).toHaveLength(501);
});

test("a write to a session whose file is gone, and that cannot come again, has one reply", async () => {
  const { one, sessionId, sessionFile, remove } = await made("one", "two");
  await one.start();
  await one.result("switch_session", { sessionId });
  rmSync(sessionFile);
  remove();
  const mark = one.fleet.calls.length;
  expect((await one.refused("append", { entries: entriesOf("three") })).name).toBe("storage_failed");
  expect(one.fleet.calls.length - mark).toBeLessThan(20);
});

test("what another machine gave back as a branch is not reported as lost where the copy was fetched anew", async () => {
  const scene = await new Scene("jsonl").play(`
    writes 0 1 2; remembers; writes 3 4; closes; leaves; two takes 0 1 2 3 4; two closes; forgets; leaves
    three has 0 1 2; three asks; three writes 9<2; three closes; leaves; two finds; two asks; two closes; leaves`);
  scene.one.disk.remove(scene.one.file);
  await scene.one.put(scene.table.linesOf(SESSION));
  await scene.play("expires; asks; told");
});

test("after a commit that the disk refused, and a loss of power, a container gives what it owes", async () => {
  for (let at = 1, isStruck = true; isStruck; at++)
    for (const cut of [POWER_CUTS[0], POWER_CUTS[2]]) {
      const table = new FleetTable();
      const one = new Machine("v2", table, "one", { isJournaled: true });
      const log = one.create();
      await written(log, 0);
      one.fails(() => "before");
      one.outage?.begin();
      await written(log, 1);
      one.disk.set({ kind: "fail", at, errno: "EIO" });
      await written(log, 2).catch(() => {});
      isStruck = one.disk.struck;
      one.disk.set(undefined);
      table.leave();
      const later = new Machine("v2", table, "later", { disk: one.disk.after(cut), isJournaled: true });
      later.fleet.leasesEnd = true;
      const opened = await found(later.store.open(later.file));
      await opened.replica?.ready();
      expect(
        table.linesOf(SESSION).filter((text) => text === line(1)),
        `operation ${at}`,
      ).toHaveLength(1);
    }
});
