/**
 * Random operations and undos against a model: each undo leads to what there was before, each redo to what there was
 * after, whatever kind of operation it is, in whichever store the session is then.
 */

import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { contentsOf, put, putSession, rootOf, serveLibrary, sessionId } from "./lifecycle.ts";
import { chain, fileText, headerText, id, userText } from "./lines.ts";
import type { Random } from "./random.ts";
import { type HereServer, type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

const OUTSIDE = sessionId(9);
const LINES = [...chain(5), userText("b0000000", id(1), "another branch")];
/** Refusals that a random request may meet: the session is where it was to go, or is no longer what it was. */
const REFUSALS = [
  "already_exists",
  "path_outside_root",
  "migration_failed",
  "session_not_found",
  "not_a_session",
  "session_locked",
  "ambiguous_id",
];

/** What a person sees of all sessions. */
type Picture = Json;

interface Done {
  readonly what: string;
  readonly before: Picture;
  readonly after: Picture;
}

export class UndoModel {
  private readonly place: Place;
  private readonly random: Random;
  private readonly store: "jsonl" | "v2";
  private server: HereServer;
  private readonly open = new Set<string>();
  private done: Done[] = [];
  private undone: Done[] = [];
  /** Bytes at the start, by path; and the sessions of which only whole moves were asked. */
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
      for (const n of [1, 2, 3]) await model.server.result("migrate_session", { sessionPath: await model.pathOf(n) });
    // What was done until now is not to be undone.
    await model.restart();
    rmSync(join(place.state, "operations"), { recursive: true, force: true });
    model.start = model.files();
    model.first = await model.picture();
    return model;
  }

  private async pathOf(n: number): Promise<string> {
    const { sessions } = await this.server.result("list_sessions", { headerOnly: true });
    return sessions.find((session: Json) => session.sessionId === sessionId(n)).sessionPath;
  }

  private async restart(): Promise<void> {
    this.open.clear();
    await this.server.finish();
    this.server = serveLibrary(this.place, ["--store", this.store]);
  }

  /** Session files, and the parts of containers that are never rewritten. */
  private files(): Record<string, string> {
    const all = contentsOf(rootOf(this.place));
    return Object.fromEntries(
      Object.entries(all).filter(([path]) =>
        path.includes(".v2/") ? /\.seg$|\/header\.json/.test(path) : /\.jsonl$/.test(path),
      ),
    );
  }

  private async closeAll(): Promise<void> {
    for (const one of this.open) await this.server.result("close_session", { sessionId: one });
    this.open.clear();
  }

  /** Everything that lists, names, labels, leaves, paths and contexts say. */
  private async picture(): Promise<Picture> {
    const seen: Json[] = [];
    for (const archived of [false, true]) {
      const { sessions } = await this.server.result("list_sessions", { headerOnly: true, archived });
      for (const { sizeBytes: _, ...session } of sessions) seen.push({ archived, ...session });
    }
    for (const session of seen) {
      const one = session.sessionId;
      await this.server.result("open_session", { sessionPath: session.sessionPath });
      const { leafId } = await this.server.result("get_state", { sessionId: one });
      const { nodes } = await this.server.result("get_tree", { sessionId: one });
      const labels = nodes.flatMap((node: Json) => (node.label ? [[node.id, node.label]] : [])).sort();
      const { entries } = await this.server.result("get_path", { sessionId: one });
      const { entryIds } = await this.server.result("get_context", { sessionId: one });
      Object.assign(session, { leafId, labels, path: entries, entryIds });
      if (!this.open.has(one)) await this.server.result("close_session", { sessionId: one });
    }
    return seen;
  }

  private async newest(): Promise<string | undefined> {
    return (await this.server.result("list_operations", { limit: 1 })).operations[0]?.operationId;
  }

  async step(): Promise<void> {
    const { random } = this;
    this.count++;
    if (random.chance(0.05)) await this.restart();
    const roll = random.next();
    if (roll < 0.55) await this.operate();
    else if (roll < 0.8) await this.undo();
    else await this.redo();
  }

  private async operate(): Promise<void> {
    const before = await this.picture();
    const newest = await this.newest();
    const what = await this.ask(before).catch((error: Error) => {
      expect(
        REFUSALS.some((name) => error.message.includes(`"${name}"`)),
        error.message,
      ).toBe(true);
      return `refused ${error.message.slice(0, 60)}`;
    });
    this.log.push(what);
    const [last] = (await this.server.result("list_operations", { limit: 1 })).operations;
    if (last?.operationId === newest) return;
    // What is final is passed over by undo; it must have changed nothing that a person sees.
    const after = await this.picture();
    if (last.canUndo) this.done.push({ what, before, after });
    else expect(after, this.story()).toEqual(before);
    this.undone = [];
  }

  /** Asks for something that can be undone, and says what. */
  private async ask(all: readonly Json[]): Promise<string> {
    const { random, server } = this;
    const session = all.length === 0 ? undefined : random.pick(all);
    // Two files of one id are two sessions that few commands tell apart.
    const there = new Set(all.map(({ sessionId: listed }) => listed));
    const trash = (await server.result("list_trash")).items.filter((item: Json) => !there.has(item.sessionId));
    const kinds = ["branch", "branch", "rename", "rename far", "label", "label", "archive", "delete", "relocate"];
    const kind = random.pick([...kinds, "migrate", "repair", "import", "restore"]);
    if (kind === "import") {
      await server.result("import_session", { path: join(this.place.cwd, "outside.jsonl") });
      return kind;
    }
    if (kind === "restore") {
      if (trash.length > 0)
        await server.result("restore_session", { sessionPath: (random.pick(trash) as Json).itemPath });
      return kind;
    }
    if (!session) return "nothing";
    const { sessionPath, sessionId: one } = session;
    if (["branch", "rename", "label", "repair"].includes(kind)) {
      await server.result("open_session", { sessionPath });
      this.open.add(one);
      if (kind !== "repair") this.changed.add(one);
      await this.change(kind, one);
      if (random.chance(0.6)) await this.closeAll();
      return `${kind} ${one.slice(-2)}`;
    }
    if (kind === "rename far") {
      this.changed.add(one);
      await server.result("set_session_name", { sessionPath, name: `far ${random.int(9)}` });
      return kind;
    }
    await this.closeAll();
    if (kind === "migrate") {
      const { active } = await server.result("migration_status", { sessionPath });
      if (active === "native_v2") this.rebuilt.add(one);
      await server.result(active === "native_v2" ? "rollback_migration" : "migrate_session", { sessionPath });
    } else if (kind === "archive")
      await server.result(session.archived ? "unarchive_session" : "archive_session", { sessionPath });
    else if (kind === "relocate")
      await server.result("relocate_session", {
        sessionPath,
        cwd: random.pick(["/home/me/project", "/home/me/Zoë", "/elsewhere/b"]),
        allowMissing: true,
      });
    else await server.result("delete_session", { sessionPath });
    return `${kind} ${one.slice(-2)}`;
  }

  private async change(kind: string, one: string): Promise<void> {
    const { random, server } = this;
    if (kind === "repair") return void (await server.result("repair_session", { sessionId: one }));
    if (kind === "rename")
      return void (await server.result("set_session_name", { sessionId: one, name: `n${random.int(9)}` }));
    const { entries } = await server.result("get_entries", { sessionId: one });
    const entryId = (random.pick(entries as Json[]) as Json).id;
    const label = random.chance(0.3) ? null : `l${random.int(5)}`;
    if (kind === "label") return void (await server.result("set_label", { sessionId: one, entryId, label }));
    const summary = random.chance(0.2) ? { summary: { summary: "what was there" } } : {};
    const labelled = random.chance(0.2) ? { label: `b${random.int(5)}` } : {};
    const to = random.chance(0.15) && !("label" in labelled) ? null : entryId;
    await server.result("branch", { sessionId: one, entryId: to, ...summary, ...labelled });
  }

  /** Asks for an undo or a redo, after closing what is open if that is in its way. */
  private async takeBack(method: "undo" | "redo"): Promise<Json> {
    const reply = await this.server.request(method, {});
    if (reply.error?.data?.name !== "session_locked") return reply;
    await this.closeAll();
    return this.server.request(method, {});
  }

  private async undo(): Promise<void> {
    const last = this.done.pop();
    this.log.push(`undo ${last?.what}`);
    const { error } = await this.takeBack("undo");
    if (!last) return expect(error?.data.name).toBe("operation_not_found");
    expect(error, this.story()).toBeUndefined();
    this.undone.push(last);
    expect(await this.picture(), this.story()).toEqual(last.before);
  }

  private async redo(): Promise<void> {
    const last = this.undone.pop();
    this.log.push(`redo ${last?.what}`);
    const { error } = await this.takeBack("redo");
    if (!last) return expect(error?.data.name).toBe("operation_not_found");
    expect(error, this.story()).toBeUndefined();
    this.done.push(last);
    expect(await this.picture(), this.story()).toEqual(last.after);
  }

  private story(): string {
    return this.log.join("; ");
  }

  /** Undoes all that is left. Then everything is as at the start, and the files begin with the bytes that they had. */
  async end(): Promise<void> {
    while (this.done.length > 0) await this.undo();
    await this.undo();
    await this.restart();
    const now = this.files();
    for (const [path, bytes] of Object.entries(this.start)) {
      if (path.includes(".v2/") && [...this.rebuilt].some((one) => path.includes(one))) continue;
      expect(now[path]?.startsWith(bytes), `${path}: ${this.story()}`).toBe(true);
      const isMoved = ![...this.changed].some((one) => path.includes(one));
      if (isMoved) expect(now[path] === bytes, `${path} is as it was: ${this.story()}`).toBe(true);
    }
    expect(await this.picture(), this.story()).toEqual(this.first);
    expect(readFileSync(join(this.place.cwd, "outside.jsonl"), "utf8")).toContain(OUTSIDE);
  }
}

