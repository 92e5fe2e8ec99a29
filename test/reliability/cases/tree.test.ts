/** T: the tree and its leaf. */

import { expect } from "vitest";
import { cases, damageKinds, fileOf, idsIn, linesIn, said, serveContent, serveLines } from "../../support/cases.ts";
import { assistant, toolCall, toolResult, user } from "../../support/drafts.ts";
import { chain, entryText, fileText, headerText, id, userText } from "../../support/lines.ts";
import { HereLives, imprint, isMarker } from "../../support/proof.ts";
import { runModel } from "../../support/proof-model.ts";
import { Random } from "../../support/random.ts";
import { type Json, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";

const QUIET = ["--events", "none"];

cases("T", [
  {
    id: "T1",
    fault: "a chain of 100,000 (a million in soak)",
    options: SWEEP,
    async run() {
      const { server } = serveLines(chain(100_000), { args: QUIET });
      const state = await server.result("get_state");
      expect([state.entryCount, state.messageCount, state.leafId]).toEqual([100_000, 100_000, id(99_999)]);
      expect((await server.result("get_path", { entryId: id(75_000) })).entries).toHaveLength(75_001);
      expect((await server.result("get_messages", { limit: 5 })).messages).toHaveLength(5);
      expect((await server.result("get_tree", { limit: 5 })).nodes).toHaveLength(5);
      await server.result("branch", { entryId: id(50_000) });
      await server.result("fork", { entryId: id(50_000) });
      expect((await server.result("get_state")).entryCount).toBe(50_000);
    },
  },
  {
    id: "T3",
    fault: "circles of one, two and many, on and off the path of the leaf",
    async run() {
      for (const length of [1, 2, 50])
        for (const onPath of [true, false]) {
          const circle = Array.from({ length }, (_, n) => userText(id(n), id((n + 1) % length)));
          const lines = onPath
            ? [...circle, userText(id(99), id(0))]
            : [...circle, userText(id(98), null), userText(id(99), id(98))];
          const { server } = serveContent(fileText(headerText(), ...lines));
          expect(await damageKinds(server)).toEqual(["cycle"]);
          expect((await said(server)).at(-1)).toBe(`say ${id(99)}`);
          expect(await said(server)).toHaveLength(onPath ? Math.max(2, length) : 2);
          await server.result("get_tree");
          await server.result("verify_session");
          await server.result("clone");
        }
      // One bad link, to a later entry, costs nothing else.
      const lines = chain(6).map((line, n) => (n === 1 ? userText(id(1), id(4)) : line));
      const { server } = serveContent(fileText(headerText(), ...lines));
      expect(await damageKinds(server)).toEqual(["cycle"]);
      expect(await said(server)).toEqual([1, 2, 3, 4, 5].map((n) => `say ${id(n)}`));
    },
  },
  {
    id: "T4",
    fault: "a parent that is nowhere; a link that is lost",
    async run() {
      const orphan = serveContent(
        fileText(headerText(), ...chain(2), userText(id(5), id(4)), userText(id(6), id(5))),
      ).server;
      expect(await said(orphan)).toEqual([`say ${id(5)}`, `say ${id(6)}`]);
      expect(await damageKinds(orphan)).toEqual(["missing_parent"]);
      expect(await idsIn(orphan)).toHaveLength(4);
      const lost = serveContent(
        fileText(headerText(), ...chain(2), "}{", userText(id(3), id(2)), userText(id(4), id(3))),
      ).server;
      expect(await said(lost)).toHaveLength(4);
      expect(await damageKinds(lost)).toContain("missing_parent");
    },
  },
  {
    id: "T5",
    fault: "several roots, and a branch before the first entry",
    async run() {
      const { server } = serveLines([...chain(2), userText(id(5), null), userText(id(6), id(5))], { args: QUIET });
      const { nodes } = await server.result("get_tree");
      expect(nodes.filter(({ parentId }: Json) => parentId === null).map((node: Json) => node.id)).toEqual([
        id(0),
        id(5),
      ]);
      expect(await said(server)).toEqual([`say ${id(5)}`, `say ${id(6)}`]);
      const { leafId, text } = await server.result("branch", { entryId: id(0), position: "before" });
      expect([leafId, text]).toEqual([null, `say ${id(0)}`]);
      await server.result("append", { entries: [user("edited")] });
      expect(await said(server)).toEqual(["edited"]);
    },
  },
  {
    id: "T6",
    fault: "a parent later in the file than its child",
    async run() {
      const [root, middle, end] = chain(3);
      const { server } = serveLines([end, root, middle], { args: QUIET });
      expect(await damageKinds(server)).toEqual([]);
      expect(await said(server, { leafId: id(2) })).toEqual([0, 1, 2].map((n) => `say ${id(n)}`));
      await server.result("clone");
      expect((await server.result("get_state")).entryCount).toBe(2);
    },
  },
  {
    id: "T7",
    fault: "a label or a name of another branch as the last line",
    async run() {
      for (const [type, rest] of [
        ["label", { targetId: id(0), label: "x" }],
        ["session_info", { name: "named" }],
      ] as const) {
        const lines = [...chain(3), entryText(type, id(9), id(0), rest)];
        const { server } = serveLines(lines, { args: QUIET });
        expect([(await server.result("get_state")).leafId, (await said(server)).length]).toEqual([id(2), 3]);
        expect(await damageKinds(server)).toEqual(["ambiguous_leaf"]);
      }
    },
  },
  {
    id: "T8",
    fault: "a move, no append, then an end, or kill -9",
    options: SYSTEM,
    async run() {
      const place = temporaryPlace();
      const file = fileOf(place, fileText(headerText(), ...chain(4)));
      const before = imprint(file);
      const killed = spawnServer(["--session", file, ...QUIET], "lines", place);
      expect(await killed.result("branch", { entryId: id(1) })).toMatchObject({ durable: true, leafId: id(1) });
      killed.process.kill("SIGKILL");
      await killed.exit;
      expect(imprint(file)).toEqual(before);
      const next = spawnServer(["--session", file, ...QUIET], "lines", place);
      expect((await next.result("get_state")).leafId).toBe(id(1));
      await next.result("branch", { entryId: id(2) });
      await next.finish();
      const added = linesIn(file).slice(5);
      expect(added.map((line) => isMarker(JSON.parse(line)))).toEqual([true]);
      const last = serveHere(["--session", file, ...QUIET], { place });
      expect((await last.result("get_state")).leafId).toBe(id(2));
      expect(await idsIn(last)).toHaveLength(4);
    },
  },
  {
    id: "T9",
    fault: "a move to a label, a compaction, a tool result, nowhere",
    async run() {
      const server = serveHere(["--no-session", ...QUIET]);
      const entries = [user("a", { id: "a" }), toolCall("c", { id: "b" }), toolResult("c", "r", { id: "c" })];
      await server.result("append", { entries });
      const label = (await server.result("set_label", { entryId: "a", label: "here" })).entryId;
      const compaction = (
        await server.result("compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 })
      ).entryId;
      for (const entryId of [label, compaction, "c", "a"]) {
        expect((await server.result("branch", { entryId })).leafId).toBe(entryId);
        const { entryIds } = await server.result("append", { entries: [user("next")] });
        expect((await server.result("get_entry", { entryId: entryIds[0] })).entry.parentId).toBe(entryId);
      }
      expect((await server.failure("branch", { entryId: "nowhere" })).data.name).toBe("entry_not_found");
    },
  },
  {
    id: "T10",
    fault: "a name or a label by a second host, while the conversation goes on",
    async run() {
      const { server, place, file } = serveLines(chain(3));
      await server.result("append", { entries: [user("mine", { id: "mine" })] });
      // Another program writes behind a leaf that is not the last any more.
      const { appendFileSync } = await import("node:fs");
      appendFileSync(
        file,
        fileText(
          entryText("session_info", id(8), id(1), { name: "theirs" }),
          entryText("label", id(9), id(8), { targetId: id(0), label: "l" }),
        ),
      );
      const { leafId } = await server.result("append", {
        entries: [user("next", { id: "next" })],
        expectedLeafId: "mine",
      });
      expect(leafId).toBe("next");
      expect((await server.result("get_entry", { entryId: "next" })).entry.parentId).toBe("mine");
      const told = server.events.filter(
        ({ method, params }) => method === "session_append" && params.origin === "foreign",
      );
      expect(told.map(({ params }) => [params.entryIds, params.leafId])).toEqual([[[id(8), id(9)], "mine"]]);
      expect((await server.result("get_state")).sessionName).toBe("theirs");
      expect((await server.result("get_entry", { entryId: id(0) })).label).toBe("l");
      expect(place.cwd).toBeTruthy();
    },
  },
  {
    id: "T11",
    fault: "labels set, cleared, twice, empty, large, on labels and unknown entries",
    async run() {
      const server = serveHere(["--no-session", ...QUIET]);
      await server.result("append", { entries: [user("a", { id: "a" })] });
      const labelOf = async (entryId: string): Promise<unknown> =>
        (await server.result("get_entry", { entryId })).label;
      const large = "x".repeat(1 << 20);
      for (const [label, expected] of [
        ["one", "one"],
        ["two", "two"],
        [null, null],
        [large, large],
        [null, null],
        ["", null],
      ]) {
        await server.request("set_label", { entryId: "a", label });
        expect(await labelOf("a")).toBe(expected);
      }
      const { entryId } = await server.result("set_label", { entryId: "a", label: "three" });
      await server.result("set_label", { entryId, label: "of a label" });
      expect(await labelOf(entryId)).toBe("of a label");
      expect((await server.failure("set_label", { entryId: "nowhere", label: "x" })).data.name).toBe("entry_not_found");
    },
  },
  {
    id: "T13",
    fault: "a branch summary that could name the wrong place",
    async run() {
      const server = serveHere(["--no-session", ...QUIET]);
      await server.result("append", {
        entries: [user("a", { id: "a" }), assistant("b", { id: "b" }), user("c", { id: "c" })],
      });
      const { summaryEntryId } = await server.result("branch", { entryId: "a", summary: { summary: "what was left" } });
      const { entry } = await server.result("get_entry", { entryId: summaryEntryId });
      expect(entry).toMatchObject({ type: "branch_summary", parentId: "a", fromId: "c" });
    },
  },
  {
    id: "T14",
    fault: "model, level and name where paths differ from the file's order",
    async run() {
      const model = (n: number, parent: number): string =>
        entryText("model_change", id(n), id(parent), { provider: "p", modelId: `m${n}` });
      const level = (n: number, parent: number): string =>
        entryText("thinking_level_change", id(n), id(parent), { thinkingLevel: `l${n}` });
      const lines = [
        ...chain(1),
        model(1, 0),
        level(2, 1),
        userText(id(3), id(0)),
        model(4, 3),
        level(5, 4),
        userText(id(6), id(2)),
      ];
      const { server } = serveLines(lines, { args: QUIET });
      const at = async (leafId: string): Promise<unknown> => {
        const { model, thinkingLevel } = await server.result("get_context", { leafId });
        return [model?.id ?? null, thinkingLevel];
      };
      expect(await at(id(6))).toEqual(["m1", "l2"]);
      expect(await at(id(5))).toEqual(["m4", "l5"]);
      expect(await at(id(3))).toEqual([null, "off"]);
    },
  },
  {
    id: "T15",
    fault: "random changes against a simple model, opened again and again (510,000 in soak)",
    options: SYSTEM,
    run: () => runModel(new Random(15), new HereLives({ seed: 15 }), 150),
  },
]);
