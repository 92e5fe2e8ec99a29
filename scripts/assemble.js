// Assembles src/core/json/fast-path.wat, and writes its bytes into the file beside it: npm run assemble.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import makeWabt from "wabt";

const FOLDER = new URL("../src/core/json/", import.meta.url);

/** Returns the text of fast-path-module.ts. Throws where the source is wrong, naming the line. */
export async function assembled() {
  const wabt = await makeWabt();
  const source = wabt.parseWat("fast-path.wat", readFileSync(new URL("fast-path.wat", FOLDER), "utf8"), { simd: true });
  source.validate();
  const bytes = Buffer.from(source.toBinary({}).buffer);
  const lines = bytes.toString("base64").match(/.{1,112}/g);
  return [
    "/** The module of fast-path.wat, in base64. `npm run assemble` writes this file. */",
    `export const MODULE =\n${lines.map((line) => `  "${line}"`).join(" +\n")};\n`,
  ].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  writeFileSync(new URL("fast-path-module.ts", FOLDER), await assembled());
