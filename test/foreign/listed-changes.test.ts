/** The list of other agents' sessions is what a first look would find, whatever happens in their folders meanwhile. */

import {
  appendFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import type { Catalog, Listed } from "../../src/core/ports/catalog.ts";
import { agentPlaces } from "../../src/storage/foreign/places.ts";
import { foreignStore } from "../../src/storage/foreign/store.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { catalogOn, type Library, realEnv, temporaryLibrary, withoutSqlite } from "../support/catalog.ts";
import { randomClaudeSession } from "../support/foreign/claude.ts";
import { randomCodexSession } from "../support/foreign/codex.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { SWEEP } from "../support/tiers.ts";

interface Home extends Library {
  readonly home: string;
}

function catalogOfAgents({ home, ...library }: Home, options: Parameters<typeof catalogOn>[1]): Catalog {
  const store = foreignStore(realDisk, realEnv, library.state);
  return catalogOn(library, { ...options, agents: { places: agentPlaces({ HOME: home }), store } });
}

async function listed(catalog: Catalog): Promise<readonly Listed[]> {
  return (await catalog.list({ headerOnly: true, agents: ["claude", "codex"] })).found;
}

/** Returns what is below a folder. */
function within(folder: string, wanted: "file" | "folder"): string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => (wanted === "file" ? entry.isFile() : entry.isDirectory()))
    .map((entry) => join(entry.parentPath, entry.name));
}

function create(random: Random, { home }: Home): void {
  const day = String(1 + random.int(3)).padStart(2, "0");
  const id = `${random.hex(8)}-${random.hex(4)}-4${random.hex(3)}-8${random.hex(3)}-${random.hex(12)}`;
  const claude = join(home, ".claude/projects", `-home-me-${random.pick(["a", "b"])}`);
  const [file, { lines }] = random.pick([
    () => [join(claude, `${id}.jsonl`), randomClaudeSession(random, 3)] as const,
    () => [join(claude, id, "subagents", `agent-${random.hex(8)}.jsonl`), randomClaudeSession(random, 3)] as const,
    () => [join(home, `.codex/sessions/2026/09/${day}/rollout-${id}.jsonl`), randomCodexSession(random, 3)] as const,
  ])();
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${lines.join("\n")}\n`);
}

const CHANGES: Record<string, (random: Random, home: Home, file: string, folder: string) => void> = {
  create: (random, home) => create(random, home),
  "create a folder": (random, _home, _file, folder) => mkdirSync(join(folder, random.hex(4))),
  delete: (_random, _home, file) => unlinkSync(file),
  append: (random, _home, file) => appendFileSync(file, `${randomClaudeSession(random, 1).lines.at(-1)}\n`),
  truncate: (random, _home, file) => truncateSync(file, random.int(statSync(file).size + 1)),
  "write anew and keep size and times": (_random, _home, file) => {
    const { atime, mtime, size } = statSync(file);
    writeFileSync(file, "x".repeat(size));
    utimesSync(file, atime, mtime);
  },
  replace: (random, _home, file) => {
    writeFileSync(`${file}.tmp`, `${randomClaudeSession(random, 2).lines.join("\n")}\n`);
    renameSync(`${file}.tmp`, file);
  },
  "rename a file": (random, _home, file) => renameSync(file, join(dirname(file), `${random.hex(8)}.jsonl`)),
  "rename a folder": (random, _home, _file, folder) => renameSync(folder, join(dirname(folder), random.hex(6))),
  "put another folder in its place": (random, home, _file, folder) => {
    renameSync(folder, `${folder}-away-${random.hex(4)}`);
    mkdirSync(folder);
    create(random, home);
  },
  "remove a folder": (_random, _home, _file, folder) => rmSync(folder, { recursive: true }),
  "a link in the place of a folder": (random, { home }, _file, folder) => {
    const away = join(home, `away-${random.hex(6)}`);
    renameSync(folder, away);
    symlinkSync(away, folder);
  },
  "a file that has another name elsewhere": (random, { home }, file) => {
    const other = join(home, `other-${random.hex(6)}.jsonl`);
    writeFileSync(other, `${randomClaudeSession(random, 2).lines.join("\n")}\n`);
    linkSync(other, join(dirname(file), `linked-${random.hex(4)}.jsonl`));
  },
  "write to one by its other name": (random, { home }) => {
    const others = readdirSync(home).filter((name) => name.startsWith("other-"));
    if (others.length > 0)
      appendFileSync(join(home, random.pick(others)), `${randomClaudeSession(random, 1).lines.at(-1)}\n`);
  },
};

async function checkChanges(random: Random, steps: number, options: Parameters<typeof catalogOn>[1]): Promise<void> {
  const library = temporaryLibrary();
  const home: Home = { ...library, home: join(library.root, "..", "home") };
  for (let n = 0; n < 8; n++) create(random, home);
  const catalog = catalogOfAgents(home, options);
  const done: string[] = [];
  expect(await listed(catalog)).toHaveLength(8);
  for (let step = 0; step < steps; step++) {
    for (let n = random.int(3); n > 0; n--) {
      const name = random.pick(Object.keys(CHANGES));
      const [claude, codex] = [join(home.home, ".claude"), join(home.home, ".codex")];
      const files = [...within(claude, "file"), ...within(codex, "file")];
      const folders = [claude, codex, ...within(claude, "folder"), ...within(codex, "folder")].filter(existsSync);
      if (files.length < 3 || folders.length === 0) create(random, home);
      else CHANGES[name](random, home, random.pick(files), random.pick(folders));
      done.push(name);
    }
    const found = await listed(catalog);
    const first = catalogOfAgents({ ...home, state: `${library.state}-none` }, withoutSqlite);
    expect(found, done.slice(-8).join(", ")).toEqual(await listed(first));
    first.close();
  }
}

/** How the catalog learns of changes, and how many there are. */
const WAYS = [
  ["where every stamp is read", {}],
  ["where folders are watched", { watchFrom: 1 }],
] as const;

test.each(WAYS)("random changes between calls, %s", async (_name, options) => {
  await forSeedsAsync(1, (random) => checkChanges(random, 5, options));
});

test.each(WAYS)("many random changes between calls, %s", SWEEP, async (_name, options) => {
  await forSeedsAsync(2, (random) => checkChanges(random, 25, options));
});
