/** Sessions whose migration, rollback or first append was cut off by the death of its process, at every disk operation. */

import { expect } from "vitest";
import { decodeText, toBytes } from "../../src/core/json/json.ts";
import { getPointerFile } from "../../src/storage/fs/container-paths.ts";
import { makeJsonlStore } from "../../src/storage/jsonl/store.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { migrate } from "../../src/storage/v2/migration.ts";
import type { MigrationOptions } from "../../src/storage/v2/migration-steps.ts";
import { rollBack } from "../../src/storage/v2/rollback.ts";
import { makeSegmentedStore } from "../../src/storage/v2/store.ts";
import { CHANGES, FaultDisk } from "./disk.ts";
import { user } from "./drafts.ts";
import { testEnv } from "./env.ts";
import { chain, fileText, headerText, id, SESSION, userText } from "./lines.ts";
import { share } from "./random.ts";
import { type HereServer, type Json, serveHere } from "./server.ts";

export const FOLDER = "/home/me/sessions";
export const FILE = `${FOLDER}/2026-01-24T16-22-26-831Z_${SESSION}.jsonl`;
export const CONTAINER = `${FOLDER}/${SESSION}.v2`;
export const SNAPSHOT = `${FILE}.migrated`;
export const TEXT = fileText(headerText(), ...chain(2));

function storesOn(disk: FaultDisk) {
  const env = testEnv();
  const common = { disk, env, locks: noLocks, durability: "sync", quarantine: "/state/quarantine" } as const;
  const containers = makeSegmentedStore({ ...common, containerFor: () => CONTAINER });
  return { env, files: makeJsonlStore({ ...common, fileFor: () => FILE }), containers };
}

export function optionsOn(disk: FaultDisk): MigrationOptions {
  const { env, files, containers } = storesOn(disk);
  return {
    disk,
    env,
    locks: noLocks,
    openFile: (file, readOnly) => files.open(file, readOnly),
    openContainer: (container, readOnly) => containers.open(container, readOnly),
    fileFor: () => FILE,
  };
}

function fileDisk(): FaultDisk {
  const disk = new FaultDisk();
  disk.put(FILE, toBytes(TEXT));
  return disk;
}

export async function migratedDisk(...later: string[]): Promise<FaultDisk> {
  const disk = fileDisk();
  await migrate(optionsOn(disk), FILE);
  if (later.length > 0) {
    const log = optionsOn(disk).openContainer(CONTAINER);
    log.append(later.map(toBytes));
    await log.commit();
    log.close();
  }
  return disk.after();
}

/** A disk with the first entries of a session that begins in V2, durable. */
async function bornDisk(): Promise<FaultDisk> {
  const disk = new FaultDisk();
  const header = { headerLine: toBytes(headerText()), header: JSON.parse(headerText()) };
  const log = storesOn(disk).containers.create(header);
  log.append(chain(2).map(toBytes));
  await log.commit();
  log.close();
  return disk.after();
}

const LATER = userText(id(2), id(1));

export interface Way {
  readonly name: string;
  readonly begin: () => Promise<FaultDisk>;
  readonly go: (disk: FaultDisk) => Promise<unknown>;
  /** Ids of the entries that the session has. */
  readonly ids: readonly string[];
}

const rollback = (name: string, begin: Way["begin"], count: number): Way => ({
  name: `a rollback ${name}`,
  begin,
  go: (disk) => rollBack(optionsOn(disk), CONTAINER),
  ids: [id(0), id(1), id(2)].slice(0, count),
});

async function withoutSnapshot(): Promise<FaultDisk> {
  const disk = await migratedDisk(LATER);
  disk.remove(SNAPSHOT);
  return disk;
}

export const WAYS: readonly Way[] = [
  {
    name: "a migration",
    begin: async () => fileDisk(),
    go: (disk) => migrate(optionsOn(disk), FILE),
    ids: [id(0), id(1)],
  },
  rollback("to the snapshot", () => migratedDisk(), 2),
  rollback("with later entries", () => migratedDisk(LATER), 3),
  rollback("without the snapshot", withoutSnapshot, 3),
  rollback("of a session that began in V2", bornDisk, 2),
];

interface CutOff {
  /** As the next process finds it. */
  readonly disk: FaultDisk;
  readonly at: string;
}

/**
 * Returns the disks after the death of the process at each disk operation. Deaths with the same session file, pointer
 * and folders count once; with `all`, each counts.
 */
