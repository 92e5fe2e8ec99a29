/** The tools as an agent uses them. */

import { mkdirSync, renameSync } from "node:fs";
import { basename, join } from "node:path";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { assistant, toolCall, toolResult, user } from "../../support/drafts.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { chain, put } from "../../support/searching.ts";
import { type Json, type Place, temporaryPlace } from "../../support/server.ts";
import { recallHere } from "./support/recall.ts";

const T1 = "2026-03-10T12:00:00Z";
const T2 = "2026-03-12T12:00:00Z";
const at = (time: string, draft: Json): Json => ({
  ...draft,
  timestamp: time,
  message: { ...draft.message, timestamp: Date.parse(time) },
});

let place: Place;
beforeEach(() => {
  place = temporaryPlace();
});

/** A session with two branches: the first was left for the second, which revised it. */
function branched(): Json[] {
  return [
    { id: "e0000001", parentId: null, ...at(T1, user("Which cache shall we use for the user profiles?")) },
    { id: "e0000002", parentId: "e0000001", ...at(T1, assistant("Redis, because it expires keys.")) },
    { id: "e0000003", parentId: "e0000002", ...at(T1, user("Set up redis for profiles.")) },
    { id: "e0000004", parentId: "e0000003", ...at(T1, assistant("Redis is set up.")) },
    { id: "e0000005", parentId: "e0000002", ...at(T2, user("No redis: take the profile cache in memory.")) },
    { id: "e0000006", parentId: "e0000005", ...at(T2, assistant("The profile cache is a map in memory now.")) },
    { type: "label", id: "e0000007", parentId: "e0000006", targetId: "e0000006", label: "decided", timestamp: T2 },
  ];
}

