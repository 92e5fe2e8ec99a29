/** Sessions in other agents' databases: many in one file, read without SQLite while the agent writes, and never written. */

import { mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { FaultDisk } from "../../support/disk.ts";
import {
  addGoose,
  addOpencode,
  damagedDatabase,
  gooseDatabase,
  opencodeDatabase,
  rustDatabase,
  SQLITE,
} from "../../support/foreign/databases.ts";
import { GOOSE_SESSION, GooseWriter, wholeGooseExport } from "../../support/foreign/goose.ts";
import { OPENCODE_SESSION, OpencodeWriter, wholeOpencodeExport } from "../../support/foreign/opencode.ts";
import { contentsOf, put, serveLibrary } from "../../support/lifecycle.ts";
import { assistantText, headerText, id, SESSION, userText } from "../../support/lines.ts";
import { forSeeds } from "../../support/random.ts";
import { type HereServer, type Json, type Place, temporaryFolder, temporaryPlace } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import {
  drawnContext,
  drawnTree,
  entriesOf,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requireSound,
  strictContext,
} from "./support/checks.ts";

const MAKINGS = [{}, { journal: "DELETE" }, { withoutIndexes: true }, { pageSize: 512, encoding: "UTF-16le" }] as const;

type Database = ReturnType<typeof SQLITE>;

/** Opens what lies at a path on the real disk, and what an export is. */
const opened = (...path: string[]) => foreignSessionOn(realDisk, join(...path));
const exported = ({ text }: { readonly text: string }) => entriesOf(foreignSession(text));

async function listed(server: HereServer, agent: string): Promise<Json[]> {
  return (await server.result("list_sessions", { agents: [agent], headerOnly: true })).sessions;
}

/** Returns a session with another id, which a person has said one thing in. */
function small(own: string, text: string): OpencodeWriter {
  const writer = new OpencodeWriter();
  writer.ask(text);
  writer.reply(`You said: ${text}`);
  writer.info = { ...writer.info, id: own, title: `About ${text}` };
  for (const { info, parts } of writer.messages) {
    const tag = own.slice(4);
    info.sessionID = own;
    info.id = `${info.id}${tag}`;
    for (const part of parts) Object.assign(part, { sessionID: own, messageID: info.id, id: `${part.id}${tag}` });
  }
  return writer;
}

/** Has the conversation go on. */
function addMore(talk: OpencodeWriter, text: string): void {
  const { messages } = small(String(talk.info.id), text);
  for (const { info, parts } of messages) {
    info.id = `msg_${talk.messages.length}${info.id}`;
    for (const part of parts) Object.assign(part, { id: `prt_${talk.messages.length}${part.id}`, messageID: info.id });
  }
  talk.messages.push(...messages);
}

function opencodeFile(place: Place): string {
  mkdirSync(join(place.home, ".local/share/opencode"), { recursive: true });
  return join(place.home, ".local/share/opencode/opencode.db");
}

/** Databases with a whole session: of opencode's with another one next to it. */
const WHOLES = [
  {
    ...{ agent: "opencode", own: OPENCODE_SESSION, whole: wholeOpencodeExport() },
    make: (file: string, making: (typeof MAKINGS)[number]) =>
      opencodeDatabase(file, [small("ses_other", "else"), wholeOpencodeExport()], making),
  },
  {
    ...{ agent: "Goose", own: GOOSE_SESSION, whole: wholeGooseExport() },
    make: (file: string, making: (typeof MAKINGS)[number]) => gooseDatabase(file, [wholeGooseExport()], making),
  },
];

describe.each(WHOLES)("a database of $agent", ({ agent, own, whole, make }) => {
  acrossTiers(test, MAKINGS)("as %j has the entries of its export, byte for byte, and stays as it is", (making) => {
    const file = join(temporaryFolder(), "any name");
    const database = make(file, making);
    const before = contentsOf(dirname(file));
    const session = opened(file, own);
    requireSound(session);
    expect(entriesOf(session)).toEqual(exported(whole));
    expect(session.log.header.id).toBe(foreignSession(whole.text).log.header.id);
    // One session is meant by the path of the database, too.
    if (agent === "Goose") expect(entriesOf(opened(file))).toEqual(entriesOf(session));
    expect(contentsOf(dirname(file))).toEqual(before);
    database.close();
  });
});

test("opencode's, of a version that has whole messages in one table", async () => {
  const place = temporaryPlace();
  const file = opencodeFile(place);
  const database = opencodeDatabase(file, [small("ses_older", "older")]);
  const { info } = new OpencodeWriter();
  const own = { info: { ...info, id: "ses_newer", title: "About newer" }, messages: [] };
  addOpencode(database, own as unknown as OpencodeWriter);
  const put = database.prepare("INSERT INTO session_message VALUES (?, ?, ?, ?, ?)");
  const add = (session: string, type: string, seq: number, data: Json): void => {
    const time = { created: 1_784_094_124_000 + seq * 1000, completed: 1_784_094_124_500 + seq * 1000 };
    put.run(`evt_${session}_${seq}`, session, type, seq, JSON.stringify({ time, ...data }));
  };
  const model = { id: "claude-sonnet-4-5", providerID: "anthropic" };
  const tool = (id: string, state: Json): Json => ({ type: "tool", id, name: "bash", state, time: { created: 1 } });
  const rows: [string, Json][] = [
    ["model-switched", { model }],
    ["user", { text: "Look", files: [{ uri: "data:image/png;base64,AAAA", mime: "image/png", name: "a.png" }] }],
    [
      "assistant",
      {
        agent: "build",
        model,
        cost: 0.5,
        tokens: { input: 10, output: 5, reasoning: 1, cache: { read: 2, write: 0 } },
        content: [
          { type: "reasoning", id: "r", text: "Hm", providerMetadata: { anthropic: { signature: "c2ln" } } },
          { type: "text", id: "t", text: "I look." },
          tool("c1", { status: "completed", input: { command: "ls" }, content: [{ type: "text", text: "a.txt" }] }),
          tool("c2", { status: "error", input: {}, content: [], error: { type: "unknown", message: "No." } }),
          tool("c3", { status: "pending", input: '{"comm' }),
        ],
      },
    ],
    ["shell", { callID: "s", command: "pwd", output: "/home/me" }],
    ["synthetic", { text: "A reminder" }],
    ["compaction", { reason: "auto", summary: "In short", recent: "The last words" }],
    ["user", { text: "Go on" }],
    ["assistant", { agent: "build", model, content: [], error: { type: "aborted", message: "Stopped" } }],
    ["of-tomorrow", { what: 1 }],
  ];
  for (const [n, [type, data]] of [...rows.entries()].reverse()) add("ses_newer", type, n, data);
  // In the older tables all of a session is there, and these repeat it.
  add("ses_older", "user", 1, { text: "older" });
  database.prepare("INSERT INTO session_message VALUES (?, ?, ?, ?, ?)").run("x", "ses_newer", "user", 99, "{");
  const session = opened(file, "ses_newer");
  requireSound(session);
  expect(drawnContext(session)).toEqual(["summary: In short\nThe last words", "user: Go on", "model:"]);
  const answer = "model: (Hm) I look. [c1] [c2] [c3]";
  const said = drawnTree(session).filter((line) => /^(user|model|result|failure)/.test(line));
  const end = ["result: a.txt", "failure: No.", "user: Go on", "model:"];
  expect(said).toEqual(["user: Look <image>", answer, ...end]);
  const spoken = entriesOf(session).flatMap(({ message }) =>
    (message as Json)?.role === "assistant" ? [message] : [],
  );
  const [first, second] = spoken as Json[];
  expect(first.usage).toMatchObject({ input: 10, output: 6, cacheRead: 2, cost: { total: 0.5 } });
  expect(first.content).toMatchObject([
    { thinkingSignature: "c2ln" },
    {},
    { name: "bash", arguments: { command: "ls" } },
    {},
    { arguments: { input: '{"comm' } },
  ]);
  expect(second).toMatchObject({ stopReason: "aborted", errorMessage: "Stopped" });
  expect(JSON.stringify(entriesOf(session))).toContain("$ pwd\\n/home/me");
  const older = opened(file, "ses_older");
  expect(entriesOf(older)).toEqual(exported(small("ses_older", "older")));
  const warningsOf = ({ log }: typeof older): string =>
    fidelityOf(log)
      .warnings.map(({ sentence }) => sentence)
      .join();
  expect(warningsOf(older)).toContain("Only the older ones are read");
  expect(warningsOf(session)).not.toContain("Only the older ones");
  const names = (await listed(serveLibrary(place), "opencode")).map(({ name }) => name);
  expect(names.sort()).toEqual(["About newer", "About older"]);
  database.close();
});

test(
  "they are listed by their paths, searched, opened, verified, imported; the folder stays as it is",
  SYSTEM,
  async () => {
    const place = temporaryPlace();
    const file = opencodeFile(place);
    const talk = small("ses_one", "elephants");
    const database = opencodeDatabase(file, [talk, small("ses_two", "giraffes"), wholeOpencodeExport()]);
    const before = contentsOf(dirname(file));
    const server = serveLibrary(place);
    const [one, two, whole] = ["ses_one", "ses_two", OPENCODE_SESSION].map((own) => join(file, own));
    const sessions = await listed(server, "opencode");
    expect(sessions.map(({ sessionPath }) => sessionPath).sort()).toEqual([one, two, whole].sort());
    const row = { agent: "opencode", store: "foreign", messageCount: 2, firstMessage: "elephants" };
    expect(sessions.find(({ sessionPath }) => sessionPath === one)).toMatchObject(row);
    const { hits } = await server.result("search_sessions", { query: "giraffes", agents: "all" });
    expect(new Set(hits.map(({ sessionPath }: Json) => sessionPath))).toEqual(new Set([two]));
    await server.result("switch_session", { sessionPath: one });
    expect((await server.result("get_messages")).messages).toHaveLength(2);
    const fidelity = { agent: "opencode", records: 7 };
    expect(await server.result("verify_session")).toMatchObject({ ok: true, fidelity });
    for (const outcome of ["new", "known"])
      expect(await server.result("import_session", { path: one })).toMatchObject({ outcome });
    expect(contentsOf(dirname(file))).toEqual(before);
    addMore(talk, "lions");
    addOpencode(database, talk, 2);
    expect((await listed(server, "opencode")).map(({ messageCount }) => messageCount)).toContain(4);
    database.close();
  },
);

test("one is followed while the agent writes, whatever becomes of its log", () => {
  const file = join(temporaryFolder(), "x.db");
  const talk = small("ses_one", "first");
  const database = opencodeDatabase(file, [talk, small("ses_two", "other")]);
  const session = opened(file, "ses_one");
  for (const [n, text] of ["second", "third", "fourth"].entries()) {
    addMore(talk, text);
    addOpencode(database, talk, 2 * (n + 1));
    if (n === 1) database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    expect(session.refresh()?.positions.length).toBeGreaterThan(1);
    expect(entriesOf(session)).toEqual(exported(talk));
    expect(session.refresh()).toBeNull();
  }
  database.exec("DELETE FROM part WHERE session_id = 'ses_one'");
  session.refresh();
  expect(entriesOf(session)).toEqual(entriesOf(opened(file, "ses_one")));
  database.close();
});

test("a longer conversation of Goose's continues what was imported, and one that was changed is a conflict", async () => {
  const place = temporaryPlace();
  mkdirSync(join(place.home, ".local/share/goose/sessions"), { recursive: true });
  const file = join(place.home, ".local/share/goose/sessions/sessions.db");
  const talk = new GooseWriter();
  talk.ask("Hello");
  talk.reply("Hi");
  const database = gooseDatabase(file, [talk]);
  const server = serveLibrary(place);
  const path = join(file, GOOSE_SESSION);
  const expectOutcome = async (outcome: string): Promise<void> =>
    expect(await server.result("import_session", { path })).toMatchObject({ outcome });
  await expectOutcome("new");
  talk.ask("More");
  talk.reply("Much more");
  addGoose(database, talk, 2);
  await expectOutcome("continued");
  database.exec(`UPDATE messages SET content_json = '[{"type":"text","text":"Bye"}]' WHERE id = 2`);
  await expectOutcome("conflict");
  expect(await listed(server, "goose")).toMatchObject([{ sessionPath: path }]);
  database.close();
});

test("a path of many sessions says how one is named; one that is not there is not found; a subagent names its parent", async () => {
  const place = temporaryPlace();
  const file = opencodeFile(place);
  const child = small("ses_child", "a task");
  child.info.parentID = "ses_one";
  opencodeDatabase(file, [small("ses_one", "a"), child]).close();
  const server = serveLibrary(place);
  const { message, data } = await server.failure("switch_session", { sessionPath: file });
  expect([data.name, message]).toEqual(["not_a_session", expect.stringContaining("list --agents opencode")]);
  expect(message).toContain(join(file, "ses_one"));
  const missing = await server.failure("switch_session", { sessionPath: join(file, "ses_three") });
  expect(missing.data.name).toBe("session_not_found");
  const found = (await listed(server, "opencode")).find(({ sessionPath }) => sessionPath === join(file, "ses_child"));
  expect(found?.parentSession).toBe(join(file, "ses_one"));
});

test("opencode's older folder: the same entries, and what was moved to the database is listed once", async () => {
  const place = temporaryPlace();
  const storage = join(place.home, ".local/share/opencode/storage");
  const whole = wholeOpencodeExport();
  const facts = put(join(storage, "session/global", `${OPENCODE_SESSION}.json`), JSON.stringify(whole.info, null, 2));
  for (const { info, parts } of whole.messages) {
    put(join(storage, "message", OPENCODE_SESSION, `${info.id}.json`), JSON.stringify(info, null, 2));
    for (const part of parts)
      put(join(storage, "part", `${info.id}`, `${part.id}.json`), JSON.stringify(part, null, 2));
  }
  const session = opened(facts);
  requireSound(session);
  expect(entriesOf(session)).toEqual(exported(whole));
  const server = serveLibrary(place);
  const pathsOf = async (): Promise<string[]> =>
    (await listed(server, "opencode")).map(({ sessionPath }) => sessionPath);
  expect(await pathsOf()).toEqual([facts]);
  opencodeDatabase(opencodeFile(place), [whole]).close();
  expect(await pathsOf()).toEqual([join(opencodeFile(place), OPENCODE_SESSION)]);
});

test("pi_agent_rust's: the entries are its own, also while it has the session open", async () => {
  const place = temporaryPlace();
  const folder = join(place.home, ".pi/agent/sessions/--home-me--");
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "talk.sqlite");
  const entries = [userText(id(0), null, "Hello"), assistantText(id(1), id(0)), userText(id(2), id(0), "Or so")];
  const database = rustDatabase(file, headerText(), entries);
  const server = serveLibrary(place);
  const row = { sessionPath: file, sessionId: SESSION, messageCount: 3, firstMessage: "Hello" };
  expect(await listed(server, "pirust")).toMatchObject([row]);
  await server.result("switch_session", { sessionPath: file });
  expect(await server.result("get_state")).toMatchObject({ sessionId: SESSION, readOnly: true, store: "foreign" });
  expect(entriesOf(opened(file))).toEqual(entries.map((entry) => JSON.parse(entry)));
  expect(await server.result("import_session", { path: file })).toMatchObject({ outcome: "new", sessionId: SESSION });
  database.close();
});

