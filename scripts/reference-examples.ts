/** The examples in protocol.md, as each dialect writes them: commands, refusals, events and hooks. */

import { Failure } from "../src/core/failure.ts";
import type { Command, CommandContext } from "../src/handlers/shared/command.ts";
import type { EventName, EventPayload } from "../src/handlers/shared/events.ts";
import type { HookName } from "../src/handlers/shared/hooks.ts";
import { exampleId, makeEntryExample } from "../src/handlers/shared/shapes.ts";
import type { Call, Outcome } from "../src/server/connection/call.ts";
import { jsonrpcDialect } from "../src/server/connection/jsonrpc.ts";
import { piDialect } from "../src/server/connection/pi.ts";

/** Lines that go back and forth, in each dialect. */
export interface Exchange {
  readonly jsonrpc: readonly string[];
  readonly pi: readonly string[];
}

/** Commands that a host sends as a notification in JSON-RPC, so that there is no reply. */
const NOTIFICATIONS: ReadonlySet<string> = new Set(["exit"]);

// --- commands ----------------------------------------------------------------------------------------------------

/** Returns the example of a command: the request and the reply. */
export function makeExampleExchange(command: Command): Exchange {
  const { result } = command.example;
  return exchange(command, result === undefined ? { error: refusalOf(command) } : { result });
}

/** Returns what a command answers where no host has registered its hook. */
export function makeRefusalExchange(command: Command): Exchange {
  return exchange(command, { error: refusalOf(command) });
}

function exchange(command: Command, outcome: Outcome): Exchange {
  const { name } = command;
  const params = command.example.params as object;
  const call = { command, name, idText: "1" } as Pick<Call, "command" | "name" | "idText"> as Call;
  const request = { method: name, ...(Object.keys(params).length === 0 ? {} : { params }) };
  const isSilent = NOTIFICATIONS.has(name);
  return {
    jsonrpc: isSilent
      ? [JSON.stringify({ jsonrpc: "2.0", ...request })]
      : [JSON.stringify({ jsonrpc: "2.0", id: 1, ...request }), joined(jsonrpcDialect.reply(call, outcome))],
    pi: [
      JSON.stringify({ id: "1", type: name, ...params }),
      joined(piDialect.reply({ ...call, idText: '"1"' }, "error" in outcome ? outcome : { result: inPi(command) })),
    ],
  };
}

/** Returns the result of the example in Pi's shape, which depends on the result alone; the rest is for its folder. */
function inPi(command: Command): unknown {
  const nowhere = { workspace: { prepareFolder() {} }, server: { asPi: false } } as unknown as CommandContext;
  const result = command.example.result as never;
  return command.pi === undefined ? result : command.pi(nowhere, result);
}

/** Returns the failure of a command when no host answers hooks, and no client of Pi's shows it to a person. */
function refusalOf({ name, example, run }: Command): Failure {
  const alone = { asks: () => false, server: { asPi: false } } as unknown as CommandContext;
  try {
    run(alone, example.params as never);
  } catch (error) {
    if (error instanceof Failure) return error;
  }
  throw new Error(`${name} does not refuse, and its example has no result`);
}

// --- events ------------------------------------------------------------------------------------------------------

const FILE = "/home/me/sessions/colours.jsonl";
const OTHER_FILE = "/home/me/sessions/colours-2.jsonl";
const OTHER_ID = "01991f6e-1f1d-7c3e-b0a4-0242ac120003";
const TIMESTAMP = "2026-01-24T16:22:31.120Z";

const branchSummary = {
  type: "branch_summary",
  id: "e5f6a7b8",
  parentId: "a1b2c3d4",
  timestamp: TIMESTAMP,
  fromId: "d4e5f6a7",
  summary: "Blue was the first choice.",
};

const compaction = {
  type: "compaction",
  id: "f6a7b8c9",
  parentId: "d4e5f6a7",
  timestamp: TIMESTAMP,
  summary: "The user wants a colour.",
  firstKeptEntryId: "c3d4e5f6",
  tokensBefore: 50_000,
};

const agent = { id: "01991f6e-5f00-7d11-8c2b-0242ac120007", name: "nightly-agent", pid: 4812 };

type EventExample<N extends EventName> = {
  readonly sessionId?: string;
  readonly leafId: string | null;
} & EventPayload<N>;

