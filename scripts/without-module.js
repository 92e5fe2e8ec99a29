/**
 * Copies the project into a folder without one of its modules: without the module's folder, the lines of src/compose.ts
 * that name it, its tests and the tests that import it. What is left must compile and pass the unit tests.
 *
 *   node scripts/without-module.js <name> <folder>
 */

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const [name, folder] = process.argv.slice(2);
if (!name || !folder || !existsSync(join(ROOT, "src/modules", name)) || existsSync(folder)) {
  console.error("usage: node scripts/without-module.js <name of a module> <folder that does not exist>");
  process.exit(2);
}
const target = resolve(folder);
const edit = (file, change) => writeFileSync(join(target, file), change(readFileSync(join(target, file), "utf8")));

const files = execFileSync("git", ["ls-files", "-z"], { cwd: ROOT, encoding: "utf8" }).split("\0");
for (const file of files.filter((one) => one !== "" && existsSync(join(ROOT, one)))) {
  mkdirSync(dirname(join(target, file)), { recursive: true });
  cpSync(join(ROOT, file), join(target, file));
}
symlinkSync(join(ROOT, "node_modules"), join(target, "node_modules"));

rmSync(join(target, "src/modules", name), { recursive: true });
// A test of two modules is in a folder with both names.
for (const tests of readdirSync(join(target, "test/modules")))
  if (tests.split("-").includes(name)) rmSync(join(target, "test/modules", tests), { recursive: true });
edit("scripts/lazy-modules.js", (text) => text.replace(new RegExp(`"\\./modules/${name}/index\\.ts",? ?`), ""));
// Its contract stays, and the member of that name is missing.
edit("src/compose.ts", (text) =>
  text
    .replace(new RegExp(`^import .*/modules/${name}/.*\n`, "m"), "")
    .replace(/(?<=modules: Modules = \{)[^}]*/, (names) => names.replace(new RegExp(`\\s*\\b${name}\\b,?`), "")),
);
// The long runs of the module are in the folder of all long runs.
const suites = JSON.parse(readFileSync(join(target, "test/soak/suites.json"), "utf8"));
for (const suite of Object.keys(suites)) {
  const file = join(target, `test/soak/${suite}.test.ts`);
  if (!existsSync(file) || !readFileSync(file, "utf8").includes(`modules/${name}/`)) continue;
  rmSync(file);
  delete suites[suite];
}
writeFileSync(join(target, "test/soak/suites.json"), `${JSON.stringify(suites, null, 2)}\n`);
