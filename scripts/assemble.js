// Assembles the sources of the WebAssembly modules, and writes the bytes of each into the file next to it: npm run
// assemble.
import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import makeWabt from "wabt";

/** The sources, without their ending, as paths from this folder. */
export const MODULES = ["../src/core/json/fast-path", "../src/storage/v2/crc32c"];

/** Returns where the bytes of a module are. */
export const getModuleFile = (module) => new URL(`${module}-module.ts`, import.meta.url);

/** Returns the text of that file. Throws where the source is wrong, naming the line. */
export async function assembleModule(module) {
  const wabt = await makeWabt();
  const name = `${basename(module)}.wat`;
  const text = readFileSync(new URL(`${module}.wat`, import.meta.url), "utf8");
  const source = wabt.parseWat(name, text, { simd: true });
  source.validate();
  const bytes = Buffer.from(source.toBinary({}).buffer);
  const lines = bytes.toString("base64").match(/.{1,112}/g);
  return [
    `/** The module of ${name}, in base64. \`node scripts/assemble.js\` writes this file. */`,
    `export const MODULE =\n${lines.map((line) => `  "${line}"`).join(" +\n")};\n`,
  ].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const module of MODULES) writeFileSync(getModuleFile(module), await assembleModule(module));