acrossTiers(test, [10, 40])("damaged databases are read as far as they go, or not recognised (%i)", (count) => {
  const folder = temporaryFolder();
  const wholes = WHOLES.map(({ own, make }) => {
    const file = join(folder, own);
    make(file, { journal: "DELETE" }).close();
    return [readFileSync(file), own] as const;
  });
  let recognised = 0;
  forSeeds(count, (random) => {
    const [whole, own] = random.pick(wholes);
    const disk = new FaultDisk();
    disk.put("/x.db", damagedDatabase(random, whole));
    try {
      requireSound(foreignSessionOn(disk, `/x.db/${own}`));
      recognised++;
    } catch (error) {
      if (!(error instanceof Error) || error.message !== "the file is not recognised") throw error;
    }
  });
  expect(recognised).toBeGreaterThan(0);
});

acrossTiers(test, [3, 15])(
  "values of other types than a column should have, and missing tables, are damage as any other (%i)",
  (count) => {
    const file = join(temporaryFolder(), "x.db");
    const database = opencodeDatabase(file, [wholeOpencodeExport()]);
    const ids = (table: string): string[] =>
      (database.prepare(`SELECT id FROM ${table}`).all() as { id: string }[]).map((row) => row.id);
    const values = [null, 7, 0.5, "", "{", "[]", "null", '{"role":7}', Buffer.from([0xff, 0x00]), '{"type":"text"}'];
    const set = (table: string, column: string, key: string, value: unknown): void => {
      database.exec("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON");
      database.prepare(`UPDATE OR IGNORE ${table} SET ${column} = ? WHERE id = ?`).run(value, key);
    };
    forSeeds(count, (random) => {
      const table = random.pick(["message", "part"]);
      try {
        set(table, random.pick(["data", "time_created"]), random.pick(ids(table)), random.pick(values));
      } catch {
        // NOT NULL
      }
      requireSound(opened(file, OPENCODE_SESSION));
    });
    database.exec("DROP TABLE todo; DROP TABLE session_message");
    requireSound(opened(file, OPENCODE_SESSION));
    // Without its own row, a session still has its messages.
    database.exec("DELETE FROM session");
    requireSound(opened(file, OPENCODE_SESSION));
    database.close();
  },
);

