/**
 * The rules for the files of every agent: everything is counted, and providers take each context, of whole files, of
 * their beginnings, and of damaged ones. `PI_TEST_FOREIGN` names a folder of other files, such as fixtures of other
 * projects, which are not kept here: they are read with the same checks, and a table lists the results.
 */

import { readdirSync } from "node:fs";
import { join, relative } from "node:path";
import { describe, expect, test } from "vitest";
import { Session } from "../../../src/core/session/session.ts";
import { makeForeignStore } from "../../../src/modules/foreign/files/store.ts";
import { BYTES_SEEN } from "../../../src/modules/foreign/read/translator.ts";
import { findTranslator } from "../../../src/modules/foreign/read/translators.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { testEnv } from "../../support/env.ts";
import { ClaudeWriter, said } from "../../support/foreign/claude.ts";
import { FORMATS } from "../../support/foreign/formats.ts";
import type { Talker } from "../../support/foreign/writing.ts";
import { contentsOf, put, serveLibrary } from "../../support/lifecycle.ts";
import { forSeeds } from "../../support/random.ts";
import { temporaryFolder, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import {
  damagedLines,
  diskWithForeign,
  drawnContext,
  drawnTree,
  entriesOf,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  leftOut,
  requirePairedAtEveryLeaf,
  requireSound,
  requireSum,
  strictContext,
} from "./support/checks.ts";
import { requireResumable } from "./support/round-trip.ts";

function agentOf(text: string): string | undefined {
  const bytes = Buffer.from(text);
  return findTranslator(bytes.subarray(0, BYTES_SEEN), bytes.length <= BYTES_SEEN)?.agent;
}

/** A turn with a step of two calls. */
function converse(w: Talker): void {
  w.ask("Go");
  w.work("I go.", ["a", "b"]);
  w.reply("Gone.");
}

/** Removes texts between messages that only formats with an environment have. */
function spoken(drawn: readonly string[]): string[] {
  return drawn.filter((line) => !line.includes("<environment_details>"));
}

describe.each(FORMATS.map((one) => [one.format, one] as const))("%s", (_, one) => {
  const { agent, isByLine, path, text, whole, begin } = one;
  const file = `/home/me/${path}`;
  const open = (content: string | Uint8Array) => foreignSession(content, file);
  const requireWhole = (session: Session): void => requireSound(session, agent === "omp");

  test("every kind of record is counted, and all leaves have a context that providers take", () => {
    const session = open(text);
    requireWhole(session);
    const { kinds, warnings, ...report } = fidelityOf(session.log);
    expect(report).toMatchObject({ agent, records: whole.records });
    const dropped = kinds.filter((kind) => kind.dropped > 0).map(({ kind }) => kind);
    if (whole.dropped) expect([dropped, agent === "goose" ? [] : warnings]).toEqual([whole.dropped, []]);
    if (whole.leaves) expect(requirePairedAtEveryLeaf(session)).toBe(whole.leaves);
    if (whole.name) expect(session.name).toBe(whole.name);
    if (whole.cwd) expect(session.cwd).toBe(whole.cwd);
    expect(session.log.damage).toEqual([]);
    // No call loses its result.
    expect([...leftOut(session).torn]).toEqual([]);
    expect(agentOf(text)).toBe(agent);
  });

  acrossTiers(test, [6, 30])("files that were damaged at random (%i)", (count) => {
    const lined = isByLine ? text.trimEnd().split("\n") : undefined;
    let [made, read] = [0, 0];
    forSeeds(count, (random) => {
      let lines = lined && random.chance(0.5) ? lined : one.lines(random);
      // Some documents are on one line, as the programs write them.
      if (agent !== "omp" && one.format !== "goose lines" && !isByLine && random.chance(0.3))
        lines = [JSON.stringify(JSON.parse(lines.join("\n")))];
      const bytes = damagedLines(random, lines);
      made++;
      if (findTranslator(bytes, true)?.agent !== agent) return;
      read++;
      const session = open(bytes);
      requireWhole(session);
      const parts = bytes.toString("latin1").split("\n");
      if (parts.at(-1) === "") parts.pop();
      // Records that are glued together are counted each.
      if (isByLine) expect(fidelityOf(session.log).records).toBeGreaterThanOrEqual(parts.length);
      session.close();
    });
    expect(read).toBeGreaterThan(0.6 * made);
  });

  if (isByLine)
    acrossTiers(test, [1, 4])("each beginning of a file at random has the entries of the whole (%i)", (count) => {
      forSeeds(count, (random) => {
        const lines = one.lines(random).slice(0, count === 1 ? 30 : 1000);
        const read = (end: number) => entriesOf(open(`${lines.slice(0, end).join("\n")}\n`));
        const entries = new Map(read(lines.length).map((entry) => [entry.id, entry]));
        for (let cut = 1; cut < lines.length; cut++)
          // A record that Gemini CLI replaces gets another id.
          for (const entry of read(cut))
            if (entry.partial !== true && (agent !== "gemini" || entries.has(entry.id)))
              expect(entry, `after ${cut} records`).toEqual(entries.get(entry.id));
      });
    });

  test("a picture without data is none for the model, whatever its type says", () => {
    const emptied = text.replaceAll(/AAAA|BBBB|iVBORw0KGgo=/g, "");
    for (const damaged of [emptied, text.replaceAll("image/png", ""), emptied.replaceAll("image/png", "")])
      requireSound(open(damaged));
  });

  test("it opens for reading, is verified, and an import has its report", async () => {
    const place = temporaryPlace();
    const placed = put(join(place.home, path), text);
    const before = contentsOf(join(place.home, path.split("/")[0]));
    const server = serveLibrary(place);
    await server.result("switch_session", { sessionPath: placed });
    const state = await server.result("get_state");
    expect(state).toMatchObject({ sessionFile: placed, store: "foreign", readOnly: true });
    const { messages } = await server.result("get_context", { strict: true });
    expect(messages.length).toBeGreaterThan(1);
    const { fidelity } = await server.result("verify_session");
    requireSum(fidelity);
    const imported = await server.result("import_session", { path: placed });
    expect(imported).toMatchObject({ outcome: "new", sessionId: state.sessionId, fidelity });
    expect(fidelity.agent).toBe(agent);
    expect(await server.result("import_session", { path: placed })).toMatchObject({ outcome: "known" });
    await server.result("switch_session", { sessionPath: imported.sessionPath });
    expect((await server.result("get_context", { strict: true })).messages).toEqual(messages);
    expect(contentsOf(join(place.home, path.split("/")[0]))).toEqual(before);
  });

  test.each(["claude", "codex"] as const)("%s resumes it", (resuming) => void requireResumable(resuming, open(text)));

  if (!begin) return;

  test("a turn is one path: what is said, the calls of a step in one answer, and their results", () => {
    const { w, text } = begin();
    converse(w);
    const session = open(text());
    requireWhole(session);
    const [step, end] = [/I go\. \[a\] \[b\]$/, /Gone\.$/].map((text) => expect.stringMatching(text));
    const turn = ["user: Go", step, "result: output a", "result: output b", end];
    expect(spoken(drawnContext(session))).toEqual(turn);
    expect(spoken(drawnTree(session)).filter((line) => line.includes(" < "))).toEqual([]);
    expect(session.tree.branchCount).toBe(0);
    expect(strictContext(session).find(({ role }) => role === "assistant")).toMatchObject(one.answer ?? {});
  });

  test("a longer file has the entries of each beginning, and is the same one that has grown", () => {
    const { w, text } = begin();
    const beginnings: string[] = [];
    const write = (step: () => void): void => {
      step();
      beginnings.push(text());
    };
    for (const turn of ["1", "2"]) {
      write(() => w.ask(`Turn ${turn}`));
      write(() => w.work("I work.", [`a${turn}`, `b${turn}`]));
      write(() => w.reply(`Done ${turn}.`));
    }
    const entries = new Map(entriesOf(open(beginnings.at(-1) as string)).map((entry) => [entry.id, entry]));
    const disk = diskWithForeign(beginnings[1], file);
    const followed = foreignSessionOn(disk, file);
    for (const [n, beginning] of beginnings.entries()) {
      for (const entry of entriesOf(open(beginning)))
        if (entry.partial !== true) expect(entry, `beginning ${n}`).toEqual(entries.get(entry.id));
      if (n < 2) continue;
      const before = entriesOf(followed);
      if (beginning.startsWith(beginnings[n - 1])) {
        const fd = disk.openAppend(file);
        disk.write(fd, Buffer.from(beginning.slice(beginnings[n - 1].length)));
        disk.close(fd);
      } else disk.put(file, Buffer.from(beginning));
      expect(followed.log.refresh()).toMatchObject({ kind: "grown" });
      expect(entriesOf(followed)).toEqual(entriesOf(open(beginning)));
      expect(entriesOf(followed).slice(0, before.length - 1)).toEqual(before.slice(0, -1));
    }
  });
});

const LINES = FORMATS.filter(({ isByLine, format }) => isByLine || format === "goose lines");

/** Damaged lines cost no record that is whole: the repairs of Pi's reader, for every agent with lines. */
describe.each(LINES.map((one) => [one.format, one.path, one.text.trimEnd().split("\n")] as const))(
  "damaged lines of %s",
  (_, path, lines) => {
    /** Returns the messages of a file, and the number of its damaged bytes. */
    const read = (parts: readonly string[], end = "\n") => {
      const session = foreignSession(parts.join("\n") + end, `/home/me/${path}`);
      requireSound(session);
      const damaged = session.log.damage.filter(({ reason }) => /kept as an entry/.test(reason));
      const lost = damaged.reduce((sum, { length }) => sum + length, 0);
      return { context: strictContext(session), damage: session.log.damage.length, lost };
    };
    const { context } = read(lines);
    const at = Math.floor(lines.length / 2);
    const [before, [line], after] = [lines.slice(0, at), lines.slice(at), lines.slice(at + 1)];
    const torn = lines[1].slice(0, Math.floor(lines[1].length * 0.7));
    const zeros = "\0".repeat(600);

    test.each<[string, string[], number, string?]>([
      ["a torn record before a whole one in the same line", [...before, torn + line, ...after], torn.length],
      ["a record that is cut off, before others", [...before, torn, line, ...after], torn.length],
      ["NUL characters before and after a record", [...before, zeros + line + zeros, ...after], 1200],
      ["NUL characters at the end, without a line feed", [...lines.slice(0, -1), lines.at(-1) + zeros], 600, ""],
      ["two records in one line", [...before, line + (after[0] ?? ""), ...after.slice(1)], 0],
    ])("%s", (_, parts, lost, end) => {
      expect(read(parts, end)).toMatchObject({ context, lost });
    });

    test("line feeds in the strings of a record, and between its members", () => {
      const said = lines.findIndex((line, n) => n > 1 && /[a-z] [a-z]/.test(line));
      const withText = (text: string, between: string): string =>
        lines[said].replace(/([a-z]) ([a-z])/, `$1${text}$2`).replace(',"', `,${between}"`);
      const readLine = (line: string) => read([...lines.slice(0, said), line, ...lines.slice(said + 1)]);
      const right = readLine(withText("\\n", ""));
      expect(readLine(withText("\n", "\n"))).toMatchObject({ context: right.context, lost: 0, damage: 1 });
      expect(read([...lines, withText("\n", "\n")], "")).toMatchObject({ lost: 0, damage: 1 });
    });
  },
);

test("a part of a record is none: a torn record with blocks and records of others in it adds nothing", () => {
  const w = new ClaudeWriter();
  w.ask("Hello");
  w.answer([said("Hi.")]);
  const nested = { type: "assistant", uuid: "n", timestamp: "2026-09-14T08:00:00.000Z", message: w.records[1].message };
  const torn = JSON.stringify({ type: "progress", data: { message: nested, normalizedMessages: [] } });
  const session = foreignSession(`${w.lines[0]}\n${torn.slice(0, -30)}${w.lines[1]}\n`);
  expect(drawnContext(session)).toEqual(["user: Hello", "model: Hi."]);
});

const whole = (format: string): string => FORMATS.find((one) => one.format === format)?.text ?? "";
const OURS = '{"type":"session","version":3,"id":"a1","timestamp":"2026-09-14T08:00:00Z","cwd":"/x"}';

/** The members of documents whose messages they are. */
const DOCUMENTS = [
  ["goose", "conversation", { extension_data: { x: "x".repeat(BYTES_SEEN) } }],
  ["opencode", "messages", {}],
  ["gemini document", "messages", {}],
  ["cline contract", "messages", {}],
] as const;

test.each(DOCUMENTS)(
  "a document of %s is known on one line, after spaces, and longer than what is read of it",
  (...one) => {
    const [format, member, long] = one;
    const document = JSON.parse(whole(format));
    const longer = { ...document, [member]: [...document[member], "x".repeat(BYTES_SEEN)] };
    const flat = JSON.stringify(document);
    for (const text of [flat, `\n\n  ${flat}`, JSON.stringify(longer), JSON.stringify(longer, null, 2)])
      expect(agentOf(text)).toBe(format.split(" ")[0]);
    // Nor does a long fact before its messages hide whose it is.
    expect(agentOf(JSON.stringify({ ...document, ...long }))).toBe(format.split(" ")[0]);
  },
);

test("a long summary of an export of opencode's, and long first messages of Cline's and Roo Code's, hide nothing", () => {
  const { info, messages } = JSON.parse(whole("opencode"));
  const summary = { diffs: ["x".repeat(BYTES_SEEN)] };
  expect(agentOf(JSON.stringify({ info: { ...info, summary }, messages }))).toBe("opencode");
  for (const [format, agent] of [
    ["cline", "cline"],
    ["roo", "roo"],
    ["cline contract", "cline"],
  ]) {
    const { w, text } = FORMATS.find((one) => one.format === format)!.begin!();
    w.ask(`<task>${"x".repeat(50)}`);
    w.reply("y".repeat(100_000));
    expect(agentOf(text())).toBe(agent);
  }
});

test.each([
  ["our own header", OURS],
  ["our own header before another agent's lines", `${OURS}\n${whole("copilot")}`],
  ["our own header before a message of Gemini's", `${OURS}\n{"id":"1","type":"gemini"}\n`],
  ["nothing", ""],
  ["a text", "once upon a time"],
  ["an empty object", "{}"],
  ["an array", "[]"],
  ["a message alone", '[{"role":"user","content":"Hello"}]'],
  [
    "a log of messages of older versions of Gemini CLI",
    '[{"sessionId":"a","messageId":0,"type":"user","message":"x"}]',
  ],
  ["another document with a session", '{"sessionId":"a","title":"b","history":[],"workspaceDirectory":""}'],
  ["an export without facts", '{"info":{"id":"ses_1"},"messages":[{"info":{"role":"user"},"parts":[]}]}'],
  ["a package", '{"name":"x","version":"1.0.0","info":{"id":"x","version":"1"},"messages":[]}'],
  ["an interface description", '{"openapi":"3.1.0","info":{"title":"ses","version":"1"},"paths":{}}'],
  ["a conversation of something else", '{"id":"1","title":"x","conversation":[{"role":"user"}]}'],
  ["a log of something else", '{"type":"session.start","timestamp":1,"data":null}\n{"type":"x","data":{},"id":"1"}'],
])("%s is no session of another agent", (_, text) => {
  expect(agentOf(text)).toBeUndefined();
});

test.each(['{"\xff":1,"messages":[]}', '[{"\xff":1}]', '{"sessionId":"\xff"}\n{"\xff":1}', '{"a', "\xff"])(
  "damage is no error, not even in names: %j",
  (text) => expect(findTranslator(Buffer.from(text, "latin1"), true)).toBeUndefined(),
);

const FOLDER = process.env.PI_TEST_FOREIGN;

/** Returns a row of the table: the contents of a session, the entries left out of its contexts, and the reports. */
function rowOf(name: string, session: Session): string {
  const { agent, records, kinds, warnings } = fidelityOf(session.log);
  const { leaves, unanswered, unasked } = leftOut(session);
  const fates = (["preserved", "derived", "dropped"] as const).map((ending) =>
    kinds.reduce((all, one) => all + one[ending], 0),
  );
  const lost = kinds.filter(({ dropped }) => dropped > 0).map(({ kind, dropped }) => `${dropped} ${kind}`);
  const losses = [...lost, ...warnings.map((warning) => JSON.stringify(warning))].join("; ");
  const counts = [name, agent, records, session.log.nodes.count, leaves, fates.join(" / ")];
  return `| ${[...counts, [...unanswered].join(", "), [...unasked].join(", "), losses].join(" | ")} |`;
}

test.skipIf(FOLDER === undefined)("in the files of a folder", () => {
  const folder = FOLDER as string;
  const store = makeForeignStore(realDisk, { ...testEnv(), now: () => Date.now() }, temporaryFolder());
  const rows: string[] = [];
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name);
    const log = entry.isFile() ? store.open(file) : undefined;
    if (!log) continue;
    const session = new Session(log, testEnv());
    requireSound(session);
    expect([file, [...leftOut(session).torn]]).toEqual([file, []]);
    rows.push(rowOf(relative(folder, file), session));
    session.close();
  }
  for (const { format, path, text } of FORMATS)
    rows.push(rowOf(`ours: ${format}`, foreignSession(text, `/home/me/${path}`)));
  const columns = "file | agent | records | entries | leaves | preserved / derived / dropped";
  const head = `| ${columns} | calls without a result | results without a call | lost, and told |`;
  console.log([head, head.replace(/[^|]+/g, " --- "), ...rows.sort()].join("\n"));
});
