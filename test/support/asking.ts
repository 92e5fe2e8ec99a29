/** Requests that tests make again and again, each in one line. */

import { readFileSync } from "node:fs";
import { assistant, toolResult, user } from "./drafts.ts";
import { type HereServer, type Json, serveHere, type Wire } from "./server.ts";
import { calls } from "./turns.ts";

/** The name of the failure that a request ends with. */
export async function nameOf(server: Wire, method: string, params?: object): Promise<string> {
  return (await server.failure(method, params)).data.name;
}

/** Appends entries and returns their ids. */
export async function append(server: Wire, ...entries: Json[]): Promise<string[]> {
  return (await server.result("append", { entries })).entryIds;
}

/** A server with a conversation in memory, and the ids of its entries. */
export async function conversation(...entries: Json[]): Promise<{ server: HereServer; ids: string[] }> {
  const server = serveHere(["--no-session"]);
  return { server, ids: entries.length === 0 ? [] : await append(server, ...entries) };
}

/** Another server on a session, at the same place; `path`: by default, of the session of a server that ends first. */
export async function restarted(server: HereServer, args: string[] = [], path?: string): Promise<HereServer> {
  const { sessionFile } = path === undefined ? await server.result("get_state") : { sessionFile: path };
  if (path === undefined) await server.finish();
  return serveHere(["--session", sessionFile, "--events", "none", ...args], { place: server.place });
}

/** The result of a request whose params are this text, so that its bytes are those that are sent. */
export async function resultOfText(server: Wire, method: string, params: string): Promise<Json> {
  server.send(`{"jsonrpc":"2.0","id":"as text","method":"${method}","params":${params}}`);
  const { result, error } = await server.reply("as text");
  if (error) throw new Error(JSON.stringify(error));
  return result;
}

/** The text of the session file of a server. */
export async function fileTextOf(server: Wire): Promise<string> {
  return readFileSync((await server.result("get_state")).sessionFile, "utf8");
}

export const idsOf = (list: readonly Json[]): string[] => list.map(({ id, entryId }) => id ?? entryId);

/** Returns all pages of a command, joined by the name of the member with the items. */
export async function pages(server: Wire, method: string, member: string, params: object = {}): Promise<Json[][]> {
  const found: Json[][] = [];
  let cursor: string | undefined;
  do {
    const page = await server.result(method, { ...params, ...(cursor === undefined ? {} : { cursor }) });
    found.push(page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
}

/** Text of so many tokens by Pi's estimate. */
export const tokens = (count: number): string => "abcd".repeat(count);

/**
 * Returns drafts by a script of turns: `u` and `a` say something, `c` says the text before the colon and calls tools
 * with the ids behind it, `r` is the result of a call; `*10` is a text of ten tokens.
 */
export function talk(script: string): Json[] {
  return script.split(" | ").map((turn) => {
    const [, kind, first = "", rest = ""] = /^(\w) ?(\S*) ?(.*)$/.exec(turn) as unknown as string[];
    const said = `${first} ${rest}`.trim().replace(/^\*(\d+)$/, (_, count) => tokens(Number(count)));
    const [before, ids = ""] = said.split(/ ?: ?/);
    if (kind === "c") return calls(before, ...ids.split(" "));
    if (kind === "r")
      return toolResult(
        first,
        rest.replace(/^\*(\d+)$/, (_, count) => tokens(Number(count))),
      );
    return kind === "u" ? user(said) : assistant(said);
  });
}
