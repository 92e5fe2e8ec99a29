/**
 * A PostgreSQL of the tests' own: one cluster in a folder, which is reached by its socket and dies with the tests. Most
 * tests need only a database in the one that all share (database.ts).
 */

import { type ChildProcess, execFile, execFileSync, type SpawnOptions, spawn } from "node:child_process";
import {
  accessSync,
  appendFileSync,
  chownSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { KEPT_CODE } from "./build.ts";
import { findProgram, need } from "./needs.ts";
import { Psql } from "./psql.ts";

const execute = promisify(execFile);

/** The folder of the server's programs, or undefined if there is none. */
export const POSTGRES = ((): string | undefined => {
  const root = "/usr/lib/postgresql";
  const found = existsSync(root) ? readdirSync(root).sort((a, b) => Number(b) - Number(a)) : [];
  const inPath = dirname(findProgram("initdb") ?? "");
  const folders = [process.env.PI_TEST_PG ?? "", ...found.map((version) => join(root, version, "bin")), inPath];
  const programs = ["initdb", "postgres", "psql"];
  return folders.find((folder) => folder !== "" && programs.every((program) => existsSync(join(folder, program))));
})();

export const POSTGRESQL = need("PostgreSQL", "apt-get install postgresql", () => POSTGRES !== undefined);

/** The user who runs servers, which refuse to be run by root; undefined where that is who runs the tests. */
const user = ((): { uid: number; gid: number } | undefined => {
  if (process.getuid?.() !== 0) return undefined;
  for (const name of ["postgres", "nobody"])
    try {
      const idOf = (what: string): number =>
        Number(execFileSync("id", [what, name], { stdio: ["ignore", "pipe", "ignore"] }));
      return { uid: idOf("-u"), gid: idOf("-g") };
    } catch {
      // The next one.
    }
  return undefined;
})();

export function serverUser(): { uid: number; gid: number } | undefined {
  return user;
}

/** Returns whether sockets can be below a folder: their paths have 107 bytes at most, and PgBouncer takes none with spaces. */
function takesSockets(folder: string): boolean {
  if (!/^[\w./-]{1,40}$/.test(folder)) return false;
  try {
    accessSync(folder, constants.W_OK);
    // Another user runs the servers.
    for (let at = folder; user; at = dirname(at)) {
      if ((statSync(at).mode & 1) === 0) return false;
      if (at === dirname(at)) break;
    }
    return true;
  } catch {
    return false;
  }
}

/** Makes a temporary folder for sockets that belongs to the user who runs servers. `below`: where, if one can be there. */
export function socketFolder(prefix: string, below = tmpdir()): string {
  const folder = mkdtempSync(join([below, "/dev/shm", "/tmp"].find(takesSockets) ?? below, prefix));
  if (user) chownSync(folder, user.uid, user.gid);
  return folder;
}

/** Ends the server in a folder and removes that, when the process is gone that started it. Its input never has a line. */
const GUARD = `read -r line
pid=$(head -n 1 "$1/data/postmaster.pid") && kill -QUIT "$pid"
tries=0
while [ -n "$pid" ] && kill -0 "$pid" && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
rm -rf "$1"`;

/** Has a folder removed when this process ends, even if it is killed. Returns what does it, which is killed if nothing is left to do. */
function guard(folder: string): ChildProcess {
  // A terminal interrupts all processes of its foreground, but must not interrupt this one.
  const how: SpawnOptions = { cwd: "/", detached: true, stdio: ["pipe", "ignore", "ignore"] };
  const child = spawn("/bin/sh", ["-c", GUARD, "sh", folder], how);
  (child.stdin as Socket).unref();
  child.unref();
  return child;
}

/** Returns where and as whom the programs of the server in a folder are run. */
function placeIn(cwd: string): { cwd: string; env: NodeJS.ProcessEnv; uid?: number; gid?: number } {
  return { cwd, env: { PATH: process.env.PATH, LC_ALL: "C" }, ...user };
}

/** Begins a `psql` in a database of the server in a folder. */
export function psqlIn(folder: string, database: string): Psql {
  return new Psql(join(POSTGRES as string, "psql"), ["-h", folder, "-U", "fleet", "-d", database], placeIn(folder));
}

/** Returns the address of a database of the server in a folder. */
export function urlOf(folder: string, database: string): string {
  return `postgres:///${database}?host=${encodeURIComponent(folder)}&user=fleet`;
}

/** Returns the processes that one has started. */
function childrenOf(pid: number): number[] {
  const path = `/proc/${pid}/task/${pid}/children`;
  if (existsSync(path)) return readFileSync(path, "utf8").split(" ").filter(Boolean).map(Number);
  const all = execFileSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" }).trim().split("\n");
  return all
    .map((line) => line.trim().split(/\s+/).map(Number))
    .flatMap(([own, parent]) => (parent === pid ? own : []));
}

export class Postgres {
  /** The database that it has from the beginning. */
  readonly name: string = "postgres";
  readonly folder: string;
  private readonly guard: ChildProcess;
  private server: ChildProcess | undefined;
  private psql: Psql | undefined;

  /** Makes a cluster; `settings` are lines of its configuration, and `below` is the folder of its folder. */
  constructor(settings: readonly string[] = [], below?: string) {
    this.folder = socketFolder("pi-pg-", below);
    this.guard = guard(this.folder);
    this.makeCluster();
    writeFileSync(
      join(this.data, "postgresql.auto.conf"),
      [
        "listen_addresses = ''",
        `unix_socket_directories = '${this.folder}'`,
        "max_connections = 200",
        "shared_buffers = 32MB",
        // Processes that every start began and no test asks for.
        "autovacuum = off",
        "max_logical_replication_workers = 0",
        // Its compiler is loaded by each process anew.
        "jit = off",
        // No test ends the system, only its processes.
        "full_page_writes = off",
        ...settings,
        "",
      ].join("\n"),
    );
  }

  /** Copies a cluster that is kept for all tests: making one takes a second of processor time, and a copy a tenth of it. */
  private makeCluster(): void {
    const { mtimeMs } = statSync(this.path("initdb"));
    const name = `${POSTGRES} ${mtimeMs} ${user?.uid ?? process.getuid?.()}`.replaceAll("/", "-");
    const kept = join(KEPT_CODE, `cluster${name}`);
    if (!existsSync(kept)) {
      const args = ["-D", this.data, "-U", "fleet", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"];
      execFileSync(this.path("initdb"), args, { ...placeIn(this.folder), stdio: ["ignore", "ignore", "pipe"] });
      mkdirSync(KEPT_CODE, { recursive: true });
      const fresh = mkdtempSync(`${kept}.`);
      execFileSync("cp", ["-a", this.data, join(fresh, "data")]);
      try {
        renameSync(join(fresh, "data"), kept);
      } catch {
        // Another process was first.
      }
      rmSync(fresh, { recursive: true, force: true });
    } else execFileSync("cp", ["-a", kept, this.data]);
  }

  get data(): string {
    return join(this.folder, "data");
  }

  /** The address of a database in it. */
  get url(): string {
    return urlOf(this.folder, this.name);
  }

  private path(program: string): string {
    return join(POSTGRES as string, program);
  }

  private async run(program: string, ...args: string[]): Promise<void> {
    await execute(this.path(program), ["-D", this.data, ...args], placeIn(this.folder));
  }

  /** Becomes a standby of another server, which it reaches at a folder, with nothing of its old state. */
  async follow(primary: Postgres, folder: string): Promise<void> {
    rmSync(this.data, { recursive: true, force: true });
    const how = ["-R", "-X", "stream", "-c", "fast", "--no-sync"];
    await this.run("pg_basebackup", "-h", primary.folder, "-U", "fleet", ...how);
    const settings = [
      `unix_socket_directories = '${this.folder}'`,
      "synchronous_standby_names = ''",
      `primary_conninfo = 'user=fleet host=''${folder}'''`,
    ];
    appendFileSync(join(this.data, "postgresql.auto.conf"), `${settings.join("\n")}\n`);
  }

  /** Makes a primary of a standby. */
  async promote(): Promise<void> {
    await this.run("pg_ctl", "-w", "promote");
  }

  /** Sends a signal to the server's process and those that it started. */
  signal(signal: "SIGSTOP" | "SIGCONT" | "SIGKILL"): void {
    const pid = this.living?.pid;
    if (pid === undefined) return;
    for (const one of [pid, ...childrenOf(pid)])
      try {
        process.kill(one, signal);
      } catch {
        // It ended by itself.
      }
  }

  private get living(): ChildProcess | undefined {
    const { server } = this;
    return server?.exitCode === null && server.signalCode === null ? server : undefined;
  }

  /** Starts the server, and waits until it answers. */
  async start(): Promise<void> {
    for (let tries = 0; ; tries++)
      try {
        return await this.startOnce();
      } catch (error) {
        // A process of the one that was killed is not gone yet.
        if (tries >= 50 || !String(error).includes("pre-existing shared memory")) throw error;
      }
  }

  private async startOnce(): Promise<void> {
    mkdirSync(this.folder, { recursive: true });
    const how: SpawnOptions = { ...placeIn(this.folder), stdio: ["ignore", "ignore", "pipe"] };
    this.server = spawn(this.path("postgres"), ["-D", this.data], how);
    const { stderr } = this.server;
    await new Promise<void>((resolve, reject) => {
      let said = "";
      stderr?.on("data", (chunk: Buffer) => {
        if (said.length < 1e5) said += chunk.toString("utf8");
        if (said.includes("ready to accept")) resolve();
      });
      this.server?.on("exit", () => reject(new Error(`PostgreSQL did not start: ${said}`)));
    });
  }

  /** Kills the server and all of its processes, as a crash of the machine would. */
  kill(): Promise<void> {
    // Those of its processes that live on hold the memory that the next one wants.
    return this.end(() => this.signal("SIGKILL"));
  }

  async close(): Promise<void> {
    this.signal("SIGCONT");
    // It waits for its processes, and so their time is part of that of the tests.
    await this.end((server) => server.kill("SIGQUIT"));
    this.guard.kill("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }

  private async end(how: (server: ChildProcess) => unknown): Promise<void> {
    this.endPsql();
    const server = this.living;
    if (!server) return;
    const gone = new Promise((resolve) => server.on("exit", resolve));
    how(server);
    await gone;
  }

  /** Runs SQL by other code than the tested code. */
  sql(text: string): string {
    this.psql ??= psqlIn(this.folder, this.name);
    const { said, ended } = this.psql.run(text);
    if (!ended) return said.trim();
    this.endPsql();
    throw new Error(`psql: ${said}`);
  }

  /** Changes a setting as `alter system` says it, and waits until new connections have it. */
  configure(change: string): void {
    // The session has this after the server that starts the next ones.
    const loaded = (): string => this.sql("select pg_conf_load_time()");
    const before = loaded();
    this.sql(`alter system ${change}`);
    this.sql("select pg_reload_conf()");
    while (loaded() === before);
  }

  private endPsql(): void {
    this.psql?.close();
    this.psql = undefined;
  }
}
