/** Additions of the script to the entries of the document: buttons, the beginnings of folds, and their view on paper. */

import type { PageBlocks } from "./blocks.ts";
import { create } from "./elements.ts";
import { showLocalTimes } from "./times.ts";

/** Most characters of a fold that is opened for paper. */
const SHORT = 6000;

/** Characters of a fold that its shown lines are cut from, and the number of lines. */
const PART = 1100;
const LINES = 5;

/** Gives each entry in an element its button, where it has none, and times of this place. */
export function dressEntries(element: HTMLElement): void {
  showLocalTimes(element);
  for (const about of element.querySelectorAll<HTMLElement>(".about"))
    if (!about.querySelector(".copy")) about.append(copyButton());
  for (const result of element.querySelectorAll<HTMLElement>(".result[id]"))
    if (!result.querySelector(":scope > .copy")) result.prepend(copyButton());
  for (const summary of element.querySelectorAll<HTMLElement>(".long>summary")) showPart(summary);
}

function copyButton(): HTMLElement {
  const says = { "aria-label": "Copy the link to this entry", title: "Copy link" };
  return create("button", { type: "button", class: "copy", ...says });
}

/** Shows the first lines of a fold, the last of output, if the page was made without them. */
function showPart(summary: HTMLElement): void {
  const pre = summary.nextElementSibling;
  if (!pre || summary.querySelector(".peek")) return;
  const isOutput = pre.matches(".out");
  const text = (pre.textContent ?? "").trimEnd();
  const lines = (isOutput ? text.slice(-PART) : text.slice(0, PART)).split("\n");
  const some = isOutput ? lines.slice(-LINES) : lines.slice(0, LINES);
  const part = create("span", { class: "peek", "aria-hidden": "true" }, some.join("\n"));
  if (isOutput) summary.append(part);
  else summary.prepend(part);
}

export function openAround(element: Element): void {
  for (let fold = element.closest("details"); fold; fold = fold.parentElement?.closest("details") ?? null)
    fold.open = true;
}

/** Draws the whole path for paper, with the short folds open, and closes those again afterwards. */
export function unfoldForPaper(blocks: PageBlocks): void {
  const opened: HTMLDetailsElement[] = [];
  addEventListener("beforeprint", () => {
    const { stage } = blocks;
    for (const block of blocks.list) if (!block.element.hidden && stage.contains(block.element)) blocks.wake(block);
    for (const fold of stage.querySelectorAll<HTMLDetailsElement>("details:is(.long,.more):not([open])")) {
      if ((fold.querySelector(":scope > pre")?.textContent ?? "").length > SHORT) continue;
      fold.open = true;
      opened.push(fold);
    }
  });
  addEventListener("afterprint", () => {
    for (const fold of opened.splice(0)) fold.open = false;
  });
}
