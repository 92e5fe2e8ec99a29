/** Records the golden transcripts of docs/conformance with our own server. */

import { Conversation } from "../src/conformance/conversation.ts";
import { isRecord, type WireValue } from "../src/conformance/dialect.ts";
import { launch } from "../src/conformance/launch.ts";
import { fillNames, type StoodFor, type Transcript } from "../src/conformance/transcripts.ts";

/** Milliseconds that the server may take for a reply. */
const TIMEOUT = 30_000;

/** Settings for a recording: the command of the server and its environment. */
export interface Studio {
  readonly command: readonly string[];
  readonly cwd: string;
  readonly variables: Readonly<Record<string, string | undefined>>;
}

/**
 * Returns the text of a transcript with the server's answers to its messages: one for each that it receives, with names
 * in place of ids, paths and times. Placeholders for any value stay, wherever they are.
 */
export async function recordTranscript(
  { name: _name, steps, ...about }: Transcript,
  { command, ...surroundings }: Studio,
): Promise<string> {
  const combination = { framing: "lines", dialect: about.dialect } as const;
  const conversation = new Conversation(launch(command, surroundings), combination, TIMEOUT);
  if (about.fresh) conversation.holdAll();
  else await conversation.settle();
  const stoodFor: StoodFor = new Map();
  const sent = JSON.stringify(steps.filter((step) => !("receive" in step)));
  const lines: WireValue[] = [about];
  /** Returns whether a value is a time that the transcript itself has sent. */
  const isChosen = (value: WireValue, key: string): boolean =>
    key === "timestamp" && typeof value === "number" && sent.includes(`"timestamp":${value}}`);
  /** Returns a value with names in it. `key` is the member that it is the value of. */
  const named = (value: WireValue, before: WireValue, key: string): WireValue => {
    if (/^<(?:any|text|number|time)>$/.test(String(before))) return before;
    if (Array.isArray(value)) return value.map((item, at) => named(item, before?.[at], key));
    if (!isRecord(value)) return isChosen(value, key) ? value : nameFor(value, key, stoodFor);
    const shown = Object.entries(value).filter(([name]) => !isOwn(name, value, key));
    const members = shown.map(([name, item]) => {
      const isHookId = key === "hook" && name === "id";
      const isDetail = name === "data" && ("code" in value || value.success === false);
      return [name, named(item, before?.[name], isHookId ? "hookId" : isDetail ? "failure" : name)];
    });
    return Object.fromEntries(members);
  };
  try {
    for (const step of steps) {
      if ("receive" in step) {
        const { text, kind } = await conversation.next("a message");
        lines.push({ receive: named(JSON.parse(text), step.receive, kind === "hook" ? "hook" : "") });
        continue;
      }
      lines.push(step);
      conversation.send("sendText" in step ? step.sendText : JSON.stringify(fillNames(step.send, stoodFor)));
    }
    const more = await conversation.settle();
    if (more.length > 0) throw new Error(`${about.title} leaves out ${more.map(({ text }) => text).join("\n")}`);
  } finally {
    await conversation.kill();
  }
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}

/** Members that a server need not have. */
const OPTIONAL = new Set(["lock", "lockedBy", "contextWindow", "contextUsage", "preview"]);

/** Members of the result of `initialize` for hosts that come back, which a server need not have either. */
const RESUMING = new Set(["cursor", "seq"]);

/** Details of a failure that the protocol declares. */
const DETAILS = new Set(["name", "retryable", "issues"]);

/** Returns whether a member is one that our server has of its own accord. */
function isOwn(name: string, inside: WireValue, key: string): boolean {
  if (OPTIONAL.has(name) || ("serverInfo" in inside && RESUMING.has(name))) return true;
  const isFailure = inside.success === false;
  if (isFailure && name === "data") return !("issues" in inside.data);
  return key === "failure" && !DETAILS.has(name);
}

/** Texts that are for people, or about this machine. */
const SENTENCE_MEMBERS = new Set(["message", "error", "cwd"]);

/** Returns a value that the server has made, or the name for it. */
function nameFor(value: WireValue, key: string, stoodFor: StoodFor): WireValue {
  if (key === "hookId") return nameOf(value, "hook", stoodFor);
  if (key === "nextCursor") return nameOf(value, "cursor", stoodFor);
  if (key === "timestamp" || key === "seq") return typeof value === "number" ? "<number>" : "<time>";
  if (typeof value !== "string") return value;
  if (SENTENCE_MEMBERS.has(key)) return "<text>";
  if (/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(value)) return nameOf(value, "session", stoodFor);
  if (/^[0-9a-f]{8}$/.test(value)) return nameOf(value, "entry", stoodFor);
  return value.startsWith("/") ? nameOf(value, "file", stoodFor) : value;
}

/** Returns the name of a value: its own, or the next of its kind. */
function nameOf(value: WireValue, kind: string, stoodFor: StoodFor): string {
  let count = 1;
  for (const [name, stood] of stoodFor) {
    if (stood === value) return name;
    if (name.startsWith(`<${kind}-`)) count++;
  }
  stoodFor.set(`<${kind}-${count}>`, value);
  return `<${kind}-${count}>`;
}
