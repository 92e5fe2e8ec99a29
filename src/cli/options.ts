/** Parses the command line into settings (protocol, section 1). */

import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { isPath } from "../core/search/named.ts";
import { eventNames } from "../handlers/shared/event-names.ts";
import type { AgentSettings } from "../server/agents-module.ts";
import type { ServerSettings } from "../server/settings.ts";
import { findNearest } from "./nearest.ts";
import { UsageError } from "./usage-error.ts";
import { splitShellWords } from "./words.ts";

export { UsageError };

export interface Flag {
  /** The name of its value in the help; a flag without one takes no value. */
  readonly value?: string;
  readonly meaning: string;
  /** The possible values, where they can be listed. */
  readonly oneOf?: readonly string[];
  /** True if it can be given several times, each with a value. */
  readonly isRepeated?: boolean;
  /** Its value when none is given: at the end of the line, or when another option follows. */
  readonly otherwise?: string;
}

/** The option of verbs that look at the sessions of one directory. Its value alone is the current one. */
export const CWD_FLAG: Flag = {
  value: "dir",
  otherwise: ".",
  meaning: "choose only sessions of this working directory; without one, of the current one",
};

/** The option of verbs that look at the sessions of all machines. */
export const HERE_FLAG: Flag = { meaning: "with a fleet: choose only sessions that are on this machine" };

/** The option of verbs that look at the sessions of other agents, too. */
export const AGENTS_FLAG: Flag = {
  value: "names",
  otherwise: "all",
  meaning: "add sessions of other agents, such as claude,codex; pi means our own; without names, of all agents",
};

/** The options of verbs that show past sessions to agents. */
export const RECALL_FLAGS: Readonly<Record<string, Flag>> = {
  "--exclude": {
    value: "dir",
    isRepeated: true,
    meaning:
      "keep sessions of projects in this folder, and sessions stored in it, out of every answer; give it once for each folder",
  },
  "--no-redact": { meaning: "leave secrets in the answers; by default, they are removed" },
};

export function parseAgents(flags: ReadonlyMap<string, string>): "all" | string[] | undefined {
  const names = flags.get("--agents");
  return names === undefined || names === "all" ? names : names.split(",").map((name) => name.trim());
}

/** Returns the value of an option whose values are listed: the parser refuses all others. */
export function getChoice<Value extends string>(flags: ReadonlyMap<string, string>, name: string): Value | undefined {
  return flags.get(name) as Value | undefined;
}

export interface Option extends Flag {
  readonly names: readonly string[];
}

const DIALECTS = ["auto", "jsonrpc", "pi", "acp", "mcp"] as const;

/** The options of this program, as `--help` shows them; dots behind a value: it can be given several times. */
export const OPTIONS: readonly Option[] = `
--session <path or id>  open this session, of Pi or another agent, by its path, id or name; a new path becomes a new session
--continue, -c  open the session of this directory that was changed last; --continue=top leaves out forks
--fork <path or id>  start in a fork of that session
--session-id <id>  open the session of this directory with this id, or make it; with a fleet, wherever it is
--name, -n <name>  give a new session this display name
--session-dir <dir>  keep all sessions in this one flat folder
--no-session  keep sessions in memory; nothing is written to disk
--store <jsonl|v2>  keep new sessions in one file each (jsonl, default) or in a Session Store V2 container (v2)
--durability <sync|os>  acknowledge a change when it survives a loss of power (sync, default) or the death of the process (os)
--fleet <url>  keep sessions in this PostgreSQL database, too (docs/fleet.md); put a URL with a password into PI_FLEET_URL
--fleet-away <refuse|journal>  while the database is away, refuse writes (refuse, default), or keep them here and send them later (journal)
--fleet-search <on|off>  let other machines search for words (on, default), or only see what lists show (off)
--framing <auto|lines|headers>  message framing, by lines or by Content-Length headers; auto detects it from the first byte
--dialect <name>  speak jsonrpc, pi, acp (of editors) or mcp (of agents that ask about past sessions); auto (default): by the first message
--mode <rpc>  speak Pi's dialect from the start, in place of pi --mode rpc
--events <all|none|a,b>  send these events; all by default, none with --mode rpc
--read-only  open sessions for reading only
--attach <auto|off>  share sessions with other servers (auto, default), or neither join nor let others join (off)
--holder-timeout <ms>  wait so long for the server that holds a shared session (default 30000)
--confine  access only the session folders and those of --allow-path
--allow-path <dir>...  allow this folder too; can be given several times, implies --confine
--agent <command>  start this agent, such as 'pi --mode rpc', for what needs a model; with --mode rpc or --dialect acp
--agent-protocol <pi|acp>  speak with the agent in Pi's dialect (pi, default) or in that of editors (acp), which implies --dialect acp
--agent-timeout <ms>  wait so long for an answer of the agent (default 30000)
--hook-timeout <ms>  wait so long for an answer of the host to a hook
--max-message-bytes <n>  refuse a longer message (default 64 MiB)
--provider <name>  begin a new session with this provider's model; with --model
--model <id>  begin a new session with this model; with --provider
--thinking <level>  begin a new session with this thinking level
--stdio  accepted; the server always uses stdin and stdout
--verbose  accepted and ignored
--version, -v  print the version; with --agent, that of Pi behind it
--help, -h  print this help
`
  .trim()
  .split("\n")
  .map((row) => {
    const [given, meaning] = row.split("  ");
    const [names, value, dots] = given.split(/ <|>/);
    return { names: names.split(", "), value, meaning, isRepeated: dots === "..." };
  });

