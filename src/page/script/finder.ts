/** The field of the search: the number of matches, and the current one. */

import { formatCount, group } from "../amounts.ts";
import { openAround } from "./dress.ts";
import { create, makeButton } from "./elements.ts";
import type { TreePane } from "./pane.ts";
import type { PageSearch } from "./search.ts";

/** Milliseconds after a key before it is looked for. */
const TYPING = 60;

/** Pixels at the edges of the window that count as out of view. */
const EDGE = 80;

export class SearchField {
  readonly field = create("input", {
    type: "search",
    placeholder: "Search everything",
    "aria-label": "Search everything",
    "aria-keyshortcuts": "/",
    autocomplete: "off",
    spellcheck: "false",
  });
  readonly element: HTMLElement;
  /** Brings an entry into view. */
  onGo: (row: number) => void = () => {};
  private readonly count = create("span", { class: "count", role: "status" });
  private readonly search: PageSearch;
  private readonly tree: TreePane;
  /** The current place: its row, and which of those in it. */
  private place: { readonly row: number; readonly nth: number } | undefined;
  private typed = 0;
  private asked = "";

  constructor(search: PageSearch, tree: TreePane) {
    this.search = search;
    this.tree = tree;
    search.onCount = () => this.found();
    const before = makeButton("↑", "icon", () => this.next(-1), "Previous place (N)");
    const after = makeButton("↓", "icon", () => this.next(1), "Next place (n)");
    this.element = create("div", { class: "find", role: "search" }, this.field, this.count, before, after);
    this.field.addEventListener("input", () => this.find());
    this.field.addEventListener("keydown", ({ key, shiftKey }) => {
      if (key === "Enter") void this.enter(shiftKey ? -1 : 1);
      if (key === "ArrowDown") tree.tree.focus();
    });
  }

  /** Searches again for the text of the field. */
  again(): void {
    if (this.search.isOn) void this.look();
  }

  /** Ends the search. Returns whether there was one. */
  clear(): boolean {
    if (this.field.value === "") return false;
    this.field.value = "";
    this.place = undefined;
    void this.look();
    return true;
  }

  private find(): void {
    clearTimeout(this.typed);
    this.place = undefined;
    this.typed = window.setTimeout(() => void this.look(), TYPING);
  }

  private look(): Promise<void> {
    this.asked = this.field.value;
    return this.search.find(this.asked);
  }

  /** Goes to the next place; searches first if the typed text is new. */
  private async enter(by: number): Promise<void> {
    clearTimeout(this.typed);
    if (this.asked !== this.field.value || !this.search.isDone) await this.look();
    this.next(by);
  }

  private found(): void {
    const { search, count, place, tree } = this;
    tree.update();
    const where = `${group(search.total)} in ${formatCount(search.counts.size, "entry", "entries")}`;
    count.textContent = !search.isOn ? "" : search.total === 0 ? "nothing" : where;
    if (place === undefined && search.isOn) tree.tree.scrollTop = 0;
  }

  /** Goes to the next place that was found, or the one before. */
  next(by: number): void {
    const { search, tree, place } = this;
    const rows = search.isOn ? tree.rows() : [];
    if (rows.length === 0) return;
    let row = place?.row ?? rows.find((one) => tree.isOn(one)) ?? rows[0];
    let nth = place ? place.nth + by : 0;
    if (nth < 0 || nth >= this.countOf(row)) {
      row = rows[(rows.indexOf(row) + by + rows.length) % rows.length];
      nth = by > 0 ? 0 : this.countOf(row) - 1;
    }
    this.place = { row, nth };
    this.onGo(row);
    search.point(row, nth);
    this.show();
    const before = rows.slice(0, rows.indexOf(row)).reduce((sum, one) => sum + this.countOf(one), 0);
    this.count.textContent = `${group(before + nth + 1)} of ${group(search.total)}`;
  }

  private countOf(row: number): number {
    return this.search.counts.get(row) ?? 0;
  }

  private show(): void {
    const range = this.search.rangeHere();
    const around = range?.startContainer.parentElement;
    if (!range || !around) return;
    openAround(around);
    const { top, bottom } = range.getBoundingClientRect();
    if (top < EDGE || bottom > innerHeight - EDGE) scrollBy({ top: top - innerHeight / 3 });
  }
}
