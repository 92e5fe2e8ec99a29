import * as z from "zod";
import { Failure } from "../core/failure.ts";
import { addBranch } from "../core/session/added-branch.ts";
import { exampleKept } from "./list_kept.ts";
import { notifyAppended } from "./shared/append.ts";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "recover_kept",
  summary:
    "Appends entries that list_kept lists to their session, as a branch: byte for byte, at the parents that they name. " +
    "The leaf stays; branch goes there. What the session has already is left out, so that doing it twice has one effect, " +
    "and so is what the host has repeated with the idempotencyKey of its request. An edited or damaged line of an entry that the session has stays in the file, unless the request names it. " +
    "The file stays until a repetition finds all of it durable in the session: then it gets another name, and is listed no more.",
  effect: "write",
  params: {
    keptAt: z.string().min(1).describe("the path that list_kept shows, or that a failure named"),
    edited: z.array(z.string()).optional().describe("of those in an earlier result, the ones to append under new ids"),
  },
  result: () =>
    z.object({
      entryIds: z.array(z.string()).describe("of the branch, the last one is its end; empty where all of it was there"),
      renamed: z
        .array(z.object({ from: z.string(), to: z.string() }))
        .describe("entries that have a new id, because others gave theirs to something else"),
      edited: z.array(z.string()).describe("entries that the session has with other bytes; their lines were left out"),
      damagedLines: z.number().int().describe("lines of the file that are no entries any more, and were left out"),
      leafId: z.string().nullable(),
    }),
  failures: ["not_a_session", "unrelated_sessions", "entry_not_found"],
  example: {
    params: { keptAt: exampleKept },
    result: { entryIds: ["e5f6a7b8"], renamed: [], edited: [], damagedLines: 0, leafId: "d4e5f6a7" },
  },
  run(context, { keptAt, edited: wanted }) {
    const { session, workspace } = context;
    const { sessionId, lines, damagedLines } = workspace.stores.kept.read(keptAt);
    if (sessionId !== session.id)
      throw new Failure("unrelated_sessions", `These entries are of the session ${sessionId}. Open that one.`, {
        sessionId,
      });
    const { entryIds, renamed, edited } = addBranch(session, lines, new Set(wanted));
    notifyAppended(context, session, entryIds);
    const { durableCount, nodes } = session.log;
    if (entryIds.length + edited.length + damagedLines === 0 && durableCount === nodes.count)
      workspace.stores.kept.putAside(keptAt);
    return {
      entryIds,
      renamed: Array.from(renamed, ([from, to]) => ({ from, to })),
      edited,
      damagedLines,
      leafId: session.leafId,
    };
  },
});
