import { basename, dirname, isAbsolute, join, relative } from "node:path";
import { Failure } from "../../core/failure.ts";
import { isPath } from "../../core/search/named.ts";
import { getKnownPath, isBelow } from "../../storage/fs/confined-disk.ts";
import { getInfo } from "../../storage/fs/files.ts";
import { toAbsolutePath, toFolderName } from "../../storage/fs/paths.ts";
import { doEachListed, type EachResult, formatEachListed, getEachStatus, type WouldChange } from "../bulk.ts";
import { hintAtDirectory } from "../directory-hint.ts";
import { UsageError } from "../options.ts";
import { findNamedSession } from "../sessions.ts";
import { count, formatBackupName, shortenId, shortenPath, show } from "../terminal/text.ts";
import { defineVerb, type ResultOf, type VerbArguments, type VerbContext } from "../verb.ts";
import type { ListedSession } from "./list.ts";

type RelocatedOne = ResultOf<"relocate_session">;

/** The old and the new directory of a project. */
interface Renaming {
  readonly from: string;
  readonly to: string;
}

/** The outcome of relocating the sessions of a directory, and how many archived ones stay. */
type RelocatedAll = (EachResult<RelocatedOne> | WouldChange) & Renaming & { readonly archived: number };

export default defineVerb<RelocatedOne | RelocatedAll>({
  name: "relocate",
  meaning: "give a session another working directory, or all of a directory",
  operands: ["<session>", "<dir>"],
  replacesOperands: ["--from"],
  flags: {
    "--from": {
      value: "dir",
      meaning: "relocate all sessions of this directory, which was renamed, and of those in it",
    },
    "--dry-run": { meaning: "with --from: show the sessions and change nothing" },
    "--yes": { meaning: "with --from: do not ask; required without a terminal" },
    "--allow-missing": { meaning: "accept a directory that does not exist here" },
  },
  more: `The file moves to the folder of that directory. The original stays as a backup. --from shows the sessions and asks; one undo takes all of them back.
  pi-session-server relocate --from ~/code/old-name ~/code/new-name`,
  onInterrupt: "Each session is at its old place or at the new one, never lost; the same command goes on.",
  async run(asking, given) {
    const { operands, flags } = given;
    if (flags.has("--from")) return relocateAll(asking, given);
    const lone = ["--dry-run", "--yes"].find((flag) => flags.has(flag));
    if (lone) throw new UsageError(`${lone} goes with --from.`);
    requireNoDirectory(asking, operands[0]);
    const { params } = await findNamedSession(asking, operands[0], "listed").catch((error) => {
      if (!(error instanceof Failure) || error.name !== "session_not_found") throw error;
      const sentence = `No session has the id ${operands[0]}, or that in its name. relocate --from ${operands.join(" ")} relocates all sessions of a directory.`;
      throw new Failure("session_not_found", sentence, { sessionId: operands[0] });
    });
    const allowMissing = flags.has("--allow-missing") ? true : undefined;
    return asking.ask("relocate_session", { ...params, cwd: toRealPath(asking, operands[1]), allowMissing });
  },
  print(result, _given, page) {
    const { home } = page;
    if (!("archived" in result)) {
      const { sessionId, movedTo, keptAt } = result;
      const kept = keptAt === null ? [] : [`The original is kept next to it (${formatBackupName(keptAt)}).`];
      return [`${shortenId(sessionId)} is now at ${shortenPath(movedTo, home)}.`, ...kept];
    }
    const { archived } = result;
    const [from, to] = [result.from, result.to].map((path) => shortenPath(path, home));
    const none = `No session has the directory ${from}, or one in it.`;
    const did = ({ length }: readonly unknown[]): string =>
      `${count(length, "session is", "sessions are")} in ${to} now; undo takes ${length === 1 ? "it" : "them"} back.`;
    const left = `${count(archived, "archived session stays", "archived sessions stay")} as before. unarchive them, and do this again.`;
    return [
      ...formatEachListed(result, { none, would: `be relocated to ${to}`, did }, page),
      ...(archived > 0 ? [left] : []),
    ];
  },
  status: (result) => ("archived" in result ? getEachStatus(result) : 0),
});

/** Returns a directory as an agent in it knows it: without links. */
function toRealPath({ cwd, disk }: VerbContext, dir: string): string {
  return getKnownPath(disk, toAbsolutePath(dir, cwd));
}

/** Throws UsageError if an operand is the path of a directory, or of one that was renamed. */
function requireNoDirectory({ cwd, disk }: VerbContext, operand: string): void {
  const isSession = /\.(jsonl|v2)$/.test(operand) || getInfo(disk, toAbsolutePath(operand, cwd))?.kind === "file";
  if (!isPath(operand) || isSession) return;
  throw new UsageError(show`${operand} is no session. --from ${operand} relocates all sessions of that directory.`);
}

/** Relocates the sessions of a directory that was renamed. Throws UsageError, cancelled. */
async function relocateAll(asking: VerbContext, given: VerbArguments): Promise<RelocatedAll> {
  const { operands, flags } = given;
  if (operands.length !== 1)
    throw new UsageError("--from takes the old directory, and the new one follows: --from <old> <new>.");
  const [from, to] = [flags.get("--from") as string, operands[0]].map((dir) => toRealPath(asking, dir));
  requireOther(asking, { from, to }, flags.has("--allow-missing"));
  const place = (session: ListedSession): string | undefined => findNewPlace(asking, { from, to }, session);
  const find = async (archived?: true) => {
    const { sessions } = await asking.ask("list_sessions", { archived, headerOnly: true, holders: true });
    return sessions.filter((session) => place(session) !== undefined);
  };
  const sessions = await find();
  const question = {
    ask: (what: string) => `Relocate ${what} to ${shortenPath(to, asking.page().home)}?`,
    refused: "Nothing was relocated.",
  };
  // The new directory is there; one in it may have been gone before.
  const result = await doEachListed(asking, given, sessions, question, ({ params, session }, group) =>
    asking.ask("relocate_session", { ...params, cwd: place(session) ?? to, allowMissing: true, group }),
  );
  const archived = (await find(true)).length;
  if (sessions.length + archived === 0) await hintAtDirectory(asking, from);
  return { ...result, from, to, archived };
}

/** Throws UsageError unless the new directory exists and is another one. */
function requireOther({ disk }: VerbContext, { from, to }: Renaming, allowMissing: boolean): void {
  if (from === to) throw new UsageError(show`Both directories are ${to}.`);
  if (!allowMissing && getInfo(disk, to)?.kind !== "folder")
    throw new UsageError(
      show`There is no folder ${to}. Correct the path or create the folder first; --allow-missing accepts it as it is.`,
    );
}

/**
 * Returns the directory of a session after the renaming; undefined if it has no old one. An interrupted relocation left
 * a session with the new directory in the folder of the old one.
 */
function findNewPlace(
  { disk }: VerbContext,
  { from, to }: Renaming,
  { cwd, sessionPath }: ListedSession,
): string | undefined {
  if (cwd === null || !isAbsolute(cwd)) return undefined;
  const at = getKnownPath(disk, cwd);
  const folder = toFolderName(join(from, relative(to, at)));
  if (isBelow(to, at) && folder !== toFolderName(at) && basename(dirname(sessionPath)) === folder) return at;
  // The new directory may be in the old one.
  const isThere = isBelow(from, to) && isBelow(to, at);
  return isBelow(from, at) && !isThere ? join(to, relative(from, at)) : undefined;
}
