/**
 * The programs and rights that some tests need and a machine may lack. Such a suite or test has `needs(...)` among its
 * options: it is skipped where one is missing, and the report says at the end which one, and how to get it.
 */

import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { findSqlite } from "../../src/storage/fs/sqlite.ts";

interface Need {
  /** The name of the requirement in the report. */
  readonly name: string;
  /** Advice for installing it. */
  readonly advice: string;
  /** True if it is here; asked once. */
  readonly isHere: () => boolean;
}

/** Declares what some tests need. */
export function need(name: string, advice: string, look: () => boolean): Need {
  let found: boolean | undefined;
  return {
    name,
    advice,
    isHere: () => {
      found ??= look();
      return found;
    },
  };
}

/** Finds a program in the folders of PATH. */
export function findProgram(...names: string[]): string | undefined {
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== "");
  return folders
    .flatMap((folder) => names.map((name) => join(folder, name)))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/** Declares a program that a package of Debian brings. */
export function needProgram(name: string, debianPackage = name): Need {
  return need(name, `apt-get install ${debianPackage}`, () => findProgram(name) !== undefined);
}

export const LINUX = need("Linux", "these rules are about Linux", () => process.platform === "linux");

export const SQLITE = need(
  "SQLite",
  "npm install @photostructure/sqlite, or Node 22.13 and later",
  () => findSqlite() !== undefined,
);

export const MKFIFO = needProgram("mkfifo", "coreutils");

export const ROOT = need("root", "run as root", () => process.getuid?.() === 0);

/** Options of a suite or test that is skipped where something is missing. */
export function needs(...all: Need[]): { skip?: true; meta?: { missing: string } } {
  const missing = all.find((one) => !one.isHere());
  // If nothing is missing there is no `skip`: a suite with `skip: false` runs even its skipped tests.
  return missing ? { skip: true, meta: { missing: `${missing.name} (${missing.advice})` } } : {};
}

declare module "vitest" {
  interface TaskMeta {
    /** Why a suite or test was skipped, for the report. */
    missing?: string;
  }
}
