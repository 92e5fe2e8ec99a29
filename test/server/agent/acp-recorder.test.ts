/** The recorder of an agent's sessions beside a fleet: what it asks of other machines, and when. */

import { describe, expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import { Workspace } from "../../../src/core/session/workspace.ts";
import { AcpRecorder } from "../../../src/server/agent/acp-recorder.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { makeStores } from "../../../src/storage/stores.ts";
import { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { FOLDER, STATE } from "../../support/sessions.ts";

class Recording {
  readonly disk = new FaultDisk();
  readonly table = new FleetTable();
  readonly fleet = new MemoryFleet(this.table);
  now = 0;
  readonly complaints: string[] = [];
  readonly recorder: AcpRecorder;

  constructor(kind: "jsonl" | "v2") {
    const env = testEnv(3);
    const fleet = fleetOptions(this.fleet, { elapsed: () => this.now });
    const of = { disk: this.disk, env, paths: { flat: FOLDER, state: STATE }, locks: noLocks, cwd: "/", kind };
    const workspace = new Workspace(makeStores({ ...of, durability: "sync", fleet }), env, "/home/me/project");
    this.recorder = new AcpRecorder(workspace, (sentence) => this.complaints.push(sentence));
  }

  /** Has a prompt recorded in the session, which is made by the first one. */
  prompt(text: string): Promise<void> {
    const params = { sessionId: SESSION, prompt: [{ type: "text", text }] };
    return this.recorder.fromClient({ id: text, method: "session/prompt", params }) as Promise<void>;
  }
}

describe.each(["jsonl", "v2"] as const)("a session recorded in %s", (kind) => {
  test("is not asked about while a prompt waits until it is ours", async () => {
    const recording = new Recording(kind);
    const { recorder, fleet, table } = recording;
    await recorder.fromClient({ id: 1, method: "session/load", params: { sessionId: SESSION, cwd: "/" } });
    await recording.prompt("one");
    recording.now = 10_000;
    let open = (): void => {};
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    fleet.turns = () => opened;
    fleet.calls.length = 0;
    const asked = recording.prompt("two");
    await new Promise(setImmediate);
    recorder.keepUp();
    expect(fleet.calls).toEqual(["take"]);
    open();
    await asked;
    await recorder.end("It was ended.", "aborted");
    expect(recording.complaints).toEqual([]);
    expect(table.linesOf(SESSION).filter((line) => /"text":"(one|two)"/.test(line))).toHaveLength(2);
  });
});

test("what another program wrote to a recorded session goes to the fleet while nothing is said", async () => {
  const recording = new Recording("jsonl");
  const { recorder, table, disk } = recording;
  await recording.prompt("one");
  const file = disk.paths().find((path) => path.startsWith(FOLDER) && path.endsWith(".jsonl")) as string;
  const line = userText(id(7), null);
  const fd = disk.openAppend(file);
  disk.write(fd, bytesOf(`${line}\n`));
  disk.close(fd);
  recorder.keepUp();
  while (!table.linesOf(SESSION).includes(line)) await new Promise(setImmediate);
});

describe("what is found while nothing is said is told to a person once:", () => {
  async function recorded() {
    const recording = new Recording("jsonl");
    await recording.prompt("one");
    const { disk } = recording;
    const file = disk.paths().find((path) => path.startsWith(FOLDER) && path.endsWith(".jsonl")) as string;
    const lookTwice = (): readonly string[] => {
      recording.recorder.keepUp();
      recording.recorder.keepUp();
      return recording.complaints;
    };
    return { disk, file, lookTwice };
  }

  test("damage", async () => {
    const { disk, file, lookTwice } = await recorded();
    const fd = disk.openAppend(file);
    disk.write(fd, bytesOf('{"type":"message",\n'));
    disk.close(fd);
    expect(lookTwice()).toEqual([expect.stringMatching(/record of the agent's session .* is damaged/)]);
  });

  test("entries that another program took away", async () => {
    const { disk, file, lookTwice } = await recorded();
    const fd = disk.openAppend(file);
    const text = Buffer.alloc(disk.infoOf(fd).size);
    disk.read(fd, text, 0, text.length, 0);
    const left = text.indexOf("\n") + 1;
    disk.truncate(fd, left);
    disk.close(fd);
    expect(lookTwice()).toEqual([expect.stringContaining("without 2 entries that were there")]);
  });

  test("a file that is gone", async () => {
    const { disk, file, lookTwice } = await recorded();
    disk.rename(file, `${file}.away`);
    expect(lookTwice()).toEqual([expect.stringMatching(/record of the agent's session .* cannot be read/)]);
  });
});
