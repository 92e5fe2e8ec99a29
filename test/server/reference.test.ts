import { appendFileSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import * as z from "zod";
import { formatProtocol, GROUPS } from "../../scripts/reference.ts";
import { makeEventExample, makeHookExample } from "../../scripts/reference-examples.ts";
import { modules } from "../../src/compose.ts";
import type { Failure } from "../../src/core/failure.ts";
import type { Replica } from "../../src/core/ports/replica.ts";
import { declarations } from "../../src/handlers/shared/declarations.ts";
import type { EventName } from "../../src/handlers/shared/events.ts";
import type { HookName } from "../../src/handlers/shared/hooks.ts";
import type { ConnectedFleet } from "../../src/storage/fleet-module.ts";
import { assistant, user } from "../support/drafts.ts";
import { call, type Json, serveHere, temporaryPlace } from "../support/server.ts";

const read = (name: string): string => readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");

const text = formatProtocol(declarations, read("docs/protocol-preface.md"));

test("protocol.md is what `npm run docs` writes", () => {
  expect(read("protocol.md"), "protocol.md is stale: npm run docs").toBe(text);
});

test("every command, alias, event, hook, failure and entry type has its place", () => {
  const { commands, events, hooks, failures, entryTypes } = declarations;
  const aliases = commands.flatMap(({ alias }) => (alias === undefined ? [] : [`\`${alias}\``]));
  const sections = [...commands.map(({ name }) => name), ...Object.keys(events), ...Object.keys(hooks)];
  const rows = Object.keys(failures).map((name) => `\n| \`${name}\` |`);
  const places = [...sections, ...Object.keys(entryTypes).map((type) => `Entry: ${type}`)].map(
    (name) => `\n### ${name}\n`,
  );
  for (const place of [...places, ...rows, ...aliases]) expect(text).toContain(place);
});

/** Members of an object in their order, with those of `preparation`, which two hooks have. */
function shapeOf({ seq: _, ...payload }: Json): string {
  const inner = payload.preparation ? Object.keys(payload.preparation) : [];
  return [...Object.keys(payload), ...inner].join(" ");
}

/** A fleet that has nothing: all entries are acknowledged without it. */
function makeAwayFleet(): ConnectedFleet {
  const status = { durability: undefined, holder: null, refusal: null, changeCount: 0, hasReplicated: true };
  const noWait = (): undefined => undefined;
  const done = async (): Promise<void> => {};
  const makeReplica = (): Replica => {
    let durability: Replica["status"]["durability"];
    return {
      get status() {
        return { ...status, durability };
      },
      async replicate() {
        durability = "local";
      },
      ...{ ready: noWait, confirm: noWait, follow: noWait, upload: noWait, release: noWait, renamed: undefined },
      ...{ sync: done, fetchAttachments: done, applyPending: done, toLostFailure: (error) => error as Failure },
    };
  };
  return {
    close: done,
    makeStores: () => ({
      withReplica: (options) => ({ ...options, replica: makeReplica }),
      publishThere: (store) => store,
      requireFree: done,
      findOthers: () => () => false,
      requireOwn: noWait,
      join: () => ({
        ...{ arrive: done, uploadPending: noWait, admin: undefined, copyFor: noWait },
        source: undefined,
        wrapLifeCycle: (own) => own,
      }),
    }),
  };
}

/** Returns the messages of a server that goes on while its fleet is away. */
async function listStart(dialect: "jsonrpc" | "pi"): Promise<Json[]> {
  const server = serveHere(["--dialect", dialect], { fleet: makeAwayFleet() });
  const entries = [user("Anybody there?")];
  server.send(dialect === "pi" ? { id: "1", type: "append", entries } : call("1", "append", { entries }));
  const messages: Json[] = [];
  while (!messages.some(({ type, method }) => (type ?? method) === "session_durability_changed"))
    messages.push(await server.next());
  return messages.filter(({ type, method }) => String(type ?? method).startsWith("session_"));
}

/** Returns the events and requests of a server that does everything with an event or a request. */
async function life(dialect: "jsonrpc" | "pi") {
  const place = temporaryPlace();
  const server = serveHere(["--dialect", dialect], { place });
  const said = new Map<string, string[]>();
  const note = (name: string, payload: Json): void => {
    said.set(name, [...(said.get(name) ?? []), shapeOf(payload)]);
  };
  let sent = 0;
  /** Sends a command, answers the hooks that it calls, and returns its result. */
  const run = async (name: string, params: object = {}, answer: object = {}): Promise<Json> => {
    const id = `r${++sent}`;
    server.send(dialect === "pi" ? { id, type: name, ...params } : call(id, name, params));
    for (;;) {
      const message = await server.next();
      if (message.id === id) return message.data ?? message.result;
      if (message.type === "hook_request") {
        const { type: _type, id: asked, hook, ...payload } = message;
        note(hook, payload);
        server.send({ type: "hook_response", id: asked, ...answer });
      } else if ("method" in message) {
        note(message.method, message.params);
        if ("id" in message) server.answer(message.id, answer);
      } else if (typeof message.type === "string") {
        const { type, ...payload } = message;
        note(type, payload);
      }
    }
  };
  const hooks = Object.keys(declarations.hooks).map((name) => ({ name }));
  const { state } = await run("initialize", { capabilities: { hooks } });
  const { entryIds } = await run("append", { entries: [user("Name a colour."), assistant("Blue."), user("Why?")] });
  await run("set_session_name", { name: "Colours" });
  const compaction = { summary: "A colour.", firstKeptEntryId: entryIds[2], tokensBefore: 8 };
  await run("compact", {}, { compaction });
  await run("branch", { entryId: entryIds[1] }, { summary: { summary: "Why blue?" } });
  await run("switch_session", { sessionPath: state.sessionFile });
  const timestamp = "2026-01-24T16:22:31.120Z";
  const elsewhere = { ...user("Elsewhere", { id: "f00df00d", parentId: entryIds[1] }), timestamp };
  appendFileSync(state.sessionFile, `${JSON.stringify(elsewhere)}\n{"type":"mess\n`);
  await run("append", { entries: [user("Here")] });
  await run("fork", { entryId: entryIds[2] });
  // The events of the last command come after its reply.
  await run("get_state");
  for (const { type, method, params, ...payload } of await listStart(dialect)) note(type ?? method, params ?? payload);
  return said;
}

/** Events that test/modules/attach checks. */
const OF_SHARING: readonly EventName[] = ["client_joined", "client_left", "events_lost", "session_owner_changed"];

test.each(["jsonrpc", "pi"] as const)("the examples of events and hooks have the members of %s", async (dialect) => {
  const said = await life(dialect);
  const expectShape = (name: string, line: string): void => {
    const { method: _m, type: _t, id, hook, params, ...rest } = JSON.parse(line);
    expect(said.get(name), name).toContain(shapeOf(params ?? rest));
  };
  for (const name of Object.keys(declarations.events) as EventName[])
    if (!OF_SHARING.includes(name)) expectShape(name, makeEventExample(name)[dialect][0]);
  for (const name of Object.keys(declarations.hooks) as HookName[])
    expectShape(name, makeHookExample(name)[dialect][0]);
});

test("the examples of events and hooks fit their declarations", () => {
  for (const [name, { payload }] of Object.entries(declarations.events)) {
    const { params } = JSON.parse(makeEventExample(name as EventName).jsonrpc[0]);
    expect(z.strictObject({ ...declarations.eventBase, ...payload }).safeParse(params).error, name).toBeUndefined();
  }
  for (const [name, { payload, answer }] of Object.entries(declarations.hooks)) {
    const [asked, answered] = makeHookExample(name as HookName).jsonrpc.map((line) => JSON.parse(line));
    expect(z.strictObject(payload).safeParse(asked.params).error, name).toBeUndefined();
    expect(z.strictObject(answer).safeParse(answered.result).error, name).toBeUndefined();
  }
});

test.skipIf(modules.recall === undefined)(
  "the example of initialize has the lists that a server returns, of the commands their beginning",
  async () => {
    const { capabilities } = await serveHere(["--no-session"]).result("initialize");
    const [{ example }] = declarations.commands.filter(({ name }) => name === "initialize");
    const { commands, dialects, ...rest } = (example.result as Json).capabilities;
    expect(capabilities).toMatchObject(rest);
    expect(capabilities.dialects).toEqual(
      modules.agents ? dialects : dialects.filter((name: string) => name !== "acp"),
    );
    expect(commands.length).toBeGreaterThan(0);
    expect(capabilities.commands.slice(0, commands.length)).toEqual(commands);
  },
);

test("limits of params stand in the tables, and every command is in one group", () => {
  expect(text).toContain("| `idempotencyKey`? | string, 1 to 256 characters |");
  expect(text).toContain("| `entries` | list of [entry](#session-format), 1 to 10000 items |");
  expect(text).toContain("| `maxReplyBytes`? | integer from 1024 |");
  const names = declarations.commands.map(({ name }) => name);
  expect(Object.values(GROUPS).flat().sort()).toEqual(names.sort());
});

test("links inside the document lead somewhere", () => {
  const anchors = new Set(
    [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
      heading
        .toLowerCase()
        .replace(/[^\p{L}\d _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
  const targets = [...text.matchAll(/\]\(#([^)]+)\)/g)].map(([, target]) => target);
  expect(targets.filter((target) => !anchors.has(target))).toEqual([]);
});

test("every row of a table has as many cells as its head", () => {
  const cells = (line: string): number => line.replaceAll("\\|", "").split("|").length;
  const lines = text.split("\n");
  for (const [i, line] of lines.entries())
    if (line.startsWith("|") && lines[i - 1].startsWith("|")) expect(cells(line), line).toBe(cells(lines[i - 1]));
});
