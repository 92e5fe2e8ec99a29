/** A file for a person is on the medium before it has its name, and the name before it is reported. */

import { mkdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { toBytes } from "../../../src/core/json/json.ts";
import type { Stores } from "../../../src/core/ports/stores.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { makeStores } from "../../../src/storage/stores.ts";
import { catalogOn, temporaryLibrary } from "../../support/catalog.ts";
import { FaultDisk, POWER_CUTS } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { chain, fileText, headerText } from "../../support/lines.ts";

const PIECES = ["one ", toBytes("two "), "three"];
const WHOLE = "one two three";
const BLOB = `session.jsonl.blobs/${"ab".repeat(32)}`;

type Taken = Parameters<Stores["writeOutput"]>[2];

function storesOn(disk: Disk, durability: "sync" | "os" = "sync"): Stores {
  const places = { root: "/sessions", state: "/state" };
  return makeStores({ disk, env: testEnv(), paths: places, locks: noLocks, durability, cwd: "/work", kind: "jsonl" });
}

/** A disk with a folder, a session's attachment, and a file that has the name where one is to be. */
function diskFor(taken: Taken): FaultDisk {
  const disk = new FaultDisk();
  disk.put(`/work/${BLOB}`, toBytes("media"));
  if (taken !== "refuse") disk.put("/work/out.jsonl", toBytes("before"));
  return disk.after();
}

function textAt(disk: FaultDisk, path: string): string | undefined {
  const bytes = disk.content(path);
  return bytes && Buffer.from(bytes).toString("latin1");
}

const write = (disk: Disk, taken: Taken, durability?: "sync" | "os"): Promise<string> =>
  storesOn(disk, durability).writeOutput("out.jsonl", PIECES, taken, "/work/session.jsonl");

describe.each(["refuse", "replace", "rename"] as const)("an output whose taken name is to %s", (taken) => {
  const path = taken === "rename" ? "/work/out-2.jsonl" : "/work/out.jsonl";

  test("is there whole after a loss of power, with its attachments", async () => {
    const disk = diskFor(taken);
    disk.set(undefined);
    expect(await write(disk, taken)).toBe(path);
    for (const cut of POWER_CUTS) {
      const next = disk.after(cut);
      expect([textAt(next, path), textAt(next, `${path}.blobs/${basename(BLOB)}`)]).toEqual([WHOLE, "media"]);
    }
  });

  test("is whole or what was there before, wherever it is interrupted", async () => {
    const whole = diskFor(taken);
    whole.set(undefined);
    await write(whole, taken);
    const before = taken === "replace" ? "before" : undefined;
    for (let at = 1; at <= whole.operations.length; at++)
      for (const kind of ["die", "fail"] as const) {
        const disk = diskFor(taken);
        disk.set(kind === "die" ? { kind, at } : { kind, at, errno: "EIO" });
        const result = await write(disk, taken).catch(() => undefined);
        for (const cut of [undefined, ...POWER_CUTS]) {
          const found = textAt(disk.after(cut), path);
          expect([before, WHOLE], `${kind} at ${at}, ${JSON.stringify(cut)}`).toContain(found);
          if (result !== undefined) expect(found).toBe(WHOLE);
        }
        if (taken === "rename") expect(textAt(disk, "/work/out.jsonl")).toBe("before");
        expect(disk.openCount).toBe(0);
      }
  });

  test("waits for no medium where nothing else does", async () => {
    const disk = diskFor(taken);
    disk.remove(`/work/${BLOB}`);
    disk.set(undefined);
    await write(disk, taken, "os");
    expect(disk.operations.filter((operation) => operation.startsWith("sync"))).toEqual([]);
  });
});

test.each([true, false])("an index is on the medium before it has its name, where wanted (%s)", async (isDurable) => {
  const library = temporaryLibrary();
  const folder = join(library.root, "--p--");
  const out = join(library.root, "..", "out", "index.sqlite");
  for (const path of [folder, dirname(out)]) mkdirSync(path, { recursive: true });
  writeFileSync(join(folder, "one.jsonl"), fileText(headerText(), ...chain(2)));
  const done: string[] = [];
  const opened = new Set<number>();
  const naming =
    (act: (from: string, to: string) => void) =>
    (from: string, to: string): void => {
      act(from, to);
      if (to === out) done.push("name");
    };
  const disk: Disk = {
    ...realDisk,
    // SQLite has written it, so it is opened again for that.
    openAppend(path) {
      const fd = realDisk.openAppend(path);
      opened.add(fd);
      return fd;
    },
    async sync(fd) {
      await realDisk.sync(fd);
      if (opened.has(fd)) done.push("sync");
    },
    async syncFolder(path) {
      await realDisk.syncFolder(path);
      if (out.startsWith(path)) done.push("sync folder");
    },
    link: naming(realDisk.link),
    rename: naming(realDisk.rename),
  };
  const catalog = catalogOn(library, { disk, isDurable });
  for (const what of ["new", "again"]) {
    done.length = 0;
    opened.clear();
    expect(await catalog.exportIndex(out), what).toBe(1);
    expect(done, what).toEqual(isDurable ? ["sync", "name", "sync folder"] : ["name"]);
  }
});
