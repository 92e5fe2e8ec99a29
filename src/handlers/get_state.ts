import * as z from "zod";
import { findContextWindow, UNKNOWN_MODEL } from "../core/context/models.ts";
import { makeLasting } from "../core/json/raw.ts";
import type { Session } from "../core/session/session.ts";
import { type ClientSettings, defineCommand } from "./shared/command.ts";
import { removeNulls, toPiModel } from "./shared/pi-model.ts";
import { holder, type Unchanged } from "./shared/shapes.ts";

export const stateResult = () =>
  z.object({
    sessionId: z.string(),
    sessionFile: z.string().nullable().describe("null for a session in memory"),
    sessionName: z.string().nullable(),
    cwd: z.string(),
    parentSession: z.string().nullable(),
    importedFrom: z
      .object({ agent: z.string(), id: z.string() })
      .optional()
      .describe("the other agent whose session this is, or was imported from, and the agent's own id of it"),
    leafId: z.string().nullable().describe("null before the first entry"),
    head: z.string().optional().describe("the head of this connection; missing at the shared leaf"),
    sharedLeafId: z.string().nullable().optional().describe("where this connection has a leaf of its own"),
    model: z.object({ provider: z.string(), id: z.string(), contextWindow: z.number().optional() }).nullable(),
    thinkingLevel: z.string(),
    messageCount: z.number().int().describe("messages of the context"),
    entryCount: z.number().int(),
    branchCount: z.number().int().describe("entries with more than one child"),
    persisted: z
      .boolean()
      .describe(
        "whether the session exists on disk; it does from the first append on, with --fleet from the first acknowledged one on; until then, what set_model, set_thinking_level and set_session_name set is only in memory",
      ),
    readOnly: z
      .boolean()
      .describe(
        "whether a write fails; with lockedBy, a write first tries to join that process, unless the session was opened with readOnly",
      ),
    lockedBy: holder().optional().describe("the process that has the lock, until this server has joined it"),
    holder: z
      .object({ epoch: z.number().int(), client: z.string(), pid: z.number() })
      .optional()
      .describe("the server that runs the writes of this one, because it holds the session and this one has joined it"),
    lock: z
      .enum(["sqlite", "flock", "socket", "file"])
      .optional()
      .describe(
        "which lock keeps other writers out, while this server is the session's writer. `sqlite` and `flock`: a file in the session's folder carries it, so that it holds for all that can open that file; `socket`: only for processes of the same network namespace; `file`: only for those with the same state folder or folder for temporary files",
      ),
    durability: z
      .enum(["local", "primary", "replicated"])
      .optional()
      .describe(
        "with a fleet, after the first write: `local` while acknowledged entries are on this machine alone, because its database is away (--fleet-away journal); else where the last ones are, in the database or on a second machine, too",
      ),
    store: z.string(),
    version: z.number().int().describe("format version of the stored bytes"),
    diagnostics: z
      .array(z.looseObject({ kind: z.string(), reason: z.string() }))
      .describe(
        "damage that was skipped, a compaction in force whose first kept entry is not on the path, and tool calls at the end of the path that will get no result",
      ),
    isStreaming: z.literal(false),
    isCompacting: z.literal(false),
    steeringMode: z.string(),
    followUpMode: z.string(),
    autoCompactionEnabled: z.boolean(),
    pendingMessageCount: z.literal(0),
  });

/** Returns the other agent's session that a header names. */
function originOf({ log }: Session): { readonly importedFrom?: { agent: string; id: string } } {
  const { agent, id } = (log.header.importedFrom ?? {}) as { agent?: unknown; id?: unknown };
  return typeof agent === "string" && typeof id === "string" ? { importedFrom: { agent, id } } : {};
}

type StateResult = Unchanged<z.input<ReturnType<typeof stateResult>>>;

