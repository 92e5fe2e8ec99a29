/**
 * Random operations over the wire, each compared with what arrays and maps say should be there. The model knows the
 * format (`model.ts`) and the protocol; it shares no code with the program.
 */

import { basename } from "node:path";
import { expect } from "vitest";
import { LEAF_MARKER } from "../../src/core/format/node-reader.ts";
import { SPOKEN } from "./drafts.ts";
import { TIME } from "./lines.ts";
import { Model, type ModelEntry } from "./model.ts";
import { isMarker, type Lives, type Shelf, same, selectReported, shelves } from "./proof.ts";
import type { Random } from "./random.ts";
import type { Json, Wire } from "./server.ts";

/** The known state of one session. */
interface Known {
  readonly id: string;
  readonly file: string;
  readonly parentSession: string | null;
  readonly model: Model;
  readonly childCounts: Map<string, number>;
  leaf: string | null;
  name: string | null;
  persisted: boolean;
  /** Bytes of the file that were looked at, and how many entries they hold. */
  seen: number;
  shown: number;
  /** The imprint of the file when the session was left. */
  left: string;
}

interface Keyed {
  readonly method: string;
  readonly params: Json;
  readonly result: Json;
  readonly session: string;
}

const SETUP = ["model_change", "thinking_level_change", "session_info"];

/** Runs so many random operations. With `slow`, fewer of them end the process. */
export async function runModel(
  random: Random,
  lives: Lives,
  operations: number,
  { slow = false, store = "jsonl" }: { slow?: boolean; store?: "jsonl" | "v2" } = {},
): Promise<void> {
  const run = new ModelRun(random, lives, slow, shelves[store]);
  await run.begin();
  for (let n = 1; n <= operations; n++) {
    try {
      await run.step();
      await run.compareState();
      if (n % 50 === 0) await run.compareAll();
    } catch (error) {
      if (error instanceof Error) error.message = `operation ${n}: ${run.trail.join("\n  ")}\n${error.message}`;
      throw error;
    }
  }
  await lives.end();
}

class ModelRun {
  /** The last operations, for messages. */
  readonly trail: string[] = [];
  private readonly random: Random;
  private readonly lives: Lives;
  private readonly slow: boolean;
  private readonly shelf: Shelf;
  private wire!: Wire;
  private now!: Known;
  private readonly sessions = new Map<string, Known>();
  private keyed: Keyed | undefined;
  private keys = 0;
  private calls = 0;

  constructor(random: Random, lives: Lives, slow: boolean, shelf: Shelf) {
    this.random = random;
    this.lives = lives;
    this.slow = slow;
    this.shelf = shelf;
  }

  async begin(): Promise<void> {
    this.wire = await this.lives.start([...this.shelf.options, "--durability", "os"]);
    const { sessionId, sessionFile } = await this.wire.result("get_state");
    this.now = this.know(sessionId, sessionFile, null, false);
  }

  private know(id: string, file: string, parentSession: string | null, persisted: boolean): Known {
    const nothing = { model: new Model(), childCounts: new Map(), leaf: null, name: null, seen: 0, shown: 0, left: "" };
    const known: Known = { id, file, parentSession, persisted, ...nothing };
    this.sessions.set(id, known);
    return known;
  }

  private async call(method: string, params: Json): Promise<Json> {
    this.trail.push(`${method} ${JSON.stringify(params).slice(0, 300)}`);
    if (this.trail.length > 8) this.trail.shift();
    return this.wire.request(method, params);
  }

  private async succeed(method: string, params: Json): Promise<Json> {
    const { result, error } = await this.call(method, params);
    if (error) expect.fail(`${method} failed: ${JSON.stringify(error)}`);
    // A session that is made anew is asked for again nowhere.
    const isKept = params.idempotencyKey && method !== "new_session";
    if (isKept) this.keyed = { method, params, result, session: this.now.id };
    return result;
  }

  private async fail(method: string, params: Json, name: string): Promise<void> {
    const { error, result } = await this.call(method, params);
    expect(error?.data?.name, `${method} answered ${JSON.stringify(error ?? result)}`).toBe(name);
  }

  // --- the model's side ----------------------------------------------------------------------------------------

