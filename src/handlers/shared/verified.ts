/** Verifies one session: what reading all of it shows and, of a container, what its rules say. */

import type { Damage } from "../../core/format/damage.ts";
import type { StoreFinding } from "../../core/ports/migrations.ts";
import { type Verdict, verifyInSteps } from "../../core/session/check.ts";
import type { Session } from "../../core/session/session.ts";
import type { CommandContext, Report } from "./command.ts";

/** The verdict on a session, with the invariants of its store. */
type WholeVerdict = Omit<Verdict, "invariants"> & { readonly invariants: Readonly<Record<string, boolean>> };

/** Reads all of a session. `isOpen`: whether the host has it open. Throws storage_failed. */
export async function verifyAll(
  context: Pick<CommandContext, "workspace">,
  session: Session,
  isOpen: boolean,
  progress?: Report,
): Promise<WholeVerdict> {
  let verdict = await readThrough(context, session, progress);
  // An open session notifies the host of entries that were hidden. For another, the result itself must include them.
  if (!isOpen && session.refresh()) verdict = await readThrough(context, session, progress);
  const store = await auditOf(context, session, progress);
  const more = (store?.findings ?? []).map(damageOf).filter((found) => !isReported(verdict.damage, found));
  return {
    damage: [...verdict.damage, ...more],
    invariants: { ...verdict.invariants, ...store?.invariants },
    unreadableForRust: verdict.unreadableForRust,
    ok: verdict.ok && (store?.ok ?? true),
  };
}

/** Verifies a session with pauses, which serve other sessions and report progress. */
async function readThrough(
  { workspace }: Pick<CommandContext, "workspace">,
  session: Session,
  progress?: Report,
): Promise<Verdict> {
  const { count } = session.log.nodes;
  const step = Math.max(1, Math.floor(count / 100));
  const steps = verifyInSteps(session);
  let reported = 0;
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    if (value - reported >= step) {
      reported = value;
      progress?.(value, count);
    }
    await workspace.stores.pause();
  }
}

/** Audits the session's container; returns undefined when it has none. */
async function auditOf({ workspace }: Pick<CommandContext, "workspace">, session: Session, progress?: Report) {
  const { file, log } = session;
  if (log.store !== "v2" || file === null || !log.persisted) return undefined;
  // The rules of a newer version are not known.
  if (log.readOnly?.name === "unsupported_version") return undefined;
  // Entries that are not durable yet have no index rows.
  if (log.readOnly === null) await session.commit();
  return workspace.stores.migrations.audit(file, progress);
}

function damageOf({ invariant, file, byteOffset, length, entryId, reason, recoverable }: StoreFinding): Damage {
  return {
    kind: file.startsWith("segments/") ? "bad_body" : "bad_index",
    line: 0,
    byteOffset,
    length,
    ...(entryId === undefined ? {} : { entryId }),
    reason: `${reason} (${invariant === null ? file : `${file}, ${invariant}`})`,
    salvaged: recoverable,
  };
}

/** Returns whether reading the session found the same damage. */
function isReported(known: readonly Damage[], { kind, entryId, byteOffset }: Damage): boolean {
  return (
    kind === "bad_body" &&
    known.some((found) => found.byteOffset === byteOffset && (found.entryId ?? entryId) === entryId && found.length > 0)
  );
}
