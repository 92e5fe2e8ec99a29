import * as z from "zod";
import type { Session } from "../core/session/session.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import { openedResult, replacement, toReplacement, toVetoed, wantedId } from "./shared/current-session.ts";
import type { HookAnswer } from "./shared/hooks.ts";
import { checkLeafChoice, chooseLeaf, leafParams } from "./shared/leaf-choice.ts";
import { requireOneSession } from "./shared/params.ts";
import { exampleId } from "./shared/shapes.ts";

export default defineCommand({
  name: "switch_session",
  summary: "Opens another session and makes it the current one. On a failure the old one stays.",
  effect: "replace",
  namesNext: true,
  repeatable: true,
  params: {
    sessionPath: z.string().min(1).optional().describe("relative paths refer to the server's working directory"),
    sessionId: wantedId,
    ...leafParams,
  },
  result: () => z.object({ ...replacement, leafId: z.string().nullable(), head: openedResult.head }),
  failures: ["session_not_found", "ambiguous_id", "invalid_id", "path_outside_root", "not_a_session"],
  example: {
    params: { sessionPath: "/home/me/sessions/old.jsonl" },
    result: { cancelled: false, sessionId: exampleId, sessionFile: "/home/me/sessions/old.jsonl", leafId: "c3d4e5f6" },
  },
  async run(context, { leaf, head, ...where }) {
    checkLeafChoice({ leaf, head });
    const { workspace, progress } = context;
    const one = requireOneSession(where);
    const known = await workspace.opened(one, false, progress);
    const next = workspace.overtaking(known) ?? known;
    const isNew = !workspace.isOpen(next);
    if (context.asks("session_before_switch")) {
      const payload = { reason: "resume", targetSessionFile: next.file };
      const asked = await ask(context, next, payload);
      if (asked.cancelled) return { ...toVetoed(context, asked), leafId: workspace.current?.leafId ?? null };
    }
    chooseLeaf(workspace, next, { leaf, head }, { isNew });
    await context.replace(next, { reason: "resume" });
    return { ...toReplacement(next), leafId: next.leafId, head: next.heads.own ?? undefined };
  },
});

/** Asks whether to switch. Without consent, closes the session that was opened for it. */
async function ask(context: CommandContext, next: Session, payload: Record<string, unknown>): Promise<HookAnswer> {
  let answer: HookAnswer = { cancelled: true };
  try {
    answer = await context.ask("session_before_switch", payload);
    return answer;
  } finally {
    if (answer.cancelled && !context.workspace.isOpen(next)) next.close();
  }
}
