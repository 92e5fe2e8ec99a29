/**
 * Pages with their script in a real browser, where there is one: tree, paths, search, links, the JSONL.
 *
 * @module-tag system
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { fileOf, linesIn } from "../support/cases.ts";
import { BrowserPage, CHROMIUM } from "../support/chromium.ts";
import { longConversation } from "../support/long-conversation.ts";
import { needs } from "../support/needs.ts";
import { lookAt } from "../support/pages.ts";
import { PAYLOADS } from "../support/payloads.ts";
import { type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { SWEEP } from "../support/tiers.ts";

const EXAMPLE = fileURLToPath(new URL("../../examples/branches.jsonl", import.meta.url));

/** Of the example: an entry of the path to the leaf, its last, and one with the end of a branch next to that path. */
const ON_PATH = "714fb669";
const LEAF = "a08232a9";
const BRANCH = "5c0ae1ee";
const BRANCH_END = "c1cfefcc";

/** Expressions about the page. */
const SHOWN = `[...document.querySelectorAll("article[id],.note[id],.result[id]")]
  .filter((one) => one.checkVisibility() || one.closest("details:not([open])"))
  .filter((one) => !one.closest("[hidden],.others")).map(({ id }) => id)`;
const HERE = `document.querySelector(".here")?.id`;
const BAR = `document.querySelector(".pathbar").checkVisibility()`;
const OVERFLOW = "document.documentElement.scrollWidth - innerWidth";
const COUNT = `document.querySelector(".count").textContent`;

