/**
 * Somebody who may write in the folders that a confined server uses, and puts a link to the outside in the place of one
 * of them, or of a file, right before an operation of the disk. Outside lies a twin of everything, with another word in
 * it, so that whatever is followed there is found.
 */

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { folderName } from "../../src/storage/fs/paths.ts";
import { sessionId } from "./lifecycle.ts";
import { chain, fileText, headerText, id, userText } from "./lines.ts";
import type { Random } from "./random.ts";
import { type HereServer, type Json, type Place, serveHere, spawnServer, temporaryFolder } from "./server.ts";

/** What the sessions say, and what those outside say in its place; of one length, so that every offset fits. */
const WORD = "within-7f3a91";
const CANARY = "canary-7f3a91";
const CWD = "/home/me/project";
const SESSIONS = `sessions/${folderName(CWD)}`;
const FILE = `${SESSIONS}/2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`;
const CONTAINER = `${SESSIONS}/${sessionId(1)}.v2`;
const DEEP = "allowed/deep";
const MEDIA = Buffer.from(`picture ${WORD}`);
const HASH = createHash("sha256").update(MEDIA).digest("hex");

type StoreName = "jsonl" | "v2";

/** Folders `in` and `out` of one attempt. */
interface Ground {
  readonly store: StoreName;
  readonly inside: string;
  readonly outside: string;
  readonly place: Place;
}

function groundIn(folder: string, store: StoreName): Ground {
  const [inside, outside] = [join(folder, "in"), join(folder, "out")];
  const variables = {
    HOME: join(folder, "home"),
    PI_SESSIONS_DIR: join(inside, "sessions"),
    PI_SESSION_SERVER_STATE_DIR: join(inside, "state"),
  };
  return {
    store,
    inside,
    outside,
    place: { home: folder, state: variables.PI_SESSION_SERVER_STATE_DIR, cwd: folder, variables },
  };
}

/** A ground to be copied: a session with an attachment, a fork of it, another one to bring in, and the twin of all. */
export async function makeGround(store: StoreName): Promise<Ground> {
  const ground = groundIn(temporaryFolder(), store);
  const { inside, outside, place } = ground;
  const put = (path: string, content: string | Uint8Array): void => {
    mkdirSync(dirname(join(inside, path)), { recursive: true });
    writeFileSync(join(inside, path), content);
  };
  const media = { $piBlob: `sha256:${HASH}`, sizeBytes: MEDIA.length, encoding: "base64" };
  const lines = [
    userText(id(0), null, `first ${WORD}`),
    JSON.stringify({
      type: "message",
      id: id(1),
      parentId: id(0),
      timestamp: "2026-01-24T16:22:26.831Z",
      message: { role: "user", content: [{ type: "image", mimeType: "image/png", data: media }] },
    }),
    userText(id(2), id(1), `last ${WORD}`),
  ];
  put(FILE, fileText(headerText({ id: sessionId(1), cwd: CWD, note: WORD }), ...lines));
  put(`${FILE}.blobs/${HASH}`, MEDIA);
  const fork = `${SESSIONS}/2026-01-24T16-22-26-832Z_${sessionId(2)}.jsonl`;
  put(
    fork,
    fileText(headerText({ id: sessionId(2), cwd: CWD, parentSession: join(inside, FILE) }), ...lines.slice(0, 1)),
  );
  put(
    `${DEEP}/incoming.jsonl`,
    fileText(headerText({ id: sessionId(3), cwd: CWD }), userText(id(0), null, WORD), ...chain(3, 1)),
  );
  put(`${DEEP}/incoming.jsonl.blobs/${HASH}`, MEDIA);
  put(`${DEEP}/old.jsonl`, "an older export\n");
  for (const name of ["trash", "archive", "leaves", "quarantine", "locks"])
    mkdirSync(join(inside, "state", name), { recursive: true });
  if (store === "v2") {
    const server = serveHere(["--no-session", "--events", "none"], { place });
    await server.result("migrate_session", { sessionPath: join(inside, FILE) });
    await server.finish();
  }
  cpSync(inside, outside, { recursive: true });
  for (const entry of readdirSync(outside, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile()) writeFileSync(path, readFileSync(path, "latin1").replaceAll(WORD, CANARY), "latin1");
  }
  return ground;
}

function copyOf(ground: Ground): Ground {
  const copy = groundIn(temporaryFolder(), ground.store);
  for (const folder of ["inside", "outside"] as const)
    cpSync(ground[folder], copy[folder], { recursive: true, preserveTimestamps: true, verbatimSymlinks: true });
  return copy;
}

