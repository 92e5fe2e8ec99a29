/** The core's access to the world: clock, ids and a hash. Made in storage/system-env.ts, passed in everywhere. */
export interface Env {
  /** Returns milliseconds since the epoch. */
  now(): number;
  /** Returns a new UUIDv7, for sessions. */
  sessionId(): string;
  /** Returns eight random hex digits, for entries. */
  entryId(): string;
  /** Returns the SHA-256 as lower-case hex. */
  sha256(bytes: Uint8Array): string;
}

/** Returns the time as every entry and header has it: ISO 8601 in UTC with milliseconds. */
export function makeTimestamp(env: Env): string {
  const now = env.now();
  if (now !== latest) {
    latest = now;
    latestText = new Date(now).toISOString();
  }
  return latestText;
}

/** The last time and its text, kept because many entries may be made in one millisecond. */
let latest = Number.NaN;
let latestText = "";