test("a question in words finds what was said, with its answer and the branch that was left", async () => {
  put(place, "01aaaaaa-1111", branched());
  const { call } = recallHere({ place });
  const text = await call("find", { query: "why did we choose redis as profile cache?" });
  const [head] = text.split("\n");
  expect(head).toMatch(/^1 session matches scope; all read up to \d\d:\d\d:\d\d/);
  expect(text).toMatch(/1\. 01aaaaaa#e000000[26] · pi · assistant · 2026-03-1/);
  expect(text).toContain('asked #e0000005: "No redis: take the profile cache in memory."');
  expect(text).not.toMatch(/^\d+\. 01aaaaaa#e0000005/m);
  expect(text).toMatch(/\+\d more in this session/);
  const left = await call("find", { query: "redis set up", branch: "abandoned" });
  expect(left).toMatch(/#e000000[34] .* · abandoned branch/);
  expect(await call("find", { query: "zebra crossing" })).toContain("Nothing was found.");
});

test("ids, beginnings of ids, names and paths are resolved before words are searched", async () => {
  const name = { type: "session_info", name: "Move the tables" };
  const file = put(place, "01aaaaaa-1111", chain(user("01bbbbbb is a word here"), name));
  put(place, "01bbbbbb-2222", chain(user("Other.")));
  const { call } = recallHere({ place });
  for (const query of ["01bbbbbb", "01bbbbbb-2222"])
    expect(await call("find", { query })).toMatch(/^This names a session[\s\S]*01bbbbbb · pi/);
  for (const query of ["Move the tables", file])
    expect(await call("find", { query })).toMatch(/^This names a session[\s\S]*01aaaaaa · pi/);
  for (const query of ["01cccccc", "01cccccc-3333#a1"])
    expect(await call("find", { query })).toMatch(
      /^2 sessions .*; no session has this id, which was searched as a word\n/,
    );
  expect(await call("open", { ref: "move the tables" })).toContain("01bbbbbb is a word here");
  expect(await call("open", { ref: "/etc/passwd" })).toBe(
    'No session is called "/etc/passwd". Ask recent or find for those that are.',
  );
});

test("an archived session is found, and marked", async () => {
  put(place, "01aaaaaa-1111", chain(user("The kiln needs a new thermostat.")));
  const archive = join(
    place.state,
    "archive",
    encodeURIComponent(join(place.home, ".pi/agent/sessions")),
    "--home-me-app--",
  );
  mkdirSync(archive, { recursive: true });
  const file = put(
    place,
    "01bbbbbb-1111",
    chain(user("The old kiln was sold."), { type: "session_info", name: "Old kiln" }),
  );
  renameSync(file, join(archive, basename(file)));
  const { call } = recallHere({ place });
  const found = await call("find", { query: "kiln thermostat sold" });
  expect(found).toMatch(/01bbbbbb#.* · archived/);
  expect(found).toMatch(/01aaaaaa#(?:(?!archived).)*$/m);
  for (const query of ["Old kiln", "01bbbbbb"])
    expect(await call("find", { query })).toMatch(/01bbbbbb · .* · archived/);
});

test("all that a call asks together reads for 300 ms at most", async () => {
  put(place, "01aaaaaa-1111", chain(user("The kiln needs a new thermostat.")));
  let passed = 0;
  const clock = performance.now.bind(performance);
  vi.spyOn(performance, "now").mockImplementation(() => clock() + passed);
  onTestFinished(() => void vi.restoreAllMocks());
  const given: number[] = [];
  const asked = (_command: string, { within }: Json): void => {
    if (within !== undefined) given.push(within);
    passed += 120;
  };
  await recallHere({ place, asked }).call("find", { query: "kiln thermostat" });
  expect(given.length).toBeGreaterThan(2);
  for (const [n, within] of given.entries()) expect(within).toBeLessThanOrEqual(Math.max(1, 300 - n * 120));
});

test("a name in code is found by its parts and by how it is written elsewhere, a path by its end", async () => {
  put(place, "01aaaaaa-1111", chain(user("Look at resolveTaxRegion() in src/tax/regions.ts, it throws ERR_NO_RATE.")));
  put(place, "01bbbbbb-1111", chain(user("The user_session_cache of the login page.")));
  put(place, "01cccccc-1111", chain(user("Nothing of interest.")));
  put(place, "01dddddd-1111", chain(user("Take them from outbox_jobs.")));
  const { call } = recallHere({ place });
  for (const query of ["tax region", "resolve_tax_region", "/home/me/shop/src/tax/regions.ts", "ERR_NO_RATE", "rate"])
    expect(await call("find", { query }), query).toMatch(/^1\. 01aaaaaa#/m);
  for (const query of ["userSessionCache", "session caches"])
    expect(await call("find", { query }), query).toMatch(/^1\. 01bbbbbb#/m);
  for (const query of ["job", "jobs", "outbox"])
    expect(await call("find", { query }), query).toMatch(/^1\. 01dddddd#/m);
});

test("a follow-up is found by the words of its question and of its session, before a text with the same words", async () => {
  put(
    place,
    "01aaaaaa-1111",
    chain(
      user("Should users sign in with passkeys?"),
      assistant("Yes."),
      user("And old passwords?"),
      assistant("No password is kept."),
    ),
  );
  put(place, "01bbbbbb-1111", chain(user("A password may be in the log.")));
  const { call } = recallHere({ place });
  const text = await call("find", { query: "What did we finally decide about passwords for signing in?" });
  expect(text).toMatch(/No password is kept\.\n```\nasked #\w+: "And old passwords\?"\n[\s\S]*01bbbbbb#/);
});

test("a call that failed is shown with its output, and an output with its call", async () => {
  const asked = toolCall("1");
  asked.message.content = [{ type: "toolCall", id: "1", name: "bash", arguments: { command: "docker compose up" } }];
  const failed = toolResult("1", "Starting.\nError: port 6379 is already allocated");
  Object.assign(failed.message, { isError: true, toolName: "bash" });
  put(place, "01aaaaaa-1111", chain(user("Start it."), asked, failed));
  const { call } = recallHere({ place });
  expect(await call("find", { query: "docker compose port", in: "calls" })).toMatch(
    /^failed #\w+: "Error: port 6379 is already allocated"$/m,
  );
  expect(await call("find", { query: "6379 allocated", in: "outputs" })).toMatch(/^call #\w+: "docker compose up"$/m);
});

test("recent lists the sessions, pages have each once, and filters hold", async () => {
  for (let n = 10; n < 40; n++)
    put(place, `01cccc${n}-1111`, chain(at(`2026-03-${n > 31 ? 30 : n}T10:00:00Z`, user(`Question ${n}`))));
  const { call } = recallHere({ place });
  await vi.waitFor(async () => expect(await call("recent", { limit: 50 })).toContain("all read"), 20_000);
  const seen: string[] = [];
  let cursor: string | undefined;
  do {
    const text = await call("recent", { limit: 7, cursor });
    seen.push(...[...text.matchAll(/^(01cccc\d\d) · pi/gm)].map(([, id]) => id));
    [, cursor] = /cursor: (\S+)$/.exec(text) ?? [];
  } while (cursor !== undefined);
  expect(seen.length).toBe(30);
  expect(new Set(seen).size).toBe(30);
  expect(await call("recent", { since: "2026-03-29", limit: 50 })).toMatch(/^\d+ of 30 sessions match scope/);
  expect(await call("recent", { project: "here" })).toContain("No session is in this scope.");
  expect(await call("recent", { project: "/home/me/01cccc10-1111" })).toMatch(/^1 of 30 sessions/);
});

test("recent with live leaves out a fork that was just made, until something is said in it", async () => {
  const now = new Date().toISOString();
  const fork = { timestamp: now, parentSession: "/elsewhere/01aaaaaa.jsonl" };
  const old = at(T1, user("Which cache?"));
  put(place, "01aaaaaa-1111", chain(old));
  put(place, "01bbbbbb-1111", chain(old), fork);
  put(place, "01cccccc-1111", chain(old, at(new Date(Date.parse(now) + 1).toISOString(), user("And now?"))), fork);
  const { call } = recallHere({ place });
  const text = await call("recent", { live: true });
  expect(text.match(/^01\w+ · pi/gm)).toEqual(["01cccccc · pi"]);
});

test("the context has the outputs of tools, which other views leave out unless they failed", async () => {
  put(
    place,
    "01aaaaaa-1111",
    chain(user("What is in it?"), toolCall("c1"), toolResult("c1", "3 lines"), assistant("Yes.")),
  );
  const { call } = recallHere({ place });
  const [, leaf] = /#(\w+) .*\n```\nYes\./.exec(await call("open", { ref: "01aaaaaa" })) as RegExpExecArray;
  const ref = `01aaaaaa#${leaf}`;
  expect(await call("open", { ref, view: "context" })).toContain('[read: {"path":"a.txt"}]');
  expect(await call("open", { ref, view: "context" })).toContain("3 lines");
  expect(await call("open", { ref, view: "context", tools: "names" })).not.toContain("3 lines");
  expect(await call("open", { ref, view: "path" })).not.toContain("3 lines");
});

test("open reads around an entry, a path page by page, an entry whole, and the context with what a compaction left out", async () => {
  put(place, "01aaaaaa-1111", branched());
  const compacted = [
    { id: "f0000001", parentId: null, ...at(T1, user("The first request, long ago.")) },
    { id: "f0000002", parentId: "f0000001", ...at(T1, assistant("The first answer.")) },
    { id: "f0000003", parentId: "f0000002", ...at(T2, user("The second request.")) },
    {
      type: "compaction",
      id: "f0000004",
      parentId: "f0000003",
      timestamp: T2,
      summary: "They talked of the first.",
      firstKeptEntryId: "f0000003",
      tokensBefore: 900,
    },
    { id: "f0000005", parentId: "f0000004", ...at(T2, assistant(`The second answer. ${"many words ".repeat(3000)}`)) },
  ];
  put(place, "01dddddd-1111", compacted);
  const { call } = recallHere({ place });
  const around = await call("open", { ref: "01aaaaaa#e0000004" });
  expect(around).toContain("#e0000004 · assistant");
  expect(around).toContain("this entry");
  expect(around).not.toContain("in memory");
  expect(await call("open", { ref: "01aaaaaa#decided" })).toMatch(
    /#e0000006 · assistant · .* · label "decided" · this entry/,
  );
  const path = await call("open", { ref: "01aaaaaa" });
  expect(path.match(/^#e\d+/gm)).toEqual(["#e0000001", "#e0000002", "#e0000005", "#e0000006"]);
  const context = await call("open", { ref: "01dddddd#f0000005", view: "context" });
  expect(context).toMatch(/the context at f0000005, as the model saw it: .* not in it: .*2 compacted by f0000004/);
  expect(context).toContain("They talked of the first.");
  expect(context).not.toMatch(/^The first/m);
  let whole = "";
  for (let cursor: string | undefined; ; ) {
    const text = await call("open", { ref: "01dddddd#f0000005", view: "entry", cursor });
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(9216);
    whole += (/```\n([\s\S]*)\n```/.exec(text)?.[1] ?? "").replace(/…$/, "");
    [, cursor] = /cursor: (\S+)$/.exec(text) ?? [];
    if (cursor === undefined) break;
  }
  expect(whole.replaceAll(/\s/g, "").length).toBe(
    `The second answer. ${"many words ".repeat(3000)}`.replaceAll(/\s/g, "").length,
  );
});

test("tree shows branch points and ends, and compare where two branches part", async () => {
  put(place, "01aaaaaa-1111", branched());
  const { call } = recallHere({ place });
  const tree = await call("tree", { ref: "01aaaaaa" });
  expect(tree).toContain("after e0000002");
  expect(tree).toContain('- e0000003 (abandoned) user: "Set up redis for profiles."');
  expect(tree).toContain('- e0000005 (active) user: "No redis: take the profile cache in memory."');
  expect(tree).toMatch(/end e000000\d · active/);
  expect(tree).toContain("end e0000004 · abandoned");
  const compare = await call("compare", { a: "01aaaaaa#e0000004", b: "#e0000006" });
  expect(compare).toMatch(/^They part after e0000002; 2 entries in common\./);
  expect(compare).toContain("Redis is set up.");
  expect(compare).toContain("The profile cache is a map in memory now.");
  expect(await call("tree", { ref: "01aaaaaa", scope: "family" })).toContain("the one asked about");
});

test("history has the calls on a file in order of time, the runs of a command, and what solved an error", async () => {
  const call = (id: string, name: string, args: object): Json => {
    const draft = toolCall(id);
    draft.message.content = [{ type: "toolCall", id, name, arguments: args }];
    return draft;
  };
  const failed = toolResult("1", "Error: ECONNREFUSED 127.0.0.1:5432");
  failed.message.isError = true;
  failed.message.toolName = "bash";
  put(
    place,
    "01eeeeee-1111",
    chain(
      at(T1, user("Run the tests.")),
      at(T1, call("1", "bash", { command: "npm test" })),
      at(T1, failed),
      at(T2, call("2", "edit", { path: "src/db.ts", newText: "port = 5433" })),
      at(T2, toolResult("2", "ok")),
      at(T2, call("3", "bash", { command: "npm test" })),
      at(T2, toolResult("3", "all pass")),
    ),
  );
  const recall = recallHere({ place });
  expect(await recall.call("history", { file: "src/db.ts" })).toMatch(/01eeeeee#\w+ · pi[\s\S]*edit: "/);
  expect(await recall.call("history", { command: "npm test" })).toMatch(/bash: "npm test"/);
  const error = await recall.call("history", { error: "ECONNREFUSED 5432" });
  expect(error).toContain("ECONNREFUSED 127.0.0.1:5432");
  expect(error).toMatch(/edit #\w+: "src\/db\.ts"[\s\S]*then the same call succeeded/);
  expect(await recall.call("history", {})).toBe("Give one of file, command and error.");
});

test("cursors give every hit once, whatever the sizes of pages, and fit no other request", async () => {
  await forSeedsAsync(1, async (random) => {
    place = temporaryPlace();
    const words = ["parser", "timeout", "cache", "index", "filler"];
    const total = 10 + random.int(8);
    for (let n = 0; n < total; n++) {
      const said = Array.from({ length: 1 + random.int(4) }, () =>
        user(`${random.pick(words)} ${random.pick(words)} ${n}`),
      );
      put(place, `${(0xa0000000 + n).toString(16)}-1111`, chain(...said));
    }
    const { call } = recallHere({ place, now: () => Date.parse("2026-04-01T00:00:00Z") });
    // A busy machine reads all of them in several calls.
    while ((await call("find", { query: "filler" })).includes("partial:"));
    const all: string[] = [];
    for (const sizes of [() => 20, () => 1 + random.int(8)]) {
      const seen: string[] = [];
      let cursor: string | undefined;
      do {
        const text = await call("find", {
          query: "parser timeout cache index",
          limit: sizes(),
          max_tokens: 800 + random.int(3000),
          cursor,
        });
        expect(Buffer.byteLength(text)).toBeLessThanOrEqual(32_768);
        seen.push(...[...text.matchAll(/^\d+\. (\w+#\w+) /gm)].map(([, ref]) => ref));
        [, cursor] = /cursor: (\S+)$/.exec(text) ?? [];
        if (cursor)
          expect(await call("find", { query: "parser", cursor })).toContain("This cursor is not of this request");
      } while (cursor !== undefined);
      expect(new Set(seen).size).toBe(seen.length);
      all.push(seen.join(" "));
    }
    expect(all[1]).toBe(all[0]);
  });
});