/** What may be put in the place of: what the session consists of, and every folder that leads to it or to another path. */
function componentsOf(store: StoreName): string[] {
  const own =
    store === "jsonl"
      ? [FILE, `${FILE}.blobs`]
      : [
          CONTAINER,
          ...["segments", "segments/0000000000000001.seg", "index", "index/offsets.jsonl", "header.jsonl"].map(
            inContainer,
          ),
          ...["manifest.json", "checkpoints", "migrations", "tmp", "blobs"].map(inContainer),
          `${FILE}.migrated`,
        ];
  const folders = [SESSIONS, DEEP, "allowed", "state/trash", "state/archive", "state/leaves", "state/quarantine"];
  return [...own, ...folders, `${DEEP}/incoming.jsonl`, `${DEEP}/incoming.jsonl.blobs`, `${DEEP}/old.jsonl`];
}

function inContainer(name: string): string {
  return `${CONTAINER}/${name}`;
}

/** What is asked, of a server that has the session open or none. */
interface Attempt {
  readonly name: string;
  /** Whether the links come from the start of the server on. */
  readonly early?: boolean;
  readonly open: boolean;
  ask(ground: Ground): readonly (readonly [method: string, params: object])[];
}

function pathOf({ inside, store }: Ground): string {
  return join(inside, store === "v2" ? CONTAINER : FILE);
}

const user = (text: string): object => ({ entries: [{ type: "message", message: { role: "user", content: text } }] });

export const ATTEMPTS: readonly Attempt[] = [
  {
    name: "open",
    early: true,
    open: true,
    ask: () => [
      ["get_messages", {}],
      ["get_entries", {}],
      ["get_state", {}],
    ],
  },
  {
    name: "switch",
    open: false,
    ask: (ground) => [
      ["switch_session", { sessionPath: pathOf(ground) }],
      ["get_messages", {}],
    ],
  },
  {
    name: "append",
    open: true,
    ask: () => [
      ["append", user("more")],
      ["get_entries", {}],
      ["append", user("and more")],
    ],
  },
  {
    name: "new",
    open: false,
    ask: () => [
      ["new_session", {}],
      ["append", user("new")],
      ["append", user("next")],
    ],
  },
  {
    name: "fork",
    open: true,
    ask: () => [
      ["fork", { entryId: id(2) }],
      ["append", user("forked")],
    ],
  },
  {
    name: "clone",
    open: true,
    ask: () => [
      ["clone", {}],
      ["get_messages", {}],
    ],
  },
  {
    name: "export",
    open: true,
    ask: ({ inside }) => [
      ["export_session", { format: "html", outputPath: join(inside, DEEP, "page.html") }],
      ["export_session", { format: "jsonl", outputPath: join(inside, DEEP, "old.jsonl"), overwrite: true }],
    ],
  },
  {
    name: "import",
    open: false,
    ask: ({ inside }) => [["import_session", { path: join(inside, DEEP, "incoming.jsonl") }]],
  },
  {
    name: "archive",
    open: false,
    ask: (ground) => [
      ["archive_session", { sessionPath: pathOf(ground) }],
      ["unarchive_session", { sessionId: sessionId(1) }],
    ],
  },
  {
    name: "trash",
    open: false,
    ask: (ground) => [
      ["delete_session", { sessionPath: pathOf(ground) }],
      ["restore_session", { sessionId: sessionId(1) }],
    ],
  },
  {
    name: "erase",
    open: false,
    ask: (ground) => [["delete_session", { sessionPath: pathOf(ground), permanent: true }]],
  },
  {
    name: "relocate",
    open: false,
    ask: (ground) => [["relocate_session", { sessionPath: pathOf(ground), cwd: "/home/me/other" }]],
  },
  {
    name: "migrate",
    open: false,
    ask: (ground) =>
      ground.store === "v2"
        ? [["rollback_migration", { sessionPath: pathOf(ground) }]]
        : [
            ["migrate_session", { sessionPath: pathOf(ground) }],
            ["rollback_migration", { sessionPath: pathOf(ground) }],
          ],
  },
  {
    name: "list",
    open: false,
    ask: () => [
      ["list_sessions", {}],
      ["search_sessions", { query: WORD.slice(0, 6) }],
      ["search_sessions", { query: CANARY.slice(0, 6) }],
      ["get_session_family", { sessionId: sessionId(1) }],
    ],
  },
  {
    name: "verify",
    open: true,
    ask: (ground) => [
      ["preview_session", { sessionPath: pathOf(ground) }],
      ["verify_session", { sessionPath: pathOf(ground) }],
      ["repair_session", { dryRun: true }],
      ["migration_status", { sessionPath: pathOf(ground) }],
    ],
  },
];

