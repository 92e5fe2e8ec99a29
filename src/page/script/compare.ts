/** Two ends beside each other, as a dialog: what is common to them, and what each said, did and cost. */

import { formatCount, formatCost, formatShortCount } from "../amounts.ts";
import { makeButton, makeElement } from "./elements.ts";
import { NONE, type TreeModel } from "./model.ts";
import { formatRowCalls, getRowName, describeSpeaker, formatSpan } from "./say.ts";
import { type ComparedEnd, compareBranches } from "./sides.ts";

/** Entries of a side that are listed at first. */
const MOST_SAID = 60;
/** Files and tools that are listed. */
const MOST_NAMED = 100;

interface ComparisonActions {
  go(row: number): void;
  show(end: number): void;
  copyLink(): void;
}

const LETTERS = ["A", "B"] as const;

/** Opens the comparison. */
export function openComparison(model: TreeModel, a: number, b: number, asked: ComparisonActions): HTMLDialogElement {
  const { common, branches: sides } = compareBranches(model, a, b);
  const dialog = makeElement("dialog", { class: "compare", "aria-labelledby": "compare.title" });
  const close = makeButton("Close", "", () => dialog.close());
  const heading = makeElement("h2", { id: "compare.title" }, "Two ends side by side");
  dialog.append(makeElement("header", {}, heading, makeButton("Copy link", "", asked.copyLink), close));
  const then = (act: () => void) => () => {
    dialog.close();
    act();
  };
  const parted =
    common === NONE
      ? "They have nothing in common."
      : makeButton(
          getRowName(model, common),
          "link",
          then(() => asked.go(common)),
        );
  const body = makeElement("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Comparison" });
  const empty = sides.findIndex(({ rows }) => rows.length === 0);
  const where = empty < 0 ? "They part after " : `${LETTERS[empty]} is on the way to ${LETTERS[1 - empty]}: `;
  body.append(makeElement("p", { class: "parted" }, common === NONE ? "" : where, parted));
  body.append(headsOf(model, sides, (end) => then(() => asked.show(end))));
  body.append(makeElement("div", { class: "sheets" }, factsOf(sides), toolsOf(sides), filesOf(sides)));
  body.append(saidOf(model, sides, (row) => then(() => asked.go(row))));
  dialog.append(body);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

type ComparedEnds = readonly [ComparedEnd, ComparedEnd];

function headsOf(model: TreeModel, sides: ComparedEnds, show: (end: number) => () => void): HTMLElement {
  const heads = sides.map(({ end }, index) =>
    makeElement(
      "div",
      { class: `side side-${LETTERS[index].toLowerCase()}` },
      makeElement("h3", {}, makeElement("span", { class: "letter" }, LETTERS[index]), getRowName(model, end)),
      end === model.leaf && makeElement("span", { class: "tag" }, "leaf"),
      makeButton("Show this path", "small", show(end)),
    ),
  );
  return makeElement("div", { class: "sides" }, ...heads);
}

function tableOf(caption: string, rows: readonly (readonly [string, string, string])[]): HTMLElement {
  const table = makeElement("table", {}, makeElement("caption", {}, caption));
  const head = ["", ...LETTERS].map((letter) =>
    makeElement(letter === "" ? "td" : "th", letter === "" ? {} : { scope: "col" }, letter),
  );
  table.append(makeElement("thead", {}, makeElement("tr", {}, ...head)));
  const body = makeElement("tbody");
  for (const [name, ...values] of rows)
    body.append(makeElement("tr", {}, makeElement("th", { scope: "row" }, name), ...values.map((value) => makeElement("td", {}, value))));
  table.append(body);
  return makeElement("div", { class: "sheet", tabindex: "0", role: "region", "aria-label": caption }, table);
}

function factsOf(sides: ComparedEnds): HTMLElement {
  const row = (name: string, of: (side: ComparedEnd) => string): readonly [string, string, string] => [
    name,
    of(sides[0]),
    of(sides[1]),
  ];
  return tableOf("Since they part", [
    row("Entries", ({ rows }) => rows.length.toLocaleString("en-US")),
    row("Questions", ({ users }) => String(users)),
    row("Answers", ({ answers }) => String(answers)),
    row("Calls", ({ calls, failures }) => (failures > 0 ? `${calls}, ${failures} failed` : String(calls))),
    row("Tokens", ({ tokens }) => formatShortCount(tokens)),
    row("Cost", ({ cost }) => formatCost(cost)),
    row("Time", ({ seconds }) => formatSpan(seconds)),
    row("Models", ({ models }) => models.join(", ") || "–"),
  ]);
}

function toolsOf(sides: ComparedEnds): HTMLElement | undefined {
  const names = [...new Set(sides.flatMap(({ tools }) => tools.map(([name]) => name)))].slice(0, MOST_NAMED);
  if (names.length === 0) return undefined;
  const cell = ({ tools }: ComparedEnd, name: string): string => {
    const [, calls, failures] = tools.find(([one]) => one === name) ?? [name, 0, 0];
    return calls + failures === 0 ? "–" : failures > 0 ? `${calls}, ${failures} failed` : String(calls);
  };
  return tableOf(
    "Tools",
    names.map((name) => [name || "(no name)", cell(sides[0], name), cell(sides[1], name)] as const),
  );
}

function filesOf(sides: ComparedEnds): HTMLElement | undefined {
  const paths = [...new Set(sides.flatMap(({ changed, read }) => [...changed, ...read]))];
  if (paths.length === 0) return undefined;
  const did = ({ changed, read }: ComparedEnd, path: string): string =>
    changed.includes(path) ? "changed" : read.includes(path) ? "read" : "–";
  const shown = paths.slice(0, MOST_NAMED).map((path) => [path, did(sides[0], path), did(sides[1], path)] as const);
  const more = paths.length - shown.length;
  return tableOf(more > 0 ? `Files (${formatCount(more, "more file")} not listed)` : "Files", shown);
}

function saidOf(model: TreeModel, sides: ComparedEnds, go: (row: number) => () => void): HTMLElement {
  const columns = sides.map(({ said }, index) => {
    const list = makeElement("ol", { class: "said" });
    const add = (rows: readonly number[]): void => list.append(...rows.map((row) => saidItem(model, row, go(row))));
    add(said.slice(0, MOST_SAID));
    const column = makeElement("div", { class: `side side-${LETTERS[index].toLowerCase()}` });
    column.append(makeElement("h3", {}, `What ${LETTERS[index]} said`), list);
    if (said.length === 0) column.append(makeElement("p", { class: "dim" }, "Nothing since then."));
    const rest = said.slice(MOST_SAID, MOST_SAID * 20);
    if (rest.length > 0) {
      const more = makeButton(`Show ${formatCount(rest.length, "more entry", "more entries")}`, "small", () => {
        add(rest);
        more.remove();
      });
      column.append(more);
    }
    return column;
  });
  return makeElement("div", { class: "sides" }, ...columns);
}

function saidItem(model: TreeModel, row: number, go: () => void): HTMLElement {
  const { kind, more } = model.rows[row];
  const { who, words } = describeSpeaker(model.rows[row]);
  const speaker = kind === "u" ? "You" : kind === "a" ? "Assistant" : who;
  const item = makeElement("li", { class: `k-${kind}` }, makeButton(speaker, "link", go), " ");
  if (more.f) item.append(makeElement("b", { class: "bad" }, "failed"), " ");
  item.append(words);
  if (more.c && kind === "a" && words !== formatRowCalls(more.c))
    item.append(makeElement("span", { class: "dim" }, ` ${formatRowCalls(more.c)}`));
  return item;
}