/** The option that every verb has. */
const HELP = OPTIONS.filter(({ names }) => names.includes("--help"));

/** Options of the server that a person gives to a verb: where the sessions are, and how they are read and written. */
const OF_VERBS = OPTIONS.filter(({ names: [name] }) =>
  [
    ...["--session-dir", "--store", "--durability", "--fleet", "--fleet-away", "--fleet-search", "--read-only"],
    ...["--attach", "--holder-timeout", "--confine", "--allow-path", "--help"],
  ].includes(name),
);

/** Pi's options that mean nothing here: those without a value, and those that a value follows. */
const IGNORED =
  "--offline --no-themes --no-skills -ns --no-extensions -ne --no-prompt-templates -np --no-context-files -nc " +
  "--no-tools --approve --no-approve";
const IGNORED_WITH_VALUE =
  "--system-prompt --append-system-prompt --api-key --tools --models --extension -e --skill --theme --prompt-template";

/** Milliseconds; Pi's own client waits as long. */
const DEFAULT_AGENT_TIMEOUT = 30_000;
/** 64 MiB. */
const DEFAULT_MAX_MESSAGE_BYTES = 64 << 20;

/** A command line: the server's settings, and the arguments for the verb that it names. */
export interface CommandLine {
  readonly settings: ServerSettings;
  readonly operands: readonly string[];
  /** Every option that was given, with its last value, or "" for those that take none. */
  readonly flags: ReadonlyMap<string, string>;
  /** All values of the options that can be given several times, as they were given. */
  readonly repeated: ReadonlyMap<string, readonly string[]>;
  /** Options that need no value and took the word after them for it. */
  readonly took: readonly string[];
}

/** Parses arguments for the server. Throws UsageError. */
export function parseArguments(args: readonly string[]): ServerSettings {
  return parseCommandLine(args).settings;
}

/** Parses the arguments of `mcp`, which is the server in a dialect. Returns undefined unless it serves. Throws UsageError. */
export function parseMcpArguments(args: readonly string[]): ServerSettings | undefined {
  const own = { verb: "mcp", flags: RECALL_FLAGS };
  const { settings, operands } = parseCommandLine(["--dialect=mcp", ...args], own);
  return operands.length > 0 || settings.action !== "serve" ? undefined : settings;
}

/**
 * Parses arguments of a verb, before which the program puts options of the server. Throws UsageError for an option that
 * the verb does not use: one that it ignored could be meant to choose fewer sessions.
 */
export function parseVerbArguments(fixed: readonly string[], args: readonly string[], own: VerbOptions): CommandLine {
  parseCommandLine(args, own, OF_VERBS);
  return parseCommandLine([...fixed, ...args], own);
}

/** Parses a command line of a verb that takes another one after `--`, which becomes the operands. Throws UsageError. */
export function parseWithCommand(args: readonly string[], own: VerbOptions): CommandLine {
  const end = args.indexOf("--");
  const line = parseCommandLine(end < 0 ? args : args.slice(0, end), own, HELP);
  if (line.operands.length > 0) throw new UsageError(`Put -- before the command that begins with ${line.operands[0]}.`);
  return { ...line, operands: end < 0 ? [] : args.slice(end + 1) };
}

