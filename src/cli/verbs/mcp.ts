import { dirname, resolve } from "node:path";
import { modules } from "../../compose.ts";
import type { ParamDeclaration, RecallModule, RecallWorld, ToolFace } from "../../server/recall-module.ts";
import { readUnsized } from "../../storage/fs/disk.ts";
import { VERSION } from "../../version.ts";
import { type Flag, UsageError } from "../options.ts";
import { defineVerb, FAILURE, OK, type Verb, type VerbArguments, type VerbContext } from "../verb.ts";

/** Options of both verbs. */
const FLAGS: Readonly<Record<string, Flag>> = {
  "--exclude": {
    value: "dir",
    isRepeated: true,
    meaning:
      "keep sessions of projects in this folder, and sessions stored in it, out of every answer; give it once for each folder",
  },
  "--no-redact": { meaning: "leave secrets in the answers; by default, they are removed" },
};
/** The sessions are read, and neither written nor joined. */
const SERVER = ["--read-only", "--attach=off"];
/** Processes above this one that are looked at. */
const MOST_ANCESTORS = 16;

/** Returns the module. Throws UsageError in a build without it. */
function requireRecall(): RecallModule {
  if (!modules.recall) throw new UsageError("This build has no recall: it has no module for it.");
  return modules.recall;
}

/** Returns everything that the tools need, over the server of a verb. */
function makeWorld(asking: VerbContext, { repeated }: VerbArguments, isRedacted: boolean): RecallWorld {
  const { disk, variables } = asking;
  const ask = asking.ask as (command: string, params?: object) => Promise<unknown>;
  let known: readonly number[] | undefined;
  return {
    ask,
    now: () => Date.now(),
    // Claude Code names the project in this variable.
    cwd: variables.CLAUDE_PROJECT_DIR || asking.cwd,
    home: variables.HOME,
    excluded: (repeated.get("--exclude") ?? []).map((dir) =>
      resolve(asking.cwd, dir.replace(/^~(?=$|\/)/, variables.HOME ?? "~")),
    ),
    realPath(path: string): string {
      // Of a folder that is gone, the part that is there may be a link.
      for (let at = path, rest = ""; ; rest = `${at.slice(dirname(at).length)}${rest}`, at = dirname(at)) {
        try {
          return `${disk.realPath(at)}${rest}`;
        } catch {
          if (dirname(at) === at) return path;
        }
      }
    },
    redacts: isRedacted,
    ancestors() {
      known ??= findAncestors(disk);
      return known;
    },
  };
}

/** Returns the processes that started this one, its parent first. */
function findAncestors(disk: VerbContext["disk"]): readonly number[] {
  const found: number[] = [];
  for (let pid = process.ppid; pid > 1 && found.length < MOST_ANCESTORS; ) {
    found.push(pid);
    try {
      const stat = Buffer.from(readUnsized(disk, `/proc/${pid}/stat`)).toString("latin1");
      pid = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
    } catch {
      break;
    }
  }
  return found;
}

const install = defineVerb({
  name: "mcp install",
  meaning: "print the setting by which a client starts this server; nothing is written",
  operands: ["<client>"],
  flags: FLAGS,
  get more() {
    const clients = modules.recall?.listRecallClients().join(", ") ?? "none in this build";
    return `Clients: ${clients}. The registered server gets the options that you give here.`;
  },
  async run(_asking, { operands: [client], flags, repeated }) {
    const { describeRecallRegistration, listRecallClients } = requireRecall();
    const dirs = (repeated.get("--exclude") ?? []).flatMap((dir) => ["--exclude", resolve(dir)]);
    const allowed = (repeated.get("--allow-path") ?? []).flatMap((dir) => ["--allow-path", resolve(dir)]);
    const folder = flags.get("--session-dir");
    const options = [
      ...(flags.has("--confine") ? ["--confine"] : []),
      ...allowed,
      ...(folder === undefined ? [] : ["--session-dir", resolve(folder)]),
      ...dirs,
      ...(flags.has("--no-redact") ? ["--no-redact"] : []),
    ];
    const lines = describeRecallRegistration(client, options);
    if (lines === undefined)
      throw new UsageError(`mcp install takes ${listRecallClients().join(", ")}; it got ${client}.`);
    return lines;
  },
  isExact: () => true,
  print: (lines) => lines,
});

