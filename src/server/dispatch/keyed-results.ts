/** Idempotency keys: a repeated call returns the earlier result instead of being applied again. */

import { isDeepStrictEqual } from "node:util";
import type * as z from "zod";
import { Failure, UnaskedFailure } from "../../core/failure.ts";
import type { Maker } from "../../core/session/keyed-request.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { areCertain } from "../../core/session/writer.ts";
import type { CommandContext, commonParams } from "../../handlers/shared/command.ts";
import type { Call } from "../connection/call.ts";

/** Number of remembered results; the oldest are forgotten first. */
const REMEMBERED_RESULTS = 10_000;

export type KeyedParams = Readonly<z.output<z.ZodObject<typeof commonParams>>>;

/** A result, and the entries with its key. */
interface RememberedResult {
  readonly result: unknown;
  readonly entryIds: readonly string[];
}

/** Returns whether a session has entries with the key of a call, which no process discards any more. */
export function hasEntriesOf(session: Session | null, { params }: Call): boolean {
  const { idempotencyKey } = (params ?? {}) as KeyedParams;
  if (!session || idempotencyKey === undefined) return false;
  try {
    const { ids } = session.repeated(idempotencyKey) ?? {};
    return (
      ids !== undefined &&
      areCertain(
        session,
        ids.map((id) => session.log.nodes.position(id)),
      )
    );
  } catch {
    // The disk does not read them now.
    return false;
  }
}

/** Returns the error to report of a write: outcome_unknown if an earlier request with its key may be there. */
export function toKeyedError({ params }: Call, error: unknown): unknown {
  const { idempotencyKey } = (params ?? {}) as KeyedParams;
  if (!(error instanceof UnaskedFailure) || idempotencyKey === undefined) return error;
  const text = {
    what: error.text.what,
    state:
      "This request changed nothing; whether an earlier one with its idempotencyKey was stored is unknown until the database answers.",
    advice: "Send it again with the same key.",
  };
  return new Failure("outcome_unknown", text, error.details, { cause: error, retryable: true });
}

export class KeyedResults {
  private readonly workspace: Workspace;
  private readonly results = new Map<string, RememberedResult>();
  /** Results of running commands: a repeat may come in another lane. */
  private readonly running = new Map<string, Promise<unknown>>();
  /** Messages of calls that did their own work, rather than being answered with an earlier result. */
  private readonly done = new WeakSet<Call["messageText"]>();

  constructor(workspace: Workspace) {
    this.workspace = workspace;
  }

  /**
   * Returns the result of an earlier write with this key: the remembered one, or one made from its entries if they have
   * new ids. If acknowledged entries are gone from the session, the write counts as never made.
   */
  ofWrite(context: CommandContext, call: Call, key: string): unknown {
    const { command } = call;
    const { session } = context;
    const name = this.nameOf(call, key);
    const running = this.running.get(name);
    if (running) return running;
    const remembered = this.results.get(name);
    const entryIds = command.repeat && session.repeated(key)?.ids;
    if (entryIds && !isDeepStrictEqual(remembered?.entryIds, entryIds))
      return command.repeat?.(context, entryIds, call.params as never);
    // Keys of old entries are not found any more.
    const isThere = remembered?.entryIds.every((id) => session.log.nodes.position(id) >= 0);
    return isThere ? remembered?.result : undefined;
  }

  /**
   * Runs a write about a closed session, unless this process remembers its key. A command that appends entries searches
   * the session for the key instead.
   */
  once(call: Call, run: () => unknown): unknown {
    const { idempotencyKey } = call.params as KeyedParams;
    if (idempotencyKey === undefined || call.command.repeat) return run();
    const name = this.nameOf(call, idempotencyKey);
    return this.running.get(name) ?? this.results.get(name)?.result ?? this.remember(call, run());
  }

  /** Returns the positions of the entries of an earlier write with this key. */
  positionsOf({ session }: CommandContext, call: Call, key: string): number[] {
    const ids = session.repeated(key)?.ids ?? this.results.get(this.nameOf(call, key))?.entryIds ?? [];
    return ids.map((id) => session.log.nodes.position(id));
  }

  /**
   * Makes the session of an earlier call with this key the current one again, instead of making another. Returns the
   * result, or undefined if the session is missing.
   */
  async ofReplacement(context: CommandContext, call: Call, key: string): Promise<unknown> {
    const { command, params } = call;
    if (!command.recall) return undefined;
    const { workspace } = this;
    const { cwd, sessionId } = params as { cwd?: string; sessionId?: string };
    const source = sessionId === undefined ? undefined : this.sourceWith(sessionId);
    const made = await workspace.made({ command: command.name as Maker, key, id: context.keyedId, cwd, source });
    if (!made) return undefined;
    try {
      await made.log.replica?.confirm();
      type Made = { readonly sessionId: string; readonly sessionFile: string | null };
      const remembered = this.results.get(this.nameOf(call, key))?.result as Made | undefined;
      const isSame = remembered?.sessionId === made.id && remembered.sessionFile === made.file;
      const result = isSame ? remembered : command.recall(context, made, params as never);
      if (made !== workspace.current) await context.replace(made, { reason: "resume" });
      return result;
    } catch (error) {
      workspace.release(made);
      throw error;
    }
  }

  /** Returns the source session of a request, reopened if it was closed for capacity, if it exists. */
  private sourceWith(sessionId: string): Session | undefined {
    try {
      return this.workspace.has(sessionId) ? this.workspace.session(sessionId) : undefined;
    } catch (error) {
      // Without a readable file, the derived session may be found elsewhere.
      if (!(error instanceof Failure) || error.retryable) throw error;
      return undefined;
    }
  }

  /** Returns the result after remembering it for a repeat of the call with its key. `session`: the changed session. */
  remember(call: Call, result: unknown, session?: Session): unknown {
    const { idempotencyKey } = call.params as KeyedParams;
    if (idempotencyKey === undefined) return result;
    if (result instanceof Promise) {
      const remembered = result.then((value) => this.remember(call, value, session));
      if (!call.command.about) return remembered;
      const name = this.nameOf(call, idempotencyKey);
      const running = remembered.finally(() => this.running.delete(name));
      this.running.set(name, running);
      return running;
    }
    // A vetoed call changed nothing, and may be repeated.
    const vetoed = (result as { cancelled?: boolean } | null)?.cancelled === true;
    const entryIds = (call.command.repeat && session?.repeated(idempotencyKey)?.ids) ?? [];
    if (!vetoed) this.results.set(this.nameOf(call, idempotencyKey), { result, entryIds });
    this.done.add(call.messageText);
    if (this.results.size > REMEMBERED_RESULTS) this.results.delete(this.results.keys().next().value as string);
    return result;
  }

  /** Forgets the result of a call without effect. Results of earlier calls remain. */
  forget(call: Call): void {
    const { idempotencyKey } = (call.params ?? {}) as KeyedParams;
    if (idempotencyKey !== undefined && this.done.has(call.messageText))
      this.results.delete(this.nameOf(call, idempotencyKey));
  }

  /**
   * Returns the name of a result. It includes the session, or the process if the command leaves the session. If a
   * command finds its session itself, a repeat may find another one, so its parameters count.
   */
  private nameOf({ command, params, target }: Call, key: string): string {
    const { sessionId, sessionPath, operationId } = params as Record<string, string | undefined>;
    const given = sessionPath ?? sessionId;
    let of = "";
    if (command.about) of = `${operationId ?? ""} ${given ?? ""}`;
    else if (command.effect === "write") of = target?.id ?? given ?? this.workspace.current?.id ?? "";
    return `${of}\n${command.name}\n${key}`;
  }
}