/** An example of each event, with the members of one that is sent. */
const EVENTS: { readonly [N in EventName]: EventExample<N> } = {
  session_start: { leafId: null, reason: "startup", sessionFile: FILE },
  session_shutdown: { leafId: "d4e5f6a7", reason: "fork", targetSessionFile: OTHER_FILE },
  session_tree: {
    leafId: "e5f6a7b8",
    newLeafId: "e5f6a7b8",
    oldLeafId: "d4e5f6a7",
    summaryEntry: branchSummary,
    fromExtension: false,
  },
  session_fork: {
    sessionId: OTHER_ID,
    leafId: "b2c3d4e5",
    entryId: "c3d4e5f6",
    position: "before",
    sessionFile: OTHER_FILE,
    previousSessionFile: FILE,
  },
  session_compact: { leafId: "f6a7b8c9", compactionEntry: compaction, fromExtension: false },
  session_append: {
    leafId: "d4e5f6a7",
    entryIds: ["d4e5f6a7"],
    origin: "foreign",
    entries: [makeEntryExample("d4e5f6a7", "c3d4e5f6", "And a second one?")],
  },
  session_info_changed: { leafId: "d4e5f6a7", name: "Colours" },
  session_durability_changed: { leafId: "c3d4e5f6", durability: "local" },
  session_owner_changed: {
    leafId: "d4e5f6a7",
    epoch: 1769271751001,
    client: "pi-session-server 0.1.0",
    pid: 4242,
    isSelf: false,
  },
  client_joined: { leafId: "d4e5f6a7", client: { ...agent, since: "2026-01-24T17:02:11.040Z" } },
  client_left: { leafId: "d4e5f6a7", client: { ...agent, since: "2026-01-24T17:02:11.040Z" }, reason: "left" },
  events_lost: { leafId: "d4e5f6a7", from: 7, to: 19 },
  session_damage: {
    leafId: "d4e5f6a7",
    damage: [
      {
        kind: "bad_line",
        line: 9,
        byteOffset: 1686,
        length: 13,
        reason: "the line is not a JSON object",
        salvaged: false,
      },
    ],
  },
};

export function makeEventExample(name: EventName): Exchange {
  const { sessionId = exampleId, leafId, ...rest } = EVENTS[name];
  const payload = { sessionId, leafId, seq: Object.keys(EVENTS).indexOf(name) + 1, ...rest };
  return { jsonrpc: [joined(jsonrpcDialect.event(name, payload))], pi: [joined(piDialect.event(name, payload))] };
}

// --- hooks -------------------------------------------------------------------------------------------------------

interface HookExample {
  readonly payload: Readonly<Record<string, unknown>>;
  readonly answer: Readonly<Record<string, unknown>>;
}

const leftEntry = makeEntryExample("d4e5f6a7", "c3d4e5f6", "And a second one?");

/** An example of each hook: what the server asks, and an answer. */
const HOOKS: { readonly [N in HookName]: HookExample } = {
  session_before_switch: { payload: { reason: "resume", targetSessionFile: OTHER_FILE }, answer: {} },
  session_before_fork: { payload: { entryId: "c3d4e5f6", position: "before" }, answer: { cancel: true } },
  session_before_tree: {
    payload: {
      preparation: {
        targetId: "c3d4e5f6",
        oldLeafId: "d4e5f6a7",
        commonAncestorId: "c3d4e5f6",
        entriesToSummarize: [leftEntry],
        userWantsSummary: false,
      },
      sessionId: exampleId,
      leafId: "d4e5f6a7",
    },
    answer: { summary: { summary: "Blue was the first choice." } },
  },
  session_before_compact: {
    payload: {
      preparation: {
        shouldCompact: false,
        contextTokens: 8,
        tokensBefore: 8,
        firstKeptEntryId: "d4e5f6a7",
        messagesToSummarize: [{ role: "user", content: "Name a colour." }],
        turnPrefixMessages: [],
        isSplitTurn: false,
        details: { readFiles: [], modifiedFiles: [] },
        conversationText: "User: Name a colour.",
        settings: { enabled: true, contextWindow: 200_000, reserveTokens: 16_384, keepRecentTokens: 4 },
      },
      branchEntries: [makeEntryExample("c3d4e5f6", null, "Name a colour."), leftEntry],
      sessionId: exampleId,
      leafId: "d4e5f6a7",
    },
    answer: {
      compaction: { summary: "The user wants a colour.", firstKeptEntryId: "d4e5f6a7", tokensBefore: 8 },
    },
  },
};

export function makeHookExample(name: HookName): Exchange {
  const { payload, answer } = HOOKS[name];
  const request = { jsonrpc: "2.0" as const, id: 0, method: name, params: payload };
  return {
    jsonrpc: [joined(jsonrpcDialect.hook(request)), JSON.stringify({ jsonrpc: "2.0", id: 0, result: answer })],
    pi: [joined(piDialect.hook(request)), JSON.stringify({ type: "hook_response", id: 0, ...answer })],
  };
}

function joined(pieces: Iterable<string | Uint8Array>): string {
  return Buffer.concat([...pieces].map((piece) => Buffer.from(piece as string))).toString("utf8");
}
