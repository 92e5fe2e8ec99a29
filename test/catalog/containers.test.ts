/** Session Store V2 containers are listed, searched and in families as session files are. */

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { toBytes } from "../../src/core/json/json.ts";
import type { Hit, Listed } from "../../src/core/ports/catalog.ts";
import type { Log } from "../../src/core/ports/store.ts";
import {
  allHits,
  catalogOn,
  containersIn,
  fingerprints,
  listed,
  randomLine,
  randomSession,
  temporaryLibrary,
  withoutSqlite,
} from "../support/catalog.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../support/tiers.ts";

/** The same sessions as files in one library and as containers in another. */
class Twins {
  readonly files = temporaryLibrary();
  readonly containers = temporaryLibrary();
  readonly logs: { log: Log; file: string; last: string | null }[] = [];

  async add(random: Random, more: object = {}): Promise<string> {
    const cwd = `/home/me/${random.int(2)}`;
    const { id, text, last } = randomSession(random, cwd, more);
    const [headerLine, ...lines] = text.trimEnd().split("\n");
    const folder = `--home-me-${random.int(2)}--`;
    mkdirSync(join(this.files.root, folder), { recursive: true });
    const file = join(this.files.root, folder, `2026-01-24T16-22-26-831Z_${id}.jsonl`);
    writeFileSync(file, text);
    const container = join(this.containers.root, folder, `${id}.v2`);
    const beginning = { headerLine: toBytes(headerLine), header: JSON.parse(headerLine), file: container };
    const body = toBytes(lines.map((line) => `${line}\n`).join(""));
    const log = await containersIn(this.containers).publish(beginning, [body]);
    this.logs.push({ log, file, last });
    return id;
  }

  async append(random: Random): Promise<void> {
    const twin = random.pick(this.logs);
    const id = random.hex(8);
    const line = randomLine(random, id, twin.last, 1.77e12);
    writeFileSync(twin.file, line, { flag: "a" });
    twin.log.append([toBytes(line.trimEnd())]);
    twin.last = id;
    await twin.log.commit();
  }
}

/** A test with so many sessions as twins. */
function withTwins(
  name: string,
  count: number,
  run: (twins: Twins, random: Random, ids: string[]) => Promise<void>,
): void {
  test(name, () =>
    forSeedsAsync(1, async (random) => {
      const twins = new Twins();
      const ids: string[] = [];
      while (ids.length < count) ids.push(await twins.add(random));
      await run(twins, random, ids);
    }),
  );
}

/** The members of an item that do not depend on the store. */
const portable = ({ path: _path, sizeBytes: _size, store: _store, ...rest }: Listed): object => rest;
const sorted = (list: readonly Listed[]): string[] => list.map((one) => JSON.stringify(portable(one))).sort();
const found = (hits: readonly Hit[]): string[] => {
  const names = ["sessionId", "entryId", "role", "snippet", "onActivePath", "part", "tool", "line", "at"] as const;
  return hits.map((hit) => names.map((name) => hit[name]).join(" ")).sort();
};

for (const [name, options, steps, tier] of [
  ["with SQLite", {}, 2, SYSTEM],
  ["with SQLite, for longer", {}, 4, SWEEP],
  ["without SQLite", withoutSqlite, 4, SWEEP],
  ["with folders that are watched", { watchFrom: 1 }, 4, SWEEP],
] as const)
  test(`they tell what session files of the same entries tell: ${name}`, tier, async () => {
    await forSeedsAsync(1, async (random) => {
      const twins = new Twins();
      for (let n = 0; n <= steps; n++) await twins.add(random);
      const [files, containers] = [catalogOn(twins.files, options), catalogOn(twins.containers, options)];
      for (let step = 0; step < steps; step++) {
        const before = fingerprints(twins.containers.root);
        const list = await listed(containers);
        expect(sorted(list)).toEqual(sorted(await listed(files)));
        expect(list.length).toBe(twins.logs.length);
        for (const { path, sizeBytes } of list) {
          expect(path).toMatch(/\.v2$/);
          expect(sizeBytes).toBeGreaterThan(100);
        }
        for (const request of [
          ...["token", "会议", "er"].flatMap((query) => [false, true].map((toolResults) => ({ query, toolResults }))),
          { query: "cache", parts: ["toolCall", "assistant"] as const },
          { query: "", tools: ["bash", "edit"] },
          { query: "", file: "store.ts" },
        ])
          expect(found(await allHits(containers, request))).toEqual(found(await allHits(files, request)));
        expect(fingerprints(twins.containers.root)).toEqual(before);
        for (let n = random.int(4); n > 0; n--) await twins.append(random);
        if (random.chance(0.3)) await twins.add(random);
      }
      // Another process finds in the catalog what this one found.
      expect(sorted(await listed(catalogOn(twins.containers, options)))).toEqual(sorted(await listed(files)));
    });
  });

