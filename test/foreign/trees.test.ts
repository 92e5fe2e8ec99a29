/** What a short source of each agent becomes: its tree, and what the model sees of it (`drawnTree`, `drawnContext`). */

import { expect, test } from "vitest";
import type { Session } from "../../src/core/session/session.ts";
import {
  drawnContext,
  drawnTree,
  entriesOf,
  FOREIGN_FILE,
  fidelityOf,
  foreignSession,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import { ClaudeWriter, call, said } from "../support/foreign/claude.ts";
import { type ClineForm, ClineWriter, use, wholeClineScreen } from "../support/foreign/cline.ts";
import { CODEX_FILE, CodexWriter } from "../support/foreign/codex.ts";
import { CopilotWriter, wholeCopilotLog } from "../support/foreign/copilot.ts";
import { GEMINI_SESSION, GeminiWriter } from "../support/foreign/gemini.ts";
import {
  answered,
  asked,
  BOTH,
  GooseWriter,
  MODEL_ONLY,
  PERSON_ONLY,
  wholeGooseExport,
  said as words,
} from "../support/foreign/goose.ts";
import { done, OpencodeWriter, words as part, usage, wholeOpencodeExport } from "../support/foreign/opencode.ts";
import type { Fields } from "../support/foreign/writing.ts";

/** What is expected of a source; lines are joined by ` / `. */
interface Expected {
  readonly tree?: unknown;
  readonly context?: unknown;
  /** How many warnings there are; none by default. */
  readonly warned?: number;
  /** Members of messages of the context, from the first on. */
  readonly messages?: readonly object[];
  /** Members of entries, wherever they stand. */
  readonly entries?: readonly object[];
  readonly facts?: object;
}

type Row = readonly [rule: string, source: () => string, expected: Expected];

/** Makes a source with a writer. */
function by<Writer extends { readonly text: string }>(make: () => Writer) {
  return (write: (w: Writer) => unknown) => (): string => {
    const w = make();
    write(w);
    return w.text;
  };
}

const claude = by(() => new ClaudeWriter());
const codex = by(() => {
  const w = new CodexWriter();
  w.meta();
  return w;
});
const copilot = by(() => {
  const w = new CopilotWriter();
  w.start();
  return w;
});
const gemini = by(() => new GeminiWriter());
const goose = by(() => new GooseWriter());
const opencode = by(() => new OpencodeWriter());
const cline = (form: ClineForm) => by(() => new ClineWriter(form));
const lines = (records: readonly object[]) => (): string => records.map((one) => `${JSON.stringify(one)}\n`).join("");

/** A compaction of Claude Code's that keeps from a record on. */
const compacted = (head: (kept: string, other: string) => string) =>
  claude((w) => {
    const other = w.human("On another branch");
    w.human("First", null);
    w.answer([said("One.")]);
    const kept = w.human("Second");
    const [tail] = w.answer([said("Two.")]);
    const preservedSegment = { headUuid: head(kept, other), tailUuid: tail };
    const compactMetadata = { trigger: "manual", preTokens: 900, preservedSegment };
    const boundary = w.node("system", { subtype: "compact_boundary", logicalParentUuid: tail, compactMetadata }, null);
    w.about("mode", { mode: "normal" });
    w.node("attachment", { attachment: { type: "date" } }, boundary);
    w.user("In short", { isCompactSummary: true }, boundary);
    w.human("Third");
  });

const PARALLEL = "user: Hello / model: [t1] [t2] / result: one / result: two / model: Done.";
const parallel = (w: ClaudeWriter): string => {
  const question = w.human("Hello");
  const [first, second] = w.answer([call("t1"), call("t2")]);
  w.result("t1", "one", first);
  const late = w.last;
  w.result("t2", "two", second);
  w.answer([said("Done.")], late);
  return question;
};

const at = (minute: number): string => `2024-01-01T10:0${minute}:00Z`;
const read = { type: "tool_use", id: "t1", name: "Read", input: { file_path: "a" } };

const CLAUDE: readonly Row[] = [
  ["parallel results are no branches, whichever block they name", claude(parallel), { tree: PARALLEL }],
  [
    "what a person says again begins a branch, at the root and elsewhere",
    claude((w) => {
      const question = parallel(w);
      w.human("Hello again", null);
      w.human("Another way", question);
    }),
    { tree: `${PARALLEL} / 0 < user: Hello again / 1 < user: Another way` },
  ],
  [
    "where answers have no parent, no record names any, and each continues the one before it",
    claude((w) => {
      w.human("Hello", null);
      w.answer([call("t1")], null);
      w.result("t1", "one", null);
      w.answer([said("Done.")], null);
      w.human("Go on", null);
    }),
    { tree: "user: Hello / model: [t1] / result: one / model: Done. / user: Go on" },
  ],
  [
    "a compaction keeps what its boundary says",
    compacted((kept) => kept),
    { context: "summary: In short / user: Second / model: Two. / user: Third", entries: [{ tokensBefore: 900 }] },
  ],
  [
    "a compaction keeps nothing where its segment is not on the way to it",
    compacted((_, other) => other),
    { context: "summary: In short / user: Third" },
  ],
  [
    "the leaf is the newest of the main chain, whatever is written last",
    claude((w) => {
      w.human("Second", w.human("First"));
      w.user("Aside", { uuid: w.uuid(), isSidechain: true }, null);
    }),
    { context: "user: First / user: Second" },
  ],
  [
    "the leaf is the one that is named explicitly",
    claude((w) => {
      const first = w.human("First");
      w.human("Second");
      w.about("last-prompt", { lastPrompt: "First", leafUuid: first, explicit: true });
    }),
    { context: "user: First" },
  ],
  [
    "records that are written twice are there once",
    claude((w) => {
      w.human("First");
      w.answer([said("One.")]);
      w.records.push(...w.records.slice(0, 2));
    }),
    { tree: "user: First / model: One." },
  ],
  [
    "of a record in two versions, those that follow continue the last",
    claude((w) => {
      const first = w.human("First");
      w.answer([said("One.")]);
      w.records.push({ ...w.records[0], message: { role: "user", content: "First, in other words" } });
      w.human("After it", first);
    }),
    { context: "user: First, in other words / user: After it", warned: 1 },
  ],
  [
    "a record whose parent is nowhere, or is itself, continues the one before it",
    claude((w) => {
      w.human("First");
      w.human("Lost", "99999999-0000-4000-8000-000000000000");
      const uuid = w.uuid();
      w.user("Its own parent", { uuid }, uuid);
    }),
    { tree: "user: First / user: Lost / user: Its own parent", warned: 2 },
  ],
  [
    "files of the oldest versions, whose records have neither uuid nor parent, are one line",
    lines([
      { type: "user", timestamp: at(0), message: { content: "Mend it" }, cwd: "/home/me/app" },
      { type: "assistant", timestamp: at(1), message: { content: [said("I look."), read] } },
      { type: "user", timestamp: at(2), message: { content: "That is right" } },
      { type: "assistant", timestamp: at(3), message: { content: [said("Done.")] } },
    ]),
    { context: "user: Mend it / model: I look. / user: That is right / model: Done.", facts: { cwd: "/home/me/app" } },
  ],
];

const CODEX: readonly Row[] = [
  [
    "what was rolled back stays as a branch",
    codex((w) => {
      for (const text of ["List", "A mistake"]) {
        w.human(text);
        w.answer(`${text}?`);
      }
      w.event("thread_rolled_back", { num_turns: 1 });
      w.human("Go on");
    }),
    { tree: "user: List / model: List? / user: A mistake / model: A mistake? / 2 < user: Go on" },
  ],
];

const taken = (w: CopilotWriter): void => {
  w.user("One");
  w.answer("First.");
  const back = w.user("Two");
  w.answer("Second.");
  w.event("session.snapshot_rewind", { upToEventId: back, eventsRemoved: 2 });
  w.user("Instead");
};
const TAKEN = "user: One / model: First. / user: Two / model: Second. / 2 < user: Instead";
const failed = { success: false, error: { message: "denied" } };
const timestamp = "2025-09-14T08:00:00Z";
const toolRequests = [{ toolCallId: "a", name: "ls", arguments: "{}" }];
const record = { inputTokens: 1000, outputTokens: 50, cacheReadTokens: 100, cost: 1, apiCallId: "api_1" };

const COPILOT: readonly Row[] = [
  ["what was taken back stays as a branch", copilot(taken), { tree: TAKEN }],
  [
    "what was cleared stays as a branch",
    copilot((w) => {
      taken(w);
      w.event("session.context_cleared", { messagesCleared: 3 });
      w.user("Anew");
    }),
    { tree: `${TAKEN} / 0 < user: Anew`, context: "user: Anew" },
  ],
  [
    "results come in the order of the file, and one that failed says so",
    copilot((w) => {
      w.user("Go");
      w.answer("", ["a", "b"]);
      w.tool("b", { content: "second" });
      w.tool("a", undefined, failed);
    }),
    {
      context: "user: Go / model: [a] [b] / result: second / result: denied",
      messages: [{}, {}, { toolCallId: "b", isError: false }, { toolCallId: "a", isError: true }],
    },
  ],
  [
    "tokens are those that the record of a call says, and count once; its cost is a factor and no money",
    copilot((w) => {
      w.user("Go");
      w.event("session.usage_record", { usage: record });
      w.answer("One ", [], { apiCallId: "api_1", chunkIndex: 0 });
      w.answer("answer", ["a"], { apiCallId: "api_1", chunkIndex: 1 });
      w.tool("a", { content: "out" });
      w.answer("Without a record", [], { apiCallId: "api_2", outputTokens: 7 });
    }),
    {
      context: "user: Go / model: One  answer [a] / result: out / model: Without a record",
      messages: [
        {},
        { usage: { input: 900, output: 50, cacheRead: 100, cost: { total: 0 } } },
        {},
        { usage: { input: 0, output: 7 } },
      ],
    },
  ],
  [
    "after a compaction, the model sees its summary and what comes after it",
    copilot((w) => {
      w.user("Before");
      w.event("session.compaction_complete", { success: true, summaryContent: "The summary" });
      w.user("After");
    }),
    { context: "summary: The summary / user: After" },
  ],
  [
    "events of older versions have no ids, and results of any form",
    lines([
      { type: "user.message", data: { content: "Go" }, timestamp },
      { type: "assistant.message", data: { content: "", toolRequests }, timestamp },
      {
        type: "tool.execution_complete",
        data: { toolCallId: "a", success: true, result: { files: ["x"] } },
        timestamp,
      },
    ]),
    { context: 'user: Go / model: [a] / result: {"files":["x"]}' },
  ],
];

const OLD_CALLS = [
  { name: "read_file", args: {}, status: "success" },
  { name: "read_file", args: {}, status: "success", result: "text" },
];
const oldGemini = (space: number) => (): string => {
  const timestamp = "2025-08-01T10:00:05Z";
  const thoughts = [{ subject: "", description: "hm" }];
  const messages = [
    { id: "u", timestamp, type: "user", content: "Read" },
    { id: "g", timestamp, type: "gemini", content: "", thoughts, toolCalls: OLD_CALLS },
  ];
  const facts = { lastUpdated: timestamp, messages, projectHash: "abc", sessionId: GEMINI_SESSION };
  return JSON.stringify(facts, null, space);
};

const GEMINI: readonly Row[] = [
  [
    "what was gone back from stays as a branch",
    gemini((w) => {
      w.ask("One");
      w.message("gemini", "First.");
      const two = w.user("Two");
      w.message("gemini", "Second.");
      w.rewindTo(two.id);
      w.user("Three");
    }),
    { tree: "user: One / model: First. / user: Two / model: Second. / 2 < user: Three" },
  ],
  [
    "a message that is not there is gone back to as the beginning",
    gemini((w) => {
      w.user("One");
      w.message("gemini", "First.");
      w.rewindTo("not-there");
      w.user("Two");
    }),
    { tree: "user: One / model: First. / 0 < user: Two", context: "user: Two", warned: 1 },
  ],
  [
    "the leaf is where the conversation went back to",
    gemini((w) => {
      w.user("One");
      w.message("gemini", "First.");
      w.rewindTo(w.user("Two").id);
    }),
    { context: "user: One / model: First." },
  ],
  [
    "a summary with kept messages is a compaction that keeps their entries",
    gemini((w) => {
      w.user("One");
      w.message("gemini", "First.");
      w.user("Two");
      w.message("gemini", "I look.");
      w.calls([{ id: "a", name: "one", text: "1" }]);
      w.message("gemini", "Second.");
      const own = (id: string, type: string, content: string): Fields => ({ id, timestamp: w.time(), type, content });
      const kept = w.history.slice(2).map((record, n) => ({ ...record, id: `kept-${n}` }));
      const summary = own("s", "user", "<state_snapshot>One</state_snapshot>");
      w.setMessages([summary, own("ok", "gemini", "Got it. Thanks!"), ...kept]);
      w.user("Three");
    }),
    {
      context:
        "summary: <state_snapshot>One</state_snapshot> / user: Two / model: I look. [a] / result: 1 / model: Second. / user: Three",
      tree: "user: One / model: First. / user: Two / model: I look. [a] / result: 1 / model: Second. / summary: <state_snapshot>One</state_snapshot> / user: Three",
    },
  ],
  [
    "a call that failed has a result that says so",
    gemini((w) => {
      w.user("Go");
      w.message("gemini", "");
      w.calls([{ id: "a", name: "one", text: "1", status: "error" }]);
    }),
    { context: "user: Go / model: [a] / result: 1", messages: [{}, {}, { isError: true }] },
  ],
  ...[0, 2].map((space): Row => {
    const rule = `an old document whose calls have no ids, and whose tools' answers were not kept (${space})`;
    return [rule, oldGemini(space), { messages: [{ role: "user" }, { role: "assistant" }, { role: "toolResult" }] }];
  }),
];

const odd = [{ type: "text", text: 5 }, { type: "image", data: "" }, { type: "toolRequest", id: "call_1" }, {}];
const spent = { inputTokens: 1000, outputTokens: 50, totalTokens: 1050, cacheReadTokens: 900, cost: 0.25 };

const GOOSE: readonly Row[] = [
  ["what only the model sees is text or a picture for it, whatever it was", goose((w) => w.user(odd, MODEL_ONLY)), {}],
  [
    "after compactions, the model sees the last summary and what comes after it",
    goose((w) => {
      for (const text of ["One", "Two"]) {
        w.ask(text);
        w.reply(`Answer ${text}`);
        w.compact(`Summary ${text}`);
      }
      w.ask("Three");
    }),
    {
      context: "summary: Summary Two / custom: Go on as if nothing was / user: Three",
      entries: [{ type: "compaction", summary: "Summary One" }],
    },
  ],
  [
    "what the model alone sees is not shown, and what a person alone sees is not in the context",
    goose((w) => {
      w.ask("One");
      w.user([words("a hint")], MODEL_ONLY);
      w.answer([{ type: "systemNotification", notificationType: "inlineMessage", msg: "a notice" }], PERSON_ONLY);
      w.reply("Answer");
    }),
    {
      context: "user: One / custom: a hint / model: Answer",
      entries: [{ type: "custom_message", display: false }],
    },
  ],
  [
    "of a tool's result, the context has what the model saw",
    goose((w) => {
      w.answer([asked("a")]);
      const forPerson = words("drawn for a person", { annotations: { audience: ["user"] } });
      w.user([answered("a", [words("plain", { annotations: { audience: ["assistant"] } }), forPerson])]);
    }),
    {
      context: "model: [a] / result: plain",
      messages: [{}, { details: expect.toSatisfy((it: unknown) => JSON.stringify(it).includes("drawn for a person")) }],
    },
  ],
  [
    "tokens and cost are those that messages say, and totals that nothing says are named",
    goose((w) => {
      const sums = { accumulated_input_tokens: 1200, accumulated_output_tokens: 300, accumulated_cost: 0.5 };
      w.session = { ...w.session, ...sums };
      w.answer([words("Answer")], { ...BOTH, usage: spent });
    }),
    {
      messages: [{ usage: { input: 100, output: 50, cacheRead: 900, cost: { total: 0.25 } } }],
      facts: { warnings: [{ sentence: expect.stringMatching(/1200 .* 300 .* 0\.5 dollars/) }] },
      warned: 1,
    },
  ],
  [
    "a file of lines, as older versions have it, whose last line is cut",
    () => {
      const created = Date.UTC(2025, 8, 14, 8) / 1000;
      const value = [words("out")];
      const records = [
        { working_dir: "/home/me/project", description: "An older session", message_count: 2 },
        { role: "user", created, content: [words("Go")] },
        { role: "assistant", created, content: [asked("a")] },
        {
          role: "user",
          created,
          content: [{ type: "toolResponse", id: "a", toolResult: { status: "success", value } }],
        },
      ];
      return `${lines(records)()}{"role":"assis`;
    },
    { context: "user: Go / model: [a] / result: out", facts: { records: 5, name: "An older session" }, warned: -1 },
  ],
];

const step = { type: "step-start" };
const finish = (reason: string, cost: number): Fields => ({ ...usage(11), type: "step-finish", reason, cost });
const taking = (withPart: boolean) =>
  opencode((w) => {
    w.ask("Go");
    const messageID = w.step([part("first"), done("call_1", "out"), part("taken back")]);
    w.info = { ...w.info, revert: { messageID, ...(withPart ? { partID: w.messages[1].parts[3].id } : {}) } };
  });

const OPENCODE: readonly Row[] = [
  [
    "what was reverted stays as a branch, and the leaf is before it",
    () => wholeOpencodeExport().text,
    {
      tree: expect.stringMatching(/user: The end of what holds \/ model: Yes. \/ user: This was taken back/),
      context: expect.stringMatching(/model: Yes\.$/),
    },
  ],
  ["a revert takes back a whole message", taking(false), { context: "user: Go" }],
  [
    "a revert from a part on keeps the parts before it",
    taking(true),
    {
      context: "user: Go / model: first [call_1] / result: out",
      entries: [{ message: expect.toSatisfy((it: unknown) => JSON.stringify(it).includes("taken back")) }],
    },
  ],
  [
    "a compaction keeps what its tail begins with",
    opencode((w) => {
      w.ask("Forget this");
      w.reply("Forgotten.");
      const kept = w.user([part("Keep this")]);
      w.reply("Kept.");
      w.user([{ type: "compaction", auto: true, tail_start_id: kept }]);
      w.answer([part("The summary")], { summary: true });
      w.ask("Go on");
    }),
    { context: "summary: The summary / user: Keep this / model: Kept. / user: Go on" },
  ],
  [
    "a step is an answer, whose tokens and cost are counted once",
    opencode((w) => {
      w.ask("Go");
      const steps = [step, done("a", "out"), finish("tool-calls", 0.5), step, part("Done."), finish("stop", 0.25)];
      w.answer(steps, { cost: 0.75, tokens: usage(11).tokens });
    }),
    {
      context: "user: Go / model: [a] / result: out / model: Done.",
      messages: [
        {},
        {
          stopReason: "toolUse",
          usage: { input: 11, output: 25, cacheRead: 100, cacheWrite: 3, totalTokens: 139, cost: { total: 0.5 } },
        },
        {},
        { stopReason: "stop", usage: { cost: { total: 0.25 } } },
      ],
    },
  ],
];

const roo = (hides: boolean) =>
  cline("roo")((w) => {
    w.message("user", [{ type: "text", text: "Make a page" }]);
    w.message("assistant", "Made.");
    if (hides) {
      const marker = { isTruncationMarker: true, truncationId: "x" };
      w.message("user", "[Sliding window truncation: 2 messages hidden]", marker);
      return w.message("user", "More");
    }
    for (const message of w.messages) message.condenseParent = "c";
    w.message("user", [{ type: "text", text: "All before" }], { isSummary: true, condenseId: "c" });
    w.message("user", "Yet more");
  });
const usageOf = (input: number): object => {
  const usage = expect.objectContaining({ input });
  return { message: expect.objectContaining({ role: "assistant", usage }) };
};

const CLINE: readonly Row[] = [
  ...(["contract", "cline", "roo"] as const).map((form): Row => {
    const results = ["b", "a"].map((id) => ({
      type: "tool_result",
      tool_use_id: id,
      content: id,
      is_error: id === "b",
    }));
    const source = cline(form)((w) => {
      w.message("user", "Go");
      w.answer([use("a"), use("b")]);
      w.message("user", results);
    });
    const order = [{}, {}, { toolCallId: "b", isError: true }, { toolCallId: "a", isError: false }];
    return [`results of ${form} come in the order of the file`, source, { messages: order }];
  }),
  [
    "hidden messages leave the task, and stay in the tree",
    roo(true),
    {
      context: "summary: Make a page\n\n[Sliding window truncation: 2 messages hidden] / user: More",
      tree: expect.stringContaining("model: Made."),
    },
  ],
  [
    "a summary stands for all before it",
    roo(false),
    {
      context: expect.stringMatching(/^summary: All before \/ user: Yet more$/),
      tree: expect.stringContaining("model: Made."),
    },
  ],
  ...[0, 2].map((space): Row => {
    const source = (): string => JSON.stringify(wholeClineScreen(), null, space);
    // Nothing was requested between the last two.
    const context = "summary: A red page / model: Done. And";
    return [`what is shown of a task (${space})`, source, { context, entries: [100, 110, 10].map(usageOf) }];
  }),
];

/** Where a file of an agent lies, as far as that matters. */
const PLACES: Readonly<Record<string, string>> = {
  codex: CODEX_FILE,
  cline: "/elsewhere/tasks/1784094124598/api_conversation_history.json",
};

const ROWS = Object.entries({
  claude: CLAUDE,
  codex: CODEX,
  copilot: COPILOT,
  gemini: GEMINI,
  goose: GOOSE,
  opencode: OPENCODE,
  cline: CLINE,
}).flatMap(([agent, rows]) => rows.map((row) => [agent, ...row] as const));

test.each(ROWS)("%s: %s", (agent, _, source, expected) => {
  const session = foreignSession(source(), PLACES[agent] ?? FOREIGN_FILE);
  requireSound(session);
  const { tree, context, warned = 0, messages = [], entries = [], facts = {} } = expected;
  const { records, warnings, warningCount } = fidelityOf(session.log);
  if (warned >= 0) expect(warningCount).toBe(warned);
  if (tree) expect(drawnTree(session).join(" / ")).toEqual(tree);
  if (context) expect(drawnContext(session).join(" / ")).toEqual(context);
  const shown = strictContext(session);
  for (const [n, message] of messages.entries()) expect(shown[n]).toMatchObject(message);
  expect({ records, warnings, name: session.name, cwd: session.cwd }).toMatchObject(facts);
  for (const entry of entries) expect(entriesOf(session)).toContainEqual(expect.objectContaining(entry));
});

test("copilot: what subagents said is kept, and is no part of the conversation", () => {
  const session = foreignSession(wholeCopilotLog().text);
  expect(JSON.stringify(entriesOf(session))).toContain("From a subagent");
  expect(drawnTree(session).join()).not.toContain("From a subagent");
});

const holds = (session: Session, text: string): boolean => JSON.stringify(entriesOf(session)).includes(text);

test.each([
  ["opencode", wholeOpencodeExport().text, "Second", "See these", '"auto": true'],
  ["goose", wholeGooseExport().text, "it broke", "In ", '"userVisible": true'],
])("%s: of a cut or damaged export, what is whole is read", (agent, whole, cut, kept, member) => {
  const half = foreignSession(whole.slice(0, whole.indexOf(cut)));
  requireSound(half);
  expect([holds(half, kept), holds(half, `import:${agent}:damaged`)]).toEqual([true, true]);
  const { records } = fidelityOf(foreignSession(whole).log);
  expect(fidelityOf(foreignSession(whole.replace(member, member.slice(0, -1))).log).records).toBe(records);
});

test("goose: each text is somewhere in the entries", () => {
  const session = foreignSession(wholeGooseExport().text);
  for (const { text } of wholeGooseExport().conversation.flatMap(({ content }) => content as { text?: string }[]))
    if (text !== undefined) expect(holds(session, JSON.stringify(text).slice(1, -1)), text).toBe(true);
});