/** The options of a verb, besides those of the server. */
interface VerbOptions {
  readonly verb: string;
  readonly flags: Readonly<Record<string, Flag>>;
}

type KnownOption = Omit<Flag, "meaning"> & { readonly names?: readonly string[] };

/** Parses arguments; with `own`, operands too. `--mode rpc` ignores unknown ones. Throws UsageError. */
export function parseCommandLine(
  given: readonly string[],
  own?: VerbOptions,
  shared: readonly Option[] = OPTIONS,
): CommandLine {
  const known = knownOptions(own, shared);
  const { args, took } = withValues(given, known);
  const options = Object.fromEntries(
    Array.from(known, ([name, { value }]) => {
      const type = value === undefined ? ("boolean" as const) : ("string" as const);
      return [name.replace(/^-+/, ""), name.length === 2 ? { type, short: name[1] } : { type }];
    }),
  );
  const { tokens } = parseArgs({ args: [...args], options, strict: false, tokens: true });
  const asPi = tokens.some((token) => token.kind === "option" && token.rawName === "--mode" && token.value === "rpc");
  const operands: string[] = [];
  const numbers = new Set<number>();
  const flags = new Map<string, string>();
  const allowed: string[] = [];
  const repeated = new Map<string, string[]>();
  for (const token of tokens) {
    const arg = args[token.index];
    // The parser takes a negative number for an option of each digit.
    const isNumber = own !== undefined && token.kind === "option" && /^-\d/.test(arg);
    if (own && (token.kind === "positional" || (isNumber && !numbers.has(token.index)))) operands.push(arg);
    if (isNumber) numbers.add(token.index);
    if (own && (token.kind !== "option" || isNumber)) continue;
    // The parser takes `-ns`, an option of Pi's, for `-n s`.
    const name = token.kind === "option" && arg.startsWith("--") ? token.rawName : arg;
    const flag = known.get(name);
    if (token.kind !== "option" || flag === undefined) {
      if (asPi) continue;
      throw arg.startsWith("-") ? unknownOption(name, own, shared) : new UsageError(unknownWord(arg));
    }
    const { value = "" } = token;
    if (flag.value === undefined && token.inlineValue && own?.flags[name])
      throw new UsageError(`${name} takes no value.`);
    if (flag.value !== undefined && token.value === undefined)
      throw new UsageError(describeMissingValue(name, flag, own));
    if (flag.oneOf) requireOneOf(name, value, flag.oneOf);
    if (flag.names?.[0] === "--continue" && token.inlineValue) requireOneOf(name, value, [TOP]);
    if (name === "--allow-path") allowed.push(resolve(value));
    if (flag.isRepeated) repeated.set(name, [...(repeated.get(name) ?? []), value]);
    else if (own?.flags[name] && flags.has(name)) throw new UsageError(`${name} was given twice. Give it once.`);
    flags.set(flag.names?.[0] ?? name, value);
  }
  // Pi takes the first of options that exclude each other, and half a model.
  if (!own && !asPi) requireOneMeaning(flags);
  const settings = settingsOf(flags, { allowed, excluded: repeated.get("--exclude") ?? [], asPi });
  // A verb's own option names a session to the verb, and the server opens none.
  if (own?.flags["--session"]) Object.assign(settings, { session: undefined });
  // Clients of Pi ask for the version, or the options, by the words alone that stand in Pi's place.
  if (settings.action === "serve") requireFitForAgent(settings, flags);
  return { settings, operands, flags, repeated, took };
}

function knownOptions(own: VerbOptions | undefined, shared: readonly Option[]): Map<string, KnownOption> {
  const known = new Map<string, KnownOption>();
  if (shared === OPTIONS) {
    for (const name of IGNORED.split(" ")) known.set(name, {});
    for (const name of IGNORED_WITH_VALUE.split(" ")) known.set(name, { value: name });
  }
  for (const option of shared) for (const name of option.names) known.set(name, option);
  for (const [name, flag] of Object.entries(own?.flags ?? {})) known.set(name, flag);
  return known;
}