export const mcp = defineVerb({
  name: "mcp",
  meaning: "let other agents search and read your sessions, over the Model Context Protocol on stdin and stdout",
  operands: [],
  flags: FLAGS,
  serverOptions: SERVER,
  subverbs: [install],
  more: "Sessions of all agents on this machine are read, and never written. mcp install prints how a client starts it.",
  isLive: true,
  async run(asking, given) {
    const { input } = asking;
    if (input === undefined) throw new UsageError("mcp reads messages from stdin, and stdin is closed.");
    await requireRecall().serveMcp(makeWorld(asking, given, !given.flags.has("--no-redact")), VERSION, input, (text) =>
      asking.print(text),
    );
  },
  print: () => [],
});

function toFlag({ type, description = "", oneOf, isNeeded }: ParamDeclaration): Flag {
  const meaning = `${isNeeded ? "needed; " : ""}${description || (oneOf ? oneOf.join(", ") : "see the text above")}`;
  return type === "boolean"
    ? { meaning }
    : { value: type === "integer" ? "n" : "value", meaning, ...(type === "list" ? {} : oneOf ? { oneOf } : {}) };
}

/** Returns the option of a param. The server has an option --session of its own. */
const toOption = (name: string): string => (name === "session" ? "--of" : `--${name.replaceAll("_", "-")}`);

function defineTool({ name, title, description, params, operands }: ToolFace): Verb {
  const flags = Object.entries(params).filter(([param]) => !operands.includes(param));
  return defineVerb({
    name: `recall ${name}`,
    meaning: `${title[0].toLowerCase()}${title.slice(1)}, as the MCP tool ${name} does`,
    operands: operands.map(
      (param, n) =>
        `${params[param].isNeeded ? `<${param}` : `[${param}`}${n === operands.length - 1 ? "..." : ""}${params[param].isNeeded ? ">" : "]"}`,
    ),
    flags: {
      ...FLAGS,
      ...Object.fromEntries([
        ...flags.map(([param, one]) => [toOption(param), toFlag(one)] as const),
        ...operands.map((param) => [toOption(param), toFlag(params[param])] as const),
      ]),
    },
    serverOptions: SERVER,
    more: description,
    async run(asking, given) {
      const args: Record<string, unknown> = {};
      for (const [param, { type }] of Object.entries(params)) {
        const value = given.flags.get(toOption(param));
        if (value === undefined) continue;
        args[param] = type === "boolean" ? true : type === "integer" ? Number(value) : value;
      }
      const last = operands.length - 1;
      for (const [n, param] of operands.entries()) {
        const words = n === last ? given.operands.slice(n) : given.operands.slice(n, n + 1);
        if (words.length > 0) args[param] = words.join(" ");
      }
      return requireRecall().runRecallTool(makeWorld(asking, given, !given.flags.has("--no-redact")), name, args);
    },
    isExact: () => true,
    print: ({ text }) => text.split("\n"),
    status: ({ isError }) => (isError ? FAILURE : OK),
  });
}

export const recall = defineVerb({
  name: "recall",
  meaning:
    "search and read past sessions from a shell, with the tools of mcp: recall find, recent, open, tree, compare, history",
  operands: ["<tool>"],
  // The tools are asked for only where this verb runs or is described.
  get subverbs() {
    return modules.recall?.listRecallTools().map(defineTool) ?? [];
  },
  async run(_asking, { operands: [tool] }): Promise<never> {
    throw new UsageError(
      `recall takes ${requireRecall()
        .listRecallTools()
        .map(({ name }) => name)
        .join(", ")}; it got ${tool}.`,
    );
  },
  print: () => [],
});
