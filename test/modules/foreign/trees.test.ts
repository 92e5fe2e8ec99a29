/** Short sources of each agent and their results: the tree, and the model's context (`drawnTree`, `drawnContext`). */

import { expect, test } from "vitest";
import type { Session } from "../../../src/core/session/session.ts";
import { type ClaudeWriter, call, said } from "../../support/foreign/claude.ts";
import { type ClineWriter, use, wholeClineScreen } from "../../support/foreign/cline.ts";
import { CODEX_FILE, type CodexWriter } from "../../support/foreign/codex.ts";
import { type CopilotWriter, wholeCopilotLog } from "../../support/foreign/copilot.ts";
import { FORMATS } from "../../support/foreign/formats.ts";
import { GEMINI_SESSION, type GeminiWriter } from "../../support/foreign/gemini.ts";
import * as goose from "../../support/foreign/goose.ts";
import { done, type OpencodeWriter, usage, wholeOpencodeExport, words } from "../../support/foreign/opencode.ts";
import type { Fields } from "../../support/foreign/writing.ts";
import {
  drawnContext,
  drawnTree,
  entriesOf,
  FOREIGN_FILE,
  fidelityOf,
  foreignSession,
  requireSound,
} from "./support/checks.ts";

/** The expected results of a source; lines are joined by ` / `. */
interface Expected {
  readonly tree?: unknown;
  readonly context?: unknown;
  /** Number of warnings; none by default. */
  readonly warned?: number;
  /** Tokens of each answer (input, output, from the cache) and its cost. */
  readonly spent?: string;
  /** Texts that are somewhere in the entries. */
  readonly holds?: readonly string[];
  readonly facts?: object;
}

/** Commands, a source that a writer makes, or one that is there. */
type Source = string | ((w: never) => unknown) | { readonly text: string };

/**
 * Sources are commands: `ask Hello #q; reply Hi. @-`. A command ends with the name of its record, and with the name of
 * the record that it continues (`-`: nothing), if that matters. Each does its verb, with the id of a name.
 */
type Verb<W> = (w: W, text: string, parent: string | null | undefined, idOf: (name: string) => string) => unknown;

/** Splits off the first word. */
const first = (text: string): [string, string] => [text.split(" ")[0], text.replace(/^\S+ ?/, "")];

const CLAUDE: Record<string, Verb<ClaudeWriter>> = {
  ask: (w, text, parent) => w.ask(text, parent),
  reply: (w, text, parent) => w.answer([said(text)], parent),
  call: (w, ids, parent) =>
    w.answer(
      ids.split(" ").map((id) => call(id)),
      parent,
    ),
  result: (w, text, parent) => w.result(...first(text), parent),
  aside: (w, text) => w.user(text, { isSidechain: true }, null),
  leaf: (w, name, _, idOf) => w.about("last-prompt", { lastPrompt: "x", leafUuid: idOf(name), explicit: true }),
  again(w, text) {
    const [at, content] = first(text);
    const record = w.records[Number(at)];
    w.records.push(content === "" ? record : { ...record, message: { role: "user", content } });
  },
  self(w, text) {
    const uuid = w.uuid();
    w.user(text, { uuid }, uuid);
  },
};

const CODEX: Record<string, Verb<CodexWriter>> = {
  back: (w, turns) => w.event("thread_rolled_back", { num_turns: Number(turns) }),
};

const COPILOT: Record<string, Verb<CopilotWriter>> = {
  call: (w, ids) => w.reply("", ids.split(" ")),
  result: (w, text) => w.tool(first(text)[0], { content: first(text)[1] }),
  fail: (w, text) => w.tool(first(text)[0], undefined, { success: false, error: { message: first(text)[1] } }),
  back: (w, name, _, idOf) => w.event("session.snapshot_rewind", { upToEventId: idOf(name), eventsRemoved: 2 }),
  clear: (w) => w.event("session.context_cleared", { messagesCleared: 3 }),
  compact: (w, summaryContent) => w.event("session.compaction_complete", { success: true, summaryContent }),
};

