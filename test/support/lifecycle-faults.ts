/**
 * Everything that moves sessions, interrupted at its disk operations: by an error, by death, by a power cut. Whatever
 * was there is there under one name or another, and the same request again brings it to its end.
 */

import { basename } from "node:path";
import { expect } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import type { LifeCycle } from "../../src/core/ports/lifecycle.ts";
import type { Stores } from "../../src/core/ports/stores.ts";
import { History } from "../../src/core/session/history.ts";
import type { Disk } from "../../src/storage/fs/disk.ts";
import type { StoragePaths } from "../../src/storage/fs/paths.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { makeStores } from "../../src/storage/stores.ts";
import { FaultDisk, faultPoints, POWER_CUTS } from "./disk.ts";
import { wrapped } from "./disturbed.ts";
import { testEnv } from "./env.ts";
import { one, sessionId } from "./lifecycle.ts";
import { chain, fileBytes, headerText, id, userText } from "./lines.ts";
import { isEvery, share } from "./random.ts";
import { beginning } from "./sessions.ts";

const ROOT: StoragePaths = { root: "/sessions", state: "/state" };
const FLAT: StoragePaths = { flat: "/flat", state: "/state" };
const NAME = `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`;
const FOLDER = "/sessions/--home-me-project--";
const FILE = `${FOLDER}/${NAME}`;
const ARCHIVED = `/state/archive/%2Fsessions/--home-me-project--/${NAME}`;
const CONTAINER = `${FOLDER}/${sessionId(5)}.v2`;
const HEADER = headerText({ id: sessionId(1) });
const OTHER = headerText({ id: sessionId(2) });
const ELSEWHERE = "/mail/copy.jsonl";
const CWD = "/home/me/new";

/** The same disk, with our state folder on another file system than the sessions. */
function apart(disk: FaultDisk): Disk {
  return wrapped(disk as Disk, (operate, name, [from, to]) => {
    const isState = (path: unknown): boolean => String(path).startsWith("/state/");
    if (["link", "rename"].includes(name) && isState(from) !== isState(to))
      throw Object.assign(new Error("another file system"), { code: "EXDEV" });
    return operate();
  });
}

export function storesOn(disk: Disk, paths = ROOT, kind: "jsonl" | "v2" = "jsonl", seed = 7): Stores {
  return makeStores({ disk, env: testEnv(seed), paths, locks: noLocks, durability: "sync", cwd: "/", kind });
}

/** Takes the last operation back, or brings it back, as the commands do: the disk shows which operations began. */
async function undoLast({ lifeCycle: life, operations }: Stores, kind: "undo" | "redo" = "undo"): Promise<void> {
  for (const operation of History.of(operations).operations)
    if (operation.stage === "begun") {
      const step = life.stepOf(operation);
      if (step !== undefined) operations.conclude(operation.id, step);
    }
  const history = History.of(operations);
  const root = kind === "undo" ? history.nextToUndo(() => true) : history.nextToRedo(() => true);
  if (!root) throw new Failure("operation_not_found");
  const latest = history.latest(root);
  try {
    await life.takeBack(latest, { kind, of: root.of ?? root.id, text: "" });
  } catch (error) {
    // It was taken back, and that could not be recorded.
    throw life.isBack(latest) ? new Failure("operation_not_found") : error;
  }
}

/** The session, all that belongs to it, and a neighbour. */
function put(disk: FaultDisk, folder: string): void {
  disk.put(`${folder}/${NAME}`, fileBytes(HEADER, ...chain(3)));
  const segment = `${sessionId(1)}.v2/segments/0000000000000001.seg`;
  for (const other of [
    ...[`${NAME}.blobs/${"ab".repeat(32)}`, `${NAME}.v1.bak`, `${sessionId(1)}.v2/manifest.json`, segment],
    ...[`${sessionId(1)}.store.json`, "neighbour.jsonl"],
  ])
    disk.put(`${folder}/${other}`, fileBytes(`content of ${other}`));
}

interface Scenario {
  readonly name: string;
  readonly places?: StoragePaths;
  /** Prepares the disk before the request. */
  readonly prepare?: (stores: Stores, disk: FaultDisk) => Promise<unknown>;
  readonly run: (stores: Stores) => Promise<unknown>;
  /** The answer to a repetition of the same request. */
  readonly done?: string;
  /** Contents that may be gone. */
  readonly loses?: boolean;
  readonly isApart?: boolean;
  /** Path of a session that is there, whole, whenever this is interrupted, and at its own path when it is over. */
  readonly kept?: string;
}

