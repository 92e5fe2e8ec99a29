/** Verbs that look for damage and repair it. */

import { doEach, type EachResult, formatFailures, getEachStatus, isFailed } from "../bulk.ts";
import { UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, cutTo, escapeLine, formatBackupName, shortenId, shortenPath, show } from "../terminal/text.ts";
import { askAbout, DAMAGE, defineVerb, OK, openChangedSession, type ResultOf } from "../verb.ts";
import { rewordAsVerbs } from "../wording.ts";
import { formatUnreadFiles } from "./doctor.ts";

type ReportedDamage = ResultOf<"verify_session">["damage"][number];
type ReportedFidelity = NonNullable<ResultOf<"verify_session">["fidelity"]>;

export const verify = defineVerb({
  name: "verify",
  meaning: "read every byte and report damage",
  operands: ["[session]"],
  flags: {
    "--all": { meaning: "check every session, name the files that cannot be read, and go on" },
    "--archived": { meaning: "with --all: check archived sessions, too" },
  },
  more: "It changes nothing, and reads sessions in use as they are. The exit status is 3 if damage is found.",
  async run(asking, given) {
    const { flags, operands } = given;
    const all = flags.has("--all");
    if (all === operands.length > 0) throw new UsageError("verify takes a session, or --all for every one.");
    if (all) return asking.ask("verify_sessions", { archived: flags.has("--archived") ? true : undefined });
    if (flags.has("--archived")) throw new UsageError("--archived goes with --all. Give both.");
    return askAbout("verify_session")(asking, given);
  },
  print: (result, _given, page) => ("total" in result ? allLines(result, page) : verdictLines(result)),
  status: ({ ok }) => (ok ? OK : DAMAGE),
});

/** Returns the lines about what became of the records of another agent's file. */
export function formatFidelity(fidelity: ReportedFidelity | undefined, one = "record", many = "records"): string[] {
  if (!fidelity) return [];
  const { records, kinds, warnings, warningCount } = fidelity;
  const sum = (outcome: "preserved" | "derived" | "dropped"): number =>
    kinds.reduce((total, kind) => total + kind[outcome], 0);
  const lossy = kinds.filter(({ derived, dropped }) => derived + dropped > 0);
  return [
    `${count(records, one, many)}: ${sum("preserved")} preserved, ${sum("derived")} in part, ${sum("dropped")} dropped.`,
    ...lossy.map(({ kind, first, derived, dropped }) => {
      const parts = [derived > 0 ? `${derived} in part` : "", dropped > 0 ? `${dropped} dropped` : ""];
      return show`  ${kind}: ${parts.filter(Boolean).join(", ")}, the first is ${one} ${first}`;
    }),
    ...warnings.map(
      ({ record, sentence }) =>
        show`  ${record > 0 ? `${one[0].toUpperCase()}${one.slice(1)} ${record}: ` : ""}${sentence}`,
    ),
    ...(warningCount > warnings.length ? [`  and ${warningCount - warnings.length} more warnings`] : []),
  ];
}

function verdictLines({ ok, damage: found, unreadableForRust, fidelity }: ResultOf<"verify_session">): string[] {
  const newer = found.find(({ kind }) => kind === "newer_version");
  const damage = found.filter((one) => one !== newer);
  return [
    ...(newer ? [formatNewerVersion(newer)] : []),
    ok && newer
      ? "Nothing is wrong with it, as far as this version reads it."
      : ok
        ? "The session is sound."
        : `${count(damage.length, "damaged place", "damaged places")}:`,
    ...damage.map(formatDamage),
    // pi_agent_rust does not look for another agent's file.
    ...(fidelity || unreadableForRust.length === 0
      ? []
      : [`pi_agent_rust skips ${count(unreadableForRust.length, "entry", "entries")} of it and does not write to it.`]),
    ...formatFidelity(fidelity),
  ];
}

/** Returns a sentence about a session of a newer version. */
export function formatNewerVersion({ reason }: Pick<ReportedDamage, "reason">): string {
  return show`The session has ${reason}. A newer version of this program reads all of it.`;
}

/** Damaged places that are printed of one session. */
const MOST_PLACES = 3;

