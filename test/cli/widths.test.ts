/** No verb prints a line that is wider than the terminal. */

import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { verbs } from "../../src/cli/table.ts";
import { widthOf } from "../../src/cli/terminal/text.ts";
import { put, putSession, sessionId } from "../support/lifecycle.ts";
import { chain, entryText, fileText, headerText, id } from "../support/lines.ts";
import { type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { SWEEP } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const NAME = "A name that is longer than any narrow terminal, 名前 and all, so that something has to give";
const ONE = sessionId(1);

/**
 * What is typed after each verb, one command line after the other, in parts that do without each other; verbs that print
 * no lines for people are left out.
 */
const PARTS: readonly Readonly<Record<string, readonly string[]>>[] = [
  {
    list: ["", "--sort size", "--sort cost", "--archived", "--trash"],
  },
  {
    search: ["say", "say --sessions", "say --count", "nothing-at-all"],
  },
  {
    show: [ONE, `${ONE} --path`],
    tree: [ONE],
    compare: [`${ONE} ${id(2)} cafe0002`],
  },
  {
    stats: ["", ONE, "--by day", "--by model", "--by project", "--by session,model", "--by session"],
  },
  {
    rename: [`${ONE} Another name of the session that is as long as the first one was`],
    merge: [`${ONE} a0000002 --summary A-summary-of-what-the-branch-has-found`],
  },
  {
    archive: [`${sessionId(2)} ${sessionId(3)}`, "--until 2026-02-01 --dry-run", ONE],
    unarchive: [ONE],
    relocate: [`${ONE} .`],
    delete: [`${sessionId(2)} ${sessionId(3)} --yes`],
    trash: [""],
    restore: [sessionId(2)],
    operations: ["", ONE],
    undo: ["", ""],
    redo: [""],
  },
  {
    import: ["brought.jsonl"],
    verify: [sessionId(4), "--all"],
    repair: [`${sessionId(4)} --dry-run`, sessionId(4)],
  },
  {
    doctor: [""],
    recover: [""],
    prune: ["", "--apply", "--trash"],
  },
  {
    migrate: [sessionId(5), `${sessionId(5)} --apply`],
    status: [sessionId(5)],
    rollback: [`${sessionId(5)} --reason because-it-was-tried-and-found-to-be-of-no-use-here`],
    help: ["", "list"],
    version: [""],
  },
];
const NO_LINES = [
  "browse",
  "fleet",
  "view",
  "resume",
  "follow",
  "fork",
  "export",
  "index",
  "completion",
  "schema",
  "conformance",
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
  return place;
}

test("every verb is tried", () => {
  expect(
    verbs
      .map(({ name }) => name)
      .filter((name) => !NO_LINES.includes(name))
      .sort(),
  ).toEqual(PARTS.flatMap(Object.keys).sort());
});

async function expectNarrow(columns: number, lines: (typeof PARTS)[number]): Promise<void> {
  const place = await prepared();
  const holding = serveHere(["--no-session", "--events", "none"], { place });
  await holding.result("open_session", { sessionId: sessionId(3) });
  await holding.result("set_session_name", { sessionId: sessionId(3), name: NAME });
  const now = Date.parse("2026-03-01T00:00:00Z");
  const wide: string[] = [];
  const failed: string[] = [];
  for (const [verb, all] of Object.entries(lines))
    for (const typed of all) {
      const args = [verb, ...typed.split(" ").filter(Boolean)];
      const { stdout, stderr } = await runHere(place, args, { now, terminal: { columns } });
      if (stdout === "") failed.push(`${args.join(" ")}: ${stderr}`);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are what is taken out
      const lines = stdout.replace(/\u001b\[[\d;]*m/g, "").split("\n");
      for (const line of lines) if (widthOf(line) > columns) wide.push(`${args.join(" ")}: ${line}`);
    }
  expect(failed).toEqual([]);
  expect(wide).toEqual([]);
}

for (const columns of [40, 80])
  test.each(PARTS)(`no line is wider than ${columns} columns (%#)`, columns === 40 ? {} : SWEEP, (part) =>
    expectNarrow(columns, part),
  );
