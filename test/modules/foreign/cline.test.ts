/** Sessions of Cline and Roo Code: whose a file is, and what the files of a task are together. */

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { getAgentPlaces, listFiles, listUnread } from "../../../src/modules/foreign/files/places.ts";
import { SurveyFacts } from "../../../src/modules/foreign/read/survey.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { CLINE_SESSION, ClineWriter, use, wholeClineScreen, wholeClineSession } from "../../support/foreign/cline.ts";
import { put, serveLibrary } from "../../support/lifecycle.ts";
import { temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import {
  diskWithForeign,
  drawnContext,
  entriesOf,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requireSound,
} from "./support/checks.ts";

const TASK = "1784094124598";
const FOLDER = `/home/me/.config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks/${TASK}`;
const MESSAGES = `${FOLDER}/api_conversation_history.json`;

/** Returns 40 messages; every second answer has a call. */
function longTask(): ClineWriter {
  const w = new ClineWriter("cline");
  w.ask("The task");
  for (let n = 1; n < 20; n++) {
    w.answer([{ type: "text", text: `Answer ${n}` }, use(`t${n}`)]);
    w.result(`t${n}`, `result ${n}`);
  }
  w.answer([{ type: "text", text: "Done" }]);
  return w;
}

function diskWith(messages: string, files: Readonly<Record<string, unknown>>): ReturnType<typeof diskWithForeign> {
  const disk = diskWithForeign(messages, MESSAGES);
  for (const [name, value] of Object.entries(files)) disk.put(join(FOLDER, name), Buffer.from(JSON.stringify(value)));
  return disk;
}

function seen(disk: Disk): string[] {
  const session = foreignSessionOn(disk, MESSAGES);
  requireSound(session);
  const said = drawnContext(session).map((line) => line.replace(/\s*<environment_details>.*$/s, ""));
  const texts = said.map((line) => line.replace(/^\w+: ?/, "").replace(/ \[t\d+\]$/, ""));
  return texts.filter((text) => text !== "" && text !== "custom:");
}

/** Returns the model's context if this was shown next to the messages. */
function readWith(messages: string, shown: object): string[] {
  return seen(diskWith(messages, { "ui_messages.json": [shown] }));
}

const RANGE = [2, 33];
const LEFT = ["The task", "Answer 1", "Answer 18", "result 18", "Answer 19", "result 19", "Done"];

describe("messages that Cline leaves out are left out of the context", () => {
  const { text } = longTask();
  const all = seen(diskWith(text, {}));

  test("by what was shown last", () => {
    expect(all).toHaveLength(40);
    const shown = [
      { ts: 1, type: "say", say: "text", text: "x", conversationHistoryDeletedRange: [2, 9] },
      { ts: 2, type: "say", say: "text", text: "y", conversationHistoryDeletedRange: RANGE },
      { ts: 3, type: "say", say: "text", text: "z" },
    ];
    expect(seen(diskWith(text, { "ui_messages.json": shown }))).toEqual(LEFT);
  });

  test("by the list of tasks, which Cline itself goes by", () => {
    const shown = [{ ts: 1, type: "say", say: "text", text: "x", conversationHistoryDeletedRange: [2, 9] }];
    const disk = diskWith(text, { "ui_messages.json": shown });
    const list = [{ id: "other" }, { id: TASK, conversationHistoryDeletedRange: RANGE }];
    disk.put(join(dirname(dirname(FOLDER)), "state", "taskHistory.json"), Buffer.from(JSON.stringify(list)));
    expect(seen(disk)).toEqual(LEFT);
  });

  test("with the result of a call that is left out, and nothing of the file is missing in the tree", () => {
    const disk = diskWith(text, { "ui_messages.json": [{ conversationHistoryDeletedRange: [2, 35] }] });
    const session = foreignSessionOn(disk, MESSAGES);
    const { nodes } = session.log;
    const messages = Array.from({ length: nodes.count }, (_, p) => p).filter((p) => nodes.isType(p, "message"));
    expect(messages).toHaveLength(40);
    expect(
      session.context(session.tree.leaf).items.filter(({ position }) => nodes.role(position) === "toolResult"),
    ).toHaveLength(1);
    expect(seen(disk)).toEqual(["The task", "Answer 1", "Answer 19", "result 19", "Done"]);
  });

  test("a range that ends behind the last message, or begins there", () => {
    const readRange = (range: unknown) => readWith(text, { conversationHistoryDeletedRange: range });
    expect(readRange([2, 400])).toEqual(["The task", "Answer 1"]);
    expect(readRange([40, 50])).toEqual(all);
  });

  acrossTiers(test, ["[5,2]", '["2",3]', "[-1,3]", "7", "[2.5,3]"])("what is no range (%s)", (range) => {
    expect(readWith(text, { conversationHistoryDeletedRange: JSON.parse(range) })).toEqual(all);
  });

  test("texts that Cline sends in the place of others, of which the last counts", () => {
    const note = [
      [1, "text", ["[NOTE] first"], []],
      [2, "text", ["[NOTE] Some of it was removed."], []],
    ];
    const changed = (at: number, said: string) => [at, [1, [[0, [[3, "text", [said], []]]]]]];
    const first = [1, [0, [[0, note]]]];
    const changes = [first, changed(38, "result 19, shorter"), changed(10, "left out anyway"), ["x", 7]];
    const extra = {
      "ui_messages.json": [{ conversationHistoryDeletedRange: RANGE }],
      "context_history.json": changes,
    };
    const said: Record<string, string> = {
      "Answer 1": "[NOTE] Some of it was removed.",
      "result 19": "result 19, shorter",
    };
    expect(seen(diskWith(text, extra))).toEqual(LEFT.map((one) => said[one] ?? one));
  });
});

describe("which file of a task is the session", () => {
  const screen = JSON.stringify(wholeClineScreen());
  const OWN = getAgentPlaces({ HOME: "/home/me" }).filter(({ folder }) => folder === dirname(FOLDER));
  const { text } = longTask();
  const [HISTORY, SHOWN] = ["api_conversation_history.json", "ui_messages.json"];
  const found = (messages: string | undefined, shown: string | undefined): string => {
    const disk = diskWithForeign("x", "/other");
    if (messages !== undefined) disk.put(MESSAGES, Buffer.from(messages));
    if (shown !== undefined) disk.put(join(FOLDER, SHOWN), Buffer.from(shown));
    return [...listFiles(disk, OWN)].map((path) => path.slice(FOLDER.length + 1)).join();
  };

  test.each(["[]", "[ ]\n", "", "null"])("%j in the place of messages does not hide what was shown", (empty) => {
    expect([found(empty, screen), found(undefined, screen)]).toEqual([SHOWN, SHOWN]);
    const withMessages = [found(empty, undefined), found(text, empty), found(text, screen)];
    expect(withMessages).toEqual([HISTORY, HISTORY, HISTORY]);
    expect(found(empty, empty)).toMatch(/^[^,]+$/);
  });

  const ODD = ["\0".repeat(300), "[{}]", "[nope", text.slice(0, 60)];
  test.each(ODD)("%j in the place of messages hides nothing, and is named", (odd) => {
    expect(found(odd, screen)).toBe(SHOWN);
    const disk = diskWithForeign(odd, MESSAGES);
    expect(listUnread(disk, OWN)).toMatchObject([{ path: MESSAGES, agent: "cline", isDamaged: odd !== "[{}]" }]);
    disk.put(join(FOLDER, SHOWN), Buffer.from(screen));
    expect(listUnread(disk, OWN)).toEqual([]);
    disk.put(MESSAGES, Buffer.from("[]"));
    expect(listUnread(disk, OWN)).toEqual([]);
  });

  test("no file is read a second time while it stays the same", () => {
    const place = temporaryPlace();
    const folder = join(place.home, "data", "tasks", "1784094124598");
    const messages = join(folder, "api_conversation_history.json");
    mkdirSync(folder, { recursive: true });
    writeFileSync(messages, longTask().text);
    writeFileSync(join(folder, "ui_messages.json"), screen);
    const own = getAgentPlaces({ HOME: place.home, CLINE_DIR: place.home });
    const read: string[] = [];
    // A file that has just been written may change once more under the same stamp.
    const before = Date.now() - 60_000;
    const disk: Disk = {
      ...realDisk,
      info: (path, plain) => ({ ...realDisk.info(path, plain), modified: before, changed: before }),
      openRead(path, plain) {
        read.push(path);
        return realDisk.openRead(path, plain);
      },
    };
    const now = () => [[...listFiles(disk, own)], listUnread(disk, own)];
    expect(now()).toEqual([[messages], []]);
    expect(read.splice(0)).toContain(messages);
    expect([now(), read]).toEqual([[[messages], []], []]);
    writeFileSync(messages, "[]");
    expect(now()).toEqual([[join(folder, SHOWN)], []]);
  });

  test("messages that are torn behind the first, or begin with a long one, count", () => {
    const long = new ClineWriter("cline");
    long.ask("x".repeat(100_000));
    for (const messages of [text.slice(0, 700), long.text]) expect(found(messages, screen)).toBe(HISTORY);
  });

  test("a task in Roo Code's folder is Roo Code's, whatever its file leaves open", () => {
    const said = ["Do it", "Done"].map((text, n) => ({ ts: 1784094124598 + n * 1000, type: "say", say: "text", text }));
    const folders = [FOLDER, FOLDER.replace("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline")];
    const agents = folders.map((folder) => {
      const file = join(folder, SHOWN);
      return foreignSessionOn(diskWithForeign(JSON.stringify(said), file), file).log.foreign?.agent;
    });
    expect(agents).toEqual(["cline", "roo"]);
  });

  test("messages without a time are of the time in the task's id; without one, no time is made up for lists", () => {
    const messages = [
      { role: "user", content: [{ type: "text", text: "<task>\nDo it\n</task>" }] },
      { role: "assistant", content: [{ type: "text", text: "Done" }] },
    ];
    const { header } = foreignSessionOn(diskWith(JSON.stringify(messages), {}), MESSAGES).log;
    expect(header.timestamp).toBe(new Date(Number(TASK)).toISOString());
    const facts = new SurveyFacts();
    const message = { role: "user", content: "x", timestamp: 0 };
    facts.add({ type: "message", timestamp: "1970-01-01T00:00:00.000Z", members: { message } });
    expect(facts.activity).toBeNull();
  });
});

const FORMS = ["contract", "cline", "roo"] as const;
const ELSEWHERE = "/elsewhere/tasks/1784094124598/api_conversation_history.json";

test.each(FORMS)("the end of a whole session of %s, and when and with what it began", (form) => {
  const session = foreignSession(wholeClineSession(form).text, ELSEWHERE);
  const end = drawnContext(session).filter((line) => !line.includes("<environment_details>"));
  expect(end.slice(-4)).toEqual(["model: [t9]", "result: nine", "user: Good", "model: Nothing."]);
  expect(entriesOf(session)[form === "contract" ? 2 : 0].timestamp).toMatch(/^2026-07-15T05:00/);
  const hasPrompt = entriesOf(session).some(({ customType }) => customType === "cline:system-prompt");
  expect(hasPrompt).toBe(form === "contract");
});

test("a contract's file names its session, and a subagent's the one that made it", () => {
  const w = wholeClineSession("contract");
  const lead = foreignSession(w.text);
  w.facts = { ...w.facts, updated_at: "2027-01-01T00:00:00.000Z" };
  expect(foreignSession(w.text).id).toBe(lead.id);
  w.facts = { ...w.facts, agent: "subagent", sessionId: `${CLINE_SESSION}__agent_1` };
  expect(foreignSession(w.text).id).not.toBe(lead.id);
});

test("a task is told by its folder, or where that is not its own by how it began", () => {
  const [one, another] = ["One", "Another"].map((text) => {
    const w = new ClineWriter("cline");
    w.ask(text);
    const ids = (): string[] => ["/elsewhere/history.json", ELSEWHERE].map((file) => foreignSession(w.text, file).id);
    const begun = ids();
    w.reply("Yes.");
    expect(ids()).toEqual(begun);
    return begun;
  });
  expect([one[0] === another[0], one[1] === another[1]]).toEqual([false, true]);
  const shown = ELSEWHERE.replace("api_conversation_history", "ui_messages");
  expect(foreignSession(JSON.stringify(wholeClineScreen()), shown).id).toBe(one[1]);
});

acrossTiers(test, FORMS)(
  "wherever a task of the form %s is cut, no entry of it has the id of another one of the whole task",
  (form) => {
    const w = wholeClineSession(form);
    const messages = [...w.messages];
    const whole = new Map(entriesOf(foreignSession(w.text, ELSEWHERE)).map((entry) => [entry.id, entry]));
    for (let cut = 1; cut < messages.length; cut++) {
      // A thought alone is only the beginning of an entry, and is reported as such.
      if (messages[cut - 1].type === "reasoning") continue;
      w.messages.splice(0, w.messages.length, ...messages.slice(0, cut));
      for (const entry of entriesOf(foreignSession(w.text, ELSEWHERE))) expect(entry).toEqual(whole.get(entry.id));
    }
  },
);

const request = { ts: 3, type: "say", say: "api_req_started", text: JSON.stringify({ apiProtocol: "anthropic" }) };

test.each<[string, ...object[]]>([
  ["cline"],
  ["roo", { ts: 3, type: "say", say: "codebase_search_result", text: "{}" }],
  ["roo", { ts: 3, type: "say", say: "user_edit_todos", text: "{}" }],
  ["roo", { ts: 3, type: "say", say: "subtask_result", text: "{}" }],
  ["roo", request],
  ["cline", { ...request, modelInfo: { modelId: "x" } }],
])("what is shown of a task is of %s by what only that says: %j", (agent, ...more) => {
  const said = { ts: 1, type: "say", say: "text", text: "Make a page" };
  const text = JSON.stringify([said, { ts: 2, type: "say", say: "text", text: "Made." }, ...more]);
  expect(fidelityOf(foreignSession(text).log).agent).toBe(agent);
});

test("messages of a task are Cline's where they say nothing of whose they are", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const plain = JSON.stringify([{ role: "user", content: [{ type: "text", text: "Do it" }] }]);
  const file = put(join(place.home, "tasks", "t1", "api_conversation_history.json"), plain);
  await server.result("switch_session", { sessionPath: file });
  expect(await server.result("get_state")).toMatchObject({ store: "foreign", readOnly: true });
});
