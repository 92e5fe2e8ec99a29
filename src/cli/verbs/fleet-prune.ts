import type { FleetDatabase, FoundPrunable, Prunable, PruningAges } from "../../core/ports/fleet-database.ts";
import { requireYes } from "../confirmed.ts";
import { type Flag, UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, escapeLine, formatSize, show } from "../terminal/text.ts";
import { parseAgeFlag } from "../time-parser.ts";
import type { VerbArguments, VerbContext } from "../verb.ts";
import { formatSizedRow } from "./doctor.ts";

export const PRUNING_FLAGS: Readonly<Record<string, Flag>> = {
  "--older-than": { value: "time", meaning: "remove sessions that were deleted before this time; 30d by default" },
  "--until": { value: "time", meaning: "delete sessions without a write since then, such as 90d" },
  "--archived": { meaning: "with --until: delete archived sessions, too" },
  "--unnamed": { meaning: "with --until: delete only sessions without a name" },
  "--apply": { meaning: "remove it, and delete the sessions of --until" },
  "--yes": { meaning: "do not ask before; required without a terminal" },
};
/** Milliseconds that a session has been deleted for when its rows go, unless the caller says otherwise. */
const THIRTY_DAYS = 30 * 86_400_000;

/** Things that may be removed, or that were. */
type PrunedOrFound = FoundPrunable & { readonly applied: boolean; readonly rows?: number };

/** Finds removable data of a fleet, and removes it if asked to. */
export async function pruneFleet(
  database: FleetDatabase,
  asking: VerbContext,
  { flags }: VerbArguments,
): Promise<PrunedOrFound> {
  const { now } = asking.page(0);
  const ageOf = (name: string): number | undefined => {
    const moment = parseAgeFlag(flags, name, asking);
    return moment === undefined ? undefined : Math.max(0, now - Date.parse(moment));
  };
  const age = ageOf("--until");
  const stray = ["--archived", "--unnamed"].find((name) => flags.has(name));
  if (age === undefined && stray) throw new UsageError(`${stray} goes with --until, such as --until 90d.`);
  const choice = { archived: flags.has("--archived"), named: !flags.has("--unnamed") };
  const idle = age === undefined ? undefined : { age, ...choice, pendingIds: database.listPendingIds() };
  const ages: PruningAges = { rows: ageOf("--older-than") ?? THIRTY_DAYS, idle };
  const found = await database.findPrunable(ages);
  if (!flags.has("--apply") || isNothing(found)) return { applied: flags.has("--apply"), ...found };
  if (!flags.has("--yes"))
    await requireYes(asking, questionAbout(found), {
      alone: "fleet prune asks before it removes something for good, and there is no terminal to ask on; use --yes.",
      refused: "Nothing was removed.",
    });
  return { applied: true, ...(await database.prune(ages, asking.progress)) };
}

function isNothing(found: Prunable): boolean {
  return found.idle === 0 && isNothingForGood(found);
}

function isNothingForGood({ sessions, unfinished, halfway, interrupted, words, attachments }: Prunable): boolean {
  return sessions + unfinished + halfway + interrupted + words + attachments === 0;
}

function questionAbout(found: Prunable): string {
  const forGood = `Remove ${whatGoes(found)} from the fleet for good? Nothing brings it back.`;
  if (found.idle === 0) return forGood;
  const idle = `Delete ${idleText(found)}? undo does not bring them back; restore <id> does, until their rows are removed.`;
  return isNothingForGood(found) ? idle : `${idle} ${forGood}`;
}

function idleText({ idle, idleBytes, idleNamed, idleArchived }: Prunable): string {
  const of = [
    ...(idleNamed > 0 ? [`${idleNamed} with a name`] : []),
    ...(idleArchived > 0 ? [`${idleArchived} in the archive`] : []),
  ];
  const which = of.length > 0 ? `, ${of.join(" and ")} among them` : "";
  return `${count(idle, "session", "sessions")} (${formatSize(idleBytes)}) without a write since then${which}`;
}

function whatGoes(found: Prunable): string {
  const { sessions, entries, bytes, unfinished, halfway, interrupted, words, attachments } = found;
  const parts = [
    ...(sessions > 0
      ? [`${count(sessions, "session", "sessions")} with ${count(entries, "entry", "entries")} (${formatSize(bytes)})`]
      : []),
    ...(unfinished > 0 ? [`${count(unfinished, "session", "sessions")} begun and not finished`] : []),
    ...(sessions === 0 && halfway > 0 ? [`the rest of ${count(halfway, "session", "sessions")}`] : []),
    ...(interrupted > 0
      ? [`parts of commits to ${count(interrupted, "session", "sessions")} that never became entries`]
      : []),
    ...(attachments > 0 ? [count(attachments, "attachment", "attachments")] : []),
    ...(words > 0 ? [count(words, "word", "words")] : []),
  ];
  return parts.join(", ");
}

export function* formatPruned(found: PrunedOrFound, page: OutputStyle): Generator<string> {
  const row = (bytes: number, at: string, id: string, title: string): string =>
    formatSizedRow(bytes, at, show`${id}  ${escapeLine(title)}`, page);
  const more = (all: number, shown: number): string[] => (all > shown ? [`  and ${all - shown} more`] : []);
  for (const { sessionId, name, deletedAt, entries, bytes } of found.named)
    yield row(bytes, deletedAt, sessionId.slice(0, 8), name ?? count(entries, "entry", "entries"));
  yield* more(found.sessions, found.named.length);
  if (isNothing(found))
    yield "The fleet has nothing that may be removed. Deleted sessions stay for 30 days, or as long as --older-than says.";
  else if (found.applied && !isNothingForGood(found)) {
    yield `Removed for good: ${whatGoes(found)}; ${count(found.rows ?? 0, "row", "rows")}.`;
    yield "The database uses the room again after its next vacuum.";
  } else if (!isNothingForGood(found))
    yield `${whatGoes(found)}. With --apply, fleet prune removes these for good. Nothing brings them back, unless a machine has them in its trash.`;
  if (found.idle === 0) return;
  // With whole ids, for restore on any machine.
  for (const { sessionId, name, changedAt, entries, bytes } of found.idleSessions)
    yield row(bytes, changedAt, sessionId, name ?? count(entries, "entry", "entries"));
  yield* more(found.idle, found.idleSessions.length);
  const brings = "restore <id> brings one back until its rows are removed.";
  yield found.applied
    ? `Deleted: ${idleText(found)}. ${brings}`
    : `${idleText(found)}. With --apply they are deleted; ${brings}`;
}