/** By its id, or by its path in a folder where it is there already. */
async function relocateById({ lifeCycle: life }: Stores, of: string, cwd: string, folder?: string): Promise<void> {
  const path = `/sessions/${folder}/${NAME}`;
  const there = folder !== undefined && isThere(life, path);
  await life.relocate(there ? path : life.locate({ sessionId: of }, { cwd }), cwd, true);
}

function isThere(life: LifeCycle, sessionPath: string): boolean {
  try {
    life.locate({ sessionPath });
    return true;
  } catch {
    return false;
  }
}

/** A session in a Session Store V2 container, next to the others. */
export async function putContainer(disk: FaultDisk, places = ROOT): Promise<void> {
  const header = beginning(headerText({ id: sessionId(5) }));
  (await storesOn(disk, places, "v2", 8).forNew.publish(header, [fileBytes(...chain(3))])).close();
}

/** A scenario of the life cycle alone. */
const moving = (
  name: string,
  done: string | undefined,
  run: (life: LifeCycle) => Promise<unknown>,
  more: Partial<Scenario> = {},
): Scenario => ({ name, done, run: ({ lifeCycle }) => run(lifeCycle), ...more });

const relocating = (
  name: string,
  of: number,
  run: [cwd: string, folder?: string],
  more: Partial<Scenario> = {},
): Scenario => ({
  ...{ name, done: "already_exists", ...more },
  run: (stores) => relocateById(stores, sessionId(of), ...run),
});

const withContainer: Partial<Scenario> = { prepare: (_stores, disk) => putContainer(disk) };
const archived: Partial<Scenario> = { prepare: ({ lifeCycle }) => lifeCycle.archive(FILE) };
const incoming = (...lines: string[]): Partial<Scenario> => ({
  prepare: async (_stores, disk) => disk.put(ELSEWHERE, fileBytes(...lines)),
});
const NOT_FOUND = "session_not_found";
const OUTSIDE = "path_outside_root";

const MOVES: readonly Scenario[] = [
  moving("delete", NOT_FOUND, (life) => life.delete(life.locate(one), false)),
  moving("delete for good", NOT_FOUND, (life) => life.delete(life.locate(one), true), { loses: true }),
  moving("restore", NOT_FOUND, (life) => life.restore(one), {
    prepare: ({ lifeCycle }) => lifeCycle.delete(FILE, false),
  }),
  moving("archive", NOT_FOUND, (life) => life.archive(FILE)),
  moving("archive from a flat folder", NOT_FOUND, (life) => life.archive(`/flat/${NAME}`), { places: FLAT }),
  moving("unarchive", NOT_FOUND, (life) => life.unarchive(ARCHIVED), archived),
  moving("archive by id", OUTSIDE, (life) => life.archive(life.locate(one, "archive"))),
  moving("unarchive by id", OUTSIDE, (life) => life.unarchive(life.locate(one, "unarchive")), archived),
  moving("relocate", NOT_FOUND, (life) => life.relocate(FILE, CWD, true)),
  relocating("relocate by id", 1, [CWD]),
  relocating("relocate for the third time", 1, ["/home/me/project"], {
    async prepare(stores) {
      await relocateById(stores, sessionId(1), CWD);
      await relocateById(stores, sessionId(1), "/home/me/third");
    },
  }),
  // The last step but one: the session has both names.
  relocating("relocate by the new path", 1, [CWD, "--home-me-new--"]),
  moving("relocate in a flat folder", "already_exists", (life) => life.relocate(`/flat/${NAME}`, CWD, true), {
    places: FLAT,
  }),
  moving("import", undefined, (life) => life.import(ELSEWHERE), {
    async prepare(_stores, disk) {
      disk.put(ELSEWHERE, fileBytes(OTHER, ...chain(9)));
      disk.put(`${ELSEWHERE}.blobs/${"cd".repeat(32)}`, fileBytes("media"));
    },
  }),
  moving("import of more", undefined, (life) => life.import(ELSEWHERE), {
    ...incoming(HEADER, ...chain(9)),
    loses: true,
  }),
  moving("import of a conflict copy", undefined, (life) => life.import(ELSEWHERE), {
    ...incoming(HEADER, ...chain(2), userText("b0000000", id(1))),
  }),
  relocating("relocate of a container by id", 5, [CWD], withContainer),
  relocating("relocate of a container for the second time", 5, ["/home/me/third"], {
    async prepare(stores, disk) {
      await putContainer(disk);
      await relocateById(stores, sessionId(5), CWD);
    },
  }),
  relocating("relocate of a container in a flat folder", 5, [CWD], {
    places: FLAT,
    prepare: (_stores, disk) => putContainer(disk, FLAT),
  }),
  moving("delete of a container", NOT_FOUND, (life) => life.delete(CONTAINER, false), withContainer),
  moving("archive of a container", NOT_FOUND, (life) => life.archive(CONTAINER), withContainer),
];

