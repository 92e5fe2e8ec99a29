/** A build without the module with agents. */

import { expect, test } from "vitest";
import { SettingsError } from "../../src/server/settings.ts";
import { serveHere } from "../support/server.ts";

const modules = {};

test.each([
  [["--dialect", "acp"], "Leave out --dialect acp."],
  [["--dialect", "acp", "--agent", "some-agent"], "Leave out --agent."],
  [["--mode", "rpc", "--agent", "some-agent"], "Leave out --agent."],
])("refuses to start with %j, and says why", (args, advice) => {
  expect(() => serveHere(args, { modules })).toThrow(new SettingsError(`This build has no agents. ${advice}`));
});

test("an editor is refused with a sentence, and other hosts are served after it", async () => {
  const server = serveHere([], { modules });
  server.send({
    jsonrpc: "2.0",
    id: "e",
    method: "initialize",
    params: { protocolVersion: 1, clientCapabilities: {} },
  });
  const refusal = await server.next();
  expect(refusal).toMatchObject({ id: "e", error: { message: expect.stringContaining("This build has no agents.") } });
  const { capabilities } = await server.result("initialize", {});
  expect(capabilities.dialects).toEqual(["jsonrpc", "pi"]);
});
