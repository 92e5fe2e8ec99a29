// Bundles the program and the parts that it loads when they are needed.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, resolve as resolvePath } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { getEntryFiles, loadPartsLater, makePart, takeSharedFiles } from "./lazy-modules.js";
import { buildPageScript } from "./page-script.js";

/** Returns the exports of a module. */
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
export const replaceFile = (file, contents) => ({
  name: `in place of ${file}`,
  setup: ({ onLoad }) =>
    onLoad({ filter: new RegExp(`${file}$`) }, ({ path }) => ({ contents, resolveDir: dirname(path) })),
});

/** The names of the table of commands, and for each the file that is loaded with its first use. */
async function commandsWhenAskedFor(folder) {
  const { commandTable } = await exportsOf("src/handlers/shared/table.ts", folder);
  const files = commandTable.flatMap(({ name, alias }) =>
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
  return replaceFile("src/handlers/shared/find.ts", contents);
}

/** Leaves a part out of the program: it is a file of its own, which is loaded by what needs it. */
const besides = (part) => ({
  name: `${part} besides`,
  setup: ({ onResolve }) =>
    onResolve({ filter: new RegExp(`${part}/main\\.ts$`) }, () => ({ path: `./${part}.js`, external: true })),
});

/** Loads modules of Node when a function of theirs is first called: `used` has the names of these, by module. */
export const loadWhenCalled = (used) => ({
  name: "modules of Node when they are called",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^node:/ }, ({ path }) => (path in used ? { path, namespace: "called" } : undefined));
    onLoad({ filter: /.*/, namespace: "called" }, ({ path }) => ({
      contents: used[path]
        .map((name) => `export const ${name} = (...all) => process.getBuiltinModule("${path}").${name}(...all);`)
        .join("\n"),
    }));
  },
});

/** Puts notes of schemas in the place of schemas. */
export const notedSchemas = {
  name: "notes of schemas",
  setup({ onResolve, resolve }) {
    onResolve({ filter: /^zod$/ }, ({ importer, kind }) => {
      if (!importer.includes("/src/") || importer.endsWith("/schema-library.ts")) return;
      return resolve("./noted-schemas.ts", { kind, importer, resolveDir: resolvePath("src/core/format") });
    });
  },
};

/** Functions that a first reply does not need, of a module that takes 2 ms to load. */
const CRYPTO = {
  "node:crypto": ["createHash", "hash", "randomBytes", "randomFillSync", "randomUUID", "timingSafeEqual"],
};

/** Returns the licences of the packages that files were made from. */
export function collectLicences(...metafiles) {
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

/** Replacements for functions that read files of the package, which are assets in the one file with Node. */
const ASSETS = {
  "src/cli/schema-files.ts": `
    import { getRawAsset } from "node:sea";
    export const readSchemaFile = (name) => new Uint8Array(getRawAsset("dist/schema/" + name)).slice();`,
};

/** Returns a hash of the sources and of the build's tools. */
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
  // A script that is run from kept code has no import(): later parts are required.
  supported: { "dynamic-import": false },
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: "none",
  // start.ts counts on it.
  charset: "ascii",
  logLevel: "warning",
  logOverride: { "import-is-undefined": "error" },
};

/** The parts next to the program that share nothing with it, with the source folder of each. */
const PARTS = { conformance: "conformance", redact: "core/redact", page: "page", view: "view" };

/** The names of the files that buildProgram writes. */
export const FILES = ["program", "storage", "later", "recall", ...Object.keys(PARTS)];

/**
 * Writes the program and its parts into a folder. With `isWhole` they need nothing but Node, and say where they stand by
 * PROGRAM_URL, as the program always does. Returns the text of what start.ts
 * runs, and what each file was made of.
 */
export async function buildProgram(folder, { isWhole = false } = {}) {
  mkdirSync(folder, { recursive: true });
  // Its parts are scripts that load each other, wherever the folder lies.
  writeFileSync(`${folder}/package.json`, '{ "type": "commonjs" }\n');
  // It is run by start.ts, or by standalone.ts, which say where it stands.
  const define = { "import.meta.url": "PROGRAM_URL", SOURCES: JSON.stringify(sourcesHash()) };
  const whole = isWhole ? { external: ["pg-native"], define, metafile: true } : { metafile: true };
  const plugins = isWhole ? Object.entries(ASSETS).map(([file, contents]) => replaceFile(file, contents)) : [];
  const programPlugins = [
    await commandsWhenAskedFor(folder),
    ...Object.keys(PARTS).map(besides),
    loadWhenCalled(CRYPTO),
    notedSchemas,
    ...plugins,
  ];
  const program = (shared) =>
    build({
      ...OPTIONS,
      ...whole,
      entryPoints: ["src/cli/main.ts"],
      plugins: [loadPartsLater(shared), ...programPlugins],
      define,
      write: false,
    });
  const inputsOf = ({ metafile }) => Object.keys(metafile.inputs);
  const ofProgram = new Set(inputsOf(await program([])));
  const shared = new Set();
  const storagePart = (files, more) =>
    build({
      ...OPTIONS,
      ...whole,
      ...makePart(files),
      plugins: [takeSharedFiles(ofProgram, shared), ...programPlugins],
      define,
      outfile: `${folder}/storage.js`,
      ...more,
    });
  const ofStorage = new Set(inputsOf(await storagePart(getEntryFiles("storage"), { write: false })));
  const taken = new Set();
  const partBesides = (name) =>
    build({
      ...OPTIONS,
      ...whole,
      ...makePart(getEntryFiles(name)),
      plugins: [takeSharedFiles(new Set([...ofProgram, ...ofStorage]), taken), ...programPlugins],
      define,
      outfile: `${folder}/${name}.js`,
    });
  const later = await partBesides("later");
  const recall = await partBesides("recall");
  const storage = await storagePart([
    ...new Set([...getEntryFiles("storage"), ...[...taken].filter((file) => !ofProgram.has(file))]),
  ]);
  for (const file of taken) if (ofProgram.has(file)) shared.add(file);
  const { outputFiles, metafile } = await program([...shared]);
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
  const page = { plugins: [replaceFile("src/page/script.ts", await buildPageScript())], minify: true };
  const ofPage = await part("page", page);
  writeFileSync(`${folder}/page.LICENSES.txt`, collectLicences(ofPage));
  const made = [
    metafile,
    storage.metafile,
    later.metafile,
    recall.metafile,
    await part("conformance", isWhole ? {} : kit),
    await part("redact"),
    ofPage,
    await part("view", { plugins: [besides("page")] }),
  ];
  const texts = ["storage", "later", "recall"].map((name) => readFileSync(`${folder}/${name}.js`, "utf8"));
  return { text: [text, ...texts].join(""), metafiles: made };
}
