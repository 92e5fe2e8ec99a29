/** The door of sharing: one live session, several processes. src/server/attach-module.ts has the contract. */

import type { SharingOptions } from "../../server/attach-module.ts";
import type { SharingStart } from "../../server/dispatch/sharing.ts";
import { makeAttachments } from "./announcing.ts";
import { SessionSharing } from "./sharing.ts";

export function makeSharing(options: SharingOptions): SharingStart {
  const client = `pi-session-server ${options.version}`;
  const attachments = makeAttachments({ ...options, client, now: () => options.env.now() });
  return {
    canJoin: (sessionPath) => attachments.find(sessionPath) !== null,
    share: (server) => new SessionSharing({ ...options, attachments, client, server }),
  };
}
