import { Branches, FILTERS, type Filter, type FlatNode, FOLDED, UNFOLDED } from "../browse/branches.ts";
import { plainRow, treeRow } from "../browse/tree-rows.ts";
import { askAbout, type Given, type Verb } from "../verb.ts";

/** Filters as they are typed. */
const NAMES = FILTERS.map((filter) => filter.replace(" ", "-"));

/** Columns of ids that are kept free for each. */
const ID = 12;

export default {
  name: "tree",
  meaning: "draw the branches of a session",
  operands: ["<session>"],
  flags: {
    "--filter": {
      value: "filter",
      meaning: `${NAMES.join(", ")}; default leaves out entries about the session, no-tools results and calls too`,
      oneOf: NAMES,
    },
    "--all": { meaning: "every entry, and nothing folded" },
    "--labels": { meaning: "only entries with a label" },
  },
  more:
    "A star marks the leaf, after which the conversation continues; what leads to it is in the first column. On a " +
    "terminal, entries that follow one another without a question are folded into one line. fork takes these ids. " +
    "With --plain, words take the place of lines.",
  run: askAbout("get_tree", () => ({ format: "flat" })),
  *print({ nodes, leafId }, given, page) {
    const isPlain = given.flags.has("--plain");
    const filter = filterOf(given);
    const folds = page.isTerminal && !isPlain && filter !== "all" ? FOLDED : UNFOLDED;
    const branches = new Branches(nodes, leafId, filter, folds);
    if (nodes.length === 0) yield "There are no entries yet.";
    else if (leafId === null) yield `${page.paint("green", "*")} ${page.paint("dim", "(before the first entry)")}`;
    if (nodes.length > 0 && branches.rows === 0) yield "No entry passes the filter. --all shows all.";
    const longest = nodes.reduce((width: number, { id }: FlatNode) => Math.max(width, id.length), 0);
    const draw = isPlain ? plainRow : treeRow;
    for (let row = 0; row < branches.rows; row++) yield draw(branches, row, page, { idWidth: Math.min(longest, ID) });
  },
} satisfies Verb;

function filterOf({ flags }: Given): Filter {
  if (flags.has("--all")) return "all";
  if (flags.has("--labels")) return "labelled";
  return FILTERS[Math.max(0, NAMES.indexOf(flags.get("--filter") ?? "default"))];
}
