/** All formats that translators read, each with made-up files of it and the place where its agent would put one. */

import type { Random } from "../random.ts";
import { CLAUDE_SESSION, randomClaudeSession, wholeClaudeSession } from "./claude.ts";
import { CLINE_SESSION, randomClineSession, wholeClineScreen, wholeClineSession } from "./cline.ts";
import { CODEX_SESSION, randomCodexSession, wholeCodexSession } from "./codex.ts";
import { COPILOT_SESSION, randomCopilotLog, wholeCopilotLog } from "./copilot.ts";
import { GEMINI_SESSION, geminiDocumentText, randomGeminiSession, wholeGeminiSession } from "./gemini.ts";
import { GOOSE_SESSION, type GooseWriter, randomGooseExport, wholeGooseExport } from "./goose.ts";
import { OMP_SESSION, randomOmpSession, wholeOmpSession } from "./omp.ts";
import { OPENCODE_SESSION, randomOpencodeExport, wholeOpencodeExport } from "./opencode.ts";

interface ForeignFormat {
  readonly format: string;
  readonly agent: string;
  /** Path below the home folder. Exports are wherever a person put them. */
  readonly path: string;
  readonly isExport?: boolean;
  /** The text of a file with every kind of record. */
  readonly text: string;
  /** Returns the lines of a file at random. */
  readonly lines: (random: Random) => string[];
}

const TASK = "1784094124598";
const ROO_TASK = "9d6f2c1e-4a56-4a0b-8f6c-1b2a3c4d5e6f";

function storage(extension: string, task: string, name: string): string {
  return `.config/Code/User/globalStorage/${extension}/tasks/${task}/${name}`;
}

const CHATS = ".gemini/tmp/project/chats/session-2026-08-21T09-00";

/** Returns what older versions of Goose have of a session: a line of facts, and each message on one, without ids. */
function gooseLines({ session, conversation }: GooseWriter): string[] {
  const { working_dir, name: description } = session;
  const messages = conversation.map(({ role, created, content }) => ({ role, created, content }));
  return [{ working_dir, description, message_count: messages.length }, ...messages].map((line) =>
    JSON.stringify(line),
  );
}

export const FORMATS: readonly ForeignFormat[] = [
  {
    format: "claude",
    agent: "claude",
    path: `.claude/projects/-home-me-project/${CLAUDE_SESSION}.jsonl`,
    text: wholeClaudeSession().text,
    lines: (random) => randomClaudeSession(random, 5).lines,
  },
  {
    format: "codex",
    agent: "codex",
    path: `.codex/sessions/2026/09/14/rollout-2026-09-14T08-00-00-${CODEX_SESSION}.jsonl`,
    text: wholeCodexSession().text,
    lines: (random) => randomCodexSession(random, 5).lines,
  },
  {
    format: "copilot",
    agent: "copilot",
    path: `.copilot/session-state/${COPILOT_SESSION}/events.jsonl`,
    text: wholeCopilotLog().text,
    lines: (random) => randomCopilotLog(random).lines,
  },
  {
    format: "gemini",
    agent: "gemini",
    path: `${CHATS}-${GEMINI_SESSION.slice(0, 8)}.jsonl`,
    text: wholeGeminiSession().text,
    lines: (random) => randomGeminiSession(random, 4).lines,
  },
  {
    format: "gemini document",
    agent: "gemini",
    path: `${CHATS.replace("project", "older")}-${GEMINI_SESSION.slice(0, 8)}.json`,
    text: geminiDocumentText(wholeGeminiSession()),
    lines: (random) => geminiDocumentText(randomGeminiSession(random, 4)).split("\n"),
  },
  {
    format: "omp",
    agent: "omp",
    path: `.omp/agent/sessions/-project/2026-10-01T08-00-00-000Z_${OMP_SESSION}.jsonl`,
    text: wholeOmpSession().text,
    lines: (random) => randomOmpSession(random, 4).lines,
  },
  {
    format: "opencode",
    agent: "opencode",
    path: `exports/${OPENCODE_SESSION}.json`,
    isExport: true,
    text: wholeOpencodeExport().text,
    lines: (random) => randomOpencodeExport(random).lines,
  },
  {
    format: "goose",
    agent: "goose",
    path: `exports/${GOOSE_SESSION}.json`,
    isExport: true,
    text: wholeGooseExport().text,
    lines: (random) => randomGooseExport(random).lines,
  },
  {
    format: "goose lines",
    agent: "goose",
    path: ".local/share/goose/sessions/20250914_080000.jsonl",
    text: gooseLines(wholeGooseExport()).join("\n"),
    lines: (random) => gooseLines(randomGooseExport(random)),
  },
  {
    format: "cline contract",
    agent: "cline",
    path: `.cline/data/sessions/${CLINE_SESSION}/${CLINE_SESSION}.messages.json`,
    text: wholeClineSession("contract").text,
    lines: (random) => randomClineSession(random, "contract").text.trimEnd().split("\n"),
  },
  {
    format: "cline",
    agent: "cline",
    path: storage("saoudrizwan.claude-dev", TASK, "api_conversation_history.json"),
    text: wholeClineSession("cline").text,
    lines: (random) => JSON.stringify(randomClineSession(random, "cline").messages, null, 1).split("\n"),
  },
  {
    format: "roo",
    agent: "roo",
    path: storage("rooveterinaryinc.roo-cline", ROO_TASK, "api_conversation_history.json"),
    text: wholeClineSession("roo").text,
    lines: (random) => JSON.stringify(randomClineSession(random, "roo").messages, null, 1).split("\n"),
  },
  {
    format: "cline screen",
    agent: "cline",
    path: storage("saoudrizwan.claude-dev", "1784094124000", "ui_messages.json"),
    text: JSON.stringify(wholeClineScreen()),
    lines: () => JSON.stringify(wholeClineScreen(), null, 1).split("\n"),
  },
];
