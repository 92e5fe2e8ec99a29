/** An editor at the other end of a server that speaks the Agent Client Protocol. Each message is held against its schema. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Ajv2020 } from "ajv/dist/2020.js";
import { expect, vi } from "vitest";
import { HERE } from "./agents-here.ts";
import { assistant, user } from "./drafts.ts";
import { type HereOptions, type HereServer, type Json, type SpawnedServer, serveHere } from "./server.ts";

const require = createRequire(import.meta.url);

/** One of the schemas of the protocol's own package. */
class Rules {
  readonly schema: { readonly $defs: Readonly<Record<string, { "x-method"?: string; "x-side"?: string }>> };
  /** The schemas are the package's. Code that is made to run fast takes longer to make than it runs here. */
  private readonly ajv = new Ajv2020({
    ...{ strict: false, validateFormats: false, validateSchema: false },
    code: { optimize: false },
  });

  private readonly name: string;

  constructor(name: string) {
    this.name = name;
    this.schema = JSON.parse(readFileSync(require.resolve(`@agentclientprotocol/sdk/schema/${name}`), "utf8"));
    // Without the root of the schema: with it, the first validator would compile every definition.
    this.ajv.addSchema({ $defs: this.schema.$defs }, name);
  }

  /** Throws unless a value is of a definition. */
  require(definition: string, value: unknown): void {
    const key = `${this.name}#/$defs/${definition}`;
    const validate = this.ajv.getSchema(key);
    if (!validate) throw new Error(`no definition ${key}`);
    const isRight = validate(value);
    expect(isRight ? "" : `${this.ajv.errorsText(validate.errors)}\n${JSON.stringify(value).slice(0, 2000)}`).toBe("");
  }

  /** The definition of the result of a method that agents answer. */
  resultOf(method: string): string | undefined {
    return Object.entries(this.schema.$defs).find(
      ([name, def]) => def["x-method"] === method && def["x-side"] === "agent" && name.endsWith("Response"),
    )?.[0];
  }
}

const stable = new Rules("v1/schema.json");
export const unstable = new Rules("v1/schema.unstable.json");

/** Kinds of updates that a client must have asked for. */
const ASKED_FOR: Readonly<Record<string, string>> = {
  compaction_update: "compaction",
  compaction_summary_chunk: "compaction",
  notice: "notices",
};

export interface Update {
  readonly sessionUpdate: string;
  // biome-ignore lint/suspicious/noExplicitAny: what comes from the wire is looked at, member by member, by the tests
  readonly [member: string]: any;
}

export class Editor {
  readonly server: HereServer | SpawnedServer;
  /** The updates that came, each with its session. */
  readonly updates: { readonly sessionId: string; readonly update: Update }[] = [];
  /** The agent's reply to `initialize`. */
  agent: Json;
  private readonly skills: object;
  private readonly asked = new Map<unknown, string>();
  private ids = 0;

  constructor(server: HereServer | SpawnedServer, skills: object = {}) {
    this.server = server;
    this.skills = skills;
  }

  /** Begins the conversation. */
  async begin(): Promise<this> {
    const { elicitation, ...session } = this.skills as { elicitation?: object };
    this.agent = await this.result("initialize", {
      protocolVersion: 1,
      clientCapabilities: { session, ...(elicitation ? { elicitation } : {}) },
      clientInfo: { name: "test-editor", version: "1.0.0" },
    });
    return this;
  }

  /** Sends a request without waiting for its reply. */
  ask(method: string, params: object = {}): number {
    const id = ++this.ids;
    this.asked.set(id, method);
    this.server.send({ jsonrpc: "2.0", id, method, params });
    return id;
  }

  notify(method: string, params: object): void {
    this.server.send({ jsonrpc: "2.0", method, params });
  }

  async request(method: string, params: object = {}): Promise<Json> {
    return this.reply(this.ask(method, params));
  }

  async result(method: string, params: object = {}): Promise<Json> {
    const { result, error } = await this.request(method, params);
    if (error) throw new Error(`${method}: ${JSON.stringify(error)}`);
    return result;
  }

  async failure(method: string, params: object = {}): Promise<Json> {
    const { result, error } = await this.request(method, params);
    if (!error) throw new Error(`${method} succeeded: ${JSON.stringify(result)}`);
    return error;
  }

  /** Returns the reply with an id. Updates that come before it go to {@link updates}. */
  async reply(id: unknown): Promise<Json> {
    for (;;) {
      const early = this.early.get(id);
      if (early) return early;
      const message = await this.next();
      if (message.method === undefined) this.early.set(message.id, message);
    }
  }

  private readonly early = new Map<unknown, Json>();

  /** The next message, which is checked. */
  async next(): Promise<Json> {
    const message = await asTimePasses(this.server.next());
    this.check(message);
    if (message.method === "session/update") this.updates.push(message.params);
    return message;
  }

  /** Makes a session in the server's working directory. */
  make(): Promise<Json> {
    return this.result("session/new", { cwd: this.server.place.cwd, mcpServers: [] });
  }

