/** The shape of a command's declaration, the source of validation, documents and the typed client. */

import * as z from "zod";
import type { Model } from "../../core/context/context.ts";
import type { MakeResumable } from "../../core/export/resumable.ts";
import type { FailureName } from "../../core/failure.ts";
import type { SharedClient } from "../../core/ports/attach.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { EventName, EventPayload, Replacement } from "./events.ts";
import type { HookAnswer, HookName, HookRegistration } from "./hooks.ts";
import type { Unchanged } from "./shapes.ts";

/** A callback for progress: `done` of `total`, with further members in `more` for results that are there already. */
export type Report = (done: number, total: number, more?: object) => void;

/** The server as a command sees it while it runs. */
export interface CommandContext {
  readonly workspace: Workspace;
  /** The session that the request names, or the current one. Throws no_session or session_not_found. */
  readonly session: Session;
  /** The same; null when the request names, as `ofAny` allows, a session that is not open. */
  readonly target: Session | null;
  readonly server: ServerFacts;
  readonly host: HostFacts;
  /** The request's idempotency key. */
  readonly key: string | undefined;
  /** The id of the session that the request makes: the one that it names, or that follows from its idempotency key. */
  readonly keyedId: string | undefined;
  /** Settings that Pi clients set and read back; they mean nothing to a server without a model. */
  readonly settings: ClientSettings;
  /** Returns the JSON text of a param as the host sent it, so that it can be stored without change. */
  text(...path: (string | number)[]): Uint8Array | undefined;
  /** Sends an event right after this command's reply. */
  notify<N extends EventName>(event: N, payload: EventPayload<N>): void;
  /** Returns whether the host registered for a hook. */
  asks(hook: HookName): boolean;
  /** Asks the host, which registered for it. Later commands of the session wait meanwhile. Throws cancelled. */
  ask(hook: HookName, payload: Readonly<Record<string, unknown>>): Promise<HookAnswer>;
  /** Callback for progress; undefined unless the request has a progress token. */
  readonly progress: Report | undefined;
  /** Makes another session the current one and notifies the host. */
  replace(next: Session, replacement: Replacement): Promise<void>;
  /** Shuts down cleanly once the reply is out; unless `atOnce`, the host may close its end first. */
  shutDown(how?: { atOnce: boolean }): void;
  /** Returns the clients of a session, the one that asks among them. */
  clientsOf(session: Session): readonly PresentClient[];
  /**
   * Runs work that replaces the files of a session, unless another process shares it, and lets none join meanwhile.
   * Throws session_locked, naming the process that shares it.
   */
  alone<T>(session: Session, run: () => T): T;
  /** Applies the host's params of `initialize`. Throws nothing. */
  introduce(introduction: Introduction): void;
}

/** The host, as far as replies depend on it. */
export interface HostFacts {
  readonly dialectName: "jsonrpc" | "pi";
  /** Bytes that a reply may have at most; undefined when the host set no limit. */
  readonly maxReplyBytes: number | undefined;
  /** The number of the last event that it was sent. */
  readonly lastSeq: number;
  /** Returns the bytes that JSON text takes in a reply, escapes of the framing included. */
  sizeOf(text: Uint8Array): number;
}

/** A client of a session, as other clients see it. */
export interface PresentClient extends SharedClient {
  /** True if its server writes to the session. */
  readonly isHolder: boolean;
  /** True if it is the client that asks. */
  readonly isSelf: boolean;
}

export interface Introduction {
  /** The host as it names itself. */
  readonly client?: { readonly name: string; readonly version?: string };
  readonly maxReplyBytes?: number;
  readonly events?: readonly string[];
  readonly hooks?: readonly HookRegistration[];
}

export interface ServerFacts {
  readonly name: string;
  readonly version: string;
  readonly framings: readonly string[];
  readonly dialects: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
  /** Names and aliases of all commands. */
  readonly commands: readonly string[];
  /** True if it replaces Pi (`--mode rpc`), so that a client shows its person why a command failed. */
  readonly asPi: boolean;
  /** The model of the command line; a session that names none has it as long as this server serves it. */
  readonly model: Model | undefined;
  /** Reads Pi's settings files for a working directory, the one that counts most last; undefined for a missing one. */
  piSettings(cwd: string): readonly unknown[];
  /** Returns true if another process that holds a session lets this one join it, as far as that is known before. */
  canJoin(sessionPath: string): boolean;
  /** Missing in a build that writes no files of other agents. */
  readonly makeResumable?: MakeResumable;
  /** Returns the OpenRPC document, which is made on the first call. */
  discover(): Promise<object>;
}