  private add(known: Known, entry: ModelEntry): void {
    known.model.add(entry);
    if (entry.parentId !== null)
      known.childCounts.set(entry.parentId, (known.childCounts.get(entry.parentId) ?? 0) + 1);
    if (entry.type === "session_info") known.name = ((entry.name as string) ?? "").trim() || null;
    if (!SETUP.includes(entry.type)) known.persisted = true;
    known.leaf = entry.id;
  }

  private newEntry(type: string, id: string, rest: object): void {
    this.add(this.now, { type, id, parentId: this.now.leaf, timestamp: TIME, ...rest } as ModelEntry);
  }

  private anyId(): string | undefined {
    const { entries } = this.now.model;
    return entries.length === 0 ? undefined : this.random.pick(entries).id;
  }

  private key(): Json {
    return this.random.chance(0.4) ? { idempotencyKey: `key ${++this.keys}` } : {};
  }

  // --- the operations ------------------------------------------------------------------------------------------

  async step(): Promise<void> {
    const operations: [number, () => Promise<void>][] = [
      [24, () => this.append()],
      [14, () => this.branch()],
      [5, () => this.label()],
      [3, () => this.rename()],
      [4, () => this.compact()],
      [4, () => this.edit()],
      [2, () => this.setModel()],
      [2, () => this.setLevel()],
      [3, () => this.fork()],
      [1, () => this.clone()],
      [3, () => this.switchSession()],
      [1, () => this.newSession()],
      [3, () => this.retry()],
      [4, () => this.refused()],
      [this.slow ? 0.3 : 2, () => this.restart()],
    ];
    let at = this.random.next() * operations.reduce((sum, [weight]) => sum + weight, 0);
    for (const [weight, operation] of operations) {
      at -= weight;
      if (at < 0) return operation();
    }
  }

  private async append(): Promise<void> {
    const { random } = this;
    const drafts: Json[] = [];
    for (let count = random.chance(0.5) ? 1 : 1 + random.int(4); count > 0; count--) drafts.push(...this.drafts());
    if (random.chance(0.2)) drafts[0].parentId = this.anyId() ?? null;
    // A result stays behind its call: a correct host writes no other way.
    const jumping = random.pick(drafts);
    if (random.chance(0.05) && jumping.message?.role !== "toolResult") jumping.parentId = this.anyId() ?? null;
    if (random.chance(0.05)) drafts[0].parentId = null;
    if (random.chance(0.1)) drafts[0].id = `own-${random.hex(12)}`;
    const guard = random.chance(0.2) ? { expectedLeafId: this.now.leaf } : {};
    const params = { entries: drafts, ...this.key(), ...guard };
    const result = await this.succeed("append", params);
    expect(result.entryIds).toHaveLength(drafts.length);
    for (const [index, { id = result.entryIds[index], parentId = this.now.leaf, ...draft }] of drafts.entries()) {
      expect(result.entryIds[index]).toBe(id);
      this.add(this.now, { type: draft.type, id, parentId, timestamp: TIME, ...draft });
    }
    expect(result.leafId).toBe(this.now.leaf);
  }

  /** One draft, or a whole turn with tool calls and their results. */
  private drafts(): Json[] {
    const { random } = this;
    const text = `text ${random.hex(4)}`;
    const content = [{ type: "text", text }];
    const known = this.anyId();
    const said = (message: Json): Json => ({ type: "message", timestamp: TIME, message });
    const usage = { ...SPOKEN.usage, input: 1, totalTokens: 1 };
    const assistant = { role: "assistant", ...SPOKEN, model: `model-${random.int(4)}`, usage };
    const kind = random.int(16);
    if (kind < 4) return [said({ role: "user", content: random.chance(0.5) ? text : content })];
    if (kind < 6) return [said({ ...assistant, content, stopReason: "stop" })];
    if (kind < 8) {
      const ids = Array.from({ length: 1 + random.int(3) }, () => `call-${++this.calls}`);
      const calls = ids.map((id) => ({ type: "toolCall", id, name: "read", arguments: { path: text } }));
      const result = { role: "toolResult", toolName: "read", content, isError: false };
      return [
        said({ ...assistant, content: calls, stopReason: "toolUse" }),
        ...ids.map((toolCallId) => said({ ...result, toolCallId })),
      ];
    }
    const other = [
      { type: "custom", customType: "thing", data: { n: random.int(9) } },
      { type: "custom_message", customType: "thing", content: text, display: true },
      { type: "unheard_of", anything: [1, { deep: text }], summary: 5 },
      // A label of a missing entry is refused.
      known === undefined
        ? { type: "session_info", name: text }
        : { type: "label", targetId: known, ...(random.chance(0.7) ? { label: text } : {}) },
      { type: "session_info", name: text },
      { type: "message", message: { role: "system", content: text } },
      { type: "branch_summary", fromId: known ?? "nowhere0", summary: random.chance(0.2) ? "" : text },
      { type: "usage", kind: "title", provider: "openai", model: "m", usage: { input: 2 } },
    ][kind - 8];
    return [{ ...other, timestamp: TIME }];
  }

