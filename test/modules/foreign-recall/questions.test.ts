/** Fifty questions about half a year of sessions with five agents. */

import { expect, test } from "vitest";
import { putRemembered } from "../../support/remembered.ts";
import { type Json, temporaryPlace } from "../../support/server.ts";
import { recallHere } from "../recall/support/recall.ts";

/** Questions as people and models ask them, each with a part of the text that answers, or of the question before it. */
const QUESTIONS: readonly (readonly [question: string, answer: string, more?: Json])[] = [
  ["which cache do we use for prices in the shop?", "an LRU map in the process now"],
  ["why did we drop redis", "Redis is gone from compose.yaml"],
  ["TaxRegionError NO-SVALBARD", "Svalbard has no value added tax"],
  ["where is the tax rate a divisor", "Two places divide by the rate"],
  ["which job queue do order mails go through now", "outbox_jobs"],
  ["pg-boss load on the database", "Its polling interval is 500 ms"],
  ["sendOrderMail worker retries", "the worker is in src/mail/worker.ts"],
  ["split full name migration", "0042_split_full_name.sql"],
  ["customers with a single name", "Mononyms go into given_name"],
  ["voucher rounding one cent off", "applyVoucher() rounds each line"],
  ["duplicate stripe webhook deliveries", "inserts the event id into processed_events"],
  ["how long are processed event ids kept", "Thirty days"],
  ["memory of thumbnails with sharp", "sharp keeps a cache of decoded images"],
  ["libvips sequential read problem", "out of order read"],
  ["did we choose meilisearch for products?", "Postgres full text with a trigram index"],
  ["ENOSPC although disk has space", "no inodes left"],
  ["PMTiles archives zoom level", "no inodes left"],
  ["longitude 180 wraps to the wrong side", "normalizeLongitude()"],
  ["splitAntimeridian", "splitting polygons at the antimeridian"],
  ["command to import a single country", "python -m atlas.importer"],
  ["ATLAS_CACHE_DIR", "ATLAS_CACHE_DIR to move them"],
  ["what format is the routing graph stored in", "flat arrays that are memory-mapped"],
  ["labels flicker when the map is panned", "I sort candidates by feature id"],
  ["GDAL_DATA not defined on CI", "sets GDAL_DATA in its activation script"],
  ["licence of the satellite imagery", "Sentinel-2 cloudless 2024"],
  ["bathymetry source", "GEBCO"],
  ["elevation voids alps", "fill_voids.py"],
  ["undo grouping in the editor", "closes a group at a space"],
  ["undo: snapshots or operations", "Each operation knows its inverse"],
  ["IME composition bug firefox", "onCompositionEnd()"],
  ["large document freezes the window", "only for visible lines"],
  ["yjs or automerge", "its updates are a tenth of the size"],
  ["spell check in code fences", "fence-body"],
  ["emoji missing in pdf", "Noto Color Emoji"],
  ["subset the emoji font size", "hb-subset keeps only the used glyphs"],
  ["autosave wrote an empty file", "saveFile() truncates"],
  ["atomic save on a network drive", "detectNetworkDrive() decides"],
  ["how are money amounts represented", "Integers in the smallest unit"],
  ["camt.053 correction imported twice", "AcctSvcrRef"],
  ["reopen a closed fiscal year", "ledger reopen needs the flag"],
  ["exchange rate for argentine peso", "openexchangerates"],
  ["reports differ between two runs", "order of the hash map"],
  ["ERR_UNEXPECTED_DELIMITER savings bank csv", "sniffDialect() takes 4 KB"],
  ["do we store passwords in ledger?", "No password is stored anywhere"],
  ["raw metrics retention days", "retention.yaml says raw: 90d"],
  ["disk alert at night", "disk_almost_full"],
  ["too many open files beacond", "never closes the body"],
  ["how are collectors deployed today", "moved the collectors to Nomad"],
  ["old routers TLS 1.0 models", "Edgeline R200"],
  ["on-call holidays skipped", "A person on holiday is skipped"],
];

/** Hits among which the right one has to be. */
const FIRST = 5;

test("the right entry is among the first five for 48 of 50 questions, and half of the answers have 2,400 bytes at most", async () => {
  const place = temporaryPlace();
  const { words, longest } = putRemembered(place);
  expect(longest / words).toBeCloseTo(0.4, 1);
  const { call } = recallHere({ place, now: () => Date.parse("2026-07-01T12:00:00Z") });
  while ((await call("find", { query: "anything" })).includes("; partial: "));
  const missed: string[] = [];
  const sizes: number[] = [];
  for (const [question, answer, more] of QUESTIONS) {
    const text = await call("find", { query: question, ...more });
    sizes.push(Buffer.byteLength(text));
    const hits = text.split(/^(?=\d+\. )/m).slice(1, FIRST + 1);
    let isFound = false;
    for (const hit of hits) {
      const [, ref] = /^\d+\. (\S+)/.exec(hit) as RegExpExecArray;
      isFound ||= hit.includes(answer) || (await call("open", { ref, view: "entry" })).includes(answer);
    }
    if (!isFound) missed.push(question);
  }
  expect(missed.length, missed.join("; ")).toBeLessThanOrEqual(2);
  sizes.sort((a, b) => a - b);
  expect(sizes[sizes.length >> 1]).toBeLessThanOrEqual(2400);
});

test("cursors give every hit of all agents once, in one order, whatever the sizes of pages", async () => {
  const place = temporaryPlace();
  putRemembered(place);
  const { call } = recallHere({ place, now: () => Date.parse("2026-07-01T12:00:00Z") });
  while ((await call("find", { query: "anything" })).includes("; partial: "));
  const orders: string[][] = [];
  for (const limit of [4, 20]) {
    const refs: string[] = [];
    let cursor: string | undefined;
    do {
      const text = await call("find", { query: "database memory file", limit, max_tokens: 6000, cursor });
      refs.push(...[...text.matchAll(/^\d+\. (\w+#\w+) /gm)].map(([, ref]) => ref));
      [, cursor] = /cursor: (\S+)$/.exec(text) ?? [];
    } while (cursor !== undefined);
    orders.push(refs);
  }
  expect(orders[0].length).toBeGreaterThan(12);
  expect(new Set(orders[0]).size).toBe(orders[0].length);
  expect(orders[1]).toEqual(orders[0]);
});
