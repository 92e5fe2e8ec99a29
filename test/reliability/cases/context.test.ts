/** C: compactions and what the model sees. */

import { expect } from "vitest";
import { call, cases, damageKinds, linesIn, said, serveContent, serveLines } from "../../support/cases.ts";
import { assistant, toolResult, user } from "../../support/drafts.ts";
import { chain, entryText, fileText, headerText, id, userText } from "../../support/lines.ts";
import { type HereServer, type Json, serveHere, spawnServer } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";
import { calls, pairingFaults } from "../../support/turns.ts";

const QUIET = ["--events", "none"];

const compactionText = (n: number, parent: number, more: Json): string =>
  entryText("compaction", id(n), id(parent), { summary: `summary ${n}`, tokensBefore: 10, ...more });

async function inMemory(...entries: Json[]): Promise<HereServer> {
  const server = serveHere(["--no-session", ...QUIET]);
  if (entries.length > 0) await server.result("append", { entries });
  return server;
}

const compact = (firstKeptEntryId: string | null, summary = "the summary"): Json => ({
  summary,
  firstKeptEntryId,
  tokensBefore: 5,
});

/** What is at the leaf of another session. */
async function contextOf(server: HereServer, leafId?: string): Promise<Json> {
  const { messages, model, thinkingLevel } = await server.result("get_context", leafId === undefined ? {} : { leafId });
  return { messages, model, thinkingLevel };
}

