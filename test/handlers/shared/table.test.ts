/** Rules for every command: its declaration, a call of its example in each dialect, and its refusals. */

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import * as z from "zod";
import { makeExampleExchange, makeRefusalExchange } from "../../../scripts/reference-examples.ts";
import { FAILURES } from "../../../src/core/failure.ts";
import { type Command, commonParams } from "../../../src/handlers/shared/command.ts";
import { commandNames, findCommand } from "../../../src/handlers/shared/find.ts";
import { commandTable } from "../../../src/handlers/shared/table.ts";
import { user } from "../../support/drafts.ts";
import { examplePlace, ID_IN_CONTAINER, ID_OF_CURRENT } from "../../support/example.ts";
import { contentsOf } from "../../support/lifecycle.ts";
import { type Json, type Place, serveHere } from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";

// An export loads it when it is asked for, which takes longer than a test may.
import "../../../src/page/main.ts";

const FOLDER = fileURLToPath(new URL("../../../src/handlers", import.meta.url));

/** Commands that need a host's hook, and refuse without one. */
const NEED_A_HOOK = ["compact"];

/** Commands on what only Session Store V2 has; their example speaks of a session in it. */
const NEED_A_CONTAINER = ["rollback_migration", "create_checkpoint"];

/** Commands about a session that need none to be open: they make one the current one, or find it by themselves. */
const NEED_NO_SESSION = ["new_session", "switch_session", "undo", "redo"];

/** Params that name a file as a host likes; the trash is only looked through for one. */
const PATHS = ["sessionPath", "otherPath", "outputPath", "path"];

/** Commands that need no right to write: they look, move the leaf in memory, or make another session. */
const WRITE_NOTHING = [
  ...["switch_session", "close_session", "branch", "migration_status"],
  // For a sound session.
  "repair_session",
];

/** Commands whose examples meet no lock, though they may meet one. */
const MEET_NO_LOCK = [
  ...["new_session", "switch_session", "close_session", "fork", "clone", "branch", "list_heads", "compact"],
  ...["restore_session", "import_session", "repair_session"],
];

/** Returns whether the command is there only to say that it is not supported. */
function isRefusal({ result }: Command): boolean {
  return result instanceof z.ZodNever;
}

/** Returns whether a host without hooks is refused. */
function refuses(command: Command): boolean {
  return isRefusal(command) || NEED_A_HOOK.includes(command.name);
}

/** Returns whether a command fails where no session is open. */
function needsSession({ name, failures }: Command): boolean {
  return failures.includes("no_session") && !NEED_NO_SESSION.includes(name);
}

/** Returns the kind of a command in a rule of the dispatch. */
function kindOf(command: Command): string {
  const own = command.params.shape.sessionId === commonParams.sessionId;
  return [command.effect, needsSession(command), refuses(command), own].join(" ");
}

/** The first command of each kind; the sweep has the others of it. */
const OF_EACH_KIND = commandTable.filter(
  (command, n) => n === commandTable.findIndex((other) => kindOf(other) === kindOf(command)),
);

/** Returns whether a member of a result may be null, which Pi leaves out, or missing. */
function mayBeMissing({ result }: Command, member: string): boolean {
  const schema = result instanceof z.ZodObject ? result.shape[member] : undefined;
  return schema?.safeParse(null).success === true || schema?.safeParse(undefined).success === true;
}

/** The reply of protocol.md to a command that refuses. */
function documentedRefusal(command: Command, dialect: "jsonrpc" | "pi"): Json {
  return JSON.parse(makeRefusalExchange(command)[dialect][1]);
}

/** Returns the files of a place, without those of locks and lists. */
function readPlace({ home }: Place): [path: string, content: string][] {
  return Object.entries(contentsOf(home)).filter(([path]) => !/\/(\.pi-session|catalog\/)/.test(path));
}