const GEMINI: Record<string, Verb<GeminiWriter>> = {
  ask: (w, text) => w.ask(text).id,
  reply: (w, text) => void w.message("gemini", text),
  call: (w, text) => w.calls([{ id: first(text)[0], name: "one", text: first(text)[1] }]),
  fail: (w, text) => w.calls([{ id: first(text)[0], name: "one", text: first(text)[1], status: "error" }]),
  back: (w, name, _, idOf) => w.rewindTo(idOf(name)),
  /** Puts a summary in the place of the first messages. */
  compact(w, text) {
    const [from, summary] = first(text);
    const own = (id: string, type: string, content: string): Fields => ({ id, timestamp: w.time(), type, content });
    const kept = w.history.slice(Number(from)).map((record, n) => ({ ...record, id: `kept-${n}` }));
    w.setMessages([own("s", "user", `<state_snapshot>${summary}`), own("ok", "gemini", "Got it. Thanks!"), ...kept]);
  },
};

const OPENCODE: Record<string, Verb<OpencodeWriter>> = {
  ask: (w, text) => w.user([words(text)]),
  compact(w, text, _, idOf) {
    const [kept, summary] = first(text);
    w.user([{ type: "compaction", auto: true, tail_start_id: idOf(kept) }]);
    w.answer([words(summary)], { summary: true });
  },
};

/** Verbs that are not the writer's own. */
const VERBS: Readonly<Record<string, object>> = {
  ...{ claude: CLAUDE, codex: CODEX, copilot: COPILOT, gemini: GEMINI, opencode: OPENCODE },
};