cases("C", [
  {
    id: "C1",
    fault: "compactions in a row, with kept ranges that overlap",
    async run() {
      const server = await inMemory(...["a", "b", "c", "d", "e"].map((name) => user(name, { id: name })));
      await server.result("compact_append", compact("b", "one"));
      expect(await said(server)).toEqual(["one", "b", "c", "d", "e"]);
      await server.result("append", { entries: [user("f", { id: "f" })] });
      await server.result("compact_append", compact("d", "two"));
      expect(await said(server)).toEqual(["two", "d", "e", "f"]);
      await server.result("compact_append", compact("c", "three"));
      expect(await said(server)).toEqual(["three", "c", "d", "e", "f"]);
    },
  },
  {
    id: "C2",
    fault: "a kept entry off the path, on another branch, a label, missing",
    async run() {
      const server = await inMemory(
        user("a", { id: "a" }),
        user("b", { id: "b" }),
        user("other", { id: "other", parentId: "a" }),
        user("c", { id: "c", parentId: "b" }),
      );
      for (const kept of ["other", "nowhere"])
        expect((await server.failure("compact_append", compact(kept))).data.name).toBe("invalid_boundary");
      expect((await server.result("get_state")).entryCount).toBe(4);
      await server.result("compact_append", compact(null));
      expect(await said(server)).toEqual(["the summary"]);
      const label = entryText("label", id(7), id(1), { targetId: id(0), label: "x" });
      for (const kept of [id(8), id(9), "nowhere0", id(7)]) {
        const lines = [
          ...chain(2),
          label,
          userText(id(8), id(0)),
          compactionText(3, 1, { firstKeptEntryId: kept }),
          userText(id(9), id(3)),
        ];
        const { server: reader } = serveContent(fileText(headerText(), ...lines));
        // More is kept, and it is said.
        expect(await said(reader), kept).toEqual(["summary 3", `say ${id(0)}`, `say ${id(1)}`, `say ${id(9)}`]);
        expect((await reader.result("verify_session")).damage.map(({ kind }: Json) => kind)).toContain(
          "invalid_boundary",
        );
      }
    },
  },
  {
    id: "C3",
    fault: "a boundary between a call and its result",
    async run() {
      const server = await inMemory(
        user("a", { id: "a" }),
        { ...calls("", "c1", "c2"), id: "b" },
        toolResult("c1", "r1", { id: "r1" }),
        toolResult("c2", "r2", { id: "r2" }),
        assistant("d", { id: "d" }),
      );
      for (const kept of ["r1", "r2"]) {
        const { data, message } = await server.failure("compact_append", compact(kept));
        expect([data.name, data.nearest]).toEqual(["invalid_boundary", ["b", "d"]]);
        expect(message).toContain("b or d");
      }
      for (const kept of ["b", "d"]) await server.result("compact_append", compact(kept));
      const lines = [
        userText(id(0), null),
        entryText("message", id(1), id(0), calls("", "c1") as Json),
        entryText("message", id(2), id(1), toolResult("c1", "r") as Json),
        compactionText(3, 2, { firstKeptEntryId: id(2) }),
      ];
      const reader = serveContent(fileText(headerText(), ...lines)).server;
      expect(await said(reader)).toEqual(["summary 3", "r"]);
      expect(pairingFaults((await reader.result("get_context", { strict: true })).messages)).toEqual([]);
    },
  },
  {
    id: "C4",
    fault: "a compaction on one branch, and a branch that left before it",
    async run() {
      const server = await inMemory(...["a", "b", "c"].map((name) => user(name, { id: name })));
      await server.result("compact_append", compact("c"));
      await server.result("branch", { entryId: "b" });
      await server.result("append", { entries: [user("elsewhere")] });
      expect(await said(server)).toEqual(["a", "b", "elsewhere"]);
    },
  },
  {
    id: "C6",
    fault: "forks at, before, behind and in the kept range of a compaction",
    async run() {
      const { server } = serveLines(
        [
          ...chain(4),
          compactionText(4, 3, { firstKeptEntryId: id(2) }),
          userText(id(5), id(4)),
          userText(id(6), id(5)),
        ],
        { args: QUIET },
      );
      const { sessionFile } = await server.result("get_state");
      for (let n = 0; n <= 6; n++) {
        const expected = await contextOf(server, id(n));
        await server.result("fork", { entryId: id(n), position: "at" });
        expect(await contextOf(server), `fork at ${n}`).toEqual(expected);
        await server.result("switch_session", { sessionPath: sessionFile });
      }
    },
  },
  {
    id: "C7",
    fault: "empty summaries, missing and negative counts",
    async run() {
      const server = await inMemory(user("a", { id: "a" }));
      for (const params of [
        compact("a", ""),
        compact("a", " \n"),
        { ...compact("a"), tokensBefore: -1 },
        { summary: "s", firstKeptEntryId: "a" },
      ])
        expect(await server.failure("compact_append", params)).toMatchObject({ code: -32602 });
      for (const more of [{ summary: "" }, { tokensBefore: undefined }, { tokensBefore: -5 }, { summary: 5 }]) {
        const reader = serveContent(
          fileText(
            headerText(),
            ...chain(2),
            compactionText(2, 1, { firstKeptEntryId: id(1), ...more }),
            userText(id(3), id(2)),
          ),
        ).server;
        expect((await said(reader)).at(-1), JSON.stringify(more)).toBe(`say ${id(3)}`);
        await reader.result("get_session_stats");
      }
    },
  },
  {
    id: "C8",
    fault: "a process that dies while a compaction is prepared",
    options: SYSTEM,
    async run() {
      const server = spawnServer(QUIET);
      await server.result("append", { entries: [user("a", { id: "a" })] });
      const { sessionFile } = await server.result("get_state");
      await server.result("prepare_compaction", { keepRecentTokens: 1 });
      server.process.kill("SIGKILL");
      await server.exit;
      const next = serveHere(["--session", sessionFile, ...QUIET], { place: server.place });
      expect(await next.result("get_state")).toMatchObject({ isCompacting: false, leafId: "a", diagnostics: [] });
      expect(linesIn(sessionFile)).toHaveLength(2);
    },
  },
  {
    id: "C9",
    fault: "two compactions at once",
    async run() {
      const server = await inMemory(user("a", { id: "a" }), user("b", { id: "b" }));
      const params = { ...compact("b"), expectedLeafId: "b" };
      server.send(call(1, "compact_append", params), call(2, "compact_append", params));
      const [won, lost] = await server.take(2);
      expect(lost.error.data).toMatchObject({ name: "content_modified", leafId: won.result.leafId });
      expect((await server.result("get_state")).entryCount).toBe(3);
    },
  },
  {
    id: "C10",
    fault: "which entries the model sees",
    async run() {
      const { server } = serveLines(
        [
          userText(id(0), null),
          entryText("branch_summary", id(1), id(0), { fromId: id(0), summary: "left" }),
          entryText("custom", id(2), id(1), { customType: "x", data: 1 }),
          entryText("custom_message", id(3), id(2), { customType: "x", content: "shown", display: true }),
          entryText("custom_message", id(4), id(3), { customType: "x", content: "hidden", display: false }),
          entryText("message", id(5), id(4), {
            message: { role: "bashExecution", command: "ls", output: "", excludeFromContext: true },
          }),
          entryText("label", id(6), id(5), { targetId: id(0), label: "x" }),
          entryText("session_info", id(7), id(6), { name: "n" }),
        ],
        { args: QUIET },
      );
      const { messages } = await server.result("get_messages");
      expect(messages.map(({ role }: Json) => role)).toEqual([
        "user",
        "branchSummary",
        "custom",
        "custom",
        "bashExecution",
      ]);
      // Which of them reach a provider is told beside them.
      expect(messages.map(({ display, excludeFromContext }: Json) => display ?? excludeFromContext)).toEqual([
        undefined,
        undefined,
        true,
        false,
        true,
      ]);
    },
  },
  {
    id: "C11",
    fault: "edits: omit, replace, the last wins, per branch, compacted away",
    async run() {
      const server = await inMemory(user("a", { id: "a" }), user("b", { id: "b" }));
      const edit = (targetId: string, replacement: Json): Promise<Json> =>
        server.result("edit_context", { targetId, replacement });
      await edit("a", { content: "changed" });
      expect(await said(server)).toEqual(["changed", "b"]);
      await edit("a", null);
      expect(await said(server)).toEqual(["b"]);
      await server.result("branch", { entryId: "b" });
      expect(await said(server)).toEqual(["a", "b"]);
      await edit("a", { content: "again" });
      await server.result("compact_append", compact("b"));
      expect(await said(server)).toEqual(["the summary", "b"]);
      expect((await server.result("get_entry", { entryId: "a" })).entry.message.content).toBe("a");
    },
  },
  {
    id: "C12",
    fault: "calls without results, results without calls, results before calls",
    async run() {
      const place = [
        user("a"),
        calls("", "lost"),
        user("b"),
        toolResult("nobody", "r"),
        toolResult("late", "r"),
        calls("", "late"),
        user("c"),
        calls("", "open", "open2"),
      ];
      const { server, file } = serveLines(
        place.map((entry, n) => entryText("message", id(n), n === 0 ? null : id(n - 1), { message: entry.message })),
        { args: QUIET },
      );
      expect(pairingFaults((await server.result("get_messages")).messages)).not.toEqual([]);
      expect(pairingFaults((await server.result("get_context", { strict: true })).messages)).toEqual([]);
      const before = linesIn(file);
      const { answered } = await server.result("repair_session");
      expect(answered.length).toBeGreaterThan(0);
      expect(linesIn(file).slice(0, before.length)).toEqual(before);
      const added = linesIn(file)
        .slice(before.length)
        .map((line) => JSON.parse(line).message);
      expect(added.every(({ role, isError }) => role === "toolResult" && isError)).toBe(true);
      expect(added.map(({ toolCallId }) => toolCallId)).toEqual(["open", "open2"]);
    },
  },
  {
    id: "C14",
    fault: "a latest compaction that is malformed",
    async run() {
      const lines = [
        ...chain(3),
        compactionText(3, 2, { firstKeptEntryId: id(2) }),
        userText(id(4), id(3)),
        entryText("compaction", id(5), id(4), { summary: null, firstKeptEntryId: 7 }),
      ];
      const { server } = serveLines(lines, { args: QUIET });
      expect(await said(server)).toEqual(["summary 3", `say ${id(2)}`, `say ${id(4)}`]);
      await server.result("append", { entries: [user("next", { id: "next" })] });
      expect((await said(server)).at(-1)).toBe("next");
      expect(await damageKinds(server)).not.toContain("bad_line");
    },
  },
]);