  private async branch(): Promise<void> {
    const { random, now } = this;
    const { model } = now;
    const old = now.leaf;
    const entryId = random.chance(0.08) ? null : random.chance(0.1) ? old : (this.anyId() ?? null);
    const before = random.chance(0.3);
    const summary = random.chance(0.15) ? { summary: `left ${random.hex(4)}`, details: { n: 1.5 } } : undefined;
    let target = entryId;
    let text: string | undefined;
    if (before && entryId !== null) {
      const { parentId, type, message, content } = model.get(entryId) as Json;
      target = parentId;
      if (type === "custom_message") text = textOf(content);
      else if (message?.role === "user") text = textOf(message.content);
    }
    const label =
      random.chance(0.15) && (target !== null || summary !== undefined) ? `label ${random.hex(4)}` : undefined;
    const keyed = summary !== undefined || label !== undefined ? this.key() : {};
    const position = before ? "before" : undefined;
    const params = { entryId, position, summary, label, ...keyed };
    const result = await this.succeed("branch", params);
    expect(result.cancelled).toBe(false);
    expect(result.text).toBe(text);
    now.leaf = target;
    if (summary) this.newEntry("branch_summary", result.summaryEntryId, { fromId: old ?? "root", ...summary });
    else expect(result.summaryEntryId).toBeUndefined();
    if (label !== undefined)
      this.newEntry("label", result.leafId, { targetId: result.summaryEntryId ?? target, label });
    expect(result.leafId).toBe(now.leaf);
    expect(result.durable).toBe(now.persisted);
  }

  private async label(): Promise<void> {
    const entryId = this.anyId();
    if (entryId === undefined) return;
    const label = this.random.chance(0.7) ? `label ${this.random.hex(4)}` : null;
    const result = await this.succeed("set_label", { entryId, label, ...this.key() });
    this.newEntry("label", result.entryId, { targetId: entryId, ...(label === null ? {} : { label }) });
  }

  private async rename(): Promise<void> {
    const name = `name ${this.random.hex(4)}${this.random.chance(0.3) ? "\nof two lines " : ""}`;
    const result = await this.succeed("set_session_name", { name, ...this.key() });
    this.newEntry("session_info", result.entryId, { name: name.replace("\n", " ").trim() });
  }

  private async compact(): Promise<void> {
    const { random, now } = this;
    const path = now.model.path(now.leaf);
    const first = path.length === 0 || random.chance(0.15) ? null : random.pick(path).id;
    const params = {
      summary: `so far ${random.hex(4)}`,
      firstKeptEntryId: first,
      tokensBefore: random.int(99999),
      ...(random.chance(0.5) ? { details: { readFiles: ["a"], n: 1 } } : {}),
      ...(random.chance(0.2) ? { fromHook: true } : {}),
      ...this.key(),
    };
    if (separates(path, first)) return this.fail("compact_append", params, "invalid_boundary");
    const result = await this.succeed("compact_append", params);
    const { idempotencyKey: _, ...rest } = params as Json;
    // A compaction takes the system prompt of the path along; what that says is other tests' business.
    const { entry } = await this.wire.result("get_entry", { entryId: result.entryId });
    const { systemMessage } = entry;
    const carried = systemMessage === undefined ? {} : { systemMessage };
    this.newEntry("compaction", result.entryId, { ...rest, firstKeptEntryId: first ?? result.entryId, ...carried });
    expect(result).toEqual({ entryId: now.leaf, leafId: now.leaf, firstKeptEntryId: first ?? now.leaf });
  }