/** Damages a container and repairs it, as the command does; there are backups of earlier repairs, too. */
async function repairContainer({ open, operations }: Stores, disk: FaultDisk): Promise<void> {
  await putContainer(disk);
  const segment = `${CONTAINER}/segments/0000000000000001.seg`;
  for (const from of ["say a0000001", "say a0000000"]) {
    disk.put(segment, fileBytes(textAt(disk, segment).trimEnd().replace(from, "say !!!!!!!!")));
    const log = open(CONTAINER);
    log.lock.acquire();
    const inode = disk.info(`${CONTAINER}/header.jsonl`).inode;
    const step = { do: "swap" as const, path: CONTAINER, inode };
    const about = { sessionId: sessionId(5), sessionPath: CONTAINER, name: null, text: "Repaired." };
    const { id } = operations.beginNow({ kind: "repair", ...about, step });
    const other = log.repair() as string;
    operations.done(id, { step: { ...step, other, count: log.nodes.count } });
    await log.commit();
    log.close();
    if (from.endsWith("1")) forgetOperations(disk);
  }
}

/** The operations to take back, each alone in the record. */
const UNDONE: Readonly<Record<string, NonNullable<Scenario["prepare"]>>> = {
  delete: ({ lifeCycle }) => lifeCycle.delete(FILE, false),
  archive: ({ lifeCycle }) => lifeCycle.archive(FILE),
  relocate: ({ lifeCycle }) => lifeCycle.relocate(FILE, CWD, true),
  async "relocate of a container"({ lifeCycle }, disk) {
    await putContainer(disk);
    await lifeCycle.relocate(CONTAINER, CWD, true);
  },
  async restore({ lifeCycle }, disk) {
    await lifeCycle.delete(FILE, false);
    forgetOperations(disk);
    await lifeCycle.restore(one);
  },
  async import({ lifeCycle }, disk) {
    disk.put(ELSEWHERE, fileBytes(OTHER, ...chain(9)));
    await lifeCycle.import(ELSEWHERE);
  },
  "repair of a container": repairContainer,
  prune: ({ lifeCycle: { leftovers } }) =>
    leftovers.prune({ paths: [`${FILE}.v1.bak`] }, { permanent: false, force: false }),
};

function forgetOperations(disk: FaultDisk): void {
  for (const path of disk.paths()) if (path.startsWith("/state/operations/")) disk.remove(path);
}

/** Scenarios that are done across file systems, too. */
const APART = [
  ...["delete", "restore", "archive", "archive by id", "unarchive"],
  ...["delete of a container", "archive of a container"],
];

export const SCENARIOS: readonly Scenario[] = [
  ...MOVES,
  {
    name: "redo of repair of a container",
    async prepare(stores, disk) {
      await repairContainer(stores, disk);
      await undoLast(stores);
    },
    run: (stores) => undoLast(stores, "redo"),
    done: "operation_not_found",
    kept: CONTAINER,
  },
  ...Object.entries(UNDONE).map(
    ([name, prepare]): Scenario => ({
      name: `undo of ${name}`,
      prepare,
      run: (stores) => undoLast(stores),
      done: "operation_not_found",
      // Taken back, a relocation leaves one file with the header that it had: the other one goes.
      loses: name.startsWith("relocate"),
      kept: prepare === repairContainer ? CONTAINER : undefined,
    }),
  ),
  ...MOVES.filter(({ name }) => APART.includes(name)).map((scenario) => ({
    ...scenario,
    name: `${scenario.name} across file systems`,
    isApart: true,
  })),
];

export const textAt = (disk: FaultDisk, path: string): string =>
  Buffer.from(disk.content(path) ?? []).toString("latin1");

function contents(disk: FaultDisk): Map<string, string> {
  // The record of operations grows with each attempt.
  const paths = disk.paths().filter((path) => !path.startsWith("/state/operations/"));
  return new Map(paths.map((path) => [path, textAt(disk, path)]));
}

