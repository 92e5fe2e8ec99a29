/** Every verb, in the order of the help. A new verb is a new file and a line here. */

import { findNearest } from "./nearest.ts";
import { UsageError } from "./options.ts";
import type { Verb, VerbGroup } from "./verb.ts";
import browse from "./verbs/browse.ts";
import compare from "./verbs/compare.ts";
import { defineComplete } from "./verbs/complete.ts";
import completion from "./verbs/completion.ts";
import conformance from "./verbs/conformance.ts";
import remove from "./verbs/delete.ts";
import { doctor } from "./verbs/doctor.ts";
import takeOut from "./verbs/export.ts";
import fleet from "./verbs/fleet.ts";
import follow from "./verbs/follow.ts";
import fork from "./verbs/fork.ts";
import goTo from "./verbs/goto.ts";
import { defineHelp } from "./verbs/help.ts";
import bringIn from "./verbs/import.ts";
import index from "./verbs/index.ts";
import label from "./verbs/label.ts";
import list from "./verbs/list.ts";
import { mcp, recall } from "./verbs/mcp.ts";
import merge from "./verbs/merge.ts";
import { migrateVerb, rollbackVerb, statusVerb } from "./verbs/migration.ts";
import { archive, restore, unarchive } from "./verbs/moves.ts";
import { operations, redo, undo } from "./verbs/operations.ts";
import { prune } from "./verbs/prune.ts";
import recover from "./verbs/recover.ts";
import relocate from "./verbs/relocate.ts";
import rename from "./verbs/rename.ts";
import resume from "./verbs/resume.ts";
import schema from "./verbs/schema.ts";
import search from "./verbs/search.ts";
import show from "./verbs/show.ts";
import stats from "./verbs/stats.ts";
import trash from "./verbs/trash.ts";
import tree from "./verbs/tree.ts";
import { repair, verify } from "./verbs/verify.ts";
import version from "./verbs/version.ts";
import view from "./verbs/view.ts";

/** The verbs by what people are after. */
export const groups: readonly VerbGroup[] = [
  { title: "Find and read", verbs: [list, search, show, tree, browse, view, compare, stats] },
  { title: "Go on with a session", verbs: [resume, follow] },
  { title: "Let agents remember", verbs: [mcp, recall] },
  { title: "Change", verbs: [rename, label, goTo, fork, merge, archive, unarchive, relocate] },
  { title: "Delete and take back", verbs: [remove, trash, restore, operations, undo, redo] },
  { title: "Bring in and out", verbs: [takeOut, bringIn, index] },
  { title: "Check and mend", verbs: [verify, repair, recover, doctor, prune] },
  { title: "Move between stores", verbs: [migrateVerb, rollbackVerb, statusVerb, fleet] },
  {
    title: "About this program",
    verbs: [defineHelp(() => groups, requireVerb), version, completion, schema, conformance],
  },
];

export const verbs: readonly Verb[] = groups.flatMap(({ verbs }) => verbs);

/** The verb that the completion scripts call; no person types it, so no help lists it. */
const complete = defineComplete(() => verbs);

/** Words known from other programs, with the verbs for them here. */
const SAID_ELSEWHERE: Readonly<Record<string, string>> = {
  mv: "rename, or relocate",
  move: "relocate",
  checkout: "goto",
  tag: "label",
  cp: "fork",
  copy: "fork",
  clone: "fork",
  find: "search",
  grep: "search",
  open: "show, or browse",
  log: "show, or tree",
  remove: "delete",
  unlink: "delete",
  check: "verify, or doctor",
  fsck: "verify, or doctor",
  health: "doctor",
  clean: "prune",
  gc: "prune",
  fix: "repair",
  cost: "stats",
  blame: "search --file",
  diff: "compare",
  du: "list --sort size",
  empty: "trash empty",
  head: "show",
  history: "operations, or list",
  less: "show",
  more: "show",
  name: "rename",
  purge: "trash empty, or prune",
  read: "show",
  tail: "show --tail, or follow",
  usage: "stats",
  pick: "browse",
};

/** Returns the verb that a word, or another word that people type for it, is. */
export function findVerb(name: string): Verb | undefined {
  if (name === complete.name) return complete;
  return verbs.find((verb) => verb.name === name || verb.aliases?.includes(name));
}

/** Returns the verb that a word is. Throws UsageError with the one that is meant. */
export function requireVerb(name: string): Verb {
  const verb = findVerb(name);
  if (verb !== undefined) return verb;
  throw new UsageError(`Unknown verb ${name}.${adviceOn(name)} --help lists the verbs.`);
}

function adviceOn(name: string): string {
  const names = verbs.flatMap((verb) => [verb.name, ...(verb.aliases ?? [])]);
  const meant = Object.hasOwn(SAID_ELSEWHERE, name) ? SAID_ELSEWHERE[name] : findNearest(name, names);
  return meant === undefined ? "" : ` Did you mean ${meant}?`;
}