/** A server on the session that the examples speak of, and the params of a command's example in it. */
function exampleOf(
  command: Command,
  dialect: string,
  more: string[] = [],
): { server: ReturnType<typeof serveHere>; params: Json; current: string } {
  const { place, session, container, text } = examplePlace();
  const current = NEED_A_CONTAINER.includes(command.name) ? container() : session;
  const allowed = more.includes("--confine") ? ["--allow-path", place.home] : more;
  const options = ["--session", current, "--dialect", dialect, "--events", "none", ...allowed];
  const server = serveHere(options, { place });
  return { server, params: JSON.parse(text(command.example.params)), current };
}

describe("the table", () => {
  test("has every command's file under the command's name, and every such file", async () => {
    for (const command of commandTable)
      expect((await import(`${FOLDER}/${command.name}.ts`)).default, command.name).toBe(command);
    const declared: string[] = [];
    for (const name of readdirSync(FOLDER).filter((file) => file.endsWith(".ts")))
      if ("default" in (await import(`${FOLDER}/${name}`))) declared.push(name.replace(/\.ts$/, ""));
    expect(declared.sort()).toEqual(commandTable.map(({ name }) => name).sort());
  });

  test("finds each command by its name and its alias, and nothing else", () => {
    for (const command of commandTable) {
      expect(findCommand(command.name)).toBe(command);
      if (command.alias !== undefined) expect(findCommand(command.alias)).toBe(command);
    }
    expect(new Set(commandNames).size).toBe(commandNames.length);
    for (const name of ["", "constructor", "__proto__", "hasOwnProperty", "GET_STATE"])
      expect(findCommand(name)).toBeUndefined();
  });
});

