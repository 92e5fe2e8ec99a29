import * as z from "zod";
import { Failure } from "../core/failure.ts";
import type { Workspace } from "../core/session/workspace.ts";
import { stateExample, stateResult, toStateResult } from "./get_state.ts";
import { defineCommand } from "./shared/command.ts";
import { eventDeclarations } from "./shared/events.ts";
import { type HookName, type HookRegistration, hookDeclarations as knownHooks } from "./shared/hooks.ts";
import { checkLeafChoice, chooseLeaf, type LeafChoice, leafParams } from "./shared/leaf-choice.ts";
import { cursorResult, makeResumeCursor, resumedResult, resumeFrom, resumeParams } from "./shared/replay.ts";

/** Version of the wire protocol: raised when a host that works today could break. */
const PROTOCOL_VERSION = 1 as const;
const WRONG_VERSION = `this server speaks version ${PROTOCOL_VERSION}; leave it out or send the number ${PROTOCOL_VERSION}`;

/** Puts the host at the leaf that it chose, in the current session and in those that it opens later. */
function settle(workspace: Workspace, choice: LeafChoice & { clientInfo?: { name: string } }): void {
  const { current } = workspace;
  const { leaf, head, clientInfo } = choice;
  if (current) chooseLeaf(workspace, current, choice, { client: clientInfo?.name });
  if (leaf !== undefined || head !== undefined) workspace.head = current ? current.heads.own : (head ?? null);
}

function makeVersionFailure(): Failure {
  const text = {
    what: `This server speaks version ${PROTOCOL_VERSION} of the protocol.`,
    state: "It has not been introduced.",
    advice: `Send initialize again with ${PROTOCOL_VERSION}, or use a newer server.`,
  };
  return new Failure("unsupported_version", text, { protocolVersion: PROTOCOL_VERSION });
}

/** A member that hosts of language servers send out of habit. */
const ignored = z.unknown().optional().describe("accepted and ignored");

