/** Search over every entry: its words are learned while nothing else happens, and marks are drawn where they are in view. */

import type { PageBlock, PageBlocks } from "./blocks.ts";
import { runInSlices } from "./elements.ts";
import {
  collectWords,
  countPlaces,
  ENTRY,
  findPlaces,
  lowerText,
  makePattern,
  NOT_WORDS,
  type TextPattern,
} from "./text.ts";

/** Marks that are drawn in one entry, and in all. */
const MOST_IN_ENTRY = 300;
const MOST_MARKS = 3000;

/** Entries whose words are looked through between two looks at the clock. */
const STEP = 200;

interface Marks {
  readonly found: Highlight;
  readonly now: Highlight;
}

function marksHere(): Marks | undefined {
  if (typeof CSS === "undefined" || !("highlights" in CSS)) return undefined;
  const marks = { found: new Highlight(), now: new Highlight() };
  marks.now.priority = 1;
  CSS.highlights.set("found", marks.found);
  CSS.highlights.set("now", marks.now);
  return marks;
}

export class PageSearch {
  readonly blocks: PageBlocks;
  /** Number of matches in each row that has any, and in all together. */
  counts = new Map<number, number>();
  total = 0;
  isDone = true;
  /** True once the words of all entries are known. */
  isReady = false;
  /** Is called when counts have changed. */
  onCount: () => void = () => {};
  private pattern: TextPattern | undefined;
  private words: (string | undefined)[] = [];
  private run = 0;
  private learning: Promise<void> = Promise.resolve();
  private readonly marks = marksHere();
  private here: { readonly row: number; readonly nth: number } | undefined;

  constructor(blocks: PageBlocks) {
    this.blocks = blocks;
  }

  get isOn(): boolean {
    return this.pattern !== undefined;
  }

  /** Learns the words of all blocks that are new, a few at a time. */
  learn(): void {
    this.words.length = this.blocks.model.rows.length;
    this.isReady = false;
    this.learning = this.learning
      .then(() => runInSlices(this.learnAll()))
      .then(() => {
        this.isReady = true;
      });
  }

  /** Forgets the words of rows, which come anew. */
  forget(rows: Iterable<number>): void {
    for (const row of rows) this.words[row] = undefined;
  }

  private *learnAll(): Generator<void> {
    for (const block of [...this.blocks.list]) {
      if (block.rows.every((row) => this.words[row] !== undefined)) continue;
      this.learnOf(block);
      yield;
    }
  }

  private learnOf({ asleep, element, rows }: PageBlock): void {
    const { model } = this.blocks;
    for (const row of rows) this.words[row] = "";
    if (asleep)
      collectWords(asleep.textContent ?? "", (id, words) => {
        this.words[model.find(id)] = lowerText(words);
      });
    else
      for (const row of rows) {
        const entry = document.getElementById(model.rows[row].id);
        if (entry && element.contains(entry)) this.words[row] = lowerText(textOf(nodesOf(entry)));
      }
  }

  /** Looks for a query everywhere; an empty one ends the search. */
  async find(query: string): Promise<void> {
    const run = ++this.run;
    this.pattern = makePattern(query);
    this.counts = new Map();
    this.total = 0;
    this.here = undefined;
    this.isDone = this.pattern === undefined;
    const isOver = (): boolean => run !== this.run;
    if (this.pattern) {
      await this.learning;
      await runInSlices(this.countAll(this.pattern), isOver);
    }
    if (isOver()) return;
    this.isDone = true;
    this.mark();
    this.onCount();
  }

  private *countAll(pattern: TextPattern): Generator<void> {
    for (let row = 0; row < this.words.length; row++) {
      const count = countPlaces(this.words[row] ?? "", pattern);
      if (count > 0) this.counts.set(row, count);
      this.total += count;
      if (row % STEP === STEP - 1) yield;
    }
  }

  /** Makes one occurrence the current one. */
  point(row: number, nth: number): void {
    this.here = { row, nth };
    this.mark();
  }

  /** Marks the matches in the blocks near the view. */
  mark(): void {
    const { marks, pattern } = this;
    if (!marks) return;
    marks.found.clear();
    marks.now.clear();
    if (!pattern) return;
    let left = MOST_MARKS;
    for (const { asleep, rows } of this.blocks.near)
      for (const row of asleep || left <= 0 ? [] : rows) {
        if (!this.counts.has(row)) continue;
        const ranges = this.rangesIn(row, pattern);
        left -= ranges.length;
        for (const range of ranges) marks.found.add(range);
      }
    const now = this.rangeHere();
    if (now) marks.now.add(now);
  }

  /** Returns the place of the current occurrence. */
  rangeHere(): Range | undefined {
    const { here, pattern } = this;
    return here && pattern ? this.rangesIn(here.row, pattern, here.nth + 1)[here.nth] : undefined;
  }

  private rangesIn(row: number, pattern: TextPattern, most = MOST_IN_ENTRY): Range[] {
    const entry = document.getElementById(this.blocks.model.rows[row].id);
    if (!entry) return [];
    const nodes = nodesOf(entry);
    const places = findPlaces(lowerText(textOf(nodes)), pattern, most);
    const ranges: Range[] = [];
    let index = 0;
    let before = 0;
    const seek = (offset: number): [Text, number] => {
      while (index < nodes.length - 1 && before + nodes[index].length < offset) before += nodes[index++].length;
      return [nodes[index], offset - before];
    };
    for (const [from, to] of places) {
      const range = document.createRange();
      range.setStart(...seek(from));
      range.setEnd(...seek(to));
      ranges.push(range);
    }
    return ranges;
  }
}

/** Returns the texts of an entry that are its own words. */
function nodesOf(entry: Element): Text[] {
  const nodes: Text[] = [];
  const walker = document.createTreeWalker(entry, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT, (node) => {
    if (node.nodeType === Node.TEXT_NODE) return NodeFilter.FILTER_ACCEPT;
    return (node as Element).matches(`${NOT_WORDS},${ENTRY}`) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_SKIP;
  });
  for (let node = walker.nextNode(); node; node = walker.nextNode()) nodes.push(node as Text);
  return nodes;
}

function textOf(nodes: readonly Text[]): string {
  return nodes.map((node) => node.data).join("");
}
