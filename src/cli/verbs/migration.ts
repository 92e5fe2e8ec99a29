/** Verbs that move a session between stores, and report its store. */

import { formatLockOwner } from "../lock-owner.ts";
import { getChoice, UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, shortenId, shortenPath, show } from "../terminal/text.ts";
import { askAt, DAMAGE, defineVerb, OK, type ResultOf } from "../verb.ts";
import { rewordAsVerbs } from "../wording.ts";

export const migrateVerb = defineVerb<ResultOf<"migrate_session">>({
  name: "migrate",
  meaning: "move a session into a Session Store V2 container",
  operands: ["<session>"],
  flags: {
    "--dry-run": {
      meaning: "print what would be done (default); the exit status is 3 if something prevents it",
    },
    "--apply": { meaning: "move it" },
    "--to": { value: "store", meaning: "move it into v2 (default), or back to jsonl", oneOf: ["v2", "jsonl"] },
  },
  onInterrupt:
    "The session is as it was, or its migration goes on where it stopped: status shows which, and migrate --apply goes on.",
  more: "Name the session by its file, or by a database of pi_agent_rust. Pi and pi_agent_rust do not see a session in a container. The session's file stays next to the container, and rollback makes it the session again.",
  run: askAt("migrate_session", ({ flags }) => {
    if (flags.has("--apply") && flags.has("--dry-run")) throw new UsageError("Use either --apply or --dry-run.");
    return { to: getChoice(flags, "--to") ?? "v2", dryRun: !flags.has("--apply") };
  }),
  print: (result, _given, page) => (result.dryRun ? plan(result, page) : movementLines(result, page)),
  status: ({ obstacles }) => (obstacles.length > 0 ? DAMAGE : OK),
});

export const rollbackVerb = defineVerb<ResultOf<"rollback_migration">>({
  name: "rollback",
  meaning: "make the file of a migrated session the session again",
  operands: ["<session>"],
  onInterrupt: "Nothing is lost: status shows where the session is, and rollback goes on.",
  flags: { "--reason": { value: "text", meaning: "record this reason" } },
  more: "It appends the entries since the migration to that file. Where the file is missing, it writes all of it from the container. The container stays under another name.",
  run: askAt("rollback_migration", ({ flags }) => ({ reason: flags.get("--reason") })),
  print: (result, _given, page) => movementLines(result, page),
});

const FORMATS: Record<string, string> = {
  native_v2: "Session Store V2",
  jsonl_v3: "A JSONL file",
  sqlite_v1: "An SQLite database of pi_agent_rust",
};

export const statusVerb = defineVerb<ResultOf<"migration_status">>({
  name: "status",
  meaning: "print which store holds a session, and the state of its migration",
  operands: ["<session>"],
  more: "The exit status is 3 if a migration or rollback was interrupted; migrate --apply or rollback completes it.",
  run: askAt("migration_status"),
  print: ({ active, state, phase, reason, snapshotPath, interrupted, lockedBy, events }, _given, { home }) => [
    show`${FORMATS[active]}, ${state}${phase === null ? "" : show` (${phase})`}.`,
    ...(lockedBy === undefined ? [] : [`Open in ${formatLockOwner(lockedBy)}.`]),
    ...(reason === null ? [] : [show`Reason: ${reason}.`]),
    ...(snapshotPath === null ? [] : [`The session file is kept as ${shortenPath(snapshotPath, home)}.`]),
    ...(active === "native_v2" ? ["Pi does not see it there; rollback makes its file the session again."] : []),
    ...(interrupted ? ["A migration or rollback was interrupted; rollback, or migrate --apply, completes it."] : []),
    ...events.map(({ at, phase: step, outcome }) => show`  ${at}  ${step.padEnd(16)} ${outcome}`),
  ],
  status: ({ interrupted }) => (interrupted ? DAMAGE : OK),
});

function plan(
  { obstacles, entryCount, sessionPath, hiddenFromPi }: ResultOf<"migrate_session">,
  { home }: OutputStyle,
): string[] {
  if (obstacles.length > 0)
    return [
      "The session cannot be migrated as it is:",
      ...obstacles.map(
        ({ kind, entryId, reason }) =>
          show`  ${kind}${entryId === undefined ? "" : show` (entry ${entryId})`}: ${rewordAsVerbs(reason)}`,
      ),
    ];
  return [
    `${count(entryCount, "entry", "entries")} would go to ${shortenPath(sessionPath, home)}. --apply does it.`,
    ...(hiddenFromPi ? ["Pi would not see the session there, until rollback makes its file the session again."] : []),
  ];
}

function movementLines(
  result: ResultOf<"migrate_session"> | ResultOf<"rollback_migration">,
  { home }: OutputStyle,
): string[] {
  const { state, sessionId, sessionPath, entryCount, laterEntries, rebuilt, keptAt, hiddenFromPi } = result;
  return [
    show`The session is now ${shortenPath(sessionPath, home)} (${state}, ${count(entryCount, "entry", "entries")}).`,
    ...(laterEntries > 0 ? [`${count(laterEntries, "entry", "entries")} of them were added after the migration.`] : []),
    ...(hiddenFromPi
      ? [`Pi does not see it there. rollback ${shortenId(sessionId)} makes its file the session again.`]
      : []),
    ...(rebuilt ? ["There was no snapshot to go back to; the file was written from the container."] : []),
    ...(keptAt === null
      ? []
      : [
          `${hiddenFromPi ? "A container that was there before" : "The container"} is kept as ${shortenPath(keptAt, home)}.`,
        ]),
  ];
}
