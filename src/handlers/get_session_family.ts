import * as z from "zod";
import { Failure } from "../core/failure.ts";
import type { Session } from "../core/session/session.ts";
import type { Workspace } from "../core/session/workspace.ts";
import { lookIntoOther } from "./shared/any-session.ts";
import { defineCommand } from "./shared/command.ts";
import { hereParam, limited } from "./shared/fleet.ts";
import { exampleId } from "./shared/shapes.ts";

export default defineCommand({
  name: "get_session_family",
  summary: "All sessions that come from the same one by forks and clones, parents before their forks.",
  effect: "read",
  failures: ["session_not_found", "ambiguous_id"],
  params: {
    sessionId: z
      .string()
      .min(1)
      .optional()
      .describe(
        "the id of any session, an unambiguous beginning of it, or the id that another agent has for it; the current one by default",
      ),
    here: hereParam,
  },
  result: () =>
    z.object({
      root: z.string().nullable().describe("id of the session all come from; null when its file is missing"),
      nodes: z.array(
        z.object({
          sessionPath: z.string().nullable().describe("null for a session in memory"),
          sessionId: z.string(),
          parentSession: z
            .string()
            .nullable()
            .describe("as the header has it; a parent that was moved is found by its id"),
          forkedAtEntryId: z
            .string()
            .optional()
            .describe("the last entry that both have from the time of the fork; missing without one"),
        }),
      ),
      limited,
    }),
  example: {
    params: {},
    result: {
      root: exampleId,
      nodes: [{ sessionPath: "/home/me/sessions/current.jsonl", sessionId: exampleId, parentSession: null }],
    },
  },
  async run(context, { sessionId, here }) {
    const { workspace, progress } = context;
    const { catalog } = workspace.stores;
    const open = sessionId === undefined ? context.session : workspace.sessions.find(({ id }) => id === sessionId);
    const { root, nodes, limited } = open
      ? await catalog.family({ ...familyMember(open), here }, progress)
      : await catalog.family({ id: sessionId as string, here }, progress).catch(async (error) => {
          const named = await memberNamed(workspace, sessionId as string, error);
          return catalog.family({ ...named, here }, progress);
        });
    return {
      root,
      limited,
      nodes: nodes.map(({ path, id, parentSession, forkedAtEntryId }) => ({
        sessionPath: path === "" ? null : path,
        sessionId: id,
        parentSession,
        forkedAtEntryId,
      })),
    };
  },
});

/** Returns a session as a relative wherever it is stored, even before its file exists. */
function familyMember({ file, id, parentSession }: Session) {
  return { id, open: { path: file ?? "", id, parentSession } };
}

/** Returns the session that a word names, if the word is not its whole id; throws `failure` if there is none. */
async function memberNamed(workspace: Workspace, sessionId: string, failure: unknown) {
  if (!(failure instanceof Failure && failure.name === "session_not_found")) throw failure;
  try {
    return await lookIntoOther(workspace, { sessionId }, familyMember);
  } catch (error) {
    throw error instanceof Failure && error.name === "ambiguous_id" ? error : failure;
  }
}
