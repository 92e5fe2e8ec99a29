/**
 * Verbs of the command line: commands of the table that are run once and printed. A verb is one entry of
 * {@link VERBS}; this file is loaded when a verb, or the help, is asked for.
 */

import { PassThrough } from "node:stream";
import { Failure } from "../core/failure.ts";
import { absolute } from "../core/store/paths.ts";
import { parseArguments, UsageError, valueFollows } from "./cli.ts";
import { type Service, serve, type World } from "./serve.ts";

// biome-ignore lint/suspicious/noExplicitAny: results come from the wire, as any client has them
type Result = any;

interface Given {
  readonly operands: readonly string[];
  /** The verb's own flags, with their values, or "" for those that take none. */
  readonly flags: ReadonlyMap<string, string>;
}

interface Request {
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
}

interface Verb {
  /** What follows it, as the help shows it. */
  readonly usage: string;
  readonly meaning: string;
  readonly operands: { readonly least: number; readonly most: number };
  /** Its own flags beside `--json`, and whether a value follows. */
  readonly flags: Readonly<Record<string, boolean>>;
  /** What it asks, one after the other; the last result is what it prints. */
  requests(given: Given): readonly Request[];
  /** What it does beside the wire; then its result is that of this. Throws UsageError or Failure. */
  act?(service: Service, given: Given, cwd: string): Promise<Result>;
  /** The lines a person reads. */
  print(result: Result, given: Given): string[];
  /** Exit status; 0 by default. */
  status?(result: Result, given: Given): number;
}

/** Exit statuses. */
const OK = 0;
const FAILURE = 1;
const USAGE = 2;
const DAMAGE = 3;

const VERBS: Readonly<Record<string, Verb>> = {
  verify: {
    usage: "<path or id> [--json]",
    meaning: "read every byte of a session and say what is damaged",
    operands: { least: 1, most: 1 },
    flags: {},
    requests: ({ operands }) => [opening(operands[0]), { method: "verify_session", params: {} }],
    print: ({ ok, damage, unreadableForRust }) => [
      ok ? "The session is sound." : `${count(damage.length, "damage", "damages")}:`,
      ...damage.map(damageLine),
      ...(unreadableForRust.length === 0
        ? []
        : [
            `pi_agent_rust skips ${count(unreadableForRust.length, "entry", "entries")} of it and does not write to it.`,
          ]),
    ],
    status: ({ ok }) => (ok ? OK : DAMAGE),
  },
  repair: {
    usage: "<path or id> [--dry-run] [--json]",
    meaning: "take damage out of a session and keep the original beside it",
    operands: { least: 1, most: 1 },
    flags: { "--dry-run": false },
    requests: ({ operands, flags }) => [
      opening(operands[0]),
      { method: "repair_session", params: { dryRun: flags.has("--dry-run") } },
    ],
    print({ repaired, answered, backupPath, entryCount }, { flags }) {
      const done = flags.has("--dry-run") ? "would be" : "was";
      const nothing = repaired.length === 0 && answered.length === 0;
      return [
        nothing ? "There is nothing to repair." : `This ${done} repaired:`,
        ...repaired.map(damageLine),
        ...answered.map(
          ({ toolName, entryId }: Result) => `  call of ${inert(toolName)} in ${inert(entryId)}: answered as lost`,
        ),
        ...(backupPath === null ? [] : [`The original is ${inert(backupPath)}.`]),
        `${count(entryCount, "entry", "entries")}.`,
      ];
    },
    status: ({ repaired, answered }, { flags }) =>
      flags.has("--dry-run") && repaired.length + answered.length > 0 ? DAMAGE : OK,
  },
  index: {
    usage: "--out <file> [--json]",
    meaning: "write the table of all sessions to a new SQLite file, for scripts that read pi_agent_rust's index",
    operands: { least: 0, most: 0 },
    flags: { "--out": true },
    requests: () => [],
    async act({ catalog }, { flags }, cwd) {
      const out = flags.get("--out");
      if (out === undefined) throw new UsageError("index takes --out and the path of a file that does not exist yet.");
      const path = absolute(out, cwd);
      return { path, sessionCount: await catalog.exportIndex(path) };
    },
    print: ({ path, sessionCount }) => [`${count(sessionCount, "session", "sessions")} in ${inert(path)}.`],
  },
};

/** Whether the command line asks for a verb. */
export function isVerb(name: string | undefined): name is string {
  return name !== undefined && Object.hasOwn(VERBS, name);
}

/** The verbs as the help lists them. */
export function verbLines(): string[] {
  return Object.entries(VERBS).flatMap(([name, { usage, meaning }]) => [`  ${name} ${usage}`, `      ${meaning}`]);
}

