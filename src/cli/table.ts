/** Every verb, in the order of the help. A new verb is a new file and a line here. */

import type { Verb } from "./verb.ts";
import browse from "./verbs/browse.ts";
import compare from "./verbs/compare.ts";
import { completionOf } from "./verbs/completion.ts";
import conformance from "./verbs/conformance.ts";
import remove from "./verbs/delete.ts";
import takeOut from "./verbs/export.ts";
import follow from "./verbs/follow.ts";
import fork from "./verbs/fork.ts";
import bringIn from "./verbs/import.ts";
import index from "./verbs/index.ts";
import list from "./verbs/list.ts";
import merge from "./verbs/merge.ts";
import { migrate, rollback, status } from "./verbs/migration.ts";
import { archive, restore, unarchive } from "./verbs/moves.ts";
import relocate from "./verbs/relocate.ts";
import rename from "./verbs/rename.ts";
import resume from "./verbs/resume.ts";
import schema from "./verbs/schema.ts";
import search from "./verbs/search.ts";
import show from "./verbs/show.ts";
import stats from "./verbs/stats.ts";
import tree from "./verbs/tree.ts";
import { repair, verify } from "./verbs/verify.ts";

export const verbs: readonly Verb[] = [
  list,
  search,
  show,
  tree,
  browse,
  resume,
  follow,
  compare,
  merge,
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
  schema,
  conformance,
  completionOf(() => verbs),
];