export interface ClientSettings {
  steeringMode: string;
  followUpMode: string;
  autoCompactionEnabled: boolean;
  autoRetryEnabled: boolean;
}

/** The members of a declaration that do not depend on the types of its params. */
interface CommandTraits {
  /** The name on the wire, and of the command's file. */
  readonly name: string;
  readonly alias?: string;
  /** One sentence. */
  readonly summary: string;
  /**
   * `read` and `write` act on a session and keep the order of its commands, `replace` makes another one current,
   * `close` closes one, `control` is about the connection and keeps the order too, `server` touches no session and
   * delays none.
   */
  readonly effect: Effect;
  /**
   * True if `sessionPath` may name any session. For an open session, the command runs in that session's order. For any
   * other, it runs like `server`, and makes its own writes durable.
   */
  readonly ofAny?: boolean;
  /** True if a repeat does the same as the first one did, or would have done; by default for `read`, `control`, `close`. */
  readonly repeatable?: boolean;
  /** True if it waits for earlier answers of a session's holder, and later calls for its own: it may store no key. */
  readonly runsAlone?: boolean;
  /** True if only the holder of a session that several processes share knows the answer, although it writes nothing. */
  readonly needsHolder?: boolean;
  /** True if it shows the clients of a session: the holder of a shared one reports them first. */
  readonly showsClients?: boolean;
  /** The sentence that says how a client of a shared session gets its effect, which the holder does not run for others. */
  readonly instead?: string;
  /** True if it checks itself whether the session can be written to. */
  readonly checksReadOnly?: boolean;
  /** True if its result describes sessions: after a failed commit it is made again, which changes nothing. */
  readonly describesSessions?: boolean;
  /** True if it may open one more session. */
  readonly opensSession?: boolean;
  /** True if it moves the file of its session. */
  readonly movesFile?: boolean;
  /** True if its `sessionId` names the session that becomes the current one. */
  readonly namesNext?: boolean;
  /** True if it introduces the host: it is answered once, and first. */
  readonly introduces?: boolean;
  /** True if it runs while the server ends. */
  readonly runsAtEnd?: boolean;
  readonly example: { readonly params: unknown; readonly result: unknown };
}

interface Declaration<S extends z.ZodRawShape, R extends z.ZodType> extends CommandTraits {
  /** Returns the path of the session that it is about, where its params do not name that themselves. */
  about?(workspace: Workspace, params: z.output<z.ZodObject<S>>): string | undefined;
  /** Returns whether a call reads another session, too: only the server that received it does, which may be confined. */
  readsOther?(params: z.output<z.ZodObject<S>>): boolean;
  /** None by default. */
  readonly params?: S;
  /** Makes the schema of the result, which only documents and types need. */
  readonly result: () => R;
  /** None by default. Those of its effect are added. */
  readonly failures?: readonly FailureName[];
  run(context: CommandContext, params: z.output<z.ZodObject<S>>): Promised<Unchanged<z.input<R>>>;
  /** Returns the result in the shape of Pi's dialect, where that differs. */
  pi?(context: CommandContext, result: z.input<R>): unknown;
  /**
   * Returns, for a `write`, the result of an earlier run with the same idempotency key, from the entries that it wrote.
   * Throws BadParams when another command wrote them.
   */
  repeat?(context: CommandContext, entryIds: string[], params: z.output<z.ZodObject<S>>): Unchanged<z.input<R>>;
  /** Returns, for a command that makes a session, the result of an earlier run with the same key, from that session. */
  recall?(context: CommandContext, made: Session, params: z.output<z.ZodObject<S>>): Unchanged<z.input<R>>;
}

type NoParams = Record<never, never>;

export type Effect = "read" | "write" | "replace" | "close" | "control" | "server";

type Promised<T> = T | Promise<T>;

export interface Command extends CommandTraits {
  readonly failures: readonly FailureName[];
  /** The schema that refuses unknown members; `_meta` is always allowed. */
  readonly params: z.ZodObject;
  readonly result: z.ZodType;
  /** The schema for Pi's dialect, which ignores unknown members. */
  readonly looseParams: z.ZodObject;
  about?(workspace: Workspace, params: never): string | undefined;
  readsOther?(params: never): boolean;
  run(context: CommandContext, params: never): unknown;
  pi?(context: CommandContext, result: never): unknown;
  repeat?(context: CommandContext, entryIds: string[], params: never): unknown;
  recall?(context: CommandContext, made: Session, params: never): unknown;
}

