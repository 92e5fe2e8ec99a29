/** The examples of the events of shared sessions, in protocol.md, are what a server sends. */

import { expect, test } from "vitest";
import { makeEventExample } from "../../../scripts/reference-examples.ts";
import { user } from "../../support/drafts.ts";
import {
  call,
  frame,
  type HereServer,
  type Json,
  type Place,
  serveHere,
  temporaryPlace,
} from "../../support/server.ts";
import { attachmentsWith } from "./support/attaching.ts";

/**
 * A server that has the lock of a session. In its place the test lets others join: it sends them events that are lost
 * and of a client that comes and goes, and when they make a request it ends the server.
 */
async function badHolder(place: Place): Promise<{ holder: HereServer; file: string }> {
  const holder = serveHere(["--events", "none", "--attach", "off"], { place });
  const { entryIds } = await holder.result("append", { entries: [user("Held")] });
  const { sessionFile: file } = await holder.result("get_state");
  const [leafId] = entryIds;
  const entrance = attachmentsWith({ temporary: place.home }).open(file, (stream) => {
    stream.once("data", () => {
      const attached = { epoch: 1, client: "a holder", pid: process.pid };
      const client = { id: "another", name: "another", pid: process.pid };
      const came = { event: "client_joined", payload: { client } };
      const went = { event: "client_left", payload: { client, reason: "left" } };
      const lost = { lost: 3, leafId, lastId: leafId };
      stream.write(frame("headers", { attached, leafId, lastId: leafId }, lost, came, went));
      stream.once("data", async () => {
        entrance?.close();
        await holder.finish();
        stream.end();
      });
    });
  });
  return { holder, file };
}

const nameOf = ({ method, type }: Json): string => String(method ?? type);

/** Returns the members of the payload of an event in their order. */
function membersOf({ method: _m, type: _t, jsonrpc: _j, params, ...rest }: Json): string[] {
  return Object.keys(params ?? rest).filter((name) => name !== "seq");
}

test.each(["jsonrpc", "pi"] as const)("the examples of events have the members of %s", async (dialect) => {
  const place = temporaryPlace();
  const server = serveHere(["--dialect", dialect], { place });
  const { holder, file } = await badHolder(place);
  const events: Json[] = [];
  const run = async (name: string, params: object = {}): Promise<void> => {
    server.send(dialect === "pi" ? { id: name, type: name, ...params } : call(name, name, params));
    for (;;) {
      const message = await server.next();
      if (message.id === name) return;
      events.push(message);
    }
  };
  await run("switch_session", { sessionPath: file });
  await run("append", { entries: [user("Shared")] });
  expect(await holder.done).toBe(0);
  await run("get_state");
  for (const name of ["client_joined", "client_left", "events_lost", "session_owner_changed"] as const) {
    const example = JSON.parse(makeEventExample(name)[dialect][0]);
    expect(events.filter((event) => nameOf(event) === name).map(membersOf), name).toContainEqual(membersOf(example));
  }
});