  private async edit(): Promise<void> {
    const { random, now } = this;
    const path = now.model.path(now.leaf);
    if (path.length === 0) return;
    const target = random.pick(path) as Json;
    const takesContent =
      target.type === "custom_message" || ["user", "assistant", "toolResult"].includes(target.message?.role);
    const text = `edited ${random.hex(4)}`;
    const content = random.chance(0.5) ? text : [{ type: "text", text }];
    const replacement = takesContent && random.chance(0.6) ? { content } : null;
    const result = await this.succeed("edit_context", { targetId: target.id, replacement, ...this.key() });
    this.newEntry("context_edit", result.entryId, { targetId: target.id, replacement });
  }

  private async setModel(): Promise<void> {
    const modelId = `model-${this.random.int(9)}`;
    const result = await this.succeed("set_model", { provider: "openai", modelId, ...this.key() });
    expect(result).toEqual({ provider: "openai", id: modelId });
    await this.learnLeaf("model_change", { provider: "openai", modelId });
  }

  private async setLevel(): Promise<void> {
    const level = this.random.pick(["off", "low", "high"]);
    expect(await this.succeed("set_thinking_level", { level, ...this.key() })).toBeNull();
    await this.learnLeaf("thinking_level_change", { thinkingLevel: level });
  }

  /** Learns the id that these commands append, which they do not answer. */
  private async learnLeaf(type: string, rest: object): Promise<void> {
    const { leafId } = await this.wire.result("get_state");
    expect(this.now.model.byId.has(leafId), `${type} was appended`).toBe(false);
    this.newEntry(type, leafId, rest);
  }

  private async fork(): Promise<void> {
    const { random, now } = this;
    const entryId = this.anyId();
    if (entryId === undefined) return;
    const entry = now.model.get(entryId) as Json;
    const before = random.chance(0.6);
    const params = { entryId, ...(before ? {} : { position: "at" }), ...this.key() };
    if (before && entry.message?.role !== "user") return this.fail("fork", params, "not_a_user_message");
    const result = await this.succeed("fork", params);
    expect(result.text).toBe(before ? textOf(entry.message.content) : "");
    await this.takeFork(before ? entry.parentId : entryId, result);
  }

  private async clone(): Promise<void> {
    await this.takeFork(this.now.leaf, await this.succeed("clone", this.key()));
  }

  /** Labels leave the path, later entries are linked past them, and labels of kept entries come again at the end. */
  private async takeFork(end: string | null, { sessionId, sessionFile }: Json): Promise<void> {
    const source = this.now;
    const path = source.model.path(end);
    this.leave();
    const forked = this.know(sessionId, sessionFile, source.persisted ? source.file : null, true);
    for (const [index, entry] of path.entries()) {
      if (entry.type === "label") continue;
      const copy: ModelEntry = { ...entry, parentId: forked.leaf };
      if (entry.type === "compaction") {
        const first = path.findIndex(({ id }) => id === copy.firstKeptEntryId);
        const kept = path.slice(first, index + 1).find(({ type }) => type !== "label");
        if (first >= 0 && kept) copy.firstKeptEntryId = kept.id;
      }
      this.add(forked, copy);
    }
    // The label entry that set each of the labels, in file order.
    const settings = [...source.model.labels()].flatMap(([targetId, { label }]) => {
      const set = source.model.entries.findLastIndex((entry) => entry.type === "label" && entry.targetId === targetId);
      return forked.model.byId.has(targetId) ? [{ targetId, label, set }] : [];
    });
    settings.sort((a, b) => a.set - b.set);
    const { entries } = await this.wire.result("get_entries");
    const ids = entries.slice(forked.model.entries.length).map(({ id }: Json) => id);
    expect(ids, "labels are made again").toHaveLength(settings.length);
    for (const [index, { targetId, label }] of settings.entries())
      this.add(forked, { type: "label", id: ids[index], parentId: forked.leaf, timestamp: TIME, targetId, label });
    this.now = forked;
  }

