/** The page of a session of 20,000 entries in a real browser, where there is one: how soon it answers, and how large it is. */

import { statSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { expect } from "vitest";
import { fileOf } from "../support/cases.ts";
import { BrowserPage, chromiumHere } from "../support/chromium.ts";
import { longConversation } from "../support/long-conversation.ts";
import { serveHere, temporaryPlace } from "../support/server.ts";
import { soak } from "../support/soak.ts";

const ENTRIES = 20_000;

/** Keeps what tasks of 50 ms and more took. */
const WATCH = `new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) (window.tasks ??= []).push(Math.round(duration)); })
  .observe({ type: "longtask", buffered: true });`;

/** Looks for a text. Returns the milliseconds until its counts and marks are drawn. */
const searchFor = (text: string): string => `(async () => {
  const [field, count] = [document.querySelector("input[type=search]"), document.querySelector(".count")];
  field.value = ${JSON.stringify(text)};
  count.textContent = "";
  const began = performance.now();
  field.dispatchEvent(new Event("input"));
  while (count.textContent === "") await new Promise((resolve) => setTimeout(resolve));
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  return Math.round(performance.now() - began);
})()`;

soak("pages", async () => {
  const program = chromiumHere();
  if (program === undefined) return { runs: 1, entries: 0 };
  const place = temporaryPlace();
  const sessionPath = fileOf(place, longConversation(ENTRIES), "long.jsonl");
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const { path } = await server.result("export_session", { sessionPath, format: "html", outputPath: "long.html" });
  const share = statSync(path).size / statSync(sessionPath).size;
  const page = await BrowserPage.open(program);
  try {
    await page.send("Page.addScriptToEvaluateOnNewDocument", { source: WATCH });
    const began = performance.now();
    await page.load(pathToFileURL(path).href, 1280, true);
    await page.press("j");
    const firstKey = Math.round(performance.now() - began);
    expect(await page.evaluate(`document.querySelector(".here") !== null`)).toBe(true);
    await page.until(`piSession.isReady()`);
    await page.evaluate("window.tasks = []");
    const searches: number[] = [];
    for (const text of ["e", "store", "lock file", "last words"]) searches.push(await page.evaluate(searchFor(text)));
    await page.press("n");
    for (let part = 1; part < 10; part++) {
      await page.evaluate(`scrollTo(0, document.body.scrollHeight * ${part / 10})`);
      await page.drawn();
    }
    for (const key of "fffffj]kl") await page.press(key);
    const slowest = Math.max(0, ...(await page.evaluate("window.tasks")));
    const elements = await page.evaluate(`document.querySelectorAll("*").length`);
    console.info(
      `the first key is answered after ${firstKey} ms, searches take ${searches.join(", ")} ms, the slowest task ${slowest} ms; ` +
        `${elements} elements, ${share.toFixed(2)} of the session's bytes`,
    );
    // On an idle machine half of it; what draws everything at once takes ten times as long.
    expect(firstKey).toBeLessThan(3000);
    expect(Math.max(...searches)).toBeLessThan(400);
    expect(slowest).toBeLessThan(400);
    expect(elements).toBeLessThan(150_000);
    // Exports of Pi have four thirds of them, and 300 kB.
    expect(share).toBeLessThan(4 / 3);
    expect(page.happened).toEqual([]);
  } finally {
    await page.close();
  }
  return { runs: 1, entries: ENTRIES };
});
