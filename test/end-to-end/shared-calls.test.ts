/** What a server asks the holder of a session, and what becomes of it when that is gone or silent. */

import { expect, test, vi } from "vitest";
import { expectNumbered, guestAt, heldAlone, TREE, told } from "../support/hosts.ts";
import type { Json } from "../support/server.ts";
import { announced, held, joined, request, said, stopClocks, texts, turn, turns } from "../support/shared-session.ts";
import { SYSTEM } from "../support/tiers.ts";

/** Lets no time pass but what a test lets pass, and lets it pass in steps in which sockets are read. */
function steppedTime(): (milliseconds: number) => Promise<void> {
  stopClocks("setInterval", "performance");
  return async (milliseconds) => {
    for (let passed = 0; passed < milliseconds; passed += 1000) {
      vi.advanceTimersByTime(1000);
      await turns(20);
    }
  };
}

test("a holder that waits for its host is not given up, however many calls wait for it", SYSTEM, async () => {
  const pass = steppedTime();
  const { file, holder, place } = await held();
  await holder.result("initialize", TREE);
  const { entries } = await holder.result("get_entries");
  const other = await guestAt(file, place);
  holder.ask(77, "branch", { entryId: entries[0].id });
  const question = await holder.next();
  // More than a holder is asked at once.
  const count = 600;
  other.send(...Array.from({ length: count }, (_, n) => request(`m${n}`, "append", said(`text ${n}`))));
  await pass(60_000);
  holder.answer(question.id, { cancel: true });
  for (let n = 0; n < count; n++) expect(await other.reply(`m${n}`)).toHaveProperty("result");
  expect((await texts(holder)).slice(-count)).toEqual(Array.from({ length: count }, (_, n) => `text ${n}`));
});

test("a holder that says nothing is given up, and what waited for it is not known", async () => {
  const { other, asked, end } = await joined();
  await other.result("get_state");
  const pass = steppedTime();
  other.send(...Array.from({ length: 600 }, (_, n) => request(`m${n}`, "append", said(`text ${n}`))));
  await asked("text 499");
  await pass(40_000);
  for (let n = 0; n < 600; n++)
    expect((await other.reply(`m${n}`)).error.data).toMatchObject({ name: "outcome_unknown", retryable: true });
  await end();
});

test("a call that the holder was not asked yet is cancelled without it", SYSTEM, async () => {
  const { other, asked, end, heard } = await joined();
  await other.result("get_state");
  other.send(...Array.from({ length: 502 }, (_, n) => request(`m${n}`, "append", said(`text ${n}.`))));
  await asked("text 499.");
  other.send({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: "m500" } });
  await turn();
  await end();
  expect((await other.reply("m499")).result.entryIds).toHaveLength(1);
  expect((await other.reply("m500")).error.data.name).toBe("cancelled");
  expect((await other.reply("m501")).result.entryIds).toHaveLength(1);
  expect(heard()).not.toContain("text 500.");
  expect(await texts(other)).not.toContain("text 500.");
});

test("a branch that was asked of a holder that died is not refused for its own doing", async () => {
  const { other, asked, end, succeed, say, leafId } = await joined();
  const [{ id }] = (await other.result("get_entries")).entries;
  const data = { name: "content_modified", leafId: id };
  const refused = { code: -32801, sentence: "no", name: "content_modified", data };
  const branch = async (number: number): Promise<Json> => {
    const moved = other.request("branch", { entryId: id, expectedLeafId: leafId });
    await asked('"branch"');
    if (number === 2) await succeed();
    await asked('"branch"');
    say({ reply: number, error: refused });
    return (await moved).error.data;
  };
  expect(await branch(1)).toMatchObject({ name: "content_modified" });
  expect(await branch(2)).toMatchObject({ name: "outcome_unknown", retryable: true, leafId: id });
  await end();
});

test("events that a holder gives up are counted in their place, and no number is missing", async () => {
  const { other, asked, end, say, leafId } = await joined();
  await other.result("get_state");
  const write = other.request("append", said("asked"));
  await asked("asked");
  const named = (n: number): Json => ({ event: "session_info_changed", leafId, payload: { name: `name ${n}` } });
  say(named(1), named(2), { lost: 5, leafId, lastId: leafId }, named(3));
  say({ reply: 1, leafId, result: { entryIds: ["x"], leafId } }, named(4), { lost: 1, leafId, lastId: leafId });
  await write;
  await other.result("get_state");
  expectNumbered(other);
  expect(told(other, "events_lost").map(({ from, to }) => to - from + 1)).toEqual([5, 1]);
  await end();
});

test("a server that takes the lock while it waits to be let in does not join itself", async () => {
  const { file, holder, open } = await heldAlone();
  stopClocks("setTimeout");
  const other = open();
  await other.result("initialize");
  // It looks for the holder's entrance again and again, now every 50 ms.
  for (let n = 0; n < 20; n++) {
    vi.advanceTimersByTime(5);
    await turns(5);
  }
  await holder.finish();
  await other.result("append", said("first"));
  await announced(file);
  vi.advanceTimersByTime(50);
  await turns(100);
  expect((await other.result("list_clients")).clients).toHaveLength(1);
  expect((await other.result("append", said("second"))).entryIds).toHaveLength(1);
});
