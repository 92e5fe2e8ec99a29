/**
 * The package as it would be published: its files, and its use by those who install it.
 *
 * @module-tag sweep
 */

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { needProgram, needs } from "./support/needs.ts";
import { share } from "./support/random.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const MANIFEST = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

/** Packs the package and puts it, with its dependencies, where an installer would. Returns the folder of the host. */
function installed(): { folder: string; files: string[] } {
  const folder = mkdtempSync(join(tmpdir(), "pi-session-server-"));
  const options = ["--json", "--ignore-scripts", "--cache", join(folder, "cache"), "--pack-destination", folder];
  const packed = execFileSync("npm", ["pack", ...options], {
    cwd: ROOT,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const [{ filename, files }] = Object.values(JSON.parse(packed)) as { filename: string; files: { path: string }[] }[];
  mkdirSync(join(folder, "node_modules"));
  execFileSync("tar", ["-xzf", join(folder, filename), "-C", folder]);
  cpSync(join(folder, "package"), join(folder, "node_modules", MANIFEST.name), { recursive: true });
  for (const name of [...Object.keys(MANIFEST.dependencies), "@types", "undici-types"])
    symlinkSync(join(ROOT, "node_modules", name), join(folder, "node_modules", name));
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  return { folder, files: files.map(({ path }) => path) };
}

const NPM = needProgram("npm");

const place = NPM.isHere() ? installed() : { folder: "", files: [] };

describe("the package", needs(NPM), () => {
  afterAll(() => rmSync(place.folder, { recursive: true, force: true }));

  test("links of the README lead to files of the package", () => {
    for (const document of ["README.md", "protocol.md", "ARCHITECTURE.md", "CHANGELOG.md"]) {
      expect(place.files).toContain(document);
      // Pictures are shown from the repository, and code has patterns that look like links.
      const text = readFileSync(join(ROOT, document), "utf8").replace(/`[^`\n]*`/g, (code) =>
        code.includes("](") ? "" : code,
      );
      const links = [...text.matchAll(/(?<!!\[[^\]]*)\]\((?!https?:|#)([^)#\s]+)/g)];
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

  /** Compiles programs in the folder of the host. Returns what the compiler says. */
  function compiled(programs: Readonly<Record<string, string>>, options: object = {}): string {
    const { folder } = place;
    for (const [name, text] of Object.entries(programs)) writeFileSync(join(folder, name), text);
    const common = { module: "nodenext", target: "es2022", lib: ["es2023"], types: ["node"] };
    const compilerOptions = { ...common, strict: true, skipLibCheck: false, ...options };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: Object.keys(programs) }));
    try {
      return execFileSync(process.execPath, [join(ROOT, "node_modules/typescript/bin/tsc"), "-p", folder], {
        encoding: "utf8",
      });
    } catch (error) {
      return (error as { stdout: string }).stdout;
    }
  }

  /** The program of the README, and what it prints. */
  const [, README_PROGRAM, README_PRINTS] =
    /```ts\n([\s\S]*?)```\n\nIt prints:\n\n```text\n([\s\S]*?)```/.exec(
      readFileSync(join(ROOT, "README.md"), "utf8"),
    ) ?? [];

  /** Every line after a remark is one that the compiler must refuse; all others must compile. */
  const TYPED = `
import { type Client, type Commands, type Draft, type Entry, type Events, type Message, type OtherName, RequestFailure, spawnServer } from "pi-session-server/client";
import type { AppendParams, EntryCompaction, Failure, InitializeParams, RoleUser, SessionBeforeTreePayload, SessionTreeEvent } from "pi-session-server/schema";

export const forking = () =>
  spawnServer({ hooks: { session_before_fork: ({ entryId }) => ({ cancel: entryId === "nope" }) } });

export async function write(client: Client, texts: readonly string[]) {
  const drafts: Draft[] = [];
  for (const content of texts) drafts.push({ type: "message", message: { role: "user", content } });
  const params: AppendParams = {
    entries: texts.map((text) => ({ type: "message", message: { role: "assistant", content: [{ type: "text", text }] } })),
  };
  const { entryIds } = await client.request("append", params);
  const { entries } = await client.request("get_entries");
  await client.request("append", { entries: [...drafts, ...entries, { type: "my_type" as OtherName, mine: 1 }] });
  for await (const page of client.pages("list_sessions")) for (const { firstMessage } of page.sessions) entryIds.push(String(firstMessage));
  const moved: SessionTreeEvent[] = [];
  client.on("session_tree", (event: Events["session_tree"]) => moved.push(event));
  await client.request("get_state").catch((error: unknown) => error instanceof RequestFailure && error.name);
  // @ts-expect-error a type that is not listed is written knowingly
  await client.request("append", { entries: [{ type: "mesage", message: { role: "user", content: "" } }] });
  // @ts-expect-error a misspelt member
  await client.request("append", { entries: [{ type: "message", mesage: { role: "user", content: "" } }] });
  // @ts-expect-error a misspelt member of a message
  await client.request("append", { entries: [{ type: "message", message: { role: "user", contents: "" } }] });
  // @ts-expect-error a misspelt member of params
  await client.request("append", { entries: drafts, expectedLeaf: null });
  // @ts-expect-error never succeeds, so there is nothing to use
  (await client.request("prompt", { message: "Hello" })).text;
  // @ts-expect-error it has no pages
  client.pages("prompt");
}

export function read(entry: Entry): string {
  // @ts-expect-error which type it is must be asked first
  entry.message;
  switch (entry.type) {
    case "message":
      // @ts-expect-error a misspelt member
      entry.mesage;
      return textOf(entry.message) + entry.id;
    case "compaction": {
      const compaction: EntryCompaction = entry;
      return compaction.summary + (entry.usage?.cost?.total ?? 0);
    }
    case "label":
      return entry.label ?? entry.targetId;
    // @ts-expect-error no such type
    case "mesage":
      return "";
    default: {
      const mine: unknown = (entry as Entry & { type: OtherName }).anything;
      return String(mine) + entry.id;
    }
  }
}

export function textOf(message: Message): string {
  if (message.role === "user") {
    const asked: RoleUser = message;
    // @ts-expect-error a member of another role
    message.stopReason;
    const { content = [] } = asked;
    return typeof content === "string" ? content : content.map((block) => (block.type === "text" ? block.text : "")).join("");
  }
  if (message.role === "assistant" && typeof message.content === "object")
    for (const block of message.content) {
      // @ts-expect-error only a text block has it
      block.text;
      if (block.type === "toolCall") return block.name + String(block.arguments.path);
    }
  const all: Record<string, unknown> = message;
  return String(all.anything);
}

export function rest(
  tree: Commands["get_tree"]["result"]["tree"],
  page: Commands["get_messages"]["result"],
  { preparation }: SessionBeforeTreePayload,
  failure: Failure,
): string[] {
  const introduced: InitializeParams = { processId: 5, rootUri: null, trace: "off" };
  const deep = tree?.[0]?.children[0]?.children[0]?.entry;
  // @ts-expect-error a misspelt member of a result
  page.mesages;
  return [failure.data.name, String(introduced.processId), deep ? read(deep) : "", ...page.messages.map(textOf), ...preparation.entriesToSummarize.map(read)];
}
`;

  const RESOLUTIONS = [{ module: "node16" }, { module: "esnext", moduleResolution: "bundler" }];

  test.each([{ module: "nodenext" }, ...share(RESOLUTIONS, 1)])(
    "hosts compile and run under $module, where types refuse what is misspelt",
    (options) => {
      const { folder } = place;
      const storing = README_PROGRAM.replace('"--no-session"', '"--continue"');
      expect(compiled({ "readme.ts": README_PROGRAM, "storing.ts": storing, "typed.ts": TYPED }, options)).toBe("");
      const env = { PATH: process.env.PATH, HOME: folder, PI_SESSION_SERVER_STATE_DIR: join(folder, "state") };
      for (const program of ["readme.js", "storing.js"])
        expect(execFileSync(process.execPath, [program], { cwd: folder, env, encoding: "utf8" })).toBe(README_PRINTS);
      expect(existsSync(join(folder, ".pi/agent/sessions"))).toBe(true);
      rmSync(join(folder, ".pi"), { recursive: true });
    },
  );

  test("the client's types bring the types of Node with them", () => {
    const text = 'import { spawnServer } from "pi-session-server/client";\nexport const server = spawnServer();\n';
    expect(compiled({ "bare.ts": text }, { types: [] })).toBe("");
  });

  test("an editor has a sentence for each command, event and hook, and strikes those that always fail", () => {
    const text = readFileSync(join(ROOT, "dist/schema/protocol.d.ts"), "utf8");
    for (const table of ["Commands", "Events", "Hooks"]) {
      const [, body] = text.match(new RegExp(`^export interface ${table} \\{\\n(.*?)^\\}`, "ms")) as RegExpMatchArray;
      const members = [...body.matchAll(/^( {2}\/\*\*\n(?: {3}\*.*\n)+)? {2}"?([\w.]+)"?:/gm)];
      expect(members.length).toBeGreaterThan(3);
      expect(members.filter(([, comment]) => comment === undefined).map(([, , name]) => name)).toEqual([]);
      const struck = members.filter(([, comment]) => comment.includes("@deprecated")).map(([, , name]) => name);
      if (table === "Commands") expect(struck).toEqual(["prompt", "steer", "follow_up", "bash"]);
    }
  });

  test("the example client, copied into a project, finds the server and outlives what goes wrong", () => {
    const { folder } = place;
    cpSync(join(ROOT, "examples/client.js"), join(folder, "client.js"));
    const script = `
    import { Client, isolatedEnvironment } from "./client.js";
    const here = { env: isolatedEnvironment(process.argv[2]), cwd: process.argv[2] };
    const onHook = () => { throw new Error("not now"); };
    const client = new Client(["--no-session"], { ...here, onHook });
    await client.request("initialize", { capabilities: { hooks: [{ name: "session_before_switch" }] } });
    client.child.stdin.write("no JSON\\n");
    const { cancelled, reason } = await client.request("new_session");
    console.log(cancelled, reason, await client.close(), client.complaints);`;
    writeFileSync(join(folder, "copied.mjs"), script);
    const out = execFileSync(process.execPath, [join(folder, "copied.mjs"), folder], { encoding: "utf8" });
    expect(out).toMatch(/^true hook_failed 0 \S/);
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

  test("what most servers are asked for needs the first file of the program alone", () => {
    const bin = join(mkdtempSync(join(tmpdir(), "pi-session-server-first-")), "bin");
    cpSync(join(ROOT, "dist/bin"), bin, {
      recursive: true,
      filter: (path) => !/(storage|later|recall)\.js$/.test(path),
    });
    const entries = [{ type: "message", message: { role: "user", content: "Hello" } }];
    const methods = ["append", "get_state", "get_messages", "get_tree", "new_session", "list_sessions"];
    const requests = methods.map((method, id) => {
      return JSON.stringify({ jsonrpc: "2.0", id, method, params: method === "append" ? { entries } : {} });
    });
    const text = execFileSync(process.execPath, [join(bin, "pi-session-server.js"), "--events", "none"], {
      cwd: bin,
      encoding: "utf8",
      env: { PATH: process.env.PATH, HOME: join(bin, "..") },
      input: `${requests.join("\n")}\n`,
      stdio: ["pipe", "pipe", "ignore"],
    });
    const replies = text.trimEnd().split("\n");
    const answered = replies.map((line) => JSON.parse(line)).filter(({ error }) => error === undefined);
    // The last one needs more than that file, so it fails.
    expect(answered.map(({ id }) => methods[id])).toEqual(methods.slice(0, -1));
    rmSync(join(bin, ".."), { recursive: true });
  });
});
