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
import { testEnv } from "./env.ts";
import { sessionId } from "./lifecycle.ts";
import { chain, fileBytes, headerText, id, userText } from "./lines.ts";
import { isEvery, share } from "./random.ts";
import { beginning } from "./sessions.ts";

const ROOT: StoragePaths = { root: "/sessions", state: "/state" };
const FLAT: StoragePaths = { flat: "/flat", state: "/state" };
const NAME = `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`;
const FOLDER = "/sessions/--home-me-project--";
const FILE = `${FOLDER}/${NAME}`;
const HEADER = headerText({ id: sessionId(1) });
const BYTES = fileBytes(HEADER, ...chain(3));
const ELSEWHERE = "/mail/copy.jsonl";

/** The same disk, with our state folder on another file system than the sessions. */
function apart(disk: FaultDisk): Disk {
  const demandOne = (a: string, b: string): void => {
    if (a.startsWith("/state/") !== b.startsWith("/state/"))
      throw Object.assign(new Error("another file system"), { code: "EXDEV" });
  };
  return Object.assign(Object.create(disk) as Disk, {
    link(path: string, name: string) {
      demandOne(path, name);
      FaultDisk.prototype.link.call(this, path, name);
    },
    rename(path: string, name: string) {
      demandOne(path, name);
      FaultDisk.prototype.rename.call(this, path, name);
    },
  });
}

function lifeOn(disk: FaultDisk, places: StoragePaths, isApart = false): LifeCycle {
  const stores = makeStores({
    disk: isApart ? apart(disk) : disk,
    env: testEnv(7),
    paths: places,
    locks: noLocks,
    durability: "sync",
    cwd: "/",
    kind: "jsonl",
  });
  storesOf.set(stores.lifeCycle, stores);
  return stores.lifeCycle;
}

const storesOf = new WeakMap<LifeCycle, Stores>();

/**
 * Takes the last operation back, or brings it back, as the commands do: what was begun counts as the disk shows it.
 */
async function undoLast(life: LifeCycle, kind: "undo" | "redo" = "undo"): Promise<void> {
  const { operations } = storesOf.get(life) as Stores;
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
  disk.put(`${folder}/${NAME}`, BYTES);
  for (const other of [
    `${NAME}.blobs/${"ab".repeat(32)}`,
    `${NAME}.v1.bak`,
    `${sessionId(1)}.v2/manifest.json`,
    `${sessionId(1)}.v2/segments/0000000000000001.seg`,
    `${sessionId(1)}.store.json`,
    "neighbour.jsonl",
  ])
    disk.put(`${folder}/${other}`, fileBytes(`content of ${other}`));
}

interface Scenario {
  readonly name: string;
  readonly places?: StoragePaths;
  /** What it finds. */
  readonly prepare?: (life: LifeCycle, disk: FaultDisk) => Promise<unknown>;
  readonly run: (life: LifeCycle) => Promise<unknown>;
  /** What the same request answers when it was done already. */
  readonly done?: string;
  /** Contents that may be gone. */
  readonly loses?: boolean;
  readonly isApart?: boolean;
  /** Path of a session that is there, whole, whenever this is interrupted, and at its own path when it is over. */
  readonly stays?: string;
}

const one = { sessionId: sessionId(1) };

