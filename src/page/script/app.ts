/** The page with its script: the pane next to the conversation, and how they follow each other. */

import { formatAmount, formatCost, formatCount } from "../amounts.ts";
import { type PageBlock, PageBlocks } from "./blocks.ts";
import { copyText, makePageLink } from "./clipboard.ts";
import { offerDownload } from "./download.ts";
import { dressEntries, openAround, unfoldForPaper } from "./dress.ts";
import { create, makeButton, runInSlices } from "./elements.ts";
import { SearchField } from "./finder.ts";
import { listen, listenInTree, showHelp } from "./keys.ts";
import { type PagePlace, parsePlace, toHash } from "./links.ts";
import { NONE, TreeModel } from "./model.ts";
import { TreePane } from "./pane.ts";
import { PathMarks } from "./path.ts";
import { ReadingChoice } from "./reading.ts";
import { describeSpeaker, formatTime, KIND_NAMES } from "./say.ts";
import { PageSearch } from "./search.ts";
import { ENTRY } from "./text.ts";
import { showLocalTimes } from "./times.ts";

/** Screens that show the pane as a drawer over the page. */
const NARROW = "(max-width: 70rem)";

/** Milliseconds that a short message stays. */
const MESSAGE_TIME = 2500;

/** Milliseconds for a page to come to rest at an entry, unless the reader moves it before. */
const HELD = 2000;

/** Events that show that a reader moves the page. */
const MOVES = ["wheel", "touchmove", "pointerdown", "keydown"];

export class PageApp {
  readonly model = new TreeModel();
  readonly blocks = new PageBlocks(this.model);
  readonly search = new PageSearch(this.blocks);
  readonly tree = new TreePane(this.blocks, this.search);
  private readonly marks = new PathMarks(this.blocks, {
    show: (end) => this.showPath(end, true),
    copyLink: () => this.copyLink(NONE),
  });
  private readonly pane = create("aside", { class: "pane", id: "page.pane", "aria-label": "Tree and search" });
  private readonly finder = new SearchField(this.search, this.tree);
  private readonly reading = new ReadingChoice();
  private readonly chosen = create("div", { class: "chosen" });
  private readonly toast = create("div", { class: "toast", role: "status" });
  private readonly opener = makeButton("Tree", "opener", () => this.toggle());
  private readonly shade = create("div", { class: "shade" });
  private readonly narrow = matchMedia(NARROW);
  private current = NONE;
  private messageTimer = 0;
  /** Time until which scrolling comes from the script, not from the reader. */
  private heldUntil = 0;
  /** The entry that it was brought to last. */
  private brought: Element | null = null;

  start(): void {
    this.blocks.onWake = (block) => this.dress(block);
    this.blocks.onNear = () => this.search.isOn && this.search.mark();
    this.finder.onGo = (row) => this.go(row, false);
    this.tree.onPick = (row) => this.pick(row);
    this.tree.onMove = () => this.fillChosen();
    this.build();
    this.blocks.read();
    offerDownload((words) => this.showMessage(words));
    this.showPath(this.startEnd(), false);
    this.tree.select(this.model.leaf);
    this.listen();
    this.open();
    for (const header of document.querySelectorAll("header.top")) showLocalTimes(header);
    void runInSlices(this.dressAll()).then(() => this.search.learn());
  }

  private startEnd(): number {
    return this.model.leaf === NONE ? this.model.tip(this.model.roots[0] ?? NONE) : this.model.leaf;
  }

  /** Reads the parts of the document that were added or replaced since it was last read. */
  refresh(): void {
    const { model, blocks, search } = this;
    const wasLeaf = blocks.end === model.leaf;
    const before = new Map(blocks.list.map((block) => [block, block.changes]));
    const { end } = blocks;
    blocks.read();
    for (const block of blocks.list) {
      if (before.get(block) === block.changes) continue;
      search.forget(block.rows);
      if (!block.asleep) dressEntries(block.element);
    }
    this.showPath(wasLeaf ? this.startEnd() : end, false);
    search.learn();
    this.finder.again();
  }

  // --- the entries ------------------------------------------------------------------------------------------------

  private build(): void {
    const { pane, finder, tree, reading, chosen } = this;
    const help = makeButton("?", "icon", showHelp, "Keys (?)");
    const close = makeButton("×", "icon close", () => this.toggle(false), "Close the tree (Esc)");
    const head = create("div", { class: "pane-head" }, finder.element, help, close);
    pane.append(head, tree.filters, tree.tree, reading.element, chosen);
    for (const icon of pane.querySelectorAll<HTMLElement>(".icon")) icon.setAttribute("aria-label", icon.title);
    this.opener.setAttribute("aria-controls", pane.id);
    this.opener.setAttribute("aria-expanded", "false");
    this.shade.addEventListener("click", () => this.toggle(false));
    const page = document.getElementById("page.main");
    page?.before(this.opener, pane, this.shade);
    document.body.append(this.toast);
    this.narrow.addEventListener("change", () => this.fit());
    this.fit();
  }

