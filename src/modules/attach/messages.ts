/** Validates messages of a holder, which may be faulty, or not a server of this kind. */

import { Failure } from "../../core/failure.ts";
import { type SharedClient, type SharedHolder, toSharedClient } from "../../core/ports/attach.ts";
import { eventNames } from "../../handlers/shared/event-names.ts";
import type { EventName } from "../../handlers/shared/events.ts";
import type { Call } from "../../server/connection/call.ts";
import type { PipeMessage } from "./pipe.ts";

type Value = PipeMessage["value"];

/** Returns the holder in its reply to `attach`; undefined if it refused. */
export function parseHolder({ attached }: Value): SharedHolder | undefined {
  if (!isObject(attached)) return undefined;
  const { epoch, client, pid } = attached;
  if (!Number.isSafeInteger(epoch) || !Number.isSafeInteger(pid) || typeof client !== "string") return undefined;
  return { epoch: epoch as number, client, pid: pid as number };
}

/** Returns the client in a payload for the local host; without members if it is invalid. */
export function parseClient(payload: unknown): Partial<SharedClient> {
  const { id, name, pid } = toSharedClient((payload as { client?: unknown } | null)?.client) ?? {};
  return { id, name, pid };
}

/** Returns the failure of a call that the holder has not answered, with the reason for giving up. */
export function makeUnansweredFailure({ command }: Call, { client, pid }: SharedHolder, why: string): Failure {
  const sentence = `${client} (process ${pid}), which holds this session, has not answered. ${why}`;
  const details = { holder: { client, pid } };
  // A read changes nothing, so its outcome is not in doubt.
  if (command.effect === "read")
    return new Failure("session_locked", `${sentence} Ask again later.`, details, { retryable: true });
  const rest = "Whether it did this is not known: read the state, or send it again with the same idempotencyKey.";
  return new Failure("outcome_unknown", `${sentence} ${rest}`, details, { retryable: true });
}

/** Throws SyntaxError for an invalid message. Unknown members and events belong to a newer version and are allowed. */
export function requireValidMessage(value: Value): void {
  const { reply, event, lost, at, leafId = null, lastId = null, sharedLeafId = null } = value;
  const isValid =
    [leafId, lastId, sharedLeafId].every(isIdOrNull) &&
    (at === undefined || (isObject(at) && typeof at.head === "string" && isIdOrNull(at.lastId))) &&
    (reply === undefined || isReply(value)) &&
    (event === undefined || isEvent(value)) &&
    (lost === undefined || (Number.isSafeInteger(lost) && (lost as number) > 0));
  if (!isValid) throw new SyntaxError("no holder says that");
}

function isIdOrNull(id: unknown): boolean {
  return id === null || typeof id === "string";
}

function isReply({ reply, result, error }: Value): boolean {
  if (!Number.isSafeInteger(reply)) return false;
  if (error === undefined) return result !== undefined;
  if (!isObject(error) || !isObject(error.data)) return false;
  return Number.isSafeInteger(error.code) && typeof error.sentence === "string" && typeof error.name === "string";
}

function isEvent({ event, payload }: Value): boolean {
  if (typeof event !== "string" || !isObject(payload)) return false;
  const { entryIds } = payload;
  return event !== "session_append" || (Array.isArray(entryIds) && entryIds.every((id) => typeof id === "string"));
}

/** Returns whether this version knows an event. */
export function isKnownEvent(event: string): event is EventName {
  return (eventNames as readonly string[]).includes(event);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
