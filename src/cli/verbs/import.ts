import { join } from "node:path";
import { exists } from "../../storage/fs/disk.ts";
import { getInfo } from "../../storage/fs/files.ts";
import { listFolder } from "../../storage/fs/folders.ts";
import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { isEmptyFile } from "../../storage/lifecycle/empty-files.ts";
import { isOperationFile } from "../../storage/lifecycle/operation-log.ts";
import { readItem } from "../../storage/lifecycle/trash-items.ts";
import { doEach, type EachResult, formatFailures, getEachStatus, isFailed } from "../bulk.ts";
import { UsageError } from "../options.ts";
import { findAgentFile } from "../sessions.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, shortenId, shortenPath } from "../terminal/text.ts";
import { defineVerb, type ResultOf, type VerbContext } from "../verb.ts";
import { formatDamage, formatFidelity } from "./verify.ts";

type ImportedOne = ResultOf<"import_session">;

export default defineVerb<EachResult<ImportedOne>>({
  name: "import",
  meaning: "copy session files into the session folders",
  operands: ["<file...>"],
  onInterrupt: "Nothing is imported by half; the same command begins again.",
  more: "A file is a session, or an export of opencode or Goose; another agent's session can be named by its id. A folder stands for all .jsonl files in it and below, without empty ones, the trash and the records of this program. It overwrites nothing and recognises what is here already. One undo moves all sessions that it made to the trash; undo cannot take back the rest of a session whose beginning was here.",
  async run(asking, { operands, flags }) {
    if (operands.includes("-"))
      throw new UsageError(
        "import reads files, not stdin. export <session> notes.jsonl writes one, which import takes.",
      );
    const left: LeftOfFolders = { empty: 0, trashes: [] };
    const files = operands.flatMap((operand) => listSessionFiles(asking, operand, left) ?? [operand]);
    if (!flags.has("--json")) sayLeftOut(asking, left);
    if (files.length === 0)
      throw new UsageError(`No file in ${operands.join(" or ")} ends with .jsonl and has a session.`);
    const result = await doEach<{ readonly operand: string }, ImportedOne>(
      asking,
      files.map((operand) => ({ operand })),
      async ({ operand }, group) => asking.ask("import_session", { path: await findAgentFile(asking, operand), group }),
    );
    if (!flags.has("--json")) hintAtDirectories(asking, findImported(result));
    return result;
  },
  print(result, _given, page) {
    if (!("results" in result)) return formatImport(result, page);
    const done = findImported(result).flatMap((one) => [one, ...(one.subagents ?? [])]);
    const of = (...outcomes: ImportedOne["outcome"][]): number =>
      done.filter(({ outcome }) => outcomes.includes(outcome)).length;
    const [known, continued, made] = [of("known"), of("continued"), of("new", "conflict")];
    const damaged = findImported(result)
      .filter(isCopiedDamaged)
      .map(({ sessionPath }) => sessionPath);
    const them = continued > 0 ? `${made} of them` : made === 1 ? "it" : "them";
    return [
      ...formatFailures(result),
      ...(made > 0
        ? [`${count(made + continued, "session is", "sessions are")} imported; undo takes ${them} back.`]
        : []),
      ...(known > 0 ? [`${count(known, "session was", "sessions were")} here already.`] : []),
      ...(continued > 0
        ? [`${count(continued, "session", "sessions")} had the beginning here: the rest came, which cannot be undone.`]
        : []),
      ...(damaged.length > 0
        ? [`${count(damaged.length, "file has", "files have")} damage, which is copied unchanged:`]
        : []),
      ...damaged.map((path) => `  ${shortenPath(path, page.home)}`),
    ];
  },
  status: getEachStatus,
});

/** Returns what was imported. */
function findImported(result: EachResult<ImportedOne>): ImportedOne[] {
  return "results" in result ? result.results.filter((one): one is ImportedOne => !isFailed(one)) : [result];
}