/** A disk on which, right before one operation, a link to the twin comes in the place of a component. */
class SwappingDisk {
  readonly disk: Disk;
  readonly broken: string[] = [];
  operations = 0;
  private readonly ground: Ground;
  private readonly inodes: ReadonlySet<string>;
  private component: string | undefined;
  private at = 0;

  constructor(ground: Ground) {
    this.ground = ground;
    this.inodes = new Set(everythingIn(ground.outside).map((path) => keyOf(lstatSync(path))));
    const { folders } = realDisk;
    this.disk = {
      ...this.watched(realDisk, PATH_OPERATIONS),
      folders: folders && this.watched(folders, ["open", "place", "make", "readLink"]),
    } as Disk;
  }

  /** From now on operations count. */
  arm(component: string | undefined, at: number): void {
    this.operations = 0;
    this.component = component;
    this.at = at;
  }

  private watched<T extends object>(disk: T, names: readonly string[]): T {
    const watched = { ...disk } as Record<string, unknown>;
    for (const name of names) {
      const operation = watched[name] as (...args: unknown[]) => unknown;
      watched[name] = (...args: unknown[]) => {
        if (++this.operations === this.at && this.component !== undefined) this.swap(this.component);
        const result = operation(...args);
        this.look(name, args, result);
        return result;
      };
    }
    return watched as T;
  }

  private swap(component: string): void {
    const [path, twin] = [join(this.ground.inside, component), join(this.ground.outside, component)];
    if (!existsSync(twin) || !existsSync(dirname(path))) return;
    try {
      renameSync(path, `${path}.aside`);
    } catch {
      // It is not there (any more).
    }
    symlinkSync(twin, path);
  }

  private look(name: string, [path]: unknown[], result: unknown): void {
    let reached: unknown;
    if (name === "openRead" || name === "openAppend" || name === "open") reached = realDisk.infoOf(result as number);
    else if (name === "info") reached = result;
    else if (name === "names" || name === "list") reached = realDisk.info(realpathSync(path as string));
    if (reached && this.inodes.has(keyOf(reached as never))) this.broken.push(`${name} ${path}`);
  }
}

/** The operations of a disk that take a path. */
const PATH_OPERATIONS = [
  ...["openRead", "openAppend", "create", "info", "syncFolder", "syncFolderNow", "link", "rename", "remove"],
  ...["removeFolder", "makeFolder", "names", "list", "watch", "realPath", "copyMode"],
];

function keyOf(stats: { device: number; inode: number } | { dev: number; ino: number }): string {
  return "ino" in stats ? `${stats.dev}:${stats.ino}` : `${stats.device}:${stats.inode}`;
}

function everythingIn(folder: string): string[] {
  return [
    folder,
    ...readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => join(folder, name)),
  ].sort();
}

/** Names, bytes, times and modes of everything in a folder. */
export function pictureOf(folder: string): string[] {
  return everythingIn(folder).map((path) => {
    const { mtimeMs, ctimeMs, mode, size, nlink } = lstatSync(path);
    return `${relative(folder, path)} ${mode.toString(8)} ${size} ${mtimeMs} ${ctimeMs} ${nlink}`;
  });
}

/** What {@link race} did. */
export interface Race {
  requests: number;
  refused: number;
  /** Times that a link came and went. */
  swaps: number;
}

/** The program that swaps at full speed; it gets paths, each with its twin, and tells how often when its input ends. */
const RACER = `
  const { renameSync, symlinkSync, rmSync } = require("node:fs");
  const pairs = JSON.parse(process.argv[1]);
  let swaps = 0;
  const still = (run) => { try { run(); return true; } catch { return false; } };
  const turn = () => {
    const until = performance.now() + 20;
    while (performance.now() < until)
      for (const [path, twin] of pairs) {
        if (!still(() => renameSync(path, path + ".aside"))) continue;
        if (still(() => symlinkSync(twin, path))) swaps++;
        // The server may have made something there meanwhile.
        still(() => rmSync(path, { recursive: true, force: true }));
        still(() => renameSync(path + ".aside", path));
      }
    setImmediate(turn);
  };
  process.stdin.on("end", () => { console.log(swaps); process.exit(0); }).resume();
  turn();
`;