/** A command as a call runs it: its place in the order of the calls, and its work. */
export type RunnableCommand = Omit<Command, "example" | "failures" | "looseParams" | "params" | "result" | "summary"> &
  Partial<Pick<Command, "params">>;

/** Params that a command gets because of its effect. */
export const commonParams = {
  sessionId: z.string().optional().describe("an open session; the current one by default"),
  expectedLeafId: z.string().nullish().describe("fail with content_modified and write nothing unless this is the leaf"),
  idempotencyKey: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe(
      "random, such as a UUID; a repeat with the same key returns the first result and writes nothing; its other params are not compared",
    ),
  _meta: z
    .looseObject({
      progressToken: z.union([z.string(), z.number()]).optional(),
      hook: z.union([z.string(), z.number()]).optional(),
    })
    .optional()
    .describe("for the protocol itself, never for the command"),
};

/** The member of results of changes that names their place, if that is not the usual one. */
const commonResult = {
  durability: z
    .literal("local")
    .optional()
    .describe("with --fleet-away journal: it is on this machine alone, because the fleet's database is away"),
};

/** Returns a result as a change has it. */
function resultOfChange<R extends z.ZodType>(result: R): R {
  return isObjectSchema(result) ? (result.extend(commonResult) as z.ZodType as R) : result;
}

function isObjectSchema(schema: z.ZodType): schema is z.ZodObject {
  return "shape" in schema && schema.shape !== undefined;
}

/** A command with the types of its params and result, which exist for the compiler only: the typed client uses them. */
export interface Typed<N extends string, S extends z.ZodRawShape, R extends z.ZodType> extends Command {
  readonly name: N;
  readonly types?: { readonly params: z.input<z.ZodObject<S>>; readonly result: z.output<R> };
}

/**
 * The failures of a write to a session that can only be read for another reason than that it was opened so, or that is new
 * and has the id of one of the fleet.
 */
const FAILURES_OF_GUARD = ["unsupported_version", "migration_failed", "corrupt", "already_exists"] as const;

/** The failures of whatever writes to a session. */
const FAILURES_OF_WRITING = [
  "content_modified",
  "read_only",
  "session_locked",
  "outcome_unknown",
  "storage_full",
  "storage_failed",
] as const;

/** Declares a command. Adds the params and failures that all commands with its effect have. */
export function defineCommand<const N extends string, R extends z.ZodType, const S extends z.ZodRawShape = NoParams>(
  declaration: Declaration<S, R> & { readonly name: N },
): Typed<N, S, R> {
  const { effect, params = {} as S, failures = [] } = declaration;
  const onSession = effect !== "server" && effect !== "control";
  const changes = effect === "write" || effect === "replace";
  // Leaving a session may write to it, too: where its leaf is.
  const writes = changes || effect === "close";
  const { sessionId, expectedLeafId, idempotencyKey, _meta } = commonParams;
  const shape = {
    ...params,
    ...(onSession && !("sessionId" in params) ? { sessionId } : {}),
    ...(changes ? { expectedLeafId, idempotencyKey } : {}),
    _meta,
  };
  const common = [
    ...(onSession ? (["no_session", "session_not_found"] as const) : []),
    ...(writes ? FAILURES_OF_WRITING : []),
    ...(effect === "write" ? FAILURES_OF_GUARD : []),
  ];
  let result: R | undefined;
  let strict: z.ZodObject<typeof shape> | undefined;
  let loose: z.ZodObject<typeof shape> | undefined;
  return {
    ...declaration,
    // Made on first use, because a start does not need the schemas of all commands.
    get result() {
      result ??= changes ? resultOfChange(declaration.result()) : declaration.result();
      return result;
    },
    get params() {
      strict ??= z.strictObject(shape);
      return strict;
    },
    get looseParams() {
      loose ??= z.object(shape);
      return loose;
    },
    failures: [...new Set<FailureName>([...failures, ...common])],
    run: declaration.run as Command["run"],
    pi: declaration.pi as Command["pi"],
    about: declaration.about as Command["about"],
    readsOther: declaration.readsOther as Command["readsOther"],
  };
}
