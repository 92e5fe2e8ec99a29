/** The recorder of an agent's sessions next to a fleet: its requests to other machines, and their times. */

import { expect, test } from "vitest";
import { toBytes } from "../../../src/core/json/json.ts";
import { Workspace } from "../../../src/core/session/workspace.ts";
import { AcpRecorder } from "../../../src/modules/agents/acp/acp-recorder.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { makeStores } from "../../../src/storage/stores.ts";
import { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { FOLDER, STATE } from "../../support/sessions.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../fleet/support/table-fleet.ts";

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

test.each(["jsonl", "v2"] as const)("one in %s is not asked about while a prompt waits for it", async (kind) => {
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
  recorder.synchronize();
  expect(fleet.calls).toEqual(["take"]);
  open();
  await asked;
  await recorder.end("It was ended.", "aborted");
  expect(recording.complaints).toEqual([]);
  expect(table.linesOf(SESSION).filter((line) => /"text":"(one|two)"/.test(line))).toHaveLength(2);
});

/** A session with a prompt that was recorded, and its file, which another program changes. */
async function changed(change: (disk: FaultDisk, fd: number, file: string) => void): Promise<Recording> {
  const recording = new Recording("jsonl");
  await recording.prompt("one");
  const { disk } = recording;
  const file = disk.paths().find((path) => path.startsWith(FOLDER) && path.endsWith(".jsonl")) as string;
  const fd = disk.openAppend(file);
  change(disk, fd, file);
  disk.close(fd);
  return recording;
}

test("what another program wrote to a recorded session goes to the fleet while nothing is said", async () => {
  const line = userText(id(7), null);
  const { recorder, table } = await changed((disk, fd) => disk.write(fd, toBytes(`${line}\n`)));
  recorder.synchronize();
  while (!table.linesOf(SESSION).includes(line)) await new Promise(setImmediate);
});

test.each<[what: string, change: (disk: FaultDisk, fd: number, file: string) => void, message: RegExp]>([
  ["damage", (disk, fd) => disk.write(fd, toBytes('{"type":"message",\n')), /of the agent's session .* is damaged/],
  [
    "entries that are gone",
    (disk, fd, file) => disk.truncate(fd, Buffer.from(disk.content(file) as Uint8Array).indexOf("\n") + 1),
    /without 2 entries that were there/,
  ],
  ["a lost file", (disk, _, file) => disk.rename(file, `${file}.away`), /of the agent's session .* cannot be read/],
])("%s, found while nothing is said, is told to a person once", async (_what, change, message) => {
  const { recorder, complaints } = await changed(change);
  for (let looks = 0; looks < 2; looks++) recorder.synchronize();
  expect(complaints).toEqual([expect.stringMatching(message)]);
});
