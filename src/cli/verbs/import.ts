import { findAgentFile } from "../sessions.ts";
import { count, shortenPath } from "../terminal/text.ts";
import { defineVerb } from "../verb.ts";
import { formatDamage, formatFidelity } from "./verify.ts";

export default defineVerb({
  name: "import",
  meaning: "copy a session file into the session folders",
  operands: ["<file>"],
  onInterrupt: "Nothing is imported by half; the same command begins again.",
  more: "The file is a session, or an export of opencode or Goose; another agent's session can be named by its id. The report says what became of its records. It overwrites nothing, and recognises what it imported before.",
  run: async (asking, { operands }) => asking.ask("import_session", { path: await findAgentFile(asking, operands[0]) }),
  print({ sessionPath, outcome, conflictsWith, entryCount, damage, fidelity, subagents = [] }, _given, { home }) {
    const path = shortenPath(sessionPath, home);
    const outcomes: Readonly<Record<string, string>> = {
      new: `It is now at ${path}.`,
      known: `All of it is in ${path} already.`,
      continued: `${path} had its beginning and now has the rest, which cannot be undone.`,
      conflict: `Another session with this id continues differently: ${shortenPath(conflictsWith ?? "", home)}.\nThis one has a new id: ${path}.`,
    };
    return [
      ...outcomes[outcome].split("\n"),
      `${count(entryCount, "entry", "entries")}.`,
      ...(subagents.length === 0
        ? []
        : [`${count(subagents.length, "subagent", "subagents")} of it came along, as sessions of their own.`]),
      ...(damage.length === 0 ? [] : [`${count(damage.length, "damaged place", "damaged places")}, copied unchanged:`]),
      ...damage.map(formatDamage),
      ...formatFidelity(fidelity),
    ];
  },
});
