/** Every verb, in the order of the help. A new verb is a new file and a line here. */

import archive from "./archive.ts";
import browse from "./browse.ts";
import { completionOf } from "./completion.ts";
import remove from "./delete.ts";
import takeOut from "./export.ts";
import fork from "./fork.ts";
import bringIn from "./import.ts";
import index from "./index.ts";
import list from "./list.ts";
import migrate from "./migrate.ts";
import relocate from "./relocate.ts";
import rename from "./rename.ts";
import repair from "./repair.ts";
import restore from "./restore.ts";
import rollback from "./rollback.ts";
import search from "./search.ts";
import show from "./show.ts";
import stats from "./stats.ts";
import status from "./status.ts";
import tree from "./tree.ts";
import unarchive from "./unarchive.ts";
import type { Verb } from "./verb.ts";
import verify from "./verify.ts";

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
  completionOf(() => verbs),
];

/** The verb of that name. */
export function findVerb(name: string): Verb | undefined {
  return verbs.find((verb) => verb.name === name);
}