/** Returns whether damage of a file was copied: one that was here already is not copied. */
function isCopiedDamaged({ outcome, damage }: ImportedOne): boolean {
  return outcome !== "known" && damage.length > 0;
}

/** Files in folders that are no sessions to import. */
interface LeftOfFolders {
  empty: number;
  /** Trash folders, and how many sessions are in each. */
  readonly trashes: { readonly path: string; readonly sessions: number }[];
}

/** Says what of the folders is left out. */
function sayLeftOut({ say, page }: VerbContext, { empty, trashes }: LeftOfFolders): void {
  if (empty > 0) say(`${count(empty, "empty file is", "empty files are")} left out.`);
  for (const { path, sessions } of trashes)
    say(
      `${count(sessions, "deleted session is", "deleted sessions are")} left out. import ${shortenPath(path, page().home)} brings in what this trash has.`,
    );
}

/** Returns the session files in a folder and below; undefined for anything else. */
function listSessionFiles(asking: VerbContext, operand: string, left: LeftOfFolders): string[] | undefined {
  const { disk, cwd } = asking;
  const path = toAbsolutePath(operand, cwd);
  if (/\.v2$/.test(path) || getInfo(disk, path)?.kind !== "folder") return undefined;
  return listFolder(disk, path)
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap(({ name, kind }) => {
      const inner = join(path, name);
      if (kind === "folder") {
        const sessions = countTrashed(asking, inner);
        if (sessions === undefined) return listSessionFiles(asking, inner, left) ?? [];
        if (sessions > 0) left.trashes.push({ path: inner, sessions });
        return [];
      }
      if (!name.endsWith(".jsonl") || isOperationFile(disk, inner)) return [];
      if (!isEmptyFile(disk, inner)) return [inner];
      left.empty++;
      return [];
    });
}

/** Returns how many deleted sessions a trash folder of this program has; undefined for any other folder. */
function countTrashed({ disk }: VerbContext, path: string): number | undefined {
  const items = listFolder(disk, path).map(({ name }) => readItem(disk, join(path, name)));
  if (items.every((item) => item === undefined)) return undefined;
  return items.filter((item) => item !== undefined && item.record.files === undefined && exists(disk, item.file))
    .length;
}

/** Says which directories of the imported sessions are none here, and how they get others. */
function hintAtDirectories({ disk, cwd: here, say, page }: VerbContext, imported: readonly ImportedOne[]): void {
  const taken = imported.filter(({ outcome }) => outcome !== "known");
  const missing = taken.filter(({ cwd }) => cwd && getInfo(disk, toAbsolutePath(cwd, here))?.kind !== "folder");
  const [first, ...others] = new Set(missing.map(({ cwd }) => cwd));
  if (first === undefined) return;
  const more = others.length === 0 ? "" : ` and ${count(others.length, "other directory", "other directories")}`;
  const which = imported.length === 1 ? shortenId(imported[0].sessionId) : `--from '${first}'`;
  // A redacted export writes a home as ~.
  const { home } = page();
  const own = home !== undefined && /^~\/[\w./-]+$/.test(`${first}`) ? join(home, `${first}`.slice(2)) : undefined;
  if (own !== undefined && getInfo(disk, own)?.kind === "folder")
    return say(`The directory ${first} has another home${more}. relocate ${which} ${first} moves to yours.`);
  say(`This machine has no ${first}${more}. relocate ${which} <dir> moves to another directory.`);
}

function formatImport(one: ImportedOne, { home }: OutputStyle): string[] {
  const { sessionPath, sessionId, outcome, conflictsWith, entryCount, damage, fidelity, subagents = [] } = one;
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
    ...(isCopiedDamaged(one)
      ? [`${count(damage.length, "damaged place", "damaged places")}, copied unchanged:`, ...damage.map(formatDamage)]
      : []),
    ...formatFidelity(fidelity),
    `resume ${shortenId(sessionId)} goes on with it${outcome === "new" || outcome === "conflict" ? "; undo takes it back" : ""}.`,
  ];
}
