/** Clients over vscode-jsonrpc: an editor's own connection, unmodified, and the typed client. */

import { spawn } from "node:child_process";
import { PassThrough } from "node:stream";
import { describe, expect, expectTypeOf, onTestFinished, test } from "vitest";
import {
  createMessageConnection,
  type MessageConnection,
  ResponseError,
  StreamMessageReader,
  StreamMessageWriter,
} from "vscode-jsonrpc/node";
import {
  connect,
  type EventOf,
  type ParamsOf,
  type ResultOf,
  type SpawnedClient,
  spawnServer,
} from "../../src/server/client.ts";
import { PROGRAM } from "../support/build.ts";
import { assistant, user } from "../support/drafts.ts";
import { type Json, programEnvironment, serveHere, temporaryPlace } from "../support/server.ts";

describe("an editor's connection", () => {
  function editor(args: string[]): { connection: MessageConnection; exit: Promise<number | null> } {
    const place = temporaryPlace();
    const child = spawn(process.execPath, [PROGRAM, ...args], {
      cwd: place.cwd,
      env: programEnvironment(place),
      stdio: ["pipe", "pipe", "inherit"],
    });
    const connection = createMessageConnection(
      new StreamMessageReader(child.stdout),
      new StreamMessageWriter(child.stdin),
    );
    onTestFinished(() => {
      connection.dispose();
      child.kill("SIGKILL");
    });
    return { connection, exit: new Promise((resolve) => child.on("exit", resolve)) };
  }

  test.each([[[]], [["--stdio"]], [["--framing", "headers", "--dialect", "jsonrpc"]]])(
    "drives the server: requests, failures, events, notifications, the end; with %j",
    async (args) => {
      const { connection, exit } = editor(args);
      const heard: string[] = [];
      const appended = new Promise<Json>((resolve) => connection.onNotification("session_append", resolve));
      connection.onNotification((method) => void heard.push(method));
      connection.listen();
      const { capabilities } = await connection.sendRequest<Json>("initialize", { clientInfo: { name: "editor" } });
      expect(capabilities.commands).toContain("get_state");
      await connection.sendNotification("initialized", {});
      const ids = Array.from({ length: 100 }, (_, i) => `n${i}`);
      const replies = await Promise.all(
        ids.map((id) => connection.sendRequest<Json>("append", { entries: [user(`é 😀 ${id}`, { id })] })),
      );
      expect(replies.map(({ leafId }) => leafId)).toEqual(ids);
      expect(await appended).toMatchObject({ entryIds: ["n0"], origin: "self" });
      expect((await connection.sendRequest<Json>("get_messages")).messages).toHaveLength(100);
      expect(await connection.sendRequest<Json>("get_state")).toMatchObject({ entryCount: 100, leafId: "n99" });
      const failure = await connection.sendRequest("fork", { entryId: "nope" }).catch((error) => error);
      expect(failure).toBeInstanceOf(ResponseError);
      expect(failure).toMatchObject({ code: -32002, data: { name: "entry_not_found", retryable: false } });
      await expect(connection.sendRequest("no_such_command")).rejects.toMatchObject({ code: -32601 });
      await connection.sendRequest("new_session");
      await expect(connection.sendRequest("shutdown")).resolves.toBeNull();
      await connection.sendNotification("exit");
      expect(await exit).toBe(0);
      // Those with a handler of their own did not come here.
      expect(heard).toEqual(["session_start", "session_shutdown", "session_start", "session_shutdown"]);
    },
  );
});

describe("the typed client", () => {
  function spawned(...args: string[]): SpawnedClient {
    const place = temporaryPlace();
    const env = programEnvironment(place);
    const client = spawnServer({ program: PROGRAM, args, cwd: place.cwd, env });
    onTestFinished(() => client.close());
    return client;
  }

  test("asks and is answered, hears events, and ends the server", async () => {
    const client = spawned("--no-session");
    const events: unknown[] = [];
    client.onEvent("session_start", ({ reason, seq }) => events.push([reason, seq]));
    const stop = client.onEvent("session_append", ({ entryIds, leafId }) => events.push([entryIds, leafId]));
    const { entryIds } = await client.request("append", {
      entries: [user("one", { id: "a" }), assistant("two", { id: "b" })],
    });
    expect(entryIds).toEqual(["a", "b"]);
    await client.request("get_state");
    stop();
    await client.request("set_session_name", { name: "n", expectedLeafId: "b" });
    expect((await client.request("get_state")).sessionName).toBe("n");
    expect(events).toEqual([
      ["startup", 1],
      [["a", "b"], "b"],
    ]);
    await expect(client.request("fork", { entryId: "nope" })).rejects.toMatchObject({
      code: -32002,
      data: { name: "entry_not_found" },
    });
    await client.close();
    expect(await client.exit).toBe(0);
  });

  test("can be closed more than once, and after the server ended", async () => {
    const client = spawned("--no-session");
    await client.request("get_state");
    await Promise.all([client.close(), client.close()]);
    await client.close();
    await expect(client.request("get_state")).rejects.toThrow();
  });

  test("rejects what nobody will answer any more", async () => {
    const output = new PassThrough();
    const client = connect(output, new PassThrough());
    const asked = client.request("get_state");
    output.destroy();
    await expect(asked).rejects.toThrow();
    await client.close();
  });

  test("speaks over any streams", async () => {
    const server = serveHere(["--no-session"], { framing: "headers" });
    server.output.removeAllListeners("data");
    const client = connect(server.output, server.input);
    expect((await client.request("get_tree", { format: "flat" })).nodes).toEqual([]);
    await client.close();
    expect(await server.done).toBe(0);
  });

  test("knows the names, params and results of all commands and the payloads of all events", () => {
    expectTypeOf<ResultOf<"append">>().toEqualTypeOf<{
      entryIds: string[];
      leafId: string | null;
      warnings?: { path: string; message: string }[] | undefined;
    }>();
    expectTypeOf<ParamsOf<"fork">>().toHaveProperty("entryId").toEqualTypeOf<string>();
    expectTypeOf<ParamsOf<"fork">["position"]>().toEqualTypeOf<"before" | "at" | undefined>();
    expectTypeOf<ParamsOf<"fork">["expectedLeafId"]>().toEqualTypeOf<string | null | undefined>();
    expectTypeOf<ParamsOf<"branch">["entryId"]>().toEqualTypeOf<string | null>();
    expectTypeOf<ResultOf<"get_state">["leafId"]>().toEqualTypeOf<string | null>();
    expectTypeOf<ResultOf<"get_entries">["entries"][number]["id"]>().toEqualTypeOf<string>();
    expectTypeOf<ResultOf<"prompt">>().toEqualTypeOf<never>();
    expectTypeOf<EventOf<"session_tree">["oldLeafId"]>().toEqualTypeOf<string | null>();
    expectTypeOf<EventOf<"session_start">["seq"]>().toEqualTypeOf<number>();
    const client = connect(new PassThrough(), new PassThrough());
    // @ts-expect-error there is no such command
    void client.request("no_such_command").catch(() => {});
    // @ts-expect-error a member of a wrong type
    void client.request("set_label", { entryId: 5, label: null }).catch(() => {});
    // @ts-expect-error a member is missing
    void client.request("fork").catch(() => {});
    client.connection.dispose();
  });
});
