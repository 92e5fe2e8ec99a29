/**
 * Half a year of one person's sessions with five agents, as files in their places: decisions that were reversed, branches
 * that were left, forks, subagents, an archived session, and one session with 40 % of all words.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { assistant, toolResult, user } from "./drafts.ts";
import { sessionText } from "./example.ts";
import { Random } from "./random.ts";
import { REMEMBERED, type RememberedAgent, type RememberedSession, type RememberedTurn } from "./remembered-talk.ts";
import type { Json, Place } from "./server.ts";

/** Turns in between, in all projects. */
const BETWEEN: readonly (readonly [asked: string, answered: string])[] = [
  ["Run the tests again.", "All tests pass."],
  ["Commit that.", "Committed with a message of one line."],
  ["Is the documentation up to date?", "I added a paragraph about the change to the README."],
  ["Show me the diff first.", "Three files changed; the diff is small and has no surprises."],
  ["The linter complains.", "An import was unused. I removed it, and the linter is quiet."],
  [
    "Please explain that part once more.",
    "The function reads its input once, checks it, and returns early when nothing changed.",
  ],
  ["Can this be simpler?", "Yes: two helpers do the same, so I kept one of them."],
  ["Anything left to do?", "A test for the error path, and a line in the changelog."],
];

/** The share of all words that the longest session has, and words of one of its messages. */
const LONGEST_SHARE = 0.4;
const LONG_MESSAGE = 60;

const hours = (day: string, hour: number, minute = 0): string =>
  `${day}T${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")}:00.000Z`;

const idOf = (n: number): string =>
  `0199${n.toString(16).padStart(4, "0")}-3c1e-7a2b-8d4f-${n.toString(16).padStart(12, "0")}`;

