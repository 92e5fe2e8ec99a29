/** The places on the page that depend on the shown path: where else a branch went, where it ends, and that it is another. */

import { formatCount, group } from "../amounts.ts";
import type { PageBlocks } from "./blocks.ts";
import { create, makeButton } from "./elements.ts";
import { toHash } from "./links.ts";
import { NONE, SETTING_TYPES } from "./model.ts";
import { getRowName } from "./say.ts";

/** Branches that are listed at a fork. */
const MOST_LISTED = 20;

interface PathActions {
  show(end: number): void;
  copyLink(): void;
}

export class PathMarks {
  private readonly blocks: PageBlocks;
  private readonly actions: PathActions;
  readonly bar = create("div", { class: "pathbar", role: "region", "aria-label": "The shown path" });
  private readonly last = create("div", { class: "ending" });

  constructor(blocks: PageBlocks, actions: PathActions) {
    this.blocks = blocks;
    this.actions = actions;
    this.bar.hidden = true;
    this.last.hidden = true;
  }

  update(): void {
    const { blocks, bar, last } = this;
    const { stage, end, model } = blocks;
    if (!bar.isConnected) stage.before(bar);
    stage.append(last);
    bar.hidden = end === model.leaf || model.leaf === NONE;
    if (!bar.hidden) this.fillBar();
    this.fillLast();
    for (const left of stage.querySelectorAll<HTMLElement>(".left[data-at]")) this.fillLeft(left);
  }

  /** Updates a block whose entries are new to the document. */
  updateIn(element: HTMLElement): void {
    for (const left of element.querySelectorAll<HTMLElement>(".left[data-at]")) this.fillLeft(left);
  }

  private fillBar(): void {
    const { actions, bar, blocks } = this;
    const { model, end } = blocks;
    const said = create("p", {}, create("b", {}, "Another path"), ` ends at “${getRowName(model, end)}”`);
    bar.replaceChildren(
      said,
      makeButton("Back to the leaf", "small", () => actions.show(model.leaf)),
      makeButton("Copy link", "small spare", actions.copyLink),
    );
  }

  private fillLast(): void {
    const { end } = this.blocks;
    const { last } = this;
    const further = end === NONE ? [] : this.branchesAt(end);
    last.hidden = further.length === 0;
    if (!last.hidden)
      last.replaceChildren(create("p", {}, "The path ends here. Branches from here:"), this.listOf(further));
  }

  /** Returns the children of a row that begin with something that was said. */
  private branchesAt(row: number): number[] {
    const { model } = this.blocks;
    return model.children[row].filter(
      (child) => !SETTING_TYPES.has(model.rows[child].kind) || model.children[child].length > 0,
    );
  }

  /** Returns the first row of a branch that says something. */
  private firstSaid(row: number): number {
    const { model } = this.blocks;
    let at = row;
    while (SETTING_TYPES.has(model.rows[at].kind) && model.heirs[at] !== NONE) at = model.heirs[at];
    return at;
  }

  private fillLeft(left: HTMLElement): void {
    const { blocks } = this;
    const at = blocks.model.find(left.dataset.at ?? "");
    const others =
      at === NONE || at === blocks.end ? [] : this.branchesAt(at).filter((child) => !blocks.isShown(child));
    left.hidden = others.length === 0 || !blocks.isShown(at);
    if (!left.hidden) left.replaceChildren(create("p", {}, "Other branches from here:"), this.listOf(others));
  }

  private listOf(rows: readonly number[]): HTMLElement {
    const { model } = this.blocks;
    const items = rows.slice(0, MOST_LISTED).map((row) => {
      const length = model.path(model.tip(row)).length - model.path(row).length + 1;
      const said = this.firstSaid(row);
      const link = create("a", { href: toHash({ id: model.rows[row].id }) }, getRowName(model, said));
      return create("li", {}, link, create("span", { class: "dim" }, ` ${formatCount(length, "entry", "entries")}`));
    });
    const more = rows.length - items.length;
    return create("ul", {}, ...items, more > 0 && create("li", {}, `${group(more)} more, in the tree`));
  }
}
