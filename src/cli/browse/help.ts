/** The keys, as the last line and the help show them. */

import type { OutputStyle } from "../terminal/page.ts";
import { cutTo, getWidth, wrap } from "../terminal/text.ts";
import type { BrowseState, Shelf } from "./state.ts";

type KeyLine = readonly [keys: string, meaning: string];

/** The keys of the last line, the most needed first; those without room are left out. */
const BOTTOM: Readonly<Record<Shelf | "typing" | "tree" | "treeTyping", readonly KeyLine[]>> = {
  sessions: [
    ["Enter", "opens"],
    ["/", "filter"],
    ["Tab", "all"],
    ["t", "tree"],
    ["q", "quit"],
    ["?", "help"],
    ["r", "rename"],
    ["a", "archive"],
    ["d", "delete"],
    ["u", "undo"],
    ["s", "sort"],
    ["Space", "mark"],
    ["f", "fork"],
    ["e", "export"],
    ["p", "preview"],
    ["y", "copy id"],
  ],
  archive: [
    ["a", "brings back"],
    ["Enter", "opens"],
    ["/", "filter"],
    ["A", "sessions"],
    ["q", "quit"],
    ["?", "help"],
    ["d", "delete"],
    ["u", "undo"],
  ],
  trash: [
    ["r", "restores"],
    ["D", "sessions"],
    ["/", "filter"],
    ["q", "quit"],
    ["?", "help"],
    ["u", "undo"],
  ],
  typing: [
    ["Enter", "opens the session"],
    ["arrows", "to the list, where keys act"],
    ["Tab", "all"],
    ["Esc", "clears"],
  ],
  tree: [
    ["Enter", "continues here"],
    ["Esc", "back"],
    ["/", "search"],
    ["[ ]", "branches"],
    ["q", "quit"],
    ["?", "help"],
    ["f", "filter"],
    ["l", "label"],
    ["F", "fork"],
    ["left right", "fold"],
    ["u", "undo"],
    ["p", "preview"],
  ],
  treeTyping: [
    ["Enter", "finds"],
    ["Esc", "gives up"],
  ],
};

const HELP: readonly (readonly [title: string, keys: readonly KeyLine[]])[] = [
  [
    "Sessions",
    [
      ["Enter", "opens the session: the agent continues it, or its path is printed for a script"],
      ["arrows j k PgUp PgDn Home End", "move"],
      ["Tab", "between the sessions of this directory and those of all"],
      [
        "/",
        "filters by name, first message, directory, id, and by all that was said; the arrows lead to the list, Esc clears it",
      ],
      ["n N", "the next and the previous place in the session that the filter found"],
      ["s", "sorts by last use, creation, size or cost"],
      ["m", "only sessions with a name, or all"],
      ["O", "also sessions of other agents, such as Claude Code, for reading; f makes one of yours of it"],
      ["A", "the archive, and back"],
      ["D", "the trash, and back"],
      ["t or right", "the session's tree"],
      ["p", "shows or hides the preview; J and K scroll it"],
    ],
  ],
  [
    "Changes",
    [
      ["r", "renames; in the trash, restores"],
      ["l", "labels the last entry of the conversation, or the selected one of the tree"],
      ["Space", "marks the session: a and d then act on all marked ones, as one change; Esc takes the marks away"],
      ["a", "archives, and brings back from the archive"],
      ["d or Ctrl+D", "deletes, after a question; the trash has it then"],
      ["f", "forks: copies the path to where the conversation stands into a new session"],
      ["e", "exports to a file: .md, .html or .jsonl"],
      ["u U", "takes the last change back, and does it again"],
      ["y Y", "copies the id, or the path, to the clipboard of the terminal"],
    ],
  ],
  [
    "Tree",
    [
      [
        "Enter",
        "after a question, the conversation continues from the entry; from a user message, before it, and its text is copied",
      ],
      ["left right Space", "fold and unfold lines of entries and branches; z all lines"],
      ["[ ]", "the branch above and below; = the leaf"],
      ["f or 1 to 5", "all that was said, no tools, only user messages, only labelled, everything"],
      ["/ n N", "looks for words, and further"],
      ["l", "sets or clears a label"],
      ["F", "copies the path to the entry into a new session; from a user message, the path before it"],
      ["Esc", "back to the sessions"],
    ],
  ],
  [
    "Marks",
    [
      ["+", "marked by Space"],
      ["*", "open in another process, or the leaf of a tree"],
      ["!", "damaged: verify says where"],
      ["#", "cannot be written"],
      ["2", "Session Store V2"],
      ["└", "a fork, below the session that it comes from"],
    ],
  ],
  [
    "Elsewhere",
    [
      ["q", "quits and starts nothing"],
      ["Ctrl+Z", "stops; fg goes on"],
      ["Ctrl+L", "draws the screen anew"],
    ],
  ],
];

const TREE_FIRST = [...HELP.filter(([title]) => title === "Tree"), ...HELP.filter(([title]) => title !== "Tree")];

const HELP_KEY = "  ? help";

/** Returns the keys of the screen in one line, as many as there is room for. */
export function formatKeyLine(state: BrowseState, width: number): string {
  const { tree, list } = state;
  const kind = tree ? (tree.isTyping ? "treeTyping" : "tree") : list.isTyping ? "typing" : list.query.shelf;
  let line = "";
  // If they do not all fit, ? leads to the others.
  let needed = BOTTOM[kind].some(([keys]) => keys === "?") ? HELP_KEY : "";
  for (const [keys, meaning] of BOTTOM[kind]) {
    const does = keys === "Tab" ? (list.query.cwd === undefined ? "this folder" : "all folders") : meaning;
    const next = `${line}${line === "" ? "" : "  "}${keys} ${does}`;
    if (keys === "?") needed = "";
    if (getWidth(next) + needed.length > width) break;
    line = next;
  }
  return line === "" ? line : line + needed;
}

/** Returns the lines of the help, beginning with the keys of the current screen. */
export function formatHelpLines({ width, paint }: OutputStyle, inTree: boolean): string[] {
  const left = Math.min(30, Math.max(8, Math.floor(width * 0.3)));
  const lines: string[] = [];
  for (const [title, keys] of inTree ? TREE_FIRST : HELP) {
    if (lines.length > 0) lines.push("");
    lines.push(paint("bold", cutTo(title, width)));
    for (const [key, meaning] of keys) {
      const rows = wrap(meaning, Math.max(1, width - left - 2));
      // A narrow screen has the keys above their meaning.
      if (getWidth(key) > left) lines.push(paint("cyan", cutTo(key, width)));
      rows.forEach((row, i) => {
        const head = (i === 0 && getWidth(key) <= left ? key : "").padEnd(left);
        lines.push(left + 2 < width ? `${paint("cyan", head)}  ${row}` : cutTo(`${head}  ${row}`, width));
      });
    }
  }
  return lines;
}