describe.each(commandTable)("$name", (command) => {
  test("is declared whole", () => {
    expect(command.name).toMatch(/^[a-z]+([._][a-z]+)*$/);
    expect(command.summary).toMatch(/^[A-Z].*\.$/);
    expect(command.failures.filter((name) => !(name in FAILURES))).toEqual([]);
    expect(new Set(command.failures).size).toBe(command.failures.length);
  });

  const whereAlike = OF_EACH_KIND.includes(command) ? {} : SWEEP;
  // Its example loads all exporters.
  const tier = command.name === "export_session" ? SYSTEM : {};

  test("answers its example in JSON-RPC as it declares", tier, async () => {
    const { server, params } = exampleOf(command, "jsonrpc");
    const reply = await server.request(command.name, params);
    if (refuses(command)) {
      expect(command.failures).toContain(reply.error.data.name);
      expect(documentedRefusal(command, "jsonrpc").error).toEqual(reply.error);
      return;
    }
    expect(reply.error).toBeUndefined();
    // Members that are missing in the schema would be lost here.
    expect(command.result.parse(reply.result)).toEqual(reply.result);
  });

  test("answers its example in Pi's dialect", SWEEP, async () => {
    const { server, params } = exampleOf(command, "pi");
    const reply = await server.command(command.name, params);
    expect(reply).toMatchObject({ type: "response", command: command.name, success: !refuses(command) });
    if (refuses(command)) expect(command.failures).toContain(reply.code);
    else if (!command.pi) expect(command.result.safeParse(reply.data ?? null).error).toBeUndefined();
    if (refuses(command)) {
      const { id: _, ...refused } = reply;
      expect(documentedRefusal(command, "pi")).toMatchObject(refused);
      return;
    }
    // The document shows what comes: no member that is not there, and nothing where there is something.
    const { data: documented } = JSON.parse(makeExampleExchange(command).pi[1]);
    expect("data" in reply).toBe(documented !== undefined);
    const always = Object.keys(documented ?? {}).filter((member) => !mayBeMissing(command, member));
    expect(Object.keys(reply.data ?? {})).toEqual(expect.arrayContaining(always));
  });

  test("refuses a member it does not know in JSON-RPC and ignores it in Pi's dialect", whereAlike, async () => {
    const strict = exampleOf(command, "jsonrpc");
    const error = await strict.server.failure(command.name, { ...strict.params, no_such_member: 1 });
    expect(error).toMatchObject({ code: -32602, data: { issues: [{ path: "no_such_member" }] } });
    const loose = exampleOf(command, "pi");
    const reply = await loose.server.command(command.name, { ...loose.params, no_such_member: 1 });
    expect(reply.success).toBe(!refuses(command));
  });

  test("fails with no_session when it needs one and there is none", whereAlike, async () => {
    const { place, text } = examplePlace();
    const server = serveHere(["--session", "no-such-id", "--events", "none"], { place });
    const { error } = await server.request(command.name, JSON.parse(text(command.example.params)));
    // The failure that left us without a session is what every command on it answers.
    if (needsSession(command)) expect(error.data.name).toBe("session_not_found");
    else if (refuses(command)) expect(command.failures).toContain(error.data.name);
    else expect(error).toBeUndefined();
  });

  if (command.params.shape.sessionId === commonParams.sessionId && command.name !== "new_session")
    test("fails with session_not_found for an id that is of no open session", whereAlike, async () => {
      const { server, params } = exampleOf(command, "jsonrpc");
      const error = await server.failure(command.name, { ...params, sessionId: "not-open" });
      expect(error.data).toMatchObject({ name: "session_not_found", sessionId: "not-open" });
      const sessionId = NEED_A_CONTAINER.includes(command.name) ? ID_IN_CONTAINER : ID_OF_CURRENT;
      const reply = await server.request(command.name, { ...params, sessionId });
      expect(reply.error === undefined).toBe(!refuses(command));
    });

  if (command.failures.includes("read_only") && !WRITE_NOTHING.includes(command.name))
    test("fails with read_only where nothing may be written, and writes nothing", async () => {
      const { server, params } = exampleOf(command, "jsonrpc", ["--read-only"]);
      const { dryRun: _, ...inEarnest } = params;
      const before = contentsOf(server.place.home);
      expect((await server.failure(command.name, inEarnest)).data.name).toBe("read_only");
      expect(contentsOf(server.place.home)).toEqual(before);
    });

  if (command.failures.includes("session_locked") && !MEET_NO_LOCK.includes(command.name))
    test("fails with session_locked while another process writes to the session, names it and changes nothing", async () => {
      const { server: holder, params, current } = exampleOf(command, "jsonrpc");
      await holder.result("set_session_name", { name: "held" });
      const { sessionId: _id, dryRun: _dry, ...rest } = params;
      const takesPath = "sessionPath" in command.params.shape;
      const named = takesPath ? { ...rest, sessionPath: current } : rest;
      const options = takesPath ? ["--no-session"] : ["--session", current, "--attach", "off"];
      const server = serveHere([...options, "--events", "none"], { place: holder.place });
      // A migration that is refused is recorded as begun and failed.
      const look = (): [string, string][] => readPlace(holder.place).filter(([path]) => !path.includes("/operations/"));
      const before = look();
      const { data, message } = await server.failure(command.name, named);
      const client = "pi-session-server 0.0.0-test";
      expect(data).toMatchObject({ name: "session_locked", holder: { client, pid: process.pid } });
      expect([message, look()]).toEqual([expect.stringContaining(`process ${process.pid}`), before]);
    });

  // A path for restore_session is only looked for in the trash.
  for (const name of PATHS.filter((one) => one in command.params.shape && command.name !== "restore_session")) {
    test(`refuses a ${name} outside the folders it may use, as it declares`, async () => {
      const { server, params } = exampleOf(command, "jsonrpc", ["--confine"]);
      const { sessionId: _, ...rest } = params;
      const error = await server.failure(command.name, { ...rest, [name]: "/nowhere/outside.jsonl" });
      expect(error.data.name).toBe("path_outside_root");
      expect(command.failures).toContain("path_outside_root");
    });

    if (name !== "outputPath")
      test(`refuses as ${name} the path of a part of a session, as it declares`, async () => {
        const { place, session, container, text } = examplePlace();
        const part = join(container(), "header.jsonl");
        const before = contentsOf(dirname(part));
        const server = serveHere(["--session", session, "--events", "none"], { place });
        const { sessionId: _, ...rest } = JSON.parse(text(command.example.params));
        const error = await server.failure(command.name, { ...rest, [name]: part });
        expect(error).toMatchObject({ data: { name: "not_a_session", sessionPath: dirname(part) } });
        expect(command.failures).toContain("not_a_session");
        expect(contentsOf(dirname(part))).toEqual(before);
      });
  }
});

