import { Branches, FILTERS, type Filter, FOLDED, UNFOLDED } from "../browse/branches.ts";
import { formatHeads, formatPlainRow, formatTreeRow, getClockWidth, getEntryHead } from "../browse/tree-rows.ts";
import type { FlatNode } from "../entries.ts";
import { show } from "../terminal/text.ts";
import { defineVerb, openNamedSession, type ResultOf, type VerbArguments } from "../verb.ts";

/** Filters as they are typed. */
const NAMES = FILTERS.map((filter) => filter.replace(" ", "-"));

/** Columns of ids that are kept free for each. */
const ID = 12;

/** Heads that are drawn at most, those that were written through last. */
const MOST_HEADS = 1000;

interface DrawnHead {
  readonly name: string;
  readonly leafId: string | null;
}

type TreeAndHeads = ResultOf<"get_tree"> & Partial<ResultOf<"list_heads">>;

export default defineVerb({
  name: "tree",
  meaning: "draw the branches of a session",
  operands: ["<session>"],
  flags: {
    "--filter": {
      value: "filter",
      meaning: `draw ${NAMES.join(", ")}; default leaves out entries about the session, no-tools also results and calls`,
      oneOf: NAMES,
    },
    "--all": { meaning: "draw every entry and fold nothing" },
    "--labels": { meaning: "draw only entries with a label" },
  },
  more:
    "A star marks the leaf, where the conversation continues; if that is not drawn, the last line names it. The path to it is in the first column. On a terminal, entries " +
    "between two questions are folded into one line, and a wide one shows times. fork, show and compare take the ids.",
  async run(asking, { operands, flags }) {
    await openNamedSession(asking, operands[0]);
    const tree = await asking.ask("get_tree", { format: "flat" });
    return flags.has("--json") ? tree : { ...tree, ...(await asking.ask("list_heads", { limit: MOST_HEADS })) };
  },
  *print({ nodes = [], leafId, heads = [] }: TreeAndHeads, given, page) {
    const isPlain = given.flags.has("--plain");
    const filter = filterOf(given);
    const folds = page.isTerminal && !isPlain && filter !== "all" ? FOLDED : UNFOLDED;
    const branches = new Branches(nodes, leafId, filter, folds);
    if (nodes.length === 0) yield "There are no entries yet.";
    else if (leafId === null) yield `${page.paint("green", "*")} ${page.paint("dim", "(before the first entry)")}`;
    const before = formatHeads(heads.filter(({ leafId: at }) => at === null).map(({ name }) => name));
    if (before !== "" && nodes.length > 0) yield `  ${page.paint("dim", "(before the first entry)")}${before}`;
    if (nodes.length > 0 && branches.rows === 0) yield "No entry passes the filter. --all shows all.";
    const longest = nodes.reduce((width, { id }) => Math.max(width, id.length), 0);
    const draw = isPlain ? formatPlainRow : formatTreeRow;
    const clockWidth = page.isTerminal ? getClockWidth(nodes, page) : 0;
    const style = { idWidth: Math.min(longest, ID), clockWidth, heads: byRow(branches, heads) };
    for (let row = 0; row < branches.rows; row++) yield draw(branches, row, page, style);
    if (leafId !== null && branches.rows > 0 && !branches.isLeafShown) yield page.paint("dim", leafText(nodes, leafId));
  },
});

/** Returns the line about a leaf that is not drawn. */
function leafText(nodes: readonly FlatNode[], leafId: string): string {
  const leaf = nodes.find(({ id }) => id === leafId);
  const kind = leaf ? `, ${getEntryHead(leaf).filter(Boolean).join(" ")},` : "";
  return show`The leaf ${leafId}${kind} is not drawn.`;
}

/** Returns the names of heads by the rows where they stand. */
function byRow(branches: Branches, heads: readonly DrawnHead[]): ReadonlyMap<number, readonly string[]> {
  const names = new Map<number, string[]>();
  for (const { name, leafId } of heads) {
    const row = leafId === null ? -1 : branches.row(leafId);
    names.set(row, [...(names.get(row) ?? []), name]);
  }
  return names;
}

function filterOf({ flags }: VerbArguments): Filter {
  if (flags.has("--all")) return "all";
  if (flags.has("--labels")) return "labelled";
  return FILTERS[Math.max(0, NAMES.indexOf(flags.get("--filter") ?? "default"))];
}
