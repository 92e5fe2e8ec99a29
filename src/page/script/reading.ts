/** The choice of what the conversation shows: kinds of messages, which the reader ticks off, and everything unfolded. */

import { create, makeButton } from "./elements.ts";

const KINDS: readonly (readonly [kind: string, text: string, title: string])[] = [
  ["user", "You", "What you said"],
  ["answers", "Answers", "What the assistant said"],
  ["thinking", "Thinking", "What the assistant thought"],
  ["tools", "Tools", "Calls of tools with their results, and commands"],
  ["notes", "Notes", "Models, labels, names and other entries"],
];

/** Folds within entries, and those of entries that a summary replaced on the shown path. */
const FOLDS = "details:is(.long,.more,.thinking,.past:not(.void))";

export class ReadingChoice {
  readonly element = create("div", { class: "reading", role: "group", "aria-label": "What the conversation shows" });
  private isUnfolded = false;
  private readonly boxes: HTMLInputElement[] = [];
  private readonly all = makeButton(
    "Expand all",
    "small",
    () => this.turn(),
    "Unfold thoughts, outputs and what summaries replaced (x)",
  );

  constructor() {
    for (const [kind, text, title] of KINDS) {
      const box = create("input", { type: "checkbox", "data-kind": kind });
      box.checked = true;
      box.addEventListener("change", () => this.update());
      this.boxes.push(box);
      this.element.append(create("label", { title }, box, text));
    }
    this.element.append(this.all);
  }

  /** Shows all kinds again, for the reader goes to an entry that is hidden. */
  showAll(): void {
    for (const box of this.boxes) box.checked = true;
    this.update();
  }

  /** Unfolds everything, or folds it again. */
  turn(): void {
    this.isUnfolded = !this.isUnfolded;
    this.all.textContent = this.isUnfolded ? "Fold all" : "Expand all";
    for (const fold of document.querySelectorAll<HTMLDetailsElement>(`main ${FOLDS}`)) fold.open = this.isUnfolded;
  }

  /** Unfolds an element that is new in the document, if everything is unfolded. */
  unfoldIn(element: Element): void {
    if (this.isUnfolded) for (const fold of element.querySelectorAll<HTMLDetailsElement>(FOLDS)) fold.open = true;
  }

  private update(): void {
    const page = document.getElementById("page.main");
    for (const { dataset, checked } of this.boxes) page?.classList.toggle(`no-${dataset.kind}`, !checked);
  }
}
