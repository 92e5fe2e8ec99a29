/**
 * An editor's own connection over vscode-jsonrpc, unmodified.
 *
 * @module-tag system
 */

import { spawn } from "node:child_process";
import { expect, onTestFinished, test } from "vitest";
import {
  createMessageConnection,
  type MessageConnection,
  ResponseError,
  StreamMessageReader,
  StreamMessageWriter,
} from "vscode-jsonrpc/node";
import { PROGRAM } from "../support/build.ts";
import { user } from "../support/drafts.ts";
import { type Json, programEnvironment, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

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

const OPTIONS = ["", "--stdio", "--framing headers --dialect jsonrpc"];

acrossTiers(test, OPTIONS)("an editor's connection drives a server with %j", async (args) => {
  const { connection, exit } = editor(args === "" ? [] : args.split(" "));
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
});
