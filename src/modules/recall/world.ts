/** The world of the tools: the project and the person that they work for, and the processes that started this one. */

import { dirname, resolve } from "node:path";
import type { AskCommand, RecallPlace } from "../../server/recall-module.ts";

export type RecallWorld = ReturnType<typeof makeRecallWorld>;

export function makeRecallWorld(ask: AskCommand, place: RecallPlace) {
  const { variables, cwd, excluded, redacts } = place;
  const { HOME: home, CLAUDE_PROJECT_DIR: project } = variables;
  let known: readonly number[] | undefined;
  return {
    ask,
    now: () => Date.now(),
    // Claude Code names the project in its variable.
    cwd: project || cwd,
    home,
    /** Absolute paths of folders whose projects and sessions are kept out. */
    excluded: excluded.map((dir) => resolve(cwd, dir.replace(/^~(?=$|\/)/, home ?? "~"))),
    /** Returns where a path really leads; the path itself if nothing is there. */
    realPath(path: string): string {
      // A folder may be gone while one above it is a link.
      for (let at = path, rest = ""; ; rest = `${at.slice(dirname(at).length)}${rest}`, at = dirname(at)) {
        try {
          return `${place.realPath(at)}${rest}`;
        } catch {
          if (dirname(at) === at) return path;
        }
      }
    },
    /** False if secrets stay. */
    redacts,
    /** Returns the processes that started this one. */
    ancestors(): readonly number[] {
      known ??= place.findAncestors();
      return known;
    },
  };
}
