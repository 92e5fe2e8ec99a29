/** The tool history: calls in order of time, of a file, a command, or an error with what was done about it. */

import type { CommandResult, RecallHit } from "../../server/recall-module.ts";
import type { Library } from "./library.ts";
import { CallMistake, projectParam, sinceParam } from "./params.ts";
import type { Redaction } from "./redaction.ts";
import { countOf, formatDay, formatFolder, formatHead, formatTitle, readScope, type Tool } from "./shared.ts";
import { AnswerText, fence, quote, toInline } from "./texts.ts";

const USUAL_CALLS = 10;
const USUAL_BYTES = 9000;
/** Entries after an error that are looked at for what was done. */
const AFTERWARDS = 40;
const MOST_STEPS = 8;
/** Errors that come with the calls after them. */
const MOST_ERRORS = 4;
const OUTPUTS = ["toolResult", "bashExecution"];

export const history: Tool = {
  name: "history",
  title: "Show what happened to a file, a command or an error",
  description:
    "Calls in order of time, in every session: file: who read and changed a file, by its path or path end; command: when a command ran; " +
    "error: where an error was seen before, and the calls after it until the same command succeeded. Give one of the three.",
  operands: ["file"],
  params: {
    file: { type: "string" },
    command: { type: "string" },
    error: { type: "string", description: "telling words of the message" },
    project: projectParam,
    since: sinceParam,
    limit: { type: "integer", most: 30, description: `default ${USUAL_CALLS}` },
  },
  async run(call) {
    const { library, args, redaction } = call;
    const { file, command, error } = args as { file?: string; command?: string; error?: string };
    if ([file, command, error].filter((one) => one !== undefined && one.trim() !== "").length !== 1)
      throw new CallMistake("Give one of file, command and error.");
    const limit = Number(args.limit ?? USUAL_CALLS);
    const scope = readScope(call);
    const wanted =
      file !== undefined
        ? { file }
        : command !== undefined
          ? { query: command, in: ["toolCall", "bashExecution"] }
          : { query: error, in: OUTPUTS, ranked: true };
    const { agents, cwd, since } = scope;
    const found = await library.search({ ...scope, ...wanted, limit: Math.min(100, limit * 2) });
    const counted = await library.count({ agents, cwd, since });
    const seen = new Set<string>();
    const hits = found.hits.filter((hit) => {
      const key = `${hit.inheritedFrom?.sessionId ?? hit.sessionId} ${hit.entryId} ${hit.line}`;
      const isNew = !seen.has(key);
      seen.add(key);
      return isNew;
    });
    const answer = new AnswerText(USUAL_BYTES);
    const head = formatHead(library, { matching: counted.total, lists: [counted, found] });
    const shown = error === undefined ? hits.slice(0, limit) : hits.slice(0, Math.min(limit, MOST_ERRORS));
    shown.sort((a, b) => (a.at ?? "").localeCompare(b.at ?? ""));
    let shownCount = 0;
    for (const hit of shown) {
      const part =
        error === undefined ? describeCall(library, redaction, hit) : await describeError(library, redaction, hit);
      if (!answer.add(part)) break;
      shownCount++;
    }
    if (answer.isEmpty) return answer.finish(head, "Nothing was found.");
    const isMore = shownCount < hits.length || found.nextCursor !== undefined;
    const foot = isMore ? "There is more: a larger limit, a later since, or find with in: all." : "That is all.";
    return answer.finish(head, foot, "\n");
  },
};

function describeHit(library: Library, redaction: Redaction, hit: RecallHit): string {
  const { shortId, entryId, agent = "pi", at, cwd, onActivePath } = hit;
  const where = formatFolder(cwd, library.world.home, redaction);
  const mark = onActivePath ? [] : ["abandoned branch"];
  return [formatDay(at), `${shortId}#${entryId}`, agent, where, ...mark, formatTitle(hit, redaction, 50)].join(" · ");
}

function describeCall(library: Library, redaction: Redaction, hit: RecallHit): string {
  return `${describeHit(library, redaction, hit)}\n  ${toInline(hit.tool ?? hit.role, 40)}: ${quote(hit.line, 200)}`;
}

/** Returns an error, and the calls after it until the same one succeeded. */
async function describeError(library: Library, redaction: Redaction, hit: RecallHit): Promise<string> {
  const head = `${describeHit(library, redaction, hit)}\n${fence(hit.line)}`;
  const { sessionPath, entryId } = hit;
  const preview = await library.world
    .ask("preview_session", { sessionPath, entryId, before: 6, after: AFTERWARDS, characters: 400 })
    .catch(() => undefined);
  if (!preview) return head;
  const all: CommandResult[] = preview.entries;
  const at = all.findIndex(({ id }) => id === entryId);
  const failed = all
    .slice(0, at)
    .findLast(({ calls }) => calls !== undefined)
    ?.calls?.at(-1);
  const steps: string[] = [];
  let isSolved = false;
  let again = false;
  for (const { id, calls = [], role, isError, text, isCut } of all.slice(at + 1)) {
    if (role === "toolResult" && again) {
      again = false;
      if (!isError) {
        isSolved = true;
        break;
      }
    }
    if (role === "user") {
      steps.push(`  user #${id}: ${quote(redaction.text(text, isCut === true), 100)}`);
      continue;
    }
    for (const { name, argument } of calls) {
      steps.push(`  ${toInline(name, 40)} #${id}: ${quote(redaction.text(argument, argument.length >= 80), 120)}`);
      again ||= failed !== undefined && name === failed.name && argument === failed.argument;
    }
  }
  const left = steps.length - MOST_STEPS;
  const shown =
    left > 0
      ? [...steps.slice(0, MOST_STEPS / 2), `  (${countOf(left, "step")} more)`, ...steps.slice(-MOST_STEPS / 2)]
      : steps;
  const end = isSolved ? "  then the same call succeeded" : "  the same call was not seen to succeed afterwards";
  return [head, ...shown, end].join("\n");
}
