/**
 * The protocol between a holder and its guests. Each message is a JSON object; one of these members shows its type.
 *
 * To the holder: `attach` {token, protocol, sessionId, client, durability, hooks, self, stand}, first and once; `call`
 * <number> with `name`, `loose` and `params`, and with `consent` true if a former holder asked about it; `cancel` <number of a call>; `hooks` [names]; `self`, the client's
 * present description; `stand` {head, leafId}, the head of the calls after it, with the leaf of a head without entries,
 * or null for the shared leaf; `answer` <number> with `result` or `error`; `ping` true, which is answered at once;
 * `pong` true; `bye` true, last.
 *
 * From the holder: `attached` {epoch, client, pid} with `self` and `by`, the ids of the client and the holder's, or
 * `refused` <sentence>; `reply` <number> with `result` or `error`; `event` <name> with `payload`, and with `of`, the
 * number of the call that caused it, before its reply; `asks` <number of a call> before it asks a host about it; `ask`
 * <number> with `hook` and `payload`, and `withdraw` <number>; `stood` true; `ping` true, which is answered at once; `pong` true; `lost` <count of events>; `bye` true,
 * last. Messages about the session have `leafId`, the guest's leaf; at a head, also `at` {head, lastId}, the head with
 * its last entry, and `sharedLeafId`. `attached` and `lost` have `lastId`: events report each entry after it; and
 * `clients`, all of them.
 */

import type { HookName } from "../../handlers/shared/hooks.ts";

/** Hooks asked by commands that a holder runs for guests. */
export const SHARED_HOOKS: readonly HookName[] = ["session_before_tree", "session_before_compact"];
