// The parts of the program that few processes need: files of their own, which the first call into them loads. storage.js
// has lists, containers and other agents' sessions; later.js has verbs, agents and the fleet; recall.js has recall, whose
// clients start many processes. Both may use storage.js. A file of the program or of storage.js is in no other part: the
// others take it from there.
import { readFileSync } from "node:fs";
import { join, relative } from "node:path";

/** Files that are loaded by the first call of one of their functions, or by import(), by the file that does so. */
const STORAGE = {
  "src/compose.ts": ["./modules/foreign/index.ts"],
  "src/storage/stores.ts": [
    "./catalog/candidates.ts",
    "./catalog/catalog.ts",
    "./catalog/merge.ts",
    "./health/health.ts",
    "./lifecycle/import.ts",
    "./lifecycle/lifecycle.ts",
    "./lifecycle/output-file.ts",
    "./lifecycle/recorded-migrations.ts",
    "./v2/migration.ts",
    "./v2/store.ts",
  ],
};
const LATER = {
  "src/core/format/noted-schemas.ts": ["./schema-library.ts"],
  "src/cli/main.ts": ["./table.ts", "./run-verb.ts", "./help.ts", "./paging.ts", "./agent-version.ts"],
  "src/compose.ts": ["./modules/agents/index.ts", "./modules/fleet/index.ts"],
  "src/server/main.ts": ["./openrpc.ts"],
  "src/storage/stores.ts": ["./quarantined-entries.ts"],
};

const RECALL = { "src/compose.ts": ["./modules/recall/index.ts"] };

const edgesOf = (part, files) =>
  Object.entries(files).flatMap(([by, paths]) => paths.map((path) => ({ part, by, path, file: join(by, "..", path) })));
const edges = [...edgesOf("storage", STORAGE), ...edgesOf("later", LATER), ...edgesOf("recall", RECALL)];

/** The files through which the program enters a part. */
export const getEntryFiles = (part) => [...new Set(edges.filter((edge) => edge.part === part).map(({ file }) => file))];

/** Returns an object as text: it maps the path of each file to a function that loads the file and returns its exports. */
const loading = (paths) =>
  `{${paths.map((path) => `${JSON.stringify(path)}: () => require(${JSON.stringify(join(process.cwd(), path))})`).join(",\n")}}`;

/** Returns the names of what a file declares and exports, of these kinds of declarations. */
function namesIn(file, kinds) {
  const text = readFileSync(file, "utf8");
  const declared = [...text.matchAll(new RegExp(`^export (?:async )?(?:${kinds})\\*? (\\w+)`, "gm"))];
  return declared.map(([, name]) => name);
}

/** Returns the names of what a file passes on of other files, but types. */
function passedOn(file) {
  const lists = [...readFileSync(file, "utf8").matchAll(/^export \{([^}]*)\}/gm)].flatMap(([, list]) =>
    list.split(","),
  );
  const names = lists.map((name) => name.trim()).filter((name) => name !== "" && !name.startsWith("type "));
  return names.map((name) => name.split(" ").at(-1));
}

/** Returns lines that export values under names, also such as `null`. */
const withNames = (names, textOf) =>
  names.map((name) => `const of_${name} = ${textOf(name)}; export { of_${name} as ${name} };`);

/**
 * Has the program load those files from the parts. Each of their functions is one that loads them, and each class makes one
 * of theirs. `shared` are the files of the program that the parts use.
 */
export const loadPartsLater = (shared) => ({
  name: "parts in the program",
  setup({ onResolve, onLoad, onEnd }) {
    const met = new Set();
    onResolve({ filter: /^\.\/(storage|later|recall)\.js$/ }, ({ path }) => ({ path, external: true }));
    onResolve({ filter: /^later$/ }, ({ path }) => ({ path, namespace: "later" }));
    onResolve({ filter: /^\./ }, ({ path, importer, kind }) => {
      const edge = edges.find((one) => one.by === relative(".", importer) && one.path === path);
      if (!edge) return;
      met.add(edge);
      return {
        path: edge.file,
        namespace: kind === "dynamic-import" ? "imported later" : "called later",
        pluginData: edge,
      };
    });
    onLoad({ filter: /./, namespace: "later" }, () => ({
      contents: `
        const shared = ${loading(shared)};
        const ofProgram = (name) => shared[name]();
        let files, more, past;
        export const storage = (path) => (files ??= require("./storage.js")(ofProgram, import.meta.url))[path]();
        const ofBoth = (name) => (shared[name] ?? (() => storage(name)))();
        export const later = (path) => (more ??= require("./later.js")(ofBoth, import.meta.url))[path]();
        export const recall = (path) => (past ??= require("./recall.js")(ofBoth, import.meta.url))[path]();`,
      resolveDir: process.cwd(),
    }));
    onLoad({ filter: /./, namespace: "imported later" }, ({ path, pluginData: { part } }) => ({
      contents: `module.exports = require("later").${part}(${JSON.stringify(path)});`,
      resolveDir: process.cwd(),
    }));
    onLoad({ filter: /./, namespace: "called later" }, ({ path, pluginData: { part } }) => {
      const loaded = `${part}(${JSON.stringify(path)})`;
      const lines = [
        `import { ${part} } from "later";`,
        ...withNames(
          [...namesIn(path, "function"), ...passedOn(path)],
          (name) => `(...all) => ${loaded}.${name}(...all)`,
        ),
        ...namesIn(path, "class").map(
          (name) => `export function ${name}(...all) { return new (${loaded}.${name})(...all); }`,
        ),
      ];
      return { contents: lines.join("\n"), resolveDir: process.cwd() };
    });
    onEnd(() => ({
      errors: edges
        .filter((edge) => !met.has(edge))
        .map(({ by, path }) => ({ text: `scripts/lazy-modules.js names an import that is no more: ${path} in ${by}` })),
    }));
  },
});

/** Builds a part: a function that takes the shared modules and the location of the program. */
export const makePart = (files) => ({
  stdin: { contents: `module.exports = ${loading(files)};`, resolveDir: process.cwd(), sourcefile: "part" },
  banner: { js: 'module.exports=(SHARED,PROGRAM_URL)=>{"use strict";const module={exports:{}};' },
  footer: { js: "return module.exports}" },
});

/** Has a part take what files of others export from there. Notes in `taken` which ones it takes. */
export const takeSharedFiles = (others, taken) => ({
  name: "files that parts share",
  setup({ onResolve, onLoad, resolve }) {
    onResolve({ filter: /^\./ }, async ({ path, pluginData, ...from }) => {
      if (pluginData === "found") return;
      const found = await resolve(path, { ...from, pluginData: "found" });
      const file = relative(".", found.path);
      if (found.external || !file.startsWith("src/") || !others.has(file)) return;
      taken.add(file);
      return { path: file, namespace: "shared" };
    });
    onLoad({ filter: /./, namespace: "shared" }, ({ path }) => {
      const names = [...namesIn(path, "function|class|const|let"), ...passedOn(path)];
      const lines = [
        `const shared = SHARED(${JSON.stringify(path)});`,
        ...withNames(names, (name) => `shared.${name}`),
      ];
      return { contents: lines.join("\n") };
    });
  },
});
