/** Finds the entries that a person names: by id, as the leaf, by label, or by the beginning of an id. */

import { Failure } from "../core/failure.ts";
import { isIdBeginning } from "../core/search/named.ts";
import { SETTING_TYPES } from "../core/session/compare.ts";
import { escapeLine } from "./terminal/text.ts";
import { type AnyResult, CommandFailed, type ResultOf, type VerbArguments, type VerbContext } from "./verb-context.ts";

/** An entry of a tree. */
export type FlatNode = Omit<NonNullable<ResultOf<"get_tree">["nodes"]>[number], "childCount">;

/** The name of the entry where the conversation stands. */
const LEAF = "leaf";
/** Entries that a sentence names at most. */
const MOST_NAMED = 5;

/** Does something with an entry of the current session, which a person named by its id or otherwise. */
export async function runWithEntry<Found>(
  asking: VerbContext,
  given: string,
  act: (entryId: string) => Promise<Found>,
): Promise<Found> {
  try {
    return await act(given);
  } catch (error) {
    if (!(error instanceof CommandFailed) || error.error.data?.name !== "entry_not_found") throw error;
    const entryId = await entryNamed(asking, given);
    if (entryId === undefined) throw error;
    return act(entryId);
  }
}

/** Returns the id of an entry of the current session; undefined when none is named so. Throws when several are. */
async function entryNamed({ ask }: VerbContext, given: string): Promise<string | undefined> {
  const { nodes = [], leafId } = await ask("get_tree", { format: "flat" });
  if (given === LEAF) return findLastSaid(nodes, leafId);
  const ways: ((node: FlatNode) => boolean)[] = [
    ({ id }) => id === given,
    ({ label }) => label === given,
    ({ id }) => isIdBeginning(id, given),
  ];
  for (const way of ways) {
    const found = nodes.filter(way);
    if (found.length === 1) return found[0].id;
    if (found.length === 0) continue;
    const some = found
      .slice(0, MOST_NAMED)
      .map(({ id, preview }) => `${id} (${escapeLine(preview ?? "").slice(0, 30)})`);
    const more = found.length > MOST_NAMED ? ` and ${found.length - MOST_NAMED} more` : "";
    const sentence = `${given} may be any of these: ${some.join(", ")}${more}. Use the id of one.`;
    throw new Failure("entry_not_found", sentence, { entryId: given });
  }
  return undefined;
}

/** Returns where a conversation goes on at an entry: before what a user said, after anything else and with `--at`. */
export async function findPosition(
  { ask }: VerbContext,
  entryId: string,
  flags: VerbArguments["flags"],
): Promise<"at" | "before"> {
  if (flags.has("--at")) return "at";
  const { entry } = await ask("get_entry", { entryId, images: "reference" });
  return (entry as AnyResult).message?.role === "user" ? "before" : "at";
}

/** Returns the leaf or, if that is about the session, such as a label, the nearest entry of the conversation above it. */
function findLastSaid(nodes: readonly FlatNode[], leafId: string | null): string | undefined {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  let at = leafId;
  for (let node = byId.get(at ?? ""); node && SETTING_TYPES.has(node.type); node = byId.get(at ?? ""))
    at = node.parentId;
  return at ?? undefined;
}
