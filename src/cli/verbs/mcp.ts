import { resolve } from "node:path";
import { modules } from "../../compose.ts";
import { makeRecallPlace } from "../../server/main.ts";
import type { AskCommand, ParamDeclaration, RecallModule, ToolFace } from "../../server/recall-module.ts";
import { type Flag, RECALL_FLAGS, UsageError } from "../options.ts";
import { defineVerb, FAILURE, OK, type Verb } from "../verb.ts";

/** The sessions are read, and neither written nor joined. */
const SERVER = ["--read-only", "--attach=off"];

/** Returns the module. Throws UsageError in a build without it. */
function requireRecall(): RecallModule {
  if (!modules.recall) throw new UsageError("This build has no recall: it has no module for it.");
  return modules.recall;
}

const install = defineVerb({
  name: "mcp install",
  meaning: "print the setting by which a client starts this server; nothing is written",
  operands: ["<client>"],
  flags: RECALL_FLAGS,
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
  flags: RECALL_FLAGS,
  subverbs: [install],
  more: "Sessions of all agents on this machine are read, and never written. mcp install prints how a client starts it.",
  // The program starts the server itself, without any verb: a client waits for its first answer.
  async run(): Promise<never> {
    throw new UsageError("mcp serves a client, or prints a registration: mcp install <client>.");
  },
  print: () => [],
});

function toFlag({ type, description = "", oneOf, isNeeded }: ParamDeclaration): Flag {
  const texts = [isNeeded ? "needed" : "", description, oneOf?.join(", ") ?? ""].filter(Boolean);
  const meaning = texts.join("; ") || "see the text above";
  return type === "boolean"
    ? { meaning }
    : { value: type === "integer" ? "n" : "value", meaning, ...(type === "list" ? {} : oneOf ? { oneOf } : {}) };
}

/** Returns the options of a param. */
const toOptions = (name: string): string[] => [
  `--${name.replaceAll("_", "-")}`,
  ...(name === "session" ? ["--of"] : []),
];

function defineTool({ name, title, description, params, operands }: ToolFace): Verb {
  return defineVerb({
    name: `recall ${name}`,
    meaning: `${title[0].toLowerCase()}${title.slice(1)}, as the MCP tool ${name} does`,
    operands: operands.map(
      (param, n) =>
        `${params[param].isNeeded ? `<${param}` : `[${param}`}${n === operands.length - 1 ? "..." : ""}${params[param].isNeeded ? ">" : "]"}`,
    ),
    flags: {
      ...RECALL_FLAGS,
      ...Object.fromEntries(
        Object.entries(params).flatMap(([param, one]) => toOptions(param).map((option) => [option, toFlag(one)])),
      ),
    },
    serverOptions: SERVER,
    more: description,
    async run(asking, given) {
      const args: Record<string, unknown> = {};
      for (const [param, { type }] of Object.entries(params)) {
        const value = toOptions(param)
          .map((option) => given.flags.get(option))
          .find((one) => one !== undefined);
        if (value === undefined) continue;
        args[param] = type === "boolean" ? true : type === "integer" ? Number(value) : value;
      }
      const last = operands.length - 1;
      for (const [n, param] of operands.entries()) {
        const words = n === last ? given.operands.slice(n) : given.operands.slice(n, n + 1);
        if (words.length > 0) args[param] = words.join(" ");
      }
      const excluded = given.repeated.get("--exclude") ?? [];
      const place = { ...makeRecallPlace(asking), excluded, redacts: !given.flags.has("--no-redact") };
      return requireRecall().runRecallTool(asking.ask as AskCommand, place, name, args);
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
