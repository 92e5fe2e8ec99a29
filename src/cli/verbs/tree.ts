import { Branches } from "../branches.ts";
import { askAbout, type Verb } from "../verb.ts";

export default {
  name: "tree",
  meaning: "draw the branches of a session",
  operands: ["<session>"],
  more: "A star marks the leaf, after which the conversation continues. fork takes these ids.",
  run: askAbout("get_tree", () => ({ format: "flat" })),
  *print({ nodes, leafId }, _given, page) {
    const branches = new Branches(nodes, leafId);
    if (branches.rows === 0) yield "There are no entries yet.";
    else if (leafId === null) yield `${page.paint("green", "*")} ${page.paint("dim", "(before the first entry)")}`;
    for (let row = 0; row < branches.rows; row++) yield branches.text(row, page);
  },
} satisfies Verb;
