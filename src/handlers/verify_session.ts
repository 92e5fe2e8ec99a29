import * as z from "zod";
import { verify } from "../core/check.ts";
import { command } from "./command.ts";
import { damage } from "./events.ts";

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
    const named = sessionPath === undefined ? undefined : context.workspace.look({ sessionPath });
    try {
      const verdict = verify(named ?? context.session);
      return {
        damage: verdict.damage.map((found) => ({ ...found })),
        invariants: { ...verdict.invariants },
        unreadableForRust: [...verdict.unreadableForRust],
        ok: verdict.ok,
      };
    } finally {
      if (named && named !== context.workspace.current) named.close();
    }
  },
});
