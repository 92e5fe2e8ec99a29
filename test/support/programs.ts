/** What tests of several files need beyond npm: shells, programs, the reference folder. */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { findSqlite } from "../../src/storage/fs/sqlite.ts";
import { need, needProgram } from "./needs.ts";

export const BASH = needProgram("bash");
export const ZSH = needProgram("zsh");
export const FISH = needProgram("fish");
export const MKFIFO = needProgram("mkfifo", "coreutils");

export const SQLITE = need(
  "SQLite",
  "Node 22, or npm install @photostructure/sqlite",
  () => findSqlite() !== undefined,
);

/** The folder of reference texts and sessions that lies beside the repository. */
export const REFERENCE = join(import.meta.dirname, "../../../shared");

export const REFERENCE_FOLDER = need("the reference folder ../shared", "it lies beside the repository", () =>
  existsSync(REFERENCE),
);