/** Paths and contents, each once: folders of the trash are named by the clock, and may be two where one could not end. */
function shape(disk: FaultDisk): string[] {
  const all = [...contents(disk)].filter(([path]) => !isLeftover(path, disk));
  const shown = all.map(([path, content]) => {
    const name = path.replace(/\/trash\/[^/]+\//, "/trash/*/");
    return `${name}\n${basename(path) === "record.json" ? "" : content}`;
  });
  return [...new Set(shown)].sort();
}

/** Returns whether an interrupted request may leave this: temporary and torn files, trash items without a session. */
function isLeftover(path: string, disk: FaultDisk): boolean {
  if (path.endsWith(".tmp") || path.startsWith("/state/quarantine/")) return true;
  const item = /^\/state\/trash\/[^/]+\//.exec(path)?.[0];
  const isSession = (other: string): boolean =>
    other === `${item}${NAME}` || other.startsWith(`${item}${sessionId(5)}.v2/`);
  return item !== undefined && !disk.paths().some(isSession);
}

/** Every content that was there is there still, and those of others under their names. */
function checkKept(before: ReadonlyMap<string, string>, disk: FaultDisk, what: string): void {
  const after = contents(disk);
  const left = new Set(after.values());
  const lost = [...before].filter(([path, content]) => basename(path) !== "record.json" && !left.has(content));
  expect(lost, what).toEqual([]);
  for (const [path, content] of before) if (path.includes("neighbour")) expect(after.get(path), what).toBe(content);
}

export async function outcome(run: () => Promise<unknown>): Promise<string> {
  try {
    await run();
    return "ok";
  } catch (error) {
    if (error instanceof Failure) return error.name;
    throw error;
  }
}

/** Prepares a scenario, and runs it without a fault, its operations recorded. */
async function recorded({ places = ROOT, prepare, run, isApart, loses, kept }: Scenario) {
  const on = (disk: FaultDisk): Stores => storesOn(isApart ? apart(disk) : disk, places);
  const first = new FaultDisk();
  put(first, places.flat ?? FOLDER);
  await prepare?.(on(first), first);
  const begin = first.after();
  const before = contents(begin);
  const whole = begin.after();
  whole.record();
  await run(on(whole));
  expect(whole.operations.length).toBeGreaterThan(10);
  /** Checks the disk, and opens the kept session, with all its entries. */
  const check = (disk: FaultDisk, what: string): void => {
    if (!loses) checkKept(before, disk, what);
    if (kept === undefined) return;
    const log = storesOn(disk.after(), places).open(kept);
    expect([log.header.id, log.nodes.count], what).toEqual([sessionId(5), 3]);
    log.close();
  };
  return { begin, whole, check, ask: (disk: FaultDisk) => outcome(() => run(on(disk))) };
}

/** Interrupts a scenario by death and power cuts at some of its disk operations, or at all ({@link share}). */
export async function checkInterrupted(scenario: Scenario, count = 5): Promise<void> {
  const { done = "ok", kept } = scenario;
  const { begin, whole, check, ask } = await recorded(scenario);
  const wanted = shape(whole);
  for (const cut of POWER_CUTS) expect(shape(whole.after(cut)), `done, then ${JSON.stringify(cut)}`).toEqual(wanted);
  const seen = new Set<string>();
  for (const at of share(faultPoints("die", whole), count)) {
    const disk = begin.after();
    disk.set({ kind: "die", at });
    await ask(disk);
    for (const { disk: next, cut } of disk.crashes(seen)) {
      const what = `dies at ${at}, ${JSON.stringify(cut)}`;
      check(next, what);
      const again = await ask(next);
      expect(["ok", done], what).toContain(again);
      check(next, `${what}, again`);
      if (again === "ok") expect(shape(next), `${what}, again`).toEqual(wanted);
      if (kept !== undefined) expect(next.names(FOLDER), `${what}, again`).toContain(basename(kept));
    }
  }
}

/**
 * Lets the disk operations of a scenario fail, one at a time; those at places that `seen` knows are left out. One of
 * `ofMany` of the rest, or all ({@link share}).
 */
export async function checkErrors(scenario: Scenario, seen: Set<string>, ofMany = 2): Promise<void> {
  const { name, done = "ok", isApart } = scenario;
  const { begin, whole, check, ask } = await recorded({ ...scenario, kept: undefined });
  const errnos = ["EIO", "ENOSPC"];
  const points = faultPoints("fail", whole, seen);
  for (const at of share(points, Math.ceil(points.length / ofMany)))
    for (const errno of isEvery() ? errnos : [errnos[at % 2]]) {
      const disk = begin.after();
      disk.set({ kind: "fail", at, errno });
      const first = await ask(disk);
      const what = `${errno} at ${at}: ${first}`;
      disk.set(undefined);
      check(disk, what);
      // Unlinked files cannot be brought back after any later failure; a container that cannot be brought back is no
      // session.
      const allowed = [
        "ok",
        ...(first === "ok" || first === done || name === "delete for good" ? [done] : []),
        ...(first === "ok" && isApart ? ["not_a_session"] : []),
      ];
      expect(allowed, what).toContain(await ask(disk));
      expect(disk.openCount, what).toBe(0);
    }
}
