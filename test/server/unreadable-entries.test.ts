/** Entries that cannot be read when they are sent: each is named, or the request that asked for it fails alone. */

import { readFileSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { failingDisk, type Stroke } from "../support/failing.ts";
import { bodyFile, writeElsewhere } from "../support/other-programs.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;

function append(server: HereServer, ...entries: Json[]): Promise<Json> {
  return server.request("append", { entries });
}

acrossTiers(test, STORES)("entries appended unreadably to %s are named by ids, or a write fails", async (store) => {
  const outcomes = new Set<string>();
  for (let at = 1, isStruck = true; isStruck; at++) {
    let strikes = false;
    let count = 0;
    const strike = (_count: number, operation: string): Stroke | undefined =>
      strikes && operation === "read" && ++count === at ? "EIO" : undefined;
    const server = serveHere(["--store", store], { disk: failingDisk(strike).disk });
    await append(server, user("a", { id: "aaaaaaaa" }), assistant("b", { id: "bbbbbbbb" }));
    const { sessionFile } = await server.result("get_state");
    writeElsewhere(store, sessionFile, "ffffffff", "bbbbbbbb");
    strikes = true;
    const { error } = await append(server, user("c"));
    strikes = false;
    isStruck = count >= at;
    const { messages } = await server.finish();
    const event = [...server.events, ...messages].find(({ params }) => params?.origin === "foreign")?.params;
    if (error) expect(error.data.name).toBe("storage_failed");
    else expect(event).toMatchObject({ entryIds: ["ffffffff"] });
    outcomes.add(error ? "refused" : event.entries ? "told whole" : "told by ids");
  }
  expect([...outcomes].sort()).toEqual(["refused", "told by ids", "told whole"]);
});

/** Returns the damage in a server's events for its host. */
const damageIn = ({ events }: HereServer): Json[] =>
  events.flatMap(({ method, params }) => (method === "session_damage" ? params.damage : []));

/** Every way to look at a session. */
const READS: readonly (readonly [method: string, params?: Json])[] = [
  ["get_messages"],
  ["get_context", { strict: true, explain: true }],
  ["get_entries"],
  ["get_path"],
  ["get_tree", { format: "flat" }],
  ["get_tree", { format: "nested" }],
  ["get_fork_messages"],
  ["get_last_assistant_text"],
  ["get_session_stats"],
  ["prepare_compaction", { keepRecentTokens: 1 }],
  ["verify_session"],
  ["export_session", { format: "markdown" }],
  ["export_session", { format: "training" }],
  ["export_session", { format: "claude" }],
];

acrossTiers(describe, STORES)("an entry on %s whose bytes turn out to be damaged", (store) => {
  /** A server with one of each kind of entry that the context is made of, and so many after them that no opening looks. */
  async function filledServer(place = temporaryPlace()): Promise<{ server: HereServer; sessionFile: string }> {
    const before = serveHere(["--store", store], { place });
    const { entryIds } = await before.result("append", {
      entries: [
        user("first"),
        assistant("second"),
        { type: "custom_message", customType: "note", content: "third" },
        { type: "branch_summary", fromId: "a", summary: "fourth" },
        user("edited"),
        assistant("kept"),
      ],
    });
    await before.result("edit_context", { targetId: entryIds[4], replacement: { content: "fifth" } });
    await before.result("compact_append", { summary: "sixth", firstKeptEntryId: entryIds[1], tokensBefore: 1 });
    await before.result("append", { entries: Array.from({ length: 80 }, (_, n) => user(`after ${n}`)) });
    const { sessionFile } = await before.result("get_state");
    return { server: before, sessionFile };
  }

  /** Spoils the entry of a kind, and returns its id. */
  async function spoilKind(server: HereServer, sessionFile: string, kind: string): Promise<string> {
    const { entries } = await server.result("get_entries");
    const { id } = entries.find((entry: Json) => entry.type === kind || JSON.stringify(entry).includes(`"${kind}"`));
    spoil(bodyFile(store, sessionFile), id);
    return id;
  }

  async function spoiltServer(kind: string): Promise<HereServer> {
    const place = temporaryPlace();
    const { server, sessionFile } = await filledServer(place);
    await spoilKind(server, sessionFile, kind);
    await server.finish();
    return serveHere(["--session", sessionFile], { place });
  }

  /** Puts a brace where none can be, at the end of the entry's line. */
  function spoil(file: string, id: string): void {
    const text = readFileSync(file, "latin1");
    const at = text.indexOf(`"id":"${id}"`);
    const end = text.indexOf("\n", at);
    writeFileSync(file, `${text.slice(0, end - 3)}{{${text.slice(end - 1)}`, "latin1");
  }

  const SUMMARIES = new Set(["branch_summary", "compaction"]);

  test.each([
    ["kept", "get_context", { explain: true }],
    ["kept", "get_messages", { limit: 6 }],
    ["custom_message", "get_messages", {}],
    ["branch_summary", "get_messages", {}],
    ["context_edit", "get_messages", {}],
    ["compaction", "get_context", { strict: true }],
    ["kept", "get_session_stats", {}],
    ["kept", "get_entries", { limit: 8 }],
    ["kept", "get_tree", { format: "flat" }],
    ["kept", "get_tree", { format: "nested" }],
  ])("(%s) is told after the reply of %s, which is the same as when it is known", async (kind, command, params) => {
    const server = await spoiltServer(kind);
    const first = await server.result(command, params);
    const known = await server.result(command, params);
    expect(first).toEqual(known);
    const { diagnostics } = await server.result("get_state");
    expect(diagnostics).toContainEqual(expect.objectContaining({ kind: "bad_body" }));
    // Entries of the tree were read when it was opened, and get_state reports their damage from then on.
    if (!SUMMARIES.has(kind)) expect(damageIn(server)).toContainEqual(expect.objectContaining({ kind: "bad_body" }));
    // Nothing of it that is not its own is shown for it.
    for (const { role, content, summary } of known.messages ?? []) expect([role, content ?? summary]).not.toContain("");
    for (const { content, summary } of known.messages ?? []) expect(content ?? summary ?? "").not.toHaveLength(0);
  });

  acrossTiers(test, [
    { kind: "kept", each: 3 },
    ...["kept", "custom_message", "branch_summary", "context_edit", "compaction"].map((kind) => ({ kind, each: 1 })),
  ])(
    "($kind) while it is open, after all was read once, makes no command fail, and is told, one way in $each",
    async ({ kind, each }) => {
      const { server, sessionFile } = await filledServer();
      const reads = READS.filter((_, n) => n % each === 0);
      for (const [method, params] of reads) await server.request(method, params);
      const id = await spoilKind(server, sessionFile, kind);
      for (const [method, params] of reads)
        expect((await server.request(method, params)).error?.data.name, method).toBeUndefined();
      const { result, error } = await append(server, user("next"));
      // Under damage a container takes nothing more: its hash chain would go on from an unchecked entry.
      if (store === "v2") expect(error.data.name).toBe("corrupt");
      else expect((await server.result("get_path")).entries.at(-1)).toMatchObject({ id: result.leafId });
      expect((await server.result("get_entry", { entryId: id })).entry).toMatchObject({ id, damaged: true });
      const { diagnostics } = await server.result("get_state");
      expect(diagnostics).toContainEqual(expect.objectContaining({ kind: "bad_body", entryId: id }));
      expect(damageIn(server)).toContainEqual(expect.objectContaining({ kind: "bad_body", entryId: id }));
    },
  );
});
