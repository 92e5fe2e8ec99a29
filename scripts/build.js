// Builds the program as one file with a small one that starts it, and the library as modules with declarations.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { pageScriptModule } from "./page-script.js";
import { writeSchema } from "./schema.js";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);
// What is in use stays until the new build is whole.
const fresh = `dist.${process.pid}.tmp`;

/** What a module exports. */
async function exportsOf(entryPoint) {
  const outfile = `${fresh}/evaluated.mjs`;
  await build({
    entryPoints: [entryPoint],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    packages: "external",
  });
  const exported = await import(`../${outfile}?${entryPoint}`);
  rmSync(outfile);
  return exported;
}

/** Puts `contents` in place of a source file. */
const inPlaceOf = (file, contents) => ({
  name: `in place of ${file}`,
  setup: ({ onLoad }) =>
    onLoad({ filter: new RegExp(`${file}$`) }, ({ path }) => ({ contents, resolveDir: dirname(path) })),
});

/** The names of the table of commands, and for each the file that is loaded with its first use. */
async function commandsWhenAskedFor() {
  const { table } = await exportsOf("src/handlers/shared/table.ts");
  const files = table.flatMap(({ name, alias }) =>
    [name, alias ?? []].flat().map((called) => `${JSON.stringify(called)}: () => require("../${name}.ts").default,`),
  );
  const contents = `
    const files = {${files.join("\n")}};
    const found = new Map();
    export const commandNames = Object.keys(files);
    export function findCommand(name) {
      if (!found.has(name) && Object.hasOwn(files, name)) found.set(name, files[name]());
      return found.get(name);
    }`;
  return inPlaceOf("src/handlers/shared/find.ts", contents);
}

/** Leaves a part out of the program: it is a file of its own, which is loaded by what needs it. */
const besides = (part) => ({
  name: `${part} besides`,
  setup: ({ onResolve }) =>
    onResolve({ filter: new RegExp(`${part}/main\\.ts$`) }, () => ({ path: `./${part}.js`, external: true })),
});

/** What the library uses of modules of Node's that take long to load and that opening a session does not need. */
const USED_LATER = {
  "node:crypto": ["createHash", "hash", "randomFillSync"],
  "node:net": ["createServer"],
  "node:zlib": ["crc32"],
};

/** Loads these modules when a function of theirs is first called. */
const whenCalled = {
  name: "modules of Node when they are called",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^node:/ }, ({ path }) => (path in USED_LATER ? { path, namespace: "later" } : undefined));
    onLoad({ filter: /.*/, namespace: "later" }, ({ path }) => ({
      contents: USED_LATER[path]
        .map((name) => `export const ${name} = (...all) => process.getBuiltinModule("${path}").${name}(...all);`)
        .join("\n"),
    }));
  },
};

/** The licences of the packages of which a file was made. */
function licencesOf({ inputs }) {
  const packages = new Set(
    Object.keys(inputs).flatMap((file) => file.match(/^node_modules\/(?:@[^/]+\/)?[^/]+/)?.[0] ?? []),
  );
  const texts = [...packages].sort().map((folder) => {
    const { name, version } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
    const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
    return `${name} ${version}\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}

try {
  const options = {
    bundle: true,
    platform: "node",
    // Loading it takes 4 ms less than an ES module does.
    format: "cjs",
    target: "node20.19",
    // A script that is run from kept code knows no import(): what is loaded later is required.
    supported: { "dynamic-import": false },
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: "none",
    // start.ts counts on it.
    charset: "ascii",
    external: ["vscode-jsonrpc", "vscode-jsonrpc/*"],
    logLevel: "warning",
  };
  mkdirSync(`${fresh}/bin`, { recursive: true });
  const { outputFiles } = await build({
    ...options,
    entryPoints: ["src/cli/main.ts"],
    plugins: [
      await commandsWhenAskedFor(),
      besides("conformance"),
      besides("redact"),
      besides("page"),
      besides("view"),
    ],
    // It is run by start.ts, which says where it stands.
    define: { "import.meta.url": "PROGRAM_URL" },
    write: false,
  });
  const program = outputFiles[0].text.replace(/^#!.*\n/, "");
  writeFileSync(`${fresh}/bin/program.js`, program);
  await build({
    ...options,
    entryPoints: { conformance: "src/conformance/main.ts" },
    outdir: `${fresh}/bin`,
    define: { "import.meta.url": "KIT_URL" },
    banner: { js: '"use strict";const KIT_URL=require("node:url").pathToFileURL(__filename).href;' },
  });
  await build({ ...options, entryPoints: { redact: "src/core/redact/main.ts" }, outdir: `${fresh}/bin` });
  const { metafile } = await build({
    ...options,
    entryPoints: { page: "src/page/main.ts" },
    outdir: `${fresh}/bin`,
    plugins: [inPlaceOf("src/page/script.ts", await pageScriptModule())],
    // Names are half of what the libraries are.
    minify: true,
    metafile: true,
  });
  await build({
    ...options,
    entryPoints: { view: "src/view/main.ts" },
    outdir: `${fresh}/bin`,
    plugins: [besides("page")],
  });
  writeFileSync(`${fresh}/bin/page.LICENSES.txt`, licencesOf(metafile));
  writeFileSync(`${fresh}/bin/package.json`, '{ "type": "commonjs" }\n');
  await build({
    ...options,
    entryPoints: { "pi-session-server": "src/cli/start.ts" },
    outdir: `${fresh}/bin`,
    define: {
      "import.meta.url": "START_URL",
      BUILD: JSON.stringify(createHash("sha256").update(program).digest("hex").slice(0, 16)),
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
  // The same types as in the sources, written out: nobody's compiler has to read the declarations and their library.
  writeFileSync(`${fresh}/lib/client/protocol.d.ts`, 'export type * from "../../schema/protocol.js";\n');
  rmSync(`${fresh}/lib/client/conversation.d.ts`);
  // One file in place of 90 that import each other: of the time that the import took, a quarter is left.
  const modules = { bundle: true, platform: "node", format: "esm", target: "node20.19", legalComments: "none" };
  await build({
    ...modules,
    logLevel: "warning",
    entryPoints: ["src/index.ts"],
    plugins: [whenCalled],
    outfile: `${fresh}/lib/index.js`,
  });
  await build({
    ...modules,
    logLevel: "warning",
    entryPoints: ["src/client/index.ts"],
    plugins: [inPlaceOf("src/client/repetitions.ts", `export const repetitions = ${JSON.stringify(repetitions)};`)],
    outfile: `${fresh}/lib/client/index.js`,
  });

  if (existsSync("dist")) renameSync("dist", `${fresh}.old`);
  renameSync(fresh, "dist");
} finally {
  for (const left of [fresh, `${fresh}.old`]) rmSync(left, { recursive: true, force: true });
}
