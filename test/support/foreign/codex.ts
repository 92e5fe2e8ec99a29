/** Files as Codex writes them, made up: every kind of line that it is known to write. */

import type { Random } from "../random.ts";
import { type Fields, LineWriter, moment, type Talker, talk } from "./writing.ts";

export const CODEX_SESSION = "01996f10-2222-7333-8444-555555555555";
export const CODEX_FILE = `/elsewhere/sessions/2026/09/14/rollout-2026-09-14T08-00-00-${CODEX_SESSION}.jsonl`;

export class CodexWriter extends LineWriter implements Talker {
  private calls = 0;
  private spent = 0;

  line(type: string, payload: unknown): void {
    this.records.push({ timestamp: moment(this.records.length), type, payload });
  }

  meta(more: Fields = {}): void {
    const program = { originator: "codex_cli_rs", cli_version: "0.169.0", source: "cli", model_provider: "openai" };
    const facts = { id: CODEX_SESSION, timestamp: moment(0), cwd: "/home/me/project", ...program };
    this.line("session_meta", { ...facts, base_instructions: { text: "You are" }, history_mode: "legacy", ...more });
  }

  item(type: string, members: Fields): void {
    this.line("response_item", { type, ...members });
  }

  event(type: string, members: Fields = {}): void {
    this.line("event_msg", { type, ...members });
  }

  ask(text: string): void {
    this.harness(text);
    this.event("user_message", { message: text, images: [] });
  }

  harness(text: string, role = "user", more: Fields = {}): void {
    this.item("message", { role, content: [{ type: "input_text", text }], ...more });
  }

  thought(text: string): void {
    const summary = text === "" ? [] : [{ type: "summary_text", text }];
    this.item("reasoning", { summary, content: null, encrypted_content: "Z0FBQUFB" });
    if (text !== "") this.event("agent_reasoning", { text });
  }

  reply(text: string): void {
    this.event("agent_message", { message: text });
    this.said(text);
    this.usage();
  }

  private said(text: string): void {
    this.item("message", { role: "assistant", content: [{ type: "output_text", text }] });
  }

  usage(): void {
    this.spent += 100;
    const [input, output] = [{ input_tokens: 100, cached_input_tokens: 60 }, { output_tokens: 20 }];
    const last_token_usage = { ...input, ...output, reasoning_output_tokens: 5, total_tokens: 120 };
    const total_token_usage = { ...last_token_usage, total_tokens: this.spent };
    const info = { total_token_usage, last_token_usage, model_context_window: 200000 };
    this.event("token_count", { info, rate_limits: null });
  }

  /** Adds calls and their results. */
  tools(count: number): void {
    this.call(Array.from({ length: count }, () => `call_${++this.calls}`));
  }

  private call(ids: readonly string[]): void {
    for (const id of ids)
      this.item("function_call", { name: "shell", arguments: JSON.stringify({ command: ["ls", id] }), call_id: id });
    this.usage();
    for (const id of ids) this.item("function_call_output", { call_id: id, output: `output ${id}` });
  }

  context(model: string, effort: string): void {
    this.line("turn_context", { cwd: "/home/me/project", approval_policy: "never", sandbox_policy: {}, model, effort });
  }

  work(text: string, ids: readonly string[], random?: Random): void {
    if (random?.chance(0.3)) this.context(random.pick(["gpt-5", "gpt-5-codex"]), random.pick(["low", "high"]));
    if (random?.chance(0.5) ?? true) this.thought("hm");
    this.said(text);
    this.call(ids);
  }
}

/** A session with every kind of line. */
export function wholeCodexSession(): CodexWriter {
  const w = new CodexWriter();
  w.meta();
  w.harness("<permissions instructions>no</permissions instructions>", "developer");
  w.harness("# AGENTS.md instructions for /home/me/project");
  w.harness("<environment_context><cwd>/home/me/project</cwd></environment_context>");
  w.harness("The shell", "user", {
    internal_chat_message_metadata_passthrough: { content_item_kinds: ["environments.environment_context"] },
  });
  w.event("task_started", { model_context_window: 200000 });
  w.context("gpt-5-codex", "medium");
  w.ask("List the files");
  w.thought("I look at them.");
  w.tools(2);
  w.reply("There is a.txt.");
  w.event("task_complete", { last_agent_message: "There is a.txt." });
  w.line("world_state", { state: {} });
  w.ask("A mistake");
  w.reply("Which?");
  w.event("thread_rolled_back", { num_turns: 1 });
  w.context("gpt-5-codex", "high");
  const picture = { type: "input_image", image_url: "data:image/png;base64,AAAA" };
  w.item("message", { role: "user", content: [{ type: "input_text", text: "A picture" }, picture] });
  w.thought("");
  const patch = { name: "apply_patch", input: "*** Begin Patch", call_id: "call_patch", status: "completed" };
  w.item("custom_tool_call", patch);
  w.item("custom_tool_call_output", { call_id: "call_patch", output: "Done" });
  w.item("local_shell_call", { call_id: "call_local", status: "completed", action: { type: "exec", command: ["ls"] } });
  w.item("function_call_output", { call_id: "call_local", output: [{ type: "input_text", text: "a.txt" }] });
  w.item("web_search_call", { status: "completed", action: { type: "search", query: "x" } });
  w.item("tool_search_call", { call_id: "call_search", arguments: "{}", execution: "client" });
  w.item("tool_search_output", { call_id: "call_search", tools: [] });
  w.item("image_generation_call", { id: "ig_1", status: "completed", result: "AAAA" });
  w.item("agent_message", { content: "from another agent" });
  w.reply("Patched.");
  w.event("turn_aborted", { reason: "interrupted" });
  w.harness("<turn_aborted>The user interrupted</turn_aborted>");
  const replacement_history = ["List the files", "A summary of it all"].map((text) => {
    return { type: "message", role: "user", content: [{ type: "input_text", text }] };
  });
  w.line("compacted", { message: "A summary of it all", replacement_history });
  w.event("context_compacted");
  w.ask("Go on");
  w.item("compaction", { encrypted_content: "AAAA" });
  w.event("thread_settings_applied", { settings: {} });
  w.event("thread_name_updated", { thread_name: "The name of it" });
  w.line("inter_agent_communication", { what: 1 });
  w.line("token_usage_record", { what: 1 });
  w.line("a_type_of_tomorrow", { what: 1 });
  w.reply("Yes.");
  return w;
}

export function randomCodexSession(random: Random, turns: number): CodexWriter {
  const begun = new CodexWriter();
  begun.meta();
  return talk(begun, random, turns, (w, turn) => {
    if (random.chance(0.2)) w.event("thread_rolled_back", { num_turns: 1 + random.int(2) });
    if (random.chance(0.1)) w.line("compacted", { message: `Summary ${turn}`, replacement_history: [] });
  });
}
