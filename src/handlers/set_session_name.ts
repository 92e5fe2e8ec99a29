import * as z from "zod";
import { draftOf } from "../core/entry.ts";
import { sessionName } from "../core/workspace.ts";
import { appendEntries, demandTypes } from "./appending.ts";
import { command } from "./command.ts";

export default command({
  name: "set_session_name",
  summary: "Gives the session a display name.",
  effect: "write",
  params: {
    name: z
      .string()
      .refine((name) => sessionName(name) !== "", "a name says something")
      .describe("line breaks become spaces"),
  },
  result: z.object({ entryId: z.string() }),
  failures: [],
  example: { params: { name: "Refactor auth" }, result: { entryId: "a1b2c3d4" } },
  run(context, params) {
    const name = sessionName(params.name);
    const [entryId] = appendEntries(context, [draftOf("session_info", { name })]).ids;
    context.tell("session_info_changed", { name: context.session.name });
    return { entryId };
  },
  // Pi answers nothing here, and closed-schema clients hold it to that.
  pi: () => null,
  repeat(context, entryIds) {
    demandTypes(context, entryIds, ["session_info"]);
    return { entryId: entryIds[0] };
  },
});
