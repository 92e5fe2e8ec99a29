/** The blocks of the document: which entries each has, those asleep, and which of them the shown path shows. */

import type { RowTuple } from "../row.ts";
import { create, parseElements } from "./elements.ts";
import { NONE, type TreeModel } from "./model.ts";

export interface PageBlock {
  readonly element: HTMLElement;
  rows: readonly number[];
  /** The HTML of a block that is asleep. */
  asleep?: HTMLElement;
  /** True if some of its entries are hidden and others not. */
  isPartial: boolean;
  /** Number of changes of its entries. */
  changes: number;
}

/** Height of an entry that was not drawn yet, about. */
const HEIGHT = 110;

export class PageBlocks {
  readonly model: TreeModel;
  readonly list: PageBlock[] = [];
  /** The blocks in view, or nearly. */
  readonly near = new Set<PageBlock>();
  end = NONE;
  /** Is called with each element whose entries are new to the document. */
  onWake: (block: PageBlock) => void = () => {};
  onNear: () => void = () => {};
  private readonly known = new WeakSet<Element>();
  private readonly byElement = new Map<Element, PageBlock>();
  private byRow: PageBlock[] = [];
  private shown = new Uint8Array(0);
  private readonly homes = new Map<HTMLElement, HTMLElement>();
  private readonly observer: IntersectionObserver;

  constructor(model: TreeModel) {
    this.model = model;
    this.observer = new IntersectionObserver((seen) => this.see(seen), { rootMargin: "1200px 0px" });
  }

  get stage(): HTMLElement {
    return document.getElementById("conversation.path") as HTMLElement;
  }

  /** Reads the blocks that are new in the document, and forgets those that are gone. */
  read(): void {
    for (const [element, block] of this.byElement) if (!element.isConnected) this.forget(element, block);
    for (const script of document.querySelectorAll<HTMLElement>("script.rows")) {
      if (this.known.has(script)) continue;
      this.known.add(script);
      this.take(script, JSON.parse(script.textContent ?? "[]") as RowTuple[]);
    }
    this.model.join(this.stage.dataset.leaf ?? "");
  }

  /** Takes rows: of a block of the page, or of entries that were put into the document since, alone or into a block. */
  private take(script: HTMLElement, tuples: readonly RowTuple[]): void {
    const { model } = this;
    const chunk = script.closest<HTMLElement>(".chunk");
    const known = chunk && this.byElement.get(chunk);
    const isNew = chunk !== null && !known;
    if (!chunk && this.isReplaced(script, tuples)) return;
    if (!isNew) this.follow(tuples);
    const old = isNew || chunk ? [] : tuples.filter(([id]) => model.find(id) !== NONE);
    for (const [id] of old) this.remove(id, script);
    const rows = model.take(tuples);
    if (known) this.knowRows(known, [...new Set([...known.rows, ...rows])]);
    else this.know(chunk ?? this.wrap(script, tuples), rows);
  }

  /** Returns true if rows stand alone because their entries were drawn anew before the script read them. */
  private isReplaced(script: HTMLElement, tuples: readonly RowTuple[]): boolean {
    const siblingIds = new Set(Array.from(script.parentElement?.children ?? [], ({ id }) => id));
    return tuples.every(([id]) => this.model.find(id) !== NONE && !siblingIds.has(id));
  }

  /** Moves the leaf to entries that continue it; without a leaf, to one that begins the conversation. */
  private follow(tuples: readonly RowTuple[]): void {
    const { dataset } = this.stage;
    for (const [id, , parent] of tuples) if (parent === (dataset.leaf ?? "")) dataset.leaf = id;
  }

  /** Removes the old element of an entry that was drawn anew. */
  private remove(id: string, script: HTMLElement): void {
    const block = this.byRow[this.model.find(id)];
    if (block) this.wake(block);
    for (const element of block?.element.querySelectorAll(`[id="${id}"]`) ?? [])
      if (element.parentElement !== script.parentElement) element.remove();
  }

  /** Makes a block of entries that stand alone, where their branch ends. */
  private wrap(script: HTMLElement, tuples: readonly RowTuple[]): HTMLElement {
    const { model } = this;
    const chunk = create("div", { class: "chunk" });
    const around = script.parentElement as HTMLElement;
    const entries = tuples.flatMap(([id]) => [...around.children].filter((one) => one.id === id));
    chunk.append(...entries, script);
    const above = model.find(String(tuples[0]?.[2]));
    const segment = this.byRow[above]?.element.closest(".segment");
    const isLast =
      segment &&
      !model.rows.some((row) => row.above === model.rows[above].position && !tuples.some(([id]) => id === row.id));
    if (isLast) segment.append(chunk);
    else this.stage.append(create("div", { class: "segment" }, chunk));
    return chunk;
  }

