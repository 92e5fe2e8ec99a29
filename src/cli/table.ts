/** Every verb, in the order of the help. A new verb is a new file and a line here. */

import type { Verb } from "./verb.ts";
import browse from "./verbs/browse.ts";
import { completionOf } from "./verbs/completion.ts";
import conformance from "./verbs/conformance.ts";
import remove from "./verbs/delete.ts";
import takeOut from "./verbs/export.ts";
import fork from "./verbs/fork.ts";
import bringIn from "./verbs/import.ts";
import index from "./verbs/index.ts";
import list from "./verbs/list.ts";
import migrate from "./verbs/migrate.ts";
import { archive, restore, unarchive } from "./verbs/moves.ts";
import relocate from "./verbs/relocate.ts";
import rename from "./verbs/rename.ts";
import repair from "./verbs/repair.ts";
import rollback from "./verbs/rollback.ts";
import search from "./verbs/search.ts";
import show from "./verbs/show.ts";
import stats from "./verbs/stats.ts";
import status from "./verbs/status.ts";
import tree from "./verbs/tree.ts";
import verify from "./verbs/verify.ts";

export const verbs: readonly Verb[] = [
  list,
  search,
  show,
  tree,
  browse,
  stats,
  rename,
  fork,
  remove,
  restore,
  archive,
  unarchive,
  relocate,
  takeOut,
  bringIn,
  verify,
  repair,
  migrate,
  rollback,
  status,
  index,
  conformance,
  completionOf(() => verbs),
];

/** Returns the verb with that name. */
export function findVerb(name: string): Verb | undefined {
  return verbs.find((verb) => verb.name === name);
}
