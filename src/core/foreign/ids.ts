/** Ids that follow from the agent and its own ids, so that a file gives the same ones whenever it is read. */

import type { Env } from "../ports/env.ts";
import { packId } from "../tree/nodes.ts";

/** Hex digits of an entry id; if two entries of a session would have one id, the later one gets more of its hash. */
const DIGITS = 8;

export class Ids {
  /** Beginnings of the hashed texts; an agent's name has letters and digits only. */
  private readonly beginnings: Readonly<Record<"entry" | "session", string>>;
  private readonly sha256: Env["sha256"];
  /** More of the hashes behind the ids that were given, as numbers. */
  private readonly given = new Map<string, number>();

  constructor(agent: string, sha256: Env["sha256"]) {
    this.beginnings = { entry: `["${agent}","entry",`, session: `["${agent}","session",` };
    this.sha256 = sha256;
  }

  /** Returns the id of the entry that is made of something with this id of the agent's. The same one, each time. */
  entry(nativeId: string): string {
    const hash = this.hashOf("entry", nativeId);
    const more = packId(hash.slice(DIGITS, 2 * DIGITS));
    for (let digits = DIGITS; ; digits += DIGITS) {
      const id = hash.slice(0, digits);
      const before = this.given.get(id);
      if (before === undefined) this.given.set(id, more);
      if (before === undefined || before === more) return id;
    }
  }

  /** Returns the id of a session, as a UUID of version 8. */
  session(nativeId: string): string {
    const h = this.hashOf("session", nativeId);
    const variant = "89ab"[Number.parseInt(h[16], 16) & 3];
    return `${h.slice(0, 8)}-${h.slice(8, 12)}-8${h.slice(13, 16)}-${variant}${h.slice(17, 20)}-${h.slice(20, 32)}`;
  }

  private hashOf(what: "entry" | "session", nativeId: string): string {
    return this.sha256(Buffer.from(`${this.beginnings[what]}${JSON.stringify(nativeId)}]`));
  }
}

/** Returns whether a session id is derived from another agent's, as in imported sessions: a UUID of version 8. */
export function isDerivedId(id: string): boolean {
  return /^[0-9a-f]{8}-[0-9a-f]{4}-8/.test(id);
}
