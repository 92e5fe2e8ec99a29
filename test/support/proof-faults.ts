/**
 * One operation of the disk fails, any one of them: a failed request left nothing, an answered one is there, and a
 * repeated one works.
 */

import { expect } from "vitest";
import type { Disk } from "../../src/storage/fs/disk.ts";
import { type Fault, FaultDisk } from "./disk.ts";
import { assistant, user } from "./drafts.ts";
import { HereLives, plainLines, selectReported } from "./proof.ts";
import type { Json, Wire } from "./server.ts";

export const FOLDER = "/sessions";

export type StoreName = "jsonl" | "v2";

/** The bytes of a session that hold its entries: its file, or the segments of its container behind the header. */
export function bytesOfSession(disk: FaultDisk, session: string): Uint8Array {
  if (!session.endsWith(".v2")) return disk.content(session) as Uint8Array;
  const segments = disk.paths().filter((path) => path.startsWith(`${session}/segments/`));
  return Buffer.concat([`${session}/header.jsonl`, ...segments.sort()].map((path) => disk.content(path) as Uint8Array));
}

/** Returns the entries of a session's file, by a plain reader. */
export function idsIn(disk: FaultDisk, session: string): string[] {
  const lines = plainLines(bytesOfSession(disk, session)).map((line) => line.payload ?? line);
  return selectReported(lines).map(({ id }) => id);
}

type Step = readonly [method: string, params: Json];

