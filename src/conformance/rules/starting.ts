/** Rules about the beginning and the end of a server. */

import { isJsonrpc } from "../combination.ts";
import type { Conversation } from "../conversation.ts";
import { isThere, readBytes, writeTo } from "../files.ts";
import { defineTheme } from "../row.ts";
import type { Rule } from "../rule.ts";
import {
  append,
  getEntries,
  getState,
  makeAssistant,
  makeSession,
  makeUser,
  mustBeThere,
  mustHaveBytes,
  openSessionAt,
  requireFile,
  requirePath,
} from "../steps.ts";
import { NotApplicable } from "../verdict.ts";

/** Checks that a server ends with 0. */
async function mustEnd(conversation: Conversation, expected: string): Promise<void> {
  const { status, signal } = await conversation.ended(expected);
  conversation.must(status === 0, "the exit status 0", signal ?? String(status));
}

/** The rule without which no other can be checked. */
export const FIRST_RULE: Rule = {
  name: "first-reply",
  title: "The first message decides framing and dialect, and its reply comes in the same; it need not be initialize.",
  source: "Dialects",
  async run(context) {
    const conversation = await context.plain();
    const reply = await conversation.ask("get_state");
    reply.string("sessionId");
  },
};

export const startingTheme = defineTheme("starting", [
  FIRST_RULE,
  {
    name: "start-event-first",
    title: "session_start for the first session comes before the first reply.",
    source: "Order",
    async check(conversation) {
      await conversation.ask("get_state");
      const [first, second] = conversation.opening;
      const isStart = first.kind === "event" && first.name === "session_start";
      conversation.must(isStart, "session_start before the first reply", first.text);
      conversation.must(first.value.reason === "startup", "the reason startup", first.text);
      conversation.must(second.kind === "reply", "the first reply next", second.text);
    },
  },
  {
    name: "initialize-first",
    title: "Nothing comes before the reply to initialize; session_start comes after it.",
    source: "Order",
    on: "hooked",
    async check(conversation) {
      const { opening } = conversation;
      conversation.must(opening[0].kind === "reply", "the reply to initialize first", opening[0].text);
      await conversation.ask("get_state");
      const start = opening.findIndex(({ name }) => name === "session_start");
      conversation.must(start === 1, "session_start next", opening[1]?.text ?? "nothing");
    },
  },
  {
    name: "silent-stderr",
    title: "stderr is silent unless something is wrong.",
    source: "Starting and ending",
    given: ["Hello"],
    async check(conversation) {
      await getEntries(conversation);
      conversation.must(conversation.complaints === "", "nothing on stderr", conversation.complaints);
    },
  },
  {
    name: "new-session",
    title: "A new session has its id and path at once; its file is created with its first conversation entry.",
    source: "Starting and ending",
    given: [],
    async check(conversation) {
      const path = await requirePath(conversation);
      mustBeThere(conversation, path, false, "before the first entry");
      await append(conversation, makeUser("Hello"));
      mustBeThere(conversation, path, true, "with the first entry");
    },
  },
  {
    name: "settings-wait",
    title: "A name, model or level that is set before the first entry waits in memory, and is there with it.",
    source: "Starting and ending",
    given: [],
    async check(conversation) {
      const path = await requirePath(conversation);
      await conversation.run("set_session_name", { name: "Waiting" });
      await conversation.run("set_thinking_level", { level: "high" });
      mustBeThere(conversation, path, false, "before the first conversation entry");
      await append(conversation, makeUser("Hello"));
      const { entries, reply } = await getEntries(conversation);
      const types = entries.map(({ type }) => type);
      const areThere = ["session_info", "thinking_level_change", "message"].every((type) => types.includes(type));
      reply.must(areThere, "the name, the level and the message among the entries");
    },
  },
  {
    name: "end-of-input",
    title: "A server whose input ends answers everything that it received, makes it durable, and ends with 0.",
    source: "Starting and ending",
    on: "own",
    async check(conversation, _ids, context) {
      const { sessionFile } = await getState(conversation);
      const ids = conversation.begin(
        ["append", { entries: [makeUser("Last words")] }],
        ["get_state"],
        ["get_entries"],
        ["append", { entries: [makeAssistant("Really the last")] }],
      );
      const { status } = await conversation.finish();
      for (const id of ids) void (await conversation.replyTo(id)).result;
      conversation.must(status === 0, "the exit status 0", String(status));
      if (typeof sessionFile !== "string") return;
      const other = await context.plain();
      await openSessionAt(other, sessionFile);
      const { entries, reply } = await getEntries(other);
      const isThere = JSON.stringify(entries).includes("Really the last");
      reply.must(isThere, "what was appended before the end of the input");
    },
  },
  {
    name: "shutdown",
    title: "shutdown answers everything received before it, and ends the server with 0.",
    source: "shutdown",
    on: "own",
    async check(conversation) {
      const entries = [makeUser("Before the end")];
      for (const id of conversation.begin(["append", { entries }], ["get_entries"], ["shutdown"]))
        void (await conversation.replyTo(id)).result;
      await mustEnd(conversation, "that the server ends after shutdown");
    },
  },
  {
    name: "exit-notification",
    title: "exit ends the server as a notification, too.",
    source: "exit",
    applies: isJsonrpc,
    on: "own",
    async check(conversation) {
      await append(conversation, makeUser("Before the end"));
      conversation.notify(["exit"]);
      await mustEnd(conversation, "that the server ends after exit");
    },
  },
  {
    name: "sigterm",
    title: "A server that gets SIGTERM ends in order, with 0.",
    source: "Starting and ending",
    on: "own",
    async check(conversation) {
      if (process.platform === "win32") throw new NotApplicable("the system has no such signals");
      await append(conversation, makeUser("Before the end"));
      conversation.signal("SIGTERM");
      await mustEnd(conversation, "that the server ends after SIGTERM");
    },
  },
  {
    name: "unopenable-session",
    title: "Where the requested session cannot be opened, its commands fail, and new_session works.",
    source: "Starting and ending",
    async check(_conversation, _ids, context) {
      if (!context.takesSession) throw new NotApplicable("the command has no {session}, so it opens none");
      const path = `${context.folder}/no-session.jsonl`;
      const text = "This is no session.\n";
      writeTo(path, text);
      const conversation = context.start(path);
      const state = await conversation.ask("get_state");
      state.must(state.isFailure, "that commands on the session fail");
      await makeSession(conversation);
      await append(conversation, makeUser("Hello"));
      mustHaveBytes(conversation, path, Buffer.from(text));
    },
  },
  {
    name: "fork-exists",
    title: "A session that fork or clone returns exists on disk before the reply, and its source is unchanged.",
    source: "Starting and ending",
    given: ["One", "Two"],
    async check(conversation, [, , entryId]) {
      const source = await requireFile(conversation);
      const before = readBytes(source);
      const fork = await conversation.ask("fork", { entryId });
      fork.must(fork.result.cancelled === false, "`cancelled: false`");
      const made = await requirePath(conversation);
      fork.must(made !== source && isThere(made), `a file of the fork at ${made}`);
      mustHaveBytes(conversation, source, before, true);
      await conversation.run("clone");
      const cloned = await requirePath(conversation);
      fork.must(cloned !== made && isThere(cloned), `a file of the clone at ${cloned}`);
    },
  },
]);
