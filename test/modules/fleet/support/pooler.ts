/** A PgBouncer of the tests' own, in transaction mode: each statement of a client may run on another connection. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { join } from "node:path";
import { findProgram, need } from "../../../support/needs.ts";
import { POSTGRES, serverUser, socketFolder, urlOf } from "../../../support/postgres.ts";

const PROGRAM =
  findProgram("pgbouncer") ?? ["/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer"].find((path) => existsSync(path));

export const PGBOUNCER = need("PgBouncer", "apt-get install pgbouncer", () => PROGRAM !== undefined);

export class Pooler {
  readonly folder = socketFolder("pi-pool-");
  private readonly how: { size: number; database: string };
  private process: ChildProcess | undefined;

  /** `size`: connections to a server, at most. `database`: the one that its address names. */
  constructor({ size = 2, database = "postgres" } = {}) {
    this.how = { size, database };
  }

  get url(): string {
    return urlOf(this.folder, this.how.database);
  }

  /** Writes its settings: the servers, in the order in which connections take them. */
  private configure(folders: readonly string[]): void {
    const { folder } = this;
    const { size } = this.how;
    const lines = [
      ...["[databases]", `* = host=${folders.join(",")} port=5432`, "[pgbouncer]"],
      ...["listen_addr =", "listen_port = 5432", `unix_socket_dir = ${folder}`, "unix_socket_mode = 0777"],
      ...["auth_type = trust", `auth_file = ${join(folder, "users")}`, "admin_users = pooler"],
      ...["pool_mode = transaction", `default_pool_size = ${size}`, "max_client_conn = 500", "server_round_robin = 1"],
      ...["server_login_retry = 1", "query_wait_timeout = 3", "log_connections = 0", "log_disconnections = 0"],
    ];
    writeFileSync(join(folder, "users"), ["pooler", "fleet"].map((role) => `"${role}" ""\n`).join(""));
    writeFileSync(join(folder, "settings"), `${lines.join("\n")}\n`);
  }

  /** Starts it before the servers in some folders, and waits until it answers. */
  async start(...folders: string[]): Promise<void> {
    this.configure(folders);
    const how = { cwd: this.folder, ...serverUser() };
    this.process = spawn(PROGRAM as string, ["-q", join(this.folder, "settings")], { ...how, stdio: "ignore" });
    const { process } = this;
    while (!(await this.isListening())) {
      if (process.exitCode !== null) throw new Error("PgBouncer did not start");
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  private isListening(): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = createConnection(join(this.folder, ".s.PGSQL.5432"));
      socket.on("connect", () => resolve(!socket.destroy().connecting));
      socket.on("error", () => resolve(false));
    });
  }

  /** Leads everything to other servers from now on; clients keep their connections, and see nothing of it. */
  turn(...folders: string[]): void {
    this.configure(folders);
    for (const command of ["RELOAD", "RECONNECT"]) this.asked(command, "pooler", "pgbouncer");
  }

  /** Runs SQL of another client of the same role; its settings stay in the session. */
  sql(text: string): string {
    return this.asked(text, "fleet", this.how.database).trim();
  }

  private asked(text: string, user: string, database: string): string {
    const args = ["-h", this.folder, "-U", user, "-d", database, "-qAtXc", text];
    return execFileSync(join(POSTGRES as string, "psql"), args, { encoding: "utf8" });
  }

  async close(): Promise<void> {
    const { process } = this;
    if (process && process.exitCode === null && process.signalCode === null) {
      const gone = new Promise((resolve) => process.on("exit", resolve));
      process.kill("SIGKILL");
      await gone;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}
