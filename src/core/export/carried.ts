/** The messages that a compaction carries: copies of entries before it, which a part of the session may have without those. */

import { findFirstKept, findRetainedMessages } from "../context/context.ts";
import { resolveAttachments } from "../format/attachments.ts";
import type { Session } from "../session/session.ts";

/** Yields their JSON texts, with the bytes of attachments in them. */
export function* readCarriedTexts(session: Session, compaction: number): Generator<Uint8Array> {
  const { retained = 0 } = findFirstKept(session.tree, session, compaction);
  if (retained === 0) return;
  const line = session.line(compaction);
  const read = (sha256: string, size: number) => session.log.attachment(compaction, sha256, size);
  for (const { start, end } of findRetainedMessages(line)) yield resolveAttachments(line.subarray(start, end), read);
}
