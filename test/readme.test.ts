import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { writeCommandLine } from "../scripts/command-line.ts";
import { writeMap } from "../scripts/map.ts";
import { modules } from "../src/compose.ts";
import { spawnServer, temporaryPlace } from "./support/server.ts";
import { SYSTEM } from "./support/tiers.ts";
import { runHere } from "./support/verbs.ts";
import { IS_WHOLE } from "./support/whole.ts";

const pathOf = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url));
const textOf = (name: string): string => readFileSync(pathOf(name), "utf8");

const readme = textOf("README.md");
const commandLine = textOf("docs/command-line.md");
const guide = textOf("docs/build-an-agent.md");

/** The transcripts of the documents, with the options that the server was started with. */
const TRANSCRIPTS = [guide, textOf("docs/protocol-preface.md")].flatMap((text) =>
  [...text.matchAll(/<!-- transcript: pi-session-server (.*) -->\n\n```text\n([\s\S]*?)```/g)].map(
    ([, command, transcript]) => [command, transcript] as const,
  ),
);

const NAME = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=")[0-9a-f]{8}(?=")/g;

const timeless = (text: string): string => text.replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, "<time>");

test("there are transcripts in the guide for agents and in protocol.md, in both dialects", () => {
  const [ours, pis] = ["--no-session", "--mode rpc --no-session"];
  const commands = [ours, pis, "--no-session --events none"];
  expect(TRANSCRIPTS.map(([command]) => command)).toEqual(commands);
});

test.each(TRANSCRIPTS)("the transcript of %s is what the built server answers", SYSTEM, async (command, transcript) => {
  const lines = transcript.trimEnd().split("\n");
  const server = spawnServer(command.split(" "));
  // Each name that the document shows stands for one that the server gave, which is learned by its place.
  const given = new Map<string, string>();
  const named = (text: string): string => text.replace(NAME, (name) => given.get(name) ?? name);
  for (const line of lines) {
    const [direction, message] = [line.slice(0, 3), line.slice(4)];
    if (direction === "-->") {
      server.write(`${named(message)}\n`);
      continue;
    }
    const answered = JSON.stringify(await server.next());
    const names = answered.match(NAME) ?? [];
    for (const [i, name] of (message.match(NAME) ?? []).entries()) if (!given.has(name)) given.set(name, names[i]);
    expect(timeless(answered)).toBe(timeless(named(message)));
  }
  expect(new Set(given.values()).size).toBe(given.size);
  expect(await server.finish()).toEqual({ messages: [], status: 0 });
  expect(server.stderr).toBe("");
});

// A build without recall has no verbs of it.
test.skipIf(modules.recall === undefined)("docs/command-line.md has the options and verbs as they are declared", () => {
  expect(writeCommandLine(commandLine), "npm run docs writes it").toBe(commandLine);
});

test("the README has 150 lines at most, and its three lines of JSON-RPC begin the transcript of the guide", () => {
  expect(readme.split("\n").length).toBeLessThanOrEqual(151);
  const [, lines = ""] = /## Three lines of JSON-RPC\n\n```text\n([\s\S]*?)```/.exec(readme) ?? [];
  for (const line of lines.trimEnd().split("\n").slice(0, 2)) expect(guide).toContain(line);
});

test("no section or table is there twice", () => {
  const found: string[] = [readme, guide, commandLine].flatMap((text) => text.match(/^##+ .*$/gm) ?? []);
  expect(found.length).toBeGreaterThan(70);
  expect(found.filter((one, n) => found.indexOf(one) !== n)).toEqual([]);
});

test("a table begins with its head, and every row has as many cells", () => {
  const tables = `${readme}\n${commandLine}`.match(/^\|.*\n(?:\|.*\n)*/gm) ?? [];
  for (const lines of tables.map((table) => table.trimEnd().split("\n"))) {
    expect(lines[1]).toMatch(/^\|(?: ?-+ ?\|)+$/);
    const cells = (line: string): number => line.replaceAll("\\|", "").split("|").length;
    for (const line of lines) expect(cells(line), line).toBe(cells(lines[0]));
  }
});

/** The lines that documents show of a verb, with the words of its command. */
const SHOWN_LINES = [commandLine, textOf("docs/find-sessions.md")].flatMap((text) =>
  [...text.matchAll(/<!-- lines of: pi-session-server (.*) -->\n\n```text\n([\s\S]*?)```/g)].map(
    ([, command, lines]) => [command, lines] as const,
  ),
);

test.each(SHOWN_LINES)("the shown lines of %s are those that it prints", async (command, lines) => {
  const words = command.split(" ").map((word) => (word.startsWith("examples/") ? pathOf(word) : word));
  const { stdout, status } = await runHere(temporaryPlace(), words, { variables: { COLUMNS: "80" } });
  expect(status).toBe(0);
  expect(stdout).toContain(lines);
});

/** ARCHITECTURE.md, and the pages of the folders that it sends readers to. */
const PAGES = [
  "ARCHITECTURE.md",
  "scripts/README.md",
  ...["src", "src/modules"].flatMap((folder) =>
    readdirSync(new URL(`../${folder}`, import.meta.url), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => `${folder}/${name}/README.md`),
  ),
];

test.skipIf(!IS_WHOLE).each(PAGES)("links of %s, and the files that it names, lead to files", (page) => {
  const text = textOf(page);
  for (const [, target] of `${readme}${text}`.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)) {
    const isOfPage = text.includes(`](${target}`);
    expect(existsSync(new URL(target, new URL(`../${isOfPage ? page : "README.md"}`, import.meta.url))), target).toBe(
      true,
    );
  }
  const files = ["src", "examples"].flatMap((folder) =>
    readdirSync(new URL(`../${folder}`, import.meta.url), { recursive: true, encoding: "utf8" }),
  );
  const named = [...text.matchAll(/`([\w./]+\.(?:ts|js))`/g)].map(([, name]) => name);
  const isThere = (name: string): boolean =>
    files.some((file) => file === name || file.endsWith(`/${name}`)) ||
    existsSync(new URL(`../${name}`, import.meta.url));
  expect(named.filter((name) => !isThere(name))).toEqual([]);
});

test("ARCHITECTURE.md fits in 15 KB", () => {
  expect(Buffer.byteLength(textOf("ARCHITECTURE.md"))).toBeLessThanOrEqual(15 * 1024);
});

test.skipIf(!IS_WHOLE)("docs/map.md has the files as they are", () => {
  const root = fileURLToPath(new URL("..", import.meta.url));
  expect(textOf("docs/map.md") === writeMap(root), "docs/map.md is stale: npm run docs").toBe(true);
});
