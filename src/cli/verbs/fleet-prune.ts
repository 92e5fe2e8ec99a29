import type { FleetPruning, Prunable } from "../../storage/fleet/pruning.ts";
import { requireYes } from "../confirmed.ts";
import { timeFlag } from "../moments.ts";
import { UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, cutTo, inert, oneLine, sizeText, wrap } from "../terminal/text.ts";
import type { Asking, Given, Result } from "../verb.ts";
import { agoText } from "./doctor.ts";

export const PRUNING_FLAGS = ["--older-than", "--forget-ids", "--apply", "--yes"];
/** Milliseconds that a session has been deleted for when its rows go, unless the caller says otherwise. */
const THIRTY_DAYS = 30 * 86_400_000;

/** Finds what may go of a fleet, and removes it if that is asked for. */
export async function prunedBy(pruning: FleetPruning, asking: Asking, { flags }: Given): Promise<Result> {
  const { now } = asking.page(0);
  const ageOf = (name: string): number | undefined => {
    const moment = timeFlag(flags, name, asking);
    return moment === undefined ? undefined : Math.max(0, now - Date.parse(moment));
  };
  const ages = { rows: ageOf("--older-than") ?? THIRTY_DAYS, ids: ageOf("--forget-ids") };
  if (ages.ids !== undefined && ages.ids < ages.rows)
    throw new UsageError(
      "--forget-ids takes a time before that of --older-than: ids stay longer than what they named.",
    );
  const found = await pruning.find(ages);
  if (!flags.has("--apply") || isNothing(found)) return { applied: flags.has("--apply"), ...found };
  if (!flags.has("--yes"))
    await requireYes(asking, `Remove ${whatGoes(found)} from the fleet for good? Nothing brings it back.`, {
      alone: "fleet prune asks before it removes something for good, and there is no terminal to ask on; use --yes.",
      refused: "Nothing was removed.",
    });
  return { applied: true, ...(await pruning.prune(ages, asking.progress)), named: found.named };
}

function isNothing({ sessions, unfinished, halfway, interrupted, ids, words, attachments }: Prunable): boolean {
  return sessions + unfinished + halfway + interrupted + ids + words + attachments === 0;
}

function whatGoes(found: Prunable): string {
  const { sessions, entries, bytes, unfinished, halfway, interrupted, ids, words, attachments } = found;
  const parts = [
    ...(sessions > 0
      ? [`${count(sessions, "session", "sessions")} with ${count(entries, "entry", "entries")} (${sizeText(bytes)})`]
      : []),
    ...(unfinished > 0 ? [`${count(unfinished, "session", "sessions")} begun and not finished`] : []),
    ...(sessions === 0 && halfway > 0 ? [`the rest of ${count(halfway, "session", "sessions")}`] : []),
    ...(interrupted > 0
      ? [`parts of commits to ${count(interrupted, "session", "sessions")} that never became entries`]
      : []),
    ...(ids > 0 ? [count(ids, "id", "ids")] : []),
    ...(attachments > 0 ? [count(attachments, "attachment", "attachments")] : []),
    ...(words > 0 ? [count(words, "word", "words")] : []),
  ];
  return parts.join(", ");
}

export function* prunedLines(result: Result, page: OutputStyle): Generator<string> {
  const found = result as Prunable & Result;
  for (const { sessionId, name, deletedAt, entries, bytes } of found.named) {
    const row = `  ${sizeText(bytes).padStart(7)}  ${agoText(deletedAt, page).padEnd(8)}  ${inert(sessionId.slice(0, 8))}  ${oneLine(name ?? count(entries, "entry", "entries"))}`;
    yield cutTo(row, page.width);
  }
  if (found.sessions > found.named.length) yield `  and ${found.sessions - found.named.length} more`;
  if (isNothing(found)) yield "The fleet has nothing that may be removed.";
  else if (found.applied) {
    yield* wrap(`Removed for good: ${whatGoes(found)}; ${count(found.rows, "row", "rows")}.`, page.width);
    yield* wrap("The database uses the room again after its next vacuum.", page.width);
  } else
    yield* wrap(
      `${whatGoes(found)}. fleet prune --apply removes it for good: nothing brings it back, unless a machine has it in its trash.`,
      page.width,
    );
}
