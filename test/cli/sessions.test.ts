/** How a person names a session: by the beginning of its id, by its name, archived or not, on either store. */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { widthOf } from "../../src/cli/terminal/text.ts";
import { folderName } from "../../src/storage/fs/paths.ts";
import { letRest } from "../support/cases.ts";
import { FORMATS } from "../support/foreign/formats.ts";
import { contentsOf, put } from "../support/lifecycle.ts";
import { entryText, fileText, headerText, TIME, userText } from "../support/lines.ts";
import { type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { type Run, type RunOptions, runHere } from "../support/verbs.ts";

const IDS = {
  auth: "019aaaaa-1111-7000-8000-000000000001",
  twin: "019aaaaa-2222-7000-8000-000000000002",
  old: "019bbbbb-3333-7000-8000-000000000003",
};

function stored(place: Place, id: string, said: string, name?: string): string {
  const folder = join(place.home, ".pi/agent/sessions", folderName("/home/me/app"));
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `${TIME.replace(/[:.]/g, "-")}_${id}.jsonl`);
  const named = name === undefined ? [] : [entryText("session_info", "n", "u", { name })];
  writeFileSync(file, fileText(headerText({ id, cwd: "/home/me/app" }), userText("u", null, said), ...named));
  letRest(file);
  return file;
}

function ready(): { place: Place; auth: string; twin: string; old: string } {
  const place = temporaryPlace();
  return {
    place,
    auth: stored(place, IDS.auth, "Refactor the auth module.", "Refactor auth"),
    twin: stored(place, IDS.twin, "Something else."),
    old: stored(place, IDS.old, "Long ago.", "Old one"),
  };
}

const NOW = Date.parse(TIME) + 86_400_000;

function run(place: Place, args: readonly string[], options?: RunOptions): Promise<Run> {
  return runHere(place, args, { now: NOW, ...options });
}

async function printed(place: Place, args: readonly string[], options?: RunOptions): Promise<string> {
  const { stdout, stderr, status } = await run(place, args, options);
  expect([stderr, status]).toEqual(["", 0]);
  return stdout;
}

const answering = (answers: string[], asked: string[] = []): RunOptions => ({
  terminal: {
    answer: async (question) => {
      asked.push(question);
      return answers.shift();
    },
  },
});