  /** The current session is left. If its file alone does not show the leaf, it got one marker; else not a byte. */
  private leave(): void {
    const { now } = this;
    if (!now.persisted) {
      this.sessions.delete(now.id);
      return;
    }
    const lines = this.shelf.lines(now.file);
    const added = this.shelf.lines(now.file, now.seen);
    const before = lines.slice(0, lines.length - added.length);
    if (leafByRule(before) === now.leaf) same(added, [], "lines that leaving added");
    else {
      expect(added, "lines that leaving added").toHaveLength(1);
      expect(added[0]).toMatchObject({ type: "custom", customType: LEAF_MARKER, parentId: now.leaf });
      expect(leafByRule(lines)).toBe(now.leaf);
    }
    now.seen = this.shelf.size(now.file);
    now.left = this.shelf.look(now.file);
  }

  private async switchSession(): Promise<void> {
    const others = [...this.sessions.values()].filter((session) => session !== this.now && session.persisted);
    if (others.length === 0) return;
    const next = this.random.pick(others);
    expect(this.shelf.look(next.file), "a session that is not open stays as it is").toBe(next.left);
    const params = this.random.chance(0.5) ? { sessionPath: next.file } : { sessionId: next.id };
    const result = await this.succeed("switch_session", params);
    this.leave();
    this.now = next;
    same(result, { cancelled: false, sessionId: next.id, sessionFile: next.file, leafId: next.leaf }, "switch_session");
  }

  private async newSession(): Promise<void> {
    const name = this.random.chance(0.3) ? `new ${this.random.hex(4)}` : undefined;
    const result = await this.succeed("new_session", { name, ...this.key() });
    this.leave();
    this.now = this.know(result.sessionId, result.sessionFile, null, false);
    if (name) await this.learnLeaf("session_info", { name });
  }

  /** Repeats requests that were answered with a key: the same answer, nothing new. */
  private async retry(): Promise<void> {
    const { keyed, now } = this;
    if (!keyed) return;
    const made = ["fork", "clone"].includes(keyed.method);
    if (made ? keyed.result.sessionId !== now.id : keyed.session !== now.id) return;
    same(await this.succeed(keyed.method, keyed.params), keyed.result, `${keyed.method} with the same key`);
  }

  private async refused(): Promise<void> {
    const { random, now } = this;
    const entries = [{ type: "custom", customType: "never" }];
    const taken = this.anyId();
    const attempts: [string, Json, string][] = [
      ["append", { entries: [...entries, { ...entries[0], parentId: "nowhere0" }] }, "entry_not_found"],
      ["append", { entries: [] }, "invalid_params"],
      ["append", { entries, expectedLeafId: now.leaf === null ? "nowhere0" : null }, "content_modified"],
      ["append", { entries: [...entries, { ...entries[0], id: "a/b" }] }, "invalid_params"],
      ["branch", { entryId: "nowhere0" }, "entry_not_found"],
      ["branch", { entryId: null, expectedLeafId: "nowhere0" }, "content_modified"],
      ["fork", { entryId: "nowhere0" }, "entry_not_found"],
      ["set_label", { entryId: "nowhere0", label: "x" }, "entry_not_found"],
      ["edit_context", { targetId: "nowhere0", replacement: null }, "entry_not_found"],
      ["switch_session", { sessionPath: "nothing.jsonl" }, "session_not_found"],
      ["switch_session", { sessionId: "nothing-like-it" }, "session_not_found"],
      ["compact_append", { summary: " ", firstKeptEntryId: null, tokensBefore: 1 }, "invalid_params"],
      ["compact_append", { summary: "s", firstKeptEntryId: "nowhere0", tokensBefore: 1 }, "invalid_boundary"],
      ["set_session_name", { name: " \n" }, "invalid_params"],
    ];
    if (taken !== undefined) attempts.push(["append", { entries: [{ ...entries[0], id: taken }] }, "invalid_entry"]);
    const [method, params, name] = random.pick(attempts);
    const { error, result } = await this.call(method, params);
    const accepted = name === "invalid_params" ? ["invalid_params", "invalid_entry"] : [name];
    expect(accepted, `${method} answered ${JSON.stringify(error ?? result)}`).toContain(error?.data?.name);
  }

