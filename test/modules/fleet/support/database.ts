/** Databases in the PostgreSQL that all tests share (shared-database.ts). They end with the suite that has them. */

import { afterAll, beforeAll, inject } from "vitest";
import { Postgres, psqlIn, urlOf } from "../../../support/postgres.ts";
import type { Psql } from "../../../support/psql.ts";
import { folderOf } from "../../../support/shared-database.ts";
import { sqlFleet } from "./sql-fleet.ts";

/** The database with the tables that others are copies of, and its name while it is made. */
const [WITH_TABLES, UNFINISHED] = ["with_tables", "unfinished"];

let made = 0;

/** The members of a database that tests use, whether it is one of many in a server or has a server of its own. */
export type TestDatabase = Pick<Postgres, "folder" | "name" | "url" | "sql" | "start" | "close">;

/** One database in the server that all tests share, with the tables unless it `isEmpty`. */
export class Database implements TestDatabase {
  readonly name = `suite_${process.pid}_${made++}`;
  private readonly isEmpty: boolean;
  private place: string | undefined;
  private psql: Psql | undefined;

  constructor({ isEmpty = false } = {}) {
    this.isEmpty = isEmpty;
  }

  /** The folder of the server. */
  get folder(): string {
    if (this.place === undefined) throw new Error("the database has not started");
    return this.place;
  }

  get url(): string {
    return urlOf(this.folder, this.name);
  }

  async start(): Promise<void> {
    this.place = await folderOf(inject("sharedServer"));
    const isLater = Number(this.admin("show server_version_num")) >= 150000;
    // Writing each page to the log, as later versions do by themselves, takes twice the time.
    const how = isLater ? "strategy file_copy" : "";
    if (!this.isEmpty && !this.isThere(WITH_TABLES)) await this.makeTables();
    this.admin(`create database ${this.name} ${this.isEmpty ? "" : `template ${WITH_TABLES}`} ${how}`);
    this.admin(`\\connect ${this.name}`);
  }

  private isThere(name: string): boolean {
    return this.admin(`select count(*) from pg_database where datname = '${name}'`) === "1";
  }

  /** Makes the database with the tables, unless another process does. */
  private async makeTables(): Promise<void> {
    this.admin("select pg_advisory_lock(1)");
    if (!this.isThere(WITH_TABLES)) {
      // A process that made it was killed.
      this.admin(`drop database if exists ${UNFINISHED} with (force)`);
      this.admin(`create database ${UNFINISHED}`);
      await migrate(urlOf(this.folder, UNFINISHED));
      this.admin(`alter database ${UNFINISHED} rename to ${WITH_TABLES}`);
    }
    this.admin("select pg_advisory_unlock(1)");
  }

  /** Runs SQL by other code than the tested code. */
  sql(text: string): string {
    return this.run(this.name, text);
  }

  private admin(text: string): string {
    return this.run("postgres", text);
  }

  /** Runs SQL. `database`: where, if nothing ran before. */
  private run(database: string, text: string): string {
    this.psql ??= psqlIn(this.folder, database);
    const { said, ended } = this.psql.run(text);
    if (!ended) return said.trim();
    this.endPsql();
    throw new Error(`psql: ${said}`);
  }

  private endPsql(): void {
    this.psql?.close();
    this.psql = undefined;
  }

  /** Changes a setting as `alter database` says it, for those that connect from now on. */
  configure(change: string): void {
    this.sql(`alter database ${this.name} ${change}`);
  }

  async close(): Promise<void> {
    if (this.place === undefined) return;
    this.endPsql();
    this.admin(`drop database if exists ${this.name} with (force)`);
    this.endPsql();
  }
}

/** A database, from before the first test of a suite until after the last. */
export interface SuiteDatabase<Server extends TestDatabase = Database> {
  readonly server: Server;
}

/** Declares a database for the calling suite. */
export function suiteDatabase(options?: { readonly isEmpty: boolean }): SuiteDatabase {
  return withDatabase(() => new Database(options));
}

/** Declares a server for the calling suite alone, which may kill it. */
export function suiteServer(): SuiteDatabase<Postgres> {
  return withDatabase(() => new Postgres(), migrate);
}

async function migrate(url: string): Promise<void> {
  const { fleet, migrate: make } = sqlFleet(url, "first");
  await make();
  await fleet.close();
}

function withDatabase<Server extends TestDatabase>(
  make: () => Server,
  prepare: (url: string) => Promise<void> = async () => {},
): SuiteDatabase<Server> {
  let server: Server;
  beforeAll(async () => {
    server = make();
    await server.start();
    await prepare(server.url);
  });
  afterAll(() => server.close());
  return {
    get server() {
      return server;
    },
  };
}
