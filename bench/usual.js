// The rows of usual sessions, of 50 to 1,000 entries: what a host asks in a minute of work, each session in a process of
// its own that is asked one command after the other.

import { copyFileSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { currentBuild, makeFileName, once, ours, oursIn, piState, run, runWith, state, theirs } from "./asking.js";
import { makeId, USAGE, writeSession } from "./generate.js";
import { counted, dropPages, makeRequest, toFigure } from "./measure.js";
import { home, quick } from "./options.js";
import { makePiRequest } from "./pi.js";
import { makeRowSession } from "./rows.js";

/** Runs of each row for each run of another: these take milliseconds, and one that waits shows at once. */
const TIMES = quick ? 1 : 5;
/** Turns after the first. */
const TURNS = quick ? 3 : 30;

const text = (length) => "so many words of text ".repeat(Math.ceil(length / 22)).slice(0, length);
const answer = (content, stopReason) => ({
  role: "assistant",
  content,
  ...{ api: "messages", provider: "anthropic", model: "claude-sonnet-4-5", usage: USAGE, stopReason, timestamp: 1 },
});
/** The four entries of a turn, 4 KB together. */
const TURN = [
  { role: "user", content: text(200), timestamp: 1 },
  answer([{ type: "toolCall", id: "call_1", name: "read", arguments: { path: "src/file.ts" } }], "toolUse"),
  {
    ...{ role: "toolResult", toolCallId: "call_1", toolName: "read", isError: false, timestamp: 1 },
    content: [{ type: "text", text: text(2500) }],
  },
  answer([{ type: "text", text: text(600) }], "stop"),
].map((message) => ({ type: "message", message }));

const median = (times) => toFigure(times).median;

/** The milliseconds of each step of a minute's work on a copy of a session, by a server that has answered once. */
async function workOn(file, count) {
  const copy = makeFileName();
  copyFileSync(file, copy);
  const last = makeId(count - (count % 4) - 4);
  return runWith(ours("--no-session"), async (child) => {
    await child.ask([state(0)]);
    const ask = (method, params) => child.ask([makeRequest(1, method, params)]);
    const turn = () => ask("append", { entries: TURN });
    const open = await ask("switch_session", { sessionPath: copy });
    const context = await ask("get_messages");
    const forkMessages = await ask("get_fork_messages");
    const firstTurn = await turn();
    const turns = [];
    for (let n = 0; n < TURNS; n++) turns.push(await turn());
    const branch = await ask("branch", { entryId: last });
    const compact = await ask("compact_append", { summary: text(900), firstKeptEntryId: last, tokensBefore: 50_000 });
    const fork = await ask("fork", { entryId: last, position: "at" });
    return { open, context, forkMessages, firstTurn, turn: median(turns), branch, compact, fork };
  });
}

/** The same of Pi, as far as its line protocol has it. */
async function piWorkOn(pi, file, count) {
  const copy = makeFileName();
  copyFileSync(file, copy);
  const last = makeId(count - (count % 4) - 4);
  return runWith(theirs(pi, "--no-session"), async (child) => {
    await child.ask([piState(0)]);
    const ask = async (type, params) => {
      const took = await child.ask([makePiRequest(1, type, params)], { keep: true });
      if (/"success":false/.test(child.text.slice(0, 4096))) throw new Error(`Pi could not ${type}`);
      return took;
    };
    const open = await ask("switch_session", { sessionPath: copy });
    const context = await ask("get_messages");
    const forkMessages = await ask("get_fork_messages");
    return { open, context, forkMessages, fork: await ask("fork", { entryId: last }) };
  });
}

/** Returns what `measure` found the last time for this build or Pi, and measures anew once all of it was taken. */
function sharing(measure) {
  const found = new Map();
  return async (member, by, ...args) => {
    let one = found.get(by);
    if (one === undefined || one.taken.has(member)) {
      one = { taken: new Set(), ...(await measure(...args)) };
      found.set(by, one);
    }
    one.taken.add(member);
    return one[member];
  };
}

/** The opening and the first context of a session whose pages the system has to read from the disk. */
async function openCold(file, child, lines) {
  if (!dropPages(file)) return undefined;
  return runWith(child, async () => {
    const [first, ...asked] = lines;
    await child.ask([first]);
    return child.ask(asked);
  });
}

/** 200 sessions of a person, in folders as Pi has them: most are short. */
function makeFolder() {
  const place = join(home, "usual");
  const folder = join(place, ".pi/agent/sessions/--project--");
  if (!existsSync(folder)) {
    mkdirSync(folder, { recursive: true });
    for (let n = 0; n < (quick ? 20 : 200); n++)
      writeSession(
        join(folder, `2026-01-01T00-00-00-000Z_${n}.jsonl`),
        [50, 50, 50, 200, 1000][n % 5],
        "realistic",
        n + 2,
      );
  }
  return { place, folder };
}

/** The first list and the first search of a person, and the list of a process that comes later. */
async function find({ place }) {
  const kept = makeFileName();
  const server = () => oursIn(place, kept, "--no-session");
  const found = await runWith(server(), async (child) => {
    await child.ask([state(0)]);
    const list = await child.ask([makeRequest(1, "list_sessions", { limit: 50 })]);
    const search = await child.ask([makeRequest(2, "search_sessions", { query: "indented parser", limit: 20 })]);
    return {
      list,
      search,
      again: await child.ask([makeRequest(3, "search_sessions", { query: "reads quoted", limit: 20 })]),
    };
  });
  return { ...found, later: await once(server(), state(0), makeRequest(1, "list_sessions", { limit: 50 })) };
}

export function* makeUsualRows() {
  for (const count of [50, 200, 1000]) {
    const file = makeRowSession("realistic", count);
    const minute = sharing(() => workOn(file, count));
    const piMinute = sharing((pi) => piWorkOn(pi, file, count));
    const step = (what, member, withPi = false) => ({
      what: `${counted(count)} entries: ${what}`,
      unit: "ms",
      times: TIMES,
      ours: () => minute(member, currentBuild()),
      pi: withPi ? (pi) => piMinute(member, pi, pi) : undefined,
    });
    yield step("switch_session", "open", true);
    yield step("first get_messages", "context", true);
    yield step("get_fork_messages", "forkMessages", true);
    yield step("first turn of four entries, durable", "firstTurn");
    yield step("a turn, durable, p50", "turn");
    yield step("branch", "branch");
    yield step("compact_append", "compact");
    yield step("fork at the last user message", "fork", true);
    yield {
      what: `${counted(count)} entries: opened and first context, from the disk`,
      unit: "ms",
      times: TIMES,
      ours: () =>
        openCold(file, ours("--no-session"), [
          state(0),
          makeRequest(1, "switch_session", { sessionPath: file }),
          makeRequest(2, "get_messages"),
        ]),
      pi: (pi) =>
        openCold(file, theirs(pi, "--no-session"), [
          piState(0),
          makePiRequest(1, "switch_session", { sessionPath: file }),
          makePiRequest(2, "get_messages"),
        ]),
    };
  }
  const folder = makeFolder();
  const finding = sharing(() => find(folder));
  const found = (what, member) => ({
    what: `${quick ? 20 : 200} sessions: ${what}`,
    unit: "ms",
    ours: () => finding(member, currentBuild()),
  });
  yield {
    ...found("listed, first time", "list"),
    pi: (pi) => run("list-folder", folder.folder, "ms", pi.library, pi.node),
  };
  yield found("listed by a later process", "later");
  yield found("first search", "search");
  yield found("a search", "again");
}