describe("the beginning of an id", () => {
  test("names a session for every verb that takes one, and moves it from one verb to the next", async () => {
    const { place, old } = ready();
    const bytes = readFileSync(old);
    for (const verb of ["show", "tree", "stats", "verify", "status", "export", "migrate"])
      expect((await run(place, [verb, "019b"])).stderr, verb).toBe("");
    await printed(place, ["archive", "019b"]);
    expect(existsSync(old)).toBe(false);
    // Archived, it can still be read, and deleted.
    expect(await printed(place, ["show", "019b"])).toContain("Long ago.");
    await printed(place, ["unarchive", "019b"]);
    expect(readFileSync(old)).toEqual(bytes);
    await printed(place, ["rename", "019b", "New name"]);
    expect(existsSync((await printed(place, ["fork", "019b"])).trim())).toBe(true);
  });

  test("names a session to relocate and to delete", async () => {
    const { place, old, auth } = ready();
    await printed(place, ["relocate", "019bbbbb", "/home/me/new", "--allow-missing"]);
    expect(existsSync(old)).toBe(false);
    await printed(place, ["delete", "019aaaaa-1", "--yes"]);
    expect(existsSync(auth)).toBe(false);
  });

  test("goes with a migration and back", async () => {
    const { place, old } = ready();
    expect(await printed(place, ["migrate", "019b", "--apply"])).toContain("MIGRATED");
    expect(await printed(place, ["show", "019b"])).toContain("Long ago.");
    await printed(place, ["archive", "019b"]);
    await printed(place, ["unarchive", "019b"]);
    expect(await printed(place, ["rollback", "019b"])).toContain("ROLLED_BACK");
    expect(await printed(place, ["repair", "019b"])).toContain("nothing to repair");
    expect(existsSync(old)).toBe(true);
  });

  test.each([["archive"], ["delete", "--yes"], ["delete", "--yes", "--permanent"], ["unarchive"]])(
    "moves nothing with less than four characters, or when several fit: %j",
    async (verb, ...flags) => {
      const { place } = ready();
      const before = contentsOf(join(place.home, ".pi"));
      const little = await run(place, [verb, "019", ...flags]);
      expect([little.stdout, little.status]).toEqual(["", 1]);
      const several = await run(place, [verb, "019aaaaa", ...flags]);
      expect([several.stdout, several.status]).toEqual(["", 1]);
      expect(several.stderr).toContain("2 sessions have an id that begins with 019aaaaa. Give more of it.");
      expect(contentsOf(join(place.home, ".pi"))).toEqual(before);
    },
  );

  test("of three characters is too little even where only one fits", async () => {
    const place = temporaryPlace();
    const file = stored(place, IDS.old, "Long ago.");
    const { stderr, status } = await run(place, ["delete", "019", "--yes"]);
    expect([stderr, status]).toEqual([
      "pi-session-server: 019 is too little of an id. Give at least 4 characters of it.\n",
      2,
    ]);
    expect(existsSync(file)).toBe(true);
  });

  test("that several have lists them with their names, a line each, in any width", async () => {
    const { place } = ready();
    for (const verb of ["show", "archive"])
      for (const errorColumns of [40, 80, 400]) {
        const { stdout, stderr, status } = await run(place, [verb, "019aaaaa"], { terminal: { errorColumns } });
        expect([stdout, status]).toEqual(["", 1]);
        const lines = stderr.trimEnd().split("\n").slice(1);
        expect(lines).toHaveLength(2);
        expect(lines.find((line) => line.includes("019aaaaa-1"))).toContain("Refactor");
        expect(lines.find((line) => line.includes("019aaaaa-2"))).toContain("Something");
        for (const line of lines) expect(widthOf(line)).toBeLessThanOrEqual(errorColumns);
      }
    const { stdout } = await run(place, ["show", "019aaaaa", "--json"]);
    expect(JSON.parse(stdout).error.data).toMatchObject({
      name: "ambiguous_id",
      matches: 2,
      candidates: [
        { sessionId: IDS.twin, name: null, firstMessage: "Something else.", cwd: "/home/me/app", modified: TIME },
        { sessionId: IDS.auth, name: "Refactor auth", cwd: "/home/me/app", modified: TIME },
      ],
    });
  });

  test("lists at most ten, and a name does nothing to the terminal", async () => {
    const place = temporaryPlace();
    for (let i = 0; i < 30; i++) stored(place, `019c-${i}`, "x", "\u001b[2J\u202eevil\0\nname");
    const { stderr } = await run(place, ["show", "019c"]);
    expect(stderr).toMatch(/^pi-session-server: Several session ids begin with this\. Give more of it\.\n/);
    expect(stderr).toMatch(/\n {2}and 20 more\n$/);
    expect(stderr.trimEnd().split("\n")).toHaveLength(12);
    expect(stderr.replaceAll("\n", "")).not.toMatch(/[\p{Cc}\u202e]/u);
    expect(stderr).toContain("019c-29");
  });
});

test("two files with one id are told apart by their paths", async () => {
  const { place, auth } = ready();
  const copy = join(dirname(auth), "copy.jsonl");
  writeFileSync(copy, readFileSync(auth));
  for (const args of [
    ["show", IDS.auth],
    ["archive", IDS.auth.slice(0, 12)],
  ]) {
    const { stderr, status } = await run(place, args);
    expect(status).toBe(1);
    expect(stderr).toContain("by its path");
    if (args[0] === "show") for (const file of [auth, copy]) expect(stderr).toContain(basename(file));
  }
  await printed(place, ["archive", copy]);
  expect([existsSync(auth), existsSync(copy)]).toEqual([true, false]);
});

