/** The holder and the clients of a session that several processes share, as these see each other. */

/** The process that holds a session which several share. */
export interface SharedHolder {
  /** Grows with every holder. */
  readonly epoch: number;
  /** The name that it gives itself. */
  readonly client: string;
  readonly pid: number;
}

/** A program that has a session open through a server of its own, as the others that share the session see it. */
export interface SharedClient {
  /** The same for the lifetime of its server, independent of the session's holder. */
  readonly id: string;
  /** As it calls itself; null until it does. Text of a stranger, but short and without control characters. */
  readonly name: string | null;
  readonly version?: string;
  /** The process of its server, in its own pid namespace; 0 if that is unknown. */
  readonly pid: number;
  /** The time when it joined the session; missing if sessions are not shared. */
  readonly since?: string;
}

/** Characters of a name that are passed on. */
const LONGEST_NAME = 200;
/** Pattern of forbidden characters in a name: terminals and lists show it, and it must not move or hide anything. */
const UNSHOWN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const CLIENT_ID = /^[\w-]{1,64}$/;
const TIME = /^\d{4}-\d\d-\d\dT[\d:.]{1,16}Z$/;

/** Returns a client's own name as it may be shown; null for an invalid one. */
export function toShownName(given: unknown): string | null {
  if (typeof given !== "string") return null;
  // Only as much is looked at as can be kept.
  const text = [...given.slice(0, 2 * LONGEST_NAME)].slice(0, LONGEST_NAME).join("");
  return text.replace(UNSHOWN, "\u{fffd}").trim() || null;
}

/** Returns the client that another process describes, with harmless characters only; null without an id. */
export function toSharedClient(given: unknown): SharedClient | null {
  if (typeof given !== "object" || given === null) return null;
  const { id, name, version, pid, since } = given as Record<keyof SharedClient, unknown>;
  if (typeof id !== "string" || !CLIENT_ID.test(id)) return null;
  const shownVersion = toShownName(version);
  return {
    id,
    name: toShownName(name),
    ...(shownVersion === null ? {} : { version: shownVersion }),
    pid: Number.isSafeInteger(pid) && (pid as number) > 0 ? (pid as number) : 0,
    ...(typeof since === "string" && TIME.test(since) ? { since } : {}),
  };
}