  /** Keeps the keyboard focus out of a closed drawer. */
  private fit(): void {
    const isOpen = document.body.classList.contains("drawer");
    this.pane.inert = this.narrow.matches ? !isOpen : document.body.classList.contains("bare");
    const page = document.getElementById("page.main");
    if (page) page.inert = this.narrow.matches && isOpen;
    this.opener.setAttribute("aria-expanded", String(!this.pane.inert));
    this.tree.update();
  }

  private toggle(open?: boolean): void {
    const { classList } = document.body;
    const name = this.narrow.matches ? "drawer" : "bare";
    classList.toggle(name, open === undefined ? undefined : this.narrow.matches ? open : !open);
    this.fit();
    if (this.pane.inert) this.opener.focus();
    else {
      this.tree.select(this.current === NONE ? this.blocks.end : this.current);
      this.tree.tree.focus({ preventScroll: true });
    }
  }

  private *dressAll(): Generator<void> {
    for (const block of [...this.blocks.list]) {
      if (!block.asleep) this.dress(block);
      yield;
    }
  }

  private dress({ element }: PageBlock): void {
    dressEntries(element);
    this.reading.unfoldIn(element);
    this.marks.updateIn(element);
  }

  private showMessage(words: string): void {
    this.toast.textContent = words;
    clearTimeout(this.messageTimer);
    this.messageTimer = window.setTimeout(() => {
      this.toast.textContent = "";
    }, MESSAGE_TIME);
  }

  private fillChosen(): void {
    const { model, blocks, chosen, tree } = this;
    const { cursor } = tree;
    const row = model.rows[cursor];
    if (!row) {
      chosen.replaceChildren();
      return;
    }
    const [tokens = 0, cost = 0] = row.more.u ?? [];
    const facts = [formatTime(row.time), tokens > 0 && `${formatAmount(tokens)} tokens`, cost > 0 && formatCost(cost)];
    const isEnd = cursor === blocks.end;
    const end = makeButton(
      "End here",
      "small",
      () => this.showPath(cursor, true),
      "Let the shown path end at this entry (e)",
    );
    end.disabled = isEnd;
    chosen.replaceChildren(
      create("p", { class: "dim" }, create("b", {}, KIND_NAMES[row.kind]), ` ${facts.filter(Boolean).join(" · ")}`),
      create("p", { class: "said" }, describeSpeaker(row).words),
      create(
        "div",
        { class: "acts" },
        makeButton("Go to", "small", () => this.pick(cursor), "Go to this entry (Enter)"),
        end,
        makeButton("Copy link", "small", () => this.copyLink(cursor), "Copy the link to this entry (y)"),
      ),
    );
  }

  // --- where the reader is -------------------------------------------------------------------------------------------

  private showPath(end: number, isAsked: boolean): void {
    if (isAsked && end === NONE) return;
    this.blocks.show(end);
    this.reading.unfoldIn(this.blocks.stage);
    this.marks.update();
    this.tree.update();
    if (!isAsked) return;
    this.go(end, false);
    history.pushState(null, "", toHash(this.placeOf(end)));
    this.showMessage(
      end === this.model.leaf
        ? "Shown: the path to the leaf"
        : `Shown: the path to this entry, ${formatCount(this.model.path(end).length, "entry", "entries")}`,
    );
  }

  /** Returns an entry as a place, with the end of the path where that is not the leaf. */
  private placeOf(row: number): PagePlace {
    const { model, blocks } = this;
    const { id } = model.rows[row];
    const end = blocks.isShown(row) ? blocks.end : model.tip(row);
    return end === model.leaf ? { id } : { id, end: model.rows[end].id };
  }

  private pick(row: number): void {
    if (this.narrow.matches) this.toggle(false);
    this.go(row, true);
    history.pushState(null, "", toHash(this.placeOf(row)));
  }

  /** Brings an entry into view, on the path where that is needed. */
  go(row: number, isFocused: boolean): void {
    const { blocks, model } = this;
    if (!model.rows[row]) return;
    if (!blocks.isShown(row)) this.showPath(model.tip(row), false);
    const element = blocks.elementOf(row);
    if (!element) return;
    openAround(element);
    if (!element.checkVisibility()) this.reading.showAll();
    document.querySelector(".here")?.classList.remove("here");
    element.classList.add("here");
    this.brought = element;
    this.bring();
    if (isFocused) {
      element.tabIndex = -1;
      element.focus({ preventScroll: true });
    }
    this.setCurrent(row);
    this.heldUntil = performance.now() + HELD;
    requestAnimationFrame(() => this.bring());
  }

  /** Brings the requested entry into view again: elements drawn above it may have moved it. */
  private bring(): void {
    this.brought?.scrollIntoView({ block: "start" });
  }

  private setCurrent(row: number): void {
    this.current = row;
    if (document.activeElement !== this.tree.tree) this.tree.select(row);
  }

  /** Goes where the address says. */
  private open(): boolean {
    const place = parsePlace(location.hash);
    if (!place) return false;
    const { model } = this;
    const [row, end] = [place.id, place.end ?? ""].map((id) => model.find(id));
    if (row !== NONE) {
      if (end !== NONE && end !== this.blocks.end) this.showPath(end, false);
      this.go(row, true);
    } else return this.openBranch(place.id);
    return true;
  }

