/** Replies as verbs get them. */

import { expect, test } from "vitest";
import { parseArguments } from "../../src/cli/options.ts";
import { CommandFailed } from "../../src/cli/verb.ts";
import { Wire } from "../../src/cli/wire.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { sessionFile } from "../support/cases.ts";
import { userText } from "../support/lines.ts";
import { countingEnv, temporaryPlace } from "../support/server.ts";

test("a reply that no string can hold fails its command, and the next ones are answered", async () => {
  const place = temporaryPlace();
  const long = userText("long", null, "x".repeat(300_000));
  const file = sessionFile(place, [long, userText("short", "long")]);
  const typed = `--session ${file} --events none --framing lines --dialect jsonrpc`;
  const settings = parseArguments(typed.split(" "));
  const program = { version: "0.0.0-test", printError: () => {}, settingsFile: () => undefined };
  const world = { env: countingEnv(), disk: realDisk, ...place, ...program };
  const wire = new Wire(settings, world, undefined, 100_000);
  for (let times = 0; times < 2; times++) {
    const failed = await wire.ask("get_messages").catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(CommandFailed);
    expect(failed).toMatchObject({ error: { data: { name: "message_too_large" } } });
    const { entry } = await wire.ask("get_entry", { entryId: "short" });
    expect(entry.id).toBe("short");
  }
  await wire.end();
});
