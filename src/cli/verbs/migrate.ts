import { UsageError } from "../options.ts";
import { count, inert } from "../terminal/text.ts";
import { DAMAGE, OK, point, type Result, type Verb } from "../verb.ts";

export default {
  name: "migrate",
  meaning: "move a session into a Session Store V2 container",
  operands: ["<session>"],
  flags: {
    "--dry-run": {
      meaning: "only print what would be done, which is the default; the exit status is 3 if something prevents it",
    },
    "--apply": { meaning: "do it" },
    "--to": { value: "store", meaning: "v2 (the default), or jsonl to go back", oneOf: ["v2", "jsonl"] },
  },
  more:
    "Name the session by its file, or by that of a database of pi_agent_rust. Pi and pi_agent_rust look for session files only: they do not list or open a session in a container. " +
    "The session file is kept next to the container, and rollback makes it the session again.",
  async run(asking, { operands, flags }) {
    if (flags.has("--apply") && flags.has("--dry-run")) throw new UsageError("Use either --apply or --dry-run.");
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
    ...(laterEntries > 0 ? [`${count(laterEntries, "entry", "entries")} of them were added after the migration.`] : []),
    ...(hiddenFromPi
      ? [`Pi does not see it there. pi-session-server rollback ${inert(sessionPath)} makes its file the session again.`]
      : []),
    ...(rebuilt ? ["There was no snapshot to go back to; the file was written from the container."] : []),
    ...(keptAt === null ? [] : [`The container is kept as ${inert(keptAt)}.`]),
  ];
}
