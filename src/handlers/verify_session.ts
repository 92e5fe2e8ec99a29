import * as z from "zod";
import { verify } from "../core/check.ts";
import { command } from "./command.ts";
import { damage } from "./shapes.ts";

export default command({
  name: "verify_session",
  summary: "Reads every byte of a session and says what is damaged. Changes nothing.",
  effect: "read",
  params: { sessionPath: z.string().min(1).optional().describe("the current session by default") },
  result: z.object({
    damage: z.array(damage),
    invariants: z.record(z.string(), z.boolean()).describe("what holds for the stored session"),
    unreadableForRust: z
      .array(z.object({ entryId: z.string(), reason: z.string() }))
      .describe("entries that pi_agent_rust skips; it opens such a session for reading only"),
    ok: z.boolean().describe("no damage"),
  }),
  failures: ["session_not_found", "not_a_session", "storage_failed"],
  example: {
    params: {},
    result: { damage: [], invariants: { linesReadable: true }, unreadableForRust: [], ok: true },
  },
  run(context, { sessionPath }) {
    const { workspace } = context;
    const session = sessionPath === undefined ? context.session : workspace.look({ sessionPath });
    const isOpen = workspace.sessions.includes(session);
    try {
      let verdict = verify(session);
      // An open session tells by an event of entries that were hidden; of this one nobody else knows.
      if (!isOpen && session.refresh()) verdict = verify(session);
      return {
        damage: verdict.damage.map((found) => ({ ...found })),
        invariants: { ...verdict.invariants },
        unreadableForRust: [...verdict.unreadableForRust],
        ok: verdict.ok,
      };
    } finally {
      if (!isOpen) session.close();
    }
  },
});
