import { count, inert } from "../terminal/text.ts";
import { askAbout, DAMAGE, OK, type Result, type Verb } from "../verb.ts";
import { damageLine } from "./verify.ts";

export default {
  name: "repair",
  meaning: "remove damage; the original is kept",
  operands: ["<session>"],
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