/** What a verb needs of the world beside what a server does. */
export type VerbWorld = Omit<World, "input" | "output"> & { readonly print: (text: string) => void };

/** Runs a verb; answers the exit status. */
export async function runVerb(name: string, args: readonly string[], world: VerbWorld): Promise<number> {
  const verb = VERBS[name];
  let given: Given;
  let settings: ReturnType<typeof parseArguments>;
  try {
    const { rest, ...own } = split(name, verb, args);
    given = own;
    settings = parseArguments(["--no-session", "--events=none", "--framing=lines", "--dialect=jsonrpc", ...rest]);
    if (settings.action === "help") {
      world.print(`pi-session-server ${name} ${verb.usage}\n\n${verb.meaning}\n`);
      return OK;
    }
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    world.say(error.message);
    return USAGE;
  }
  const asJson = given.flags.has("--json");
  const input = new PassThrough();
  const output = new PassThrough();
  const service = serve(settings, { ...world, input, output });
  const replies = linesOf(output);
  try {
    let result: Result;
    for (const { method, params } of verb.requests(given)) {
      input.write(`${JSON.stringify({ jsonrpc: "2.0", id: method, method, params })}\n`);
      const reply = JSON.parse((await replies.next()).value as string);
      if (reply.error) {
        if (asJson) world.print(`${JSON.stringify({ error: reply.error })}\n`);
        else world.say(inert(reply.error.message));
        return FAILURE;
      }
      result = reply.result;
    }
    if (verb.act) {
      try {
        result = await verb.act(service, given, world.cwd);
      } catch (error) {
        if (!(error instanceof UsageError || error instanceof Failure)) throw error;
        const { message } = error;
        if (error instanceof UsageError || !asJson) world.say(inert(message));
        else world.print(`${JSON.stringify({ error: { code: error.code, message, data: { name: error.name } } })}\n`);
        return error instanceof UsageError ? USAGE : FAILURE;
      }
    }
    world.print(asJson ? `${JSON.stringify(result)}\n` : `${verb.print(result, given).join("\n")}\n`);
    return verb.status?.(result, given) ?? OK;
  } finally {
    input.end();
    output.resume();
    await service.done;
  }
}

/** Parts a verb's own arguments from options of the server. Throws UsageError. */
function split(name: string, verb: Verb, args: readonly string[]): Given & { rest: string[] } {
  const operands: string[] = [];
  const flags = new Map<string, string>();
  const rest: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const arg = args[i];
    const own = arg === "--json" ? false : verb.flags[arg];
    if (own !== undefined) {
      if (own && i + 1 >= args.length) throw new UsageError(`${arg} takes a value.`);
      flags.set(arg, own ? args[++i] : "");
    } else if (arg.startsWith("-")) {
      rest.push(arg);
      if (valueFollows(arg) && i + 1 < args.length) rest.push(args[++i]);
    } else operands.push(arg);
  }
  const { least, most } = verb.operands;
  const asksHelp = rest.includes("--help") || rest.includes("-h");
  if (!asksHelp && (operands.length < least || operands.length > most))
    throw new UsageError(`Usage: pi-session-server ${name} ${verb.usage}`);
  return { operands, flags, rest };
}

async function* linesOf(output: PassThrough): AsyncGenerator<string> {
  let unread = "";
  for await (const chunk of output.setEncoding("utf8")) {
    const lines = `${unread}${chunk}`.split("\n");
    unread = lines.pop() as string;
    yield* lines;
  }
}

/** What looks like a path is one; anything else is an id, or the beginning of one. */
function opening(given: string): Request {
  const isPath = /[/\\]/.test(given) || given.endsWith(".jsonl");
  return { method: "switch_session", params: isPath ? { sessionPath: given } : { sessionId: given } };
}

function damageLine({ kind, line, byteOffset, length, entryId, reason, salvaged, keptAt }: Result): string {
  const where = [
    ...(line > 0 ? [`line ${line}`] : []),
    ...(length > 0 ? [`${length} bytes at ${byteOffset}`] : []),
    ...(entryId === undefined ? [] : [`entry ${inert(entryId)}`]),
  ].join(", ");
  const kept = keptAt === undefined ? "" : `; the bytes are in ${inert(keptAt)}`;
  return `  ${kind}${where === "" ? "" : ` (${where})`}: ${inert(reason)}${salvaged ? "" : "; lost"}${kept}`;
}

function count(n: number, one: string, many: string): string {
  return `${n} ${n === 1 ? one : many}`;
}

/** Text that does nothing to a terminal: control characters, and marks that turn the direction of text, are shown. */
function inert(text: unknown): string {
  return String(text).replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
    /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
