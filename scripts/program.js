// Bundles the program and the parts that it loads when they are needed.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { pageScriptModule } from "./page-script.js";

/** What a module exports. */
async function exportsOf(entryPoint, folder) {
  const outfile = `${folder}/evaluated.mjs`;
  await build({
    entryPoints: [entryPoint],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    packages: "external",
  });
  const exported = await import(`${pathToFileURL(outfile)}?${entryPoint}`);
  rmSync(outfile);
  return exported;
}

/** Puts `contents` in place of a source file. */
export const inPlaceOf = (file, contents) => ({
  name: `in place of ${file}`,
  setup: ({ onLoad }) =>
    onLoad({ filter: new RegExp(`${file}$`) }, ({ path }) => ({ contents, resolveDir: dirname(path) })),
});

/** The names of the table of commands, and for each the file that is loaded with its first use. */
async function commandsWhenAskedFor(folder) {
  const { table } = await exportsOf("src/handlers/shared/table.ts", folder);
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

/** Files of the program that are loaded by the first call of one of their functions, by the file that calls them. */
const LATER = {
  "src/storage/stores.ts": [
    "./catalog/candidates.ts",
    "./catalog/catalog.ts",
    "./catalog/joint.ts",
    "./fleet/care-files.ts",
    "./fleet/failures.ts",
    "./fleet/kept.ts",
    "./fleet/store.ts",
    "./foreign/live.ts",
    "./foreign/store.ts",
    "./health/health.ts",
    "./lifecycle/import.ts",
    "./lifecycle/lifecycle.ts",
    "./lifecycle/output-file.ts",
    "./lifecycle/recorded-migrations.ts",
    "./v2/migration.ts",
    "./v2/store.ts",
  ],
  "src/server/main.ts": [
    "../storage/fleet/connect.ts",
    "../storage/fleet/identity.ts",
    "../storage/fleet/late-sweep.ts",
    "./agent/acp-proxy.ts",
    "./agent/process.ts",
  ],
  "src/server/host-connection.ts": [
    "./acp/conversation.ts",
    "./agent/acp-agents.ts",
    "./agent/editor-agents.ts",
    "./agent/pi-behind.ts",
  ],
};

/** Has the files of LATER loaded later. Each function of theirs is one that loads them, and each class makes one of theirs. */
const whenCalled = {
  name: "files of the program when they are called",
  setup({ onResolve, onLoad, onEnd }) {
    const met = new Set();
    onResolve({ filter: /^\./ }, ({ path, importer, kind }) => {
      const by = relative(".", importer);
      if (kind !== "import-statement" || !LATER[by]?.includes(path)) return;
      met.add(`${by} ${path}`);
      return { path: join(dirname(importer), path), namespace: "later" };
    });
    onLoad({ filter: /./, namespace: "later" }, ({ path }) => {
      const loaded = `require(${JSON.stringify(path)})`;
      const text = readFileSync(path, "utf8");
      const functions = [...text.matchAll(/^export (?:async )?function\*? (\w+)/gm)];
      const classes = [...text.matchAll(/^export class (\w+)/gm)];
      const lines = [
        ...functions.map(([, name]) => `export const ${name} = (...all) => ${loaded}.${name}(...all);`),
        ...classes.map(([, name]) => `export function ${name}(...all) { return new (${loaded}.${name})(...all); }`),
      ];
      return { contents: lines.join("\n"), resolveDir: dirname(path) };
    });
    onEnd(() => {
      const all = Object.entries(LATER).flatMap(([by, paths]) => paths.map((path) => `${by} ${path}`));
      const missing = all.filter((edge) => !met.has(edge));
      if (missing.length > 0)
        return { errors: missing.map((edge) => ({ text: `LATER has no import any more: ${edge}` })) };
    });
  },
};

/** The licences of the packages of which files were made. */
export function licencesOf(...metafiles) {
  const packages = new Set(
    metafiles
      .flatMap(({ inputs }) => Object.keys(inputs))
      .flatMap((file) => file.match(/^node_modules\/(?:@[^/]+\/)?[^/]+/)?.[0] ?? []),
  );
  const texts = [...packages].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
    const file = readdirSync(folder).find((found) => /^licen[cs]e/i.test(found));
    const text = file === undefined ? license : readFileSync(`${folder}/${file}`, "utf8").trim();
    return `${name} ${version}\n\n${text}\n`;
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}

/** What is in the place of functions that read files of the package, where these are assets in one file with Node. */
const ASSETS = {
  "src/cli/schema-files.ts": `
    import { getRawAsset } from "node:sea";
    export const schemaFile = (name) => new Uint8Array(getRawAsset("dist/schema/" + name)).slice();`,
  "src/conformance/transcript-files.ts": `
    import { getAsset, getAssetKeys } from "node:sea";
    const ours = (path) => path.startsWith("docs/conformance/");
    export const transcriptFiles = () => getAssetKeys().filter(ours).map((path) => [path.slice(17), getAsset(path, "utf8")]);`,
};

/** Returns a hash of the sources and of what they are built with. */
function sourcesHash() {
  const files = readdirSync("src", { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => `${parentPath}/${name}`)
    .sort();
  const hash = createHash("sha256");
  for (const file of ["package-lock.json", ...files]) hash.update(`${file}\0`).update(readFileSync(file));
  return hash.digest("hex").slice(0, 16);
}

export const OPTIONS = {
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

/** The parts beside the program, and what of the sources each is made of. */
export const PARTS = { conformance: "conformance", redact: "core/redact", page: "page", view: "view" };

/**
 * Writes the program and its parts into a folder. With `isWhole` they need nothing but Node, and say where they stand by
 * PROGRAM_URL, as the program always does. Returns the text of the program, and what each file was made of.
 */
export async function buildProgram(folder, { isWhole = false } = {}) {
  mkdirSync(folder, { recursive: true });
  // It is run by start.ts, or by standalone.ts, which say where it stands.
  const define = { "import.meta.url": "PROGRAM_URL", SOURCES: JSON.stringify(sourcesHash()) };
  const whole = isWhole ? { external: ["pg-native"], define, metafile: true } : { metafile: true };
  const plugins = isWhole ? Object.entries(ASSETS).map(([file, contents]) => inPlaceOf(file, contents)) : [];
  const { outputFiles, metafile } = await build({
    ...OPTIONS,
    ...whole,
    entryPoints: ["src/cli/main.ts"],
    plugins: [await commandsWhenAskedFor(folder), whenCalled, ...Object.keys(PARTS).map(besides), ...plugins],
    define,
    write: false,
  });
  const text = outputFiles[0].text.replace(/^#!.*\n/, "");
  writeFileSync(`${folder}/program.js`, text);
  const part = async (name, more) => {
    const entryPoints = { [name]: `src/${PARTS[name]}/main.ts` };
    return (await build({ ...OPTIONS, plugins, ...whole, ...more, entryPoints, outdir: folder })).metafile;
  };
  const kit = {
    define: { "import.meta.url": "KIT_URL" },
    banner: { js: '"use strict";const KIT_URL=require("node:url").pathToFileURL(__filename).href;' },
  };
  // Names are half of what the libraries are.
  const page = { plugins: [inPlaceOf("src/page/script.ts", await pageScriptModule())], minify: true };
  const made = [
    metafile,
    await part("conformance", isWhole ? {} : kit),
    await part("redact"),
    await part("page", page),
    await part("view", { plugins: [besides("page")] }),
  ];
  writeFileSync(`${folder}/page.LICENSES.txt`, licencesOf(made[3]));
  return { text, metafiles: made };
}
