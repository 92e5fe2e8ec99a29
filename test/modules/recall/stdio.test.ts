/**
 * The built program over stdio: with the clients of both SDKs, as a person pipes to it, and as twenty agents start it.
 *
 * @module-tag system
 */

import { readFileSync } from "node:fs";
import { Client as ModernClient } from "@modelcontextprotocol/client";
import { StdioClientTransport as ModernTransport } from "@modelcontextprotocol/client/stdio";
import { Client as LegacyClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as LegacyTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { expect, onTestFinished, test } from "vitest";
import { PROGRAM } from "../../support/build.ts";
import { assistant, user } from "../../support/drafts.ts";
import { chain, put } from "../../support/searching.ts";
import {
  call,
  type Json,
  type Place,
  programEnvironment,
  runProgram,
  type SpawnedServer,
  spawnServer,
  temporaryPlace,
} from "../../support/server.ts";
import { SWEEP } from "../../support/tiers.ts";
import { MODERN_META } from "./support/recall.ts";

function placed(): Place {
  const place = temporaryPlace();
  put(place, "01aaaaaa-1111", chain(user("Which cache for profiles?"), assistant("Redis.")));
  return place;
}

const launch = (place: Place) => ({
  command: process.execPath,
  args: [PROGRAM, "mcp"],
  cwd: place.cwd,
  env: programEnvironment(place) as Record<string, string>,
});

interface AnyClient {
  listTools(): Promise<{ readonly tools: readonly { readonly name: string }[] }>;
  callTool(params: { name: string; arguments: Record<string, unknown> }): Promise<unknown>;
  getInstructions(): string | undefined;
  close(): Promise<void>;
}

async function requireServed(client: AnyClient): Promise<void> {
  onTestFinished(() => client.close());
  expect(client.getInstructions()).toMatch(/^Search past coding-agent sessions/);
  const { tools } = await client.listTools();
  expect(tools.map(({ name }) => name)).toContain("find");
  const found = (await client.callTool({ name: "find", arguments: { query: "which cache" } })) as Json;
  const [, ref] = /1\. (\w+#\w+)/.exec(found.content[0].text) as RegExpExecArray;
  const opened = (await client.callTool({ name: "open", arguments: { ref, view: "context" } })) as Json;
  expect(opened.content[0].text).toContain("Which cache for profiles?");
}

test.each(["auto", "legacy"] as const)("the second SDK's client is served, %s", async (mode) => {
  const client = new ModernClient({ name: "test", version: "1" }, { versionNegotiation: { mode } });
  await client.connect(new ModernTransport(launch(placed())));
  await requireServed(client as unknown as AnyClient);
});

test("the first SDK's client is served", async () => {
  const client = new LegacyClient({ name: "test", version: "1" });
  await client.connect(new LegacyTransport(launch(placed())));
  await requireServed(client as unknown as AnyClient);
});

/** Asks each server until its answer is whole. Returns the first lines of these answers. */
async function askUntilWhole(servers: readonly SpawnedServer[]): Promise<string[]> {
  const params = { name: "find", arguments: { query: "marker" }, _meta: MODERN_META };
  return Promise.all(
    servers.map(async (server) => {
      for (let id = 1; ; id++) {
        server.write(`${JSON.stringify(call(id, "tools/call", params))}\n`);
        const { result } = await server.next();
        expect(result.isError).toBeUndefined();
        const [head] = result.content[0].text.split("\n");
        if (!head.includes("; partial: ")) return head;
      }
    }),
  );
}

test("servers at once on one catalog all answer in full, and one of them builds it", SWEEP, async () => {
  const place = temporaryPlace();
  for (let n = 0; n < 60; n++) {
    const talk = Array.from({ length: 20 }, (_, at) => assistant(`${"Done with it. ".repeat(200)} ${n * at}`));
    put(place, `01bbbb${n + 10}-1111`, chain(user(`marker ${n}`), ...talk));
  }
  const servers = Array.from({ length: 8 }, () => spawnServer(["mcp"], "lines", place));
  const heads = await askUntilWhole(servers);
  expect(heads).toEqual(heads.map(() => expect.stringMatching(/^60 sessions match scope; all read/)));
  // A server that builds writes megabytes, one that reads its messages and a few rows. Only Linux counts them.
  if (process.platform === "linux") {
    const written = servers.map(({ process: { pid } }) => readFileSync(`/proc/${pid}/io`, "utf8"));
    const bytes = written.map((io) => Number(/wchar: (\d+)/.exec(io)?.[1])).sort((a, b) => b - a);
    expect(bytes[1], bytes.join(" ")).toBeLessThan(bytes[0] / 2);
  }
  for (const server of servers) {
    expect((await server.finish()).status).toBe(0);
    expect(server.stderr).toBe("");
  }
});

test("mcp install prints a registration for each client, and the verbs of recall the same texts", async () => {
  const place = placed();
  for (const client of ["claude", "codex", "pi", "cursor", "vscode", "zed", "gemini", "opencode"]) {
    const { stdout, status } = await runProgram("", ["mcp", "install", client, "--exclude", "/home/me/private"], place);
    expect([status, stdout]).toEqual([
      0,
      expect.stringMatching(/pi-session-server[\s\S]*mcp[\s\S]*\/home\/me\/private/),
    ]);
  }
  expect((await runProgram("", ["mcp", "install", "emacs"], place)).status).toBe(2);
  const { stdout } = await runProgram("", ["recall", "find", "which", "cache", "--limit", "1"], place);
  expect(stdout).toMatch(/^1 session matches scope[\s\S]*1\. 01aaaaaa#/);
  expect((await runProgram("", ["recall", "open", "01aaaaaa"], place)).stdout).toContain("Redis.");
  expect((await runProgram("", ["recall", "find", "--exclude", "/home/me", "cache"], place)).stdout).toContain(
    "Nothing was found",
  );
});