describe("a name", () => {
  test("names a session when it is the only one with it", async () => {
    const { place, auth } = ready();
    expect(await printed(place, ["show", "Refactor auth"])).toContain("Refactor the auth module.");
    await printed(place, ["archive", "Refactor auth"]);
    expect(existsSync(auth)).toBe(false);
    expect(await printed(place, ["show", "Refactor auth"])).toContain("Refactor the auth module.");
    const none = await run(place, ["show", "no such name"]);
    expect(none.stderr).toBe(
      "pi-session-server: No session has the id or the name no such name. list shows those that exist.\n",
    );
  });

  test("never stands before an id, and several with it are listed", async () => {
    const { place } = ready();
    stored(place, "019dddd1", "x", "Refactor auth");
    // A session that somebody named as the beginning of another's id.
    stored(place, "019dddd2", "y", "019b");
    expect(await printed(place, ["show", "019b"])).toContain("Long ago.");
    const { stderr, status } = await run(place, ["tree", "Refactor auth"]);
    expect(status).toBe(1);
    expect(stderr).toContain("2 sessions have the name Refactor auth. Use the beginning of the id.\n");
    expect(stderr.trimEnd().split("\n")).toHaveLength(3);
  });

  test("deletes only after a question", async () => {
    const { place, auth } = ready();
    const refused = await run(place, ["delete", "Refactor auth", "--yes"]);
    expect([refused.status, existsSync(auth)]).toEqual([2, true]);
    expect(refused.stderr).toContain(`the name of ${IDS.auth}`);
    await printed(place, ["delete", "Refactor auth"], answering(["y"]));
    expect(existsSync(auth)).toBe(false);
  });
});

describe("delete asks", () => {
  test("with the name, the number of messages, the directory and the age", async () => {
    const { place, auth } = ready();
    const asked: string[] = [];
    await run(place, ["delete", "019aaaaa-1"], answering(["n"], asked));
    await run(place, ["delete", "019aaaaa-1", "--permanent"], answering(["n"], asked));
    await run(place, ["rm", auth], answering(["n"], asked));
    expect(asked).toEqual([
      'Delete "Refactor auth", 1 message, /home/me/app, 1d? [y/N] ',
      'Delete "Refactor auth", 1 message, /home/me/app, 1d for good? It cannot be restored. [y/N] ',
      'Delete "Refactor auth", 1 message, /home/me/app? [y/N] ',
    ]);
    expect(existsSync(auth)).toBe(true);
  });

  test("once for several, and deletes none when one of them is unknown", async () => {
    const { place, auth, old } = ready();
    const asked: string[] = [];
    const wrong = await run(place, ["rm", "019b", "019aaaaa-1", "019f"], answering(["y"], asked));
    expect([wrong.status, asked, existsSync(old)]).toEqual([1, [], true]);
    const said = await printed(place, ["rm", "019b", "019bbbbb", "019aaaaa-1"], answering(["y"], asked));
    expect(asked).toHaveLength(1);
    expect(asked[0]).toContain('"Refactor auth", 1 message');
    expect(asked[0]).toContain('"Old one", 1 message');
    expect(asked[0]).toMatch(/\nDelete these 2 sessions\? \[y\/N\] $/);
    expect(said.match(/undo brings it back/g)).toHaveLength(2);
    expect([existsSync(auth), existsSync(old)]).toEqual([false, false]);
  });

  test("about what cannot be opened by its path, and about a name that would act on the terminal", async () => {
    const { place } = ready();
    const asked: string[] = [];
    const file = stored(place, "019eeee1", "x", "\u001b[2J\u202eevil");
    await run(place, ["delete", "019eeee1"], answering(["n"], asked));
    await run(place, ["delete", "nowhere.jsonl"], answering(["n"], asked));
    expect(asked[0]).toContain('"\\u001b[2J\\u202eevil"');
    expect(asked[1]).toBe("Delete nowhere.jsonl? [y/N] ");
    expect(existsSync(file)).toBe(true);
  });
});

