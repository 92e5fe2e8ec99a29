import { Failure } from "../../core/failure.ts";
import { UsageError } from "../options.ts";
import { inert } from "../terminal/text.ts";
import { named, type Verb } from "../verb.ts";

export default {
  name: "delete",
  meaning: "move a session to the trash",
  operands: ["<session>"],
  flags: {
    "--yes": { meaning: "do not ask; required without a terminal" },
    "--permanent": { meaning: "unlink it; it cannot be restored" },
  },
  more:
    "Name the session by its path or its full id. The trash command takes it if there is one; else it goes to the " +
    "server's own trash, from which restore brings it back.",
  async run({ ask, confirm }, { operands: [operand], flags }) {
    const permanent = flags.has("--permanent");
    if (!flags.has("--yes")) {
      const answer = await confirm(permanent ? `Delete ${inert(operand)} for good?` : `Delete ${inert(operand)}?`);
      if (answer === undefined)
        throw new UsageError("delete asks first, and there is no terminal to ask on; use --yes.");
      if (!answer) throw new Failure("cancelled", "Nothing was deleted.");
    }
    return ask("delete_session", { ...named(operand), permanent: permanent ? true : undefined });
  },
  print({ sessionPath, movedTo, trash }) {
    const path = inert(sessionPath);
    if (trash === "none") return [`${path} is deleted for good.`];
    if (trash === "desktop") return [`${path} is in the desktop's trash.`];
    return [`${path} is now ${inert(movedTo)}.`, "restore brings it back."];
  },
} satisfies Verb;