/** Gives options that may stand alone their value when they do. */
function withValues(
  given: readonly string[],
  known: ReadonlyMap<string, KnownOption>,
): { args: readonly string[]; took: string[] } {
  const args: string[] = [];
  const took: string[] = [];
  for (let i = 0; i < given.length; i++) {
    const arg = given[i];
    if (arg === "--") return { args: [...args, ...given.slice(i)], took };
    const { value, otherwise } = known.get(arg) ?? {};
    const isLast = i + 1 === given.length;
    if (otherwise !== undefined && (isLast || given[i + 1].startsWith("-"))) {
      args.push(`${arg}=${otherwise}`);
      continue;
    }
    args.push(arg);
    if (value === undefined || isLast) continue;
    if (otherwise !== undefined) took.push(arg);
    args.push(given[++i]);
  }
  return { args, took };
}

/** Options known from other programs, with those for them here. */
const SAID_ELSEWHERE: Readonly<Record<string, string>> = {
  "-n": "--limit",
  "-a": "--all",
  "-y": "--yes",
  "-f": "--yes",
};

/** Returns the sentence that names the option which is meant, and where to read about the others. */
function unknownOption(name: string, own: VerbOptions | undefined, shared: readonly Option[]): UsageError {
  const all = [...Object.keys(own?.flags ?? {}), ...shared.flatMap(({ names }) => names)];
  const meant = all.find((one) => one === SAID_ELSEWHERE[name]) ?? findNearest(name, all);
  const help = own ? `${own.verb} --help lists its options.` : "--help lists the options.";
  return new UsageError(`Unknown option ${name}.${meant === undefined ? "" : ` Did you mean ${meant}?`} ${help}`);
}

function describeMissingValue(name: string, { value, oneOf }: KnownOption, own: VerbOptions | undefined): string {
  const takes = oneOf ? oneOf.join(", ") : value?.includes("|") ? value.split("|").join(", ") : `a value: <${value}>`;
  return `${name} takes ${takes}. ${own ? `${own.verb} --help` : "--help"} lists the options.`;
}

function unknownWord(arg: string): string {
  const uses = isPath(arg) ? ` To serve it: --session ${arg}; to read it: show ${arg}.` : "";
  return `Unknown verb ${arg}.${uses} A verb comes first; --help lists them.`;
}

/** The value of --continue for sessions that are no forks: those of subagents are. */
const TOP = "top";

/** Options that each choose the session at the start. */
const CHOICES = ["--session", "--continue", "--fork"];

/** Throws UsageError when options contradict each other, or one lacks the other that it needs. */
function requireOneMeaning(given: ReadonlyMap<string, string>): void {
  const chosen = CHOICES.filter((name) => given.has(name));
  if (chosen.length > 1)
    throw new UsageError(`${chosen.join(" and ")} name different sessions to start with. Give one of them.`);
  if (given.has("--provider") !== given.has("--model")) {
    const [has, missing] = given.has("--provider") ? ["--provider", "--model"] : ["--model", "--provider"];
    throw new UsageError(`${has} sets no model without ${missing}. Give both.`);
  }
}

