/** Needs of several test files beyond npm: shells, programs, the reference folder. */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { need, needProgram } from "./needs.ts";

export const BASH = needProgram("bash");
export const ZSH = needProgram("zsh");
export const FISH = needProgram("fish");
export { MKFIFO, SQLITE } from "./needs.ts";

/** The folder of reference texts and sessions that lies next to the repository. */
export const REFERENCE = join(import.meta.dirname, "../../../shared");

export const REFERENCE_FOLDER = need("the reference folder ../shared", "it lies beside the repository", () =>
  existsSync(REFERENCE),
);
