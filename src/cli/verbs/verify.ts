/** Verbs that look for damage and repair it. */

import { count, inert } from "../terminal/text.ts";
import { askAbout, DAMAGE, OK, type Result, type Verb } from "../verb.ts";
import { inVerbs } from "../wording.ts";

export const verify = {
  name: "verify",
  meaning: "read every byte and report what is damaged",
  operands: ["<session>"],
  run: askAbout("verify_session"),
  print: ({ ok, damage, unreadableForRust }) => [
    ok ? "The session is sound." : `${count(damage.length, "damaged place", "damaged places")}:`,
    ...damage.map(damageLine),
    ...(unreadableForRust.length === 0
      ? []
      : [`pi_agent_rust skips ${count(unreadableForRust.length, "entry", "entries")} of it and does not write to it.`]),
  ],
  status: ({ ok }) => (ok ? OK : DAMAGE),
} satisfies Verb;

export const repair = {
  name: "repair",
  meaning: "remove damage; the original is kept",
  operands: ["<session>"],
  onInterrupt: "The session is as it was or repaired, and the original is kept; verify shows which.",
  flags: { "--dry-run": { meaning: "only print what would be done; exit status 3 if there is something to repair" } },
  run: askAbout("repair_session", ({ flags }) => ({ dryRun: flags.has("--dry-run") })),
  print({ repaired, answered, backupPath, entryCount }, { flags }) {
    const done = flags.has("--dry-run") ? "would be" : "was";
    const nothing = repaired.length === 0 && answered.length === 0;
    return [
      nothing ? "There is nothing to repair." : `This ${done} repaired:`,
      ...repaired.map(damageLine),
      ...answered.map(
        ({ toolName, entryId }: Result) => `  call of ${inert(toolName)} in ${inert(entryId)}: gets an error result`,
      ),
      ...(backupPath === null ? [] : [`The original is ${inert(backupPath)}.`]),
      `${count(entryCount, "entry", "entries")}.`,
    ];
  },
  status: ({ repaired, answered }, { flags }) =>
    flags.has("--dry-run") && repaired.length + answered.length > 0 ? DAMAGE : OK,
} satisfies Verb;

export function damageLine({ kind, line, byteOffset, length, entryId, reason, salvaged, keptAt }: Result): string {
  const where = [
    ...(line > 0 ? [`line ${line}`] : []),
    ...(length > 0 ? [`${length} bytes at ${byteOffset}`] : []),
    ...(entryId === undefined ? [] : [`entry ${inert(entryId)}`]),
  ].join(", ");
  const kept = keptAt === undefined ? "" : `; the bytes are in ${inert(keptAt)}`;
  return `  ${inert(kind)}${where === "" ? "" : ` (${where})`}: ${inert(inVerbs(reason))}${salvaged ? "" : "; lost"}${kept}`;
}
