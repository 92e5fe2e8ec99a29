/** Rules about the beginning and the end of a server. */

import { isJsonrpc } from "../combination.ts";
import { isThere, readBytes, writeTo } from "../files.ts";
import type { Rule, Theme } from "../rule.ts";
import {
  append,
  getEntries,
  getState,
  makeAssistant,
  makeSession,
  makeUser,
  openSessionAt,
  requireFile,
  requirePath,
} from "../steps.ts";
import { NotApplicable } from "../verdict.ts";

/** The rule without which no other can be checked. */
export const FIRST_RULE: Rule = {
  name: "first-reply",
  title: "The first message decides framing and dialect, and its reply comes in the same.",
  source: "Dialects",
  async run(context) {
    const conversation = await context.plain();
    const reply = await conversation.ask("get_state");
    reply.string("sessionId");
  },
};

export const startingTheme: Theme = {
  name: "starting",
  rules: [
    FIRST_RULE,
    {
      name: "start-event-first",
      title: "session_start for the first session comes before the first reply.",
      source: "Order",
      async run(context) {
        const conversation = await context.plain();
        await conversation.ask("get_state");
        const [first, second] = conversation.opening;
        const isStart = first.kind === "event" && first.name === "session_start";
        if (!isStart) throw conversation.broken("session_start before the first reply", first.text);
        if (first.value.reason !== "startup") throw conversation.broken("the reason startup", first.text);
        if (second.kind !== "reply") throw conversation.broken("the first reply next", second.text);
      },
    },
    {
      name: "initialize-first",
      title: "Nothing comes before the reply to initialize; session_start comes after it.",
      source: "Order",
      async run(context) {
        const conversation = await context.hooked();
        const [first] = conversation.opening;
        if (first.kind !== "reply") throw conversation.broken("the reply to initialize first", first.text);
        await conversation.ask("get_state");
        const start = conversation.opening.findIndex(({ name }) => name === "session_start");
        if (start !== 1) throw conversation.broken("session_start next", conversation.opening[1]?.text ?? "nothing");
      },
    },
    {
      name: "silent-stderr",
      title: "stderr is silent unless something is wrong.",
      source: "Starting and ending",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        await append(conversation, makeUser("Hello"), makeAssistant("Hello"));
        await getEntries(conversation);
        if (conversation.complaints !== "") throw conversation.broken("nothing on stderr", conversation.complaints);
      },
    },
    {
      name: "new-session",
      title: "A new session has its id and path at once; its file is created with its first conversation entry.",
      source: "Starting and ending",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const path = await requirePath(conversation);
        if (isThere(path)) throw conversation.broken("no file before the first entry", `${path} is there`);
        await append(conversation, makeUser("Hello"));
        if (!isThere(path)) throw conversation.broken("a file with the first entry", `${path} is not there`);
      },
    },
    {
      name: "settings-wait",
      title: "A name, model or level that is set before the first entry waits in memory, and is there with it.",
      source: "Starting and ending",
      needs: ["set_session_name", "set_thinking_level"],
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const path = await requirePath(conversation);
        void (await conversation.ask("set_session_name", { name: "Waiting" })).result;
        void (await conversation.ask("set_thinking_level", { level: "high" })).result;
        if (isThere(path)) throw conversation.broken("no file before the first conversation entry", `${path} is there`);
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
      async run(context) {
        const conversation = context.start();
        const { sessionFile } = await getState(conversation);
        const ids = conversation.begin(
          ["append", { entries: [makeUser("Last words")] }],
          ["get_state"],
          ["get_entries"],
          ["append", { entries: [makeAssistant("Really the last")] }],
        );
        const { status } = await conversation.finish();
        for (const id of ids) void (await conversation.replyTo(id)).result;
        if (status !== 0) throw conversation.broken("the exit status 0", String(status));
        if (typeof sessionFile !== "string") return;
        const other = await context.plain();
        await openSessionAt(other, sessionFile);
        const { entries, reply } = await getEntries(other);
        reply.must(
          JSON.stringify(entries).includes("Really the last"),
          "what was appended before the end of the input",
        );
      },
    },
    {
      name: "shutdown",
      title: "shutdown answers everything received before it, and ends the server with 0.",
      source: "shutdown",
      needs: ["shutdown"],
      async run(context) {
        const conversation = context.start();
        const [first, second, last] = conversation.begin(
          ["append", { entries: [makeUser("Before the end")] }],
          ["get_entries"],
          ["shutdown"],
        );
        void (await conversation.replyTo(first)).result;
        void (await conversation.replyTo(second)).result;
        void (await conversation.replyTo(last)).result;
        const { status } = await conversation.ended("that the server ends after shutdown");
        if (status !== 0) throw conversation.broken("the exit status 0", String(status));
      },
    },
    {
      name: "exit-notification",
      title: "exit ends the server as a notification, too.",
      source: "exit",
      needs: ["exit"],
      applies: isJsonrpc,
      async run(context) {
        const conversation = context.start();
        await append(conversation, makeUser("Before the end"));
        conversation.send(conversation.dialect.request(undefined, "exit"));
        const { status } = await conversation.ended("that the server ends after exit");
        if (status !== 0) throw conversation.broken("the exit status 0", String(status));
      },
    },
    {
      name: "sigterm",
      title: "A server that gets SIGTERM ends in order, with 0.",
      source: "Starting and ending",
      async run(context) {
        if (process.platform === "win32") throw new NotApplicable("the system has no such signals");
        const conversation = context.start();
        await append(conversation, makeUser("Before the end"));
        conversation.signal("SIGTERM");
        const { status, signal } = await conversation.ended("that the server ends after SIGTERM");
        if (status !== 0) throw conversation.broken("the exit status 0", signal ?? String(status));
      },
    },
    {
      name: "unopenable-session",
      title: "Where the requested session cannot be opened, its commands fail, and new_session works.",
      source: "Starting and ending",
      async run(context) {
        if (!context.takesSession) throw new NotApplicable("the command has no {session}, so it opens none");
        const path = `${context.folder}/no-session.jsonl`;
        const text = "This is no session.\n";
        writeTo(path, text);
        const conversation = context.start(path);
        const state = await conversation.ask("get_state");
        state.must(state.isFailure, "that commands on the session fail");
        await makeSession(conversation);
        await append(conversation, makeUser("Hello"));
        if (!readBytes(path).equals(Buffer.from(text)))
          throw conversation.broken("the file as it was", readBytes(path).toString());
      },
    },
    {
      name: "fork-exists",
      title: "A session that fork or clone returns exists on disk before the reply, and its source is unchanged.",
      source: "Starting and ending",
      needs: ["fork", "clone"],
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const [, , second] = await append(conversation, makeUser("One"), makeAssistant("1"), makeUser("Two"));
        const source = await requireFile(conversation);
        const before = readBytes(source);
        const fork = await conversation.ask("fork", { entryId: second });
        fork.must(fork.result.cancelled === false, "`cancelled: false`");
        const made = await requirePath(conversation);
        fork.must(made !== source && isThere(made), `a file of the fork at ${made}`);
        fork.must(readBytes(source).subarray(0, before.length).equals(before), "all bytes of the source as they were");
        void (await conversation.ask("clone")).result;
        const cloned = await requirePath(conversation);
        fork.must(cloned !== made && isThere(cloned), `a file of the clone at ${cloned}`);
      },
    },
  ],
};