/** A place with the session of the examples, and a check that a server on it refuses a request and changes nothing. */
async function checkRefusals() {
  const { place, session } = examplePlace();
  const server = serveHere(["--session", session, "--events", "none"], { place });
  const look = async (): Promise<Json> => {
    const { lock: _, ...state } = await server.result("get_state");
    return [state, readPlace(place)];
  };
  const expectRefused = async (command: string, params: Json, refused: Json): Promise<void> => {
    const before = await look();
    const error = await server.failure(command, params);
    expect({ path: error.data.issues?.[0].path, ...error.data }).toMatchObject(refused);
    expect(JSON.stringify(error)).not.toContain("secret");
    expect(await look()).toEqual(before);
  };
  return { place, expectRefused };
}

const FINE = user("fine", { id: "fine" });
const UNKNOWN = { name: "entry_not_found", entryId: "nope" };
const invalid = (path?: string): Json => ({ name: "invalid_params", ...(path === undefined ? {} : { path }) });
const appendRow = (what: string, draft: Json, refused: Json): [string, string, Json, Json] => [
  "append",
  `${what} after a sound entry`,
  { entries: [FINE, draft] },
  refused,
];
const compactRow = (what: string, more: object, refused: Json): [string, string, Json, Json] => {
  const params = { summary: "So far.", firstKeptEntryId: "c3d4e5f6", tokensBefore: 1234 };
  return ["compact_append", what, { ...params, ...more }, refused];
};

test.each([
  appendRow("an unknown parent", user("x", { parentId: "nope" }), UNKNOWN),
  appendRow("an id of the same call", FINE, { name: "invalid_entry", entryId: "fine" }),
  appendRow("an id that is a number", user("x", { id: 5 }), invalid("entries.1.id")),
  appendRow("a parent that is a number", user("x", { parentId: 5 }), invalid("entries.1.parentId")),
  appendRow("a header", { type: "session", id: "s" }, invalid("entries.1.type")),
  appendRow("an empty type", { type: "" }, invalid("entries.1.type")),
  appendRow("a message without role", { type: "message", message: {} }, invalid("entries.1.message.role")),
  appendRow("a label without target", { type: "label", label: "x" }, invalid("entries.1.targetId")),
  compactRow("an empty summary", { summary: "" }, invalid("summary")),
  compactRow("a summary of white space", { summary: " \n\t" }, invalid("summary")),
  compactRow("no boundary", { firstKeptEntryId: undefined }, invalid("firstKeptEntryId")),
  compactRow("negative tokens", { tokensBefore: -1 }, invalid("tokensBefore")),
  compactRow("a boundary off the path", { firstKeptEntryId: "a7c8e9f0" }, { name: "invalid_boundary", nearest: [] }),
  ["fork", "an answer to fork before", { entryId: "d4e5f6a7" }, { name: "not_a_user_message", entryId: "d4e5f6a7" }],
  ["fork", "an unknown entry", { entryId: "nope" }, UNKNOWN],
  ["fork", "an unknown entry to fork at", { entryId: "nope", position: "at" }, UNKNOWN],
  ["fork", "no entry", {}, invalid("entryId")],
  ["branch", "an unknown entry", { entryId: "nope" }, UNKNOWN],
  ["branch", "a summary that says nothing", { entryId: "a1b2c3d4", summary: { summary: "" } }, invalid()],
  ["branch", "a summary that is a text", { entryId: "a1b2c3d4", summary: "text" }, invalid()],
  ["branch", "a label of no entry", { entryId: null, label: "x" }, invalid("label")],
  ["set_label", "an unknown entry", { entryId: "nope", label: "x" }, UNKNOWN],
  ["set_session_name", "a name of white space", { name: "\t\r\n" }, invalid("name")],
  ["list_leftovers", "a time that is none", { before: "soon" }, invalid("before")],
  ["switch_session", "neither path nor id", {}, invalid()],
  ["switch_session", "path and id", { sessionPath: "x.jsonl", sessionId: "x" }, invalid()],
  ["delete_session", "neither path nor id", {}, invalid()],
  ["delete_session", "path and id", { sessionPath: "x.jsonl", sessionId: "x" }, invalid()],
  ["delete_session", "the beginning of an id", { sessionId: ID_OF_CURRENT.slice(0, -1) }, { name: "ambiguous_id" }],
  ["delete_session", "an id of nobody", { sessionId: "unknown" }, { name: "session_not_found" }],
  ["switch_session", "an id of nobody", { sessionId: "unknown" }, { name: "session_not_found" }],
  ["create_checkpoint", "a session in a file", {}, { name: "unsupported_command" }],
  ["rollback_migration", "a session in a file", {}, { name: "migration_failed" }],
] as [string, string, Json, Json][])("%s refuses %s, and changes nothing", async (command, _what, params, refused) => {
  await (await checkRefusals()).expectRefused(command, params, refused);
});

