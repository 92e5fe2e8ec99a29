/** S: kills, ends, loss of power. */

import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import { PROGRAM } from "../../support/build.ts";
import { call, cases, idsIn, linesIn, sessionFile } from "../../support/cases.ts";
import { FaultDisk, POWER_CUTS } from "../../support/disk.ts";
import { user } from "../../support/drafts.ts";
import { expectGone } from "../../support/ends.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import { type LockTable, locksOf } from "../../support/locks.ts";
import { killRuns } from "../../support/proof-kill.ts";
import { Random } from "../../support/random.ts";
import { type Json, programEnvironment, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";
import { beginning, diskWith, FILE, FOLDER, idsOf, jsonlOn, openOn } from "../../support/sessions.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";

const QUIET = ["--events", "none"];

function draft(n: number): { type: string; id: string; rest: Uint8Array } {
  return { type: "message", id: id(n), rest: Buffer.from(`,"message":{"role":"user","content":"say ${id(n)}"}`) };
}

cases("S", [
  {
    id: "S1",
    fault: "SIGKILL at any time (10,100 kills in soak)",
    options: SWEEP,
    async run() {
      const runs = await killRuns(new Random(101), 2);
      expect(runs.filter(({ answered, recovered }) => answered > recovered)).toEqual([]);
    },
  },
  {
    id: "S2",
    fault: "death at every operation of an append, a seal, a publication",
    async run() {
      const torn = `${fileText(headerText(), ...chain(3))}{"type":"mess`;
      const old = fileText(headerText({ version: 2 }), ...chain(3));
      for (const content of [fileText(headerText(), ...chain(3)), torn, old])
        for (let at = 1; ; at++) {
          const disk = diskWith(content);
          const session = openOn(disk);
          const acknowledged = [0, 1, 2];
          disk.set({ kind: "die", at });
          try {
            for (const n of [3, 4]) {
              session.append([draft(n)]);
              await session.commit();
              acknowledged.push(n);
            }
          } catch {
            // The machine is off.
          }
          const recovered = idsOf(openOn(disk.after()).log);
          expect(recovered.slice(0, acknowledged.length), `died at ${at}`).toEqual(acknowledged.map((n) => id(n)));
          if (!disk.struck) break;
        }
    },
  },
  {
    id: "S3",
    fault: "loss of power: what was not synced is gone, or zeros",
    async run() {
      for (const cut of POWER_CUTS)
        for (const synced of [true, false]) {
          const disk = diskWith(fileText(headerText(), ...chain(3)));
          const session = openOn(disk);
          session.append([draft(3)]);
          if (synced) await session.commit();
          const recovered = openOn(disk.after(cut));
          const ids = idsOf(recovered.log);
          expect(ids.slice(0, 3)).toEqual([id(0), id(1), id(2)]);
          if (synced) expect(ids).toHaveLength(4);
          recovered.append([draft(9)]);
          await recovered.commit();
          expect(idsOf(openOn(disk.after(cut)).log).slice(0, 3)).toEqual([id(0), id(1), id(2)]);
        }
    },
  },
  {
    id: "S5",
    fault: "the end of input and SIGTERM together; SIGTERM in a write; a second signal",
    options: SYSTEM,
    async run() {
      const server = spawnServer(QUIET);
      await server.result("append", { entries: [user("a", { id: "a" })] });
      const { sessionFile } = await server.result("get_state");
      const texts = Array.from({ length: 200 }, (_, n) => `n${n}`);
      server.send(...texts.map((name) => call(name, "append", { entries: [user(name, { id: name })] })));
      // One write arrives as one: with the first answer all of it was received.
      const first = await server.next();
      server.end();
      server.process.kill("SIGTERM");
      const replies = [first, ...(await server.rest())];
      expect(replies.map(({ result }) => result.leafId)).toEqual(texts);
      expect([await server.exit, server.stderr]).toEqual([0, ""]);
      expect(
        linesIn(sessionFile)
          .slice(2)
          .map((line) => JSON.parse(line).id),
      ).toEqual(texts);

      const stalled = spawnServer(["--no-session", ...QUIET]);
      await stalled.result("append", { entries: [user("x".repeat(1 << 20))] });
      stalled.stall();
      stalled.send(...texts.slice(0, 20).map((name) => call(name, "get_entries")));
      await new Promise((resolve) => stalled.output.once("readable", resolve));
      stalled.process.kill("SIGTERM");
      stalled.process.kill("SIGINT");
      expect(await new Promise((resolve) => stalled.process.once("exit", resolve))).toBe(1);
    },
  },
  {
    id: "S6",
    fault: "stdout closed in the middle of a reply",
    options: SYSTEM,
    async run() {
      const { server, place, file } = fileAndServer();
      await server.result("get_state");
      server.output.destroy();
      server.send(
        ...Array.from({ length: 50 }, (_, n) => call(n, "append", { entries: [user(`n${n}`, { id: `n${n}` })] })),
      );
      const status = await new Promise((resolve) => server.process.once("exit", resolve));
      expect(status).toBe(1);
      expect(server.stderr).not.toMatch(/\n +at /);
      const reader = serveHere(["--session", file, ...QUIET], { place });
      const ids = await idsIn(reader);
      expect(ids.slice(2)).toEqual(Array.from({ length: ids.length - 2 }, (_, n) => `n${n}`));
      expect((await reader.result("verify_session")).ok).toBe(true);
    },
  },
  {
    id: "S7",
    fault: "a host that is killed",
    options: SYSTEM,
    async run() {
      const place = temporaryPlace();
      const file = sessionFile(place, chain(2));
      const append = JSON.stringify(call(1, "append", { entries: [user("last", { id: "last" })] }));
      // The host tells the pid of its server and then waits for ever.
      const host = spawn(
        process.execPath,
        [
          "-e",
          `const child = require("node:child_process").spawn(process.execPath, ${JSON.stringify([PROGRAM, "--session", file, ...QUIET])});
           child.stdout.once("data", () => console.log(child.pid));
           child.stdin.write(${JSON.stringify(`${append}\n`)});`,
        ],
        { cwd: place.cwd, env: programEnvironment(place), stdio: ["pipe", "pipe", "inherit"] },
      );
      const pid = Number(await new Promise((resolve) => host.stdout.once("data", resolve)));
      host.kill("SIGKILL");
      await expectGone(pid, "the death of its host");
      expect(JSON.parse(linesIn(file).at(-1) as string).id).toBe("last");
    },
  },
  {
    id: "S13",
    fault: "an old backup put back over a newer file",
    async run() {
      const place = temporaryPlace();
      const folder = join(place.home, "sessions");
      mkdirSync(folder);
      const file = sessionFile({ ...place, cwd: folder }, chain(2));
      copyFileSync(file, `${file}.backup`);
      const server = serveHere(["--session-dir", folder, "--session", file], { place });
      await server.result("append", { entries: [user("newer")] });
      const count = async (): Promise<number> => (await server.result("list_sessions")).sessions[0].messageCount;
      expect(await count()).toBe(3);
      copyFileSync(`${file}.backup`, file);
      expect(await count()).toBe(2);
      await server.result("append", { entries: [user("after")] });
      expect((await server.result("get_state")).entryCount).toBe(3);
      const told = server.events.filter(({ method }: Json) => method === "session_damage");
      expect(told.flatMap(({ params }: Json) => params.damage.map(({ kind }: Json) => kind))).toEqual(["lost_entries"]);
    },
  },
  {
    id: "S14",
    fault: "death before a sync, then a process that goes on, then loss of power",
    async run() {
      const disk = new FaultDisk();
      disk.put(`${FOLDER}/x`, bytesOf(""));
      const dead = jsonlOn(disk).create(beginning(headerText(), FILE));
      dead.append([bytesOf(userText(id(0), null))]);
      const left = disk.afterDeath();
      const session = openOn(left);
      session.append([draft(1)]);
      await session.commit();
      for (const cut of POWER_CUTS) expect(idsOf(openOn(left.after(cut)).log)).toEqual([id(0), id(1)]);
    },
  },
  {
    id: "S15",
    fault: "a key that a process has written which has not answered, or never will",
    async run() {
      const disk = diskWith(fileText(headerText(), ...chain(3)));
      const params = { entries: [user("asked twice", { id: "asked" })], idempotencyKey: "k" };
      const table: LockTable = new Map();
      const serving = (client: string) =>
        serveHere(["--attach", "off", "--session", FILE, ...QUIET], { disk, locks: locksOf(client, table) });
      // As one does that waits for the medium when it is killed.
      const silent = serving("one");
      let reached = (): void => {};
      const waits = new Promise<void>((resolve) => {
        reached = resolve;
      });
      const { sync } = disk;
      let answer = (): void => {};
      disk.sync = () => {
        reached();
        return new Promise((resolve) => {
          answer = resolve;
        });
      };
      silent.send(call(1, "append", params));
      await waits;
      disk.sync = sync;
      const next = serving("the next");
      expect((await next.failure("append", params)).data.name).toBe("session_locked");
      table.clear();
      expect((await next.result("append", params)).entryIds).toEqual(["asked"]);
      for (const cut of POWER_CUTS) expect(idsOf(openOn(disk.after(cut)).log)).toContain("asked");
      answer();
    },
  },
]);

function fileAndServer(): { server: ReturnType<typeof spawnServer>; file: string; place: Json } {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(2));
  return { server: spawnServer(["--session", file, ...QUIET], "lines", place), file, place };
}
