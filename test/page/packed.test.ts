/** The session within its page: the bytes that an export as JSONL writes, or nothing. */

import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { renderPacked } from "../../src/page/packed.ts";
import { fileOf } from "../support/cases.ts";
import { longConversation } from "../support/long-conversation.ts";
import { Random } from "../support/random.ts";
import { type HereServer, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

/** Returns what a page holds, part by part. */
function packedIn(html: string): Buffer[] {
  const parts = html.matchAll(/<script type="application\/gzip" class="packed">([A-Za-z0-9+/=]+)<\/script>/g);
  return [...parts].map(([, text]) => gunzipSync(Buffer.from(text, "base64")));
}

async function exported(server: HereServer, outputPath: string, params: object): Promise<Buffer> {
  const { path } = await server.result("export_session", { outputPath, ...params });
  return readFileSync(path);
}

describe("a page", SYSTEM, () => {
  acrossTiers(test, ["jsonl", "v2"])(
    "of %s has its JSONL, damage and all: the session, its path, or without secrets",
    async (store) => {
      const place = temporaryPlace();
      const token = `ghp_${"a1B2".repeat(9)}`;
      // With branches next to the path, and some bytes that are no text.
      const whole = longConversation(55, `My token is ${token}.`);
      // A damaged session is not migrated.
      const damage = store === "jsonl" ? [0x7b, 0xff, 0x7d, 0x0a] : [];
      const bytes = Buffer.concat([Buffer.from(whole), Buffer.from(damage)]);
      const file = fileOf(place, bytes);
      const server = serveHere(["--session", file, "--events", "none"], { place });
      if (store === "v2") await server.result("migrate_session", { to: "v2" });
      for (const [index, params] of [{}, { branches: "path" }, { redact: true, allowUnjudged: true }].entries()) {
        const jsonl = await exported(server, `${index}.jsonl`, { format: "jsonl", ...params });
        const html = (await exported(server, `${index}.html`, { format: "html", ...params })).toString("utf8");
        const parts = packedIn(html);
        expect(Buffer.concat(parts).equals(jsonl)).toBe(true);
        expect(html).toContain(`&quot;whole&quot;:${jsonl.length}`);
        expect([html.includes(token), jsonl.includes(token)]).toEqual(index === 2 ? [false, false] : [true, true]);
      }
      if (store === "jsonl") expect(readFileSync(`${place.cwd}/0.jsonl`).equals(bytes)).toBe(true);
      const without = await exported(server, "without.html", { format: "html", jsonl: false });
      expect(without.includes("application/gzip")).toBe(false);
      const { path } = await server.result("export_html", { jsonl: false });
      expect(readFileSync(path, "utf8")).not.toContain("application/gzip");
    },
  );
});

test("is packed in parts of a megabyte, however it comes", () => {
  const random = new Random(1);
  const bytes = Buffer.from(Array.from({ length: 5000 }, () => random.int(256)));
  const pieces = Array.from({ length: 500 }, (_, n) => bytes.subarray(0, n * 10));
  pieces.push(Buffer.alloc(2_500_000, "x"));
  const parts = packedIn([...renderPacked(pieces, "x.jsonl")].join(""));
  expect(Buffer.concat(parts).equals(Buffer.concat(pieces))).toBe(true);
  expect(parts.slice(0, -1).map(({ length }) => length)).toEqual([1 << 20, 1 << 20, 1 << 20]);
  expect(packedIn([...renderPacked([], "x.jsonl")].join(""))).toEqual([]);
});

test("the export of a page tells how far it is by the entries that it has drawn", async () => {
  const place = temporaryPlace();
  const file = fileOf(place, longConversation(130));
  const server = serveHere(["--session", file], { place });
  const params = { format: "html", outputPath: "told.html", _meta: { progressToken: 1 } };
  await server.result("export_session", params);
  const progress = server.events.filter(({ method }) => method === "$/progress").map(({ params: { value } }) => value);
  expect(progress.length).toBeGreaterThan(3);
  expect(JSON.stringify(progress.at(-1))).toMatch(/1\d\d.*1\d\d/);
});
