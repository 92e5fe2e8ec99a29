import * as z from "zod";
import { requireTypes } from "./shared/append.ts";
import { defineCommand } from "./shared/command.ts";
import { headName } from "./shared/leaf-choice.ts";

export default defineCommand({
  name: "delete_head",
  summary:
    "Ends a head: it is listed no more, and the next host that takes its name begins at the shared leaf. Its entries stay, " +
    "as a branch. A host at this head goes on from there, and brings the head back by its next write.",
  effect: "write",
  params: { head: headName },
  result: () => z.object({ head: z.string() }),
  failures: ["head_not_found"],
  example: { params: { head: "reviewer" }, result: { head: "reviewer" } },
  run({ session, key }, { head }) {
    session.retireHead(head, key);
    return { head };
  },
  repeat(context, entryIds, { head }) {
    requireTypes(context, entryIds, ["custom"]);
    return { head };
  },
});
