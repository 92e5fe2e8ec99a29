/** Rows of the reliability table as tests, and what they share. */

import { mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, type TestOptions, test } from "vitest";
import { headerText } from "./lines.ts";
import { type HereOptions, type HereServer, type Json, type Place, serveHere, temporaryPlace } from "./server.ts";

/** A row: its id, the fault in a few words, and what is promised, as a test or as the reason why there is none. */
type Case =
  | {
      readonly id: string;
      readonly fault: string;
      readonly run: () => Promise<void> | void;
      /** Its tier, and what it needs. */
      readonly options?: TestOptions;
    }
  | { readonly id: string; readonly fault: string; readonly why: string };

/** A row of docs/reliability.md: what is promised, or why it is not shown. */
interface DocumentedRow {
  readonly id: string;
  readonly fault: string;
  readonly promise?: string;
  readonly why?: string;
}

const DOCUMENT = new URL("../../docs/reliability.md", import.meta.url);

/**
 * Returns the rows of the document's tables, in the order of their ids. A row that names several ids has no case: it
 * says which other tests show them.
 */
export function documentedRows(text = readFileSync(DOCUMENT, "utf8")): DocumentedRow[] {
  const [shown, notShown] = text.split("\n## Not shown\n");
  const rowsOf = (part: string): string[][] => [...part.matchAll(/^\| ([A-Z]\d+) \| (.+?) \| (.+?) \|/gm)];
  return [
    ...rowsOf(shown).map(([, id, fault, promise]) => ({ id, fault, promise })),
    ...rowsOf(notShown).map(([, id, fault, why]) => ({ id, fault, why })),
  ].sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true }));
}

/** Returns the ids of the rows that leave several cases to other tests. */
export function idsLeftToOthers(text = readFileSync(DOCUMENT, "utf8")): string[] {
  return [...text.matchAll(/^\| ([A-Z]\d+(?:, [A-Z]\d+)+) \|/gm)].flatMap(([, ids]) => ids.split(", "));
}

/** Makes a test of each case of a section, and one that there is a case for every row of the document, and no other. */
export function cases(section: string, all: readonly Case[]): void {
  describe(section, () => {
    for (const row of all)
      if ("run" in row) test(`${row.id} ${row.fault}`, row.options ?? {}, row.run);
      else test.skip(`${row.id} ${row.fault}: ${row.why}`);

    test("the document has a row for every case, and there is a case for every row", () => {
      expectDocumented(section, all, documentedRows());
    });
  });
}

/** Throws unless the cases of a section are the rows that the document has of it, with the same words. */
export function expectDocumented(section: string, all: readonly Case[], documented: readonly DocumentedRow[]): void {
  const rows = documented.filter(({ id }) => id.startsWith(section));
  expect(all.map((row) => ({ id: row.id, fault: row.fault, why: "why" in row ? row.why : undefined }))).toEqual(
    rows.map(({ id, fault, why }) => ({ id, fault, why })),
  );
}

export function call(id: unknown, method: string, params?: object): Json {
  return { jsonrpc: "2.0", id, method, ...(params ? { params } : {}) };
}

/** A session file in the place's working directory with these lines, untouched for a while. */
export function sessionFile(
  place: Place,
  lines: readonly string[],
  name = "session.jsonl",
  header = headerText(),
): string {
  return fileOf(place, [header, ...lines].map((line) => `${line}\n`).join(""), name);
}

export function fileOf(place: Place, content: string | Uint8Array, name = "session.jsonl"): string {
  const file = join(place.cwd, name);
  mkdirSync(join(file, ".."), { recursive: true });
  writeFileSync(file, content);
  letRest(file);
  return file;
}

/** Whoever wrote the file did so long ago. */
export function letRest(file: string): void {
  utimesSync(file, new Date("2020-01-01"), new Date("2020-01-01"));
}

/** A server in this process on a file with these lines. */
export function serveLines(
  lines: readonly string[],
  options: HereOptions & { header?: string; args?: string[] } = {},
): { server: HereServer; file: string; place: Place } {
  const { place = temporaryPlace(), header, args = [], ...rest } = options;
  const file = sessionFile(place, lines, "session.jsonl", header);
  return { server: serveHere(["--session", file, ...args], { place, ...rest }), file, place };
}

export function serveContent(content: string | Uint8Array): { server: HereServer; file: string; place: Place } {
  const place = temporaryPlace();
  const file = fileOf(place, content);
  return { server: serveHere(["--session", file], { place }), file, place };
}

export async function idsIn(server: { result: HereServer["result"] }): Promise<string[]> {
  return (await server.result("get_entries")).entries.map(({ id }: Json) => id);
}

/** The texts of the context. */
export async function said(server: { result: HereServer["result"] }, params: object = {}): Promise<string[]> {
  const { messages } = await server.result("get_context", params);
  return messages.map(({ content, summary }: Json) =>
    typeof content === "string" ? content : (summary ?? content.map(({ text }: Json) => text).join("")),
  );
}

export async function damageKinds(server: { result: HereServer["result"] }): Promise<string[]> {
  return (await server.result("get_state")).diagnostics.map(({ kind }: Json) => kind);
}

export function linesIn(file: string): string[] {
  const text = readFileSync(file, "utf8");
  return text.endsWith("\n") ? text.slice(0, -1).split("\n") : text.split("\n");
}
