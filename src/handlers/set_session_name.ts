import * as z from "zod";
import { type Draft, makeDraft } from "../core/format/entry.ts";
import { captureSettings, noteSettings } from "../core/session/changes.ts";
import { toSessionName } from "../core/session/workspace.ts";
import { requireWriter } from "../core/session/writer.ts";
import { appendRecorded, makeRepeat } from "./shared/append.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import { anySessionPath, displayName } from "./shared/shapes.ts";

export default defineCommand({
  name: "set_session_name",
  summary: "Gives the session, or one that need not be open, a display name.",
  effect: "write",
  ofAny: true,
  params: {
    name: displayName,
    sessionPath: anySessionPath,
  },
  result: () => z.object({ entryId: z.string() }),
  failures: ["not_a_session", "path_outside_root", "session_locked", "session_not_found"],
  example: { params: { name: "Refactor auth" }, result: { entryId: "a1b2c3d4" } },
  run(context, { name, sessionPath, ...params }) {
    const draft = makeDraft("session_info", { name: toSessionName(name) });
    const { expectedLeafId } = params as { expectedLeafId?: string | null };
    if (!context.target) return rename(context, sessionPath as string, draft, expectedLeafId);
    return { entryId: appendRecorded(context, [draft], [draft]).ids[0] };
  },
  // Pi returns nothing here, and clients with closed schemas rely on that.
  pi: () => null,
  repeat: makeRepeat("session_info"),
});

/** Names a session that is not open here. The process that opens it next finds the leaf where it was. */
async function rename(
  { workspace, key }: CommandContext,
  sessionPath: string,
  draft: Draft,
  expectedLeafId: string | null | undefined,
): Promise<{ entryId: string }> {
  const session = workspace.open({ sessionPath });
  try {
    const before = key === undefined ? undefined : session.repeated(key);
    if (before) return { entryId: before.ids[0] };
    session.guard(undefined);
    // The host has seen nothing of this session, so the only news for it is an entry that forbids the change.
    await requireWriter(session);
    session.guard(expectedLeafId);
    const state = captureSettings(session, [draft]);
    const { ids } = session.append([draft], key, false);
    noteSettings(session, state, ids);
    await session.commit();
    await session.leave();
    return { entryId: ids[0] };
  } finally {
    workspace.release(session);
  }
}