/** Processes that undo at the same time: each operation is taken back once, by one of them, and all is as at the start. */
export async function undoTogether(processes: number, rounds: number, store: "jsonl" | "v2"): Promise<number> {
  const place = temporaryPlace();
  for (const n of [1, 2, 3]) putSession(place, n, { lines: LINES });
  const args = ["--no-session", "--events", "none"];
  const first = spawnServer(args, "lines", place);
  const paths = async (server: SpawnedServer): Promise<string[]> =>
    (await server.result("list_sessions")).sessions.map(({ sessionPath }: Json) => sessionPath).sort();
  if (store === "v2")
    for (const sessionPath of await paths(first)) await first.result("migrate_session", { sessionPath });
  const start = await paths(first);
  // What was done until now is not to be undone.
  rmSync(join(place.state, "operations"), { recursive: true, force: true });
  const before = contentsOf(rootOf(place));
  for (let round = 0; round < rounds; round++) {
    const [a, b, c] = start;
    await first.result("set_session_name", { sessionPath: a, name: `round ${round}` });
    const { movedTo } = await first.result("archive_session", { sessionPath: b });
    await first.result("unarchive_session", { sessionPath: movedTo });
    await first.result("delete_session", { sessionPath: c });
    await first.result("restore_session", { sessionPath: c });
  }
  await first.result("delete_session", { sessionPath: start[2] });
  const { operations } = await first.result("list_operations");
  await first.finish();
  const wanted = operations.map(({ operationId }: Json) => operationId);
  const servers = Array.from({ length: processes }, () => spawnServer(args, "lines", place));
  const left = { count: wanted.length };
  const taken = await Promise.all(servers.map((server) => undoAll(server, left)));
  expect(taken.flat().sort()).toEqual([...wanted].sort());
  expect(await paths(servers[0])).toEqual(start);
  for (const server of servers) expect(await server.finish()).toMatchObject({ status: 0 });
  for (const [path, bytes] of Object.entries(contentsOf(rootOf(place))))
    if (path.endsWith(".jsonl") && !path.includes(".v2/")) expect(bytes.startsWith(before[path]), path).toBe(true);
  return wanted.length;
}

/** Undoes what is left, and returns what this server undid. */
async function undoAll(server: SpawnedServer, left: { count: number }): Promise<string[]> {
  const taken: string[] = [];
  while (left.count > 0) {
    const { result, error } = await server.request("undo");
    if (result) {
      taken.push(result.operationId);
      left.count--;
    } else expect(["session_locked", "content_modified", "operation_not_found"]).toContain(error.data.name);
  }
  return taken;
}
