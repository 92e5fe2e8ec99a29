/**
 * All formats that translators read, each with made-up files, the place where its agent would put one, and the expected
 * result.
 */

import { Random } from "../random.ts";
import { CLAUDE_SESSION, ClaudeWriter, randomClaudeSession, wholeClaudeSession } from "./claude.ts";
import {
  CLINE_SESSION,
  type ClineForm,
  ClineWriter,
  randomClineSession,
  wholeClineScreen,
  wholeClineSession,
} from "./cline.ts";
import { CODEX_SESSION, randomCodexSession, wholeCodexSession } from "./codex.ts";
import { COPILOT_SESSION, randomCopilotLog, wholeCopilotLog } from "./copilot.ts";
import { GEMINI_SESSION, GeminiWriter, geminiDocumentText, randomGeminiSession, wholeGeminiSession } from "./gemini.ts";
import { GOOSE_SESSION, GooseWriter, randomGooseExport, wholeGooseExport } from "./goose.ts";
import { OMP_SESSION, OmpWriter, randomOmpSession, wholeOmpSession } from "./omp.ts";
import { OPENCODE_SESSION, OpencodeWriter, randomOpencodeExport, wholeOpencodeExport } from "./opencode.ts";
import type { Fields, Talker } from "./writing.ts";

/** A conversation that is being written, as the text of its file is now. */
interface Begun {
  readonly w: Talker;
  text(): string;
}

interface ForeignFormat {
  readonly format: string;
  readonly agent: string;
  /** Path below the home folder. Exports are wherever a person put them. */
  readonly path: string;
  readonly isExport?: boolean;
  /** Each line is a record; otherwise the file is one document. */
  readonly isByLine?: boolean;
  /** The text of a file with every kind of record. */
  readonly text: string;
  /** Facts about it: the number of records, its name and directory, its leaves, the dropped kinds. */
  readonly whole: {
    readonly records: number;
    readonly name?: string | null;
    readonly cwd?: string | null;
    readonly leaves?: number;
    readonly dropped?: readonly string[];
  };
  /** Returns the lines of a file at random. */
  readonly lines: (random: Random) => string[];
  /** Begins a conversation. */
  readonly begin?: () => Begun;
  /** The expected answer of a step with the text `I go.`, a thought `hm` and calls of `a` and `b`. */
  readonly answer?: Fields;
}

const TASK = "1784094124598";
const ROO_TASK = "9d6f2c1e-4a56-4a0b-8f6c-1b2a3c4d5e6f";
const CHATS = ".gemini/tmp/project/chats/session-2026-08-21T09-00";
const [CWD, MADE_UP] = ["/home/me/project", "A made-up session"];

function storage(extension: string, task: string, name: string): string {
  return `.config/Code/User/globalStorage/${extension}/tasks/${task}/${name}`;
}

/** Returns what older versions of Goose have of a session: a line of facts, and each message on one, without ids. */
function gooseLines({ session, conversation }: GooseWriter): string[] {
  const { working_dir, name: description } = session;
  const messages = conversation.map(({ role, created, content }) => ({ role, created, content }));
  const lines = [{ working_dir, description, message_count: messages.length }, ...messages];
  return lines.map((line) => JSON.stringify(line));
}

function begun<Writer extends Talker & { readonly text: string }>(w: Writer, text = (w: Writer) => w.text): Begun {
  return { w, text: () => text(w) };
}

const thinking = { type: "thinking", thinking: "hm" };
const signed = { ...thinking, thinkingSignature: "c2ln" };
const CALLS = ["a", "b"].map((id) => ({ type: "toolCall", id }));
const content = (thought: Fields, more: Fields = {}): Fields[] => {
  return [thought, { type: "text", text: "I go." }, ...CALLS.map((call) => ({ ...call, ...more }))];
};
const claudeUsage = { input: 10, output: 40, cacheRead: 5, cacheWrite: 2, totalTokens: 57, cost: { total: 0 } };
const clineUsage = { totalTokens: 29, cacheRead: 3, cost: { total: 0.13 } };

