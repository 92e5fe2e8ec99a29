/** Sessions that a host opened to read only: it changes none of them, whoever holds it. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { commandTable } from "../../../src/handlers/shared/table.ts";
import { examplePlace, ID_OF_CURRENT } from "../../support/example.ts";
import { type HereServer, type Json, serveHere } from "../../support/server.ts";
import { announced, QUIET, said } from "../../support/shared-session.ts";

/** The commands that change the session that their `sessionId` names, or leave it. */
const CHANGING = commandTable.filter(
  ({ effect, namesNext, params }) =>
    ["write", "replace", "close"].includes(effect) && !namesNext && "sessionId" in params.shape,
);

/** Has a reader send every changing command. Returns the names of the failures, or that there was none. */
async function tryAll(reader: HereServer, sessionPath: string, text: (of: unknown) => string): Promise<Json> {
  const outcomes: Json = {};
  for (const { name, example } of CHANGING) {
    const opened = await reader.result("open_session", { sessionPath, readOnly: true });
    expect(opened, name).toMatchObject({ sessionId: ID_OF_CURRENT, readOnly: true });
    const { dryRun: _, ...params } = JSON.parse(text(example.params));
    const { error } = await reader.request(name, { ...params, sessionId: ID_OF_CURRENT });
    outcomes[name] = error === undefined ? "done" : (error.data?.name ?? error.code);
  }
  return outcomes;
}

test("no command changes a session that was opened to be read, though another server holds it, or comes to", async () => {
  const outcomes: Json[] = [];
  for (const comes of ["never", "before", "later"]) {
    const { place, session, text } = examplePlace();
    const hold = async (): Promise<HereServer | undefined> => {
      if (comes === "never") return undefined;
      const holder = serveHere(["--session", session, ...QUIET], { place });
      await holder.result("append", said("held"));
      await announced(session);
      return holder;
    };
    const early = comes === "before" ? await hold() : undefined;
    const reader = serveHere(["--session", join(place.home, "own.jsonl")], { place });
    await reader.result("open_session", { sessionPath: session, readOnly: true });
    await reader.result("get_entries", { sessionId: ID_OF_CURRENT });
    const holder = early ?? (await hold());
    const look = async () => [readFileSync(session, "utf8"), (await holder?.result("get_state"))?.leafId];
    const before = await look();
    outcomes.push(await tryAll(reader, session, text));
    expect(await look(), comes).toEqual(before);
    await holder?.finish();
    const left = readFileSync(session, "utf8");
    expect((await reader.failure("append", { ...said("late"), sessionId: ID_OF_CURRENT })).data.name).toBe("read_only");
    expect(readFileSync(session, "utf8"), comes).toBe(left);
  }
  const [alone, ...held] = outcomes;
  expect(alone).toMatchObject({ append: "read_only", compact_append: "read_only", set_session_name: "read_only" });
  expect(held).toEqual([alone, alone]);
});
