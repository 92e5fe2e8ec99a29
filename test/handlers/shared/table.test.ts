/** What holds for every command there is: its declaration, and a call of its example in each dialect. */

import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import * as z from "zod";
import { exampleExchange, refusalExchange } from "../../../scripts/reference-examples.ts";
import { FAILURES } from "../../../src/core/failure.ts";
import { type Command, commonParams } from "../../../src/handlers/shared/command.ts";
import { commandNames, findCommand } from "../../../src/handlers/shared/find.ts";
import { table } from "../../../src/handlers/shared/table.ts";
import { examplePlace, ID_IN_CONTAINER, ID_OF_CURRENT } from "../../support/example.ts";
import { contentsOf } from "../../support/lifecycle.ts";
import { type Json, serveHere } from "../../support/server.ts";
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

/** Whether the command is there only to say that it is not supported. */
function isRefusal({ result }: Command): boolean {
  return result instanceof z.ZodNever;
}

/** Whether a host without hooks is refused. */
function refuses(command: Command): boolean {
  return isRefusal(command) || NEED_A_HOOK.includes(command.name);
}

/** Whether a command fails where no session is open. */
function needsSession({ name, failures }: Command): boolean {
  return failures.includes("no_session") && !NEED_NO_SESSION.includes(name);
}

/** What one rule of the dispatch goes by. */
function kindOf(command: Command): string {
  const own = command.params.shape.sessionId === commonParams.sessionId;
  return [command.effect, needsSession(command), refuses(command), own].join(" ");
}

/** The first command of each kind; the sweep has the others of it. */
const OF_EACH_KIND = table.filter((command, n) => n === table.findIndex((other) => kindOf(other) === kindOf(command)));

/** Whether a member of a result may be null, which Pi leaves out, or missing. */
function mayBeMissing({ result }: Command, member: string): boolean {
  const schema = result instanceof z.ZodObject ? result.shape[member] : undefined;
  return schema?.safeParse(null).success === true || schema?.safeParse(undefined).success === true;
}

/** The reply of protocol.md to a command that refuses. */
function documentedRefusal(command: Command, dialect: "jsonrpc" | "pi"): Json {
  return JSON.parse(refusalExchange(command)[dialect][1]);
}

/** A server on the session that the examples speak of, and the params of a command's example in it. */
function exampleOf(
  command: Command,
  dialect: string,
  isConfined = false,
): { server: ReturnType<typeof serveHere>; params: Json } {
  const { place, session, container, text } = examplePlace();
  const current = NEED_A_CONTAINER.includes(command.name) ? container() : session;
  const confined = isConfined ? ["--allow-path", place.home] : [];
  const options = ["--session", current, "--dialect", dialect, "--events", "none", ...confined];
  const server = serveHere(options, { place });
  return { server, params: JSON.parse(text(command.example.params)) };
}

describe("the table", () => {
  test("has every command's file under the command's name, and every such file", async () => {
    for (const command of table)
      expect((await import(`${FOLDER}/${command.name}.ts`)).default, command.name).toBe(command);
    const declared: string[] = [];
    for (const name of readdirSync(FOLDER).filter((file) => file.endsWith(".ts")))
      if ("default" in (await import(`${FOLDER}/${name}`))) declared.push(name.replace(/\.ts$/, ""));
    expect(declared.sort()).toEqual(table.map(({ name }) => name).sort());
  });

  test("finds each command by its name and its alias, and nothing else", () => {
    for (const command of table) {
      expect(findCommand(command.name)).toBe(command);
      if (command.alias !== undefined) expect(findCommand(command.alias)).toBe(command);
    }
    expect(new Set(commandNames).size).toBe(commandNames.length);
    for (const name of ["", "constructor", "__proto__", "hasOwnProperty", "GET_STATE"])
      expect(findCommand(name)).toBeUndefined();
  });
});

describe.each(table)("$name", (command) => {
  test("is declared whole", () => {
    expect(command.name).toMatch(/^[a-z]+([._][a-z]+)*$/);
    expect(command.summary).toMatch(/^[A-Z].*\.$/);
    expect(command.failures.filter((name) => !(name in FAILURES))).toEqual([]);
    expect(new Set(command.failures).size).toBe(command.failures.length);
  });

  test("has an example that its own schemas accept", () => {
    expect(command.params.safeParse(command.example.params).error).toBeUndefined();
    expect(command.looseParams.safeParse(command.example.params).error).toBeUndefined();
    if (isRefusal(command)) expect(command.example.result).toBeUndefined();
    else expect(command.result.safeParse(command.example.result).error).toBeUndefined();
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
    // What the schema does not name would be lost here.
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
    const { data: documented } = JSON.parse(exampleExchange(command).pi[1]);
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

  test(
    "fails with session_not_found where it takes the id of an open session and gets another",
    whereAlike,
    async () => {
      if (command.params.shape.sessionId !== commonParams.sessionId || command.name === "new_session") return;
      const { server, params } = exampleOf(command, "jsonrpc");
      const error = await server.failure(command.name, { ...params, sessionId: "not-open" });
      expect(error.data).toMatchObject({ name: "session_not_found", sessionId: "not-open" });
      const sessionId = NEED_A_CONTAINER.includes(command.name) ? ID_IN_CONTAINER : ID_OF_CURRENT;
      const reply = await server.request(command.name, { ...params, sessionId });
      expect(reply.error === undefined).toBe(!refuses(command));
    },
  );

  test("refuses a path outside the folders it may use, as it declares", async () => {
    if (command.name === "restore_session") return;
    for (const name of PATHS.filter((one) => one in command.params.shape)) {
      const { server, params } = exampleOf(command, "jsonrpc", true);
      const { sessionId: _, ...rest } = params;
      const error = await server.failure(command.name, { ...rest, [name]: "/nowhere/outside.jsonl" });
      expect(error.data.name, name).toBe("path_outside_root");
      expect(command.failures).toContain("path_outside_root");
    }
  });

  test("refuses the path of a part of a session, as it declares", async () => {
    if (command.name === "restore_session") return;
    for (const name of PATHS.filter((one) => one in command.params.shape && one !== "outputPath")) {
      const { place, session, container, text } = examplePlace();
      const part = join(container(), "header.jsonl");
      const before = contentsOf(dirname(part));
      const server = serveHere(["--session", session, "--events", "none"], { place });
      const { sessionId: _, ...rest } = JSON.parse(text(command.example.params));
      const error = await server.failure(command.name, { ...rest, [name]: part });
      expect(error, name).toMatchObject({ data: { name: "not_a_session", sessionPath: dirname(part) } });
      expect(command.failures).toContain("not_a_session");
      expect(contentsOf(dirname(part))).toEqual(before);
    }
  });
});
