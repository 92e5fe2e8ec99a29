/** The list is what a scan of all files gives, whatever other programs do to them between two calls. */

import {
  appendFileSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Listed } from "../../src/core/ports/catalog.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import {
  allHits,
  catalogOn,
  fingerprints,
  type Library,
  listed,
  places,
  randomLine,
  randomSession,
  randomText,
  readHits,
  readList,
  realEnv,
  sessionFiles,
  temporaryLibrary,
  withoutSqlite,
} from "../support/catalog.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

const FOLDERS = ["--home-me-a--", "--home-me-b--", "--home-me-c--"];

function create(random: Random, { root }: Library): void {
  const folder = join(root, random.pick(FOLDERS));
  mkdirSync(folder, { recursive: true });
  // Working directories and folders need not fit: names collide, and people move files.
  const session = randomSession(random, random.pick(["/home/me/a", "/home/me-a", "/home/me/b"]));
  writeFileSync(join(folder, `2026-01-24T16-22-26-831Z_${session.id}.jsonl`), session.text);
}

/** What other programs do, and people. */
const CHANGES: Record<string, (random: Random, library: Library, file: string) => void> = {
  create: (random, library) => create(random, library),
  delete: (_random, _library, file) => unlinkSync(file),
  append: (random, _library, file) => appendFileSync(file, randomLine(random, random.hex(8), null, 1.77e12)),
  "append half a line": (random, _library, file) =>
    appendFileSync(file, randomLine(random, random.hex(8), null, 1.77e12).slice(0, 50)),
  "append without line feed": (random, _library, file) =>
    appendFileSync(file, randomLine(random, random.hex(8), null, 1.77e12).trimEnd()),
  truncate: (random, _library, file) => truncateSync(file, random.int(statSync(file).size + 1)),
  "truncate and append": (random, _library, file) => {
    truncateSync(file, random.int(statSync(file).size + 1));
    for (let n = random.int(9); n > 0; n--)
      appendFileSync(file, `\n${randomLine(random, random.hex(8), null, 1.77e12)}`);
  },
  "write anew in place": (random, _library, file) => writeFileSync(file, randomSession(random, "/home/me/a").text),
  replace: (random, _library, file) => {
    writeFileSync(`${file}.tmp`, randomSession(random, "/home/me/b").text);
    renameSync(`${file}.tmp`, file);
  },
  "change a byte and keep size and times": (_random, _library, file) => {
    const { atime, mtime } = statSync(file);
    writeFileSync(file, readFileSync(file, "utf8").replace('"text":"a', '"text":"A').replace("One", "Eno"));
    utimesSync(file, atime, mtime);
  },
  "restore with an old time": (random, _library, file) => {
    copyFileSync(file, `${file}.tmp`);
    appendFileSync(`${file}.tmp`, randomLine(random, random.hex(8), null, 1.76e12));
    const { atime, mtime } = statSync(file);
    utimesSync(`${file}.tmp`, atime, mtime);
    renameSync(`${file}.tmp`, file);
  },
  touch: (random, _library, file) => utimesSync(file, random.int(2e9), random.int(2e9)),
  "rename a file": (random, _library, file) => renameSync(file, file.replace(/_[^_/]*$/, `_${random.hex(12)}.jsonl`)),
  "rename a folder": (random, { root }) => {
    const [from, to] = [join(root, random.pick(readdirSync(root))), join(root, `--moved-${random.hex(4)}--`)];
    renameSync(from, to);
  },
  "remove a folder": (random, { root }) => rmSync(join(root, random.pick(readdirSync(root))), { recursive: true }),
  "move the root away and back": (random, { root }) => {
    renameSync(root, `${root}-away`);
    if (random.chance(0.5)) renameSync(`${root}-away`, root);
    else {
      mkdirSync(root);
      for (const name of readdirSync(`${root}-away`)) renameSync(join(`${root}-away`, name), join(root, name));
      rmSync(`${root}-away`, { recursive: true });
    }
  },
  "make something that is no session": (random, { root }, file) => {
    const path = join(root, random.pick(readdirSync(root)), `other-${random.hex(4)}.jsonl`);
    writeFileSync(
      path,
      random.pick(["", "{}\n", "hello\n\n", '{"type":"message"}\n', readFileSync(file, "utf8").slice(9)]),
    );
  },
  "link to a file elsewhere and write to that": (random, { root }) => {
    const outside = join(root, "..", `outside-${random.hex(4)}.jsonl`);
    writeFileSync(outside, randomSession(random, "/home/me/c").text);
    const name = join(root, random.pick(readdirSync(root)), `link-${random.hex(4)}.jsonl`);
    if (random.chance(0.5)) symlinkSync(outside, name);
    else linkSync(outside, name);
  },
  "write to a file by another name": (random, { root }) => {
    const outside = readdirSync(join(root, "..")).filter((name) => name.startsWith("outside-"));
    if (outside.length > 0)
      appendFileSync(join(root, "..", random.pick(outside)), randomLine(random, random.hex(8), null, 1.75e12));
  },
};

