/** Invariants after any sequence of appends, branches, compactions and edits (issue E, acceptance 2). */

import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { append } from "../support/asking.ts";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { needs } from "../support/needs.ts";
import { REFERENCE, REFERENCE_FOLDER } from "../support/programs.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";
import { calls, pairingFaults } from "../support/turns.ts";

const REAL = join(REFERENCE, "data/real-session-v1.jsonl");

/** A conversation on a server, and what its compactions summarised. */
class Conversation {
  readonly server: HereServer;
  readonly random: Random;
  /** Entries that a compaction took out of the context, by its id; and those that it passed over as left out. */
  private readonly spans = new Map<string, { summarised: Set<string>; passedOver: Set<string> }>();
  private callCount = 0;

  constructor(server: HereServer, random: Random) {
    this.server = server;
    this.random = random;
  }

  async step(): Promise<void> {
    const roll = this.random.next();
    if (roll < 0.6) await this.turn();
    else if (roll < 0.75) await this.compact();
    else if (roll < 0.87) await this.branch();
    else await this.edit();
  }

  private words(): string {
    return "word ".repeat(1 + this.random.int(30));
  }

  private async turn(): Promise<void> {
    const { random } = this;
    const entries = random.chance(0.8) ? [user(this.words())] : [];
    if (random.chance(0.2)) entries.push({ type: "thinking_level_change", thinkingLevel: "low" });
    if (random.chance(0.15)) entries.push({ type: "custom_message", customType: "note", content: this.words() });
    for (let answers = random.int(4); answers > 0; answers--) {
      const ids = Array.from({ length: random.int(4) }, () => `call-${++this.callCount}`);
      entries.push(ids.length === 0 ? assistant(this.words()) : calls("", ...ids));
      for (const id of ids) {
        if (random.chance(0.1)) entries.push(user("hurry"));
        if (random.chance(0.1)) entries.push({ type: "custom", customType: "state" });
        if (random.chance(0.9)) entries.push(toolResult(id, this.words()));
      }
    }
    if (entries.length > 0) await append(this.server, ...entries);
  }

  private async path(): Promise<Json[]> {
    return (await this.server.result("get_path")).entries;
  }

  private async branch(): Promise<void> {
    const { entries } = await this.server.result("get_entries");
    if (entries.length === 0) return;
    const { id } = this.random.pick(entries as Json[]);
    const summary = this.random.chance(0.3) ? { summary: { summary: "what was there" } } : {};
    await this.server.result("branch", { entryId: id, ...summary });
  }

  private async edit(): Promise<void> {
    const messages = (await this.path()).filter(({ type }) => type === "message");
    if (messages.length === 0) return;
    const replacement = this.random.chance(0.5) ? null : { content: this.words() };
    await this.server.result("edit_context", { targetId: this.random.pick(messages).id, replacement });
  }

  /** Compacts as a host does; what the preparation says must be what happens. */
  async compact(keepRecentTokens = this.random.int(150)): Promise<void> {
    const { server } = this;
    const plan = await server.result("prepare_compaction", { keepRecentTokens });
    expect(await server.result("prepare_compaction", { keepRecentTokens })).toEqual(plan);
    if (plan.firstKeptEntryId === null) return;
    const before = await server.result("get_context", { explain: true });
    const { firstKeptEntryId, tokensBefore, details } = plan;
    const compaction = { summary: "what was said", firstKeptEntryId, tokensBefore, details };
    const { entryId } = await server.result("compact_append", compaction);
    const after = await server.result("get_context");
    const left = new Set(after.entryIds);
    const gone = before.entryIds.map((id: string, index: number) => ({ id, message: before.messages[index] }));
    const summarised = gone.filter(({ id, message }: Json) => !left.has(id) && message.role !== "compactionSummary");
    expect([...plan.messagesToSummarize, ...plan.turnPrefixMessages]).toEqual(
      summarised.map(({ message }: Json) => message),
    );
    const leftOut = before.explain.filter(({ reason }: Json) => reason === "left_out");
    this.spans.set(entryId, {
      summarised: new Set(summarised.map(({ id }: Json) => id)),
      passedOver: new Set(leftOut.map((one: Json) => one.entryId)),
    });
    const again = await server.result("prepare_compaction", { keepRecentTokens });
    expect(again).toMatchObject({ messagesToSummarize: [], turnPrefixMessages: [], isSplitTurn: false });
  }

  async check(): Promise<void> {
    const path = await this.path();
    const context = await this.server.result("get_context", { explain: true });
    const shown = new Set<string>(context.entryIds);
    const spans = path.flatMap(({ id }) => this.spans.get(id) ?? []);
    for (const { entryId, in: isIn, reason } of context.explain) {
      expect(isIn).toBe(shown.has(entryId));
      const covered = spans.filter(({ summarised }) => summarised.has(entryId)).length;
      if (isIn) expect({ entryId, covered }).toEqual({ entryId, covered: 0 });
      // A compaction that another covers is known by that one's previous summary.
      else if (reason === "compacted" && !this.spans.has(entryId)) {
        const passedOver = spans.some((span) => span.passedOver.has(entryId));
        if (covered !== 1) expect({ entryId, covered, passedOver }).toEqual({ entryId, covered: 0, passedOver: true });
      } else expect(["not_for_model", "left_out", "compacted"]).toContain(reason);
    }
    this.checkPairs(path, context.explain);
    const strict = await this.server.result("get_context", { strict: true, explain: true });
    expect(pairingFaults(strict.messages)).toEqual([]);
    expect(strict.entryIds).toHaveLength(strict.messages.length);
  }

  /** A call and its result are both cut by a compaction, or neither is. */
  private checkPairs(path: Json[], explained: Json[]): void {
    const isCut = new Map(explained.map(({ entryId, reason }) => [entryId, reason === "compacted"]));
    let open = new Map<string, string>();
    for (const { id, message } of path) {
      if (message?.role === "assistant") {
        const blocks = Array.isArray(message.content) ? message.content : [];
        open = new Map(blocks.filter(({ type }: Json) => type === "toolCall").map((call: Json) => [call.id, id]));
      } else if (message?.role === "toolResult" && open.has(message.toolCallId))
        expect(isCut.get(id)).toBe(isCut.get(open.get(message.toolCallId) as string));
    }
  }
}

acrossTiers(test, [1, 5])(
  "nothing is lost between context and summaries, and calls stay with their results (%i)",
  async (count) => {
    await forSeedsAsync(count, async (random) => {
      const conversation = new Conversation(serveHere(["--no-session"]), random);
      for (let step = 0; step < 40; step++) {
        await conversation.step();
        if (step % 5 === 4) await conversation.check();
      }
    });
  },
);

test("the same on a real session", { ...SWEEP, ...needs(REFERENCE_FOLDER) }, async () => {
  await forSeedsAsync(1, async (random) => {
    const place = temporaryPlace();
    const file = join(place.home, "real.jsonl");
    copyFileSync(REAL, file);
    const conversation = new Conversation(serveHere(["--session", file], { place }), random);
    const { result } = await conversation.server.request("get_context", { strict: true });
    expect(pairingFaults(result.messages)).toEqual([]);
    for (const budget of [100_000, 20_000, 5000, 500]) {
      await conversation.compact(budget);
      await conversation.check();
      for (let step = 0; step < 5; step++) await conversation.step();
    }
    await conversation.check();
  });
});