function cline(form: ClineForm, path: string, whole: ForeignFormat["whole"], answer: Fields): ForeignFormat {
  const wholeSession = wholeClineSession(form);
  const lined = (w: ClineWriter): string => (form === "contract" ? w.text : JSON.stringify(w.messages, null, 1));
  return {
    ...{ format: form === "contract" ? "cline contract" : form, agent: form === "roo" ? "roo" : "cline", path },
    ...{ text: wholeSession.text, whole, answer: { model: "claude-x", ...answer } },
    lines: (random) => lined(randomClineSession(random, form)).trimEnd().split("\n"),
    begin: () =>
      begun(new ClineWriter(form), (w) => {
        // The facts of a session are written anew with each message.
        w.facts = { ...w.facts, updated_at: `2027-01-01T00:00:00.${String(w.messages.length).padStart(3, "0")}Z` };
        return w.text;
      }),
  };
}

export const FORMATS: readonly ForeignFormat[] = [
  {
    ...{ format: "claude", agent: "claude", isByLine: true },
    path: `.claude/projects/-home-me-project/${CLAUDE_SESSION}.jsonl`,
    text: wholeClaudeSession().text,
    whole: { records: wholeClaudeSession().records.length, name: "My own title", cwd: CWD, leaves: 2 },
    lines: (random) => randomClaudeSession(random, 5).lines,
    begin: () => begun(new ClaudeWriter()),
    answer: {
      ...{ provider: "anthropic", model: "claude-sonnet-4-5", stopReason: "toolUse", usage: claudeUsage },
      content: content(
        { ...thinking, thinkingSignature: "c2lnbmF0dXJl" },
        { name: "Bash", arguments: { command: "ls" } },
      ),
    },
  },
  {
    ...{ format: "codex", agent: "codex", isByLine: true },
    path: `.codex/sessions/2026/09/14/rollout-2026-09-14T08-00-00-${CODEX_SESSION}.jsonl`,
    text: wholeCodexSession().text,
    whole: { records: wholeCodexSession().records.length, name: "The name of it", cwd: CWD, dropped: [] },
    lines: (random) => randomCodexSession(random, 5).lines,
    begin: () => begun(randomCodexSession(new Random(1), 0)),
    answer: {
      usage: { input: 40, output: 20, cacheRead: 60, totalTokens: 120, cost: { total: 0 } },
      stopReason: "toolUse",
      content: content(thinking),
    },
  },
  {
    ...{ format: "copilot", agent: "copilot", isByLine: true },
    path: `.copilot/session-state/${COPILOT_SESSION}/events.jsonl`,
    text: wholeCopilotLog().text,
    whole: {
      ...{ records: wholeCopilotLog().records.length, name: MADE_UP, cwd: CWD, leaves: 3 },
      dropped: ["assistant.turn_start", "assistant.turn_end", "assistant.message_delta", "session.idle"],
    },
    lines: (random) => randomCopilotLog(random).lines,
    begin: () => begun(randomCopilotLog(new Random(1), 0)),
    answer: {
      ...{ provider: "github-copilot", model: "claude-sonnet-4.5", stopReason: "toolUse" },
      content: content(signed, { name: "bash", arguments: { command: "ls" } }),
    },
  },
  {
    ...{ format: "gemini", agent: "gemini", isByLine: true },
    path: `${CHATS}-${GEMINI_SESSION.slice(0, 8)}.jsonl`,
    text: wholeGeminiSession().text,
    // Gone back from, before the masking, and the conversation.
    whole: {
      ...{ records: wholeGeminiSession().records.length, name: "Files are listed", cwd: CWD, leaves: 3 },
      dropped: ["$set lastUpdated"],
    },
    lines: (random) => randomGeminiSession(random, 4).lines,
    begin: () => begun(new GeminiWriter()),
    answer: { usage: { input: 42, output: 25, cacheRead: 60, totalTokens: 127 } },
  },
  {
    ...{ format: "gemini document", agent: "gemini" },
    path: `${CHATS.replace("project", "older")}-${GEMINI_SESSION.slice(0, 8)}.json`,
    text: geminiDocumentText(wholeGeminiSession()),
    whole: { records: 1 + wholeGeminiSession().history.length },
    lines: (random) => geminiDocumentText(randomGeminiSession(random, 4)).split("\n"),
    begin: () => begun(new GeminiWriter(), (w) => geminiDocumentText(w)),
    answer: { usage: { input: 42, output: 25, cacheRead: 60, totalTokens: 127 } },
  },
  {
    ...{ format: "omp", agent: "omp" },
    path: `.omp/agent/sessions/-project/2026-10-01T08-00-00-000Z_${OMP_SESSION}.jsonl`,
    text: wholeOmpSession().text,
    whole: { records: wholeOmpSession().lines.length, cwd: CWD },
    lines: (random) => randomOmpSession(random, 4).lines,
    begin: () => begun(new OmpWriter()),
    answer: { provider: "openai", model: "gpt-5", content: content(thinking) },
  },
  {
    ...{ format: "opencode", agent: "opencode", isExport: true },
    path: `exports/${OPENCODE_SESSION}.json`,
    text: wholeOpencodeExport().text,
    whole: { records: wholeOpencodeExport().records, name: MADE_UP, cwd: CWD, dropped: [], leaves: 1 },
    lines: (random) => randomOpencodeExport(random).lines,
    begin: () =>
      begun(new OpencodeWriter(), (w) => {
        w.info = { ...w.info, time: { created: Date.UTC(2026, 8, 14, 8), updated: w.records }, cost: w.records };
        return w.text;
      }),
    answer: { content: content(signed), stopReason: "toolUse" },
  },
  {
    ...{ format: "goose", agent: "goose", isExport: true },
    path: `exports/${GOOSE_SESSION}.json`,
    text: wholeGooseExport().text,
    whole: { records: 1 + wholeGooseExport().conversation.length, name: MADE_UP, cwd: CWD, dropped: [] },
    lines: (random) => randomGooseExport(random).lines,
    begin: () =>
      begun(new GooseWriter(), (w) => {
        w.session = { ...w.session, updated_at: "2026-09-14T10:00:00Z", accumulated_cost: w.conversation.length };
        return w.text;
      }),
    answer: { provider: "anthropic", model: "claude-sonnet-4-5", api: "anthropic-messages", content: content(signed) },
  },
  {
    ...{ format: "goose lines", agent: "goose" },
    path: ".local/share/goose/sessions/20250914_080000.jsonl",
    text: gooseLines(wholeGooseExport()).join("\n"),
    whole: { records: gooseLines(wholeGooseExport()).length, name: MADE_UP, cwd: CWD },
    lines: (random) => gooseLines(randomGooseExport(random)),
    begin: () => begun(new GooseWriter(), (w) => `${gooseLines(w).join("\n")}\n`),
    answer: { content: content(signed) },
  },
  cline(
    "contract",
    `.cline/data/sessions/${CLINE_SESSION}/${CLINE_SESSION}.messages.json`,
    { records: 1 + wholeClineSession("contract").messages.length, dropped: [] },
    { usage: clineUsage, content: content(signed) },
  ),
  cline(
    "cline",
    storage("saoudrizwan.claude-dev", TASK, "api_conversation_history.json"),
    { records: wholeClineSession("cline").messages.length, cwd: CWD, dropped: [] },
    { usage: clineUsage, content: content(signed) },
  ),
  cline(
    "roo",
    storage("rooveterinaryinc.roo-cline", ROO_TASK, "api_conversation_history.json"),
    { records: wholeClineSession("roo").messages.length, cwd: CWD, dropped: [] },
    { content: content(signed) },
  ),
  {
    ...{ format: "cline screen", agent: "cline" },
    path: storage("saoudrizwan.claude-dev", "1784094124000", "ui_messages.json"),
    text: JSON.stringify(wholeClineScreen()),
    whole: { records: wholeClineScreen().length },
    lines: () => JSON.stringify(wholeClineScreen(), null, 1).split("\n"),
  },
];
