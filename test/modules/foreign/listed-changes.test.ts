/** The list of other agents' sessions is what a first look would find, whatever happens in their folders meanwhile. */

import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import type { Catalog, Listed } from "../../../src/core/ports/catalog.ts";
import { openAgentSessions } from "../../../src/modules/foreign/index.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { catalogOn, type Library, realEnv, temporaryLibrary, withoutSqlite } from "../../support/catalog.ts";
import { FILE_CHANGES } from "../../support/file-changes.ts";
import { randomClaudeSession } from "../../support/foreign/claude.ts";
import { randomCodexSession } from "../../support/foreign/codex.ts";
import { forSeedsAsync, type Random } from "../../support/random.ts";
import { SWEEP, UNIT } from "../../support/tiers.ts";

type Options = Parameters<typeof catalogOn>[1];

function catalogOfAgents(home: string, library: Library, options: Options): Catalog {
  const place = { disk: realDisk, env: realEnv, stateFolder: library.state, variables: { HOME: home } };
  return catalogOn(library, { ...options, files: openAgentSessions(place).listFiles(options?.watchFrom) });
}

async function listed(catalog: Catalog): Promise<readonly Listed[]> {
  return (await catalog.list({ headerOnly: true, agents: ["claude", "codex"] })).found;
}

function create(random: Random, home: string): void {
  const day = String(1 + random.int(3)).padStart(2, "0");
  const id = `${random.hex(8)}-${random.hex(4)}-4${random.hex(3)}-8${random.hex(3)}-${random.hex(12)}`;
  const claude = join(home, ".claude/projects", `-home-me-${random.pick(["a", "b"])}`);
  const subagent = join(claude, id, "subagents", `agent-${random.hex(8)}.jsonl`);
  const [file, { text }] = random.pick([
    () => [join(claude, `${id}.jsonl`), randomClaudeSession(random, 3)] as const,
    () => [subagent, randomClaudeSession(random, 3)] as const,
    () => [join(home, `.codex/sessions/2026/09/${day}/rollout-${id}.jsonl`), randomCodexSession(random, 3)] as const,
  ])();
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

async function checkChanges(random: Random, steps: number, options: Options): Promise<void> {
  const library = temporaryLibrary();
  const home = join(library.root, "..", "home");
  for (let n = 0; n < 8; n++) create(random, home);
  const catalog = catalogOfAgents(home, library, options);
  const done: string[] = [];
  expect(await listed(catalog)).toHaveLength(8);
  const chosen = { random, outside: home, create: () => create(random, home) };
  const texts = {
    text: () => randomClaudeSession(random, 2).text,
    line: () => `${randomClaudeSession(random, 1).lines.at(-1)}\n`,
  };
  for (let step = 0; step < steps; step++) {
    for (let n = random.int(3); n > 0; n--) {
      const name = random.pick(Object.keys(FILE_CHANGES));
      const agents = [".claude", ".codex"].map((agent) => join(home, agent)).filter(existsSync);
      const inside = agents.flatMap((folder) => readdirSync(folder, { recursive: true, withFileTypes: true }));
      const pathsOf = (entries: typeof inside): string[] =>
        entries.map(({ parentPath, name }) => join(parentPath, name));
      const files = pathsOf(inside.filter((entry) => entry.isFile()));
      const folders = [...agents, ...pathsOf(inside.filter((entry) => entry.isDirectory()))];
      if (files.length < 3 || folders.length === 0) create(random, home);
      else FILE_CHANGES[name]({ ...chosen, ...texts, file: random.pick(files), folder: random.pick(folders) });
      done.push(name);
    }
    const found = await listed(catalog);
    const first = catalogOfAgents(home, { ...library, state: `${library.state}-none` }, withoutSqlite);
    expect(found, done.slice(-8).join(", ")).toEqual(await listed(first));
    first.close();
  }
}

/** The ways in which the catalog learns of changes. */
const WAYS = [
  ["where every stamp is read", {}],
  ["where folders are watched", { watchFrom: 1 }],
] as const;

for (const [seeds, steps, tier] of [
  [1, 5, UNIT],
  [2, 25, SWEEP],
] as const)
  test.each(WAYS)(`random changes between ${steps} calls, %s`, tier, async (_name, options) => {
    await forSeedsAsync(seeds, (random) => checkChanges(random, steps, options));
  });
