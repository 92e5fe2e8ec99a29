/**
 * The rules of the house that no compiler keeps (ARCHITECTURE.md). Each list of exceptions is exact: a repair takes its
 * entry out.
 */

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const SRC = fileURLToPath(new URL("../src", import.meta.url));

const TEXTS = new Map(
  readdirSync(SRC, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .sort()
    .map((name) => [name.replaceAll("\\", "/"), readFileSync(join(SRC, name), "utf8")]),
);

const IMPORT = /(?:^|\n)(?:import|export)\b[^'"`;]*?["']([^"']+)["'];|\bimport\(\s*["']([^"']+)["']\s*\)/g;

/** The imports of each file: files of ours by their path, modules by their name. */
const IMPORTS = new Map(
  [...TEXTS].map(([file, text]) => [
    file,
    [...text.matchAll(IMPORT)].map(([, whole, called]) => {
      const name = whole ?? called;
      return name.startsWith(".") ? normalize(join(dirname(file), name)).replaceAll("\\", "/") : name;
    }),
  ]),
);

/** The groups of those that reach each other, of two and more, by Tarjan's algorithm. */
function circlesIn(graph: ReadonlyMap<string, Iterable<string>>): string[][] {
  const found: string[][] = [];
  const numbers = new Map<string, number>();
  const lows = new Map<string, number>();
  const stack: string[] = [];
  const visit = (at: string): void => {
    numbers.set(at, numbers.size);
    lows.set(at, numbers.size - 1);
    stack.push(at);
    for (const next of graph.get(at) ?? []) {
      if (!numbers.has(next)) visit(next);
      if (stack.includes(next)) lows.set(at, Math.min(lows.get(at) as number, lows.get(next) as number));
    }
    if (lows.get(at) !== numbers.get(at)) return;
    const circle = stack.splice(stack.indexOf(at));
    if (circle.length > 1) found.push(circle.sort());
  };
  for (const at of graph.keys()) if (!numbers.has(at)) visit(at);
  return found;
}

/** Returns those of the files that this build has: a module may be left out. */
const present = (files: string): string =>
  files
    .split(" ")
    .filter((file) => TEXTS.has(file))
    .join(" ");

/** The depth of the folders with rooms of their own. */
const DEPTHS: Readonly<Record<string, number>> = { core: 2, storage: 2, server: 2, modules: 3 };

/** Returns the room that a file is in. The contracts of the server with its modules are a room by themselves. */
function getFolder(file: string): string {
  if (/^server\/(?:face|\w+-module)\.ts$/.test(file)) return "server's contracts";
  const parts = file.split("/").slice(0, -1);
  // Each file beside the folders is a room of its own.
  return parts.length === 0 ? file : parts.slice(0, DEPTHS[parts[0]] ?? 1).join("/");
}

/** Returns the folder of the module that a file is of, and of other files the folder beside the modules. */
const getModule = (file: string): string => file.split("/").slice(0, 2).join("/");

test("circles are found", () => {
  const graph = new Map(Object.entries({ a: ["b"], b: ["c", "d"], c: ["a"], d: ["d"] }));
  expect(circlesIn(graph)).toEqual([["a", "b", "c"]]);
});

test("no two files import each other, by whatever way", () => {
  expect(IMPORTS.size).toBeGreaterThan(200);
  expect(circlesIn(IMPORTS)).toEqual([]);
});

test("no two rooms import from each other, by whatever way", () => {
  const folders = new Map<string, Set<string>>();
  for (const [file, names] of IMPORTS) {
    const folder = getFolder(file);
    const known = folders.get(folder) ?? new Set();
    folders.set(folder, known);
    for (const name of names) if (TEXTS.has(name) && getFolder(name) !== folder) known.add(getFolder(name));
  }
  expect(folders.size).toBeGreaterThan(15);
  expect(circlesIn(folders)).toEqual([]);
});

test("only compose.ts imports a module, and only its door", () => {
  const found = [...IMPORTS].flatMap(([file, names]) =>
    names
      .filter((name) => name.startsWith("modules/") && TEXTS.has(name) && getModule(name) !== getModule(file))
      .filter((name) => file !== "compose.ts" || name !== `${getModule(name)}/index.ts`)
      .map((name) => `${name} in ${file}`),
  );
  expect(found).toEqual([]);
});

test("what touches the world has one importer each", () => {
  const importersOf = (...names: readonly string[]): string =>
    [...IMPORTS].flatMap(([file, all]) => (all.some((name) => names.includes(name)) ? file : [])).join(" ");
  // The conformance kit looks at files as any other program does.
  expect(importersOf("node:fs", "node:fs/promises")).toBe("conformance/files.ts storage/fs/disk.ts");
  // The command line asks which kind of stream it has, and a web server which port.
  expect(importersOf("node:net")).toBe(
    present("cli/main.ts modules/attach/sockets.ts storage/locks/socket-lock.ts view/web.ts"),
  );
  expect(importersOf("uuid")).toBe("storage/system-env.ts");
  expect(importersOf("node:http", "node:https", "node:http2")).toBe("view/web.ts");
  const naming = (pattern: RegExp): string =>
    [...TEXTS].flatMap(([file, text]) => (pattern.test(text) ? file : [])).join(" ");
  expect(naming(/["'](?:node:sqlite|@photostructure\/sqlite)["']/)).toBe("storage/fs/sqlite.ts");
  expect(naming(/["']pg(?:-[\w-]+)?["']/)).toMatch(/^(modules\/fleet\/postgres\/driver\.ts)?$/);
  // The contract of the agents has its types only.
  expect(naming(/"node:child_process"/)).toBe(
    present(
      "cli/agent-version.ts cli/terminal/pager.ts cli/terminal/programs.ts client/spawn.ts conformance/launch.ts " +
        "modules/agents/behind/process.ts server/agents-module.ts storage/fs/processes.ts " +
        "storage/lifecycle/desktop-trash.ts storage/locks/flock.ts",
    ),
  );
});

test("no file is longer than 800 lines", () => {
  const long = [...TEXTS].filter(([, text]) => text.split("\n").length > 801).map(([file]) => file);
  expect(long).toEqual([]);
});

const EXPORTED_FUNCTION = /^export (?:async )?function\*? ?\w+|^export const \w+(?:: [^=\n]+)? = (?:async )?[(<]/gm;

test("no file exports more than 15 functions", () => {
  const allowed = {
    "cli/browse/list.ts": "the moves of one list",
    "cli/terminal/text.ts": "texts for a terminal",
    "conformance/steps.ts": "the words of the rules",
    "core/json/json.ts": "bytes as JSON",
    "core/search/listing.ts": "filters and orders of one list",
    "storage/fs/container-paths.ts": "names in a container",
    "storage/fs/disk.ts": "the contract of a disk, with what each caller asks of it",
    "storage/fs/files.ts": "what is done with files",
    "storage/fs/paths.ts": "names of our folders",
    "storage/v2/documents.ts": "how each document of a container is written and read",
    "storage/v2/pointer.ts": "the states of a container's pointer and those that ask for them",
  };
  const wide = [...TEXTS].filter(([, text]) => [...text.matchAll(EXPORTED_FUNCTION)].length > 15);
  expect(wide.map(([file]) => file)).toEqual(Object.keys(allowed));
});

const BAG = /^(?:export )?interface (\w*(?:Options|Host|Deps|Parts|Place|Means|Ends))\b[^{]*\{\n([\s\S]*?)^\}/gm;
const FUNCTION_MEMBER = /^ {2}(?:readonly )?\w+\??(?:\(|<\w|: \(?(?:<[^>]*>)?\()/gm;

/** The interfaces by which one part passes functions to another. */
const BAGS = [...TEXTS.values()].flatMap((text) =>
  [...text.matchAll(BAG)].map(([, name, body]) => ({ name, count: [...body.matchAll(FUNCTION_MEMBER)].length })),
);

/** Wide options of modules that may be missing. */
const OF_MODULES = {
  "modules/fleet/index.ts": {
    AdminPlace: "the copies of this machine, for the fleet's administration",
    LifeCyclePlace: "the copies of this machine, for operations on a fleet's sessions",
    ArrivalPlace: "the folders of this machine, for the sessions that come to it",
  },
  "modules/foreign/index.ts": { AgentPlace: "one agent's formats and folders" },
};

test("no options have more than 3 functions", () => {
  const allowed = {
    LifecycleDeps: "the storage around operations on sessions",
    ...Object.assign({}, ...Object.entries(OF_MODULES).map(([door, own]) => (TEXTS.has(door) ? own : {}))),
  };
  const wide = BAGS.filter(({ count }) => count > 3).map(({ name }) => name);
  expect(wide.sort()).toEqual(Object.keys(allowed).sort());
});

test("no part calls back into the whole that made it", () => {
  const allowed = {
    AskedHost: "the host that a hook asks: another program, and no callback",
    ViewHost: "the server that a viewer asks: another program's side, and no callback",
  };
  const hosts = BAGS.filter(({ name }) => name.endsWith("Host")).map(({ name }) => name);
  expect(hosts.sort()).toEqual(Object.keys(allowed));
});

/** The bodies of the classes of a file, by name. */
function classesIn(text: string): Map<string, string> {
  const bodies = new Map<string, string>();
  for (const { 1: name, index } of text.matchAll(/^(?:export )?(?:abstract )?class (\w+)/gm))
    bodies.set(name, text.slice(index, text.indexOf("\n}\n", index)));
  return bodies;
}

const FIELD = /^ {2}(?:(?:private|protected|readonly|static|override|declare|abstract) )*#?\w+[?!]?(?::|;| =)/gm;

test("no class has more than 25 fields", () => {
  const broad = [...TEXTS.values()].flatMap((text) =>
    [...classesIn(text)].filter(([, body]) => [...body.matchAll(FIELD)].length > 25).map(([name]) => name),
  );
  expect(broad).toEqual([]);
});

test("no class extends another of ours, but for errors", () => {
  const all = [...TEXTS.values()].join("\n");
  const heirs = [...all.matchAll(/class (\w+) extends (\w+)/g)].filter(
    ([, , parent]) => !/Error$|^Failure$|^Error$/.test(parent) && all.includes(`class ${parent} `),
  );
  expect(heirs.map(([, name]) => name)).toEqual([]);
});

test("no comment begins with What", () => {
  const found = [...TEXTS].flatMap(([file, text]) =>
    [...text.matchAll(/\/\*\*(?:\s+\*)? What\b[^\n]*/g)].map(([comment]) => `${file}: ${comment}`),
  );
  expect(found).toEqual([]);
});

test("no type has the name of another", () => {
  const files = new Map<string, string[]>();
  for (const [file, text] of TEXTS)
    for (const [, name] of text.matchAll(/^(?:export )?(?:abstract )?(?:class|interface|type) (\w+)/gm))
      files.set(name, [...(files.get(name) ?? []), file]);
  // Pi's names are the library's contract, and the protocol's are the client's.
  const contracts = ["library/types.ts", "client/protocol.ts", "client/conversation.ts"];
  const isContract = (file: string): boolean => contracts.includes(file);
  const twice = [...files].filter(([, where]) => where.filter((file) => !isContract(file)).length > 1);
  expect(twice).toEqual([]);
});
