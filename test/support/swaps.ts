/**
 * A program that may write in the folders of a confined server. It replaces one of them, or a file, by a link to the
 * outside, right before an operation of the disk. Outside lies a twin of everything, with another word in it, so that a
 * followed link is found.
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
import { toFolderName } from "../../src/storage/fs/paths.ts";
import { wrapped } from "./disturbed.ts";
import { sessionId } from "./lifecycle.ts";
import { chain, entryText, fileText, headerText, id, userText } from "./lines.ts";
import type { Random } from "./random.ts";
import { type HereServer, type Json, type Place, serveHere, spawnServer, temporaryFolder } from "./server.ts";

/** The texts of the sessions, and those outside; of one length, so that every offset fits. */
const WORD = "within-7f3a91";
const CANARY = "canary-7f3a91";
const CWD = "/home/me/project";
const SESSIONS = `sessions/${toFolderName(CWD)}`;
const FILE = `${SESSIONS}/2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`;
const CONTAINER = `${SESSIONS}/${sessionId(1)}.v2`;
const DEEP = "allowed/deep";
const MEDIA = Buffer.from(`picture ${WORD}`);
const HASH = createHash("sha256").update(MEDIA).digest("hex");

type StoreName = "jsonl" | "v2";

/** Folders `in` and `out` of one attempt, and the session in the first. */
interface Ground {
  readonly store: StoreName;
  readonly inside: string;
  readonly outside: string;
  readonly sessionPath: string;
  readonly place: Place;
}

function groundIn(home: string, store: StoreName): Ground {
  const [inside, outside] = [join(home, "in"), join(home, "out")];
  const state = join(inside, "state");
  const variables = {
    ...{ HOME: join(home, "home"), PI_SESSIONS_DIR: join(inside, "sessions"), PI_SESSION_SERVER_STATE_DIR: state },
  };
  const sessionPath = join(inside, store === "v2" ? CONTAINER : FILE);
  return { store, inside, outside, sessionPath, place: { home, state, cwd: home, variables } };
}

/** A ground to be copied: a session with an attachment, a fork of it, another one to bring in, and the twin of all. */
export async function makeGround(store: StoreName): Promise<Ground> {
  const ground = groundIn(temporaryFolder(), store);
  const { inside, outside, place } = ground;
  const put = (path: string, content: string | Uint8Array): void => {
    mkdirSync(dirname(join(inside, path)), { recursive: true });
    writeFileSync(join(inside, path), content);
  };
  const header = (n: number, more: object = {}): string => headerText({ id: sessionId(n), cwd: CWD, ...more });
  const data = { $piBlob: `sha256:${HASH}`, sizeBytes: MEDIA.length, encoding: "base64" };
  const image = { role: "user", content: [{ type: "image", mimeType: "image/png", data }] };
  const first = userText(id(0), null, `first ${WORD}`);
  const rest = [entryText("message", id(1), id(0), { message: image }), userText(id(2), id(1), `last ${WORD}`)];
  put(FILE, fileText(header(1, { note: WORD }), first, ...rest));
  put(`${FILE}.blobs/${HASH}`, MEDIA);
  const parentSession = join(inside, FILE);
  put(FILE.replace("831Z", "832Z").replace(sessionId(1), sessionId(2)), fileText(header(2, { parentSession }), first));
  put(`${DEEP}/incoming.jsonl`, fileText(header(3), userText(id(0), null, WORD), ...chain(3, 1)));
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
  for (const path of everythingIn(outside).filter((each) => lstatSync(each).isFile()))
    writeFileSync(path, readFileSync(path, "latin1").replaceAll(WORD, CANARY), "latin1");
  return ground;
}

function copyOf(ground: Ground): Ground {
  const copy = groundIn(temporaryFolder(), ground.store);
  for (const folder of ["inside", "outside"] as const)
    cpSync(ground[folder], copy[folder], { recursive: true, preserveTimestamps: true, verbatimSymlinks: true });
  return copy;
}

/** Returns the replaceable paths: the files of the session, and every folder on the way to it or to another path. */
function componentsOf(store: StoreName): string[] {
  const parts =
    "/segments /segments/0000000000000001.seg /index /index/offsets.jsonl /header.jsonl /manifest.json /checkpoints " +
    "/migrations /tmp /blobs";
  const own =
    store === "jsonl"
      ? [FILE, `${FILE}.blobs`]
      : [CONTAINER, ...parts.split(" ").map((name) => CONTAINER + name), `${FILE}.migrated`];
  const folders = [SESSIONS, DEEP, "allowed", "state/trash", "state/archive", "state/leaves", "state/quarantine"];
  return [...own, ...folders, `${DEEP}/incoming.jsonl`, `${DEEP}/incoming.jsonl.blobs`, `${DEEP}/old.jsonl`];
}

interface Asked {
  readonly method: string;
  readonly params: object;
}

const request = (method: string, params: object = {}): Asked => ({ method, params });
const append = (content: string): Asked =>
  request("append", { entries: [{ type: "message", message: { role: "user", content } }] });

