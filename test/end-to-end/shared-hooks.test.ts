/** Whom hooks ask where several hosts share a session. */

import { expect, test } from "vitest";
import { type HereServer, type Json, serveHere, spawnServer } from "../support/server.ts";
import { held, QUIET, request, said } from "../support/shared-session.ts";

const TREE = { capabilities: { hooks: [{ name: "session_before_tree" }] } };

async function guest(file: string, place: HereServer["place"], hooks: Json = {}): Promise<HereServer> {
  const server = serveHere(["--session", file, ...QUIET], { place });
  await server.result("initialize", hooks);
  await server.result("append", said("joined"));
  return server;
}

const answer = (server: HereServer, { id }: Json, result: Json): void => server.send({ jsonrpc: "2.0", id, result });

test("of a host that registered for none, the holder's is asked, and its veto counts", async () => {
  const { file, holder, place } = await held();
  await holder.result("initialize", TREE);
  const other = await guest(file, place);
  const [{ id }] = (await other.result("get_entries")).entries;
  const moved = other.request("branch", { entryId: id });
  const question = await holder.next();
  expect(question).toMatchObject({ method: "session_before_tree", params: { preparation: { targetId: id } } });
  // What the asked host reads meanwhile does not wait.
  holder.send(request(5, "get_state", { _meta: { hook: question.id } }));
  expect((await holder.reply(5)).result.leafId).not.toBe(id);
  answer(holder, question, { cancel: true });
  expect((await moved).result).toMatchObject({ cancelled: true, reason: "hook" });
});

test("of the holder's host that registered for none, those who joined are asked, the first who came first", async () => {
  const { file, holder, place } = await held();
  await guest(file, place);
  const second = await guest(file, place, TREE);
  const third = await guest(file, place, TREE);
  const [{ id }] = (await holder.result("get_entries")).entries;
  const moved = holder.request("branch", { entryId: id });
  answer(second, await second.next(), { summary: { summary: "Asked." } });
  expect((await moved).result).toMatchObject({ cancelled: false, summaryEntryId: expect.any(String) });
  expect(third.events).toEqual([]);
});

test("in the place of one that ends, the next is asked, and where there is none nothing is done", async () => {
  const { file, holder, place } = await held();
  const dying = spawnServer(["--session", file, ...QUIET], "lines", place);
  await dying.result("initialize", TREE);
  await dying.result("append", said("joined"));
  const next = await guest(file, place, TREE);
  const { entries } = await holder.result("get_entries");
  const moved = holder.request("branch", { entryId: entries[0].id });
  await dying.next();
  dying.process.kill("SIGKILL");
  answer(next, await next.next(), {});
  expect((await moved).result).toMatchObject({ cancelled: false, leafId: entries[0].id });
  const again = holder.request("branch", { entryId: entries[1].id });
  await next.next();
  await next.finish();
  expect((await again).result).toMatchObject({ cancelled: true, reason: "host_gone" });
});

test("opening another session is nobody else's business", async () => {
  const { file, holder, place } = await held();
  await guest(file, place, {
    capabilities: { hooks: [{ name: "session_before_switch" }, { name: "session_before_fork" }] },
  });
  expect(await holder.result("new_session")).toMatchObject({ cancelled: false });
});
