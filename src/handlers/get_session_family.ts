import * as z from "zod";
import { command } from "./shared/command.ts";
import { hereParam, limited } from "./shared/fleet.ts";
import { exampleId } from "./shared/shapes.ts";

export default command({
  name: "get_session_family",
  summary: "All sessions that come from the same one by forks and clones, parents before their forks.",
  effect: "read",
  params: {
    sessionId: z.string().min(1).optional().describe("the id of any session; the current one by default"),
    here: hereParam,
  },
  result: z.object({
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
          .describe("the last entry that both have from the time of the fork; missing when there is none"),
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
    const { sessions } = context.workspace;
    const open = sessionId === undefined ? context.session : sessions.find(({ id }) => id === sessionId);
    // An open session is a relative wherever it is stored, even before its file exists.
    const relative = open && { path: open.file ?? "", id: open.id, parentSession: open.parentSession };
    const of = { id: open?.id ?? (sessionId as string), open: relative, here };
    const { root, nodes, limited } = await context.workspace.stores.catalog.family(of, context.progress);
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