function* allLines(
  { total, damaged, incomplete, notRead }: ResultOf<"verify_sessions">,
  page: OutputStyle,
): Generator<string> {
  const { width, home } = page;
  const rows = [...damaged, ...incomplete];
  for (const { sessionPath, sessionId, name, damage, damageCount, lockedBy, failure, archived } of rows) {
    const id = sessionId === null ? shortenPath(sessionPath, home) : shortenId(sessionId);
    yield name === null ? id : cutTo(`${id}  ${escapeLine(name)}`, width);
    const more = damageCount - Math.min(damage.length, MOST_PLACES);
    const places = failure === null ? damage.slice(0, MOST_PLACES).map(formatDamage) : [show`  ${failure}`];
    for (const place of places) yield rewordAsVerbs(place);
    if (failure === null && more > 0) yield `  and ${count(more, "more place", "more places")}`;
    if (lockedBy) yield `  Process ${lockedBy.pid} writes to it now; look again when that has ended.`;
    // An id finds only sessions that are listed.
    if (failure === null) yield show`  Repair it: repair ${archived ? sessionPath : (sessionId ?? "")}`;
    yield "";
  }
  // The rows above end with an empty line.
  for (const line of formatUnreadFiles(notRead, page)) if (line !== "") yield line;
  if (notRead.length > 0) yield "";
  const what = count(total, "session", "sessions");
  const verdict = damaged.length === 0 ? "all sound" : `${damaged.length} damaged`;
  if (incomplete.length === 0) return yield `${what}, ${verdict}.`;
  yield `${what}, ${verdict}; of ${incomplete.length} nothing is lost, but Pi's interface fails on messages that lack ` +
    "something, which repair adds.";
}

type Repaired = ResultOf<"repair_session"> & { readonly sessionId?: string; readonly operationId?: undefined };

export const repair = defineVerb<EachResult<Repaired>>({
  name: "repair",
  meaning: "remove damage from sessions, and keep the originals",
  operands: ["<session...>"],
  onInterrupt: "The session is as it was or repaired, and the original is kept; verify shows which.",
  flags: { "--dry-run": { meaning: "print what would be done; the exit status is 3 if there is something to repair" } },
  more: "It takes several sessions, one after the other; undo takes back one at a time.",
  async run(asking, { operands, flags }) {
    const dryRun = flags.has("--dry-run");
    const opened = [];
    // All are found before anything is done with the first.
    for (const operand of new Set(operands)) opened.push({ operand, ...(await openChangedSession(asking, operand)) });
    return doEach<(typeof opened)[number], Repaired>(asking, opened, async ({ operand, sessionId }) => {
      if (opened.length === 1) return asking.ask("repair_session", { dryRun });
      await openChangedSession(asking, operand);
      return { ...(await asking.ask("repair_session", { dryRun })), sessionId };
    });
  },
  print(result, { flags }) {
    if (!("results" in result)) return repairLines(result, flags.has("--dry-run"));
    const done = result.results.filter((one): one is Repaired => !isFailed(one));
    return [
      ...done.flatMap((one) => [
        show`${one.sessionId}`,
        ...repairLines(one, flags.has("--dry-run")).map((line) => `  ${line}`),
      ]),
      ...formatFailures(result),
    ];
  },
  status(result, { flags }) {
    const all: readonly object[] = "results" in result ? result.results : [result];
    const isNeeded = all.some((one) => !isFailed(one) && isRepaired(one as Repaired));
    return getEachStatus(result) || (flags.has("--dry-run") && isNeeded ? DAMAGE : OK);
  },
});

function isRepaired({ repaired, answered }: Repaired): boolean {
  return repaired.length + answered.length > 0;
}

function repairLines({ repaired, answered, backupPath, entryCount }: Repaired, dryRun: boolean): string[] {
  const done = dryRun ? "would be" : "was";
  return [
    repaired.length + answered.length === 0 ? "There is nothing to repair." : `This ${done} repaired:`,
    ...repaired.map(formatDamage),
    ...answered.map(({ toolName, entryId }) => show`  call of ${toolName} in ${entryId}: gets an error result`),
    ...(backupPath === null
      ? []
      : [`The original is kept next to it (${formatBackupName(backupPath)}); undo puts it back.`]),
    `${count(entryCount, "entry", "entries")}.`,
  ];
}

export function formatDamage({
  kind,
  line,
  byteOffset,
  length,
  entryId,
  reason,
  salvaged,
  keptAt,
}: ReportedDamage): string {
  const where = [
    ...(line > 0 ? [`line ${line}`] : []),
    ...(length > 0 ? [`${length} bytes at ${byteOffset}`] : []),
    ...(entryId === undefined ? [] : [show`entry ${entryId}`]),
  ].join(", ");
  const kept = keptAt === undefined ? "" : show`; the bytes are in ${keptAt}`;
  return show`  ${kind}${where === "" ? "" : ` (${where})`}: ${rewordAsVerbs(reason)}${salvaged ? "" : "; lost"}${kept}`;
}