/** Writes the sessions below a home. Returns the number of their words, and of those of the longest session. */
export function putRemembered({ home, state }: Pick<Place, "home" | "state">): { words: number; longest: number } {
  const random = new Random(54);
  let words = 0;
  let made = 0;
  const put = (path: string, text: string): void => {
    const file = resolve(home, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  };
  for (const session of REMEMBERED) {
    const whole = { ...session, turns: withTalk(session.turns, random) };
    words += countWords(whole);
    const cwd = join(home, session.project);
    WRITERS[session.agent](
      { put, cwd, archive: join(state, "archive", encodeURIComponent(join(home, OURS))) },
      whole,
      ++made,
    );
  }
  const wanted = Math.round((words * LONGEST_SHARE) / (1 - LONGEST_SHARE));
  const longest = makeLongest(random, wanted);
  WRITERS.pi({ put, cwd: join(home, "notes"), archive: "" }, longest, ++made);
  return { words: words + countWords(longest), longest: countWords(longest) };
}

/** Adds some turns that say nothing of importance. */
function withTalk(turns: readonly RememberedTurn[], random: Random): RememberedTurn[] {
  const more = Array.from({ length: 1 + random.int(3) }, () => random.pick(BETWEEN));
  return [
    ...turns,
    ...more.flatMap(([asked, answered]): RememberedTurn[] => [
      ["user", asked],
      ["assistant", answered],
    ]),
  ];
}

/** A session about everything, with any words of the others. */
function makeLongest(random: Random, words: number): RememberedSession {
  const pool = REMEMBERED.flatMap(allTurns).flatMap(([by, text]) => (by === "call" ? [] : text.split(" ")));
  const say = (): string => Array.from({ length: LONG_MESSAGE }, () => random.pick(pool)).join(" ");
  const turns = Array.from(
    { length: Math.ceil(words / LONG_MESSAGE) },
    (_, n): RememberedTurn => [n % 2 === 0 ? "user" : "assistant", say()],
  );
  return { agent: "pi", project: "notes", day: "2026-06-20", name: "Weekly notes", turns };
}

function allTurns({ turns, left = [], instead = [], fork = [], subagent = [] }: RememberedSession): RememberedTurn[] {
  return [...turns, ...left, ...instead, ...fork, ...subagent];
}

function countWords(session: RememberedSession): number {
  return allTurns(session).reduce((sum, [by, text]) => sum + (by === "call" ? 0 : text.split(" ").length), 0);
}

interface WrittenPlace {
  readonly put: (path: string, text: string) => void;
  readonly cwd: string;
  readonly archive: string;
}

type WriteSession = (place: WrittenPlace, session: RememberedSession, n: number) => void;

const OURS = ".pi/agent/sessions";

const WRITERS: Readonly<Record<RememberedAgent, WriteSession>> = {
  pi({ put, cwd, archive }, { project, day, name, turns, left = [], instead = [], fork, archived }, n) {
    const id = idOf(n);
    const fileOf = (of: string): string =>
      `${archived ? archive : OURS}/--home-me-${project}--/${day}T08-00-00-000Z_${of}.jsonl`;
    let made = 0;
    const chained = (of: readonly RememberedTurn[], from: string | null): Json[] => {
      let parentId = from;
      return of.flatMap((turn) =>
        draftsOf(turn, `call_${n}_${made}`).map((draft) => {
          const time = hours(day, 8, made);
          const entry = {
            id: `${n.toString(16).padStart(4, "0")}${(made++).toString(16).padStart(4, "0")}`,
            parentId,
            ...draft,
            timestamp: time,
            message: { ...draft.message, timestamp: Date.parse(time) },
          };
          parentId = entry.id;
          return entry;
        }),
      );
    };
    const [asked, later] = instead.length > 0 ? [turns.slice(0, 2), turns.slice(2)] : [turns, []];
    const first = chained(asked, null);
    const parting = first.at(-1)?.id ?? null;
    const all = [...first, ...chained(left, parting), ...chained([...instead, ...later], parting)];
    const named = name === undefined ? [] : [{ type: "session_info", id: "ffffffff", parentId: all.at(-1)?.id, name }];
    const header = { id, cwd, timestamp: hours(day, 8) };
    put(fileOf(id), sessionText(header, [...all, ...named]));
    if (!fork) return;
    const forkId = idOf(n + 500);
    const parentSession = `/home/me/${fileOf(id)}`;
    const forked = { ...header, id: forkId, timestamp: hours(day, 12), parentSession };
    // Its own entries have other ids, and times that no clock shows.
    made += 200;
    put(fileOf(forkId), sessionText(forked, [...first, ...chained(fork, parting)]));
  },

  claude({ put, cwd }, { day, turns, subagent }, n) {
    const sessionId = idOf(n);
    const folder = `.claude/projects/${cwd.replace(/[^A-Za-z0-9]/g, "-")}`;
    const write = (file: string, of: readonly RememberedTurn[], more: Json): void => {
      let parentUuid: string | null = null;
      let made = 0;
      const uuid = (): string =>
        `${(more.agentId ?? "").slice(-4).padStart(8, "0")}-0000-4000-8000-${n.toString(16).padStart(4, "0")}${(++made).toString(16).padStart(8, "0")}`;
      const common = {
        sessionId,
        cwd,
        version: "2.1.300",
        userType: "external",
        gitBranch: "main",
        isSidechain: false,
      };
      const lines: string[] = [];
      const add = (type: string, message: Json): void => {
        const own = { ...common, ...more, parentUuid, type, uuid: uuid(), timestamp: hours(day, 9, made), message };
        parentUuid = own.uuid;
        lines.push(JSON.stringify(own));
      };
      const say = (content: Json[]): void =>
        add("assistant", {
          id: `msg_${n}_${made}`,
          type: "message",
          role: "assistant",
          model: "claude-sonnet-4-5",
          content,
        });
      for (const [by, text, ...call] of of) {
        if (by === "user") add("user", { role: "user", content: text });
        else if (by === "assistant") say([{ type: "text", text }]);
        else {
          const [input, output, failed] = call as [Json, string, boolean?];
          const id = `toolu_${n}_${made}`;
          say([{ type: "tool_use", id, name: text, input }]);
          const content = [{ type: "tool_result", tool_use_id: id, content: output, is_error: failed === true }];
          add("user", { role: "user", content });
        }
      }
      put(file, `${lines.join("\n")}\n`);
    };
    write(`${folder}/${sessionId}.jsonl`, turns, {});
    if (!subagent) return;
    const agentId = n.toString(16).padStart(17, "a");
    write(`${folder}/${sessionId}/subagents/agent-${agentId}.jsonl`, subagent, { agentId, isSidechain: true });
    const about = { agentType: "Explore", description: "Look through the code", spawnDepth: 1 };
    put(`${folder}/${sessionId}/subagents/agent-${agentId}.meta.json`, JSON.stringify(about));
  },

  codex({ put, cwd }, { day, turns }, n) {
    const id = idOf(n);
    const lines: string[] = [];
    const add = (type: string, payload: Json): void => {
      lines.push(JSON.stringify({ timestamp: hours(day, 10, lines.length), type, payload }));
    };
    const item = (type: string, members: Json): void => add("response_item", { type, ...members });
    const base = { originator: "codex_cli_rs", cli_version: "0.169.0", source: "cli", model_provider: "openai" };
    add("session_meta", { id, timestamp: hours(day, 10), cwd, ...base, history_mode: "legacy" });
    for (const [by, text, ...call] of turns) {
      if (by === "user") {
        item("message", { role: "user", content: [{ type: "input_text", text }] });
        add("event_msg", { type: "user_message", message: text, images: [] });
      } else if (by === "assistant") {
        add("event_msg", { type: "agent_message", message: text });
        item("message", { role: "assistant", content: [{ type: "output_text", text }] });
      } else {
        const [input, output] = call as [Json, string];
        const call_id = `call_${n}_${lines.length}`;
        item("function_call", { name: text, arguments: JSON.stringify(input), call_id });
        item("function_call_output", { call_id, output });
      }
    }
    const [year, month, date] = day.split("-");
    put(`.codex/sessions/${year}/${month}/${date}/rollout-${day}T10-00-00-${id}.jsonl`, `${lines.join("\n")}\n`);
  },

  gemini({ put, cwd }, { day, project, turns }, n) {
    const sessionId = idOf(n);
    const lines = [
      { sessionId, projectHash: project, startTime: hours(day, 11), lastUpdated: hours(day, 12), kind: "main" },
      { $set: { directories: [cwd] } },
      ...turns.map(([by, text], at) => ({
        id: `m${n}-${at}`,
        timestamp: hours(day, 11, at),
        type: by === "user" ? "user" : "gemini",
        content: text,
      })),
    ];
    const name = `session-${day}T11-00-${sessionId.slice(0, 8)}`;
    put(`.gemini/tmp/${project}/chats/${name}.jsonl`, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    put(`.gemini/tmp/${project}/.project_root`, cwd);
  },

  copilot({ put, cwd }, { day, turns }, n) {
    const sessionId = idOf(n);
    const lines: string[] = [];
    let parentId: string | null = null;
    const add = (type: string, data: Json): void => {
      const id = `${n.toString(16).padStart(8, "0")}-0000-4000-8000-${lines.length.toString(16).padStart(12, "0")}`;
      lines.push(JSON.stringify({ type, data, id, timestamp: hours(day, 13, lines.length), parentId }));
      parentId = id;
    };
    const facts = { version: 1, producer: "copilot-agent", copilotVersion: "1.0.102", startTime: hours(day, 13) };
    add("session.start", { sessionId, ...facts, context: { cwd, branch: "main" } });
    for (const [by, text] of turns)
      if (by === "user") add("user.message", { content: text, attachments: [] });
      else
        add("assistant.message", { messageId: `msg_${lines.length}`, model: "gpt-5", content: text, toolRequests: [] });
    put(`.copilot/session-state/${sessionId}/events.jsonl`, `${lines.join("\n")}\n`);
    put(`.copilot/session-state/${sessionId}/workspace.yaml`, `id: ${sessionId}\ncwd: ${cwd}\n`);
  },
};

/** Returns a turn as the entries that Pi makes of it. */
function draftsOf([by, text, ...call]: RememberedTurn, id: string): Json[] {
  if (by === "user") return [user(text)];
  if (by === "assistant") return [assistant(text)];
  const [input, output, failed] = call as [Json, string, boolean?];
  const asked = assistant("");
  asked.message.content = [{ type: "toolCall", id, name: text, arguments: input }];
  const given = toolResult(id, output);
  Object.assign(given.message, { toolName: text, isError: failed === true });
  return [asked, given];
}