/** A request to a server, with the session open or not. */
interface Attempt {
  readonly name: string;
  readonly ask: (ground: Ground) => readonly Asked[];
  readonly open?: boolean;
  /** True if the links come from the start of the server on. */
  readonly early?: boolean;
}

const attempt = (name: string, ask: Attempt["ask"], more: Partial<Attempt> = {}): Attempt => ({ name, ask, ...more });
const open = (name: string, ask: Attempt["ask"]): Attempt => attempt(name, ask, { open: true });
const one = { sessionId: sessionId(1) };

export const ATTEMPTS: readonly Attempt[] = [
  attempt("open", () => ["get_messages", "get_entries", "get_state"].map((method) => request(method)), {
    ...{ open: true, early: true },
  }),
  attempt("switch", ({ sessionPath }) => [request("switch_session", { sessionPath }), request("get_messages")]),
  open("append", () => [append("more"), request("get_entries"), append("and more")]),
  attempt("new", () => [request("new_session"), append("new"), append("next")]),
  open("fork", () => [request("fork", { entryId: id(2) }), append("forked")]),
  open("clone", () => [request("clone"), request("get_messages")]),
  open("export", ({ inside }) => [
    request("export_session", { format: "html", outputPath: join(inside, DEEP, "page.html") }),
    request("export_session", { format: "jsonl", outputPath: join(inside, DEEP, "old.jsonl"), overwrite: true }),
  ]),
  attempt("import", ({ inside }) => [request("import_session", { path: join(inside, DEEP, "incoming.jsonl") })]),
  attempt("archive", ({ sessionPath }) => [
    request("archive_session", { sessionPath }),
    request("unarchive_session", one),
  ]),
  attempt("trash", ({ sessionPath }) => [request("delete_session", { sessionPath }), request("restore_session", one)]),
  attempt("erase", ({ sessionPath }) => [request("delete_session", { sessionPath, permanent: true })]),
  attempt("relocate", ({ sessionPath }) => [request("relocate_session", { sessionPath, cwd: "/home/me/other" })]),
  attempt("migrate", ({ sessionPath, store }) => [
    ...(store === "v2" ? [] : [request("migrate_session", { sessionPath })]),
    request("rollback_migration", { sessionPath }),
  ]),
  attempt("list", () => [
    request("list_sessions"),
    ...[WORD, CANARY].map((word) => request("search_sessions", { query: word.slice(0, 6) })),
    request("get_session_family", one),
  ]),
  open("verify", ({ sessionPath }) => [
    ...["preview_session", "verify_session", "migration_status"].map((method) => request(method, { sessionPath })),
    request("repair_session", { dryRun: true }),
  ]),
];

/** A disk that replaces a component by a link to the twin, right before one operation. */
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
    return wrapped(disk, (operate, name, given) => {
      if (!names.includes(name)) return operate();
      if (++this.operations === this.at && this.component !== undefined) this.swap(this.component);
      const result = operate();
      this.look(name, given, result);
      return result;
    });
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

  private look(name: string, [path]: readonly unknown[], result: unknown): void {
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

/** Numbers of requests and refusals of {@link race}, and of swaps. */
export type Race = Record<"requests" | "refused" | "swaps", number>;

/** The program that swaps at full speed; it gets paths, each with its twin, and prints its count at the end. */
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
      const { method, params } = random.pick(asked);
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
  { component, at = 0, shared = false }: { component?: string; at?: number; shared?: boolean },
): Promise<number> {
  const ground = copyOf(template);
  const { inside, outside, place } = ground;
  const before = pictureOf(outside);
  const swapping = new SwappingDisk(ground);
  const args = ["--events", "none", "--store", ground.store, "--allow-path", shared ? inside : join(inside, "allowed")];
  args.push(...(attempt.open ? ["--session", ground.sessionPath] : []));
  if (attempt.early) swapping.arm(component, at);
  const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
  const server: HereServer = serveHere(args, { place, disk: swapping.disk, env: { sha256 } });
  const said: Json[] = [];
  if (!attempt.early) {
    await server.request("get_state");
    swapping.arm(component, at);
  }
  for (const { method, params } of attempt.ask(ground)) said.push(await server.request(method, params));
  said.push(...server.events, ...(await server.finish()).messages, ...server.said);
  const text = JSON.stringify(said);
  const which = `${attempt.name} ${template.store} ${component ?? ""} at ${at}`;
  expect([which, swapping.broken]).toEqual([which, []]);
  expect([which, pictureOf(outside)]).toEqual([which, before]);
  expect(text.includes(CANARY), `${which}: ${text}`).toBe(false);
  expect(text, which).not.toContain("-32603");
  // Without links everything works, and the answers have the inner text.
  if (component === undefined) {
    expect(said.map(({ error }) => error).filter(Boolean), which).toEqual([]);
    if (["open", "switch", "clone", "list"].includes(attempt.name)) expect(text).toContain(WORD);
  }
  return swapping.operations;
}

/** Every component of a session before every operation, or a random few. */
export async function tryAll(template: Ground, attempt: Attempt, some?: { random: Random; count: number }) {
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
