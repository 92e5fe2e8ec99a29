/** Sessions of ours at random: such as another agent's files can carry whole, and such as they cannot. */

import type { Fields as Members } from "../../../support/foreign/writing.ts";
import { headerText, id, TIME } from "../../../support/lines.ts";
import type { Random } from "../../../support/random.ts";

/** An entry, and the calls that are still to be answered after it. */
interface Made {
  readonly id: string;
  readonly parentId: string | null;
  readonly open: readonly { readonly id: string; readonly name: string }[];
  /** True if a compaction may keep from it on. */
  readonly isTurn: boolean;
  /** Entries since the last compaction on its path, and how long the path is. */
  readonly kept: readonly string[];
}

/** Texts with what readers of lines and of JSON trip over. */
const TEXTS = [
  "Look at it",
  "été 🎈",
  'a "quoted" \\ line\nand another',
  "\u0000 nul",
  "cut\u2028here\u2029",
  "<system-reminder>said by a person",
];

/** A picture of one pixel. */
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

export class SessionMaker {
  readonly lines: string[];
  readonly made: Made[] = [];
  private readonly random: Random;
  private readonly isCodex: boolean;
  private readonly isWild: boolean;
  private calls = 0;

  constructor(random: Random, agent: "claude" | "codex", isWild: boolean, header: Members = {}) {
    this.random = random;
    this.isCodex = agent === "codex";
    this.isWild = isWild;
    this.lines = [headerText(header)];
  }

  /** Adds an entry at the beginning. */
  begin(type: string, members: Members): void {
    this.add(undefined, type, members);
  }

  /** Adds so many entries and then, unless it is wild, the results that are missing. */
  make(count: number): this {
    const { random, made } = this;
    // A line begins once.
    const least = this.isCodex ? 0 : -1;
    for (let n = 0; n < count; n++) {
      const isOn = made.length > 0 && random.chance(0.8);
      const at = isOn ? made.length - 1 : least + random.int(made.length - least);
      this.step(made[at]);
    }
    if (this.isWild) return this;
    for (let at = 0; at < made.length; at++) {
      const isEnd = !made.some(({ parentId }) => parentId === made[at].id);
      if (isEnd && made[at].open.length > 0) this.result(made[at]);
    }
    return this;
  }

  get text(): string {
    return `${this.lines.join("\n")}\n`;
  }

  private step(parent: Made | undefined): void {
    const { random } = this;
    if (parent && parent.open.length > 0 && (!this.isWild || random.chance(0.6))) return this.result(parent);
    const roll = random.int(20);
    if (roll < 7) this.say(parent, this.user(), [], true);
    else if (roll < 13) this.answer(parent);
    else if (roll === 13) this.add(parent, "custom_message", this.note());
    else if (roll === 14) this.add(parent, "branch_summary", { fromId: id(0), summary: this.words() });
    else if (roll === 15) this.compaction(parent);
    else if (roll === 16) this.add(parent, "session_info", { name: `Name ${random.int(9)}` });
    else if (roll === 17) this.add(parent, "model_change", { provider: "anthropic", modelId: "other" });
    else if (roll === 18) this.say(parent, this.command());
    else if (this.isWild) this.strange(parent);
    else this.add(parent, "label", { targetId: parent?.id ?? id(0), label: "here" });
  }

  private say(parent: Made | undefined, message: Members, open: Made["open"] = [], isTurn = false): void {
    this.add(parent, "message", { message }, open, isTurn);
  }

  private add(parent: Made | undefined, type: string, members: Members, open: Made["open"] = [], isTurn = false): void {
    const own = id(this.made.length);
    const parentId = parent?.id ?? null;
    this.lines.push(JSON.stringify({ type, id: own, parentId, timestamp: TIME, ...members }));
    // An entry next to the conversation does not answer anything.
    const isMeta = ["label", "session_info", "model_change"].includes(type);
    const before = type === "compaction" ? [] : (parent?.kept ?? []);
    const kept = isTurn ? [...before, own] : before;
    this.made.push({ id: own, parentId, open: isMeta ? (parent?.open ?? []) : open, isTurn, kept });
  }

  private words(): string {
    const text = `${this.random.pick(TEXTS)} ${this.random.hex(6)}`;
    return this.isWild && this.random.chance(0.1) ? `${text} \ud83d half` : text;
  }

  private image(): Members {
    return { type: "image", data: PIXEL, mimeType: "image/png" };
  }

  private user(): Members {
    const { random } = this;
    const text = this.words();
    const more = random.chance(0.2) ? [this.image(), { type: "text", text: "and" }] : [];
    const blocks = [{ type: "text", text }, ...more];
    return { role: "user", content: random.chance(0.5) ? text : blocks, timestamp: Date.parse(TIME) };
  }

  private note(): Members {
    const customType = this.random.pick(["mine", "claude:meta", "codex:developer", "a.b c"]);
    return { customType, content: this.words(), display: this.random.chance(0.5) };
  }

  private command(): Members {
    const out = this.random.chance(0.2) ? { excludeFromContext: true } : {};
    return { role: "bashExecution", command: "ls", output: this.words(), exitCode: 0, ...out };
  }

