/** Undo and redo over the wire: each kind of operation, what refuses, and what is said. */

import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { archiveFolder, folderName } from "../../src/storage/fs/paths.ts";
import {
  CWD,
  contentsOf,
  listed,
  put,
  putSession,
  read,
  rootOf,
  serveLibrary,
  sessionId,
} from "../support/lifecycle.ts";
import { chain, id, userText } from "../support/lines.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";

const one = { sessionId: sessionId(1) };

async function operations(server: HereServer, params: object = {}): Promise<Json[]> {
  return (await server.result("list_operations", params)).operations;
}

async function kinds(server: HereServer): Promise<string[]> {
  return (await operations(server)).map(({ kind }) => kind);
}

describe.each(["jsonl", "v2"] as const)("in a session of %s", (store) => {
  async function open(): Promise<{ server: HereServer; ids: string[] }> {
    const server = serveHere(["--events", "none", "--store", store]);
    const { entryIds } = await server.result("append", {
      entries: ["one", "two", "three"].map((content) => ({ type: "message", message: { role: "user", content } })),
    });
    return { server, ids: entryIds };
  }

  test("the leaf, the name and labels go back one by one, and come again", async () => {
    const { server, ids } = await open();
    const state = async (): Promise<Json> => {
      const { leafId } = await server.result("get_state");
      const { sessionName } = await server.result("get_state");
      const { labels = null } = await server.result("get_tree", {}).then(({ nodes }: Json) => ({
        labels: nodes?.flatMap((node: Json) => (node.label ? [[node.id, node.label]] : [])),
      }));
      return { leafId, sessionName, labels };
    };
    const states = [await state()];
    for (const [method, params] of [
      ["branch", { entryId: ids[0] }],
      ["set_session_name", { name: "first" }],
      ["set_label", { entryId: ids[1], label: "here" }],
      ["branch", { entryId: null }],
      ["set_session_name", { name: "second" }],
      ["set_label", { entryId: ids[1] }],
    ] as const) {
      await server.result(method, params);
      states.push(await state());
    }
    expect(await kinds(server)).toEqual(["label", "rename", "branch", "label", "rename", "branch"]);
    for (const wanted of states.slice(0, -1).reverse()) {
      await server.result("undo");
      expect(await state()).toEqual(wanted);
    }
    expect((await server.failure("undo")).data.name).toBe("operation_not_found");
    for (const wanted of states.slice(1)) {
      await server.result("redo");
      expect(await state()).toEqual(wanted);
    }
    expect((await server.failure("redo")).data.name).toBe("operation_not_found");
  });
});
