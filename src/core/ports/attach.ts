/**
 * The contract of attaching: how a process that finds a session locked reaches the holder of the lock. Only the lock
 * decides who owns a session; an announcement only gives an address, and may be missing or late at any time.
 */

/** The major version of the protocol of an attached stream. */
export const ATTACH_PROTOCOL = 1;

/** The facts that a holder publishes for processes that want to join it. */
export interface Announcement {
  /** 256 random bits in base64url. A joining client proves with them that it has read the announcement. */
  readonly token: string;
  /** Larger than that of every holder before, as far as this process can know: their number plus one, or the time. */
  readonly epoch: number;
  /** See {@link ATTACH_PROTOCOL}; that of the holder. */
  readonly protocol: number;
  /** Version of the holder's program. */
  readonly version: string;
  /** The holder's name for people, as its lock has it. */
  readonly client: string;
  /** The holder's process, in its own pid namespace. */
  readonly pid: number;
}

/** A holder's listening socket, announced. */
export interface Entrance {
  readonly announcement: Announcement;
  /**
   * Announces the same at the file that replaced the session's, after a repair or a move. Connected clients stay
   * connected. If that fails, no other process can find the holder until the next call. Never throws.
   */
  moved(file: string): void;
  /**
   * Stops listening and removes socket and announcement, if they are still ours, while the lock is held: without it,
   * the next holder may replace them by its own in between. Connected clients stay connected. Never throws.
   */
  close(): void;
  /** Does the same without the lock: the announcement stays, as that of a holder that died. Never throws. */
  abandon(): void;
  /** Announces the holder again if other programs removed the announcement, as cleaners of folders do. Never throws. */
  renew(): void;
}

/** A holder as its announcement describes it, which may have died since. */
export interface FoundHolder<Stream> {
  readonly announcement: Announcement;
  /** Connects to the holder. Rejects at once when no process listens. A stopped holder accepts, and is silent. */
  connect(): Promise<Stream>;
}

/** Ways in and out between the processes of one user on one kernel. `Stream`: bytes in both directions, in order. */
export interface Attachments<Stream> {
  /**
   * Listens for clients that want to join the session at `file`, a session file or a container, whose lock this process
   * holds. `entered` gets each one before it has shown the token. Does not keep the process alive. Returns null if
   * listening fails. Never throws: the lock is held all the same.
   */
  open(file: string, entered: (stream: Stream) => void): Entrance | null;
  /**
   * Finds the announced holder of the session at `file`. Returns null when this process can join none. Creates and
   * removes nothing, and never throws.
   */
  find(file: string): FoundHolder<Stream> | null;
}

/** Returns whether a client gave the token of an announcement. Takes the same time for every wrong one. */
export function isToken(given: unknown, { token }: Pick<Announcement, "token">): boolean {
  if (typeof given !== "string" || given.length !== token.length) return false;
  let difference = 0;
  for (let at = 0; at < token.length; at++) difference |= given.charCodeAt(at) ^ token.charCodeAt(at);
  return difference === 0;
}

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
