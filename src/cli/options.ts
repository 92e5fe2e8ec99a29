/** Parses the command line into settings (protocol, section 1). */

import { resolve } from "node:path";
import type { ServerSettings } from "../server/settings.ts";

/** A wrong command line; the message says what to change. */
export class UsageError extends Error {}

export interface Option {
  readonly names: readonly string[];
  readonly value?: string;
  readonly meaning: string;
}

/** The options of this program, as `--help` shows them. */
export const OPTIONS: readonly Option[] = [
  {
    names: ["--session"],
    value: "path or id",
    meaning: "open this session; a path that does not exist yet becomes a new session",
  },
  { names: ["--continue", "-c"], meaning: "open the session of the current directory that was changed last" },
  { names: ["--fork"], value: "path or id", meaning: "start in a fork of that session" },
  { names: ["--session-id"], value: "id", meaning: "id of a new session" },
  { names: ["--name", "-n"], value: "name", meaning: "display name of a new session" },
  { names: ["--session-dir"], value: "dir", meaning: "keep all sessions in this one flat folder" },
  { names: ["--no-session"], meaning: "keep sessions in memory; nothing is written to disk" },
  {
    names: ["--store"],
    value: "jsonl|v2",
    meaning: "backend of new sessions: one file, or a Session Store V2 container",
  },
  {
    names: ["--durability"],
    value: "sync|os",
    meaning: "an acknowledged change survives power loss (sync, default) or process death (os)",
  },
  { names: ["--framing"], value: "auto|lines|headers", meaning: "how messages are cut; auto looks at the first byte" },
  { names: ["--dialect"], value: "auto|jsonrpc|pi", meaning: "the shape of messages; auto looks at the first one" },
  { names: ["--mode"], value: "rpc", meaning: "use Pi's dialect from the start, in place of pi --mode rpc" },
  {
    names: ["--events"],
    value: "all|none|a,b",
    meaning: "which events are sent; all by default, none under --mode rpc",
  },
  { names: ["--read-only"], meaning: "open sessions for reading only" },
  { names: ["--confine"], meaning: "access only the session folders and those of --allow-path" },
  {
    names: ["--allow-path"],
    value: "dir",
    meaning: "allow this folder too; can be given several times, implies --confine",
  },
  { names: ["--hook-timeout"], value: "ms", meaning: "how long the host has to answer a hook" },
  { names: ["--max-message-bytes"], value: "n", meaning: "limit of one incoming message (default 64 MiB)" },
  { names: ["--provider"], value: "name", meaning: "first model of a new session, with --model" },
  { names: ["--model"], value: "id", meaning: "first model of a new session, with --provider" },
  { names: ["--thinking"], value: "level", meaning: "first thinking level of a new session" },
  { names: ["--stdio"], meaning: "accepted; the server always uses stdin and stdout" },
  { names: ["--verbose"], meaning: "report on stderr what happens" },
  { names: ["--version", "-v"], meaning: "print the version" },
  { names: ["--help", "-h"], meaning: "print this help" },
];

/** Pi's options that mean nothing here, and whether a value follows each. */
const IGNORED: Readonly<Record<string, boolean>> = {
  "--offline": false,
  "--no-themes": false,
  "--no-skills": false,
  "-ns": false,
  "--no-extensions": false,
  "-ne": false,
  "--no-prompt-templates": false,
  "-np": false,
  "--no-context-files": false,
  "-nc": false,
  "--no-tools": false,
  "--approve": false,
  "--no-approve": false,
  "--system-prompt": true,
  "--append-system-prompt": true,
  "--api-key": true,
  "--tools": true,
  "--models": true,
  "--extension": true,
  "-e": true,
  "--skill": true,
  "--theme": true,
  "--prompt-template": true,
};

/** 64 MiB. */
const DEFAULT_MAX_MESSAGE_BYTES = 64 << 20;

/**
 * Parses arguments. Under `--mode rpc`, unknown options are ignored, as the clients of Pi expect. Throws UsageError.
 */
