/** No verb prints a line that is wider than the terminal, or a character that acts on it, whatever sessions say. */

import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { verbs } from "../../src/cli/table.ts";
import { put, putSession, sessionId } from "../support/lifecycle.ts";
import { chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { sessionSaying } from "../support/payloads.ts";
import { type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { SWEEP } from "../support/tiers.ts";
import { expectTame, runHere, stored } from "../support/verbs.ts";

const NAME = "A name that is longer than any narrow terminal, 名前 and all, so that something has to give";
const NASTY = "\u001b[31m\u009b2J\u202ex\u0007\u2066";
const [ONE, TWO, THREE, FOUR, FIVE] = [1, 2, 3, 4, 5].map(sessionId);

/**
 * Operands of each verb, one command line after the other, in parts that do without each other; verbs that print no
 * lines for people are left out.
 */
const PARTS: readonly Readonly<Record<string, readonly string[]>>[] = [
  { list: ["", "--sort size", "--sort cost", "--archived", "--trash"] },
  { search: ["say", "say --sessions", "say --count", "nothing-at-all", "x --in all"] },
  {
    show: [ONE, `${ONE} --path`, "nasty", "nasty --path --full"],
    tree: [ONE, "nasty", "nasty --all", "nasty --plain"],
    compare: [`${ONE} ${id(2)} cafe0002`],
  },
  {
    stats: [
      "",
      ONE,
      "--by day",
      "--by week",
      "--by model",
      "--by project",
      "--by session,model",
      "--by session",
      "nasty",
    ],
  },
  {
    rename: [`${ONE} Another name of the session that is as long as the first one was`],
    label: [`${ONE} a0000001 Another label of the entry that is as long as the first one was`, `${ONE} a0000001`],
    goto: [`${ONE} a0000001`],
    merge: [`${ONE} a0000002 --summary A-summary-of-what-the-branch-has-found`],
  },
  {
    archive: [`${TWO} ${THREE} --yes`, "--until 2026-02-01 --dry-run", ONE],
    unarchive: [ONE],
    relocate: [`${ONE} .`, "--from /nowhere . --yes", "--from deep . --dry-run"],
    delete: ["--until 2026-02-01 --dry-run", `${TWO} ${THREE} --yes`],
    trash: [""],
    restore: [TWO],
    operations: ["", ONE],
    undo: ["", ""],
    redo: [""],
  },
  { import: ["brought.jsonl"], verify: [FOUR, "--all", "nasty"], repair: [`${FOUR} --dry-run`, FOUR] },
  { doctor: [""], recover: [""], prune: ["", "--apply", "--trash"] },
  {
    migrate: [FIVE, `${FIVE} --apply`],
    status: [FIVE],
    rollback: [`${FIVE} --reason because-it-was-tried-and-found-to-be-of-no-use-here`],
    help: ["", "list"],
    version: [""],
  },
];
const NO_LINES = "browse fleet view resume follow fork export index completion schema conformance mcp recall".split(
  " ",
);

/** Lines of a session that says what acts on terminals wherever it can say anything. */
const NASTY_LINES = [
  ...sessionSaying(NASTY).trimEnd().split("\n").slice(1),
  entryText("message", "i\u001b", null, { message: { role: "bashExecution", command: NASTY, output: NASTY } }),
  entryText("session_info", "z", "i\u001b", { name: `${NASTY} ${NAME}` }),
  userText("zz", "z", NASTY),
  entryText("message", NASTY, "nowhere", { message: { role: "user", content: "x" } }),
];

async function prepared(): Promise<Place> {
  const place = temporaryPlace();
  const cwd = join(place.cwd, "deep/er/and/deeper/down");
  for (const n of [1, 2, 3, 5]) {
    const name = entryText("session_info", `f000000${n}`, id(2), { name: `${NAME} ${n}` });
    const other = entryText("message", "cafe0002", id(1), { message: { role: "user", content: `${NAME} say` } });
    putSession(place, n, { cwd, lines: [...chain(3), name, other] });
  }
  const torn = putSession(place, 4, { cwd, lines: chain(3) });
  appendFileSync(torn, "no JSON\n");
  put(`${torn}.v1.bak`, "an old version");
  put(join(place.cwd, "brought.jsonl"), fileText(headerText({ id: sessionId(6) }), ...chain(2)));
  stored(place, "nasty", NASTY_LINES, { cwd: `${NASTY}/home` });
  return place;
}

test("every verb is tried", () => {
  const tried = [...PARTS.flatMap(Object.keys), ...NO_LINES];
  expect(verbs.map(({ name }) => name).sort()).toEqual(tried.sort());
});

async function expectNarrow(columns: number, part: (typeof PARTS)[number]): Promise<void> {
  const place = await prepared();
  const holding = serveHere(["--no-session", "--events", "none"], { place });
  await holding.result("open_session", { sessionId: THREE });
  await holding.result("set_session_name", { sessionId: THREE, name: NAME });
  const options = { now: Date.parse("2026-03-01T00:00:00Z"), terminal: { columns } };
  const failed: string[] = [];
  for (const [verb, all] of Object.entries(part))
    for (const typed of all) {
      const { stdout, stderr } = await runHere(place, [verb, ...typed.split(" ").filter(Boolean)], options);
      if (stdout === "") failed.push(`${verb} ${typed}: ${stderr}`);
      // Screen readers get lines in full.
      expectTame(stdout, typed.includes("--plain") ? undefined : columns, `${verb} ${typed}`);
    }
  expect(failed).toEqual([]);
}

const EXTREMES = [20, 34, 140, 400].map(
  (columns) => [columns, { list: [""], stats: ["", "--chart", "--chart --plain"] }] as const,
);

test.each(PARTS.map((part) => [40, part] as const).concat(EXTREMES as never))(
  "no line is wider than %i columns (%#)",
  expectNarrow,
);
test.each(PARTS)("no line is wider than 80 columns (%#)", SWEEP, (part) => expectNarrow(80, part));

test("the narrowest list has whole ids, which every verb takes", async () => {
  const place = temporaryPlace();
  const ids = ["01aaaaaa-1111", "01bbbbbb-2222"];
  for (const sessionId of ids) stored(place, sessionId, chain(2), { cwd: join(place.cwd, "deep/er/and/deeper/down") });
  const { stdout } = await runHere(place, ["list"], { terminal: { columns: 20 } });
  expect(
    expectTame(stdout, 20)
      .match(/01\w{6}$/gm)
      ?.sort(),
  ).toEqual(ids.map((sessionId) => sessionId.slice(0, 8)));
});

test("without a terminal, titles, names and labels are whole, unless COLUMNS says how wide it is", async () => {
  const place = temporaryPlace();
  const [name, label] = ["a long name of many words ".repeat(9), "a long label of many words ".repeat(5)].map((text) =>
    text.trim(),
  );
  const named = entryText("session_info", "aaaa0001", id(2), { name });
  const labelled = entryText("label", "aaaa0002", "aaaa0001", { targetId: id(1), label });
  const message = { role: "assistant", content: [], usage: { input: 1 } };
  const answer = entryText("message", id(2), id(1), { message });
  stored(place, "01aaaaaa-1111", [...chain(2), answer, named, labelled], {
    cwd: join(place.cwd, "deep/er/and/deeper/".repeat(6)),
  });
  await runHere(place, ["rename", "01aaaaaa", `${name} x`]);
  const asked = [
    ["list", `${name} x`, "01aaaaaa"],
    ["stats --by session", `${name} x`],
    ["tree 01aaaaaa", label],
    ["operations", `${name} x`],
  ];
  for (const [typed, ...parts] of asked)
    for (const [COLUMNS, isWhole] of [
      ["", true],
      ["80", false],
    ] as const) {
      const { stdout } = await runHere(place, typed.split(" "), { variables: { COLUMNS } });
      expect([typed, COLUMNS, stdout.includes(parts[0])]).toEqual([typed, COLUMNS, isWhole]);
      for (const part of parts.slice(1)) expect(stdout).toMatch(new RegExp(`${part}$`, "m"));
    }
});

test("without a terminal, no line is broken", async () => {
  const place = await prepared();
  const compared = ["compare", ONE, id(2), "cafe0002"];
  const others = [["doctor", "--all"], ["search", "say"], ["list"], ["show", "nasty"], compared];
  for (const typed of [["verify", "--all"], ...others]) {
    const linesAt = async (columns: number): Promise<number> => {
      const { stdout } = await runHere(place, typed, { variables: { COLUMNS: String(columns) } });
      return stdout.split("\n").length;
    };
    expect([typed, await linesAt(20)]).toEqual([typed, await linesAt(1000)]);
  }
});

test("JSON does nothing to a terminal either, and is the same", async () => {
  const place = await prepared();
  const args = ["show", "nasty", "--path", "--json"];
  const { stdout } = await runHere(place, args, { terminal: { columns: 80 } });
  expectTame(stdout);
  expect(JSON.parse(stdout)).toEqual(JSON.parse((await runHere(place, args)).stdout));
});