describe("opencode 2, which has tables of its own", () => {
  const TABLES = `
    CREATE TABLE session_v2 (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, fork_session_id text,
      directory text NOT NULL, title text, version text NOT NULL, time_created integer NOT NULL,
      time_updated integer NOT NULL);
    DROP TABLE IF EXISTS session_message;
    CREATE TABLE session_message (id text PRIMARY KEY, session_id text NOT NULL, type text NOT NULL,
      seq integer NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL)`;
  const FIRST = 1_784_094_000_000;

  function addSession(database: Database, id: string, fork: string | null = null): void {
    const put = database.prepare(
      "INSERT INTO session_v2 VALUES (?, 'p', NULL, ?, '/home/me/project', ?, '2.0.3', ?, ?)",
    );
    put.run(id, fork, `About ${id}`, FIRST, FIRST + 9000);
  }

  function add(database: Database, session: string, id: string, seq: number, text: string): void {
    const time = { created: FIRST + seq * 1000, completed: FIRST + seq * 1000 + 500 };
    const model = { id: "m", providerID: "p" };
    const data = seq % 2 === 1 ? { time, text } : { time, model, content: [{ type: "text", text }], finish: "stop" };
    database
      .prepare("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)")
      .run(id, session, seq % 2 === 1 ? "user" : "assistant", seq, time.created, time.completed, JSON.stringify(data));
  }

  const said = (path: string): unknown[] =>
    strictContext(opened(path)).map(({ content }) => (content as Json[])[0]?.text);

  test("a fresh database has only these", async () => {
    const place = temporaryPlace();
    const file = join(place.home, ".local/share/opencode/opencode.db");
    mkdirSync(dirname(file), { recursive: true });
    const database = SQLITE(file);
    database.exec(TABLES);
    addSession(database, "ses_a");
    addSession(database, "ses_b", "ses_a");
    for (const [n, text] of ["One", "Two", "Three", "Four"].entries()) add(database, "ses_a", `msg_${n}`, n + 1, text);
    expect(said(join(file, "ses_a"))).toEqual(["One", "Two", "Three", "Four"]);
    expect(opened(file, "ses_b").log.header.parentSession).toBe(join(file, "ses_a"));
    const names = (await listed(serveLibrary(place), "opencode")).map(({ name }) => name);
    expect(names.sort()).toEqual(["About ses_a", "About ses_b"]);
    database.close();
  });

  test("one that was taken over: the new tables first, and of the old ones what is not in them", () => {
    const place = temporaryPlace();
    const file = join(place.home, "opencode.db");
    const database = opencodeDatabase(file, [small("ses_a", "the older"), small("ses_old", "another")]);
    const [frozen] = database.prepare("SELECT id FROM message WHERE session_id = 'ses_a' ORDER BY id").all() as Json[];
    database.exec(TABLES);
    addSession(database, "ses_a");
    const before = said(join(file, "ses_old")).length;
    add(database, "ses_a", frozen.id, 1, "Taken over");
    for (const [n, text] of ["Two", "Three", "Four"].entries()) add(database, "ses_a", `msg_new_${n}`, n + 2, text);
    const texts = said(join(file, "ses_a"));
    expect(texts).toEqual(expect.arrayContaining(["Taken over", "Two", "Three", "Four"]));
    expect(texts).toHaveLength(4 + before - 1);
    expect(fidelityOf(opened(file, "ses_a").log).warnings).toEqual([]);
    database.close();
  });
});
