/** The files of a task of Cline's or Roo Code's together: what the model sees of the messages, and which file is the session. */

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { SurveyFacts } from "../../src/core/foreign/survey.ts";
import { agentPlaces, filesIn, unreadIn } from "../../src/storage/foreign/places.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { diskWithForeign, foreignSessionOn, requireSound, strictContext } from "../support/foreign/checks.ts";
import { ClineWriter, use, wholeClineScreen } from "../support/foreign/cline.ts";
import { temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const TASK = "1784094124598";
const FOLDER = `/home/me/.config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks/${TASK}`;
const MESSAGES = `${FOLDER}/api_conversation_history.json`;

/** Returns 40 messages, of which every second answer has a call. */
function longTask(): ClineWriter {
  const w = new ClineWriter("cline");
  w.user("The task");
  for (let n = 1; n < 20; n++) {
    w.answer([{ type: "text", text: `Answer ${n}` }, use(`t${n}`)]);
    w.result(`t${n}`, `result ${n}`);
  }
  w.answer([{ type: "text", text: "Done" }]);
  return w;
}

function diskWith(messages: string, beside: Readonly<Record<string, unknown>>): ReturnType<typeof diskWithForeign> {
  const disk = diskWithForeign(messages, MESSAGES);
  for (const [name, value] of Object.entries(beside)) disk.put(join(FOLDER, name), Buffer.from(JSON.stringify(value)));
  return disk;
}

function seen(disk: Disk): string[] {
  const session = foreignSessionOn(disk, MESSAGES);
  requireSound(session);
  return strictContext(session).flatMap(({ content }) =>
    (Array.isArray(content) ? content : [{ text: content }]).flatMap(({ text }) =>
      typeof text === "string" && !text.startsWith("<environment") ? [text.trim()] : [],
    ),
  );
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
    expect(seen(diskWith(text, { "ui_messages.json": [{ conversationHistoryDeletedRange: [2, 400] }] }))).toEqual([
      "The task",
      "Answer 1",
    ]);
    expect(seen(diskWith(text, { "ui_messages.json": [{ conversationHistoryDeletedRange: [40, 50] }] }))).toEqual(all);
  });

  acrossTiers(test, [[5, 2], ["2", 3], [-1, 3], 7, [2.5, 3]] as const)("what is no range (%j)", (range) => {
    expect(seen(diskWith(text, { "ui_messages.json": [{ conversationHistoryDeletedRange: range }] }))).toEqual(all);
  });

  test("texts that Cline sends in the place of others, of which the last counts", () => {
    const changes = [
      [
        1,
        [
          0,
          [
            [
              0,
              [
                [1, "text", ["[NOTE] first"], []],
                [2, "text", ["[NOTE] Some of it was removed."], []],
              ],
            ],
          ],
        ],
      ],
      [38, [1, [[0, [[3, "text", ["result 19, shorter"], []]]]]]],
      [10, [1, [[0, [[3, "text", ["left out anyway"], []]]]]]],
      ["x", 7],
    ];
    const beside = {
      "ui_messages.json": [{ conversationHistoryDeletedRange: RANGE }],
      "context_history.json": changes,
    };
    expect(seen(diskWith(text, beside))).toEqual(
      LEFT.map(
        (one) => ({ "Answer 1": "[NOTE] Some of it was removed.", "result 19": "result 19, shorter" })[one] ?? one,
      ),
    );
  });
});