export default defineCommand({
  name: "initialize",
  summary:
    "Introduces the host and asks for the abilities of the server. Optional, and sent once. What it chooses (hooks, events, the " +
    "size of replies, the leaf) holds from then on, so it is best sent first.",
  effect: "control",
  introduces: true,
  describesSessions: true,
  params: {
    protocolVersion: z
      .number({ error: WRONG_VERSION })
      .int(WRONG_VERSION)
      .min(1, WRONG_VERSION)
      .optional()
      .describe("the version that the host speaks; another one fails, and the failure names that of the server"),
    clientInfo: z.looseObject({ name: z.string(), version: z.string().optional() }).optional(),
    processId: ignored,
    locale: ignored,
    rootPath: ignored,
    rootUri: ignored,
    trace: ignored,
    workspaceFolders: ignored,
    maxReplyBytes: z
      .number()
      .int()
      .min(1024)
      .optional()
      .describe("pages are cut so that no reply is larger, but for this one's"),
    ...leafParams,
    capabilities: z
      .looseObject({
        hooks: z
          .array(z.looseObject({ name: z.string(), onTimeout: z.enum(["cancel", "continue"]).optional() }))
          .optional(),
        events: z.array(z.string()).optional().describe("only these are sent"),
      })
      .optional(),
    resume: resumeParams.optional(),
  },
  result: () =>
    z.object({
      protocolVersion: z.literal(PROTOCOL_VERSION),
      serverInfo: z.object({ name: z.string(), version: z.string() }),
      capabilities: z.object({
        commands: z.array(z.string()).describe("all of them, with their aliases; the example shows the first"),
        events: z.array(z.string()),
        hooks: z.array(z.string()),
        framings: z.array(z.string()),
        dialects: z.array(z.string()),
        stores: z.array(z.string()),
        formats: z.array(z.number()),
        limits: z.record(z.string(), z.number()),
      }),
      ignored: z
        .array(
          z.object({ path: z.string().describe("the member, such as `capabilities.hooks.0.name`"), name: z.string() }),
        )
        .optional()
        .describe(
          "members of `capabilities`, and names of events and hooks, that this server does not know: it sends no such events and asks no such hooks",
        ),
      state: stateResult().nullable().describe("as get_state returns it; null while no session is open"),
      cursor: cursorResult
        .nullable()
        .describe("what `resume` takes later, from here on; null while no session is open"),
      seq: z.number().int().describe("the number of the last event that was sent; the next one is larger by 1"),
      resumed: resumedResult.optional().describe("with `resume`"),
    }),
  failures: ["unsupported_version"],
  example: {
    params: {
      protocolVersion: 1,
      clientInfo: { name: "my-editor", version: "1.0.0" },
      capabilities: { hooks: [{ name: "session_before_fork", onTimeout: "cancel" }] },
    },
    result: {
      protocolVersion: 1,
      serverInfo: { name: "pi-session-server", version: "0.1.0" },
      capabilities: {
        commands: ["initialize", "shutdown", "exit", "rpc.discover", "get_state", "get_messages", "get_entries"],
        events: Object.keys(eventDeclarations),
        hooks: Object.keys(knownHooks),
        framings: ["lines", "headers"],
        dialects: ["jsonrpc", "pi", "acp", "mcp"],
        stores: ["jsonl", "v2", "memory"],
        formats: [1, 2, 3],
        limits: { maxMessageBytes: 67108864 },
      },
      state: stateExample,
      cursor: { sessionId: stateExample.sessionId, leafId: "c3d4e5f6", lastEntryId: "d4e5f6a7" },
      seq: 0,
    },
  },
  run(context, params) {
    if (params.protocolVersion !== undefined && params.protocolVersion !== PROTOCOL_VERSION) throw makeVersionFailure();
    checkLeafChoice(params);
    const { hooks, events: wanted } = params.capabilities ?? {};
    const known = hooks?.flatMap(({ name, onTimeout }): HookRegistration[] =>
      Object.hasOwn(knownHooks, name) ? [{ name: name as HookName, onTimeout }] : [],
    );
    const ignored = [
      ...unknownOf("capabilities", params.capabilities, ["hooks", "events"]),
      ...(hooks ?? []).flatMap((hook, i) => unknownOf(`capabilities.hooks.${i}`, hook, ["name", "onTimeout"])),
      ...(wanted ?? []).flatMap((name, i) =>
        Object.hasOwn(eventDeclarations, name) ? [] : [{ path: `capabilities.events.${i}`, name }],
      ),
      ...(hooks ?? []).flatMap(({ name }, i) =>
        Object.hasOwn(knownHooks, name) ? [] : [{ path: `capabilities.hooks.${i}.name`, name }],
      ),
    ];
    context.introduce({
      client: params.clientInfo,
      maxReplyBytes: params.maxReplyBytes,
      events: wanted,
      hooks: known,
    });
    const { name, version, framings, dialects, limits, commands } = context.server;
    const { workspace } = context;
    settle(workspace, params);
    return {
      protocolVersion: PROTOCOL_VERSION,
      serverInfo: { name, version },
      capabilities: {
        commands,
        events: Object.keys(eventDeclarations),
        hooks: Object.keys(knownHooks),
        framings,
        dialects,
        stores: workspace.stores.names,
        // The versions of the session format that can be opened.
        formats: [1, 2, 3],
        limits,
      },
      ...(ignored.length > 0 ? { ignored } : {}),
      state: workspace.current ? toStateResult(workspace.current, context.settings) : null,
      cursor: workspace.current && makeResumeCursor(workspace.current),
      seq: context.host.lastSeq,
      ...(params.resume ? { resumed: resumeFrom(workspace, params.resume) } : {}),
    };
  },
});

function unknownOf(path: string, members: object = {}, known: readonly string[]): { path: string; name: string }[] {
  return Object.keys(members).flatMap((name) => (known.includes(name) ? [] : [{ path: `${path}.${name}`, name }]));
}
