/** Elements, made one by one: what a session says only ever becomes text. */

type NewChild = Node | string | undefined | false;

/** Returns an element with attributes and children; strings become text. */
export function create<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Readonly<Record<string, string>> = {},
  ...children: readonly NewChild[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  for (const child of children) if (child) element.append(child);
  return element;
}

export function makeButton(text: string, style: string, act: () => void, title = ""): HTMLButtonElement {
  const made = create("button", { type: "button", class: style, ...(title === "" ? {} : { title }) }, text);
  made.addEventListener("click", act);
  return made;
}

interface HtmlPolicy {
  createHTML(html: string): string;
}

let policy: HtmlPolicy | undefined;

/** Makes elements of HTML by the page's generator; uses the only policy that the page allows. */
export function parseElements(html: string): DocumentFragment {
  const types = (window as { trustedTypes?: { createPolicy?(name: string, rules: HtmlPolicy): HtmlPolicy } })
    .trustedTypes;
  // In a browser without them, an entry may have this name as its id.
  policy ??= types?.createPolicy?.("page", { createHTML: (text) => text }) ?? { createHTML: (text) => text };
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content;
}

/** Runs work that yields where it may pause, no longer than a few milliseconds at a time. */
export async function runInSlices(work: Iterator<unknown>, isOver: () => boolean = () => false): Promise<void> {
  for (let done = false; !done && !isOver(); ) {
    const until = performance.now() + 12;
    while (!done && performance.now() < until) done = work.next().done === true;
    if (!done) await new Promise<void>((resolve) => setTimeout(resolve));
  }
}
