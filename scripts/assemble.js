// Assembles the source of the WebAssembly module, and writes its bytes into the file next to it.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import makeWabt from "wabt";

const SOURCE = new URL("../src/core/json/fast-path.wat", import.meta.url);
/** The file with the bytes of the module. */
export const MODULE_FILE = new URL("../src/core/json/fast-path-module.ts", import.meta.url);

/** Returns the text of that file. Throws where the source is wrong, naming the line. */
export async function assembleModule() {
  const wabt = await makeWabt();
  const source = wabt.parseWat("fast-path.wat", readFileSync(SOURCE, "utf8"), { simd: true });
  source.validate();
  const bytes = Buffer.from(source.toBinary({}).buffer);
  const lines = bytes.toString("base64").match(/.{1,112}/g);
  return [
    "/** The module of fast-path.wat, in base64. `node scripts/assemble.js` writes this file. */",
    `export const MODULE =\n${lines.map((line) => `  "${line}"`).join(" +\n")};\n`,
  ].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(MODULE_FILE, await assembleModule());