describe("in Chromium, with script", needs(CHROMIUM), () => {
  let page: BrowserPage;
  let place: Place;
  let example: string;
  const parents = new Map<string, string>();

  beforeAll(async () => {
    page = await BrowserPage.open();
    const [, ...entries] = linesIn(EXAMPLE).map((line): Json => JSON.parse(line));
    for (const { id, parentId } of entries) parents.set(id, parentId);
  });
  beforeEach(async () => {
    place = temporaryPlace();
    example = await exported(EXAMPLE, "example.html");
  });
  afterAll(() => page.close());

  async function exported(sessionPath: string, name: string, params: object = {}): Promise<string> {
    const server = serveHere(["--no-session", "--events", "none"], { place });
    const { content } = await server.result("export_session", { sessionPath, format: "html", ...params });
    writeFileSync(join(place.cwd, name), content);
    return pathToFileURL(join(place.cwd, name)).href;
  }

  async function open(hash = "", width = 1280): Promise<void> {
    await page.load("about:blank", width, true);
    await page.load(example + hash, width, true);
    await page.drawn();
  }

  const find = async (words: string): Promise<void> => {
    for (const key of `/${words}`) await page.press(key);
  };

  /** Returns the ids from the root to an entry. */
  function pathTo(end: string): string[] {
    const path = [end];
    for (let at = parents.get(end); at; at = parents.get(at)) path.unshift(at);
    return path;
  }

  const shown = async (): Promise<string[]> => (await page.evaluate(SHOWN)).sort();
  const expectShown = async (...ids: string[]) => expect.poll(shown).toEqual(ids.sort());

  test("what a page does is noticed", SWEEP, async () => {
    const file = join(place.cwd, "bad.html");
    writeFileSync(file, "<script>console.log(1)</script><img src=http://127.0.0.1:1/x><script>alert(2)</script>");
    await page.load(pathToFileURL(file).href, 360, true);
    await page.load("about:blank", 360, true);
    const happened = page.happened.splice(0).map((one) => one.split(" ")[0]);
    expect(happened).toEqual(expect.arrayContaining(["console", "request", "dialog"]));
  });

  test("fits 360 pixels and 4K, opens where a link leads, and folds what was compacted", SWEEP, async () => {
    for (const width of [360, 1280, 3840]) {
      await open("", width);
      expect(await page.evaluate(OVERFLOW)).toBeLessThanOrEqual(0);
    }
    const seen = `document.getElementById("54e4ffbe").checkVisibility()`;
    expect(await page.evaluate(seen)).toBe(false);
    await open("#54e4ffbe");
    expect(await page.evaluate(seen)).toBe(true);
    expect(page.happened).toEqual([]);
  });

  test("x expands all thoughts, outputs and what a summary replaced, and folds them again", async () => {
    const opened = `document.querySelectorAll("main section:not(.others) details[open]").length`;
    const all = `document.querySelectorAll("main section:not(.others) details:not(.branch)").length`;
    const hidden = `document.getElementById("54e4ffbe").checkVisibility()`;
    await open();
    expect([await page.evaluate(`${all} > 3`), await page.evaluate(opened), await page.evaluate(hidden)]).toEqual([
      true,
      0,
      false,
    ]);
    await page.press("x");
    expect([await page.evaluate(`${opened} === ${all}`), await page.evaluate(hidden)]).toEqual([true, true]);
    // Another path is unfolded, too.
    await page.evaluate(`location.hash = "#${BRANCH}"`);
    await expectShown(...pathTo(BRANCH_END));
    expect(await page.evaluate(`${opened} > 0`)).toBe(true);
    await page.press("x");
    expect(
      await page.evaluate(`document.querySelectorAll("main details:is(.long,.more,.thinking)[open]").length`),
    ).toBe(0);
  });

  test("shows the kinds of messages that are ticked, and all of them again for an entry that is looked for", async () => {
    const seen = (what: string) =>
      page.evaluate(
        `[...document.querySelectorAll("#conversation\\\\.path ${what}")].some((one) => one.checkVisibility())`,
      );
    const tick = (kind: string) => page.evaluate(`document.querySelector("[data-kind=${kind}]").click()`);
    await open();
    const kinds = { user: "article.user", tools: ".call", notes: ".note", answers: ".assistant > .prose" };
    for (const [kind, what] of Object.entries(kinds)) {
      expect([kind, await seen(what)]).toEqual([kind, true]);
      await tick(kind);
      expect([kind, await seen(what)]).toEqual([kind, false]);
    }
    await tick("thinking");
    expect(await seen("article:not(.summary)")).toBe(false);
    await page.evaluate(`location.hash = "#${ON_PATH}"`);
    await page.until(`document.getElementById("${ON_PATH}").checkVisibility()`);
    expect(await page.evaluate(`[...document.querySelectorAll("[data-kind]")].every((box) => box.checked)`)).toBe(true);
  });

  test("shows exactly the path to the entry that a link names, and goes back to the leaf", async () => {
    await open();
    await expectShown(...pathTo(LEAF));
    expect(await page.evaluate(BAR)).toBe(false);
    await open(`#${BRANCH}`);
    await expectShown(...pathTo(BRANCH_END));
    expect([await page.evaluate(HERE), await page.evaluate(BAR)]).toEqual([BRANCH, true]);
    await page.press("e");
    await expectShown(...pathTo(BRANCH));
    await page.press("l");
    await expectShown(...pathTo(LEAF));
    await open(`#${ON_PATH}@${BRANCH}`);
    await expectShown(...pathTo(BRANCH));
    expect(await page.evaluate(HERE)).toBe(ON_PATH);
    expect(page.happened).toEqual([]);
  });

  test("what a link names is current until the reader moves the page, however late that is", SWEEP, async () => {
    const other = "[...document.querySelectorAll('article[id]')][1]";
    await open(`#${BRANCH}`);
    await page.evaluate(`{ const now = performance.now.bind(performance); performance.now = () => now() + 1000 }`);
    await page.evaluate("scrollTo(0, 0)");
    await page.drawn();
    await page.until("scrollY > 0");
    await page.press("e");
    await expectShown(...pathTo(BRANCH));
    await open(`#${BRANCH}`);
    await page.evaluate(`dispatchEvent(new WheelEvent('wheel')), ${other}.scrollIntoView()`);
    const top = await page.evaluate(`${other}.id`);
    for (let n = 0; n < 2; n++) await page.drawn();
    await page.press("e");
    await expectShown(...pathTo(top));
  });

  test("every entry has a button that copies its link, with the end of a path beside the leaf", SWEEP, async () => {
    await open(`#${BRANCH}`);
    const copied = `(async () => {
      let text;
      Object.defineProperty(navigator, "clipboard", { value: { writeText: async (given) => { text = given; } } });
      const links = [];
      for (const entry of document.querySelectorAll("article[id]:not(.tool *),.note[id],.result[id]")) {
        if (entry.closest("[hidden],.others")) continue;
        [...entry.querySelectorAll("button.copy")].find((one) => one.closest("article,.note,.result") === entry).click();
        links.push(text.replace(/.*#/, ""));
      }
      return links.sort();
    })()`;
    expect(await page.evaluate(copied)).toEqual(
      pathTo(BRANCH_END)
        .map((id) => `${id}@${BRANCH_END}`)
        .sort(),
    );
  });

  test("keys move along the path, open and fold the tree, and search everything", SWEEP, async () => {
    await open();
    const at: string[] = [];
    for (const key of ["]", "]", "j", "["]) {
      await page.press(key);
      at.push(await page.evaluate(HERE));
    }
    expect([parents.get(at[2]), at[3], at[0] !== at[1]]).toEqual([at[1], at[1], true]);

    await find("notes.jsonl");
    await page.until(`document.querySelectorAll(".line .found").length === 5`);
    const [total, entries] = (await page.evaluate(COUNT)).match(/\d+/g).map(Number);
    expect(entries).toBeLessThanOrEqual(linesIn(EXAMPLE).filter((line) => line.includes("notes.jsonl")).length);
    expect(total).toBeGreaterThanOrEqual(entries);
    expect(await page.evaluate(`document.querySelectorAll(".line .found").length`)).toBe(entries);
    await page.press("Enter");
    expect(await page.evaluate(COUNT)).toMatch(new RegExp(`^\\d+ of ${total}$`));
    expect(await page.evaluate(`[...CSS.highlights.get("now")].map(String).join()`)).toBe("notes.jsonl");
    const foundIn = `[...CSS.highlights.get("now")][0].startContainer.parentElement`;
    expect(await page.evaluate(`${foundIn}.checkVisibility()`)).toBe(true);
    await page.press("Escape");
    await page.until(`${COUNT} === ""`);
    const seen: string[] = [];
    for (let n = 0; n < 5; n++) {
      await page.press("f");
      seen.push(await page.evaluate(`document.querySelector(".chip[aria-pressed=true]").textContent`));
    }
    expect(seen).toEqual(["No tools", "User", "Labelled", "All", "Conversation"]);
    expect(page.happened).toEqual([]);
  });

  test("the JSONL in the page is that of the session, byte for byte", SWEEP, async () => {
    await open();
    const bytes = `(async () => {
      let blob;
      URL.createObjectURL = (given) => { blob = given; return "blob:x"; };
      HTMLAnchorElement.prototype.click = () => {};
      [...document.querySelectorAll(".facts button")].at(-1).click();
      while (!blob) await new Promise((resolve) => setTimeout(resolve));
      return blob.text();
    })()`;
    expect(await page.evaluate(bytes)).toBe(readFileSync(EXAMPLE, "utf8"));
  });

  test("blocks that are asleep are read without script, wake with it, and nothing of them runs", SWEEP, async () => {
    const said = PAYLOADS.slice(0, 160).join("\n\n");
    // The first question is all that is drawn at once.
    const file = fileOf(place, longConversation(80, said, "word ".repeat(400_000)), "long.jsonl");
    const url = await exported(file, "long.html", { jsonl: false });
    lookAt(readFileSync(fileURLToPath(url), "utf8"));
    await page.load(url, 360, false);
    expect(await page.evaluate(`document.querySelectorAll(".asleep article").length`)).toBeGreaterThan(20);
    await page.load(url, 360, true);
    expect(await page.evaluate(`document.querySelectorAll(".asleep > noscript").length`)).toBeGreaterThan(0);
    await find("last words");
    await page.until(`${COUNT} === "1 in 1 entry"`);
    await page.press("Enter");
    expect(await page.evaluate(`[...CSS.highlights.get("now")].map(String).join()`)).toBe("last words");
    expect(await page.evaluate(OVERFLOW)).toBeLessThanOrEqual(0);
    expect(page.happened).toEqual([]);
  });

  test("what is added later takes part in tree, search and paths", SWEEP, async () => {
    await open();
    const article = (id: string, after: string, words: string): string =>
      `<article id="${id}" class="user"><header><h3>You</h3></header><p>${words}</p></article>` +
      `<script type="application/json" class="rows">${JSON.stringify([[id, -1, after, "u", words, 0]])}</script>`;
    const put = (html: string, how: string): Promise<Json> =>
      page.evaluate(`(() => {
        const made = new DOMParser().parseFromString(page.createHTML(${JSON.stringify(html)}), "text/html");
        const parts = [...made.head.childNodes, ...made.body.childNodes].map((one) => document.importNode(one, true));
        ${how}
        piSession.refresh();
      })()`);
    await page.evaluate(`globalThis.page = trustedTypes.createPolicy("page", { createHTML: (html) => html })`);
    const append = `document.getElementById("conversation.path").append(...parts);`;
    await put(article("beefbeef", LEAF, "Zebra crossing"), append);
    await expectShown(...pathTo(LEAF), "beefbeef");
    expect(await page.evaluate(`document.querySelector(".tag").closest(".line").textContent`)).toContain("Zebra");
    // One next to the path does not show until it is asked for.
    await put(article("fade0123", ON_PATH, "Zebra finch"), append);
    await expectShown(...pathTo(LEAF), "beefbeef");
    await find("zebra");
    await page.until(`${COUNT} === "2 in 2 entries"`);
    await put(article("beefbeef", LEAF, "Okapi"), `document.getElementById("beefbeef").replaceWith(...parts);`);
    await page.until(`${COUNT} === "1 in 1 entry"`);
    expect(await page.evaluate(`document.querySelectorAll("#beefbeef").length`)).toBe(1);
    await page.press("Enter");
    await expectShown(...pathTo(ON_PATH), "fade0123");
  });

  test("axe finds nothing in light and dark, wide and narrow, with drawer, search and keys", SWEEP, async () => {
    const found: string[] = [];
    for (const [scheme, width, hash, key] of [
      ["light", 1280, "", "/"],
      ["dark", 360, `#${BRANCH}`, "t"],
      ["dark", 1280, "", "?"],
    ] as const) {
      await page.media(scheme);
      await open(hash, width);
      await page.press(key);
      await page.evaluate(`document.querySelectorAll("main details").forEach((one) => { one.open = true; })`);
      // Elements out of view are not laid out, and would count as lying on each other.
      const visible = "article,.note,.left{content-visibility:visible!important}";
      await page.evaluate(`document.styleSheets[0].insertRule("${visible}")`);
      found.push(...(await page.findBarriers()).map((one) => `${scheme} ${width} ${one}`));
    }
    await page.media("light");
    expect(found).toEqual([]);
  });

  test.each([1280, 400])(
    "Tab reaches every control of a page of %i pixels, in sight, and leaves the page",
    async (width) => {
      const focused = `(() => {
      const one = document.activeElement;
      if (one === document.body) return "the end";
      const { left, top, width, height } = one.getBoundingClientRect();
      const above = document.elementFromPoint(left + width / 2, top + height / 2);
      const isMarked = [one, one.parentElement].some((marked) => {
        const { outlineStyle, boxShadow } = getComputedStyle(marked);
        return outlineStyle !== "none" || boxShadow !== "none";
      });
      const isSeen = one.contains(above) || above?.contains(one);
      return (one.getAttribute("aria-label") ?? one.innerText) + (isMarked ? "" : " (not marked)") + (isSeen ? "" : " (covered)");
    })()`;
      await open("", width);
      const reached: string[] = [];
      do {
        await page.press("Tab");
        reached.push(await page.evaluate(focused));
      } while (reached.at(-1) !== "the end" && reached.length < 100);
      const first = [
        "To the conversation",
        ...(width === 1280 ? ["Search everything", "Keys (?)"] : ["Tree", "Download"]),
      ];
      expect(reached.slice(0, first.length)).toEqual(first);
      expect(reached.filter((one) => one.endsWith(")") && one !== "Keys (?)")).toEqual([]);
      expect(reached.filter((one) => one.startsWith("Copy the link")).length).toBeGreaterThan(20);
      expect(reached.at(-1)).toBe("the end");
      expect(await page.evaluate(OVERFLOW)).toBeLessThanOrEqual(0);
    },
  );

  test("paper has the shown path alone", SWEEP, async () => {
    await open(`#${BRANCH}`);
    await page.media("light", "print");
    const seen = `[...document.body.children].filter((one) => one.checkVisibility()).map(({ id, className }) => id || className)`;
    expect(await page.evaluate(seen)).toEqual(["page.main"]);
    expect(await page.evaluate(`document.querySelector(".pathbar").checkVisibility()`)).toBe(false);
    await page.media("light");
  });
});
