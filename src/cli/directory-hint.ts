/** A hint at the directory that a person means, where no session has the named one. */

import { basename, isAbsolute, join } from "node:path";
import { quoteWord } from "../core/export/resumable.ts";
import { isBelow } from "../storage/fs/confined-disk.ts";
import type { Disk, Named } from "../storage/fs/disk.ts";
import { getInfo } from "../storage/fs/files.ts";
import { listFolderIfAllowed } from "../storage/fs/folders.ts";
import { isSessionName, toAbsolutePath } from "../storage/fs/paths.ts";
import { findNearest } from "./nearest.ts";
import { count, shortenPath, show } from "./terminal/text.ts";
import type { VerbContext } from "./verb-context.ts";

/**
 * Returns the sentence about a folder of `--session-dir` that holds no sessions itself: it does not exist, or has them in
 * folders of its own, as the usual place does. Returns undefined for any other.
 */
export function describeSessionDir(
  { disk, cwd }: { readonly disk: Disk; readonly cwd: string },
  given: string,
): string | undefined {
  const dir = toAbsolutePath(given, cwd);
  if (getInfo(disk, dir) === null) return show`The folder ${given} of --session-dir does not exist.`;
  const found = listFolderIfAllowed(disk, dir);
  const hasSession = ({ name, kind }: Named): boolean => kind === "file" && isSessionName(name);
  if (found.some(hasSession)) return undefined;
  const isAbove = found.some(
    ({ name, kind }) => kind === "folder" && listFolderIfAllowed(disk, join(dir, name)).some(hasSession),
  );
  return isAbove
    ? show`--session-dir takes one folder with sessions; those of ${dir} are in its folders. PI_SESSIONS_DIR=${quoteWord(dir)} in its place takes these.`
    : undefined;
}

/**
 * Returns true if it said something: which sessions of a directory are archived, unless those were asked for, too; of one
 * that has none, which are below it, or which directory has a similar path.
 */
export async function hintAtDirectory(
  { ask, say, page }: VerbContext,
  dir: string,
  withArchived = false,
): Promise<boolean> {
  const { sessions } = await ask("list_sessions", { headerOnly: true });
  const directories = sessions.flatMap(({ cwd }) => (cwd !== null && isAbsolute(cwd) ? cwd : []));
  if (directories.includes(dir)) return false;
  const { home } = page();
  const { total } = await ask("list_sessions", { cwd: dir, archived: true, headerOnly: true, limit: 1 });
  if (total > 0) {
    const what = `${count(total, "session", "sessions")} of ${shortenPath(dir, home)}`;
    if (withArchived) return false;
    say(
      `${what} ${total === 1 ? "is" : "are"} archived. list --archived --cwd '${dir}' lists ${total === 1 ? "it" : "them"}.`,
    );
    return true;
  }
  const below = directories.filter((one) => isBelow(dir, one)).length;
  const name = findNearest(
    basename(dir),
    directories.map((one) => basename(one)),
  );
  const near = findNearest(dir, directories) ?? directories.find((one) => basename(one) === name);
  if (below > 0)
    say(
      `No session is in ${shortenPath(dir, home)}, ${count(below, "is", "are")} in directories below it. list --query '${dir}' lists them.`,
    );
  else if (near !== undefined) {
    const number = directories.filter((one) => one === near).length;
    say(
      `No session is in ${shortenPath(dir, home)}. Did you mean ${shortenPath(near, home)}, with ${count(number, "session", "sessions")}?`,
    );
  }
  return below > 0 || near !== undefined;
}