const STEPS: readonly Step[] = [
  ["set_model", { provider: "openai", modelId: "m" }],
  ["append", { entries: [user("one", { id: "e1" }), assistant("two", { id: "e2" })] }],
  ["set_label", { entryId: "e1", label: "x" }],
  ["branch", { entryId: "e1" }],
  ["set_session_name", { name: "n" }],
  ["branch", { entryId: "e2" }],
  ["append", { entries: [user("three", { id: "e3" })], idempotencyKey: "k" }],
  ["branch", { entryId: "e1", summary: { summary: "s" }, label: "l" }],
  ["compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 }],
  ["branch", { entryId: null }],
  ["clone", {}],
  ["append", { entries: [user("in the clone", { id: "e4" })] }],
  ["fork", { entryId: "e4" }],
  ["append", { entries: [user("in the fork", { id: "e5" })] }],
  ["branch", { entryId: null }],
  ["new_session", {}],
  ["append", { entries: [user("in the new one", { id: "e6" })] }],
];

interface Shown {
  readonly ids: string[];
  readonly leaf: string | null;
  readonly session: string;
  readonly file: string;
  readonly persisted: boolean;
}

/** Asks a read, which may meet the fault, too, and works when it is repeated. */
async function ask(wire: Wire, method: string): Promise<Json> {
  const { result, error } = await wire.request(method);
  if (error) requireOfDisk(error, method);
  return result ?? wire.result(method);
}

async function show(wire: Wire): Promise<Shown> {
  const { entries, leafId } = await ask(wire, "get_entries");
  const { sessionId, sessionFile, persisted } = await ask(wire, "get_state");
  return { ids: entries.map(({ id }: Json) => id), leaf: leafId, session: sessionId, file: sessionFile, persisted };
}

function describeFault(fault: Fault | undefined): string {
  return fault ? JSON.stringify(fault) : "without a fault";
}

function requireOfDisk(error: Json, what: string): void {
  expect(["storage_failed", "storage_full"], `${what}: ${JSON.stringify(error)}`).toContain(error.data.name);
}

async function started(disk: FaultDisk, store: StoreName): Promise<{ lives: HereLives; wire: Wire }> {
  const lives = new HereLives({ disk: disk as Disk });
  return { lives, wire: await lives.start(["--session-dir", FOLDER, "--store", store]) };
}

/** Kills the server and compares what the next one finds. */
async function compareNext(lives: HereLives, disk: FaultDisk, now: Shown, what: string): Promise<void> {
  disk.set(undefined);
  await lives.kill();
  const next = await lives.start(["--session", now.file]);
  expect(await show(next), `after the kill, ${what}`).toEqual(now);
  await lives.end();
}

/** Runs the steps one by one; answers how many operations there were in all. */
export async function runWithFault(fault: Fault | undefined, store: StoreName = "jsonl"): Promise<number> {
  const disk = new FaultDisk();
  const { lives, wire } = await started(disk, store);
  let now = await show(wire);
  disk.set(fault);
  for (const [method, params] of STEPS) {
    const { error, result } = await wire.request(method, params);
    const at = `${method}, ${describeFault(fault)}`;
    const missed = error?.data.name === "entry_not_found";
    if (error && !missed) {
      requireOfDisk(error, at);
      expect(disk.struck, `${at} fails for a reason`).toBe(true);
    }
    const shown = await show(wire);
    if (error) expect(shown, `after a failed ${at}`).toEqual(now);
    else if (["clone", "fork", "new_session"].includes(method))
      expect(shown.session, `after ${at}`).toBe(result.sessionId);
    else expect(shown.ids.slice(0, now.ids.length), `after ${at}`).toEqual(now.ids);
    now = shown;
    if (now.persisted) expect(idsIn(disk, now.file), `the file after ${at}`).toEqual(now.ids);
    if (!error || missed) continue;
    expect((await wire.request(method, params)).error, `${at}, again`).toBeUndefined();
    now = await show(wire);
  }
  const { length } = disk.operations;
  await compareNext(lives, disk, now, describeFault(fault));
  return length;
}

const PIPELINE: readonly Step[] = [
  ["append", { entries: [user("one", { id: "e1" }), assistant("two", { id: "e2" })] }],
  ["branch", { entryId: "e0" }],
  ["append", { entries: [user("three")], idempotencyKey: "k" }],
  ["set_label", { entryId: "e0", label: "x" }],
  ["branch", { entryId: "e0", summary: { summary: "s" }, label: "l" }],
  ["set_session_name", { name: "n" }],
  ["append", { entries: [user("again")], idempotencyKey: "k" }],
  ["branch", { entryId: null }],
];

/** Sends them in one write, with reads between them; answers how many operations there were. */
export async function pipelineWithFault(fault: Fault | undefined, store: StoreName = "jsonl"): Promise<number> {
  const disk = new FaultDisk();
  const { lives, wire } = await started(disk, store);
  await wire.result("append", { entries: [user("zero", { id: "e0" })] });
  disk.set(fault);
  wire.send(
    ...PIPELINE.flatMap(([method, params], index) => [
      { jsonrpc: "2.0", id: `w${index}`, method, params },
      { jsonrpc: "2.0", id: `r${index}`, method: "get_entries" },
    ]),
  );
  let ids = ["e0"];
  let leaf: string | null = "e0";
  for (const [index, [method]] of PIPELINE.entries()) {
    const what = `${method} ${index}, ${describeFault(fault)}`;
    const { result, error } = await wire.reply(`w${index}`);
    if (error) requireOfDisk(error, what);
    // A repeated key gets its first answer and does nothing.
    else if (method !== "append" || !ids.includes(result.leafId)) {
      leaf = "leafId" in result ? result.leafId : result.entryId;
      const added = result.entryIds ?? [result.entryId, result.summaryEntryId, result.leafId];
      ids = [...new Set([...ids, ...added.filter((id: unknown) => typeof id === "string")])];
    }
    const read = await wire.reply(`r${index}`);
    if (read.error) continue;
    const seen = read.result.entries.map(({ id }: Json) => id);
    expect({ ids: seen, leaf: read.result.leafId }, `what is read after ${what}`).toEqual({ ids, leaf });
  }
  const now = await show(wire);
  expect({ ids: now.ids, leaf: now.leaf }, describeFault(fault)).toEqual({ ids, leaf });
  expect(idsIn(disk, now.file), `the file, ${describeFault(fault)}`).toEqual(ids);
  const { length } = disk.operations;
  await compareNext(lives, disk, now, describeFault(fault));
  return length;
}