  /** The process ends, in order or killed, and another one opens a session that is there. */
  private async restart(): Promise<void> {
    const killed = this.random.chance(0.6);
    this.trail.push(killed ? "kill" : "end");
    if (killed) await this.lives.kill();
    else await this.lives.end();
    if (!killed) this.leave();
    else if (!this.now.persisted) this.sessions.delete(this.now.id);
    else this.now.left = this.shelf.look(this.now.file);
    const there = [...this.sessions.values()];
    if (there.length === 0) return this.begin();
    this.now = this.sessions.get(this.now.id) ?? this.random.pick(there);
    this.wire = await this.lives.start([...this.shelf.options, "--durability", "os", "--session", this.now.file]);
    await this.wire.result("get_state");
    expect(this.shelf.look(this.now.file), "opening writes nothing").toBe(this.now.left);
  }

  // --- the comparison ------------------------------------------------------------------------------------------

  /** Compares the answers of cheap requests, and the new lines in the file. */
  async compareState(): Promise<void> {
    const { now, wire } = this;
    const { model, leaf } = now;
    const state = await wire.result("get_state");
    let branchCount = 0;
    for (const count of now.childCounts.values()) if (count > 1) branchCount++;
    const known = {
      ...{ sessionId: now.id, sessionFile: now.file, sessionName: now.name, parentSession: now.parentSession },
      ...{ leafId: leaf, model: model.model(leaf), thinkingLevel: model.level(leaf), persisted: now.persisted },
      ...{ messageCount: model.context(leaf).length, entryCount: model.entries.length, branchCount },
    };
    // A branch may end between a call and its result, or with a note of a program; neither is damage.
    const damage = state.diagnostics.filter(({ kind }: Json) => !["dangling_tool_call", "newer_branch"].includes(kind));
    const shown = Object.fromEntries(Object.keys(known).map((name) => [name, state[name]]));
    same({ ...shown, damage }, { ...known, damage: [] }, "get_state");
    if (!now.persisted) return;
    const lines = this.shelf.lines(now.file, now.seen).slice(now.seen === 0 ? 1 : 0);
    const idsOf = (entries: readonly Json[]): string[] => entries.map(({ id }) => id);
    const added = idsOf(lines.filter((line) => !isMarker(line)));
    same(added, idsOf(model.entries.slice(now.shown)), "new lines");
    for (const [index, line] of lines.entries())
      if (isMarker(line)) expect(["label", "session_info"], "what follows a marker").toContain(lines[index + 1]?.type);
    now.seen = this.shelf.size(now.file);
    now.shown = model.entries.length;
  }

  async compareAll(): Promise<void> {
    const { now, wire, random } = this;
    const { model } = now;
    const { entries, leafId } = await wire.result("get_entries");
    same(entries.map(bare), model.entries.map(bare), "get_entries");
    expect(leafId).toBe(now.leaf);
    const labels = model.labels();
    const { nodes } = await wire.result("get_tree", { format: "flat" });
    const shown = nodes.map(({ id, parentId, type, role, label, childCount }: Json) => [
      ...[id, parentId, type, role, label, childCount],
    ]);
    const expected = model.entries.map(({ id, parentId, type, message }) => [
      ...[id, parentId, type, (message as Json)?.role, labels.get(id)?.label, now.childCounts.get(id) ?? 0],
    ]);
    same(shown, expected, "get_tree");
    const { tree } = await wire.result("get_tree", { format: "nested" });
    same(flattened(tree), nestedOrder(model, labels), "get_tree nested");
    for (const leaf of [now.leaf, this.anyId() ?? null]) {
      const context = await wire.result("get_context", { leafId: leaf });
      same(context.messages.map(untimed), model.context(leaf).map(untimed), `get_context at ${leaf}`);
      expect(context.entryIds).toHaveLength(context.messages.length);
      same([context.model, context.thinkingLevel], [model.model(leaf), model.level(leaf)], "model and level");
      if (leaf !== null) {
        const path = await wire.result("get_path", { entryId: leaf });
        same(path.entries.map(bare), model.path(leaf).map(bare), `get_path to ${leaf}`);
        const entry = await wire.result("get_entry", { entryId: leaf });
        same(
          [bare(entry.entry), entry.childIds, entry.label],
          [bare(model.get(leaf)), model.children(leaf).map(({ id }) => id), labels.get(leaf)?.label ?? null],
          "get_entry",
        );
      }
    }
    const { messages } = await wire.result("get_messages");
    same(messages.map(untimed), model.context(now.leaf).map(untimed), "get_messages");
    const forkable = await wire.result("get_fork_messages", { scope: random.pick(["all", "path"]) });
    expect(forkable.messages.length).toBeLessThanOrEqual(model.entries.length);
    this.compareFile();
  }

