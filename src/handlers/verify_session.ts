import * as z from "zod";
import type { Damage } from "../core/format/damage.ts";
import type { StoreFinding } from "../core/ports/migrations.ts";
import { type Verdict, verifying } from "../core/session/check.ts";
import type { Session } from "../core/session/session.ts";
import { type CommandContext, command } from "./shared/command.ts";
import { damage } from "./shared/shapes.ts";

export default command({
  name: "verify_session",
  summary: "Reads every byte of a session and reports what is damaged. Changes nothing.",
  effect: "read",
  ofAny: true,
  params: { sessionPath: z.string().min(1).optional().describe("the current session by default") },
  result: z.object({
    damage: z.array(damage),
    invariants: z
      .record(z.string(), z.boolean())
      .describe("which rules the stored session keeps; for Session Store V2 also INV-001 to INV-007"),
    unreadableForRust: z
      .array(z.object({ entryId: z.string(), reason: z.string() }))
      .describe("entries that pi_agent_rust skips; it opens such a session for reading only"),
    ok: z.boolean().describe("no damage"),
  }),
  failures: ["session_not_found", "not_a_session", "storage_failed"],
  example: { params: {}, result: { damage: [], invariants: { linesReadable: true }, unreadableForRust: [], ok: true } },
  async run(context, { sessionPath }) {
    const { workspace } = context;
    const session = context.target ?? workspace.open({ sessionPath: sessionPath as string });
    const isOpen = workspace.sessions.includes(session);
    try {
      let verdict = await verified(context, session);
      // An open session notifies the host of entries that were hidden. For this one, the result itself must include
      // them.
      if (!isOpen && session.refresh()) verdict = await verified(context, session);
      const store = await auditOf(context, session);
      const more = (store?.findings ?? []).map(damageOf).filter((found) => !isReported(verdict.damage, found));
      return {
        damage: [...verdict.damage, ...more].map((found) => ({ ...found })),
        invariants: { ...verdict.invariants, ...store?.invariants },
        unreadableForRust: [...verdict.unreadableForRust],
        ok: verdict.ok && (store?.ok ?? true),
      };
    } finally {
      workspace.release(session);
    }
  },
});

/** Verifies a session with pauses, in which other sessions are served and progress is reported. */
async function verified({ workspace, progress }: CommandContext, session: Session): Promise<Verdict> {
  const { count } = session.log.nodes;
  const step = Math.max(1, Math.floor(count / 100));
  const steps = verifying(session);
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
async function auditOf({ workspace, progress }: CommandContext, session: Session) {
  const { file, log } = session;
  if (log.store !== "v2" || file === null || !log.persisted) return undefined;
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
