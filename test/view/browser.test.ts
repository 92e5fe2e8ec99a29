/**
 * Pages of `view` in a real browser, where there is one: their looks beside the exported page, and what comes live.
 *
 * @module-tag system
 */

import { appendFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sessionFile } from "../support/cases.ts";
import { BrowserPage, CHROMIUM } from "../support/chromium.ts";
import { assistantText, chain, entryText, id, userText } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { temporaryPlace } from "../support/server.ts";
import { SWEEP } from "../support/tiers.ts";
import { type Viewing, view } from "../support/viewing.ts";

const SHOWN = `[...document.querySelectorAll("article[id]")].filter((one) => one.checkVisibility())
  .map((one) => one.querySelector(".prose").textContent.trim())`;

describe("in Chromium", needs(CHROMIUM), () => {
  let page: BrowserPage;
  beforeAll(async () => {
    page = await BrowserPage.open();
  });
  afterAll(() => page.close());

  async function opened(lines: readonly string[]): Promise<{ viewing: Viewing; file: string }> {
    const place = temporaryPlace();
    const file = sessionFile(place, lines, "session.jsonl");
    const viewing = await view(place, ["--session-dir", place.cwd]);
    await page.load(viewing.url, 1280, true);
    return { viewing, file };
  }

  const styleOf = (selector: string, member: string): Promise<string> =>
    page.evaluate(`getComputedStyle(document.querySelector(${JSON.stringify(selector)})).${member}`);

  test("neither the pages of view nor the exported page take the looks of the other", SWEEP, async () => {
    const { viewing } = await opened(chain(2));
    expect(await styleOf("form", "borderTopWidth")).toBe("0px");
    expect(await styleOf("form button", "borderTopWidth")).toBe("1px");
    await page.load(await page.evaluate("document.querySelector('.rows a').href"), 1280, true);
    for (const control of [".chip", ".copy", ".find input"])
      expect([control, await styleOf(control, "borderTopWidth")]).toEqual([control, "0px"]);
    await page.evaluate("scrollTo({ top: 1e9, behavior: 'instant' })");
    expect(await page.evaluate("document.getElementById('view.status').getBoundingClientRect().top")).toBeLessThan(80);
    await page.load(`${viewing.root}costs`, 1280, true);
    expect(await styleOf("form", "borderTopWidth")).toBe("0px");
  });

  test("entries come live and in their place, whatever characters their ids have", async () => {
    const [first, second, third] = ["msg:1", 'a "b" <c>', "é/ü"];
    const { file } = await opened([userText(first, null, "one"), assistantText(second, first, "two")]);
    await page.load(await page.evaluate("document.querySelector('.rows a').href"), 1280, true);
    await page.until("document.getElementById('view.status').dataset.state === 'on'");
    appendFileSync(file, `${userText(third, second, "three")}\n${assistantText("msg:4", third, "four")}\n`);
    await page.until("document.querySelectorAll('article').length === 4");
    await page.until("document.querySelectorAll('.lines .line').length === 4");
    expect(await page.evaluate(SHOWN)).toEqual(["one", "two", "three", "four"]);
    expect(await page.evaluate("document.querySelector('.lines .tag').closest('.line').textContent")).toContain("four");
  });

  test("an answer and its results that come together are there, also where nothing was before", SWEEP, async () => {
    const { file, viewing } = await opened([]);
    await page.load(`${viewing.root}session?path=${encodeURIComponent(file)}`, 1280, true);
    await page.until("document.getElementById('view.status').dataset.state === 'on'");
    const [asked, answered, ...rest] = [0, 1, 2, 3, 4].map(id);
    const calls = ["c1", "c2"].map((id) => ({ type: "toolCall", id, name: "bash", arguments: { command: "ls" } }));
    const answer = { role: "assistant", content: [{ type: "text", text: "treasure" }, ...calls], model: "m" };
    const result = (n: number): Record<string, unknown> => ({
      message: {
        role: "toolResult",
        toolCallId: `c${n}`,
        toolName: "bash",
        content: [{ type: "text", text: `found ${n}` }],
      },
    });
    const lines = [
      userText(asked, null, "one"),
      entryText("message", answered, asked, { message: answer }),
      entryText("message", rest[0], answered, result(1)),
      entryText("message", rest[1], rest[0], result(2)),
      userText(rest[2], rest[1], "two"),
    ];
    appendFileSync(file, lines.map((line) => `${line}\n`).join(""));
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
    await page.load(await page.evaluate("document.querySelector('.rows a').href"), 1280, true);
    expect(await page.evaluate("window.trustedTypes.id")).toBe("trustedTypes");
    await page.until("document.getElementById('view.status').dataset.state === 'on'");
    await page.send("Page.removeScriptToEvaluateOnNewDocument", { identifier });
  });
});