function hasDamage(file: string): boolean {
  return readFileSync(file, "utf8")
    .split("\n")
    .some((line) => line.trim() !== "" && !isJson(line));
}

function isJson(line: string): boolean {
  try {
    JSON.parse(line);
    return true;
  } catch {
    return false;
  }
}

async function checkChanges(random: Random, steps: number, options: Parameters<typeof catalogOn>[1]): Promise<void> {
  const library = temporaryLibrary();
  for (let n = 0; n < 12; n++) create(random, library);
  const catalog = catalogOn(library, options);
  const done: string[] = [];
  for (let step = 0; step < steps; step++) {
    for (let n = 1 + random.int(3); n > 0; n--) {
      const files = sessionFiles(library.root);
      const name = files.length < 3 ? "create" : random.pick(Object.keys(CHANGES));
      if (readdirSync(library.root).length === 0) mkdirSync(join(library.root, FOLDERS[0]));
      CHANGES[name](random, library, files.length > 0 ? random.pick(files) : "");
      done.push(name);
    }
    const before = existsSync(library.root) ? fingerprints(library.root) : {};
    const found = await listed(catalog);
    const scanned = await listed(catalogOn({ ...library, state: `${library.state}-none` }, withoutSqlite));
    expect(found, done.slice(-6).join(", ")).toEqual(scanned);
    // What is left of a damaged line or header counts for more than JSON.parse can tell.
    const whole = ({ path, cwd, created }: Partial<Listed>): boolean =>
      !hasDamage(path as string) && (cwd !== null || created !== null);
    expect(found.filter(whole)).toEqual(readList(library.root).filter(whole));
    if (step % 4 === 0) {
      const word = random.pick(["token", "会议", "user", "r", "läuft", "zebra xy"]);
      const hits = await allHits(catalog, { query: word });
      const plain = readHits(library.root, word.split(" "));
      // Where lines are damaged, more is found than JSON.parse finds: whole entries in them are salvaged.
      const more = places(hits).filter((place) => !plain.includes(place) && !hasDamage(place.split(" ")[0]));
      expect(more, word).toEqual([]);
      expect(
        plain.filter((place) => !places(hits).includes(place)),
        `${word} after ${done.slice(-6).join(", ")}`,
      ).toEqual([]);
    }
    expect(existsSync(library.root) ? fingerprints(library.root) : {}).toEqual(before);
  }
}

test("random changes between calls: with SQLite", SYSTEM, async () => {
  await forSeedsAsync(1, (random) => checkChanges(random, 25, {}));
});

test("random changes between calls: without SQLite", SWEEP, async () => {
  await forSeedsAsync(1, (random) => checkChanges(random, 25, withoutSqlite));
});

test("random changes between calls: with folders that are watched", SWEEP, async () => {
  await forSeedsAsync(1, (random) => checkChanges(random, 25, { watchFrom: 1 }));
});