  private thought(): Members {
    const thinking = this.words();
    if (!this.isCodex) return { type: "thinking", thinking, thinkingSignature: "c2lnbmF0dXJl" };
    const summary = [{ type: "summary_text", text: thinking }];
    const own = `rs_${this.random.hex(8)}`;
    const item = { type: "reasoning", id: own, summary, content: null, encrypted_content: "ZW5j" };
    return { type: "thinking", thinking, thinkingSignature: JSON.stringify(item) };
  }

  private call(): Members {
    this.calls++;
    const { isWild, random } = this;
    const odd = ["", "call_1", "call 2|fc_2", "x".repeat(90)];
    const own = isWild && random.chance(0.2) ? random.pick(odd) : `call_${this.calls}`;
    const name = isWild && random.chance(0.1) ? random.pick(["", "a.b", "日本"]) : "bash";
    return { type: "toolCall", id: own, name, arguments: { command: this.words(), n: [1, { deep: null }] } };
  }

  private answer(parent: Made | undefined): void {
    const { random } = this;
    const content: Members[] = [];
    if (random.chance(0.3)) content.push(this.thought());
    if (random.chance(0.8)) content.push({ type: "text", text: this.words() });
    for (let n = random.chance(0.5) ? 1 + random.int(3) : 0; n > 0; n--) content.push(this.call());
    if (content.every(({ type }) => type === "thinking") && !this.isWild) content.push({ type: "text", text: "Yes." });
    const usage = {
      input: 10,
      output: random.int(50),
      cacheRead: 5,
      cacheWrite: 0,
      totalTokens: 15,
      cost: { total: 0.5 },
    };
    const [api, provider] = this.isCodex ? ["openai-responses", "openai"] : ["anthropic-messages", "anthropic"];
    const calls = content.filter(({ type }) => type === "toolCall");
    const stopReason = calls.length > 0 ? "toolUse" : "stop";
    const said = { role: "assistant", content, api, provider, model: "a-model", usage };
    const open = calls.map((call) => ({ id: String(call.id), name: String(call.name) }));
    this.say(parent, { ...said, stopReason, timestamp: Date.parse(TIME) }, open, true);
  }

  private result(parent: Made): void {
    const { random } = this;
    const at = random.int(parent.open.length);
    const { id: toolCallId, name: toolName } = parent.open[at];
    const content: Members[] = [{ type: "text", text: this.words() }];
    if (random.chance(0.2)) content.push(this.image());
    const given = { role: "toolResult", toolCallId, toolName, content, isError: random.chance(0.2) };
    const open = parent.open.filter((_, n) => n !== at);
    this.say(parent, { ...given, timestamp: Date.parse(TIME) }, open);
  }

  private compaction(parent: Made | undefined): void {
    const { random, made } = this;
    const kept = parent?.kept ?? [];
    const own = id(made.length);
    const known = this.isWild && random.chance(0.3) ? made.map((one) => one.id) : kept;
    const firstKeptEntryId = known.length > 0 && random.chance(0.7) ? random.pick(known) : own;
    // With nothing before it, it is no compaction for others.
    if (kept.length > 0 || (parent && this.isWild))
      this.add(parent, "compaction", { summary: this.words(), firstKeptEntryId, tokensBefore: 900 });
  }

  /** Adds something that other agents cannot have, or that is no part of a sound session. */
  private strange(parent: Made | undefined): void {
    const { random } = this;
    const targetId = parent?.id ?? id(0);
    const contents = [null, 7, [], [null, { type: "weird" }], "  "];
    const answers = [null, "text", [], [{ type: "thinking", thinking: "x" }], [{ type: "toolCall" }]];
    const data = [
      null,
      { type: "attachment", uuid: "u", attachment: {} },
      { type: "system", uuid: 7 },
      { type: "response_item", payload: { type: "web_search_call" } },
    ];
    const ways: (() => void)[] = [
      () => this.add(parent, "context_edit", { targetId, replacement: random.pick([null, { content: "edited" }]) }),
      () => this.say(parent, { role: "toolResult", toolCallId: "nobody", toolName: "x", content: "y" }),
      () => this.say(parent, { role: random.pick(["system", "alien", ""]), content: this.words() }),
      () => this.say(parent, { role: "user", content: random.pick<unknown>(contents) }),
      () => this.say(parent, { role: "assistant", content: random.pick<unknown>(answers) }),
      () => this.say(parent, { role: "assistant", content: [], stopReason: "error", errorMessage: "overloaded" }),
      () =>
        this.add(parent, "custom", {
          customType: random.pick(["import:claude", "import:codex"]),
          data: random.pick<unknown>(data),
        }),
      () => this.add(parent, "custom_message", { customType: 7, content: { a: 1 } }),
      () => this.add(parent, "compaction", { summary: random.pick([null, "short"]), firstKeptEntryId: "gone" }),
      () => this.add(parent, "session_info", { name: random.pick([null, 7, "n\nm"]) }),
      () => this.add(parent, "invented", { parentId: "also", deep: [[[[]]]] }),
    ];
    random.pick(ways)();
  }
}
