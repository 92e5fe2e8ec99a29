/** Keys of the page, and the dialog that lists them. */

import { create, makeButton } from "./elements.ts";
import { NONE, type TreeModel } from "./model.ts";
import type { TreePane } from "./pane.ts";

const HELP: readonly (readonly [keys: string, meaning: string])[] = [
  ["/", "search everything"],
  ["n  N", "next and previous place that was found"],
  ["j  k", "next and previous entry of the path"],
  ["]  [", "next and previous question"],
  ["Enter", "in the tree: go to the entry; in the search: to the next place"],
  ["↑ ↓ ← →", "in the tree: move, fold and open"],
  ["e", "end the path at this entry"],
  ["l", "back to the leaf"],
  ["y", "copy the link to this entry"],
  ["f", "next filter of the tree"],
  ["x", "expand all, or fold all"],
  ["t", "show or hide the tree"],
  ["Esc", "close, or end the search"],
];

type KeyActions = Readonly<Record<string, () => void>>;

/** Runs the action of a key, unless the reader types or another program wants it. */
export function listen(actions: KeyActions): void {
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const isTyping = target instanceof Element && target.matches("input,textarea,select,[contenteditable]");
    if ((isTyping || document.querySelector("dialog[open]")) && key !== "Escape") return;
    if (document.querySelector("dialog[open]") || !Object.hasOwn(actions, key)) return;
    event.preventDefault();
    actions[key]();
  });
}

export function showHelp(): void {
  const dialog = create("dialog", { class: "help", "aria-labelledby": "help.title" });
  const list = create("dl");
  for (const [keys, meaning] of HELP) {
    const names = create("dt");
    for (const key of keys.split(/ +/)) names.append(create("kbd", {}, key), " ");
    list.append(create("div", {}, names, create("dd", {}, meaning)));
  }
  const close = makeButton("Close", "", () => dialog.close());
  dialog.append(create("header", {}, create("h2", { id: "help.title" }, "Keys"), close), list);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** Lets keys move in the tree while it has the focus. */
export function listenInTree(pane: TreePane, model: TreeModel, pick: (row: number) => void): void {
  const { tree } = pane;
  const go = (): void => {
    if (!pane.fold(true)) pick(pane.cursor);
  };
  const up = (): void => {
    const above = model.parents[pane.cursor] ?? NONE;
    if (!pane.fold(false) && above !== NONE) pane.select(above);
  };
  const actions: KeyActions = {
    ArrowDown: () => pane.step(1),
    j: () => pane.step(1),
    ArrowUp: () => pane.step(-1),
    k: () => pane.step(-1),
    PageDown: () => pane.step(pane.height),
    PageUp: () => pane.step(-pane.height),
    Home: () => pane.step(-model.rows.length),
    End: () => pane.step(model.rows.length),
    Enter: go,
    " ": go,
    ArrowRight: () => {
      if (!pane.fold(true)) pane.step(1);
    },
    ArrowLeft: up,
  };
  tree.addEventListener("keydown", (event) => {
    const isOther = event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(actions, event.key);
    if (isOther) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  });
}
