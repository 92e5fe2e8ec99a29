/** Whom hooks ask where several hosts share a session. */

import { describe, expect, test } from "vitest";
import { guestAt, sessionOf, TREE } from "../../support/hosts.ts";
import { type HereServer, type Json, spawnServer } from "../../support/server.ts";
import { held, QUIET, request, said, texts } from "../../support/shared-session.ts";
import { SYSTEM } from "../../support/tiers.ts";
import { type Guest, guestOf } from "./support/false-processes.ts";

/** A session whose holder says something if it does, those who joined it in turn, and the ids of its entries. */
async function shared(ofHolder: Json | undefined, ofGuests: Json[], args = QUIET) {
  const { file, holder, place } = await held(args);
  if (ofHolder) await holder.result("initialize", ofHolder);
  const guests: HereServer[] = [];
  for (const params of ofGuests) guests.push(await guestAt(file, place, params));
  const { entries } = await holder.result("get_entries");
  return { file, holder, place, guests, ids: entries.map(({ id }: Json): string => id) as string[] };
}

test("of a host that registered for none, the holder's is asked, and its veto counts", async () => {
  const { holder, guests, ids } = await shared(TREE, [{}]);
  const [[other], [id]] = [guests, ids];
  const moved = other.request("branch", { entryId: id });
  const question = await holder.next();
  expect(question).toMatchObject({ method: "session_before_tree", params: { preparation: { targetId: id } } });
  // The asked host's own reads do not wait.
  holder.send(request(5, "get_state", { _meta: { hook: question.id } }));
  expect((await holder.reply(5)).result.leafId).not.toBe(id);
  holder.answer(question.id, { cancel: true });
  expect((await moved).result).toMatchObject({ cancelled: true, reason: "hook" });
});

test("of the holder's host that registered for none, those who joined are asked, the first who came first", async () => {
  const { holder, guests, ids } = await shared(undefined, [{}, TREE, TREE]);
  const [, second, third] = guests;
  const moved = holder.request("branch", { entryId: ids[0] });
  second.answer((await second.next()).id, { summary: { summary: "Asked." } });
  expect((await moved).result).toMatchObject({ cancelled: false, summaryEntryId: expect.any(String) });
  expect(third.events).toEqual([]);
});

test("in the place of one that ends, the next is asked, and where there is none nothing is done", SYSTEM, async () => {
  const { file, holder, place } = await held();
  const dying = spawnServer(["--session", file, ...QUIET], "lines", place);
  await dying.result("initialize", TREE);
  await dying.result("append", said("joined"));
  const next = await guestAt(file, place, TREE);
  const { entries } = await holder.result("get_entries");
  const moved = holder.request("branch", { entryId: entries[0].id });
  await dying.next();
  dying.process.kill("SIGKILL");
  next.answer((await next.next()).id, {});
  expect((await moved).result).toMatchObject({ cancelled: false, leafId: entries[0].id });
  const again = holder.request("branch", { entryId: entries[1].id });
  await next.next();
  await next.finish();
  expect((await again).result).toMatchObject({ cancelled: true, reason: "host_gone" });
});

describe("where the holder is killed, the next one", SYSTEM, () => {
  test("does no command about which a host was asked, if no other host is to be asked", async () => {
    const { place, file } = sessionOf("jsonl");
    const holder = spawnServer(["--session", file, ...QUIET], "lines", place);
    await holder.result("initialize", TREE);
    const { leafId } = await holder.result("append", said("held"));
    const guest = await guestAt(file, place);
    const moved = guest.request("branch", { entryId: leafId });
    await holder.next();
    holder.process.kill("SIGKILL");
    expect((await moved).result).toMatchObject({ cancelled: true, reason: "host_gone" });
    // The host that was asked is gone, and its veto with it.
    expect(await guest.result("branch", { entryId: leafId })).toMatchObject({ cancelled: false, leafId });
  });

  test("asks the hosts that the former one asked, as soon as they are back", async () => {
    const { place, file } = sessionOf("jsonl");
    const holder = spawnServer(["--session", file, ...QUIET], "lines", place);
    const { leafId } = await holder.result("append", said("held"));
    const first = await guestAt(file, place);
    const asked = await guestAt(file, place, TREE);
    const moved = first.request("branch", { entryId: leafId });
    await asked.next();
    holder.process.kill("SIGKILL");
    expect(await asked.next()).toMatchObject({ method: "$/cancelRequest" });
    asked.answer((await asked.next()).id, { cancel: true });
    expect((await moved).result).toMatchObject({ cancelled: true, reason: "hook" });
  });
});

test("opening another session is nobody else's business", async () => {
  const hooks = [{ name: "session_before_switch" }, { name: "session_before_fork" }];
  const { holder } = await shared(undefined, [{ capabilities: { hooks } }]);
  expect(await holder.result("new_session")).toMatchObject({ cancelled: false });
});

test("who is asked hears whose leaf is meant, which may be another than its own", async () => {
  const agent = { leaf: "own", head: "mine", clientInfo: { name: "an agent" } };
  const { holder, guests, ids } = await shared(TREE, [agent]);
  const [other] = guests;
  const { leafId, sharedLeafId } = await other.result("get_state");
  expect([leafId, sharedLeafId]).toEqual(ids.slice(-2).reverse());
  const moved = other.request("branch", { entryId: ids[0] });
  const question = await holder.next();
  const client = { id: expect.any(String), name: "an agent", pid: process.pid };
  expect(question.params).toMatchObject({ sessionId: "shared", leafId, head: "mine", client });
  // It reads at its own leaf, or at a given one.
  const _meta = { hook: question.id };
  holder.send(request(5, "get_state", { _meta }), request(6, "get_context", { _meta, leafId }));
  expect((await holder.reply(5)).result).toMatchObject({ leafId: sharedLeafId });
  expect((await holder.reply(6)).result.messages.at(-1).content).toBe("joined");
  holder.answer(question.id, {});
  expect((await moved).result).toMatchObject({ cancelled: false, leafId: ids[0] });
});

