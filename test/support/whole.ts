/** Whether this build has all modules. Documents name the files of all. */

import { readFileSync } from "node:fs";
import { modules } from "../../src/compose.ts";

const text = readFileSync(new URL("../../src/compose.ts", import.meta.url), "utf8");

/** False for a build without one of its modules (scripts/without-module.js). */
export const IS_WHOLE = [...text.matchAll(/readonly (\w+)\?:/g)].every(([, name]) => name in modules);
