/** The side pane: the tree as a list that draws only the lines in view, with its filters. */

import type { PageBlocks } from "./blocks.ts";
import { create, makeButton } from "./elements.ts";
import { DEEPEST, type FilterName, type ListLine, NONE } from "./model.ts";
import { describeSpeaker, describeStretch, KIND_NAMES } from "./say.ts";
import type { PageSearch } from "./search.ts";

const FILTERS: readonly (readonly [FilterName, string, string])[] = [
  ["talk", "Conversation", "Messages; steps within a turn are folded"],
  ["tools", "No tools", "Hides tool results, and whole answers that call a tool"],
  ["user", "User", "What you said"],
  ["labels", "Labelled", "Entries with a label"],
  ["all", "All", "Every entry, also labels, names and changes of model"],
];

/** Lines that are drawn above and below those in view. */
const BEYOND = 8;

/** Pixels of a level, and before the first. */
const INDENT = 15;

export class TreePane {
  readonly tree = create("div", {
    role: "tree",
    class: "lines",
    tabindex: "0",
    "aria-label": "Tree of the session",
  });
  readonly filters = create("div", { class: "filters", role: "group", "aria-label": "What the tree shows" });
  filter: FilterName = "talk";
  cursor = NONE;
  /** Is called when a line is chosen. */
  onPick: (row: number) => void = () => {};
  onMove: () => void = () => {};
  private readonly space = create("div", { class: "space", role: "presentation" });
  private readonly blocks: PageBlocks;
  private readonly search: PageSearch;
  private readonly opened = new Set<number>();
  private lines: ListLine[] = [];
  /** For each row the line that shows it, or NONE. */
  private lineOf = new Int32Array(0);
  /** The leaf, or the last row that the list shows on the way to it; or NONE. */
  private shownLeaf = NONE;
  private lineHeight = 0;
  private isDue = false;

