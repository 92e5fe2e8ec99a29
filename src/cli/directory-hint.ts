/** A hint at the directory that a person means, where no session has the named one. */

import { basename, isAbsolute } from "node:path";
import { isBelow } from "../storage/fs/confined-disk.ts";
import { findNearest } from "./nearest.ts";
import { count, shortenPath } from "./terminal/text.ts";
import type { VerbContext } from "./verb-context.ts";

/**
 * Says which sessions of a directory are archived, unless those were asked for, too; of one that has none, which are below
 * it, or which directory has a similar path.
 */
export async function hintAtDirectory(
  { ask, say, page }: VerbContext,
  dir: string,
  withArchived = false,
): Promise<void> {
  const { sessions } = await ask("list_sessions", { headerOnly: true });
  const directories = sessions.flatMap(({ cwd }) => (cwd !== null && isAbsolute(cwd) ? cwd : []));
  if (directories.includes(dir)) return;
  const { home } = page();
  const { total } = await ask("list_sessions", { cwd: dir, archived: true, headerOnly: true, limit: 1 });
  if (total > 0) {
    const what = `${count(total, "session", "sessions")} of ${shortenPath(dir, home)}`;
    if (!withArchived)
      say(
        `${what} ${total === 1 ? "is" : "are"} archived. list --archived --cwd '${dir}' lists ${total === 1 ? "it" : "them"}.`,
      );
    return;
  }
  const below = directories.filter((one) => isBelow(dir, one)).length;
  const name = findNearest(
    basename(dir),
    directories.map((one) => basename(one)),
  );
  const near = findNearest(dir, directories) ?? directories.find((one) => basename(one) === name);
  if (below > 0)
    say(`${count(below, "session is", "sessions are")} in directories below it. list --query '${dir}' lists them.`);
  else if (near !== undefined) {
    const number = directories.filter((one) => one === near).length;
    say(`Did you mean ${shortenPath(near, home)}, with ${count(number, "session", "sessions")}?`);
  }
}
