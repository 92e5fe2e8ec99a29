/**
 * Random operations and undos against a model: each undo leads to what there was before, each redo to what there was
 * after, whatever kind of operation it is, in whichever store the session is then.
 */

import { rmSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { contentsOf, put, putSession, read, rootOf, serveLibrary, sessionId } from "./lifecycle.ts";
import { chain, fileText, headerText, id, userText } from "./lines.ts";
import type { Random } from "./random.ts";
import { type HereServer, type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

const OUTSIDE = sessionId(9);
const LINES = [...chain(5), userText("b0000000", id(1), "another branch")];
/** Refusals of a random request: the session is at its target already, or has changed. */
const REFUSALS =
  /"(already_exists|path_outside_root|migration_failed|session_not_found|not_a_session|session_locked|ambiguous_id)"/;

/** A person's view of all sessions. */
type Picture = Json;

interface Done {
  readonly what: string;
  readonly before: Picture;
  readonly after: Picture;
}

/** Changes of an open session, and operations on one that is closed. */
const CHANGES = ["branch", "branch", "rename", "label", "label", "repair"];
const MOVES = ["rename far", "archive", "delete", "relocate", "migrate", "import", "restore"];

export class UndoModel {
  private readonly place: Place;
  private readonly random: Random;
  private readonly store: "jsonl" | "v2";
  private server: HereServer;
  private readonly open = new Set<string>();
  private readonly done: Done[] = [];
  private undone: Done[] = [];
  /** Bytes at the start, by path; and the sessions with whole moves only. */
  private start: Readonly<Record<string, string>> = {};
  private first: Picture;
  private readonly changed = new Set<string>();
  /** Those whose container was built anew: its frames have other times, and the entries the same bytes. */
  private readonly rebuilt = new Set<string>();
  private readonly log: string[] = [];
  count = 0;

  private constructor(random: Random, store: "jsonl" | "v2", place: Place) {
    this.place = place;
    this.random = random;
    this.store = store;
    this.server = serveLibrary(place, ["--store", store]);
  }

  static async begin(random: Random, store: "jsonl" | "v2"): Promise<UndoModel> {
    const place = temporaryPlace();
    for (const n of [1, 2, 3]) putSession(place, n, { lines: LINES });
    putSession(place, 4, { lines: [...chain(3), "}{", userText("c0000000", id(2), "after the damage")] });
    put(join(place.cwd, "outside.jsonl"), fileText(headerText({ id: OUTSIDE, cwd: "/home/me/project" }), ...chain(4)));
    const model = new UndoModel(random, store, place);
    if (store === "v2")
      for (const { sessionId: one, sessionPath } of await model.list(false))
        if (one !== sessionId(4)) await model.server.result("migrate_session", { sessionPath });
    // Earlier operations are not to be undone.
    await model.restart();
    rmSync(join(place.state, "operations"), { recursive: true, force: true });
    model.start = model.files();
    model.first = await model.picture();
    return model;
  }

  private async list(archived: boolean): Promise<Json[]> {
    return (await this.server.result("list_sessions", { headerOnly: true, archived })).sessions;
  }

  private async restart(): Promise<void> {
    this.open.clear();
    await this.server.finish();
    this.server = serveLibrary(this.place, ["--store", this.store]);
  }

  /** Session files, and the parts of containers that are never rewritten. */
  private files(): Record<string, string> {
    const isKept = ([path]: [string, string]): boolean =>
      path.includes(".v2/") ? /\.seg$|\/header\.json/.test(path) : /\.jsonl$/.test(path);
    return Object.fromEntries(Object.entries(contentsOf(rootOf(this.place))).filter(isKept));
  }

  private async closeAll(): Promise<void> {
    for (const one of this.open) await this.server.result("close_session", { sessionId: one });
    this.open.clear();
  }

  /** Everything that lists, names, labels, leaves, paths and contexts say. */
  private async picture(): Promise<Picture> {
    const seen: Json[] = [];
    for (const archived of [false, true])
      for (const { sizeBytes: _, ...session } of await this.list(archived)) seen.push({ archived, ...session });
    for (const session of seen) {
      const one = { sessionId: session.sessionId };
      await this.server.result("open_session", { sessionPath: session.sessionPath });
      const { leafId } = await this.server.result("get_state", one);
      const { nodes } = await this.server.result("get_tree", one);
      const labels = nodes.flatMap((node: Json) => (node.label ? [[node.id, node.label]] : [])).sort();
      const { entries } = await this.server.result("get_path", one);
      const { entryIds } = await this.server.result("get_context", one);
      Object.assign(session, { leafId, labels, path: entries, entryIds });
      if (!this.open.has(one.sessionId)) await this.server.result("close_session", one);
    }
    return seen;
  }

  private async newest(): Promise<Json | undefined> {
    return (await this.server.result("list_operations", { limit: 1 })).operations[0];
  }

  async step(): Promise<void> {
    this.count++;
    if (this.random.chance(0.05)) await this.restart();
    const roll = this.random.next();
    if (roll < 0.55) await this.operate();
    else await this.takeBack(roll < 0.8 ? "undo" : "redo");
  }

  private async operate(): Promise<void> {
    const before = await this.picture();
    const newest = await this.newest();
    const what = await this.ask(before).catch((error: Error) => {
      expect(error.message).toMatch(REFUSALS);
      return `refused ${error.message.slice(0, 60)}`;
    });
    this.log.push(what);
    const last = await this.newest();
    if (last?.operationId === newest?.operationId) return;
    // Undo passes over a final operation, which must have changed nothing that a person sees.
    const after = await this.picture();
    if (last?.canUndo) this.done.push({ what, before, after });
    else expect(after, this.story()).toEqual(before);
    this.undone = [];
  }

  /** Asks for something that can be undone, and says what. */
  private async ask(all: readonly Json[]): Promise<string> {
    const { random, server } = this;
    const session = all.length === 0 ? undefined : random.pick(all);
    const kind = random.pick([...CHANGES, ...MOVES]);
    if (kind === "import") await server.result("import_session", { path: join(this.place.cwd, "outside.jsonl") });
    if (kind === "restore") {
      // Two files of one id are two sessions that few commands can distinguish.
      const there = new Set(all.map(({ sessionId: listed }) => listed));
      const items = (await server.result("list_trash")).items.filter((item: Json) => !there.has(item.sessionId));
      if (items.length > 0)
        await server.result("restore_session", { sessionPath: (random.pick(items) as Json).itemPath });
    }
    if (!session || kind === "import" || kind === "restore") return kind;
    const { sessionPath, sessionId: one, archived } = session;
    if (kind !== "repair" && (CHANGES.includes(kind) || kind === "rename far")) this.changed.add(one);
    if (CHANGES.includes(kind)) {
      await server.result("open_session", { sessionPath });
      this.open.add(one);
      await this.change(kind, one);
      if (random.chance(0.6)) await this.closeAll();
    } else if (kind === "rename far")
      await server.result("set_session_name", { sessionPath, name: `far ${random.int(9)}` });
    else {
      await this.closeAll();
      if (kind === "migrate") {
        const isV2 = (await server.result("migration_status", { sessionPath })).active === "native_v2";
        if (isV2) this.rebuilt.add(one);
        await server.result(isV2 ? "rollback_migration" : "migrate_session", { sessionPath });
      } else if (kind === "relocate") {
        const cwd = random.pick(["/home/me/project", "/home/me/Zoë", "/elsewhere/b"]);
        await server.result("relocate_session", { sessionPath, cwd, allowMissing: true });
      } else await server.result(`${kind === "archive" && archived ? "unarchive" : kind}_session`, { sessionPath });
    }
    return `${kind} ${one.slice(-2)}`;
  }

  private async change(kind: string, one: string): Promise<unknown> {
    const { random, server } = this;
    const ask = (method: string, params: object = {}): Promise<Json> =>
      server.result(method, { sessionId: one, ...params });
    if (kind === "repair") return ask("repair_session");
    if (kind === "rename") return ask("set_session_name", { name: `n${random.int(9)}` });
    const { entries } = await ask("get_entries");
    const entryId = (random.pick(entries as Json[]) as Json).id;
    if (kind === "label") return ask("set_label", { entryId, label: random.chance(0.3) ? null : `l${random.int(5)}` });
    const summary = random.chance(0.2) ? { summary: { summary: "what was there" } } : {};
    const labelled = random.chance(0.2) ? { label: `b${random.int(5)}` } : {};
    const to = random.chance(0.15) && !("label" in labelled) ? null : entryId;
    return ask("branch", { entryId: to, ...summary, ...labelled });
  }

  /** Undoes or redoes, after closing an open session if that is in its way. */
  private async takeBack(method: "undo" | "redo"): Promise<void> {
    const [from, to] = method === "undo" ? [this.done, this.undone] : [this.undone, this.done];
    const last = from.pop();
    this.log.push(`${method} ${last?.what}`);
    let { error } = await this.server.request(method, {});
    if (error?.data?.name === "session_locked") {
      await this.closeAll();
      ({ error } = await this.server.request(method, {}));
    }
    if (!last) return expect(error?.data.name).toBe("operation_not_found");
    expect(error, this.story()).toBeUndefined();
    to.push(last);
    expect(await this.picture(), this.story()).toEqual(method === "undo" ? last.before : last.after);
  }

  private story(): string {
    return this.log.join("; ");
  }

  /** Undoes all that is left. Then everything is as at the start, and the files begin with the bytes that they had. */
  async end(): Promise<void> {
    while (this.done.length > 0) await this.takeBack("undo");
    await this.takeBack("undo");
    await this.restart();
    const now = this.files();
    for (const [path, bytes] of Object.entries(this.start)) {
      const isIn = (ids: ReadonlySet<string>): boolean => [...ids].some((one) => path.includes(one));
      if (path.includes(".v2/") && isIn(this.rebuilt)) continue;
      expect(now[path]?.startsWith(bytes), `${path}: ${this.story()}`).toBe(true);
      if (!isIn(this.changed)) expect(now[path] === bytes, `${path} is as it was: ${this.story()}`).toBe(true);
    }
    expect(await this.picture(), this.story()).toEqual(this.first);
    expect(read(join(this.place.cwd, "outside.jsonl"))).toContain(OUTSIDE);
  }
}

/** Processes that undo at the same time: each operation is taken back once, by one of them, and all is as at the start. */
export async function undoTogether(processes: number, rounds: number, store: "jsonl" | "v2"): Promise<number> {
  const place = temporaryPlace();
  for (const n of [1, 2, 3]) putSession(place, n, { lines: LINES });
  const start = (): SpawnedServer => spawnServer(["--no-session", "--events", "none"], "lines", place);
  const first = start();
  const paths = async (server: SpawnedServer): Promise<string[]> =>
    (await server.result("list_sessions")).sessions.map(({ sessionPath }: Json) => sessionPath).sort();
  if (store === "v2")
    for (const sessionPath of await paths(first)) await first.result("migrate_session", { sessionPath });
  const [a, b, c] = await paths(first);
  // Earlier operations are not to be undone.
  rmSync(join(place.state, "operations"), { recursive: true, force: true });
  const before = contentsOf(rootOf(place));
  for (let round = 0; round < rounds; round++) {
    await first.result("set_session_name", { sessionPath: a, name: `round ${round}` });
    const { movedTo } = await first.result("archive_session", { sessionPath: b });
    await first.result("unarchive_session", { sessionPath: movedTo });
    await first.result("delete_session", { sessionPath: c });
    await first.result("restore_session", { sessionPath: c });
  }
  await first.result("delete_session", { sessionPath: c });
  const { operations } = await first.result("list_operations");
  await first.finish();
  const left = new Set<string>(operations.map(({ operationId }: Json) => operationId));
  const count = left.size;
  const servers = Array.from({ length: processes }, start);
  await Promise.all(servers.map((server) => undoAll(server, left)));
  expect(await paths(servers[0])).toEqual([a, b, c]);
  for (const server of servers) expect(await server.finish()).toMatchObject({ status: 0 });
  for (const [path, bytes] of Object.entries(contentsOf(rootOf(place))))
    if (path.endsWith(".jsonl") && !path.includes(".v2/")) expect(bytes.startsWith(before[path]), path).toBe(true);
  return count;
}

/** Undoes the remaining operations, each once. */
async function undoAll(server: SpawnedServer, left: Set<string>): Promise<void> {
  while (left.size > 0) {
    const { result, error } = await server.request("undo");
    if (result) expect(left.delete(result.operationId), `${result.operationId} is taken back once`).toBe(true);
    else expect(["session_locked", "content_modified", "operation_not_found"]).toContain(error.data.name);
  }
}
