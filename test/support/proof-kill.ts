/**
 * kill -9 while a host appends and branches without waiting for answers: what stands there afterwards is the state
 * after some of the requests, in their order, among them all that were answered.
 */

import { readFileSync } from "node:fs";
import { expect } from "vitest";
import { user } from "./drafts.ts";
import { partsOf, SpawnedLives, same, selectReported } from "./proof.ts";
import type { Random } from "./random.ts";
import type { Json, Wire } from "./server.ts";

interface Position {
  readonly ids: readonly string[];
  readonly leaf: string | null;
}

interface Request {
  readonly method: string;
  readonly params: Json;
}

/** Numbers of requests and of torn writes in the file, of this run and those before. */
export type Killed = Readonly<Record<"sent" | "answered" | "recovered" | "torn", number>>;

const TORN = ["torn_tail", "incomplete_batch", "bad_line", "bad_index"];

/** So many runs on one session that grows; answers what each of them showed. */
export async function killRuns(random: Random, runs: number, args: string[] = []): Promise<Killed[]> {
  const lives = new SpawnedLives();
  let wire = await lives.start(args);
  const { sessionFile } = await wire.result("get_state");
  // Something is there from the start, so that every later life can open it.
  const first = await wire.result("append", { entries: [{ type: "custom", customType: "first", id: "entry-0" }] });
  let now: Position = { ids: ["entry-0"], leaf: first.leafId };
  const kills: Killed[] = [];
  for (let run = 1; run <= runs; run++) {
    const requests: Request[] = [];
    /** The states after none, one, two ... of the requests. */
    const states: Position[] = [now];
    for (let count = 5 + random.int(60); count > 0; count--) {
      const request = randomRequest(random, states.at(-1) as Position);
      requests.push(request);
      states.push(after(states.at(-1) as Position, request));
    }
    const killAfter = random.int(requests.length);
    const answered = await sendAndKill(wire, lives, random, requests, killAfter);
    wire = await lives.start([...args, "--session", sessionFile]);
    const { entries, leafId } = await wire.result("get_entries");
    const ids = entries.map(({ id }: Json) => id);
    const what = `run ${run}, ${answered} of ${requests.length} answered, leaf ${leafId}`;
    const recovered = states.findIndex(
      (state, index) => index >= answered && state.leaf === leafId && state.ids.length === ids.length,
    );
    if (recovered < 0) expect({ leaf: leafId, ids }, what).toEqual(states[answered]);
    same(ids, states[recovered].ids, what);
    // A kill in the middle of a large write leaves a part of a line, which is reported and never taken for an entry.
    const { diagnostics } = await wire.result("get_state");
    const torn = diagnostics.filter(({ kind }: Json) => TORN.includes(kind)).length;
    same(diagnostics.length, torn, `only torn writes, ${what}: ${JSON.stringify(diagnostics)}`);
    const whole = wholeLines(sessionFile);
    expect(whole.broken, `lines that are none, ${what}`).toBeLessThanOrEqual(torn);
    const there = new Set(ids);
    same(
      selectReported(whole.lines).flatMap(({ id }) => (torn === 0 || there.has(id) ? [id] : [])),
      ids,
      `the file, ${what}`,
    );
    now = await retry(wire, requests.slice(answered), states[recovered], what);
    kills.push({ sent: requests.length, answered, recovered, torn });
  }
  await lives.end();
  return kills;
}

/** Repeats requests with a key and no answer: each entry is there once, whether it had reached the file or not. */
async function retry(wire: Wire, unanswered: readonly Request[], { ids, leaf }: Position, what: string) {
  const expected: Position = { ids: [...ids], leaf };
  for (const { method, params } of unanswered) {
    if (params.idempotencyKey === undefined) continue;
    const own = params.entries.map(({ id }: Json) => id);
    const { result, error } = await wire.request(method, params);
    if (error) {
      // It continues an entry that was never written.
      expect(error.data.name, what).toBe("entry_not_found");
      continue;
    }
    same(result, { entryIds: own, leafId: own.at(-1) }, `a retry, ${what}`);
    if (!expected.ids.includes(own[0])) Object.assign(expected, { ids: [...expected.ids, ...own], leaf: own.at(-1) });
  }
  const { entries, leafId } = await wire.result("get_entries");
  same({ ids: entries.map(({ id }: Json) => id), leaf: leafId }, expected, `after the retries, ${what}`);
  return expected;
}

function wholeLines(file: string): { lines: Json[]; broken: number } {
  const isContainer = file.endsWith(".v2");
  const text = (isContainer ? partsOf(file) : [file]).map((part) => readFileSync(part, "utf8")).join("");
  const all = text.split("\n").filter((line) => line !== "");
  const lines = all.flatMap((line): Json[] => {
    try {
      const value = JSON.parse(line);
      return [isContainer ? (value.payload ?? value) : value];
    } catch {
      // A frame that was cut off counts as any other torn line.
      return [];
    }
  });
  return { lines, broken: all.length - lines.length };
}

/**
 * Sends requests faster than they are answered and kills at the n-th answer, right behind another write; answers how
 * many were answered.
 */
async function sendAndKill(
  wire: Wire,
  lives: SpawnedLives,
  random: Random,
  requests: readonly Request[],
  killAfter: number,
): Promise<number> {
  const messages = requests.map(({ method, params }, id) => ({ jsonrpc: "2.0", id: `r${id}`, method, params }));
  const send = (count: number): void => {
    const next = messages.splice(0, count);
    if (next.length > 0) wire.send(...next);
  };
  send(1 + random.int(messages.length - killAfter));
  let answered = 0;
  const take = (message: Json): void => {
    if (message.id !== `r${answered}`) return;
    expect(message.error, `${requests[answered].method} ${JSON.stringify(requests[answered].params)}`).toBeUndefined();
    answered++;
  };
  while (answered < killAfter) {
    take(await wire.next());
    send(1 + random.int(3));
  }
  send(messages.length);
  await lives.kill();
  // A message that left the server before it died is an answer, too.
  for (;;) {
    const message = await wire.next().catch(() => undefined);
    if (message === undefined) return answered;
    take(message);
  }
}

let entries = 0;

function randomRequest(random: Random, { ids, leaf }: Position): Request {
  const entry = (): Json => user(random.hex(random.chance(0.05) ? 60_000 : 20), { id: `entry-${++entries}` });
  const key = random.chance(0.3) ? { idempotencyKey: `key-${entries}` } : {};
  if (random.chance(0.5)) {
    const drafts = Array.from({ length: random.chance(0.7) ? 1 : 2 + random.int(4) }, entry);
    if (random.chance(0.2)) drafts[0].parentId = random.pick(ids);
    return { method: "append", params: { entries: drafts, ...key } };
  }
  if (random.chance(0.15)) {
    const label = { type: "label", id: `entry-${++entries}`, targetId: random.pick(ids), label: "x" };
    return { method: "append", params: { entries: [label], ...key } };
  }
  const entryId = random.chance(0.1) ? null : random.chance(0.1) ? leaf : random.pick(ids);
  return { method: "branch", params: { entryId } };
}

function after({ ids }: Position, { method, params }: Request): Position {
  if (method === "branch") return { ids, leaf: params.entryId };
  const added = params.entries.map(({ id }: Json) => id);
  return { ids: [...ids, ...added], leaf: added.at(-1) };
}
