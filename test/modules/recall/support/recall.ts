/** A conversation over the Model Context Protocol with the module, in this process, on sessions of a test's own. */

import { realpathSync } from "node:fs";
import { onTestFinished } from "vitest";
import { parseArguments } from "../../../../src/cli/options.ts";
import { Wire } from "../../../../src/cli/wire.ts";
import { Library } from "../../../../src/modules/recall/library.ts";
import { McpConversation } from "../../../../src/modules/recall/protocol.ts";
import { realDisk } from "../../../../src/storage/fs/disk.ts";
import { realEnv } from "../../../../src/storage/system-env.ts";
import { type Json, type Place, temporaryPlace } from "../../../support/server.ts";

export const MODERN_META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
};

export interface RecallOptions {
  readonly place?: Place;
  readonly args?: readonly string[];
  readonly excluded?: readonly string[];
  readonly redacts?: boolean;
  readonly now?: () => number;
  readonly cwd?: string;
  readonly ancestors?: readonly number[];
  /** Called before each command. */
  readonly asked?: (command: string, params: Json) => unknown;
}

/** Makes the module's world over a server in this process. */
export function recallHere(options: RecallOptions = {}) {
  const { place = temporaryPlace(), args = [], excluded = [], redacts = true, ancestors = [] } = options;
  const words = ["--events=none", "--framing=lines", "--dialect=jsonrpc", "--read-only", "--attach=off", ...args];
  const wire = new Wire(parseArguments(words), {
    env: realEnv,
    disk: realDisk,
    variables: place.variables,
    cwd: place.cwd,
    version: "0.0.0-test",
    printError: () => {},
    settingsFile: () => undefined,
  });
  onTestFinished(() => wire.end());
  const world = {
    async ask(command: string, params: Json) {
      await options.asked?.(command, params);
      return wire.ask(command, params);
    },
    now: options.now ?? (() => Date.now()),
    cwd: options.cwd ?? place.cwd,
    home: place.home,
    excluded: [...excluded],
    realPath(path: string): string {
      try {
        return realpathSync(path);
      } catch {
        return path;
      }
    },
    redacts,
    ancestors: () => ancestors,
  };
  const notices: Json[] = [];
  const conversation = new McpConversation(new Library(world), "0.0.0-test", (message) => notices.push(message));
  let ids = 0;
  const request = (method: string, params: Json = {}): Promise<Json> =>
    conversation.take({
      jsonrpc: "2.0",
      id: ++ids,
      method,
      params: { ...params, _meta: { ...MODERN_META, ...params._meta } },
    });
  return {
    place,
    world,
    conversation,
    notices,
    request,
    /** Returns the text of a tool's answer, which may be a mistake's. */
    async call(name: string, given: Json = {}): Promise<string> {
      const { result, error } = await request("tools/call", { name, arguments: given });
      if (error) throw new Error(JSON.stringify(error));
      return result.content[0].text;
    },
  };
}
