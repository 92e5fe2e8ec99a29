/**
 * A conversation with every command, another program writing in between, over a disk that fails: each request is
 * answered once, in order, and the server lives.
 */

import { appendFileSync } from "node:fs";
import { expect, vi } from "vitest";
import { commandTable } from "../../src/handlers/shared/table.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { user } from "./drafts.ts";
import { examplePlace, ID_IN_CONTAINER, ID_OF_CURRENT } from "./example.ts";
import { failingDisk, STROKES, type Stroke } from "./failing.ts";
import { entryText } from "./lines.ts";
import type { Random } from "./random.ts";
import { type Json, serveHere } from "./server.ts";
import { v2On } from "./v2.ts";

interface Trial {
  readonly store: "jsonl" | "v2";
  readonly dialect: "jsonrpc" | "pi";
  readonly durability: "os" | "sync";
  readonly heldReplyBytes?: number;
  readonly strike: (count: number) => Stroke | undefined;
}

/** More operations of the disk than a conversation has. */
export const MOST_OPERATIONS = 5000;

/** Strokes that need no file to strike. */
const REFUSALS = ["EIO", "ENOENT", "EMFILE", "ENOSPC"] as const;

/** A trial whose disk fails now and then, or once. */
export function randomTrial(random: Random): Trial {
  const at = random.int(MOST_OPERATIONS);
  const stroke = random.pick(STROKES);
  const often = random.chance(0.5);
  return {
    store: random.pick(["jsonl", "v2"]),
    dialect: random.pick(["jsonrpc", "pi"]),
    durability: random.pick(["os", "sync"]),
    heldReplyBytes: random.pick([undefined, 300]),
    strike: often
      ? () => (random.chance(0.02) ? random.pick(REFUSALS) : undefined)
      : (count) => (count === at ? stroke : undefined),
  };
}

/** Commands that end the conversation. */
const LAST = new Set(["shutdown", "exit"]);

/** Commands that act on the current session, whatever their params are. */
const ORDERED = new Set(
  commandTable
    .filter(({ effect, ofAny, params }) => effect !== "server" && !ofAny && !("sessionId" in params.shape))
    .map(({ name }) => name),
);

interface Step {
  readonly name: string;
  readonly params: Json;
  /** Another program appends to the session before the command is sent. */
  readonly foreign: boolean;
}

/** The conversation, whose params are those of the examples. */
function steps(text: (example: unknown) => string, session: string, store: Trial["store"]): Step[] {
  const found: Step[] = [];
  const add = (name: string, params: Json, foreign = false): void => void found.push({ name, params, foreign });
  for (const { name, example, effect } of commandTable) {
    if (LAST.has(name)) continue;
    const params = JSON.parse(text(example.params));
    // The client here answers no questions.
    if (name === "initialize") delete params.capabilities.hooks;
    const own = store === "v2" ? JSON.parse(JSON.stringify(params).replaceAll(ID_OF_CURRENT, ID_IN_CONTAINER)) : params;
    add(name, own, effect === "write");
    if (effect === "replace" || name === "close_session") add("switch_session", { sessionPath: session });
    if (effect === "write") {
      add("get_entries", {});
      add("get_messages", {});
      add("get_tree", { format: "nested" });
    }
  }
  return found;
}

/** Sends all of it; answers how many operations of the disk there were and what the stroke met. */
export async function converse(trial: Trial): Promise<{ operations: number; met: string }> {
  const { store, dialect, durability, heldReplyBytes, strike } = trial;
  const { place, session, container: make, text } = examplePlace();
  const container = make();
  const current = store === "v2" ? container : session;
  const files =
    store === "jsonl" ? [session] : [`${container}/segments/0000000000000001.seg`, `${container}/index/offsets.jsonl`];
  let healed = false;
  const failing = failingDisk((count) => (healed ? undefined : strike(count)), { files });
  const stderr: string[] = [];
  const spy = vi.spyOn(process.stderr, "write").mockImplementation((chunk) => {
    stderr.push(String(chunk));
    return true;
  });
  const server = serveHere(["--session", current, "--dialect", dialect, "--durability", durability], {
    place,
    disk: failing.disk,
    heldReplyBytes,
  });
  let written = 0;
  const containers = v2On(realDisk, {
    ...{ seed: 10, durability: "os", quarantine: `${place.state}/quarantine`, containerFor: () => container },
  });
  const foreign = (): void => {
    const { type, ...rest } = user("from elsewhere");
    const line = entryText(type, (0xf0000000 + ++written).toString(16), "d4e5f6a7", rest);
    try {
      if (store === "jsonl") return appendFileSync(session, `${line}\n`);
      const log = containers.open(container);
      try {
        log.append([Buffer.from(line)]);
      } finally {
        log.close();
      }
    } catch {
      // The session was moved, cut or deleted: then there is no file for the other program.
    }
  };
  const asked: { id: unknown; step: Step }[] = [];
  const script = steps(text, current, store);
  try {
    const send = (step: Step): unknown => {
      const id = `r${asked.length}`;
      asked.push({ id, step });
      const { name, params } = step;
      server.send(dialect === "pi" ? { ...params, id, type: name } : { jsonrpc: "2.0", id, method: name, params });
      return id;
    };
    for (const [index, step] of script.entries()) {
      if (step.foreign) foreign();
      const id = send(step);
      // Every third is waited for: some things happen only while nothing else does.
      if (index % 3 === 0) await server.reply(id).then((reply) => server.events.push(reply));
    }
    await server.reply(asked[asked.length - 1].id).then((reply) => server.events.push(reply));
    healed = true;
    const alive = send({ name: "list_open_sessions", params: {}, foreign: false });
    const reply = await server.reply(alive);
    server.events.push(reply);
    expect(reply.result ?? reply.data, "the server lives").toBeDefined();
    const { messages } = await server.finish();
    const replies = [...server.events, ...messages].filter((message) => message.id !== undefined);
    const ids = replies.map(({ id }) => id);
    expect([...ids].sort(), "each is answered once").toEqual(asked.map(({ id }) => id).sort());
    const inOrder = asked.filter(({ step }) => ORDERED.has(step.name)).map(({ id }) => id);
    expect(
      ids.filter((id) => inOrder.includes(id)),
      "in order",
    ).toEqual(inOrder);
    const bugs = replies.filter((message) => JSON.stringify(message).includes("internal_error"));
    expect({ bugs, stderr }).toEqual({ bugs: [], stderr: [] });
  } catch (error) {
    (error as Error).message =
      `${store} ${dialect} ${durability} (${failing.met()}): ${(error as Error).message}\n${stderr.join("")}`;
    throw error;
  } finally {
    spy.mockRestore();
  }
  return { operations: failing.count(), met: failing.met() };
}
