/**
 * The protocol between a holder and its guests. Each message is a JSON object; one of these members shows its type.
 *
 * To the holder: `attach` {token, protocol, sessionId, client, durability, hooks, self, stand}, first and once; `call`
 * <number> with `name`, `loose` and `params`; `cancel` <number of a call>; `hooks` [names]; `self`, the client's
 * present description; `stand` {head, leafId}, the head of the calls after it, with the leaf of a head without entries,
 * or null for the shared leaf; `answer` <number> with `result` or `error`; `ping` true, which is answered at once;
 * `pong` true; `bye` true, last.
 *
 * From the holder: `attached` {epoch, client, pid} with `self` and `by`, the ids of the client and the holder's, or
 * `refused` <sentence>; `reply` <number> with `result` or `error`; `event` <name> with `payload`, and with `of`, the
 * number of the call that caused it, before its reply; `ask` <number> with `hook` and `payload`, and `withdraw`
 * <number>; `stood` true; `ping` true, which is answered at once; `pong` true; `lost` <count of events>; `bye` true,
 * last. Messages about the session have `leafId`, the guest's leaf; at a head, also `at` {head, lastId}, the head with
 * its last entry, and `sharedLeafId`. `attached` and `lost` have `lastId`: events report each entry after it; and
 * `clients`, all of them.
 */

import type { Command } from "../../handlers/shared/command.ts";
import type { HookName } from "../../handlers/shared/hooks.ts";
import { getRepetition } from "../../handlers/shared/repetition.ts";

/**
 * Returns whether the holder of a session runs a command for its guests: it writes entries and is recognized by its
 * key, so that a repeat after the holder's death changes nothing. Reading needs no holder. Another session is read only
 * by the server that received the call, which may be confined.
 */
export function isDoneByHolder(command: Command, params: unknown): boolean {
  // Only the holder knows the heads of all clients.
  if (command.name === "list_heads") return true;
  if (command.effect !== "write" || getRepetition(command) !== "entries") return false;
  const { otherPath, otherId } = (params ?? {}) as { otherPath?: unknown; otherId?: unknown };
  return otherPath === undefined && otherId === undefined;
}

/** Returns whether a command waits for earlier answers, and later calls for its own: it may store no key. */
export function runsAlone({ name }: Command): boolean {
  return name === "branch";
}

/** Returns whether a call may run while another call of the session waits for a host: it replaces no session. */
export function mayOverlap({ command, params }: { readonly command: Command; readonly params: unknown }): boolean {
  return command.effect === "read" || command.effect === "server" || isDoneByHolder(command, params);
}

/** Hooks asked by commands that a holder runs for guests. */
export const SHARED_HOOKS: readonly HookName[] = ["session_before_tree", "session_before_compact"];
