/** Sessions of any size and shape: written as files, driven through everything that walks them, and timed. */

import { closeSync, mkdirSync, openSync, readFileSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { headerText, TIME } from "./lines.ts";
import { type Lives, same } from "./proof.ts";
import { Random } from "./random.ts";
import type { Json, Wire } from "./server.ts";

/** The index of each entry's parent; -1 for a root. */
export const SHAPES: Readonly<Record<string, (count: number) => (index: number) => number>> = {
  "a chain": () => (index) => index - 1,
  "children of one node": () => (index) => (index === 0 ? -1 : 0),
  roots: () => () => -1,
  "a chain with a leaf at every node": () => (index) => (index % 2 === 1 ? index - 1 : index - 2),
  "chains from one node": (count) => {
    const chains = Math.ceil(Math.sqrt(count));
    return (index) => (index === 0 ? -1 : index <= chains ? 0 : index - chains);
  },
  "two long branches": (count) => (index) => (index === count >> 1 ? 0 : index - 1),
  "a binary tree": () => (index) => (index === 0 ? -1 : (index - 1) >> 1),
  "a random tree": () => {
    const random = new Random(11);
    return (index) => (index === 0 ? -1 : random.int(index));
  },
};

function idOf(index: number): string {
  return (0xb0000000 + index).toString(16);
}

function grow(folder: string, count: number, shape: string) {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `${shape.replaceAll(" ", "-")}.jsonl`);
  const parentOf = SHAPES[shape](count);
  const parents = new Int32Array(count);
  const fd = openSync(file, "wx", 0o600);
  let text = `${headerText({ cwd: folder })}\n`;
  for (let index = 0; index < count; index++) {
    parents[index] = parentOf(index);
    const parentId = parents[index] < 0 ? "null" : `"${idOf(parents[index])}"`;
    const message = index % 2 === 0 ? `"user","content":"${index}"` : '"assistant","content":[]';
    text += `{"type":"message","id":"${idOf(index)}","parentId":${parentId},"timestamp":"${TIME}","message":{"role":${message}}}\n`;
    if (text.length > 1 << 22 || index === count - 1) {
      writeSync(fd, text);
      text = "";
    }
  }
  closeSync(fd);
  return { file, parents, megabytes: Math.round(statSync(file).size / 1e6) };
}

/**
 * Opens a session of a shape and walks it in every way the protocol has. Returns how many milliseconds each took, and the
 * most memory that the process had, where it is one of its own.
 */
export async function walk(lives: Lives, count: number, shape: string, page: number, pid?: () => number) {
  const { file, parents, megabytes } = grow(join(lives.place.home, "grown"), count, shape);
  const took: Record<string, number> = {};
  const timed = async <T>(what: string, run: () => Promise<T>): Promise<T> => {
    const before = performance.now();
    const result = await run();
    took[what] = Math.round(performance.now() - before);
    return result;
  };
  const leaf = count - 1;
  const path: string[] = [];
  for (let at = leaf; at >= 0; at = parents[at]) path.push(idOf(at));
  path.reverse();
  const children = new Uint32Array(count);
  for (const parent of parents) if (parent >= 0) children[parent]++;

  const wire = await lives.start(["--events", "none"]);
  await wire.result("initialize");
  await timed("open", () => wire.result("switch_session", { sessionPath: file }));
  const state = await timed("get_state", () => wire.result("get_state"));
  expect(state).toMatchObject({
    entryCount: count,
    messageCount: path.length,
    branchCount: children.reduce((sum, own) => sum + (own > 1 ? 1 : 0), 0),
    leafId: idOf(leaf),
    diagnostics: [],
  });

  const walked = await timed("get_path", () => joined(wire, "get_path", "entries", page));
  same(walked, path, "the path");
  const listed = await timed("get_entries", () => joined(wire, "get_entries", "entries", page));
  expect(listed.length).toBe(count);
  for (let index = 0; index < count; index++)
    if (listed[index] !== idOf(index)) expect(listed[index]).toBe(idOf(index));
  await timed("get_tree", () => compareTree(wire, parents, children, page));
  const messages = await timed("get_messages", () => joined(wire, "get_messages", "messages", page));
  expect(messages.length).toBe(path.length);
  const context = await timed("get_context", () => wire.result("get_context"));
  expect(context.messages.length).toBe(path.length);
  same(context.entryIds, path, "the entries of the context");
  const { childIds } = await timed("get_entry", () => wire.result("get_entry", { entryId: idOf(0) }));
  expect(childIds.length).toBe(children[0]);
  const forkable = await timed("get_fork_messages", () => wire.result("get_fork_messages", { scope: "path" }));
  expect(forkable.messages.length).toBe(path.filter((id) => Number.parseInt(id, 16) % 2 === 0).length);

  const { leafId } = await timed("append", () =>
    wire.result("append", { entries: [{ type: "custom", customType: "x" }] }),
  );
  await timed("branch", () => wire.result("branch", { entryId: path[path.length >> 1] }));
  await timed("set_label", () => wire.result("set_label", { entryId: path[0], label: "first" }));
  await timed("branch back", () => wire.result("branch", { entryId: leafId }));
  const compaction = { summary: "s", firstKeptEntryId: path.at(-1), tokensBefore: 1 };
  await timed("compact_append", () => wire.result("compact_append", compaction));
  expect((await timed("get_state again", () => wire.result("get_state"))).messageCount).toBe(2);

  const fork = await timed("fork", () => wire.result("fork", { entryId: idOf(leaf), position: "at" }));
  expect(await wire.result("get_state")).toMatchObject({ entryCount: path.length + 1, messageCount: path.length });
  compareFork(fork.sessionFile, path);
  await timed("clone", () => wire.result("clone"));
  await timed("switch back", () => wire.result("switch_session", { sessionPath: file }));
  expect((await wire.result("get_state")).messageCount).toBe(2);
  const status = pid ? readFileSync(`/proc/${pid()}/status`, "utf8") : "";
  const peakMegabytes = Math.round(Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1000);
  await lives.end();
  return { megabytes, peakMegabytes, took };
}

/** The ids on all pages of a list; of messages, which have none, their place. */
async function joined(wire: Wire, method: string, member: string, limit: number): Promise<string[]> {
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const result = await wire.result(method, { limit, cursor });
    for (const item of result[member]) ids.push(item.id ?? "");
    cursor = result.nextCursor;
  } while (cursor !== undefined);
  return ids;
}

async function compareTree(wire: Wire, parents: Int32Array, children: Uint32Array, limit: number): Promise<void> {
  let index = 0;
  let cursor: string | undefined;
  do {
    const page: Json = await wire.result("get_tree", { format: "flat", limit, cursor });
    for (const { id, parentId, childCount } of page.nodes) {
      const parent = parents[index] < 0 ? null : idOf(parents[index]);
      if (id !== idOf(index) || parentId !== parent || childCount !== children[index])
        expect([id, parentId, childCount]).toEqual([idOf(index), parent, children[index]]);
      index++;
    }
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  expect(index).toBe(parents.length);
}

/** A fork holds the path and the label that was set; looked at without building a million objects. */
function compareFork(file: string, path: readonly string[]): void {
  let index = -1;
  for (const [, id] of readFileSync(file, "latin1").matchAll(
    /^\{"type":"(?:message|session|label)",(?:"version":3,)?"id":"([^"]+)"/gm,
  )) {
    if (index >= 0 && index < path.length && id !== path[index]) expect(id, `entry ${index}`).toBe(path[index]);
    index++;
  }
  expect(index).toBe(path.length + 1);
}
