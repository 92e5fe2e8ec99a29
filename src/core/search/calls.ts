/** Tool calls as they are searched: the values of their arguments, and the files that they name. */

import { getToolCalls, toStored } from "../format/message.ts";
import { tryParseText } from "../json/json.ts";
import { NamedFiles } from "./named-files.ts";

/**
 * Characters of one argument that are searched, and of a whole call. In a real session of 391 calls the median is 78,
 * 99 of 100 have less than 3,400, and the longest has 8,619: only files that are written as a whole are cut. A search
 * for them finds their beginning, and a file of 1 MB adds no more to the index than a long answer.
 */
const LONGEST = { argument: 8192, call: 32_768 };
/** Calls of one entry, and arguments of one call, that are searched. */
const MOST = { calls: 1000, arguments: 10_000 };

interface ToolUse {
  readonly tool: string;
  readonly text: string;
  /** As {@link normalizeFileName} returns them. */
  readonly files: readonly string[];
}

type Message = Readonly<Record<string, unknown>>;

/** Returns the tool calls in a message. `cwd` is the directory of its session. */
export function findToolUses(message: Message, cwd: string | null): ToolUse[] {
  if (message.role === "assistant")
    return getToolCalls(message.content)
      .slice(0, MOST.calls)
      .map((call) => useOf(call.name, call.arguments, cwd));
  if (message.role === "bashExecution") return [useOf("bash", { command: message.command }, cwd)];
  return message.role === "toolResult" ? usesInResult(message, cwd) : [];
}

/** Returns the calls that a script made, as its result lists them, and the files in the details of a result. */
function usesInResult({ toolName, details, nestedCalls }: Message, cwd: string | null): ToolUse[] {
  const calls = (nestedCalls as { calls?: unknown } | null | undefined)?.calls;
  const uses = (Array.isArray(calls) ? calls.slice(0, MOST.calls) : []).map((call) =>
    useOf(toStored(call?.name), call?.arguments, cwd),
  );
  const tool = toStored(toolName);
  const named = new NamedFiles(cwd);
  // The calls of these two name the files of their patches, too.
  for (const { name, text } of argumentsIn(details))
    if (!((tool === "edit" || tool === "write") && /^(?:diff|patch)$/.test(name))) named.addArgument(name, text);
  const files = named.all;
  return files.length === 0 ? uses : [...uses, { tool, text: files.join("\n").slice(0, LONGEST.argument), files }];
}

function useOf(tool: string, args: unknown, cwd: string | null): ToolUse {
  const files = new NamedFiles(cwd);
  let text = "";
  for (const { name, text: own, follows } of argumentsIn(asObject(args))) {
    files.addArgument(name, own);
    const rest = Math.min(LONGEST.argument, LONGEST.call - text.length);
    if (rest > 0) text += `${text === "" ? "" : follows ? " " : "\n"}${cut(own, rest)}`;
  }
  return { tool, text, files: files.all };
}

/** Returns arguments as a value: some agents store them as the text of their JSON. */
function asObject(args: unknown): unknown {
  if (typeof args !== "string" || !/^\s*[{[]/.test(args)) return args;
  return tryParseText(args) ?? args;
}

interface Argument {
  /** The nearest name above it. */
  readonly name: string;
  readonly text: string;
  /** True if it follows another one in the same list. */
  readonly follows: boolean;
}

/** Yields the texts and numbers in a value, however deep, in their order. */
function* argumentsIn(value: unknown): Generator<Argument> {
  let left = MOST.arguments;
  const open: { name: string; value: unknown; follows: boolean }[] = [{ name: "", value, follows: false }];
  for (let next = open.pop(); next && left > 0; next = open.pop()) {
    const { name, value, follows } = next;
    if (typeof value === "string" || typeof value === "number") {
      left--;
      yield { name, text: String(value), follows };
    } else if (Array.isArray(value))
      for (let i = value.length - 1; i >= 0; i--) open.push({ name, value: value[i], follows: i > 0 });
    else if (typeof value === "object" && value !== null)
      for (const [own, inner] of Object.entries(value).reverse())
        open.push({ name: own, value: inner, follows: false });
  }
}

/** Returns the beginning of a text; a surrogate pair stays whole. */
function cut(text: string, length: number): string {
  if (text.length <= length) return text;
  return text.slice(0, /[\ud800-\udbff]/.test(text[length - 1]) ? length - 1 : length);
}