  /** The file as any other program would read it, and nothing else next to the session files. */
  private compareFile(): void {
    const { now } = this;
    if (!now.persisted) return;
    const lines = this.shelf.lines(now.file);
    expect(lines[0]).toMatchObject({ type: "session", version: 3, id: now.id });
    same(selectReported(lines).map(bare), now.model.entries.map(bare), basename(now.file));
  }
}

/** Returns the leaf by the rules of the format (session-format reference, section 5, rule 3). */
function leafByRule(lines: readonly Json[]): string | null {
  const entries = new Map(lines.slice(1).map((entry) => [entry.id, entry]));
  const isMeta = ({ type }: Json): boolean => type === "label" || type === "session_info";
  const last = lines.at(-1);
  const decisive = lines.slice(1).findLast((entry) => !isMeta(entry));
  if (!decisive) return entries.size === 0 ? null : last.id;
  const leaf = isMarker(decisive) ? decisive.parentId : decisive.id;
  if (last === decisive) return leaf;
  for (let at = last; ; at = entries.get(at.parentId)) {
    if (at === undefined) return leaf === null ? last.id : leaf;
    if (at.id === leaf) return last.id;
    if (leaf === null && !isMeta(at)) return leaf;
  }
}

/** Returns whether keeping from an entry on parts a tool result from its call. */
function separates(path: readonly ModelEntry[], first: string | null): boolean {
  const at = path.findIndex(({ id }) => id === first);
  if (at < 0) return false;
  const callsIn = (entries: readonly Json[]): Set<string> =>
    new Set(
      entries.flatMap(({ message }) =>
        message?.role === "assistant" ? message.content.flatMap(({ id }: Json) => id ?? []) : [],
      ),
    );
  const [before, after] = [callsIn(path.slice(0, at)), callsIn(path.slice(at))];
  return (path.slice(at) as Json[]).some(
    ({ message }) => message?.role === "toolResult" && !after.has(message.toolCallId) && before.has(message.toolCallId),
  );
}

function textOf(content: Json): string {
  return typeof content === "string" ? content : content.map(({ text = "" }: Json) => text).join("");
}

/** An entry without what the server's clock and bookkeeping add. */
function bare({ timestamp: _timestamp, _batch, ...entry }: Json): Json {
  return entry;
}

/** Messages made of summaries carry the time of their entry, which is the server's. */
function untimed(message: Json): Json {
  const { timestamp, ...rest } = message;
  return ["compactionSummary", "branchSummary", "custom"].includes(message.role) ? rest : message;
}

function flattened(tree: Json[]): Json[] {
  return depthFirst(tree, ({ children }) => children).map(({ entry, label }) => [entry.id, label]);
}

function nestedOrder(model: Model, labels: Map<string, { label: string }>): Json[] {
  const children = new Map<string | null, ModelEntry[]>();
  for (const entry of model.entries) children.set(entry.parentId, [...(children.get(entry.parentId) ?? []), entry]);
  const order = depthFirst(children.get(null) ?? [], ({ id }) => children.get(id) ?? []);
  return order.map(({ id }) => [id, labels.get(id)?.label]);
}

function depthFirst(roots: readonly Json[], childrenOf: (node: Json) => readonly Json[]): Json[] {
  const found: Json[] = [];
  const open = roots.toReversed();
  for (let node = open.pop(); node; node = open.pop()) {
    found.push(node);
    open.push(...childrenOf(node).toReversed());
  }
  return found;
}
