/** Texts that Cline and its relatives write in a person's place, and the facts of the session in them. */

import { type JsonObject, toText, toTimestamp } from "../../../../core/foreign/messages.ts";
import { getFolderName, getOwnName } from "../file-name.ts";

const ENVIRONMENT = "<environment_details>";
/** Beginnings of texts that the program wrote. */
const NOTICES = [
  "[TASK RESUMPTION]",
  "[ERROR]",
  "<explicit_instructions",
  "<mode_notice>",
  "# task_progress",
  "# TODO",
];
/** Tags that the program puts around a person's text. */
const AROUND = ["task", "user_message", "feedback", "user_input", "answer"];
/** Characters of a text that are searched for the head of a tool's answer. */
const HEAD = 4000;

/** Names of the files of a task, whose folder has the task's id as its name. */
const TASK_FILES = new Set(["api_conversation_history", "ui_messages"]);
/** An id of a task: when it began, in milliseconds, or a UUID. */
const TASK_ID = /^(?:\d{10,16}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/i;

/** Returns the id of a file's task, if its path has it. */
export function parseTaskId(name: string): string | undefined {
  const folder = getFolderName(name);
  return TASK_FILES.has(getOwnName(name)) && folder !== undefined && TASK_ID.test(folder) ? folder : undefined;
}

/** Returns the start of a file's task, if its id has it. */
export function parseTaskTime(name: string): string | undefined {
  const id = parseTaskId(name);
  const at = id !== undefined && /^\d{13}$/.test(id) ? toTimestamp(Number(id), "") : "";
  return at === "" ? undefined : at;
}

/** Returns the purpose of a text that the program wrote; undefined for a person's. */
export function detectClineHarness(block: JsonObject): "environment" | "notice" | "tool-output" | undefined {
  if (block.type !== "text") return undefined;
  const text = (toText(block.text) ?? "").trimStart();
  if (text.startsWith(ENVIRONMENT)) return "environment";
  if (NOTICES.some((beginning) => text.startsWith(beginning))) return "notice";
  // Before models had tools of their own, tools answered in this way.
  return /^\[[a-z_]+[ \]]/.test(text) && text.slice(0, HEAD).includes("] Result:") ? "tool-output" : undefined;
}

/** Returns a person's text without the tag that is around all of it. */
export function unwrapText(text: string): string {
  const trimmed = text.trim();
  for (const tag of AROUND) {
    const close = `</${tag}>`;
    if (!trimmed.startsWith(`<${tag}`) || trimmed.indexOf(close) !== trimmed.length - close.length) continue;
    const opened = /^<[a-z_]+(?: [^<>]*)?>/.exec(trimmed)?.[0];
    if (opened !== undefined) return trimmed.slice(opened.length, -close.length).replace(/^\n|\n$/g, "");
  }
  return text;
}

/** Facts of a session in the details of its environment. */
interface EnvironmentFacts {
  readonly cwd: string | undefined;
  readonly model: string | undefined;
  /** ISO 8601. */
  readonly at: string | undefined;
}

export function parseEnvironment(text: string): EnvironmentFacts {
  const folder = /^# Current (?:Workspace|Working) Directory \((?:Primary: )?([^\n]+)\) Files/m.exec(text)?.[1];
  const model = /^<model>([^<\n]+)<\/model>/m.exec(text)?.[1];
  const iso = /^Current time in ISO 8601 UTC format: (\S+)/m.exec(text)?.[1];
  return { cwd: folder, model, at: iso ?? localTime(text) };
}

/** Returns the time that is written as people in America write it, with its zone. */
function localTime(text: string): string | undefined {
  const found = /^# Current Time\n(\d+)\/(\d+)\/(\d{4}), (\d+):(\d+):(\d+)\s([AP])M \([^\n]*UTC([+-]\d+):?(\d*)/m.exec(
    text,
  );
  if (!found) return undefined;
  const [month, day, year, hour, minute, second] = found.slice(1, 7).map(Number);
  const offset = Number(found[8]) * 60 + Math.sign(Number(found[8])) * Number(found[9]);
  const hours = (hour % 12) + (found[7] === "P" ? 12 : 0);
  const at = Date.UTC(year, month - 1, day, hours, minute - offset, second);
  return Number.isFinite(at) ? new Date(at).toISOString() : undefined;
}