test("who joined is asked in the same words, and for its own command without the name of another", async () => {
  const { holder, guests, ids } = await shared(undefined, [TREE]);
  const [asked] = guests;
  await holder.result("initialize", { leaf: "own", head: "editing", clientInfo: { name: "an editor" } });
  const { leafId } = await holder.result("append", said("mine"));
  const moved = holder.request("branch", { entryId: ids[0] });
  const question = await asked.next();
  const client = { id: expect.any(String), name: "an editor", pid: process.pid };
  expect(question.params).toMatchObject({ sessionId: "shared", leafId, head: "editing", client });
  asked.answer(question.id, {});
  await moved;
  const own = await asked.result("get_state");
  asked.send(request(5, "branch", { entryId: ids[0] }));
  const second = await asked.next();
  expect(second.params).toMatchObject({ sessionId: "shared", leafId: own.leafId });
  expect(second.params).not.toHaveProperty("head");
  expect(second.params).not.toHaveProperty("client");
  asked.answer(second.id, {});
  expect((await asked.reply(5)).result).toMatchObject({ cancelled: false });
});

test("who joined and is asked can read at once, also behind writes of its own that wait for its answer", async () => {
  const { holder, guests, ids } = await shared(undefined, [TREE]);
  const [asked] = guests;
  const moved = holder.request("branch", { entryId: ids[0] });
  const question = await asked.next();
  asked.send(
    request(5, "append", said("behind it")),
    request(6, "get_state", { _meta: { hook: question.id } }),
    request(7, "verify_session", { _meta: { hook: question.id } }),
  );
  expect((await asked.reply(6)).result.entryCount).toBe(ids.length);
  expect((await asked.reply(7)).result.ok).toBe(true);
  asked.answer(question.id, {});
  expect((await moved).result).toMatchObject({ cancelled: false });
  expect((await asked.reply(5)).result.entryIds).toHaveLength(1);
});

/** A process that joined, registered for the hook and says nothing any more. */
const stopped = (file: string): Promise<Guest> => guestOf(file, { hooks: ["session_before_tree"] });

const LIMIT = ["--holder-timeout", "60"];

describe("of those who joined, one that is stopped", () => {
  test("is passed over like one that is gone, until it says a word", async () => {
    const { file, holder, place } = await held([...QUIET, ...LIMIT]);
    const { hear } = await stopped(file);
    const next = await guestAt(file, place, TREE);
    const [{ id }] = (await holder.result("get_entries")).entries;
    const moved = holder.request("branch", { entryId: id });
    next.answer((await next.next()).id, {});
    expect((await moved).result).toMatchObject({ cancelled: false, leafId: id });
    expect(await hear('"withdraw":1')).toContain('"ping":true');
    // The next time, it is not waited for at all.
    const again = holder.request("branch", { entryId: null });
    next.answer((await next.next()).id, {});
    expect((await again).result).toMatchObject({ cancelled: false, leafId: null });
    expect((await hear("")).split('"ask"')).toHaveLength(2);
  });

  test("and was asked alone leaves the command undone", async () => {
    const { file, holder } = await held([...QUIET, ...LIMIT]);
    await stopped(file);
    const { entries } = await holder.result("get_entries");
    expect(await holder.result("branch", { entryId: entries[0].id })).toMatchObject({ reason: "host_gone" });
  });

  test("holds up nobody but the host whose command it is asked about", async () => {
    const { file, holder, guests, ids } = await shared(undefined, [{}, { leaf: "own", head: "third" }]);
    const [caller, third] = guests;
    const { hear } = await stopped(file);
    caller.send(request("moves", "branch", { entryId: ids[0] }), request("waits", "append", said("after")));
    await hear('"ask":1');
    expect((await third.result("append", said("third"))).entryIds).toHaveLength(1);
    expect((await holder.result("append", said("holder"))).entryIds).toHaveLength(1);
    expect((await texts(holder)).slice(-2)).toEqual(["third", "holder"]);
  });
});

// The limit is long enough for a server of a busy machine to say so in time.
test("a host that takes its time is waited for while its server says that it lives", SYSTEM, async () => {
  const { holder, guests, ids } = await shared(undefined, [TREE], [...QUIET, "--holder-timeout", "400"]);
  const [asked] = guests;
  const moved = holder.request("branch", { entryId: ids[0] });
  const question = await asked.next();
  await new Promise((resolve) => setTimeout(resolve, 450));
  asked.answer(question.id, {});
  expect((await moved).result).toMatchObject({ cancelled: false, leafId: ids[0] });
});

test("while a host is asked about its own command, the others' are done, and a move from where the leaf was is not", async () => {
  const { file, holder, place } = await held();
  await holder.result("initialize", TREE);
  const other = await guestAt(file, place);
  const [{ id }] = (await holder.result("get_entries")).entries;
  holder.send(request(5, "branch", { entryId: id }), request(6, "append", said("behind")));
  const question = await holder.next();
  const { leafId } = await other.result("append", said("meanwhile"));
  holder.answer(question.id, {});
  expect((await holder.reply(5)).error.data).toMatchObject({ name: "content_modified", leafId });
  expect((await holder.reply(6)).result.entryIds).toHaveLength(1);
  expect((await texts(other)).slice(-2)).toEqual(["meanwhile", "behind"]);
});