function settingsOf(
  given: ReadonlyMap<string, string>,
  { allowed, excluded, asPi }: { allowed: readonly string[]; excluded: readonly string[]; asPi: boolean },
): ServerSettings {
  const isRecall = given.get("--dialect") === "mcp";
  const oneOf = <T extends string>(name: string, possible: readonly T[], otherwise: T): T => {
    const value = given.get(name) ?? otherwise;
    requireOneOf(name, value, possible);
    return value as T;
  };
  oneOf("--mode", ["rpc"], "rpc");
  const agent = agentOf(given);
  return {
    session: given.get("--session"),
    continueLatest: given.get("--continue") === TOP ? TOP : given.has("--continue"),
    fork: given.get("--fork"),
    sessionId: given.get("--session-id"),
    name: given.get("--name"),
    sessionDir: given.get("--session-dir"),
    inMemory: given.has("--no-session"),
    store: oneOf("--store", ["jsonl", "v2"], "jsonl"),
    durability: oneOf("--durability", ["sync", "os"], "sync"),
    fleet: given.get("--fleet"),
    fleetAway: oneOf("--fleet-away", ["refuse", "journal"], "refuse"),
    fleetSearch: given.has("--fleet-search") ? oneOf<"on" | "off">("--fleet-search", ["on", "off"], "on") : undefined,
    framing: oneOf("--framing", ["auto", "lines", "headers"], asPi ? "lines" : "auto"),
    dialect: oneOf("--dialect", DIALECTS, asPi ? "pi" : agent?.protocol === "acp" ? "acp" : "auto"),
    events: eventsOf(given.get("--events") ?? (asPi ? "none" : "all")),
    // Agents that ask read past sessions. They neither write nor join them.
    readOnly: given.has("--read-only") || isRecall,
    attach: oneOf("--attach", ["auto", "off"], isRecall ? "off" : "auto"),
    maxMessageBytes: parsePositive(given, "--max-message-bytes") ?? DEFAULT_MAX_MESSAGE_BYTES,
    hookTimeout: parsePositive(given, "--hook-timeout"),
    holderTimeout: parsePositive(given, "--holder-timeout"),
    allowedPaths: given.has("--confine") || allowed.length > 0 ? allowed : undefined,
    agent,
    recall: { excluded, redacts: !given.has("--no-redact") },
    provider: given.get("--provider"),
    model: given.get("--model"),
    thinking: given.get("--thinking"),
    asPi,
    action: given.has("--help") ? "help" : given.has("--version") ? "version" : "serve",
  };
}

/** Returns the agent that an option names. Throws UsageError. */
function agentOf(given: ReadonlyMap<string, string>): AgentSettings | undefined {
  const command = given.get("--agent");
  if (command === undefined) return undefined;
  const words = splitShellWords(command);
  if (words.length === 0) throw new UsageError("--agent takes the command of an agent, such as 'pi --mode rpc'.");
  const protocol = given.get("--agent-protocol") ?? "pi";
  requireOneOf("--agent-protocol", protocol, ["pi", "acp"]);
  return {
    words,
    protocol: protocol as AgentSettings["protocol"],
    within: parsePositive(given, "--agent-timeout") ?? DEFAULT_AGENT_TIMEOUT,
  };
}

/** Throws UsageError unless an agent can work with the other options. */
function requireFitForAgent(settings: ServerSettings, given: ReadonlyMap<string, string>): void {
  if (!settings.agent) {
    const lone = ["--agent-protocol", "--agent-timeout"].find((name) => given.has(name));
    if (lone !== undefined) throw new UsageError(`${lone} has no effect without --agent. Give both.`);
    return;
  }
  const isPi = settings.agent.protocol === "pi";
  if (!isPi && settings.dialect !== "acp")
    throw new UsageError("--agent-protocol acp is for editors. Leave out --mode, and any --dialect but acp.");
  if (settings.dialect !== "pi" && settings.dialect !== "acp")
    throw new UsageError("--agent needs --mode rpc for clients of Pi, or --dialect acp for editors.");
  const unfit = settings.inMemory
    ? "--no-session keeps none"
    : settings.readOnly
      ? "--read-only writes none"
      : settings.store === "v2" && isPi
        ? "--store v2 makes containers"
        : undefined;
  if (unfit !== undefined)
    throw new UsageError(`The agent of --agent writes session files, and ${unfit}. Leave one out.`);
}

function requireOneOf(name: string, value: string, possible: readonly string[]): void {
  if (!possible.includes(value)) throw new UsageError(`${name} takes ${possible.join(", ")}; it got ${value}.`);
}

function eventsOf(value: string): readonly string[] | "all" {
  if (value === "all") return "all";
  if (value === "none" || value === "") return [];
  const names = value.split(",").map((name) => name.trim());
  const unknown = names.find((name) => !(eventNames as readonly string[]).includes(name));
  if (unknown !== undefined)
    throw new UsageError(`--events takes all, none, or some of ${eventNames.join(",")}; it got ${unknown}.`);
  return names;
}

/** Returns the whole number above 0 that an option has, if it is given. Throws UsageError. */
export function parsePositive(given: ReadonlyMap<string, string>, name: string): number | undefined {
  const value = given.get(name);
  if (value === undefined) return undefined;
  const number = /^\d{1,15}$/.test(value) ? Number(value) : 0;
  if (number === 0) throw new UsageError(`${name} takes a whole number above 0; it got ${value}.`);
  return number;
}
