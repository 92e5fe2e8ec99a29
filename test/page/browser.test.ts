/**
 * Pages in a real browser, where there is one: nothing happens by itself, nothing is wider than the screen, all is there.
 *
 * @module-tag sweep
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BrowserPage, CHROMIUM } from "../support/chromium.ts";
import { needs } from "../support/needs.ts";
import { type Place, serveHere, temporaryPlace } from "../support/server.ts";

const EXAMPLE = fileURLToPath(new URL("../../examples/branches.jsonl", import.meta.url));

describe("in Chromium", needs(CHROMIUM), () => {
  let page: BrowserPage;
  beforeAll(async () => {
    page = await BrowserPage.open();
  });
  afterAll(() => page.close());

  /** Exports a session to a page of its own, and returns where that is. */
  async function exported(place: Place, sessionPath: string, name: string): Promise<string> {
    const server = serveHere(["--no-session", "--events", "none"], { place });
    const { content } = await server.result("export_session", { sessionPath, format: "html" });
    const file = join(place.cwd, name);
    writeFileSync(file, content);
    return pathToFileURL(file).href;
  }

  test("what a page does is noticed", async () => {
    const file = join(temporaryPlace().cwd, "bad.html");
    writeFileSync(file, "<script>console.log(1)</script><img src=http://127.0.0.1:1/x><script>alert(2)</script>");
    await page.load(pathToFileURL(file).href, 360, true);
    const happened = page.happened.splice(0).map((one) => one.split(" ")[0]);
    for (const kind of ["console", "request", "dialog"]) expect(happened).toContain(kind);
    await page.load("about:blank", 360, true);
    page.happened.length = 0;
  });

  test("an example fits from 360 pixels to 4K, opens where a link leads, and folds what a compaction replaced", async () => {
    const url = await exported(temporaryPlace(), EXAMPLE, "example.html");
    for (const width of [360, 400, 1280, 3840]) {
      await page.load(url, width, true);
      expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
    }
    const seen = (id: string): string => `document.getElementById("${id}").checkVisibility()`;
    expect(await page.evaluate(seen("54e4ffbe"))).toBe(false);
    await page.load("about:blank", 1280, true);
    await page.load(`${url}#54e4ffbe`, 1280, true);
    expect(await page.evaluate(seen("54e4ffbe"))).toBe(true);
    expect(page.happened).toEqual([]);
  });
});