/** The real program, asked at random while another one swaps a few of the components as fast as it can. */
export async function race(template: Ground, random: Random, requests: number): Promise<Race> {
  const ground = copyOf(template);
  const { inside, outside, place, store } = ground;
  const before = pictureOf(outside);
  const shared = random.chance(0.3);
  const components = componentsOf(store).filter((component) => existsSync(join(outside, component)));
  const chosen = Array.from({ length: 1 + random.int(2) }, () => random.pick(components));
  const pairs = [...new Set(chosen)].map((component) => [join(inside, component), join(outside, component)]);
  const racer = spawn(process.execPath, ["-e", RACER, JSON.stringify(pairs)], { stdio: ["pipe", "pipe", "inherit"] });
  let counted = "";
  racer.stdout.on("data", (chunk: Buffer) => {
    counted += chunk;
  });
  const gone = new Promise((resolve) => racer.on("close", resolve));
  const server = spawnServer(
    ["--events", "none", "--store", store, "--allow-path", shared ? inside : join(inside, "allowed")],
    "lines",
    place,
  );
  const asked = ATTEMPTS.flatMap((attempt) => attempt.ask(ground));
  const race: Race = { requests: 0, refused: 0, swaps: 0 };
  try {
    for (; race.requests < requests; race.requests++) {
      const [method, params] = random.pick(asked);
      const reply = await server.request(method, params);
      if (reply.error) race.refused++;
      expect(JSON.stringify([reply, server.events.splice(0)]).includes(CANARY), `${method}: ${pairs[0]}`).toBe(false);
    }
    await server.finish();
  } finally {
    racer.stdin.end();
    await gone;
  }
  race.swaps = Number(counted);
  expect([pairs, pictureOf(outside)]).toEqual([pairs, before]);
  expect(server.stderr).not.toContain(CANARY);
  return race;
}

/** One attempt; returns how many operations of the disk it took. Fails when anything outside was reached. */
async function tryOut(
  template: Ground,
  attempt: Attempt,
  wanted: { readonly component?: string; readonly at?: number; readonly shared?: boolean; readonly confined?: boolean },
): Promise<number> {
  const { component, at = 0, shared = false, confined = true } = wanted;
  const ground = copyOf(template);
  const { inside, outside, place } = ground;
  const before = pictureOf(outside);
  const swapping = new SwappingDisk(ground);
  const args = ["--events", "none", "--store", ground.store];
  if (confined) args.push("--allow-path", shared ? inside : join(inside, "allowed"));
  args.push(...(attempt.open ? ["--session", pathOf(ground)] : []));
  if (attempt.early) swapping.arm(component, at);
  const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
  const server: HereServer = serveHere(args, { place, disk: swapping.disk, env: { sha256 } });
  const said: Json[] = [];
  if (!attempt.early) {
    await server.request("get_state");
    swapping.arm(component, at);
  }
  for (const [method, params] of attempt.ask(ground)) said.push(await server.request(method, params));
  said.push(...server.events, ...(await server.finish()).messages, ...server.said);
  const told = JSON.stringify(said);
  const which = `${attempt.name} ${template.store} ${component ?? ""} at ${at}`;
  expect([which, swapping.broken]).toEqual([which, []]);
  expect([which, pictureOf(outside)]).toEqual([which, before]);
  expect(told.includes(CANARY), `${which}: ${told}`).toBe(false);
  expect(told, which).not.toContain("-32603");
  // Without links everything is done, and tells what is inside.
  if (component === undefined) {
    expect(
      said.filter(({ error }) => error),
      which,
    ).toEqual([]);
    if (["open", "switch", "clone", "list"].includes(attempt.name)) expect(told).toContain(WORD);
  }
  return swapping.operations;
}

/** Every component of a session before every operation, or a random few. */
export async function tryAll(
  template: Ground,
  attempt: Attempt,
  some?: { random: Random; count: number },
): Promise<number> {
  const components = componentsOf(template.store);
  let tries = 0;
  for (const shared of some ? [some.random.chance(0.5)] : [false, true]) {
    const operations = await tryOut(template, attempt, { shared });
    const attempts = some
      ? Array.from(
          { length: some.count },
          () => [some.random.pick(components), 1 + some.random.int(operations)] as const,
        )
      : components.flatMap((component) => Array.from({ length: operations }, (_, k) => [component, k + 1] as const));
    for (const [component, at] of attempts) {
      await tryOut(template, attempt, { component, at, shared });
      tries++;
    }
  }
  return tries;
}
