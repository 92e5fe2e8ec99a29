/** The local host, as other clients of its sessions see it. */

import { type SharedClient, toShownName } from "../../core/ports/attach.ts";
import { type Env, makeTimestamp } from "../../core/ports/env.ts";
import type { Session } from "../../core/session/session.ts";
import type { Introduction } from "../../handlers/shared/command.ts";

/** The local host, for each session that it has open. */
export class OwnPresence {
  private readonly env: Env;
  private readonly since = new WeakMap<Session, string>();
  private id: string | undefined;
  private named: { name: string | null; version?: string } = { name: null };

  constructor(env: Env) {
    this.env = env;
  }

  /** Stores the host's name for itself. */
  introduce({ client }: Introduction): void {
    const version = toShownName(client?.version);
    if (client) this.named = { name: toShownName(client.name), ...(version === null ? {} : { version }) };
  }

  /** Records when a session became shareable. */
  note(session: Session): void {
    if (!this.since.has(session)) this.since.set(session, makeTimestamp(this.env));
  }

  on(session: Session): SharedClient {
    this.id ??= this.env.sessionId();
    const since = this.since.get(session);
    return { id: this.id, ...this.named, pid: process.pid, ...(since === undefined ? {} : { since }) };
  }
}