  constructor(blocks: PageBlocks, search: PageSearch) {
    this.blocks = blocks;
    this.search = search;
    this.tree.append(this.space);
    for (const [name, text, title] of FILTERS) {
      const choose = makeButton(text, "chip", () => this.choose(name), title);
      choose.dataset.filter = name;
      this.filters.append(choose);
    }
    this.tree.addEventListener("scroll", () => this.drawSoon(), { passive: true });
    this.space.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.drawSoon()).observe(this.tree);
  }

  choose(filter: FilterName): void {
    this.filter = filter;
    this.update();
    this.reveal();
  }

  /** Takes the next filter in the place of this one. */
  turn(): void {
    const at = FILTERS.findIndex(([name]) => name === this.filter);
    this.choose(FILTERS[(at + 1) % FILTERS.length][0]);
  }

  /** Makes the lines anew. */
  update(): void {
    const { blocks, search } = this;
    const found = search.isOn ? new Set(search.counts.keys()) : undefined;
    this.lines = blocks.model.lines(this.filter, blocks.end, this.opened, found);
    this.lineOf = new Int32Array(blocks.model.rows.length).fill(NONE);
    for (const [index, { at, folded }] of this.lines.entries())
      for (const row of folded ?? [at]) if (this.lineOf[row] === NONE || !folded) this.lineOf[row] = index;
    this.shownLeaf = blocks.model.path(blocks.model.leaf).findLast((row) => this.lineOf[row] !== NONE) ?? NONE;
    for (const chip of this.filters.children as Iterable<Element> & HTMLCollection)
      chip.setAttribute("aria-pressed", String((chip as HTMLElement).dataset.filter === this.filter));
    this.lineHeight = Number.parseFloat(getComputedStyle(this.tree).getPropertyValue("--lh")) || 28;
    this.space.style.height = `${Math.max(1, this.lines.length) * this.lineHeight}px`;
    this.draw();
  }

  /** Returns the rows that the list shows, in its order. */
  rows(): number[] {
    return this.lines.map(({ at }) => at);
  }

  /** Returns whether a row is on the shown path. */
  isOn(row: number): boolean {
    return this.blocks.isShown(row);
  }

  /** The lines that are in view at once. */
  get height(): number {
    return Math.max(1, Math.floor(this.tree.clientHeight / this.lineHeight) - 1);
  }

  /** Puts the cursor on a row, and the line into view. */
  select(row: number): void {
    this.cursor = row;
    this.onMove();
    this.reveal();
  }

  private reveal(): void {
    const line = this.lineOf[this.cursor] ?? NONE;
    if (line >= 0) {
      const top = line * this.lineHeight;
      const { scrollTop, clientHeight } = this.tree;
      if (top < scrollTop + this.lineHeight || top > scrollTop + clientHeight - 2 * this.lineHeight)
        this.tree.scrollTop = top - clientHeight / 2.5;
    }
    this.draw();
  }

  /** Moves the cursor by lines. */
  step(by: number): void {
    const line = this.lineOf[this.cursor] ?? NONE;
    const next = Math.min(this.lines.length - 1, Math.max(0, line < 0 ? 0 : line + by));
    if (this.lines[next]) this.select(this.lines[next].at);
  }

  /** Opens or folds the stretch under the cursor. Returns whether there is one to open or to fold. */
  fold(open: boolean): boolean {
    const line = this.lines[this.lineOf[this.cursor] ?? NONE];
    if (open ? !line?.folded : !line?.opened) return false;
    this.toggle(line);
    return true;
  }

  private toggle({ at, folded }: ListLine): void {
    if (folded) this.opened.add(at);
    else this.opened.delete(at);
    this.update();
  }

  private click({ target }: Event): void {
    const item = (target as Element).closest<HTMLElement>(".line");
    const line = this.lines[Number(item?.dataset.line ?? NONE)];
    if (!line) return;
    this.cursor = line.at;
    if (line.folded || (line.opened && (target as Element).closest(".twist"))) {
      this.toggle(line);
      this.onMove();
    } else this.onPick(line.at);
  }

  private drawSoon(): void {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.draw();
    });
  }

  private draw(): void {
    const { lines, lineHeight: height, tree } = this;
    const from = Math.max(0, Math.floor(tree.scrollTop / height) - BEYOND);
    const to = Math.min(lines.length, Math.ceil((tree.scrollTop + tree.clientHeight) / height) + BEYOND);
    const drawn: HTMLElement[] = [];
    for (let index = from; index < to; index++) drawn.push(this.lineElement(lines[index], index));
    if (lines.length === 0)
      drawn.push(create("p", { class: "none" }, this.search.isOn ? "Nothing found." : "No entries."));
    this.space.replaceChildren(...drawn);
    const line = this.lineOf[this.cursor] ?? NONE;
    if (line >= from && line < to) tree.setAttribute("aria-activedescendant", `line.${line}`);
    else tree.removeAttribute("aria-activedescendant");
  }

  private lineElement(line: ListLine, index: number): HTMLElement {
    const { blocks, search } = this;
    const { at, folded, opened, level } = line;
    const row = blocks.model.rows[at];
    const isHere = this.lineOf[this.cursor] === index;
    const classes = ["line", folded ? "steps" : `k-${row.kind}`];
    if (blocks.isShown(at)) classes.push("on");
    if (isHere) classes.push("cursor");
    if (row.more.f && !folded) classes.push("failed");
    const item = create("div", {
      role: "treeitem",
      id: `line.${index}`,
      class: classes.join(" "),
      "data-line": String(index),
      "aria-level": String(level + 1),
      "aria-posinset": String(index + 1),
      "aria-setsize": String(this.lines.length),
      "aria-selected": String(isHere),
      ...(folded || opened ? { "aria-expanded": String(!folded) } : {}),
    });
    item.style.top = `${index * this.lineHeight}px`;
    item.style.paddingLeft = `${10 + level * INDENT}px`;
    this.drawRails(item, line);
    if (folded || opened) item.append(create("span", { class: "twist", "aria-hidden": "true" }, folded ? "▸" : "▾"));
    else item.append(create("span", { class: "dot", "aria-hidden": "true" }));
    if (folded) this.drawSteps(item, folded);
    else this.drawWords(item, at);
    const count = search.isOn ? search.counts.get(at) : undefined;
    if (count !== undefined) item.append(create("span", { class: "found" }, String(count)));
    return item;
  }

  private drawRails(item: HTMLElement, { at: row, folded, level, rails, begins }: ListLine): void {
    const { blocks } = this;
    const last = folded?.at(-1) ?? row;
    const goesOn = blocks.model.heirs[last] >= 0;
    const own = create("span", { class: `rail own${begins ? " first" : ""}${goesOn ? "" : " last"}` });
    own.style.left = `${16 + level * INDENT}px`;
    item.append(own);
    for (let at = 0; at < Math.min(level, DEEPEST); at++) {
      const isTurn = begins && at === level - 1;
      const goesOn = (rails & (1 << at)) !== 0;
      if (!isTurn && !goesOn) continue;
      const rail = create("span", { class: `rail${isTurn ? " turn" : ""}${goesOn ? " through" : ""}` });
      rail.style.left = `${16 + at * INDENT}px`;
      item.append(rail);
    }
  }

  private drawSteps(item: HTMLElement, folded: readonly number[]): void {
    const { words, failed } = describeStretch(this.blocks.model, folded);
    item.append(create("span", { class: "words" }, words));
    if (failed > 0) item.append(create("span", { class: "bad" }, folded.length > 2 ? `${failed} failed` : "failed"));
  }

  private drawWords(item: HTMLElement, at: number): void {
    const { model, end } = this.blocks;
    const row = model.rows[at];
    const { who, words } = describeSpeaker(row);
    const text = create("span", { class: "words" });
    if (who === "") text.append(create("span", { class: "vh" }, `${KIND_NAMES[row.kind]}: `));
    else text.append(create("span", { class: "who" }, `${who} `));
    text.append(words);
    item.append(text);
    if (row.more.f) item.append(create("span", { class: "bad" }, "failed"));
    if (row.more.l !== undefined) item.append(create("mark", {}, row.more.l));
    if (at === this.shownLeaf) item.append(create("span", { class: "tag" }, "leaf"));
    else if (at === end) item.append(create("span", { class: "tag" }, "end"));
  }
}