test("a known file that becomes a link is followed from then on, where folders are watched", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = temporaryLibrary();
    create(random, library);
    const [file] = sessionFiles(library.root);
    const outside = join(library.root, "..", "outside-link.jsonl");
    const catalog = catalogOn(library, { watchFrom: 1 });
    await listed(catalog);
    renameSync(file, outside);
    symlinkSync(outside, file);
    expect(await listed(catalog)).toEqual(readList(library.root));
    appendFileSync(outside, randomLine(random, random.hex(8), null, 1.75e12));
    expect(await listed(catalog)).toEqual(readList(library.root));
    catalog.close();
  });
});

test("a folder that is a link leads elsewhere from one call to the next, where folders are watched", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = temporaryLibrary();
    const [a, b, away] = ["a", "b", "away"].map((name) => join(library.root, "..", name));
    mkdirSync(library.root);
    for (const folder of [a, b]) {
      mkdirSync(folder);
      const session = randomSession(random, "/x");
      writeFileSync(join(folder, `${session.id}.jsonl`), session.text);
    }
    symlinkSync(a, join(library.root, "--x--"));
    const catalog = catalogOn(library, { watchFrom: 1 });
    for (let n = 0; n < 3; n++) expect(await listed(catalog)).toEqual(readList(library.root));
    renameSync(a, away);
    renameSync(b, a);
    expect(readList(library.root)).toHaveLength(1);
    expect(await listed(catalog)).toEqual(readList(library.root));
  });
});

test("the order is that of the conversations, whatever the times of the files are", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = temporaryLibrary();
    for (let n = 0; n < 20; n++) create(random, library);
    const catalog = catalogOn(library);
    const order = (await listed(catalog)).map(({ path }) => path);
    for (const file of sessionFiles(library.root)) utimesSync(file, random.int(1e9), random.int(1e9));
    expect((await listed(catalog)).map(({ path }) => path)).toEqual(order);
    expect((await listed(catalogOn(library))).map(({ path }) => path)).toEqual(order);
  });
});

test("a refresh after one append reads that file and no other", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = temporaryLibrary();
    for (let n = 0; n < 30; n++) create(random, library);
    const { realDisk } = await import("../../src/storage/fs/disk.ts");
    const opened: string[] = [];
    const disk = {
      ...realDisk,
      openRead(path: string) {
        if (path.endsWith(".jsonl")) opened.push(path);
        return realDisk.openRead(path);
      },
    };
    // What changed within the last moments may change again under the same time stamp, so time goes on first.
    const env = { now: () => Date.now() + 1000 };
    const { realEnv } = await import("../support/catalog.ts");
    const catalog = catalogOn(library, { disk, env: { ...realEnv, ...env } });
    await listed(catalog);
    opened.length = 0;
    await listed(catalog);
    expect(opened).toEqual([]);
    const file = random.pick(sessionFiles(library.root));
    appendFileSync(file, randomLine(random, random.hex(8), null, 1.77e12));
    await listed(catalog);
    expect(opened).toEqual([file]);
  });
});

test("what is said of random texts is found in any case and composition", SYSTEM, async () => {
  await forSeedsAsync(1, async (random) => {
    const library = temporaryLibrary();
    for (let n = 0; n < 20; n++) create(random, library);
    const catalog = catalogOn(library);
    for (let n = 0; n < 10; n++) {
      const word = randomText(random).split(/\s/)[0].slice(random.int(3), 8);
      if (word === "") continue;
      for (const query of [word, word.toUpperCase(), word.normalize("NFD")])
        expect(places(await allHits(catalog, { query, limit: 7 })), query).toEqual(readHits(library.root, [word]));
    }
  });
});

test("the stamps of many files are read once for the first list, and not again until something changes", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = temporaryLibrary();
    for (let n = 0; n < 20; n++) create(random, library);
    const looks: string[] = [];
    const disk: Disk = Object.create(realDisk);
    disk.info = (path, link) => {
      if (path.endsWith(".jsonl")) looks.push(path);
      return realDisk.info(path, link);
    };
    const catalog = catalogOn(library, { disk, watchFrom: 10, env: { ...realEnv, now: () => Date.now() + 60_000 } });
    await listed(catalog);
    expect([...looks].sort()).toEqual(sessionFiles(library.root).sort());
    looks.length = 0;
    expect(await listed(catalog)).toHaveLength(20);
    expect(looks).toEqual([]);
  });
});