test.each(["switch_session", "delete_session", "new_session"])("%s refuses an id that is none", async (command) => {
  const { expectRefused } = await checkRefusals();
  const member = command === "new_session" ? "newSessionId" : "sessionId";
  for (const id of ["", ".", "a/b", "../x", "-a", "a b", "%2e", "*", "é", "x".repeat(300), "con:1", "a\0b"])
    await expectRefused(command, { [member]: id }, id === "" && member === "sessionId" ? {} : { name: "invalid_id" });
});

const holding = (content: string | Uint8Array) => (path: string) => writeFileSync(path, content);

/** Other things at the path of a session, and their refusals. */
const NO_SESSIONS: Record<string, [name: string, make: (path: string) => unknown]> = {
  nothing: ["session_not_found", () => {}],
  "a folder": ["not_a_session", (path) => mkdirSync(path)],
  "a FIFO": ["not_a_session", (path) => execFileSync("mkfifo", [path])],
  "a link to itself": ["storage_failed", (path) => symlinkSync(path, path)],
  "a link to a device": ["not_a_session", (path) => symlinkSync("/dev/zero", path)],
  "an empty file": ["not_a_session", holding("")],
  "white space": ["not_a_session", holding("\n \n")],
  text: ["not_a_session", holding("secret word\n")],
  "other JSON": ["not_a_session", holding('{"secret":"word"}\n')],
  bytes: ["not_a_session", holding(Buffer.from([0x1f, 0x8b, 0, 0xff]))],
};

test.each([
  ["switch_session", "sessionPath"],
  ["open_session", "sessionPath"],
  ["preview_session", "sessionPath"],
  ["delete_session", "sessionPath"],
  ["set_session_name", "sessionPath"],
  ["import_session", "path"],
])("%s refuses what is no session, and changes nothing", async (command, member) => {
  const { place, expectRefused } = await checkRefusals();
  for (const [what, [name, make]] of Object.entries(NO_SESSIONS)) {
    const path = join(place.cwd, what);
    make(path);
    const more = command === "set_session_name" ? { name: "x" } : {};
    await expectRefused(command, { ...more, [member]: path }, { name });
    if (what === "text")
      await expectRefused(command, { ...more, [member]: join(path, "x") }, { name: "session_not_found" });
  }
});
