/** The lock that keeps other writers of a session out, and the process that holds it. */

/**
 * The kind of a lock, which decides its reach. `sqlite` and `flock`: a file next to the session carries the lock, so it
 * holds wherever that file can be opened. `socket`: within one network namespace of Linux. `file`: among processes that
 * share a state folder or a user's folder for temporary files.
 */
export type LockKind = "sqlite" | "flock" | "socket" | "file";

/** Another process that is writing to a session. */
export interface Holder {
  /** The name it gives itself. */
  readonly client: string;
  readonly pid: number;
  /** ISO 8601. */
  readonly since: string;
  /** The name of its machine, if that may be another than this one. */
  readonly host?: string;
}

/** The lock that keeps other writers out while this process writes. */
export interface LogLock {
  /** True if this process is the writer on this machine. */
  readonly isHeld: boolean;
  /** Null while this process holds none. */
  readonly kind: LockKind | null;
  /** Another process that is writing to the session now; appending would fail with session_locked. */
  readonly holder: Holder | null;
  /**
   * Becomes the only writer, if the log is persisted; `append` does this by itself. Returns whether it was not the
   * writer before, so that other processes may have written in between. Throws session_locked, naming the holder.
   */
  acquire(): boolean;
  /** Lets other processes write. */
  release(): void;
  /** Loads the needs of `acquire`, so that its first call is not slower. Takes no lock, and never throws. */
  prepare(): void;
  /**
   * Makes sure, while this process is the writer, that other processes see the lock: its files may have been removed.
   * If another process has become the writer, this one no longer is. Never throws.
   */
  renew(): void;
  /**
   * Has `run`, which throws nothing, called before the lock is released, in whatever way; undefined: calls nothing any
   * more. An announcement that this process has the lock must be gone at that time: the next owner makes its own.
   */
  beforeRelease(run: (() => void) | undefined): void;
}

/** The lock of a log without other writers. */
export const NO_LOCK: LogLock = {
  isHeld: false,
  kind: null,
  holder: null,
  acquire: () => false,
  release() {},
  prepare() {},
  renew() {},
  beforeRelease() {},
};
