/**
 * Pages of `view` in a real browser, where there is one: their looks next to the exported page, and what comes live.
 *
 * @module-tag system
 */

import { appendFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sessionFile } from "../support/cases.ts";
import { BrowserPage, CHROMIUM } from "../support/chromium.ts";
import { assistant, toolCall, toolResult } from "../support/drafts.ts";
import { assistantText, chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { PAYLOADS } from "../support/payloads.ts";
import { range } from "../support/random.ts";
import { temporaryPlace } from "../support/server.ts";
import { SWEEP } from "../support/tiers.ts";
import { type Viewing, view } from "../support/viewing.ts";

const SHOWN = `[...document.querySelectorAll("article[id]")].filter((one) => one.checkVisibility())
  .map((one) => one.querySelector(".prose").textContent.trim())`;

const LIVE = "document.getElementById('view.status').dataset.state === 'on'";

describe("in Chromium", needs(CHROMIUM), () => {
  let page: BrowserPage;
  beforeAll(async () => {
    page = await BrowserPage.open();
  });
  afterAll(() => page.close());

  async function opened(lines: readonly string[], width = 1280): Promise<{ viewing: Viewing; file: string }> {
    const place = temporaryPlace();
    const file = sessionFile(place, lines, "session.jsonl", headerText({ cwd: "/work/<b>x" }));
    const viewing = await view(place, ["--session-dir", place.cwd]);
    page.happened.length = 0;
    await page.load(viewing.url, width, true);
    return { viewing, file };
  }

  /** Goes to the session of the list, and waits for the next entry in it. */
  async function enter(width = 1280): Promise<void> {
    await page.load(await page.evaluate("document.querySelector('.rows a').href"), width, true);
    await page.until(LIVE);
  }

  const styleOf = (selector: string, member: string): Promise<string> =>
    page.evaluate(`getComputedStyle(document.querySelector(${JSON.stringify(selector)})).${member}`);

  test("a person finds a session, and sees what is written to it, on another branch too", SWEEP, async () => {
    const { viewing, file } = await opened(chain(30), 360);
    const fits = async () =>
      expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
    expect(await page.evaluate("location.href + document.referrer")).toBe(viewing.root);
    await fits();
    await enter(360);
    await fits();
    // At the end of the page, what comes is brought into view.
    await page.evaluate("scrollTo({ top: 1e9, behavior: 'instant' })");
    const lines = range(30, 60).map((n) => {
      const text = n % 2 === 0 ? (PAYLOADS[n] ?? "x") : `entry ${n}`;
      return (n % 3 === 0 ? assistantText : userText)(id(n), id(n - 1), text);
    });
    appendFileSync(file, fileText(...lines));
    await page.until(`document.getElementById("${id(59)}") !== null`);
    const ids = await page.evaluate("[...document.querySelectorAll('article[id]')].map((one) => one.id)");
    expect(ids).toEqual(range(0, 60).map(id));
    const numbers = "[...document.querySelectorAll('article.user .number')].map((one) => +one.textContent)";
    expect(await page.evaluate(`${numbers}.every((number, n) => number === n + 1)`)).toBe(true);
    await page.until(`document.getElementById("${id(59)}").getBoundingClientRect().top < innerHeight`);
    // The page is loaded again by itself, and then has the other branch.
    appendFileSync(file, fileText(userText("bbbb0001", id(3), "the other way")));
    await page.until("document.getElementById('bbbb0001') !== null");
    await page.until(LIVE);
    const own = `request ${new URL(viewing.url).origin}/`;
    expect(page.happened.splice(0).filter((one) => !one.startsWith(own))).toEqual([]);
  });

  test("neither the pages of view nor the exported page take the looks of the other", SWEEP, async () => {
    const { viewing } = await opened(chain(2));
    expect(await styleOf("form", "borderTopWidth")).toBe("0px");
    expect(await styleOf("form button", "borderTopWidth")).toBe("1px");
    await enter();
    for (const control of [".chip", ".copy", ".find input"])
      expect([control, await styleOf(control, "borderTopWidth")]).toEqual([control, "0px"]);
    await page.evaluate("scrollTo({ top: 1e9, behavior: 'instant' })");
    expect(await page.evaluate("document.getElementById('view.status').getBoundingClientRect().top")).toBeLessThan(80);
    await page.load(`${viewing.root}costs`, 1280, true);
    expect(await styleOf("form", "borderTopWidth")).toBe("0px");
  });

  test("axe finds nothing on any page, light or dark, and none is wider than its window", SWEEP, async () => {
    const { viewing } = await opened(chain(2));
    const family = await page.evaluate("document.querySelector('.rows a').href.replace('session?', 'family?')");
    const found: string[] = [];
    for (const [scheme, width] of [
      ["light", 1280],
      ["dark", 400],
    ] as const)
      for (const address of ["", "?q=entry", "costs", family]) {
        await page.media(scheme);
        await page.load(new URL(address, viewing.root).href, width, true);
        expect(await page.evaluate("document.querySelectorAll('main').length"), address).toBe(1);
        const over = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
        found.push(...(await page.findBarriers()), ...(over > 0 ? [`${address} is ${over} px too wide`] : []));
      }
    await page.media("light");
    expect(found).toEqual([]);
  });

  test("entries come live and in their place, whatever characters their ids have", async () => {
    const [first, second, third] = ["msg:1", 'a "b" <c>', "é/ü"];
    const { file } = await opened([userText(first, null, "one"), assistantText(second, first, "two")]);
    await enter();
    appendFileSync(file, fileText(userText(third, second, "three"), assistantText("msg:4", third, "four")));
    await page.until("document.querySelectorAll('article').length === 4");
    await page.until("document.querySelectorAll('.lines .line').length === 4");
    expect(await page.evaluate(SHOWN)).toEqual(["one", "two", "three", "four"]);
    expect(await page.evaluate("document.querySelector('.lines .tag').closest('.line').textContent")).toContain("four");
  });

  test("an answer and its results that come together are there, also where nothing was before", SWEEP, async () => {
    const { file, viewing } = await opened([]);
    await page.load(`${viewing.root}session?path=${encodeURIComponent(file)}`, 1280, true);
    await page.until(LIVE);
    const [asked, answered, ...rest] = [0, 1, 2, 3, 4].map(id);
    const { message } = assistant("treasure");
    message.content.push(...["c1", "c2"].map((call) => toolCall(call).message.content[0]));
    const lines = [
      userText(asked, null, "one"),
      entryText("message", answered, asked, { message }),
      entryText("message", rest[0], answered, toolResult("c1", "found")),
      entryText("message", rest[1], rest[0], toolResult("c2", "found")),
      userText(rest[2], rest[1], "two"),
    ];
    appendFileSync(file, fileText(...lines));
    await page.until(`document.getElementById("${rest[2]}") !== null && window.piSession.isReady()`);
    const seen = `[...document.querySelectorAll("article[id],.result[id]")].filter((one) => one.checkVisibility()).map(({ id }) => id)`;
    expect(await page.evaluate(seen)).toEqual([asked, answered, ...rest]);
    await page.evaluate(`document.querySelector(".find input").value = "treasure"`);
    await page.evaluate(`document.querySelector(".find input").dispatchEvent(new Event("input"))`);
    await page.until(`document.querySelector(".count").textContent === "1 in 1 entry"`);
  });

  test("an id that is the name of what a browser lacks keeps no script from its work", SWEEP, async () => {
    const source = "delete window.trustedTypes";
    const { identifier } = await page.send("Page.addScriptToEvaluateOnNewDocument", { source });
    await opened([userText("trustedTypes", null, "one")]);
    await enter();
    expect(await page.evaluate("window.trustedTypes.id")).toBe("trustedTypes");
    await page.send("Page.removeScriptToEvaluateOnNewDocument", { identifier });
  });
});
