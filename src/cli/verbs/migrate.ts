import { UsageError } from "../options.ts";
import { count, inert } from "../terminal/text.ts";
import { DAMAGE, OK, point, type Result, type Verb } from "../verb.ts";

export default {
  name: "migrate",
  meaning: "move a session into a Session Store V2 container",
  operands: ["<session>"],
  flags: {
    "--dry-run": {
      meaning: "only say what would be done, which is the default; ends with 3 when something hinders it",
    },
    "--apply": { meaning: "do it" },
    "--to": { value: "store", meaning: "v2 (the default), or jsonl to go back", oneOf: ["v2", "jsonl"] },
  },
  more:
    "A session is named by its file, or by that of a database of pi_agent_rust. Pi and pi_agent_rust look for session files only: they no longer list or open a session that is in a container. " +
    "The session file is kept beside it, and rollback makes it the session again.",
  async run(asking, { operands, flags }) {
    if (flags.has("--apply") && flags.has("--dry-run")) throw new UsageError("Give --apply or --dry-run, one of them.");
    const where = await point(asking, operands[0]);
    return asking.ask("migrate_session", { ...where, to: flags.get("--to") ?? "v2", dryRun: !flags.has("--apply") });
  },
  print: (result) => (result.dryRun ? plan(result) : movementLines(result)),
  status: ({ obstacles }) => (obstacles.length > 0 ? DAMAGE : OK),
} satisfies Verb;

function plan({ obstacles, entryCount, sessionPath, hiddenFromPi }: Result): string[] {
  if (obstacles.length > 0)
    return [
      "The session cannot be migrated as it is:",
      ...obstacles.map(
        ({ kind, entryId, reason }: Result) =>
          `  ${inert(kind)}${entryId === undefined ? "" : ` (entry ${inert(entryId)})`}: ${inert(reason)}`,
      ),
    ];
  return [
    `${count(entryCount, "entry", "entries")} would go to ${inert(sessionPath)}. --apply does it.`,
    ...(hiddenFromPi ? ["Pi would not see the session there, until rollback makes its file the session again."] : []),
  ];
}

/** Returns the lines that tell a person what a migration or a rollback did. */
export function movementLines(result: Result): string[] {
  const { state, sessionPath, entryCount, laterEntries, rebuilt, keptAt, hiddenFromPi } = result;
  return [
    `The session is now ${inert(sessionPath)} (${inert(state)}, ${count(entryCount, "entry", "entries")}).`,
    ...(laterEntries > 0 ? [`${count(laterEntries, "entry", "entries")} of them came after the migration.`] : []),
    ...(hiddenFromPi
      ? [`Pi does not see it there. pi-session-server rollback ${inert(sessionPath)} makes its file the session again.`]
      : []),
    ...(rebuilt ? ["There was no snapshot to go back to; the file was written from the container."] : []),
    ...(keptAt === null ? [] : [`The container is kept as ${inert(keptAt)}.`]),
  ];
}
