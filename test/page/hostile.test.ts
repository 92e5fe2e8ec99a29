/** Everything that a session says, in every place where it can, as hostile as it comes: nothing runs, loads or breaks out. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { fileOf } from "../support/cases.ts";
import { BrowserPage, CHROMIUM } from "../support/chromium.ts";
import { lookAtDocument } from "../support/documents.ts";
import { assistantText, fileText, headerText, id, userText } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { lookAt } from "../support/pages.ts";
import { PAYLOADS, sessionSaying } from "../support/payloads.ts";
import { isEvery, share } from "../support/random.ts";
import { type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

const LOOKS = { html: lookAt, markdown: lookAtDocument } as const;
type Format = keyof typeof LOOKS;

/** Returns an export of every branch. */
async function exported(place: Place, content: string | Buffer, format: Format): Promise<string> {
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const sessionPath = fileOf(place, content, "hostile.jsonl");
  return (await server.result("export_session", { sessionPath, format, branches: "all" })).content;
}

test("there are enough payloads, and no two are the same", () => {
  expect(PAYLOADS.length).toBeGreaterThanOrEqual(450);
  expect(new Set(PAYLOADS).size).toBe(PAYLOADS.length);
});

describe.each(["html", "markdown"] as const)("in %s", (format) => {
  acrossTiers(test, [3, 48])("none of %i payloads acts or breaks out, wherever a session says it", async (count) => {
    const payloads = share(PAYLOADS, count);
    const content = await exported(temporaryPlace(), sessionSaying(...payloads), format);
    const { text, addresses } = LOOKS[format](content);
    for (const address of addresses) expect(address).toMatch(/^(?:https?:\/\/|mailto:)/);
    for (const payload of payloads) {
      const word = /[a-z]{5,}/.exec(payload)?.[0];
      if (word !== undefined) expect(text).toContain(word);
    }
  });

  test("bytes that are no text, and long lines", SYSTEM, async () => {
    const line = Buffer.from(userText(id(0), null, "MARK <script>alert(1)</script> \u202eMARK")).toString("latin1");
    const bad = "\xff\xfe\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x80";
    const long = assistantText(id(1), null, `${"<b>'\"`&|*_[".repeat(isEvery() ? 1 << 20 : 1 << 15)}treasure`);
    const session = Buffer.from(fileText(headerText(), long, line.replaceAll("MARK", bad)), "latin1");
    const { text, elements } = LOOKS[format](await exported(temporaryPlace(), session, format));
    // Markup would be an element that no page has, or no document.
    expect([text.includes("<b>'\"`&|*_[treasure"), format === "html" || !elements.includes("b")]).toEqual([true, true]);
  });
});

/** Moves over everything, and clicks on what answers, but for links elsewhere. */
const TOUCH = `
  for (const element of document.querySelectorAll("*")) {
    element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    element.dispatchEvent(new FocusEvent("focus"));
  }
  for (const summary of document.querySelectorAll("summary")) summary.click();
`;

describe("in one page, in Chromium,", { ...SYSTEM, ...needs(CHROMIUM) }, () => {
  acrossTiers(test, [30, 120])("%i payloads make nothing happen", async (count) => {
    const place = temporaryPlace();
    const file = join(place.cwd, "hostile.html");
    const content = await exported(place, sessionSaying(...share(PAYLOADS, count)), "html");
    writeFileSync(file, content);
    const own = content.match(/<script\b[^>]*>/g)?.length ?? 0;
    const page = await BrowserPage.open();
    try {
      for (const script of [true, false]) {
        await page.load(pathToFileURL(file).href, 360, script);
        if (script) await page.evaluate(TOUCH);
        expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
        expect(await page.evaluate("document.scripts.length - document.styleSheets.length")).toBe(own - 1);
        expect(await page.evaluate("document.querySelectorAll('iframe,object,embed,form,base,link').length")).toBe(0);
      }
    } finally {
      await page.close();
    }
    expect(page.happened).toEqual([]);
  });
});
