// Builds the program as one file with a small one that starts it, and the library as modules with declarations.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { buildProgram, loadWhenCalled, OPTIONS, replaceFile } from "./program.js";
import { writeSchema } from "./schema.js";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);
// The current build stays in use until the new one is complete.
const fresh = `dist.${process.pid}.tmp`;

/** Functions of slow-loading Node modules that the library uses, and that opening a session does not need. */
const later = loadWhenCalled({
  "node:crypto": ["createHash", "hash", "randomFillSync"],
  "node:net": ["createServer"],
  "node:zlib": ["crc32", "brotliCompress", "brotliDecompress"],
});

/** Takes the failures from the module that loads the file. */
const failuresGiven = {
  name: "failures that are given",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\/failure\.ts$/ }, () => ({ path: "failure", namespace: "given" }));
    onLoad({ filter: /.*/, namespace: "given" }, () => ({ contents: "module.exports = FAILURE;" }));
  },
};

/** The stores of the library that few need: a file of its own, which throws the same failures. */
const OTHERS = `
  import { createRequire } from "node:module";
  import * as failure from "../core/failure.ts";
  let loaded;
  const others = () => (loaded ??= createRequire(import.meta.url)("./others.cjs")(failure));
  export const openAgentSessions = (...all) => others().openAgentSessions(...all);
  export const segmentedStore = (...all) => others().segmentedStore(...all);`;

/** The modules of the library, as far as this source has them. */
const OWN_MODULES = existsSync("src/modules/foreign")
  ? 'import * as foreign from "./modules/foreign/index.ts"; export const modules = { foreign };'
  : "export const modules = {};";

const OTHERS_BEGIN = `module.exports = (FAILURE) => {
const module = { exports: {} };
const OTHERS_URL = require("node:url").pathToFileURL(__filename).href;`;

try {
  const { text } = await buildProgram(`${fresh}/bin`);
  // start.ts runs them.
  for (const file of ["program", "storage", "later", "recall"].map((name) => `${fresh}/bin/${name}.js`))
    writeFileSync(file, `(function (require, module, PROGRAM_URL) {${readFileSync(file, "utf8")}\n})`);
  await build({
    ...OPTIONS,
    entryPoints: { "pi-session-server": "src/cli/start.ts" },
    outdir: `${fresh}/bin`,
    define: {
      "import.meta.url": "START_URL",
      BUILD: JSON.stringify(createHash("sha256").update(text).digest("hex").slice(0, 16)),
    },
    banner: { js: '"use strict";const START_URL=require("node:url").pathToFileURL(__filename).href;' },
  });
  chmodSync(`${fresh}/bin/pi-session-server.js`, 0o755);

  execFileSync(
    process.execPath,
    ["node_modules/typescript/bin/tsc", "-p", "tsconfig.lib.json", "--outDir", `${fresh}/lib`],
    {
      stdio: "inherit",
    },
  );
  const repetitions = await writeSchema(`${fresh}/schema`);
  // Writes out the types of the sources, so that no user's compiler has to read the declarations and their library.
  writeFileSync(`${fresh}/lib/client/protocol.d.ts`, 'export type * from "../../schema/protocol.js";\n');
  rmSync(`${fresh}/lib/client/conversation.d.ts`);
  // One file in place of 90 that import each other: of the time that the import took, a quarter is left.
  const modules = { bundle: true, platform: "node", format: "esm", target: "node20.19", legalComments: "none" };
  await build({
    ...modules,
    logLevel: "warning",
    entryPoints: ["src/index.ts"],
    plugins: [later, replaceFile("src/library/others.ts", OTHERS)],
    outfile: `${fresh}/lib/index.js`,
  });
  await build({
    ...modules,
    format: "cjs",
    logLevel: "warning",
    entryPoints: ["src/library/others.ts"],
    plugins: [later, failuresGiven, replaceFile("src/compose.ts", OWN_MODULES)],
    define: { "import.meta.url": "OTHERS_URL" },
    banner: { js: OTHERS_BEGIN },
    footer: { js: "return module.exports;\n};" },
    outfile: `${fresh}/lib/others.cjs`,
  });
  await build({
    ...modules,
    logLevel: "warning",
    entryPoints: ["src/client/index.ts"],
    plugins: [replaceFile("src/client/repetitions.ts", `export const repetitions = ${JSON.stringify(repetitions)};`)],
    outfile: `${fresh}/lib/client/index.js`,
  });

  if (existsSync("dist")) renameSync("dist", `${fresh}.old`);
  renameSync(fresh, "dist");
} finally {
  for (const left of [fresh, `${fresh}.old`]) rmSync(left, { recursive: true, force: true });
}
