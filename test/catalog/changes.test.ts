/** The list is what a scan of all files gives, whatever other programs do to them between two calls. */

import * as fs from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Listed } from "../../src/core/ports/catalog.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import {
  allHits,
  catalogOn,
  fingerprints,
  type Library,
  later,
  listed,
  places,
  putRandomSession,
  randomLine,
  randomSession,
  readHits,
  readList,
  sessionFiles,
  temporaryLibrary,
  withLibrary,
  withoutSqlite,
} from "../support/catalog.ts";
import { FILE_CHANGES } from "../support/file-changes.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

const FOLDERS = ["--home-me-a--", "--home-me-b--", "--home-me-c--"];

/** Working directories and folders need not fit: names collide, and people move files. */
function create(random: Random, { root }: Library): void {
  putRandomSession(random, join(root, random.pick(FOLDERS)), random.pick(["/home/me/a", "/home/me-a", "/home/me/b"]));
}

function hasDamage(file: string): boolean {
  return fs
    .readFileSync(file, "utf8")
    .split("\n")
    .some((line) => {
      try {
        return line.trim() !== "" && JSON.parse(line) === undefined;
      } catch {
        return true;
      }
    });
}

async function checkChanges(random: Random, steps: number, options: Parameters<typeof catalogOn>[1]): Promise<void> {
  const library = temporaryLibrary();
  const { root } = library;
  for (let n = 0; n < 12; n++) create(random, library);
  const catalog = catalogOn(library, options);
  const done: string[] = [];
  const chosen = {
    ...{ random, outside: join(root, ".."), create: () => create(random, library) },
    text: () => randomSession(random, random.pick(["/home/me/a", "/home/me/b"])).text,
    line: () => randomLine(random, random.hex(8), null, random.pick([1.75e12, 1.76e12, 1.77e12])),
  };
  for (let step = 0; step < steps; step++) {
    for (let n = 1 + random.int(3); n > 0; n--) {
      const files = sessionFiles(root);
      const name = files.length < 3 ? "create" : random.pick(Object.keys(FILE_CHANGES));
      if (fs.readdirSync(root).length === 0) fs.mkdirSync(join(root, FOLDERS[0]));
      const folder = random.chance(0.1) ? root : join(root, random.pick(fs.readdirSync(root)));
      FILE_CHANGES[name]({ ...chosen, folder, file: files.length > 0 ? random.pick(files) : "" });
      done.push(name);
      fs.mkdirSync(root, { recursive: true });
    }
    const before = fingerprints(root);
    const found = await listed(catalog);
    const scanned = await listed(catalogOn({ ...library, state: `${library.state}-none` }, withoutSqlite));
    expect(found, done.slice(-6).join(", ")).toEqual(scanned);
    // The rest of a damaged line or header counts for more than JSON.parse can see.
    const whole = ({ path, cwd, created }: Partial<Listed>): boolean =>
      !hasDamage(path as string) && (cwd !== null || created !== null);
    expect(found.filter(whole)).toEqual(readList(library.root).filter(whole));
    if (step % 4 === 0) {
      const word = random.pick(["token", "会议", "user", "r", "läuft", "zebra xy"]);
      const hits = await allHits(catalog, { query: word });
      const plain = readHits(library.root, word.split(" "));
      // In damaged lines more is found than JSON.parse finds: whole entries in them are salvaged.
      const more = places(hits).filter((place) => !plain.includes(place) && !hasDamage(place.split(" ")[0]));
      expect(more, word).toEqual([]);
      expect(
        plain.filter((place) => !places(hits).includes(place)),
        `${word} after ${done.slice(-6).join(", ")}`,
      ).toEqual([]);
    }
    expect(fingerprints(root)).toEqual(before);
  }
}

for (const [how, options, tier] of [
  ["with SQLite", {}, SYSTEM],
  ["without SQLite", withoutSqlite, SWEEP],
  ["with folders that are watched", { watchFrom: 1 }, SWEEP],
] as const)
  test(`random changes between calls: ${how}`, tier, async () => {
    await forSeedsAsync(1, (random) => checkChanges(random, 25, options));
  });

withLibrary(
  "a known file that becomes a link is followed, where folders are watched",
  { sessions: 1 },
  async (library, random) => {
    const [file] = sessionFiles(library.root);
    const outside = join(library.root, "..", "outside-link.jsonl");
    const catalog = catalogOn(library, { watchFrom: 1 });
    await listed(catalog);
    fs.renameSync(file, outside);
    fs.symlinkSync(outside, file);
    expect(await listed(catalog)).toEqual(readList(library.root));
    fs.appendFileSync(outside, randomLine(random, random.hex(8), null, 1.75e12));
    expect(await listed(catalog)).toEqual(readList(library.root));
  },
);

withLibrary(
  "a folder that is a link leads elsewhere at the next call, where folders are watched",
  { sessions: 0 },
  async ({ root, state }, random) => {
    const [a, b, away] = ["a", "b", "away"].map((name) => join(root, "..", name));
    fs.mkdirSync(root);
    for (const folder of [a, b]) putRandomSession(random, folder, "/x");
    fs.symlinkSync(a, join(root, "--x--"));
    const catalog = catalogOn({ root, state }, { watchFrom: 1 });
    for (let n = 0; n < 3; n++) expect(await listed(catalog)).toEqual(readList(root));
    fs.renameSync(a, away);
    fs.renameSync(b, a);
    expect(readList(root)).toHaveLength(1);
    expect(await listed(catalog)).toEqual(readList(root));
  },
);

withLibrary("a refresh after one append reads that file and no other", { sessions: 30 }, async (library, random) => {
  const opened: string[] = [];
  const openRead = (path: string): number => {
    if (path.endsWith(".jsonl")) opened.push(path);
    return realDisk.openRead(path);
  };
  const catalog = catalogOn(library, { disk: { ...realDisk, openRead }, env: later });
  await listed(catalog);
  opened.length = 0;
  await listed(catalog);
  expect(opened).toEqual([]);
  const file = random.pick(sessionFiles(library.root));
  fs.appendFileSync(file, randomLine(random, random.hex(8), null, 1.77e12));
  await listed(catalog);
  expect(opened).toEqual([file]);
});

withLibrary(
  "the stamps of many files are not read once their folders are watched, until something changes",
  { sessions: 20 },
  async (library) => {
    const looks: string[] = [];
    const info = (path: string, link?: boolean) => {
      if (path.endsWith(".jsonl")) looks.push(path);
      return realDisk.info(path, link);
    };
    const disk = Object.assign(Object.create(realDisk), { info });
    const catalog = catalogOn(library, { disk, watchFrom: 10, env: later });
    await listed(catalog);
    expect([...looks].sort()).toEqual(sessionFiles(library.root).sort());
    // The watches begin with this one.
    await listed(catalog);
    looks.length = 0;
    expect(await listed(catalog)).toHaveLength(20);
    expect(looks).toEqual([]);
  },
);