acrossTiers(describe, [
  { how: "by their stamps", options: {} },
  { how: "watched", options: { watchFrom: 1 } },
])("folders are read ($how)", ({ options }) => {
  const folderOf = ({ containers: { root } }: Twins): string => join(root, readdirSync(root)[0]);

  withTwins("what is no session is not listed", 1, async (twins) => {
    const folder = folderOf(twins);
    for (const stray of ["2026_01991f6e.v2", "01991f6e.v2.staging.0a1b", ".hidden.v2"]) {
      mkdirSync(join(folder, stray, "segments"), { recursive: true });
      writeFileSync(join(folder, stray, "segments", "0000000000000001.seg"), "");
      writeFileSync(join(folder, stray, "manifest.json"), "{}");
    }
    writeFileSync(join(folder, "file.v2"), "");
    writeFileSync(join(folder, "lone.store.json"), "{}");
    expect(await listed(catalogOn(twins.containers, options))).toHaveLength(1);
  });

  acrossTiers<{ what: string; remove: (path: string) => void }>(test, [
    { what: "container", remove: (path) => rmSync(path, { recursive: true }) },
    { what: "header", remove: (path) => rmSync(join(path, "header.jsonl")) },
    {
      // Without its pointer it still is the session; one that was rolled back is not.
      what: "pointer's store",
      remove(path) {
        const pointer = path.replace(/\.v2$/, ".store.json");
        writeFileSync(pointer, readFileSync(pointer, "utf8").replace("native_v2", "jsonl_v3"));
      },
    },
    { what: "folder", remove: (path) => rmSync(dirname(path), { recursive: true }) },
  ])("what went away by hand is gone: the $what", async ({ what, remove }) => {
    await forSeedsAsync(1, async (random) => {
      const twins = new Twins();
      for (let n = 0; n < 2; n++) await twins.add(random);
      const catalog = catalogOn(twins.containers, options);
      const paths = (list: Listed[]): string[] => list.map(({ path }) => path).sort();
      const all = twins.logs.map(({ log }) => log.file as string).sort();
      expect(paths(await listed(catalog))).toEqual(all);
      const path = all[random.int(all.length)];
      remove(path);
      const left = all.filter((other) => other !== path && (what !== "folder" || dirname(other) !== dirname(path)));
      expect(paths(await listed(catalog))).toEqual(left);
      expect(paths(await listed(catalogOn(twins.containers)))).toEqual(left);
    });
  });
});

withTwins("forks of files and containers are of one family", 1, async (twins, random, [parent]) => {
  const parentSession = twins.logs[0].log.file as string;
  // A session file that was forked from the container, and a container forked from a session file that moved into it.
  const child = randomSession(random, "/home/me/0", { parentSession });
  writeFileSync(join(dirname(parentSession), `2026-01-24T16-22-26-831Z_${child.id}.jsonl`), child.text);
  const other = await twins.add(random, { parentSession: `/gone/2026-01-24T16-22-26-831Z_${parent}.jsonl` });
  const catalog = catalogOn(twins.containers);
  for (const id of [parent, child.id, other]) {
    const { root, nodes } = await catalog.family({ id });
    expect(root).toBe(parent);
    expect(nodes.map((node) => node.id).sort()).toEqual([parent, child.id, other].sort());
  }
  const { found } = await catalog.list({ parent: parentSession, headerOnly: true });
  expect(found.map(({ id }) => id).sort()).toEqual([child.id, other].sort());
});
