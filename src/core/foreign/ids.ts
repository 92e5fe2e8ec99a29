/** Ids that follow from the agent and its own ids, so that a file gives the same ones whenever it is read. */

import { bytesOf } from "../json/json.ts";
import type { Env } from "../ports/env.ts";

/** Hex digits of an entry id; where two entries of a session would have one id, the later one gets more of its hash. */
const DIGITS = 8;

export class Ids {
  private readonly agent: string;
  private readonly sha256: Env["sha256"];
  /** The hashes behind the ids that were given, by id. */
  private readonly given = new Map<string, string>();

  constructor(agent: string, sha256: Env["sha256"]) {
    this.agent = agent;
    this.sha256 = sha256;
  }

  /** Returns the id of the entry that is made of something with this id of the agent's. The same one, each time. */
  entry(nativeId: string): string {
    const hash = this.hashOf("entry", nativeId);
    const more = hash.slice(DIGITS, 2 * DIGITS);
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

  private hashOf(what: string, nativeId: string): string {
    return this.sha256(bytesOf(JSON.stringify([this.agent, what, nativeId])));
  }
}
