/** Exports as Goose writes them, made up: every kind of message and content that it is known to have. */

import type { Random } from "../random.ts";
import { type Fields, type Talker, talk } from "./writing.ts";

export const GOOSE_SESSION = "20260914_3";
/** A message's readers: the user and the agent. */
export const BOTH = { userVisible: true, agentVisible: true };
export const PERSON_ONLY = { userVisible: true, agentVisible: false };
export const MODEL_ONLY = { userVisible: false, agentVisible: true };
const NOBODY = { userVisible: false, agentVisible: false };

export class GooseWriter implements Talker {
  session: Fields = {
    id: GOOSE_SESSION,
    working_dir: "/home/me/project",
    name: "A made-up session",
    user_set_name: true,
    session_type: "user",
    created_at: "2026-09-14T08:00:00Z",
    updated_at: "2026-09-14T09:00:00Z",
    extension_data: {},
    total_tokens: 500,
  };
  after: Fields = { message_count: 0, provider_name: "anthropic", model_config: { model_name: "claude-sonnet-4-5" } };
  readonly conversation: Fields[] = [];

  get text(): string {
    return `${JSON.stringify({ ...this.session, conversation: this.conversation, ...this.after }, null, 2)}\n`;
  }

  get lines(): string[] {
    return this.text.trimEnd().split("\n");
  }

  user(content: readonly Fields[], metadata: Fields = BOTH, more: Fields = {}): void {
    this.add("user", content, metadata, more);
  }

  answer(content: readonly Fields[], metadata: Fields = BOTH, more: Fields = {}): void {
    this.add("assistant", content, metadata, more);
  }

  /** Hides all that was said from the model, as a compaction does, and adds what a compaction leaves. */
  compact(summary: string): void {
    for (const message of this.conversation) {
      const { userVisible } = message.metadata as { userVisible: boolean };
      message.metadata = { userVisible, agentVisible: false };
    }
    this.user([said(summary)], MODEL_ONLY);
    this.answer([said("Go on as if nothing was")], MODEL_ONLY);
  }

  ask(text: string): void {
    this.user([said(text)]);
  }

  work(text: string, ids: readonly string[], random?: Random): void {
    this.answer([...(random ? [] : [thought("hm")]), said(text), ...ids.map((id) => asked(id))]);
    const given = ids.map((id) => answered(id, [said(`output ${id}`)]));
    if (random?.chance(0.5)) for (const one of given) this.user([one]);
    else this.user(given);
  }

  reply(text: string): void {
    this.answer([said(text)]);
  }

  private add(role: string, content: readonly Fields[], metadata: Fields, more: Fields): void {
    const n = this.conversation.length;
    const created = Date.UTC(2026, 8, 14, 8) / 1000 + n;
    this.conversation.push({ id: `msg_${n}`, role, created, content, metadata, ...more });
  }
}

export function said(text: string, more: Fields = {}): Fields {
  return { type: "text", text, ...more };
}

function thought(thinking: string): Fields {
  return { type: "thinking", thinking, signature: "c2ln" };
}

export function asked(id: string): Fields {
  const value = { name: "developer__shell", arguments: { command: "ls" } };
  return { type: "toolRequest", id, toolCall: { status: "success", value } };
}

export function answered(id: string, content: readonly Fields[], more: Fields = {}): Fields {
  return { type: "toolResponse", id, toolResult: { status: "success", value: { content, isError: false, ...more } } };
}

/** A session with every kind of message and content. */
export function wholeGooseExport(): GooseWriter {
  const w = new GooseWriter();
  w.session = { ...w.session, accumulated_input_tokens: 1200, accumulated_output_tokens: 300, accumulated_cost: 0.5 };
  w.user([said("List the files"), { type: "image", data: "AAAA", mimeType: "image/png" }]);
  w.answer([thought("I think"), said("I look."), asked("a"), asked("b")]);
  const forPerson = said("drawn", { annotations: { audience: ["user"], priority: 0 } });
  w.user([
    answered("a", [said("a.txt", { annotations: { audience: ["assistant"] } }), forPerson]),
    answered("b", [{ type: "resource", resource: { uri: "file:///x", text: "in it" } }], {
      structuredContent: { n: 1 },
    }),
  ]);
  w.answer([{ type: "redactedThinking", data: "b3BhcXVl" }, { type: "reasoning", text: "More" }, said("One.")]);
  w.user([said("And this")]);
  w.answer([{ type: "thinking", thinking: "no signature", signature: "" }]);
  w.answer([said("In "), said("two")], BOTH, { id: "chatcmpl-1" });
  w.answer([said("pieces."), asked("c")], BOTH, { id: "chatcmpl-1" });
  w.answer([{ type: "actionRequired", data: { actionType: "toolConfirmation", id: "c", toolName: "x" } }], PERSON_ONLY);
  w.user([{ type: "actionRequired", data: { actionType: "elicitationResponse", id: "c", userData: {} } }], PERSON_ONLY);
  w.user([{ type: "toolResponse", id: "c", toolResult: { status: "error", error: "-32603: it broke" } }, said("Stop")]);
  w.answer([{ type: "toolRequest", id: "d", toolCall: { status: "error", error: "-32700: no JSON" } }]);
  w.user([{ type: "toolResponse", id: "d", toolResult: { status: "success", value: [said("an older form")] } }]);
  w.answer([{ type: "toolConfirmationRequest", id: "e", toolName: "x", arguments: {} }]);
  w.answer([{ type: "frontendToolRequest", id: "f", toolCall: { status: "success", value: { name: "page" } } }]);
  w.user([answered("f", [])]);
  w.answer([{ type: "systemNotification", notificationType: "inlineMessage", msg: "compacting" }], PERSON_ONLY);
  w.compact("The first summary");
  w.user([said("Go on")]);
  w.answer([asked("g")], {
    ...BOTH,
    inference: { provider: "openai", requestedModel: "gpt-5", resolvedModel: "gpt-5-2026" },
    usage: { inputTokens: 1000, outputTokens: 50, totalTokens: 1050, cacheReadTokens: 900, cost: 0.25 },
  });
  w.user([answered("g", [said("done")])]);
  w.user([said("The last before the second")]);
  w.compact("The second summary");
  (w.conversation.at(-3) as Fields).metadata = NOBODY;
  w.user([said("The last before the second")]);
  w.user([said("Only for the model")], MODEL_ONLY);
  w.answer([{ type: "error", kind: "authentication", message: "401" }], PERSON_ONLY);
  w.answer([{ type: "of-tomorrow", x: 1 }, said("and text")]);
  w.user([{ type: "of-tomorrow", x: 1 }]);
  w.user([]);
  w.answer([]);
  w.user([said("without an id")], BOTH, { id: null });
  w.user([said("without an id")], BOTH, { id: null });
  return w;
}

/** A long session of turns in any order. */
export function randomGooseExport(random: Random): GooseWriter {
  return talk(new GooseWriter(), random, 4, (w, turn) => {
    if (random.chance(0.2)) w.compact(`Summary ${turn}`);
  });
}
