/**
 * Pi's clients and the typed client on a session that several share, through the death of its holder.
 *
 * @module-tag system
 */

import { expect, onTestFinished, test } from "vitest";
import { type SpawnedClient, spawnServer as spawnClient } from "../../../src/client/index.ts";
import { PROGRAM } from "../../support/build.ts";
import { user } from "../../support/drafts.ts";
import { type Server, STORES, sessionOf } from "../../support/hosts.ts";
import { type Json, programEnvironment } from "../../support/server.ts";
import { said, turn } from "../../support/shared-session.ts";
import { acrossTiers } from "../../support/tiers.ts";

acrossTiers(test, STORES)(
  "two of Pi's clients share a session of %s, and one goes on when the other's server is killed",
  async (store) => {
    const { file, open, spawn } = sessionOf(store);
    const args = ["--mode", "rpc", "--events", "all"];
    const first = spawn(args);
    expect(await first.command("append", said("from the first"))).toMatchObject({ success: true });
    const second = open(args);
    expect(await second.command("append", said("from the second"))).toMatchObject({ success: true });
    const textsOf = async (client: Server): Promise<string[]> =>
      (await client.command("get_messages")).data.messages.map(({ content }: Json) => content);
    while ((await textsOf(first)).length < 2) await turn();
    for (const client of [first, second]) {
      expect(await textsOf(client)).toEqual(["from the first", "from the second"]);
      expect((await client.command("get_state")).data).toMatchObject({ messageCount: 2, sessionFile: file });
    }
    const peer = first.events.find(({ type, origin }) => type === "session_append" && origin === "peer");
    const { clients } = (await second.command("list_clients")).data;
    expect(peer.client).toEqual({ id: clients[0].id, name: null, pid: process.pid });
    expect(clients.map(({ pid, isHolder }: Json) => [pid, isHolder])).toEqual([
      [process.pid, false],
      [first.process.pid, true],
    ]);
    first.process.kill("SIGKILL");
    expect(await second.command("append", said("after"))).toMatchObject({ success: true });
    expect(await textsOf(second)).toEqual(["from the first", "from the second", "after"]);
    const third = open(args);
    expect(await third.command("set_session_name", { name: "three" })).toMatchObject({ success: true });
    while ((await second.command("get_state")).data.sessionName !== "three") await turn();
    expect(second.events.map(({ type }) => type)).toContain("session_owner_changed");
  },
);

test("the typed client goes on when the holder of its session is killed, and its own server lives", async () => {
  const { file, place, spawn } = sessionOf("jsonl");
  const holder = spawn([]);
  await holder.result("append", said("held"));
  const client: SpawnedClient = await spawnClient({
    program: PROGRAM,
    cwd: place.cwd,
    env: programEnvironment(place),
    args: ["--session", file],
  });
  onTestFinished(() => client.close());
  const heard: string[] = [];
  client.on("session_owner_changed", ({ isSelf }) => heard.push(`owner ${isSelf}`));
  client.on("client_left", ({ client: { pid }, reason }) => heard.push(`${pid === holder.process.pid} ${reason}`));
  await client.request("append", { entries: [user("joined")] });
  const { pid } = client;
  const writes = Array.from({ length: 20 }, (_, n) => client.request("append", { entries: [user(`text ${n}`)] }));
  holder.process.kill("SIGKILL");
  const ids = (await Promise.all(writes)).flatMap(({ entryIds }) => entryIds);
  const { entries } = await client.request("get_entries");
  expect(entries.slice(2).map(({ id }) => id)).toEqual(ids);
  expect(client.pid).toBe(pid);
  while (heard.length < 2) await client.request("get_state");
  expect(heard).toEqual(["true died", "owner true"]);
  expect((await client.request("list_clients")).clients).toMatchObject([{ pid, isHolder: true, isSelf: true }]);
});
