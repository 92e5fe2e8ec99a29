/** The comparison of two ends as a dialog: their common path, and the text, work and cost of each. */

import { formatAmount, formatCost, formatCount, formatSpan, group } from "../amounts.ts";
import { type ComparedEnd, compareBranches } from "./compared-ends.ts";
import { create, makeButton } from "./elements.ts";
import { NONE, type TreeModel } from "./model.ts";
import { describeSpeaker, formatRowCalls, getRowName } from "./say.ts";

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

export function openComparison(model: TreeModel, a: number, b: number, asked: ComparisonActions): HTMLDialogElement {
  const { common, branches: ends } = compareBranches(model, a, b);
  const dialog = create("dialog", { class: "compare", "aria-labelledby": "compare.title" });
  const close = makeButton("Close", "", () => dialog.close());
  const heading = create("h2", { id: "compare.title" }, "Two ends side by side");
  dialog.append(create("header", {}, heading, makeButton("Copy link", "", asked.copyLink), close));
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
  const body = create("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Comparison" });
  const empty = ends.findIndex(({ rows }) => rows.length === 0);
  const where = empty < 0 ? "They part after " : `${LETTERS[empty]} is on the way to ${LETTERS[1 - empty]}: `;
  body.append(create("p", { class: "parted" }, common === NONE ? "" : where, parted));
  body.append(headsOf(model, ends, (end) => then(() => asked.show(end))));
  body.append(create("div", { class: "sheets" }, factsOf(ends), toolsOf(ends), filesOf(ends)));
  body.append(saidOf(model, ends, (row) => then(() => asked.go(row))));
  dialog.append(body);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

type ComparedEnds = readonly [ComparedEnd, ComparedEnd];

function headsOf(model: TreeModel, ends: ComparedEnds, show: (end: number) => () => void): HTMLElement {
  const heads = ends.map(({ end }, index) =>
    create(
      "div",
      { class: `side side-${LETTERS[index].toLowerCase()}` },
      create("h3", {}, create("span", { class: "letter" }, LETTERS[index]), getRowName(model, end)),
      end === model.leaf && create("span", { class: "tag" }, "leaf"),
      makeButton("Show this path", "small", show(end)),
    ),
  );
  return create("div", { class: "sides" }, ...heads);
}

function tableOf(caption: string, rows: readonly (readonly [string, string, string])[]): HTMLElement {
  const table = create("table", {}, create("caption", {}, caption));
  const head = ["", ...LETTERS].map((letter) =>
    create(letter === "" ? "td" : "th", letter === "" ? {} : { scope: "col" }, letter),
  );
  table.append(create("thead", {}, create("tr", {}, ...head)));
  const body = create("tbody");
  for (const [name, ...values] of rows)
    body.append(
      create("tr", {}, create("th", { scope: "row" }, name), ...values.map((value) => create("td", {}, value))),
    );
  table.append(body);
  return create("div", { class: "sheet", tabindex: "0", role: "region", "aria-label": caption }, table);
}

function factsOf(ends: ComparedEnds): HTMLElement {
  const row = (name: string, of: (end: ComparedEnd) => string): readonly [string, string, string] => [
    name,
    of(ends[0]),
    of(ends[1]),
  ];
  return tableOf("Since they part", [
    row("Entries", ({ rows }) => group(rows.length)),
    row("Questions", ({ users }) => String(users)),
    row("Answers", ({ answers }) => String(answers)),
    row("Calls", ({ calls, failures }) => (failures > 0 ? `${calls}, ${failures} failed` : String(calls))),
    row("Tokens", ({ tokens }) => formatAmount(tokens)),
    row("Cost", ({ cost }) => formatCost(cost)),
    row("Time", ({ seconds }) => formatSpan(seconds * 1000)),
    row("Models", ({ models }) => models.join(", ") || "–"),
  ]);
}

function toolsOf(ends: ComparedEnds): HTMLElement | undefined {
  const names = [...new Set(ends.flatMap(({ tools }) => tools.map(([name]) => name)))].slice(0, MOST_NAMED);
  if (names.length === 0) return undefined;
  const cell = ({ tools }: ComparedEnd, name: string): string => {
    const [, calls, failures] = tools.find(([one]) => one === name) ?? [name, 0, 0];
    return calls + failures === 0 ? "–" : failures > 0 ? `${calls}, ${failures} failed` : String(calls);
  };
  return tableOf(
    "Tools",
    names.map((name) => [name || "(no name)", cell(ends[0], name), cell(ends[1], name)] as const),
  );
}

function filesOf(ends: ComparedEnds): HTMLElement | undefined {
  const paths = [...new Set(ends.flatMap(({ changed, read }) => [...changed, ...read]))];
  if (paths.length === 0) return undefined;
  const did = ({ changed, read }: ComparedEnd, path: string): string =>
    changed.includes(path) ? "changed" : read.includes(path) ? "read" : "–";
  const shown = paths.slice(0, MOST_NAMED).map((path) => [path, did(ends[0], path), did(ends[1], path)] as const);
  const more = paths.length - shown.length;
  return tableOf(more > 0 ? `Files (${formatCount(more, "more file")} not listed)` : "Files", shown);
}

function saidOf(model: TreeModel, ends: ComparedEnds, go: (row: number) => () => void): HTMLElement {
  const columns = ends.map(({ said }, index) => {
    const list = create("ol", { class: "said" });
    const add = (rows: readonly number[]): void => list.append(...rows.map((row) => saidItem(model, row, go(row))));
    add(said.slice(0, MOST_SAID));
    const column = create("div", { class: `side side-${LETTERS[index].toLowerCase()}` });
    column.append(create("h3", {}, `What ${LETTERS[index]} said`), list);
    if (said.length === 0) column.append(create("p", { class: "dim" }, "Nothing since then."));
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
  return create("div", { class: "sides" }, ...columns);
}

function saidItem(model: TreeModel, row: number, go: () => void): HTMLElement {
  const { kind, more } = model.rows[row];
  const { who, words } = describeSpeaker(model.rows[row]);
  const speaker = kind === "u" ? "You" : kind === "a" ? "Assistant" : who;
  const item = create("li", { class: `k-${kind}` }, makeButton(speaker, "link", go), " ");
  if (more.f) item.append(create("b", { class: "bad" }, "failed"), " ");
  item.append(words);
  if (more.c && kind === "a" && words !== formatRowCalls(more.c))
    item.append(create("span", { class: "dim" }, ` ${formatRowCalls(more.c)}`));
  return item;
}
