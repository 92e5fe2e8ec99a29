/** A PostgreSQL of the tests' own: one cluster in a folder, which is reached by its socket and dies with the tests. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The folder of the server's programs, or undefined where there are none. */
export const POSTGRES = ((): string | undefined => {
  const root = "/usr/lib/postgresql";
  const found = existsSync(root) ? readdirSync(root).sort((a, b) => Number(b) - Number(a)) : [];
  const folders = [process.env.PI_TEST_PG ?? "", ...found.map((version) => join(root, version, "bin"))];
  return folders.find((folder) => folder !== "" && existsSync(join(folder, "initdb")));
})();

/** Why the tests that need a server are skipped, as their name says. */
export const WITH_POSTGRES = POSTGRES ? "" : " (SKIPPED: there is no PostgreSQL; apt-get install postgresql)";

/** The user who runs the server, which refuses to be run by root. */
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

export class Postgres {
  readonly folder = mkdtempSync(join(tmpdir(), "pi-pg-"));
  private server: ChildProcess | undefined;

  /** Makes a cluster; `settings` are lines of its configuration. */
  constructor(settings: readonly string[] = []) {
    if (user) chownSync(this.folder, user.uid, user.gid);
    const common = ["-D", this.data, "-U", "fleet", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"];
    this.run("initdb", common);
    writeFileSync(
      join(this.data, "postgresql.auto.conf"),
      [
        "listen_addresses = ''",
        `unix_socket_directories = '${this.folder}'`,
        "max_connections = 200",
        "shared_buffers = 32MB",
        ...settings,
        "",
      ].join("\n"),
    );
  }

  get data(): string {
    return join(this.folder, "data");
  }

  /** The address of a database in it. */
  get url(): string {
    return `postgres:///postgres?host=${encodeURIComponent(this.folder)}&user=fleet`;
  }

  private run(program: string, args: readonly string[]): string {
    return execFileSync(join(POSTGRES as string, program), args, {
      cwd: this.folder,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env.PATH, LC_ALL: "C" },
      ...user,
    });
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
    this.server = spawn(join(POSTGRES as string, "postgres"), ["-D", this.data], {
      cwd: this.folder,
      stdio: ["ignore", "ignore", "pipe"],
      env: { PATH: process.env.PATH, LC_ALL: "C" },
      ...user,
    });
    const { stderr } = this.server;
    await new Promise<void>((resolve, reject) => {
      let said = "";
      stderr?.on("data", (chunk: Buffer) => {
        if (said.length < 1e5) said += chunk.toString("utf8");
        if (said.includes("ready to accept connections")) resolve();
      });
      this.server?.on("exit", () => reject(new Error(`PostgreSQL did not start: ${said}`)));
    });
  }

  /** Kills the server and all of its processes, as a crash of the machine would. */
  async kill(): Promise<void> {
    const { server } = this;
    if (!server || server.exitCode !== null || server.signalCode !== null) return;
    const gone = new Promise((resolve) => server.on("exit", resolve));
    // Those of its processes that live on hold the memory that the next one wants.
    const children = readFileSync(`/proc/${server.pid}/task/${server.pid}/children`, "utf8").trim().split(" ");
    server.kill("SIGKILL");
    for (const child of children)
      try {
        if (child !== "") process.kill(Number(child), "SIGKILL");
      } catch {
        // It ended by itself.
      }
    await gone;
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Runs SQL by other code than that which is tested. */
  sql(text: string): string {
    return this.run("psql", [
      "-h",
      this.folder,
      "-U",
      "fleet",
      "-d",
      "postgres",
      "-qAtX",
      "-v",
      "ON_ERROR_STOP=1",
      "-c",
      text,
    ]).trim();
  }
}
