/** What the core needs of the world: clock, ids and a hash. Made in store/env.ts, passed in everywhere. */
export interface Env {
  /** Milliseconds since the epoch. */
  now(): number;
  /** A new UUIDv7, for sessions. */
  sessionId(): string;
  /** Eight random hex digits, for entries. */
  entryId(): string;
  /** SHA-256 as lower-case hex. */
  sha256(bytes: Uint8Array): string;
}

/** ISO 8601 in UTC with milliseconds, as every entry and header carries it. */
export function timestamp(env: Env): string {
  const now = env.now();
  if (now !== latest) {
    latest = now;
    latestText = new Date(now).toISOString();
  }
  return latestText;
}

/** Many entries may be made in one millisecond. */
let latest = Number.NaN;
let latestText = "";