  /** Shows the branch that a link names. */
  private openBranch(id: string): boolean {
    const segment = document.getElementById(id)?.querySelector(".chunk");
    const block = this.blocks.list.find(({ element }) => element === segment);
    if (!id.startsWith("branch.") || !block) return false;
    this.go(block.rows[0], true);
    return true;
  }

  /** Moves along the shown path; `only`: to rows that it takes. */
  private move(by: number, only: (row: number) => boolean): void {
    const { blocks, model } = this;
    const path = model.path(blocks.end).filter(only);
    const position = this.current === NONE ? -1 : model.rows[this.current].position;
    const at =
      by > 0
        ? path.find((row) => model.rows[row].position > position)
        : path.findLast((row) => model.rows[row].position < position);
    if (at !== undefined) this.go(at, true);
  }

  private isEntry(row: number): boolean {
    return !"lntmor".includes(this.model.rows[row].kind);
  }

  /** Follows the reader: what stands at the top is the current entry. */
  private follow(): void {
    if (performance.now() < this.heldUntil) return this.bring();
    const page = document.getElementById("conversation.path")?.getBoundingClientRect();
    if (!page) return;
    for (const y of [90, 130, 180]) {
      const seen = document.elementFromPoint(page.left + page.width / 2, y)?.closest(ENTRY);
      const row = seen ? this.model.find(seen.id) : NONE;
      if (row === NONE) continue;
      if (row !== this.current) this.setCurrent(row);
      return;
    }
  }

  // --- what a reader asks --------------------------------------------------------------------------------------------

  private copyLink(row: number): void {
    const at = row === NONE ? this.blocks.end : row;
    if (at === NONE) return;
    void this.copy(makePageLink(this.placeOf(at)));
  }

  private async copy(text: string): Promise<void> {
    this.showMessage((await copyText(text)) ? "Link copied" : "The browser does not let the page copy");
  }

  private listen(): void {
    const at = (): number =>
      document.activeElement === this.tree.tree || this.current === NONE ? this.tree.cursor : this.current;
    listen({
      "/": () => this.focusSearch(),
      n: () => this.finder.next(1),
      N: () => this.finder.next(-1),
      j: () => this.move(1, (row) => this.isEntry(row)),
      k: () => this.move(-1, (row) => this.isEntry(row)),
      "]": () => this.move(1, (row) => this.model.rows[row].kind === "u"),
      "[": () => this.move(-1, (row) => this.model.rows[row].kind === "u"),
      e: () => this.showPath(at(), true),
      l: () => this.showPath(this.startEnd(), true),
      y: () => this.copyLink(at()),
      f: () => this.tree.turn(),
      x: () => this.reading.turn(),
      t: () => this.toggle(),
      "?": showHelp,
      Escape: () => this.escape(),
    });
    listenInTree(this.tree, this.model, (row) => this.pick(row));
    document.addEventListener("click", (event) => this.click(event));
    addEventListener("popstate", () => this.open() || (location.hash === "" && this.showPath(this.startEnd(), false)));
    this.listenToBrowser();
  }

  private listenToBrowser(): void {
    let isDue = false;
    const follow = (): void => {
      isDue = false;
      this.follow();
    };
    const soon = (): void => {
      if (isDue) return;
      isDue = true;
      requestAnimationFrame(follow);
    };
    addEventListener("scroll", soon, { passive: true });
    const release = (): void => {
      this.heldUntil = 0;
    };
    for (const type of MOVES) addEventListener(type, release, { capture: true, passive: true });
    // Ctrl-F opens our search because collapsed blocks are not in the DOM; a second Ctrl-F opens the browser's.
    document.addEventListener("keydown", (event) => {
      const isFind = (event.ctrlKey || event.metaKey) && event.key === "f";
      if (!isFind || document.activeElement === this.finder.field || !this.blocks.list.some(({ asleep }) => asleep))
        return;
      event.preventDefault();
      this.focusSearch();
    });
    unfoldForPaper(this.blocks);
  }

  private focusSearch(): void {
    if (this.pane.inert) this.toggle(true);
    this.finder.field.focus();
    this.finder.field.select();
  }

  private escape(): void {
    (document.activeElement as HTMLElement | null)?.blur();
    if (this.finder.clear()) this.tree.select(this.current);
    else if (this.narrow.matches && !this.pane.inert) this.toggle(false);
  }

  private click(event: MouseEvent): void {
    const target = event.target as Element;
    const copy = target.closest("button.copy");
    if (copy) {
      const row = this.model.find(copy.closest(ENTRY)?.id ?? "");
      if (row !== NONE) this.copyLink(row);
      return;
    }
    const link = target.closest<HTMLAnchorElement | SVGAElement>("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const hash = link.getAttribute("href") ?? "";
    const place = parsePlace(hash);
    const isOurs = place && (this.model.find(place.id) !== NONE || place.id.startsWith("branch."));
    if (!isOurs) return;
    event.preventDefault();
    if (location.hash !== hash) history.pushState(null, "", hash);
    this.open();
  }
}
