/** A PostgreSQL of the tests' own: one cluster in a folder, which is reached by its socket and dies with the tests. */

import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import {
  appendFileSync,
  chownSync,
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
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { KEPT_CODE } from "./build.ts";
import { Psql } from "./psql.ts";

const execute = promisify(execFile);

/** The folder of the server's programs, or undefined where there are none. */
export const POSTGRES = ((): string | undefined => {
  const root = "/usr/lib/postgresql";
  const found = existsSync(root) ? readdirSync(root).sort((a, b) => Number(b) - Number(a)) : [];
  const folders = [process.env.PI_TEST_PG ?? "", ...found.map((version) => join(root, version, "bin"))];
  return folders.find((folder) => folder !== "" && existsSync(join(folder, "initdb")));
})();

/** Why the tests that need a server are skipped, as their name says. */
export const WITH_POSTGRES = POSTGRES ? "" : " (SKIPPED: there is no PostgreSQL; apt-get install postgresql)";

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

export class Postgres {
  readonly folder = mkdtempSync(join(tmpdir(), "pi-pg-"));
  private server: ChildProcess | undefined;
  private psql: Psql | undefined;

  /** Makes a cluster; `settings` are lines of its configuration. */
  constructor(settings: readonly string[] = []) {
    if (user) chownSync(this.folder, user.uid, user.gid);
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
        ...settings,
        "",
      ].join("\n"),
    );
  }

  /** Copies a cluster that is kept for all tests: making one takes a second of processor time, and a copy a tenth of it. */
  private makeCluster(): void {
    const { mtimeMs } = statSync(this.path("initdb"));
    const name = `${POSTGRES} ${mtimeMs} ${user?.uid}`.replaceAll("/", "-");
    const kept = join(KEPT_CODE, `cluster${name}`);
    if (!existsSync(kept)) {
      const common = ["-D", this.data, "-U", "fleet", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"];
      this.run("initdb", common);
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
    return `postgres:///postgres?host=${encodeURIComponent(this.folder)}&user=fleet`;
  }

  private path(program: string): string {
    return join(POSTGRES as string, program);
  }

  /** Where and as whom its programs are run. */
  private get place(): { cwd: string; env: NodeJS.ProcessEnv; uid?: number; gid?: number } {
    return { cwd: this.folder, env: { PATH: process.env.PATH, LC_ALL: "C" }, ...user };
  }

  private run(program: string, args: readonly string[]): void {
    execFileSync(this.path(program), args, { ...this.place, stdio: ["ignore", "ignore", "pipe"] });
  }

  /** Becomes a standby of another server, which it reaches at a folder, with nothing of what was here. */
  async follow(primary: Postgres, folder: string): Promise<void> {
    rmSync(this.data, { recursive: true, force: true });
    const common = ["-h", primary.folder, "-U", "fleet", "-D", this.data];
    await execute(this.path("pg_basebackup"), [...common, "-R", "-X", "stream", "-c", "fast", "--no-sync"], this.place);
    const settings = [
      `unix_socket_directories = '${this.folder}'`,
      "synchronous_standby_names = ''",
      `primary_conninfo = 'user=fleet host=''${folder}'''`,
    ];
    appendFileSync(join(this.data, "postgresql.auto.conf"), `${settings.join("\n")}\n`);
  }

  /** Makes a primary of a standby. */
  async promote(): Promise<void> {
    await execute(this.path("pg_ctl"), ["-D", this.data, "-w", "promote"], this.place);
  }

  /** Sends a signal to all of its processes. */
  signal(signal: "SIGSTOP" | "SIGCONT" | "SIGKILL"): void {
    for (const pid of this.processes())
      try {
        process.kill(pid, signal);
      } catch {
        // It ended by itself.
      }
  }

  /** Returns the server's process and those that it started. */
  private processes(): number[] {
    const { server } = this;
    if (!server || server.exitCode !== null || server.signalCode !== null) return [];
    const children = readFileSync(`/proc/${server.pid}/task/${server.pid}/children`, "utf8").trim().split(" ");
    return [server.pid as number, ...children.filter((child) => child !== "").map(Number)];
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
    this.server = spawn(this.path("postgres"), ["-D", this.data], {
      ...this.place,
      stdio: ["ignore", "ignore", "pipe"],
    });
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
  async kill(): Promise<void> {
    this.endPsql();
    const { server } = this;
    if (!server || server.exitCode !== null || server.signalCode !== null) return;
    const gone = new Promise((resolve) => server.on("exit", resolve));
    // Those of its processes that live on hold the memory that the next one wants.
    this.signal("SIGKILL");
    await gone;
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Runs SQL by other code than that which is tested. */
  sql(text: string): string {
    this.psql ??= new Psql(this.path("psql"), ["-h", this.folder, "-U", "fleet", "-d", "postgres"], this.place);
    const { said, ended } = this.psql.run(text);
    if (!ended) return said.trim();
    this.endPsql();
    throw new Error(`psql: ${said}`);
  }

  /** Changes a setting as `alter system` says it, and waits until whoever connects finds it changed. */
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
