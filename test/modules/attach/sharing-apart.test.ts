/**
 * Containers on one volume that share a session: with nothing else in common, and with less (1,000 kills in soak).
 *
 * @module-tag system
 */

import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { findSqlite, type OpenDatabase } from "../../../src/storage/fs/sqlite.ts";
import { CONTAINERS, containers, inVolume, spawnContained } from "../../support/containers.ts";
import { lockFiles } from "../../support/namespaces.ts";
import { needs, SQLITE } from "../../support/needs.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { temporaryPlace } from "../../support/server.ts";
import { announced, QUIET, said, texts } from "../../support/shared-session.ts";
import { shareAtRandom } from "../../support/sharing.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";

const sqlite = findSqlite();

describe("in namespaces,", needs(CONTAINERS), () => {
  acrossTiers(describe, ["jsonl", "v2"] as const)("containers that share a session of %s", (store) => {
    test("are one tree, also where some are killed or stopped", SWEEP, () =>
      forSeedsAsync(1, async (random) => {
        const where = containers(random);
        const options = { store, where, servers: 3, bursts: 7, kills: 0.4, stops: 0.2 };
        const { acknowledged, kills } = await shareAtRandom(random, options);
        expect(acknowledged).toBeGreaterThan(10);
        expect(kills).toBeGreaterThan(0);
      }),
    );

    /** A container that holds a session, and another one that may join it. */
    async function two(other: { hostname?: string; bootId?: string }) {
      const { home: volume } = temporaryPlace();
      const name = `far.${store}`;
      const args = ["--session", inVolume(name), "--store", store, ...QUIET];
      const first = spawnContained(args, { volume, hostname: "one" });
      await first.result("append", said("first"));
      await announced(join(volume, name));
      return { volume, first, second: spawnContained(args, { volume, ...other }) };
    }

    test("join whatever their names are", async () => {
      const { first, second } = await two({ hostname: "two" });
      await second.result("append", said("second"));
      expect((await second.result("get_state")).holder).toMatchObject({ pid: 1 });
      expect(await texts(first)).toEqual(["first", "second"]);
    });

    test("join a holder, too, that took the lock while somebody looked at it", needs(SQLITE), async () => {
      const { volume, first, second } = await two({ hostname: "two" });
      first.process.kill("SIGKILL");
      await first.exit;
      const left = lockFiles(join(volume, `far.${store}`)).find((name) => name.endsWith(".lock"));
      const looking = (sqlite as OpenDatabase)(left as string, true);
      // A look takes a shared lock, and the next holder gets less than all of it.
      looking.exec("BEGIN; SELECT 1 FROM sqlite_master");
      const taken = await second.result("append", said("second"));
      looking.close();
      const { leafId, lock } = await second.result("get_state");
      expect({ leafId, lock }).toEqual({ leafId: taken.entryIds[0], lock: "sqlite" });
      const args = ["--session", inVolume(`far.${store}`), ...QUIET];
      const third = spawnContained(args, { volume, hostname: "three" });
      await third.result("append", said("third"));
      expect((await third.result("get_state")).holder).toMatchObject({ pid: 1 });
      expect(await texts(second)).toEqual(["first", "second", "third"]);
    });

    test("join nobody on another kernel, which is told as ever, nor take away what he announced", async () => {
      const { volume, first, second } = await two({ bootId: "11111111-2222-3333-4444-555555555555" });
      expect((await second.failure("append", said("no"))).data.name).toBe("session_locked");
      expect(await second.result("get_state")).toMatchObject({ lockedBy: { client: expect.any(String) } });
      expect(await texts(second)).toEqual(["first"]);
      await first.result("append", said("still"));
      expect(await announced(join(volume, `far.${store}`))).toMatchObject({ protocol: 1 });
      first.process.kill("SIGKILL");
      await first.exit;
      expect((await second.result("append", said("next"))).entryIds).toHaveLength(1);
    });
  });
});