/** By its id, or by its path in a folder where it is there already. */
async function relocateById(life: LifeCycle, of: string, cwd: string, folder?: string): Promise<void> {
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

/** A session in a Session Store V2 container, beside the others. */
async function putContainer(disk: FaultDisk, places = ROOT): Promise<void> {
  const { forNew } = makeStores({
    disk,
    env: testEnv(8),
    paths: places,
    locks: noLocks,
    durability: "sync",
    cwd: "/",
    kind: "v2",
  });
  const header = beginning(headerText({ id: sessionId(5) }));
  (await forNew.publish(header, [fileBytes(...chain(3))])).close();
}

const CONTAINER = `${FOLDER}/${sessionId(5)}.v2`;

const CONTAINERS: readonly Scenario[] = [
  {
    name: "relocate of a container by id",
    prepare: (_life, disk) => putContainer(disk),
    run: (life) => relocateById(life, sessionId(5), "/home/me/new"),
    done: "already_exists",
  },
  {
    name: "relocate of a container for the second time",
    async prepare(life, disk) {
      await putContainer(disk);
      await relocateById(life, sessionId(5), "/home/me/new");
    },
    run: (life) => relocateById(life, sessionId(5), "/home/me/third"),
    done: "already_exists",
  },
  {
    name: "relocate of a container in a flat folder",
    places: FLAT,
    prepare: (_life, disk) => putContainer(disk, FLAT),
    run: (life) => relocateById(life, sessionId(5), "/home/me/new"),
    done: "already_exists",
  },
  {
    name: "delete of a container",
    prepare: (_life, disk) => putContainer(disk),
    run: (life) => life.delete(CONTAINER, false),
    done: "session_not_found",
  },
  {
    name: "archive of a container",
    prepare: (_life, disk) => putContainer(disk),
    run: (life) => life.archive(CONTAINER),
    done: "session_not_found",
  },
];

const MOVES: readonly Scenario[] = [
  { name: "delete", run: (life) => life.delete(life.locate(one), false), done: "session_not_found" },
  {
    name: "delete for good",
    run: (life) => life.delete(life.locate(one), true),
    done: "session_not_found",
    loses: true,
  },
  {
    name: "restore",
    prepare: (life) => life.delete(FILE, false),
    run: (life) => life.restore(one),
    done: "session_not_found",
  },
  { name: "archive", run: (life) => life.archive(FILE), done: "session_not_found" },
  {
    name: "archive from a flat folder",
    places: FLAT,
    run: (life) => life.archive(`/flat/${NAME}`),
    done: "session_not_found",
  },
  {
    name: "unarchive",
    prepare: (life) => life.archive(FILE),
    run: (life) => life.unarchive(`/state/archive/%2Fsessions/--home-me-project--/${NAME}`),
    done: "session_not_found",
  },
  {
    name: "archive by id",
    run: (life) => life.archive(life.locate(one, "archive")),
    done: "path_outside_root",
  },
  {
    name: "unarchive by id",
    prepare: (life) => life.archive(FILE),
    run: (life) => life.unarchive(life.locate(one, "unarchive")),
    done: "path_outside_root",
  },
  { name: "relocate", run: (life) => life.relocate(FILE, "/home/me/new", true), done: "session_not_found" },
  {
    name: "relocate by id",
    run: (life) => relocateById(life, sessionId(1), "/home/me/new"),
    done: "already_exists",
  },
  {
    name: "relocate for the third time",
    async prepare(life) {
      await relocateById(life, sessionId(1), "/home/me/new");
      await relocateById(life, sessionId(1), "/home/me/third");
    },
    run: (life) => relocateById(life, sessionId(1), "/home/me/project"),
    done: "already_exists",
  },
  {
    name: "relocate by the new path",
    // The last step but one: the session has both names.
    run: (life) => relocateById(life, sessionId(1), "/home/me/new", "--home-me-new--"),
    done: "already_exists",
  },
  {
    name: "relocate in a flat folder",
    places: FLAT,
    run: (life) => life.relocate(`/flat/${NAME}`, "/home/me/new", true),
    done: "already_exists",
  },
  {
    name: "import",
    prepare: async (_life, disk) => {
      disk.put(ELSEWHERE, fileBytes(headerText({ id: sessionId(2) }), ...chain(9)));
      disk.put(`${ELSEWHERE}.blobs/${"cd".repeat(32)}`, fileBytes("media"));
    },
    run: (life) => life.import(ELSEWHERE),
  },
  {
    name: "import of more",
    prepare: async (_life, disk) => disk.put(ELSEWHERE, fileBytes(HEADER, ...chain(9))),
    run: (life) => life.import(ELSEWHERE),
    loses: true,
  },
  {
    name: "import of a conflict copy",
    prepare: async (_life, disk) => disk.put(ELSEWHERE, fileBytes(HEADER, ...chain(2), userText("b0000000", id(1)))),
    run: (life) => life.import(ELSEWHERE),
  },
];

/** Damages a container and repairs it, as the command does; there are backups of earlier repairs, too. */
async function repairContainer(life: LifeCycle, disk: FaultDisk): Promise<void> {
  await putContainer(disk);
  const { open, operations } = storesOf.get(life) as Stores;
  const segment = `${CONTAINER}/segments/0000000000000001.seg`;
  for (const from of ["say a0000001", "say a0000000"]) {
    const bytes = Buffer.from(disk.content(segment) as Uint8Array).toString("latin1");
    disk.put(segment, fileBytes(bytes.trimEnd().replace(from, "say !!!!!!!!")));
    const log = open(CONTAINER);
    log.acquireLock();
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
const UNDONE: readonly [string, (life: LifeCycle, disk: FaultDisk) => Promise<unknown>][] = [
  ["delete", (life) => life.delete(FILE, false)],
  ["archive", (life) => life.archive(FILE)],
  ["relocate", (life) => life.relocate(FILE, "/home/me/new", true)],
  [
    "relocate of a container",
    async (life, disk) => {
      await putContainer(disk);
      await life.relocate(CONTAINER, "/home/me/new", true);
    },
  ],
  [
    "restore",
    async (life, disk) => {
      await life.delete(FILE, false);
      forgetOperations(disk);
      await life.restore(one);
    },
  ],
  [
    "import",
    async (life, disk) => {
      disk.put(ELSEWHERE, fileBytes(headerText({ id: sessionId(2) }), ...chain(9)));
      await life.import(ELSEWHERE);
    },
  ],
  ["repair of a container", repairContainer],
  ["prune", (life) => life.leftovers.prune({ paths: [`${FILE}.v1.bak`] }, { permanent: false, force: false })],
];

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
  ...CONTAINERS,
  {
    name: "redo of repair of a container",
    async prepare(life, disk) {
      await repairContainer(life, disk);
      await undoLast(life);
    },
    run: (life) => undoLast(life, "redo"),
    done: "operation_not_found",
    stays: CONTAINER,
  },
  ...UNDONE.map(
    ([name, prepare]): Scenario => ({
      name: `undo of ${name}`,
      prepare,
      run: (life) => undoLast(life),
      done: "operation_not_found",
      // Taken back, a relocation leaves one file with the header that it had: the other one goes.
      loses: name.startsWith("relocate"),
      ...(prepare === repairContainer ? { stays: CONTAINER } : {}),
    }),
  ),
  ...[...MOVES, ...CONTAINERS]
    .filter(({ name }) => APART.includes(name))
    .map((scenario) => ({
      ...scenario,
      name: `${scenario.name} across file systems`,
      isApart: true,
    })),
];

async function prepared({ places = ROOT, prepare, isApart }: Scenario): Promise<FaultDisk> {
  const disk = new FaultDisk();
  put(disk, places.flat ?? FOLDER);
  await prepare?.(lifeOn(disk, places, isApart), disk);
  return disk.after();
}

function contents(disk: FaultDisk): Map<string, string> {
  // The record of operations grows with each attempt.
  const paths = disk.paths().filter((path) => !path.startsWith("/state/operations/"));
  return new Map(paths.map((path) => [path, Buffer.from(disk.content(path) as Uint8Array).toString("latin1")]));
}

/** Paths and contents, each once: folders of the trash are named by the clock, and may be two where one could not end. */
function shape(disk: FaultDisk): string[] {
  return [...contents(disk)]
    .filter(([path]) => !isLeftover(path, disk))
    .map(
      ([path, content]) =>
        `${path.replace(/\/trash\/[^/]+\//, "/trash/*/")}\n${basename(path) === "record.json" ? "" : content}`,
    )
    .filter((one, index, all) => all.indexOf(one) === index)
    .sort();
}

/** What an interrupted request may leave: temporary files, what was torn, and items of the trash without their session. */
function isLeftover(path: string, disk: FaultDisk): boolean {
  if (path.endsWith(".tmp") || path.startsWith("/state/quarantine/")) return true;
  const item = /^\/state\/trash\/[^/]+\//.exec(path)?.[0];
  return (
    item !== undefined &&
    !disk.paths().some((other) => other === `${item}${NAME}` || other.startsWith(`${item}${sessionId(5)}.v2/`))
  );
}

/** Every content that was there is there still, and those of others under their names. */
function checkKept(before: ReadonlyMap<string, string>, disk: FaultDisk, what: string): void {
  const after = contents(disk);
  const left = new Set(after.values());
  const lost = [...before].filter(([path, content]) => basename(path) !== "record.json" && !left.has(content));
  expect(lost, what).toEqual([]);
  for (const [path, content] of before) if (path.includes("neighbour")) expect(after.get(path), what).toBe(content);
}

async function outcome(run: () => Promise<unknown>): Promise<string> {
  try {
    await run();
    return "ok";
  } catch (error) {
    if (error instanceof Failure) return error.name;
    throw error;
  }
}

/** The scenario without a fault, its operations recorded. */
async function recorded(scenario: Scenario, beginning: FaultDisk): Promise<FaultDisk> {
  const whole = beginning.after();
  whole.record();
  await scenario.run(lifeOn(whole, scenario.places ?? ROOT, scenario.isApart));
  expect(whole.operations.length).toBeGreaterThan(10);
  return whole;
}

/** Opens the session that stays, with all its entries. */
function checkStays({ stays, places = ROOT }: Scenario, disk: FaultDisk, what: string): void {
  if (stays === undefined) return;
  const { open } = storesOf.get(lifeOn(disk.after(), places)) as Stores;
  const log = open(stays);
  expect([log.header.id, log.nodes.count], what).toEqual([sessionId(5), 3]);
  log.close();
}

/** Interrupts a scenario by death and power cuts at some of its disk operations, or at all ({@link share}). */
export async function checkInterrupted(scenario: Scenario, count = 5): Promise<void> {
  const { places = ROOT, run, done = "ok", loses = false, isApart } = scenario;
  const beginning = await prepared(scenario);
  const before = contents(beginning);
  const whole = await recorded(scenario, beginning);
  const wanted = shape(whole);
  for (const cut of POWER_CUTS) expect(shape(whole.after(cut)), `done, then ${JSON.stringify(cut)}`).toEqual(wanted);
  const seen = new Set<string>();
  for (const at of share(faultPoints("die", whole), count)) {
    const disk = beginning.after();
    disk.set({ kind: "die", at });
    await outcome(() => run(lifeOn(disk, places, isApart)));
    for (const { disk: next, cut } of disk.remains(seen)) {
      const what = `dies at ${at}, ${JSON.stringify(cut)}`;
      if (!loses) checkKept(before, next, what);
      checkStays(scenario, next, what);
      const again = await outcome(() => run(lifeOn(next, places, isApart)));
      expect(["ok", done], what).toContain(again);
      if (!loses) checkKept(before, next, `${what}, again`);
      if (again === "ok") expect(shape(next), `${what}, again`).toEqual(wanted);
      if (scenario.stays !== undefined)
        expect(next.names(FOLDER), `${what}, again`).toContain(basename(scenario.stays));
      checkStays(scenario, next, `${what}, again`);
    }
  }
}

/**
 * Lets the disk operations of a scenario fail, one at a time; those at places that `seen` knows are left out. One of
 * `ofMany` of the rest, or all ({@link share}).
 */
export async function checkErrors(scenario: Scenario, seen: Set<string>, ofMany = 2): Promise<void> {
  const { places = ROOT, run, done = "ok", loses = false, isApart } = scenario;
  const beginning = await prepared(scenario);
  const before = contents(beginning);
  const whole = await recorded(scenario, beginning);
  const errnos = ["EIO", "ENOSPC"];
  const points = faultPoints("fail", whole, seen);
  for (const at of share(points, Math.ceil(points.length / ofMany)))
    for (const errno of isEvery() ? errnos : [errnos[at % 2]]) {
      const disk = beginning.after();
      disk.set({ kind: "fail", at, errno });
      const first = await outcome(() => run(lifeOn(disk, places, isApart)));
      const what = `${errno} at ${at}: ${first}`;
      disk.set(undefined);
      if (!loses) checkKept(before, disk, what);
      const again = await outcome(() => run(lifeOn(disk, places, isApart)));
      // What is unlinked cannot be brought back, whatever fails after it; what cannot be, of a container, is no session.
      expect(
        [
          "ok",
          ...(first === "ok" || first === done || scenario.name === "delete for good" ? [done] : []),
          ...(first === "ok" && isApart ? ["not_a_session"] : []),
        ],
        what,
      ).toContain(again);
      expect(disk.openCount, what).toBe(0);
    }
}
