/** The package as it would be published: what is in it, and what it is to those who install it. */

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const MANIFEST = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

/** A host that uses what the client and the types have. */
const HOST = `
import { type Commands, type Events, RequestFailure, spawnServer } from "pi-session-server/client";
import type { AppendParams, Entry, SessionTreeEvent } from "pi-session-server/schema";

const server = await spawnServer({
  args: ["--session-dir", process.argv[2]],
  hooks: { session_before_fork: ({ entryId }) => ({ cancel: entryId === "nope" }) },
});
const entries: AppendParams["entries"] = [{ type: "message", message: { role: "user", content: "Hello" } }];
const { entryIds } = await server.request("append", { entries });
const [first]: Entry[] = (await server.request("get_entries")).entries;
const texts = new Set<string>();
for await (const page of server.pages("list_sessions")) for (const { preview } of page.sessions) texts.add(String(preview));
const moved: SessionTreeEvent[] = [];
server.on("session_tree", (event: Events["session_tree"]) => moved.push(event));
const state: Commands["get_state"]["result"] = await server.request("get_state");
const failure = await server.request("get_entry", { entryId: "none" }).catch((error: unknown) => error);
await server.close();
console.log(
  first.id === entryIds[0],
  state.messageCount,
  failure instanceof RequestFailure && failure.name === "entry_not_found",
);
`;

/** Packs the package and puts it, with what it depends on, where an installer would. Returns the folder of the host. */
function installed(): { folder: string; files: string[] } {
  const folder = mkdtempSync(join(tmpdir(), "pi-session-server-"));
  const packed = execFileSync("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder], {
    cwd: ROOT,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const described = JSON.parse(packed);
  const [{ filename, files }] = Array.isArray(described) ? described : (Object.values(described) as never);
  mkdirSync(join(folder, "node_modules"));
  execFileSync("tar", ["-xzf", join(folder, filename), "-C", folder]);
  cpSync(join(folder, "package"), join(folder, "node_modules", MANIFEST.name), { recursive: true });
  for (const name of [...Object.keys(MANIFEST.dependencies), "@types", "undici-types"])
    symlinkSync(join(ROOT, "node_modules", name), join(folder, "node_modules", name));
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  return { folder, files: files.map(({ path }: { path: string }) => path) };
}

const place = installed();
afterAll(() => rmSync(place.folder, { recursive: true, force: true }));

test("links of the README lead to files of the package", () => {
  for (const document of ["README.md", "protocol.md", "ARCHITECTURE.md", "CHANGELOG.md"]) {
    expect(place.files).toContain(document);
    const links = [...readFileSync(join(ROOT, document), "utf8").matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)];
    expect(
      links.map(([, link]) => normalize(link)).filter((link) => !has(link)),
      document,
    ).toEqual([]);
  }
  function has(link: string): boolean {
    return place.files.some((path) => path === link || path.startsWith(`${link.replace(/\/$/, "")}/`));
  }
});

test("what is exported is there", () => {
  const targets = JSON.stringify(MANIFEST.exports).match(/\.\/[^"]+/g) as string[];
  const paths = targets.filter((target) => target.startsWith("./dist") && !target.includes("*"));
  expect(paths.length).toBeGreaterThan(4);
  for (const path of paths) expect(place.files).toContain(normalize(path));
  expect(place.files.filter((path) => /^(?:src|test|bench|scripts|node_modules)\//.test(path))).toEqual([]);
});

test.each([
  ["nodenext", { module: "nodenext", moduleResolution: "nodenext" }],
  ["node16", { module: "node16", moduleResolution: "node16" }],
  ["bundler", { module: "esnext", moduleResolution: "bundler" }],
])("a host in strict TypeScript compiles under %s and runs", (_name, options) => {
  const { folder } = place;
  writeFileSync(join(folder, "host.ts"), HOST);
  const compilerOptions = {
    ...options,
    target: "es2022",
    lib: ["es2023"],
    types: ["node"],
    strict: true,
    skipLibCheck: false,
  };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["host.ts"] }));
  const compiler = join(ROOT, "node_modules/typescript/bin/tsc");
  const compile = (): string => {
    try {
      return execFileSync(process.execPath, [compiler, "-p", folder], { encoding: "utf8" });
    } catch (error) {
      return (error as { stdout: string }).stdout;
    }
  };
  expect(compile()).toBe("");
  const out = execFileSync(process.execPath, ["host.js", join(folder, "sessions")], { cwd: folder, encoding: "utf8" });
  expect(out).toBe("true 1 true\n");
  expect(existsSync(join(folder, "sessions"))).toBe(true);
});

test("the program of the README compiles and prints what stands there", () => {
  const { folder } = place;
  const readme = readFileSync(join(ROOT, "README.md"), "utf8");
  const [, program, printed] = /```ts\n([\s\S]*?)```\n\nIt prints:\n\n```text\n([\s\S]*?)```/.exec(readme) ?? [];
  writeFileSync(join(folder, "readme.ts"), program);
  const compilerOptions = { module: "nodenext", target: "es2022", lib: ["es2023"], types: ["node"], strict: true };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["readme.ts"] }));
  execFileSync(process.execPath, [join(ROOT, "node_modules/typescript/bin/tsc"), "-p", folder], { stdio: "inherit" });
  const env = { PATH: process.env.PATH, HOME: folder, PI_SESSION_SERVER_STATE_DIR: join(folder, "state") };
  expect(execFileSync(process.execPath, ["readme.js"], { cwd: folder, env, encoding: "utf8" })).toBe(printed);
});

test("require works where Node can load modules with it", () => {
  const [major, minor] = process.versions.node.split(".").map(Number);
  expect(major > 20 || minor >= 19).toBe(true);
  const script = 'const { spawnServer } = require("pi-session-server/client"); console.log(typeof spawnServer);';
  const out = execFileSync(process.execPath, ["--input-type=commonjs", "-e", script], {
    cwd: place.folder,
    encoding: "utf8",
  });
  expect(out).toBe("function\n");
});