function textOf(agent: string, source: Source): string {
  if (typeof source === "object") return source.text;
  const { w } = FORMATS.find(({ format }) => format === agent)!.begin!();
  if (typeof source === "function") source(w as never);
  const verbs = (VERBS[agent] ?? {}) as Record<string, Verb<unknown>>;
  const ids = new Map<string, unknown>();
  const idOf = (name: string): string => (ids.get(name) as string | undefined) ?? name;
  for (const command of typeof source === "string" ? source.split("; ") : []) {
    const [, verb, said, name, parent] = /^(\w+) ?(.*?)(?: #(\w+))?(?: @(\S+))?$/.exec(command) as string[];
    const continued = parent === undefined ? undefined : parent === "-" ? null : idOf(parent);
    const own = (): unknown => (w as unknown as Record<string, (text: string) => unknown>)[verb](said);
    const made = verbs[verb] ? verbs[verb](w, said, continued, idOf) : own();
    if (name && Array.isArray(made)) for (const [n, id] of made.entries()) ids.set(name + n, id);
    else if (name) ids.set(name, made);
  }
  return (w as unknown as { readonly text: string }).text;
}

const lines = (...records: object[]): { text: string } => {
  return { text: records.map((one) => `${JSON.stringify(one)}\n`).join("") };
};

/** A compaction of Claude Code's that keeps from a record on. */
const compacted = (head: (kept: string, other: string) => string) => (w: ClaudeWriter) => {
  const other = w.ask("On another branch");
  w.ask("First", null);
  w.answer([said("One.")]);
  const kept = w.ask("Second");
  const [tail] = w.answer([said("Two.")]);
  const preservedSegment = { headUuid: head(kept, other), tailUuid: tail };
  const compactMetadata = { trigger: "manual", preTokens: 900, preservedSegment };
  const boundary = w.node("system", { subtype: "compact_boundary", logicalParentUuid: tail, compactMetadata }, null);
  w.about("mode", { mode: "normal" });
  w.node("attachment", { attachment: { type: "date" } }, boundary);
  w.user("In short", { isCompactSummary: true }, boundary);
  w.ask("Third");
};

const PARALLEL = "ask Hello #q; call t1 t2 #c; result t1 one #r @c0; result t2 two @c1; reply Done. @r";
const AFTER = "user: Hello / model: [t1] [t2] / result: one / result: two / model: Done.";
const at = (minute: number): string => `2024-01-01T10:0${minute}:00Z`;
const read = { type: "tool_use", id: "t1", name: "Read", input: { file_path: "a" } };
const TAKEN = "ask One; reply First.; ask Two #2; reply Second.; back 2; ask Instead";
const TAKEN_BACK = "user: One / model: First. / user: Two / model: Second. / 2 < user: Instead";
const toolRequests = [{ toolCallId: "a", name: "ls", arguments: "{}" }];
const record = { inputTokens: 1000, outputTokens: 50, cacheReadTokens: 100, cost: 1, apiCallId: "api_1" };

const OLD_CALL = { name: "read_file", args: {}, status: "success" };
const oldGemini = (space: number): { text: string } => {
  const timestamp = "2025-08-01T10:00:05Z";
  const said = { content: "", thoughts: [{ subject: "", description: "hm" }] };
  const toolCalls = [OLD_CALL, { ...OLD_CALL, result: "text" }];
  const answer = { id: "g", timestamp, type: "gemini", ...said, toolCalls };
  const messages = [{ id: "u", timestamp, type: "user", content: "Read" }, answer];
  return {
    text: JSON.stringify(
      { lastUpdated: timestamp, messages, projectHash: "abc", sessionId: GEMINI_SESSION },
      null,
      space,
    ),
  };
};

const odd = [{ type: "text", text: 5 }, { type: "image", data: "" }, { type: "toolRequest", id: "call_1" }, {}];
const spent = { inputTokens: 1000, outputTokens: 50, totalTokens: 1050, cacheReadTokens: 900, cost: 0.25 };
const created = Date.UTC(2025, 8, 14, 8) / 1000;
const response = { type: "toolResponse", id: "a", toolResult: { status: "success", value: [goose.said("out")] } };

const step = { type: "step-start" };
const finish = (reason: string, cost: number): Fields => ({ ...usage(11), type: "step-finish", reason, cost });
const taking = (withPart: boolean) => (w: OpencodeWriter) => {
  w.ask("Go");
  const messageID = w.step([words("first"), done("call_1", "out"), words("taken back")]);
  w.info = { ...w.info, revert: { messageID, ...(withPart ? { partID: w.messages[1].parts[3].id } : {}) } };
};

const results = (w: ClineWriter): void => {
  w.message("user", "Go");
  w.answer([use("a"), use("b")]);
  const given = ["b", "a"].map((id) => ({ tool_use_id: id, content: id, is_error: id === "b" }));
  w.message(
    "user",
    given.map((one) => ({ type: "tool_result", ...one })),
  );
};
const page = (w: ClineWriter): void => {
  w.message("user", [{ type: "text", text: "Make a page" }]);
  w.message("assistant", "Made.");
};
const HIDDEN = "[Sliding window truncation: 2 messages hidden]";
const MADE = { tree: expect.stringContaining("model: Made.") };
// Nothing was requested between the last two answers.
const SCREEN = {
  context: "summary: A red page / model: Done. And",
  spent: "100 10 3 0.01, 110 20 6 0.02, 10 10 3 0.01",
};

const IN_ORDER = "results come in the order of the file";
const FAILED_FIRST = { context: expect.stringMatching(/failure: b \/ result: a/) };
const OLD = { context: expect.stringMatching(/^user: Read \/ model: .* \/ result: text$/) };

/** Rules of each agent: a source, and its expected results. */
const RULES: Readonly<Record<string, Readonly<Record<string, readonly [Source, Expected]>>>> = {
  claude: {
    "parallel results are no branches, whichever block they name": [PARALLEL, { tree: AFTER }],
    "what a person says again begins a branch, at the root and elsewhere": [
      `${PARALLEL}; ask Hello again @-; ask Another way @q`,
      { tree: `${AFTER} / 0 < user: Hello again / 1 < user: Another way` },
    ],
    "where answers have no parent, no record names any, and each continues the one before it": [
      "ask Hello @-; call t1 @-; result t1 one @-; reply Done. @-; ask Go on @-",
      { tree: "user: Hello / model: [t1] / result: one / model: Done. / user: Go on" },
    ],
    "a compaction keeps what its boundary says": [
      compacted((kept) => kept),
      { context: "summary: In short / user: Second / model: Two. / user: Third", holds: ['"tokensBefore":900'] },
    ],
    "a compaction keeps nothing where its segment is not on the way to it": [
      compacted((_, other) => other),
      { context: "summary: In short / user: Third" },
    ],
    "the leaf is the newest of the main chain, whatever is written last": [
      "ask First; ask Second; aside Aside",
      { context: "user: First / user: Second" },
    ],
    "the leaf is the one that is named": ["ask First #1; ask Second; leaf 1", { context: "user: First" }],
    "records that are written twice are there once": [
      "ask First; reply One.; again 0; again 1",
      { tree: "user: First / model: One." },
    ],
    "of a record in two versions, those that follow continue the last": [
      "ask First #1; reply One.; again 0 First, in other words; ask After it @1",
      { context: "user: First, in other words / user: After it", warned: 1 },
    ],
    "a record whose parent is nowhere, or is itself, continues the one before it": [
      "ask First; ask Lost @99999999-0000-4000-8000-000000000000; self Its own parent",
      { tree: "user: First / user: Lost / user: Its own parent", warned: 2 },
    ],
    "files of the oldest versions, whose records have neither uuid nor parent, are one line": [
      lines(
        { type: "user", timestamp: at(0), message: { content: "Mend it" }, cwd: "/home/me/app" },
        { type: "assistant", timestamp: at(1), message: { content: [said("I look."), read] } },
        { type: "user", timestamp: at(2), message: { content: "That is right" } },
        { type: "assistant", timestamp: at(3), message: { content: [said("Done.")] } },
      ),
      {
        context: "user: Mend it / model: I look. / user: That is right / model: Done.",
        facts: { cwd: "/home/me/app" },
      },
    ],
  },
  codex: {
    "what was rolled back stays as a branch": [TAKEN.replace("back 2", "back 1"), { tree: TAKEN_BACK }],
  },
  copilot: {
    "what was taken back stays as a branch": [TAKEN, { tree: TAKEN_BACK }],
    "what was cleared stays as a branch": [
      `${TAKEN}; clear; ask Anew`,
      { tree: `${TAKEN_BACK} / 0 < user: Anew`, context: "user: Anew" },
    ],
    "results come in the order of the file, and one that failed says so": [
      "ask Go; call a b; result b second; fail a denied",
      { context: "user: Go / model: [a] [b] / result: second / failure: denied" },
    ],
    "tokens are those that the record of a call says, and count once; its cost is a factor and no money": [
      (w: CopilotWriter) => {
        w.ask("Go");
        w.event("session.usage_record", { usage: record });
        w.reply("One ", [], { apiCallId: "api_1", chunkIndex: 0 });
        w.reply("answer", ["a"], { apiCallId: "api_1", chunkIndex: 1 });
        w.tool("a", { content: "out" });
        w.reply("Without a record", [], { apiCallId: "api_2", outputTokens: 7 });
      },
      {
        context: "user: Go / model: One  answer [a] / result: out / model: Without a record",
        spent: "900 50 100 0, 0 7 0 0",
      },
    ],
    "after a compaction, the model sees its summary and what comes after it": [
      "ask Before; compact The summary; ask After",
      { context: "summary: The summary / user: After" },
    ],
    "events of older versions have no ids, and results of any form": [
      lines(
        { type: "user.message", data: { content: "Go" }, timestamp: at(0) },
        { type: "assistant.message", data: { content: "", toolRequests }, timestamp: at(0) },
        {
          type: "tool.execution_complete",
          data: { toolCallId: "a", success: true, result: { files: [1] } },
          timestamp: at(0),
        },
      ),
      { context: 'user: Go / model: [a] / result: {"files":[1]}' },
    ],
  },
  gemini: {
    "what was gone back from stays as a branch": [TAKEN, { tree: TAKEN_BACK }],
    "a message that is not there is gone back to as the beginning": [
      "ask One; reply First.; back nowhere; ask Two",
      { tree: "user: One / model: First. / 0 < user: Two", context: "user: Two", warned: 1 },
    ],
    "the leaf is where the conversation went back to": [
      "ask One; reply First.; ask Two #2; back 2",
      { context: "user: One / model: First." },
    ],
    "a summary with kept messages is a compaction that keeps their entries": [
      "ask One; reply First.; ask Two; reply I look.; call a 1; reply Second.; compact 2 One; ask Three",
      {
        tree: "user: One / model: First. / user: Two / model: I look. [a] / result: 1 / model: Second. / summary: <state_snapshot>One / user: Three",
        context:
          "summary: <state_snapshot>One / user: Two / model: I look. [a] / result: 1 / model: Second. / user: Three",
      },
    ],
    "a call that failed says so": ["ask Go; reply So; fail a 1", { context: "user: Go / model: So [a] / failure: 1" }],
    // Calls have no ids, and the result of one was not kept.
    "an old document on one line": [oldGemini(0), OLD],
    "an old document": [oldGemini(2), OLD],
  },
  goose: {
    "what only the model sees is text or a picture for it, whatever it was": [
      (w: goose.GooseWriter) => w.user(odd, goose.MODEL_ONLY),
      {},
    ],
    "after compactions, the model sees the last summary and what comes after it": [
      "ask One; reply One.; compact Summary one; ask Two; reply Two.; compact Summary two; ask Three",
      {
        context: "summary: Summary two / custom: Go on as if nothing was / user: Three",
        tree: expect.stringContaining("summary: Summary one"),
      },
    ],
    "what the model alone sees is not shown, and what a person alone sees is not in the context": [
      (w: goose.GooseWriter) => {
        const notice = { type: "systemNotification", notificationType: "inlineMessage", msg: "a notice" };
        w.ask("One");
        w.user([goose.said("a hint")], goose.MODEL_ONLY);
        w.answer([notice], goose.PERSON_ONLY);
        w.reply("Answer");
      },
      { context: "user: One / custom: a hint / model: Answer", holds: ['"display":false'] },
    ],
    "of a tool's result, the context has what the model saw": [
      (w: goose.GooseWriter) => {
        const seenBy = (who: string, text: string): Fields => goose.said(text, { annotations: { audience: [who] } });
        w.answer([goose.asked("a")]);
        w.user([goose.answered("a", [seenBy("assistant", "plain"), seenBy("user", "drawn for a person")])]);
      },
      { context: "model: [a] / result: plain", holds: ["drawn for a person"] },
    ],
    "tokens and cost are those that messages say, and totals that nothing says are named": [
      (w: goose.GooseWriter) => {
        const sums = { accumulated_input_tokens: 1200, accumulated_output_tokens: 300, accumulated_cost: 0.5 };
        w.session = { ...w.session, ...sums };
        w.answer([goose.said("Answer")], { ...goose.BOTH, usage: spent });
      },
      {
        spent: "100 50 900 0.25",
        facts: { warnings: [{ sentence: expect.stringMatching(/1200 .* 300 .* 0\.5 dollars/) }] },
        warned: 1,
      },
    ],
    "a file of lines, as older versions have it, whose last line is cut": [
      {
        text: `${
          lines(
            { working_dir: "/home/me/project", description: "An older session", message_count: 2 },
            { role: "user", created, content: [goose.said("Go")] },
            { role: "assistant", created, content: [goose.asked("a")] },
            { role: "user", created, content: [response] },
          ).text
        }{"role":"assis`,
      },
      { context: "user: Go / model: [a] / result: out", facts: { records: 5, name: "An older session" }, warned: -1 },
    ],
  },
  opencode: {
    "what was reverted stays as a branch, and the leaf is before it": [
      wholeOpencodeExport(),
      {
        tree: expect.stringMatching(/user: The end of what holds \/ model: Yes. \/ user: This was taken back/),
        context: expect.stringMatching(/model: Yes\.$/),
      },
    ],
    "a revert takes back a whole message": [taking(false), { context: "user: Go" }],
    "a revert from a part on keeps the parts before it": [
      taking(true),
      { context: "user: Go / model: first [call_1] / result: out", holds: ["taken back"] },
    ],
    "a compaction keeps what its tail begins with": [
      "ask Forget this; reply Forgotten.; ask Keep this #k; reply Kept.; compact k The summary; ask Go on",
      { context: "summary: The summary / user: Keep this / model: Kept. / user: Go on" },
    ],
    "a step is an answer, whose tokens and cost are counted once": [
      (w: OpencodeWriter) => {
        w.ask("Go");
        const steps = [step, done("a", "out"), finish("tool-calls", 0.5), step, words("Done."), finish("stop", 0.25)];
        w.answer(steps, { cost: 0.75, tokens: usage(11).tokens });
      },
      { context: "user: Go / model: [a] / result: out / model: Done.", spent: "11 25 100 0.5, 11 25 100 0.25" },
    ],
  },
  roo: {
    [IN_ORDER]: [results, FAILED_FIRST],
    "hidden messages leave the task, and stay in the tree": [
      (w: ClineWriter) => {
        page(w);
        w.message("user", HIDDEN, { isTruncationMarker: true, truncationId: "x" });
        w.message("user", "More");
      },
      { ...MADE, context: `summary: Make a page\n\n${HIDDEN} / user: More` },
    ],
    "a summary stands for all before it": [
      (w: ClineWriter) => {
        page(w);
        for (const message of w.messages) message.condenseParent = "c";
        w.message("user", [{ type: "text", text: "All before" }], { isSummary: true, condenseId: "c" });
        w.message("user", "Yet more");
      },
      { ...MADE, context: "summary: All before / user: Yet more" },
    ],
  },
  cline: {
    [IN_ORDER]: [results, FAILED_FIRST],
    "what is shown of a task": [{ text: JSON.stringify(wholeClineScreen()) }, SCREEN],
    "what is shown of a task, in lines": [{ text: JSON.stringify(wholeClineScreen(), null, 2) }, SCREEN],
  },
  "cline contract": {
    [IN_ORDER]: [results, FAILED_FIRST],
  },
};

const ROWS = Object.entries(RULES).flatMap(([agent, rules]) =>
  Object.entries(rules).map(([rule, row]) => [agent, rule, ...row] as const),
);

test.each(ROWS)("%s: %s", (agent, _, source, expected) => {
  const task = "/elsewhere/tasks/1784094124598/api_conversation_history.json";
  const files: Record<string, string> = { codex: CODEX_FILE, "cline contract": task, cline: task, roo: task };
  const session = foreignSession(textOf(agent, source), files[agent] ?? FOREIGN_FILE);
  requireSound(session);
  const { tree, context, warned = 0, facts = {} } = expected;
  const { records, warnings, warningCount } = fidelityOf(session.log);
  if (warned >= 0) expect(warningCount).toBe(warned);
  if (tree) expect(drawnTree(session).join(" / ")).toEqual(tree);
  if (context) expect(drawnContext(session).join(" / ")).toEqual(context);
  if (expected.spent) expect(spentIn(session)).toBe(expected.spent);
  for (const text of expected.holds ?? []) expect(holds(session, text), text).toBe(true);
  expect({ records, warnings, name: session.name, cwd: session.cwd }).toMatchObject(facts);
});

function spentIn(session: Session): string {
  const answers = entriesOf(session).flatMap(({ message }) =>
    (message as Fields)?.role === "assistant" ? [(message as { usage: Fields }).usage] : [],
  );
  const spent = answers.map(({ input, output, cacheRead, cost }) => [input, output, cacheRead, (cost as Fields).total]);
  return spent.map((one) => one.join(" ")).join(", ");
}

function holds(session: Session, text: string): boolean {
  return JSON.stringify(entriesOf(session)).includes(text);
}

test("copilot: what subagents said is kept, and is no part of the conversation", () => {
  const session = foreignSession(wholeCopilotLog().text);
  expect(holds(session, "From a subagent")).toBe(true);
  expect(drawnTree(session).join()).not.toContain("From a subagent");
});

test.each([
  ["opencode", wholeOpencodeExport().text, "Second", "See these", '"auto": true'],
  ["goose", goose.wholeGooseExport().text, "it broke", "In ", '"userVisible": true'],
])("%s: of a cut or damaged export, what is whole is read", (agent, whole, cut, kept, member) => {
  const half = foreignSession(whole.slice(0, whole.indexOf(cut)));
  requireSound(half);
  expect([holds(half, kept), holds(half, `import:${agent}:damaged`)]).toEqual([true, true]);
  const { records } = fidelityOf(foreignSession(whole).log);
  expect(fidelityOf(foreignSession(whole.replace(member, member.slice(0, -1))).log).records).toBe(records);
});

test("goose: each text is somewhere in the entries", () => {
  const { text, conversation } = goose.wholeGooseExport();
  const session = foreignSession(text);
  for (const { text } of conversation.flatMap(({ content }) => content as { text?: string }[]))
    if (text !== undefined) expect(holds(session, JSON.stringify(text).slice(1, -1)), text).toBe(true);
});
