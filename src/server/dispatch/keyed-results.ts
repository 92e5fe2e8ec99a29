/** Idempotency keys: a repeated call returns the earlier result instead of being applied again. */

import { isDeepStrictEqual } from "node:util";
import { Failure } from "../../core/failure.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { CommandContext } from "../../handlers/shared/command.ts";
import type { Call } from "../connection/call.ts";

/** Results that are remembered; the oldest are forgotten first. */
const REMEMBERED_RESULTS = 10_000;

export interface KeyedParams {
  readonly expectedLeafId?: string | null;
  readonly idempotencyKey?: string;
}

/** A result, and the entries in which its key is. */
interface RememberedResult {
  readonly result: unknown;
  readonly entryIds: readonly string[];
}

export class KeyedResults {
  private readonly workspace: Workspace;
  private readonly results = new Map<string, RememberedResult>();
  /** Results of commands that run in any lane, while they run: a repeat may be in another one. */
  private readonly running = new Map<string, Promise<unknown>>();
  /** Messages of calls that did something, and were not answered by what an earlier one had done. */
  private readonly done = new WeakSet<Call["messageText"]>();

  constructor(workspace: Workspace) {
    this.workspace = workspace;
  }

  /**
   * Returns the result of an earlier write with this key: the one that is remembered, or made from its entries, where
   * they have other ids by now. What is gone from the session, though it was acknowledged, is as if it had never been asked.
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
    // The key of old entries is not found any more.
    const isThere = remembered?.entryIds.every((id) => session.log.nodes.position(id) >= 0);
    return isThere ? remembered?.result : undefined;
  }

  /**
   * Runs a write about a session that is not open, unless this process remembers its key. A command that leaves entries
   * looks for the key in the session instead.
   */
  once(call: Call, run: () => unknown): unknown {
    const { idempotencyKey } = call.params as KeyedParams;
    if (idempotencyKey === undefined || call.command.repeat) return run();
    const name = this.nameOf(call, idempotencyKey);
    return this.running.get(name) ?? this.results.get(name)?.result ?? this.remember(call, run());
  }

  /** Returns the positions of the entries that an earlier write with this key left. */
  positionsOf({ session }: CommandContext, call: Call, key: string): number[] {
    const ids = session.repeated(key)?.ids ?? this.results.get(this.nameOf(call, key))?.entryIds ?? [];
    return ids.map((id) => session.log.nodes.position(id));
  }

  /**
   * Makes the session of an earlier request with this key the current one again, as the earlier reply said, instead of
   * making another. Returns the result, or undefined when the session is missing.
   */
  async ofReplacement(context: CommandContext, call: Call, key: string): Promise<unknown> {
    const { command, params } = call;
    if (!command.recall) return undefined;
    const { workspace } = this;
    const { cwd, sessionId, newSessionId } = params as { cwd?: string; sessionId?: string; newSessionId?: string };
    const made = workspace.made(key, cwd, sessionId === undefined ? null : this.sourceWith(sessionId), newSessionId);
    if (!made) return undefined;
    try {
      await made.log.confirm?.();
      const remembered = this.results.get(this.nameOf(call, key))?.result as { sessionId?: string } | undefined;
      const result = remembered?.sessionId === made.id ? remembered : command.recall(context, made, params as never);
      if (made !== workspace.current) await context.replace(made, { reason: "resume" });
      return result;
    } catch (error) {
      workspace.release(made);
      throw error;
    }
  }

  /** Returns the session of which a request makes another, opened again where it was closed to make room, if it is there. */
  private sourceWith(sessionId: string): Session | undefined {
    try {
      return this.workspace.has(sessionId) ? this.workspace.session(sessionId) : undefined;
    } catch (error) {
      // Where its file is gone or none any more, what was made of it may be found elsewhere.
      if (!(error instanceof Failure) || error.retryable) throw error;
      return undefined;
    }
  }

  /** Returns the result, and remembers it for a repeat of the call with its key. `session`: the one that it wrote to. */
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
    // A vetoed call did nothing, and may be made again.
    const vetoed = (result as { cancelled?: boolean } | null)?.cancelled === true;
    const entryIds = (call.command.repeat && session?.repeated(idempotencyKey)?.ids) ?? [];
    if (!vetoed) this.results.set(this.nameOf(call, idempotencyKey), { result, entryIds });
    this.done.add(call.messageText);
    if (this.results.size > REMEMBERED_RESULTS) this.results.delete(this.results.keys().next().value as string);
    return result;
  }

  /** Forgets the result of a call that came to nothing. What an earlier one has done is done. */
  forget(call: Call): void {
    const { idempotencyKey } = (call.params ?? {}) as KeyedParams;
    if (idempotencyKey !== undefined && this.done.has(call.messageText))
      this.results.delete(this.nameOf(call, idempotencyKey));
  }

  /**
   * Returns the name of a result. It belongs to the session, or to the process if the command leaves the session. Where a
   * command finds out itself which session it is about, a repeat may find another one: what it names counts.
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
