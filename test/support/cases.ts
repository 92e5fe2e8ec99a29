/** Session files of tests, servers on them, and the damage that these report. */

import { mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { headerText } from "./lines.ts";
import { type HereOptions, type HereServer, type Json, type Place, serveHere, temporaryPlace } from "./server.ts";

export { call } from "./server.ts";

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

/** Makes a file's last change lie long ago. */
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

export function linesIn(file: string): string[] {
  const text = readFileSync(file, "utf8");
  return text.endsWith("\n") ? text.slice(0, -1).split("\n") : text.split("\n");
}
