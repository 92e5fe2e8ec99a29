import * as z from "zod";
import { lookAt } from "./shared/any-session.ts";
import { defineCommand } from "./shared/command.ts";
import { damageResult, fidelity } from "./shared/shapes.ts";
import { verifyAll } from "./shared/verified.ts";

export default defineCommand({
  name: "verify_session",
  summary: "Reads every byte of a session and reports damage. Changes nothing.",
  effect: "read",
  ofAny: true,
  params: { sessionPath: z.string().min(1).optional().describe("the current session by default") },
  result: () =>
    z.object({
      damage: z.array(damageResult()),
      invariants: z
        .record(z.string(), z.boolean())
        .describe("which rules the stored session keeps; for Session Store V2 also INV-001 to INV-007"),
      unreadableForRust: z
        .array(z.object({ entryId: z.string(), reason: z.string() }))
        .describe("entries that pi_agent_rust skips; it opens such a session for reading only"),
      ok: z
        .boolean()
        .describe(
          "whether there is no damage; ambiguous_leaf, no_parent, invalid_boundary, newer_branch, parent_is_call, " +
            "newer_version, no_message and incomplete_message are remarks, for the entries are whole",
        ),
      fidelity: fidelity().optional().describe("of another agent's session: what became of its records"),
    }),
  failures: ["session_not_found", "path_outside_root", "not_a_session", "storage_failed"],
  example: { params: {}, result: { damage: [], invariants: { linesReadable: true }, unreadableForRust: [], ok: true } },
  run: (context, { sessionPath }) =>
    lookAt(context, sessionPath, async (session) => {
      const source = session.log.foreign;
      const verdict = await verifyAll(context, session, context.workspace.isOpen(session), context.progress);
      return { ...verdict, ...(source ? { fidelity: source.fidelity() } : {}) };
    }),
});
