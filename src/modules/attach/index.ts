/** The door of sharing: one live session, several processes. src/server/attach-module.ts has the contract. */

import type { Env } from "../../core/ports/env.ts";
import type { SharingStart } from "../../server/dispatch/sharing.ts";
import { type AttachOptions, makeAttachments } from "./announcing.ts";
import { SessionSharing, type SharingLimits } from "./sharing.ts";

type SharingSettings = Omit<AttachOptions, "client" | "now"> & SharingLimits & { readonly env: Env };

export function makeSharing(options: SharingSettings): SharingStart {
  const client = `pi-session-server ${options.version}`;
  const attachments = makeAttachments({ ...options, client, now: () => options.env.now() });
  return {
    canJoin: (sessionPath) => attachments.find(sessionPath) !== null,
    share: (server) => new SessionSharing({ ...options, attachments, client, server }),
  };
}
