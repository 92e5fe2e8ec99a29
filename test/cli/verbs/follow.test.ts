/** A live view of other processes' entries. */

import { spawn } from "node:child_process";
import { appendFileSync, renameSync, writeFileSync } from "node:fs";
import { expect, onTestFinished, test, vi } from "vitest";
import { PROGRAM } from "../../support/build.ts";
import { sessionFile } from "../../support/cases.ts";
import { assistant, user } from "../../support/drafts.ts";
import { chain, entryText, fileText, headerText, id, SESSION, userText } from "../../support/lines.ts";
import { imprint } from "../../support/proof.ts";
import {
  type Place,
  programEnvironment,
  serveHere,
  spawnServer,
  stopTimers,
  temporaryPlace,
} from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import { expectTame, runOn, stored } from "../../support/verbs.ts";

/** More than lies between two looks. */
const A_LOOK = 510;

/** Follows a session in this process; time passes only while something is waited for. */
async function follow(place: Place, args: readonly string[], reads = (_text: string) => true) {
  stopTimers();
  const running = runOn(place, ["follow", ...args], reads);
  /** Waits until texts are printed, or said on stderr, and returns all that was since the last time. */
  const until = async (...texts: string[]): Promise<string> => {
    const all = (): string => running.said + running.out;
    for (const text of texts) {
      for (let looks = 0; !all().includes(text) && looks < 20; looks++) await vi.advanceTimersByTimeAsync(A_LOOK);
      expect(all()).toContain(text);
    }
    const since = all();
    if (texts[0] !== "Following") Object.assign(running, { out: "", said: "" });
    return since;
  };
  await until("Following");
  const status = running.end.then(({ status }) => status);
  const stop = async (): Promise<void> => {
    running.interrupt();
    expect(await status).toBe(0);
  };
  return { until, stop, status };
}

const said = (text: string, entryId: string, parentId: string): string => `${userText(entryId, parentId, text)}\n`;

test("the last messages, then each new one as it comes, until Ctrl+C", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(6));
  const { until, stop } = await follow(place, [file, "--last", "2"]);
  appendFileSync(file, said("one more", "bbbb0001", id(5)));
  const first = await until("one more");
  expect(first).not.toContain(`say ${id(3)}`);
  expect(first).toMatch(new RegExp(`say ${id(4)}\\n\\n.*\\nsay ${id(5)}\\n\\n.*\\none more\\n`, "s"));
  const label = entryText("label", "bbbb0002", "bbbb0001", { targetId: id(0), label: "hidden" });
  appendFileSync(file, `${label}\n${said("and another", "bbbb0003", "bbbb0002")}${said("aside", "bbbb0004", id(2))}`);
  const second = await until("aside");
  expect(second).not.toMatch(/hidden|one more/);
  expect(second).toContain(`(another branch, after ${id(2)})`);
  const before = imprint(file);
  await stop();
  expect(imprint(file)).toEqual(before);
});

acrossTiers(test, ["jsonl", "v2"])("what a server writes that holds the lock of a session in %s", async (store) => {
  const server = serveHere(["--store", store, "--events", "none"]);
  await server.result("append", { entries: [user("begin")] });
  const { sessionId } = await server.result("get_state");
  const { until, stop } = await follow(server.place, [sessionId, "--entries"]);
  const { entryIds } = await server.result("append", { entries: [assistant("I \u001b[31mcome.")] });
  const text = await until("come.");
  expect(expectTame(text)).toContain(entryIds[0]);
  expect(text).toContain("\\u001b[31m");
  await server.result("append", { entries: [user("go on")] });
  await until("go on");
  await stop();
});

test("--json prints the entries as they are stored, and nothing else", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(2));
  let out = "";
  const { until, stop } = await follow(place, [file, "--json"], (text) => {
    out += text;
    return true;
  });
  const odd = `{"type":"usage","id":"bbbb0001","parentId":"${id(1)}","timestamp":"x","cost":1.50,"big":12345678901234567890}`;
  appendFileSync(file, `${odd}\n`);
  await until("bbbb0001");
  await stop();
  expect(out).toBe(`${odd}\n`);
});

test("without a session, the one of this directory in which something was said last", async () => {
  const place = temporaryPlace();
  stored(place, "01991f6e-4444-7c3e-b0a4-0242ac120005", chain(1), { cwd: "/elsewhere" });
  stored(place, SESSION, chain(2), { cwd: place.cwd });
  const { until, stop } = await follow(place, []);
  expect(await until(`say ${id(1)}`)).toContain(`Following ${SESSION}`);
  await stop();
});

test("a file that is replaced is followed further; what it lacks is said", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(4));
  const { until, stop } = await follow(place, [file]);
  writeFileSync(`${file}.new`, fileText(headerText(), ...chain(3), userText("cccc0001", id(2), "rewritten")));
  renameSync(`${file}.new`, file);
  expect(await until("rewritten", "replaced")).toContain("without 1 entries");
  appendFileSync(file, said("goes on", "cccc0002", "cccc0001"));
  await until("goes on");
  await stop();
});

test.each([
  ["migrate_session", {}, /now at .*\.v2; follow goes on/],
  ["archive_session", {}, /was archived; unarchive/],
  ["delete_session", { permanent: true }, /is gone: it was deleted/],
  ["relocate_session", { cwd: "/elsewhere", allowMissing: true }, /now at .*--elsewhere--/],
])("after %s it says where the session is and ends", async (method, params, sentence) => {
  const server = serveHere(["--events", "none"]);
  await server.result("append", { entries: [user("begin"), assistant("b")] });
  const { sessionFile: file } = await server.result("get_state");
  await server.result("close_session");
  const { until, status } = await follow(server.place, [file]);
  await server.result(method, { sessionPath: file, ...params });
  expect([await until("The session "), await status]).toEqual([expect.stringMatching(sentence), 0]);
});

test("a reader that stops ends it", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(1));
  const { until, status } = await follow(place, [file, "--last", "0"], () => false);
  appendFileSync(file, said("nobody reads", "bbbb0001", id(0)));
  await until("nobody reads");
  expect(await status).toBe(0);
});

test("the program follows what another process writes, and ends with 0 on an interrupt", SYSTEM, async () => {
  const place = temporaryPlace();
  const server = spawnServer(["--session-dir", place.cwd, "--session-id", SESSION, "--events", "none"], "lines", place);
  await server.result("append", { entries: [user("begin")] });
  const child = spawn(process.execPath, [PROGRAM, "follow", SESSION.slice(0, 8), "--session-dir", place.cwd], {
    cwd: place.cwd,
    env: programEnvironment(place),
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let output = "";
  child.stdout.on("data", (piece) => {
    output += piece;
  });
  await vi.waitUntil(() => output.includes("begin"), { timeout: 30_000 });
  await server.result("append", { entries: [assistant("I come.")] });
  await vi.waitUntil(() => output.includes("I come."), { timeout: 30_000 });
  const status = new Promise((resolve) => child.on("close", (code, signal) => resolve(code ?? signal)));
  child.kill("SIGINT");
  expect(await status).toBe(0);
});