  private know(element: HTMLElement, rows: readonly number[]): void {
    const asleep = element.querySelector<HTMLElement>(":scope > noscript") ?? undefined;
    const block = { element, rows, asleep, isPartial: false, changes: 0 };
    if (asleep) element.style.minHeight = `${rows.length * HEIGHT}px`;
    this.byElement.set(element, block);
    this.list.push(block);
    this.knowRows(block, rows);
    this.observer.observe(element);
  }

  private knowRows(block: PageBlock, rows: readonly number[]): void {
    block.rows = rows;
    block.changes++;
    for (const row of rows) this.byRow[row] = block;
  }

  private forget(element: Element, block: PageBlock): void {
    this.byElement.delete(element);
    this.list.splice(this.list.indexOf(block), 1);
    this.near.delete(block);
    this.observer.unobserve(element);
  }

  private see(seen: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of seen) {
      const block = this.byElement.get(target);
      if (!block) continue;
      if (isIntersecting) this.near.add(block);
      else this.near.delete(block);
      if (isIntersecting) this.wake(block);
    }
    this.onNear();
  }

  /** Makes elements of a block that is asleep. */
  wake(block: PageBlock): void {
    const { asleep, element } = block;
    if (!asleep) return;
    block.asleep = undefined;
    const fragment = parseElements(asleep.textContent ?? "");
    asleep.replaceWith(fragment);
    element.style.minHeight = "";
    if (block.isPartial) this.hideIn(block);
    this.onWake(block);
  }

  /** Returns the element of an entry, awake, with those around it. */
  elementOf(row: number): HTMLElement | null {
    const block = this.byRow[row];
    if (!block) return null;
    const at = this.list.indexOf(block);
    for (const near of this.list.slice(Math.max(0, at - 1), at + 2)) this.wake(near);
    return document.getElementById(this.model.rows[row].id);
  }

  isShown(row: number): boolean {
    return this.shown[row] === 1;
  }

  /** Shows exactly the path to an entry, in the order of its branches. */
  show(end: number): void {
    this.end = end;
    const path = this.model.path(end);
    this.shown = new Uint8Array(this.model.rows.length);
    for (const row of path) this.shown[row] = 1;
    const order: HTMLElement[] = [];
    for (const row of path) {
      const segment = this.byRow[row]?.element.closest<HTMLElement>(".segment");
      if (segment && segment !== order[order.length - 1]) order.push(segment);
    }
    this.place([...new Set(order)]);
    for (const block of this.list) this.hide(block);
    for (const fold of this.stage.querySelectorAll<HTMLDetailsElement>("details.past")) this.updateFold(fold);
  }

  /** Puts segments of the path into the stage, and the others where they were. */
  private place(order: readonly HTMLElement[]): void {
    const { stage } = this;
    for (const segment of stage.querySelectorAll<HTMLElement>(":scope > .segment")) {
      if (order.includes(segment)) continue;
      const home = this.homes.get(segment);
      if (home) home.append(segment);
      else segment.hidden = true;
    }
    let before: Element | null = null;
    for (const segment of order) {
      segment.hidden = false;
      if (segment.parentElement !== stage) this.homes.set(segment, segment.parentElement as HTMLElement);
      const after: Element | null = before ? before.nextElementSibling : stage.querySelector(":scope > .segment");
      if (after !== segment) {
        if (before) before.after(segment);
        else stage.insertBefore(segment, after);
      }
      before = segment;
    }
  }

  private hide(block: PageBlock): void {
    const { element, rows } = block;
    const shown = rows.filter((row) => this.shown[row] === 1).length;
    element.hidden = shown === 0;
    const wasPartial = block.isPartial;
    block.isPartial = shown > 0 && shown < rows.length;
    if ((block.isPartial || (wasPartial && shown > 0)) && !block.asleep) this.hideIn(block);
  }

  private hideIn({ element, rows }: PageBlock): void {
    for (const row of rows) {
      const id = this.model.rows[row].id;
      const entry = document.getElementById(id);
      if (entry && element.contains(entry)) entry.hidden = this.shown[row] !== 1;
    }
    for (const left of element.querySelectorAll<HTMLElement>(":scope > .left"))
      left.hidden = this.shown[this.model.find(left.dataset.at ?? "")] !== 1;
  }

  /** Opens a fold whose compaction is not on the path: its content was not replaced there. */
  private updateFold(fold: HTMLDetailsElement): void {
    const isReplaced = this.isShown(this.model.find(fold.dataset.by ?? ""));
    const isVoid = !isReplaced;
    if (isVoid === fold.classList.contains("void")) return;
    fold.classList.toggle("void", isVoid);
    fold.open = isVoid;
    const said = fold.previousElementSibling;
    if (said?.classList.contains("replaced")) (said as HTMLElement).hidden = isVoid;
  }
}