  /** Begins a turn with a text, and does not wait for its end. */
  begins(sessionId: string, text: string): number {
    return this.ask("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
  }

  /** Has a turn. Returns its reply. */
  turn(sessionId: string, text: string): Promise<Json> {
    return this.reply(this.begins(sessionId, text));
  }

  /** Ends the turn that runs in a session. */
  cancel(sessionId: string): void {
    this.notify("session/cancel", { sessionId });
  }

  /** Waits for the end of a turn. Returns its reason, or the sentence of its failure. */
  async end(asked: number): Promise<string> {
    const { result, error } = await this.reply(asked);
    return result?.stopReason ?? error.message;
  }

  /** Runs a turn that fails. Returns the sentence of the failure. */
  async failedTurn(sessionId: string, text: string): Promise<string> {
    return (await this.turn(sessionId, text)).error.message;
  }

  async fork(sessionId: string): Promise<Json> {
    return this.result("session/fork", { sessionId, cwd: this.server.place.cwd, mcpServers: [] });
  }

  async branch(sessionId: string, entryId: string | null): Promise<Json> {
    return this.result("_pi-session-server/branch", { sessionId, entryId });
  }

  /** Returns what the person has said in a session, joined. */
  async spoken(sessionId: string): Promise<string> {
    return textOf((await this.load(sessionId)).updates, "user_message_chunk");
  }

  /** The next question of the server's. */
  async question(): Promise<Json> {
    let message = await this.next();
    while (message.method === undefined || !("id" in message)) message = await this.next();
    return message;
  }

  /** Answers a question about a permission. */
  choose({ id }: Json, optionId: string): void {
    this.server.answer(id, { outcome: { outcome: "selected", optionId } });
  }

  /** Waits for an update with this text. */
  heard(text: string): Promise<Update> {
    return this.until(({ content }) => content?.text === text);
  }

  /** Waits for an update that is like this. */
  async until(isMeant: (update: Update) => boolean): Promise<Update> {
    for (;;) {
      const { params } = await this.next();
      if (params && isMeant(params.update)) return params.update;
    }
  }

  /** Throws unless a message is one that the protocol knows and the client has asked for. */
  check(message: Json): void {
    expect(message.jsonrpc).toBe("2.0");
    // Methods of extensions are in no schema.
    if (/^_|^\$\//.test(message.method ?? "")) return;
    if (message.method !== undefined && "id" in message) {
      if (message.method === "elicitation/create") {
        expect(this.skills).toHaveProperty("elicitation");
        return stable.require("CreateElicitationRequest", message.params);
      }
      expect(message.method).toBe("session/request_permission");
      return stable.require("RequestPermissionRequest", message.params);
    }
    if (message.method !== undefined) {
      expect(message.method).toBe("session/update");
      stable.require("SessionNotification", message.params);
      const needed = ASKED_FOR[message.params.update.sessionUpdate];
      if (needed !== undefined) expect(this.skills).toHaveProperty(needed);
      return;
    }
    if ("error" in message) return stable.require("Error", message.error);
    const method = this.asked.get(message.id);
    if (method === undefined || method.startsWith("_")) return;
    const [inStable, inUnstable] = [stable.resultOf(method), unstable.resultOf(method)];
    if (inStable !== undefined) stable.require(inStable, message.result);
    if (inUnstable !== undefined) unstable.require(inUnstable, message.result);
    expect(inUnstable, method).toBeDefined();
  }

  /** The updates about a session since they were taken last. */
  take(sessionId: string): Update[] {
    const taken = this.updates.filter((update) => update.sessionId === sessionId).map(({ update }) => update);
    const others = this.updates.filter((update) => update.sessionId !== sessionId);
    this.updates.splice(0, this.updates.length, ...others);
    return taken;
  }

  /** Loads a session. Returns its updates and the result. */
  async load(sessionId: string, cwd = this.server.place.cwd, more: object = {}) {
    this.take(sessionId);
    const result = await this.result("session/load", { sessionId, cwd, mcpServers: [], ...more });
    return { updates: this.take(sessionId), result };
  }
}

/** Waits for something. Where timers are stopped, time passes until it is there. */
async function asTimePasses<T>(wanted: Promise<T>): Promise<T> {
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  while (vi.isFakeTimers() && (await Promise.race([wanted, turn()])) === undefined) vi.advanceTimersByTime(20);
  return wanted;
}

/** An editor at a server in this process. */
export async function editorHere(args: string[] = [], options: HereOptions = {}, skills: object = {}): Promise<Editor> {
  return new Editor(serveHere(["--dialect", "acp", ...args], options), skills).begin();
}

export const TALK = [user("Name a colour."), assistant("Blue."), user("Another."), assistant("Green.")];

/** An editor in a place where another server has made one session. */
export async function editorWith({
  entries = TALK.slice(0, 2),
  store = "jsonl",
  name = "",
  args = [] as string[],
} = {}) {
  const server = serveHere(["--store", store]);
  const { place } = server;
  const { sessionId: id } = await server.result("new_session", name ? { name } : {});
  await server.result("append", { entries });
  await server.finish();
  return { place, id, editor: await editorHere(args, { place, agentLaunch: HERE }) };
}

/** Returns the joined texts of the updates of a kind. */
export function textOf(updates: readonly Update[], kind = "agent_message_chunk"): string {
  return updates.flatMap(({ sessionUpdate, content }) => (sessionUpdate === kind ? [content.text] : [])).join("");
}

/** The ids of entries that updates name, each once. */
export function entryIdsOf(updates: readonly Update[]): string[] {
  return [...new Set(updates.flatMap((update) => ours(update)?.entryId ?? []))];
}

/** Our part of `_meta`. */
export function ours(of: Json): Json {
  return of._meta?.["pi-session-server"];
}