export function toStateResult(session: Session, settings: ClientSettings): StateResult {
  const { log, tree } = session;
  const lockKind = log.lock.kind;
  const durability = log.replica?.status.durability;
  const { holder } = session;
  const lockedBy = holder ? null : log.lock.holder;
  // These read entries, and may find damage in them.
  const messageCount = session.messageCount();
  const contextDamage = session.contextDamage();
  const model = session.model();
  const contextWindow = model ? findContextWindow(model.id) : undefined;
  return {
    sessionId: session.id,
    sessionFile: session.file,
    sessionName: session.name,
    cwd: session.cwd,
    parentSession: session.parentSession,
    ...originOf(session),
    leafId: session.leafId,
    ...(session.head === null ? {} : { head: session.head, sharedLeafId: session.sharedLeafId }),
    model: model && contextWindow !== undefined ? { ...model, contextWindow } : model,
    thinkingLevel: session.thinkingLevel(),
    messageCount,
    entryCount: tree.entryCount,
    branchCount: tree.branchCount,
    persisted: log.persisted,
    readOnly: log.readOnly !== null || lockedBy !== null,
    ...(lockedBy === null ? {} : { lockedBy }),
    ...(holder ? { holder } : {}),
    ...(lockKind ? { lock: lockKind } : {}),
    ...(durability ? { durability } : {}),
    store: log.store,
    version: log.version,
    diagnostics: [...session.diagnostics, ...contextDamage],
    isStreaming: false,
    isCompacting: false,
    steeringMode: settings.steeringMode,
    followUpMode: settings.followUpMode,
    autoCompactionEnabled: settings.autoCompactionEnabled,
    pendingMessageCount: 0,
  };
}

const knownStates = new WeakMap<Session, { facts: readonly unknown[]; state: StateResult }>();

/**
 * Returns the earlier state, with its text, if all that it is made of is the same; else a new one. Model, level, counts and
 * damage of the context are the same while the tree is, and the log with it, with as many entries. A state with
 * diagnostics is always new.
 */
function currentState(session: Session, settings: ClientSettings): StateResult {
  const { log, tree, holder } = session;
  const lockedBy = holder ? null : log.lock.holder;
  const facts = [
    tree,
    tree.leaf,
    tree.entryCount,
    log,
    log.nodes.count,
    log.nodes.losses,
    log.header,
    session.diagnostics.length,
    session.head,
    session.sharedLeafId,
    log.persisted,
    log.readOnly,
    holder,
    lockedBy?.pid,
    lockedBy?.since,
    lockedBy?.host,
    log.lock.kind,
    log.replica?.status.durability,
    log.version,
    settings.steeringMode,
    settings.followUpMode,
    settings.autoCompactionEnabled,
  ];
  const known = knownStates.get(session);
  if (known && facts.every((fact, index) => fact === known.facts[index])) return known.state;
  const state = toStateResult(session, settings);
  if (state.diagnostics.length > 0) return state;
  knownStates.set(session, { facts, state: makeLasting(state) });
  return state;
}

/** States in Pi's shape: making one, and its text, takes 9 of the 13 us of a request. */
const piStates = new WeakMap<object, { readonly model: object; readonly shaped: object }>();

/** A session with four entries. */
export const stateExample = {
  sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
  sessionFile:
    "/home/me/.pi/agent/sessions/--home-me-app--/2026-01-24T16-22-26-831Z_01991f6e-1f1d-7c3e-b0a4-0242ac120002.jsonl",
  sessionName: "Refactor auth",
  cwd: "/home/me/app",
  parentSession: null,
  leafId: "c3d4e5f6",
  model: { provider: "anthropic", id: "claude-sonnet-4-5", contextWindow: 200_000 },
  thinkingLevel: "off",
  messageCount: 3,
  entryCount: 4,
  branchCount: 0,
  persisted: true,
  readOnly: false,
  store: "jsonl",
  version: 3,
  diagnostics: [],
  isStreaming: false as const,
  isCompacting: false as const,
  steeringMode: "one-at-a-time",
  followUpMode: "one-at-a-time",
  autoCompactionEnabled: false,
  pendingMessageCount: 0 as const,
};

export default defineCommand({
  name: "get_state",
  summary: "The state of the session: file, leaf, model, counts, damage.",
  effect: "read",
  result: stateResult,
  example: { params: {}, result: stateExample },
  run: ({ session, settings }) => currentState(session, settings),
  pi(context, state) {
    context.workspace.prepareFolder(context.session);
    const model = state.model ?? context.server.model ?? UNKNOWN_MODEL;
    const known = piStates.get(state);
    if (known?.model === model) return known.shaped;
    const shaped = makeLasting({ ...removeNulls(state), model: toPiModel(model) });
    piStates.set(state, { model, shaped });
    return shaped;
  },
});