export async function cutOffs(way: Pick<Way, "begin" | "go">, all = false): Promise<CutOff[]> {
  const whole = await way.begin();
  whole.set(undefined);
  await way.go(whole);
  const operations = [...whole.operations];
  const beginning = await way.begin();
  const seen = new Set<string>();
  const found: CutOff[] = [];
  for (let at = 1; at <= operations.length; at++) {
    // A death at any other operation leaves the same disk as one before it.
    if (!CHANGES.has(operations[at - 1])) continue;
    const dying = beginning.after();
    dying.set({ kind: "die", at });
    await way.go(dying).catch(() => {});
    const disk = dying.after();
    const kind = kindOf(disk);
    if (!all && seen.has(kind)) continue;
    seen.add(kind);
    found.push({ disk, at: `operation ${at} of ${operations.length}, ${operations[at - 1]}` });
  }
  return found;
}

function pointerOn(disk: FaultDisk): Json | undefined {
  const bytes = disk.content(getPointerFile(CONTAINER));
  return bytes && JSON.parse(decodeText(bytes));
}

/** Names in the folder, the pointer's phase and the session file's content. */
function kindOf(disk: FaultDisk): string {
  const names = disk.names(FOLDER).map((name) => name.replace(/\d+-\d+(\.tmp)?$/, ""));
  const { active, phase } = pointerOn(disk) ?? {};
  return JSON.stringify([names.sort(), active, phase, decodeText(disk.content(FILE) ?? new Uint8Array(0))]);
}

export const serveOn = (disk: FaultDisk, ...args: string[]): HereServer =>
  serveHere(["--events", "none", ...args], { disk, locks: noLocks });

export const idsOf = async (server: HereServer): Promise<string[]> =>
  (await server.result("get_entries")).entries.map((entry: Json) => entry.id);

/** The commands that a failure names. */
export const namedIn = ({ message }: Json): string[] => message.match(/rollback_migration|migrate_session/g) ?? [];

/** Goes the way that the refused append names, and appends; returns whether the append was refused. */
async function leadOut(server: HereServer, ids: readonly string[], how: "named" | "current", command: string) {
  expect(await idsOf(server)).toEqual(ids);
  const { error } = await server.request("append", { entries: [user("x")] });
  if (error) {
    expect(error.data.name).toBe("migration_failed");
    expect(namedIn(error)).toContain(command);
    const sessionPath = (await server.result("get_state")).sessionFile;
    if (how === "named") await server.result("new_session");
    await server.result(command, how === "named" ? { sessionPath } : {});
    if (how === "named") await server.result("switch_session", { sessionPath });
    expect(await idsOf(server)).toEqual(ids);
    await server.result("append", { entries: [user("x")] });
  }
  expect((await idsOf(server)).length).toBe(ids.length + 1);
  expect((await server.result("migration_status")).state).not.toBe("FAILED");
  expect((await server.result("verify_session")).damage).toEqual([]);
  return error !== undefined;
}

/** Returns the paths of the session. */
function pathsOn(disk: FaultDisk): string[] {
  const pointer = pointerOn(disk);
  const isFile = disk.content(FILE) !== undefined || (pointer?.source ?? null) !== null;
  return [...(isFile ? [FILE] : []), ...(pointer === undefined ? [] : [CONTAINER])];
}

/**
 * Leads out of whatever the deaths in a way leave; returns how often an append was refused. Of each state one of the paths
 * and one of the commands are taken in turn, with `all` every one of every death; of the states `most` are taken.
 */
export async function leadOutOfAll(
  way: Way,
  { all = false, most = Number.POSITIVE_INFINITY }: { all?: boolean; most?: number } = {},
): Promise<number> {
  let stuck = 0;
  let turn = 0;
  for (const { disk, at } of share(await cutOffs(way, all), most)) {
    const choices = pathsOn(disk).flatMap((path) =>
      (["rollback_migration", "migrate_session"] as const).flatMap((command) =>
        (["current", "named"] as const).map((how) => ({ path, command, how })),
      ),
    );
    for (const { path, command, how } of all ? choices : [choices[turn++ % choices.length]]) {
      const server = serveOn(disk.after(), "--session", path);
      try {
        if (await leadOut(server, way.ids, how, command)) stuck++;
      } catch (error) {
        throw new Error(`${at}, ${path}, ${command} ${how}: ${(error as Error).message}`, { cause: error });
      } finally {
        await server.finish();
      }
    }
  }
  return stuck;
}