test("several are archived and brought back; one that cannot be does not keep the others from it", async () => {
  const { place, auth, old } = ready();
  const server = serveHere(["--session", old, "--events", "none"], { place });
  await server.result("append", { entries: [{ type: "custom", customType: "x" }] });
  const { stdout, status } = await run(place, ["archive", "019b", "019aaaaa-1", "019aaaaa-2"]);
  expect(status).toBe(1);
  expect(stdout.split("\n")[0]).toMatch(/^019b: .+ is writing to this session\./);
  expect([existsSync(old), existsSync(auth)]).toEqual([true, false]);
  const back = await run(place, ["unarchive", "019aaaaa-1", "019aaaaa-2", "--json"]);
  expect(JSON.parse(back.stdout).results.map(({ sessionId }: { sessionId: string }) => sessionId)).toEqual([
    IDS.auth,
    IDS.twin,
  ]);
  expect(existsSync(auth)).toBe(true);
});

test("over the wire, moving and deleting still take the whole id", async () => {
  const { place } = ready();
  const server = serveHere(["--events", "none"], { place });
  const failure = await server.failure("delete_session", { sessionId: "019bbbbb" });
  expect(failure.data.name).toBe("ambiguous_id");
  const several = await server.failure("open_session", { sessionId: "019aaaaa" });
  expect(several.data.candidates.map(({ sessionId }: { sessionId: string }) => sessionId)).toEqual([
    IDS.twin,
    IDS.auth,
  ]);
});

test("an entry is named by its id, its label, or the beginning of its id", async () => {
  const { place } = ready();
  const folder = join(place.home, ".pi/agent/sessions", folderName("/home/me/app"));
  const lines = [
    userText("aaaa0001", null, "First"),
    userText("aaaa0002", "aaaa0001", "Second"),
    userText("bbbb0003", "aaaa0002", "Third"),
    entryText("label", "cccc0004", "bbbb0003", { targetId: "aaaa0002", label: "the turn" }),
    entryText("label", "cccc0005", "cccc0004", { targetId: "aaaa0001", label: "bbbb0003" }),
  ];
  writeFileSync(join(folder, "x_019f-1.jsonl"), fileText(headerText({ id: "019f-1" }), ...lines));
  const path = async (entry: string): Promise<Run> => run(place, ["show", "019f-1", "--entry", entry]);
  expect((await path("the turn")).stdout).toMatch(/First[\s\S]*Second/);
  expect((await path("the turn")).stdout).not.toContain("Third");
  // An id stands before a label.
  expect((await path("bbbb0003")).stdout).toContain("Third");
  expect((await path("bbbb")).stdout).toContain("Third");
  const several = await path("aaaa");
  expect(several.stderr).toBe(
    "pi-session-server: aaaa may be any of these: aaaa0001 (First), aaaa0002 (Second). Use the id of one.\n",
  );
  expect((await path("bbb")).stderr).toContain("bbb");
  expect((await path("nope")).status).toBe(1);
  expect(existsSync((await printed(place, ["fork", "019f-1", "the turn"])).trim())).toBe(true);
});

test("another agent's session is named by its id: it is read and imported, and a change says whose it is", async () => {
  const { place } = ready();
  const hashes = true;
  for (const { format, path, text } of FORMATS)
    if (format === "copilot" || format === "goose") put(join(place.home, path), text);
  const [row] = JSON.parse(await printed(place, ["list", "--agents", "copilot", "--json"], { hashes })).sessions;
  const id = row.sessionId.slice(0, 8);
  expect(await printed(place, ["show", id], { hashes })).toContain("Clean.");
  expect(await printed(place, ["verify", id], { hashes })).not.toContain("pi_agent_rust");
  for (const args of [
    ["delete", id],
    ["archive", id],
    ["relocate", id, place.cwd],
  ]) {
    const { stderr, status } = await run(place, args, { hashes });
    expect(status).toBe(1);
    expect(stderr).toContain(`import ${id} makes a session of yours of it.`);
  }
  expect(await printed(place, ["import", id], { hashes })).toContain("It is now at");
  const { path } = FORMATS.find(({ format }) => format === "goose") as { path: string };
  writeFileSync(join(place.cwd, "given.json"), readFileSync(join(place.home, path)));
  expect(await printed(place, ["show", "given.json"], { hashes })).toContain("The second summary");
});
