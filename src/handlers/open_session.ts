import * as z from "zod";
import type { Session } from "../core/session/session.ts";
import { defineCommand } from "./shared/command.ts";
import { openedExample, openedResult, toOpened, wantedId } from "./shared/current-session.ts";
import { checkLeafChoice, chooseLeaf, leafParams } from "./shared/leaf-choice.ts";
import { requireOneSession } from "./shared/params.ts";

export default defineCommand({
  name: "open_session",
  summary: "Opens a session in addition to the current one; commands reach it by its sessionId.",
  effect: "control",
  opensSession: true,
  describesSessions: true,
  params: {
    sessionPath: z.string().min(1).optional(),
    sessionId: wantedId,
    readOnly: z
      .boolean()
      .optional()
      .describe(
        "only read: other programs write to it, and commands of this host that would change it fail with read_only; a session that is open already stays as it was opened, and the reply says how",
      ),
    ...leafParams,
  },
  result: () => z.object(openedResult),
  failures: ["session_not_found", "ambiguous_id", "invalid_id", "path_outside_root", "not_a_session", "storage_failed"],
  example: { params: { sessionPath: "/home/me/sessions/old.jsonl", readOnly: true }, result: openedExample },
  run({ workspace, progress }, { readOnly, leaf, head, ...where }) {
    checkLeafChoice({ leaf, head });
    const one = requireOneSession(where);
    const open = (session: Session) => {
      chooseLeaf(workspace, session, { leaf, head }, { isNew: !workspace.isOpen(session) });
      if (session !== workspace.current) workspace.keep(session);
      return toOpened(session);
    };
    // A session that is known here is answered at once, with its durable state.
    const isKnown = one.sessionId === undefined || workspace.has(one.sessionId);
    if (workspace.stores.arrive === undefined && isKnown) return open(workspace.reopened(one, readOnly));
    return workspace.opened(one, readOnly, progress).then(open);
  },
});
