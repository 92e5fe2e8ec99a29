/** The attachments of working copies: uploaded before the lines that name them, and fetched before these lines. */

import { findAttachments } from "../../../core/format/attachments.ts";
import type { Fleet, FleetAttachment } from "../../../core/ports/fleet.ts";
import type { AttachmentFolder } from "../../../storage/log/attachments.ts";

interface WithAttachments {
  readonly attachments: AttachmentFolder;
}

/** Returns the attachments that lines name. */
export function listNamedAttachments(
  { attachments }: WithAttachments,
  lines: readonly Uint8Array[],
): FleetAttachment[] {
  const named = new Set(lines.flatMap(findAttachments));
  return Array.from(named, (sha256) => ({ sha256, read: () => attachments.read(sha256) }));
}

/**
 * Fetches the attachments that lines name; undefined if they name none. Skips those that the fleet lacks or has
 * damaged: reading the entry reports them.
 */
export function fetchNamed(
  fleet: Fleet,
  log: WithAttachments,
  lines: readonly Uint8Array[],
): Promise<void> | undefined {
  const named = new Set(lines.flatMap(findAttachments));
  return named.size === 0 ? undefined : fetchAll(fleet, log, named);
}

/** Fetches the attachments that a session has in the fleet, and that are not here. */
export async function fetchMissing(fleet: Fleet, log: WithAttachments, sessionId: string): Promise<void> {
  await fetchAll(fleet, log, await fleet.attachments(sessionId));
}

async function fetchAll(fleet: Fleet, { attachments }: WithAttachments, named: Iterable<string>): Promise<void> {
  for (const sha256 of named) {
    if (attachments.has(sha256)) continue;
    const bytes = await fleet.attachment(sha256);
    if (bytes) await attachments.keep(sha256, bytes);
  }
}

/** Uploads the attachments of a session that the fleet lacks or has damaged. */
export async function uploadMissingAttachments(fleet: Fleet, log: WithAttachments, sessionId: string): Promise<void> {
  const { attachments } = log;
  const there = attachments.names().map((sha256) => ({ sha256, read: () => attachments.read(sha256) }));
  if (there.length > 0) await fleet.attach(sessionId, there);
}

/** Yields the attachments of a session in the fleet with their bytes; null if these are missing or damaged. */
export async function* fetchAttachments(
  fleet: Pick<Fleet, "attachments" | "attachment">,
  sessionId: string,
  isChecked: (sha256: string) => boolean = () => false,
): AsyncGenerator<readonly [sha256: string, bytes: Uint8Array | null]> {
  for (const sha256 of await fleet.attachments(sessionId)) {
    if (isChecked(sha256)) continue;
    yield [sha256, await fleet.attachment(sha256)];
  }
}
