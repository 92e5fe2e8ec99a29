/**
 * The words between a holder and those who join it. Each message is a JSON object with one of these
 * members, which says what it is.
 *
 * To the holder: `attach` {token, protocol, sessionId, client, durability, hooks, self, stand}, first and once; `call`
 * <number> with `name`, `loose` and `params`; `cancel` <number of a call>; `hooks` [names]; `self`, who the client is now;
 * `stand` {head, leafId}, the head at which the calls after it are made, and where that is if it has no entries, or null
 * for the shared leaf; `answer` <number> with `result` or `error`; `ping` true, which is answered at once; `pong` true; `bye` true, last.
 *
 * From the holder: `attached` {epoch, client, pid} with `self` and `by`, the ids of the client and the holder's, or
 * `refused` <sentence>; `reply` <number> with `result` or `error`;
 * `event` <name> with `payload`, and with `of`, the number of the call that caused it, before the reply to that; `ask`
 * <number> with `hook` and `payload`, and `withdraw` <number>; `stood` true; `ping` true, which is answered at once; `pong` true; `lost` <count of events>; `bye`
 * true, last. Those that tell of the session have `leafId`, the leaf of whoever joined; where that is of a head, also
 * `at` {head, lastId}, the head with its last entry, and `sharedLeafId`. `attached` and `lost` have `lastId`: events tell
 * of each entry after it; and `clients`, all of them.
 */

import type { Command } from "../../handlers/shared/command.ts";
import type { HookName } from "../../handlers/shared/hooks.ts";
import { repetitionOf } from "../../handlers/shared/repetition.ts";

/**
 * Returns whether a command on a session that another process holds is done there: it writes entries and is found again
 * by its key, so that nothing is done twice when the holder dies. Reading needs no holder, and another session is read
 * only by the server that was asked, which may be confined.
 */
export function isDoneByHolder(command: Command, params: unknown): boolean {
  // Only the holder knows who stands where.
  if (command.name === "list_heads") return true;
  if (command.effect !== "write" || repetitionOf(command) !== "entries") return false;
  const { otherPath, otherId } = (params ?? {}) as { otherPath?: unknown; otherId?: unknown };
  return otherPath === undefined && otherId === undefined;
}

/** Returns whether a command waits for the answers before it, and those after it for its own: it may leave no key. */
export function isAlone({ name }: Command): boolean {
  return name === "branch";
}

/** Returns whether a call may run while another one of the same session waits for a host: it leaves the session in place. */
export function isBeside({ command, params }: { readonly command: Command; readonly params: unknown }): boolean {
  return command.effect === "read" || command.effect === "server" || isDoneByHolder(command, params);
}

/** Hooks that commands ask which a holder runs for others. */
export const HOOKS: readonly HookName[] = ["session_before_tree", "session_before_compact"];