describe("which file of a task is the session", () => {
  const screen = JSON.stringify(wholeClineScreen());
  const found = (messages: string | undefined, shown: string | undefined): string[] => {
    const disk = diskWithForeign("x", "/other");
    if (messages !== undefined) disk.put(MESSAGES, Buffer.from(messages));
    if (shown !== undefined) disk.put(join(FOLDER, "ui_messages.json"), Buffer.from(shown));
    const own = agentPlaces({ HOME: "/home/me" }).filter(({ folder }) => folder === dirname(FOLDER));
    return [...filesIn(disk, own)].map((path) => path.slice(FOLDER.length + 1));
  };

  test.each(["[]", "[ ]\n", "", "null"])("%j in the place of messages does not hide what was shown", (empty) => {
    expect(found(empty, screen)).toEqual(["ui_messages.json"]);
    expect(found(empty, undefined)).toEqual(["api_conversation_history.json"]);
    expect(found(longTask().text, empty)).toEqual(["api_conversation_history.json"]);
    expect(found(longTask().text, screen)).toEqual(["api_conversation_history.json"]);
    expect(found(undefined, screen)).toEqual(["ui_messages.json"]);
    expect(found(empty, empty)).toHaveLength(1);
  });

  const torn = longTask().text.slice(0, 60);

  test.each(["\0".repeat(300), "[{}]", "[nope", torn])(
    "%j in the place of messages hides nothing, and is named",
    (odd) => {
      expect(found(odd, screen)).toEqual(["ui_messages.json"]);
      const disk = diskWithForeign(odd, MESSAGES);
      const own = agentPlaces({ HOME: "/home/me" }).filter(({ folder }) => folder === dirname(FOLDER));
      expect(unreadIn(disk, own)).toMatchObject([{ path: MESSAGES, agent: "cline", isDamaged: odd !== "[{}]" }]);
      disk.put(join(FOLDER, "ui_messages.json"), Buffer.from(screen));
      expect(unreadIn(disk, own)).toEqual([]);
      disk.put(MESSAGES, Buffer.from("[]"));
      expect(unreadIn(disk, own)).toEqual([]);
    },
  );

  test("no file is read a second time while it stays the same", () => {
    const place = temporaryPlace();
    const folder = join(place.home, "data", "tasks", "1784094124598");
    const messages = join(folder, "api_conversation_history.json");
    mkdirSync(folder, { recursive: true });
    writeFileSync(messages, longTask().text);
    writeFileSync(join(folder, "ui_messages.json"), screen);
    const own = agentPlaces({ HOME: place.home, CLINE_DIR: place.home });
    const read: string[] = [];
    // What has just been written may change once more under the same stamp.
    const before = Date.now() - 60_000;
    const disk: Disk = {
      ...realDisk,
      info: (path, plain) => ({ ...realDisk.info(path, plain), modified: before, changed: before }),
      openRead(path, plain) {
        read.push(path);
        return realDisk.openRead(path, plain);
      },
    };
    const found = () => [[...filesIn(disk, own)], unreadIn(disk, own)];
    expect(found()).toEqual([[messages], []]);
    expect(read.splice(0)).toContain(messages);
    expect(found()).toEqual([[messages], []]);
    expect(read).toEqual([]);
    writeFileSync(messages, "[]");
    expect(found()).toEqual([[join(folder, "ui_messages.json")], []]);
  });

  test("messages that are torn behind the first, or begin with a long one, count", () => {
    expect(found(longTask().text.slice(0, 700), screen)).toEqual(["api_conversation_history.json"]);
    const long = new ClineWriter("cline");
    long.user("x".repeat(100_000));
    expect(found(long.text, screen)).toEqual(["api_conversation_history.json"]);
  });

  test("a task in Roo Code's folder is Roo Code's, whatever its file leaves open", () => {
    const plain = JSON.stringify([
      { ts: 1784094124598, type: "say", say: "text", text: "Do it" },
      { ts: 1784094125598, type: "say", say: "text", text: "Done" },
    ]);
    const file = FOLDER.replace("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline");
    const disk = diskWithForeign(plain, `${file}/ui_messages.json`);
    disk.put(`${FOLDER}/ui_messages.json`, Buffer.from(plain));
    expect(foreignSessionOn(disk, `${file}/ui_messages.json`).log.foreign?.agent).toBe("roo");
    expect(foreignSessionOn(disk, `${FOLDER}/ui_messages.json`).log.foreign?.agent).toBe("cline");
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