export function parseArguments(args: readonly string[]): ServerSettings {
  const asPi = args.some((arg, i) => arg === "--mode=rpc" || (arg === "--mode" && args[i + 1] === "rpc"));
  const given = new Map<string, string>();
  const allowed: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const [name, inline] = splitOption(args[i]);
    const option = OPTIONS.find(({ names }) => names.includes(name));
    const takesValue = option ? option.value !== undefined : IGNORED[name];
    if (takesValue === undefined) {
      if (asPi) continue;
      const kind = args[i].startsWith("-") ? "option" : "verb";
      throw new UsageError(`Unknown ${kind} ${args[i]}. --help lists the ${kind}s.`);
    }
    let value = inline ?? "";
    if (takesValue && inline === undefined) {
      if (i + 1 >= args.length) throw new UsageError(`${name} takes a value. --help lists the options.`);
      value = args[++i];
    }
    if (name === "--allow-path") allowed.push(resolve(value));
    if (option) given.set(option.names[0], value);
  }
  const oneOf = <T extends string>(name: string, allowed: readonly T[], otherwise: T): T => {
    const value = given.get(name);
    if (value === undefined) return otherwise;
    if (!allowed.includes(value as T)) throw new UsageError(`${name} takes ${allowed.join(", ")}; it got ${value}.`);
    return value as T;
  };
  oneOf("--mode", ["rpc"], "rpc");
  return {
    session: given.get("--session"),
    continueLatest: given.has("--continue"),
    fork: given.get("--fork"),
    sessionId: given.get("--session-id"),
    name: given.get("--name"),
    sessionDir: given.get("--session-dir"),
    inMemory: given.has("--no-session"),
    store: oneOf("--store", ["jsonl", "v2"], "jsonl"),
    durability: oneOf("--durability", ["sync", "os"], "sync"),
    framing: oneOf("--framing", ["auto", "lines", "headers"], asPi ? "lines" : "auto"),
    dialect: oneOf("--dialect", ["auto", "jsonrpc", "pi"], asPi ? "pi" : "auto"),
    events: eventsOf(given.get("--events") ?? (asPi ? "none" : "all")),
    readOnly: given.has("--read-only"),
    maxMessageBytes: positive("--max-message-bytes", given.get("--max-message-bytes"), DEFAULT_MAX_MESSAGE_BYTES),
    hookTimeout: given.has("--hook-timeout") ? positive("--hook-timeout", given.get("--hook-timeout"), 0) : undefined,
    allowedPaths: given.has("--confine") || allowed.length > 0 ? allowed : undefined,
    verbose: given.has("--verbose"),
    provider: given.get("--provider"),
    model: given.get("--model"),
    thinking: given.get("--thinking"),
    asPi,
    action: given.has("--help") ? "help" : given.has("--version") ? "version" : "serve",
  };
}

/** Returns whether the value of an option, ours or one of Pi's, is the next argument. */
export function valueFollows(arg: string): boolean {
  const [name, inline] = splitOption(arg);
  const option = OPTIONS.find(({ names }) => names.includes(name));
  return inline === undefined && (option ? option.value !== undefined : IGNORED[name] === true);
}

function splitOption(arg: string): [string, string | undefined] {
  const equals = arg.startsWith("--") ? arg.indexOf("=") : -1;
  return equals < 0 ? [arg, undefined] : [arg.slice(0, equals), arg.slice(equals + 1)];
}

function eventsOf(value: string): readonly string[] | "all" {
  if (value === "all") return "all";
  return value === "none" || value === "" ? [] : value.split(",").map((name) => name.trim());
}

function positive(name: string, value: string | undefined, otherwise: number): number {
  if (value === undefined) return otherwise;
  const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
  if (!(number > 0)) throw new UsageError(`${name} takes a whole number above 0; it got ${value}.`);
  return number;
}

/** Returns the text of `--help`. `verbs` are the lines about what can be asked for instead of serving. */
export function helpText(verbs: readonly string[] = []): string {
  const lines = OPTIONS.map(({ names, value, meaning }) => {
    const left = `${names.join(", ")}${value === undefined ? "" : ` <${value}>`}`;
    return `  ${left.padEnd(34)} ${meaning}`;
  });
  const once =
    verbs.length === 0
      ? ""
      : `\nVerbs run once and do not serve. Exit status: 0, 1 (failure), 2 (usage), 3 (damage).\n\n${verbs.join("\n")}\n`;
  return `pi-session-server [options]
pi-session-server <verb> [options]    (see <verb> --help)

Serves the history of coding agents on stdin and stdout: JSON-RPC 2.0 or Pi's line
dialect, over session files in Pi's JSONL format. protocol.md lists the commands.

${lines.join("\n")}

Other options of Pi are accepted and ignored.
${once}`;
}
