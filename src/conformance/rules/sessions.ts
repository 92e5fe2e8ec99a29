/** Rules about several sessions, and about sessions as a whole. */

import { isJsonrpc } from "../combination.ts";
import type { Conversation } from "../conversation.ts";
import { isFileAt, isThere, readBytes, writeTo } from "../files.ts";
import type { RuleContext, Theme } from "../rule.ts";
import {
  append,
  getEntries,
  getState,
  isEqual,
  makeCustom,
  makeSession,
  makeTurns,
  makeUser,
  mustHaveEntries,
  openSessionAt,
  requireFile,
  requirePath,
} from "../steps.ts";

/** Makes a session with a text, leaves it, and returns its path and its id. */
async function leftSession(
  conversation: Conversation,
  text: string,
): Promise<{ path: string; sessionId: string; ids: string[] }> {
  const ids = await makeTurns(conversation, text);
  const path = await requirePath(conversation);
  const { sessionId } = await getState(conversation);
  await makeSession(conversation);
  return { path, sessionId, ids };
}

/** Returns a word that no other session has. */
function word(context: RuleContext, beginning: string): string {
  return `${beginning}${context.combination.framing}${context.combination.dialect}`;
}

export const sessionsTheme: Theme = {
  name: "sessions",
  rules: [
    {
      name: "switch-back",
      title: "switch_session makes another session the current one, with its leaf.",
      source: "switch_session",
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One");
        const path = await requirePath(conversation);
        await makeTurns(conversation, "Two");
        const reply = await openSessionAt(conversation, path);
        reply.must(reply.result.cancelled === false && reply.result.leafId === ids[1], `the leaf ${ids[1]}`);
        await mustHaveEntries(conversation, ids);
      },
    },
    {
      name: "several-open",
      title: "open_session opens a session besides the current one; commands reach it by its sessionId.",
      source: "open_session",
      needs: ["open_session", "close_session", "list_open_sessions"],
      async run(context) {
        const conversation = await context.plain();
        const left = await leftSession(conversation, "One");
        const current = (await getState(conversation)).sessionId;
        const opened = await conversation.ask("open_session", { sessionPath: left.path });
        opened.must(opened.string("sessionId") === left.sessionId, `the sessionId ${left.sessionId}`);
        const { sessionId } = left;
        const written = await conversation.ask("append", { entries: [makeCustom(1)], sessionId });
        const read = await conversation.ask("get_entries", { sessionId });
        read.must(read.list("entries").length === 3, "three entries in the session that was named");
        const own = await conversation.ask("get_entries");
        own.must(own.list("entries").length === 0, "none in the current one");
        const list = await conversation.ask("list_open_sessions");
        const [first, ...others] = list.list("sessions");
        list.must(first?.sessionId === current && first.current === true, "the current session first");
        list.must(
          others.some((other) => other?.sessionId === sessionId),
          `the session ${sessionId}`,
        );
        void (await conversation.ask("close_session", { sessionId })).result;
        (await conversation.ask("get_entries", { sessionId })).mustFail("session_not_found");
        void written.result;
      },
    },
    {
      name: "no-session",
      title: "When the current session is closed, commands on it fail with no_session until another is current.",
      source: "close_session",
      needs: ["close_session"],
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        void (await conversation.ask("close_session")).result;
        (await conversation.ask("get_entries")).mustFail("no_session");
        await makeSession(conversation);
        void (await conversation.ask("get_entries")).result;
      },
    },
    {
      name: "listed",
      title: "list_sessions lists a session with its path, its first message and the number of its messages.",
      source: "list_sessions",
      needs: ["list_sessions"],
      async run(context) {
        const conversation = await context.plain();
        const { path, sessionId } = await leftSession(conversation, "List me");
        const reply = await conversation.ask("list_sessions");
        const found = reply.list("sessions").find((session) => session?.sessionId === sessionId);
        reply.must(found !== undefined, `the session ${sessionId}`);
        reply.must(found.sessionPath === path, `its path ${path}`);
        reply.must(found.firstMessage === "List me" && found.messageCount === 2, "its first message, and two messages");
        const one = await conversation.ask("list_sessions", { limit: 1 });
        one.must(one.list("sessions").length === 1, "one session with the limit 1");
        one.must(Number.isInteger(one.result.total) && one.result.total >= 1, "the total of all pages");
      },
    },
    {
      name: "searched",
      title: "search_sessions finds messages that contain all words, in any case.",
      source: "search_sessions",
      needs: ["search_sessions"],
      async run(context) {
        const conversation = await context.plain();
        const rare = word(context, "Quokka");
        const { sessionId, ids } = await leftSession(conversation, `A ${rare} on the island`);
        const reply = await conversation.ask("search_sessions", {
          query: `ISLAND ${rare.toLowerCase()}`,
          role: "user",
        });
        const hit = reply.list("hits").find((found) => found?.sessionId === sessionId);
        reply.must(hit?.entryId === ids[0] && hit.role === "user", `the message ${ids[0]} of the session ${sessionId}`);
        const none = await conversation.ask("search_sessions", { query: `${rare} volcano` });
        none.must(none.list("hits").length === 0, "no hit, because no message has both words");
      },
    },
    {
      name: "family",
      title: "get_session_family returns the sessions that come from the same one, parents first.",
      source: "get_session_family",
      needs: ["get_session_family", "fork"],
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        await requirePath(conversation);
        const parent = (await getState(conversation)).sessionId;
        void (await conversation.ask("fork", { entryId: ids[2] })).result;
        const child = (await getState(conversation)).sessionId;
        const reply = await conversation.ask("get_session_family");
        reply.must(reply.result.root === parent, `the root ${parent}`);
        const order = reply.list("nodes").map(({ sessionId }) => sessionId);
        reply.must(isEqual(order, [parent, child]), `the sessions ${parent} and ${child}`);
      },
    },
    {
      name: "expected-session",
      title: "A sessionId that is not open is refused with session_not_found.",
      source: "Failures",
      async run(context) {
        const conversation = await context.plain();
        const sessionId = "01991f6e-1f1d-7c3e-b0a4-ffffffffffff";
        (await conversation.ask("get_entries", { sessionId })).mustFail("session_not_found");
        (await conversation.ask("append", { entries: [makeCustom(1)], sessionId })).mustFail("session_not_found");
      },
    },
    {
      name: "ids-of-hosts",
      title: "A host may choose the id of a new session; one that is no id is refused with invalid_id.",
      source: "Ids",
      async run(context) {
        const conversation = await context.plain();
        const newSessionId = `${word(context, "chosen")}.1`;
        void (await conversation.ask("new_session", { newSessionId })).result;
        const { sessionId } = await getState(conversation);
        if (sessionId !== newSessionId) throw conversation.broken(`the sessionId ${newSessionId}`, String(sessionId));
        for (const bad of ["../x", "-x", "x/y", ""])
          (await conversation.ask("new_session", { newSessionId: bad })).mustFail("invalid_id", "invalid_params");
      },
    },
    {
      name: "open-not-deleted",
      title: "A session that is open is not deleted: session_locked.",
      source: "Whole sessions",
      needs: ["delete_session"],
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        const path = await requirePath(conversation);
        (await conversation.ask("delete_session", { sessionPath: path })).mustFail("session_locked");
        if (!isThere(path)) throw conversation.broken("the session where it was", "none");
      },
    },
    {
      name: "deleted-restored",
      title: "delete_session moves a session away, restore_session brings it back as it was.",
      source: "Whole sessions",
      needs: ["delete_session", "restore_session"],
      async run(context) {
        const conversation = await context.plain();
        const { path, ids } = await leftSession(conversation, "Delete me");
        const before = isFileAt(path) ? readBytes(path) : undefined;
        const reply = await conversation.ask("delete_session", { sessionPath: path });
        void reply.result;
        if (isThere(path)) throw reply.broken(`that nothing is at ${path} any more`);
        if (reply.result.trash !== "own") return;
        const back = await conversation.ask("restore_session", { sessionPath: path });
        void back.result;
        if (before !== undefined) back.must(readBytes(path).equals(before), `the file at ${path}, byte for byte`);
        await openSessionAt(conversation, path);
        await mustHaveEntries(conversation, ids);
      },
    },
    {
      name: "archived",
      title: "An archived session is not listed among the others, but with archived, and can come back.",
      source: "Whole sessions",
      needs: ["archive_session", "unarchive_session", "list_sessions"],
      async run(context) {
        const conversation = await context.plain();
        const { sessionId } = await leftSession(conversation, "Archive me");
        const isListed = async (archived: boolean): Promise<boolean> => {
          const reply = await conversation.ask("list_sessions", { archived });
          return reply.list("sessions").some((session) => session?.sessionId === sessionId);
        };
        const reply = await conversation.ask("archive_session", { sessionId });
        void reply.result;
        if ((await isListed(false)) || !(await isListed(true)))
          throw reply.broken("that it is listed with archived only");
        const back = await conversation.ask("unarchive_session", { sessionId });
        void back.result;
        if (!(await isListed(false))) throw back.broken("that it is listed again");
      },
    },
    {
      name: "exported",
      title: "export_session in jsonl has the stored bytes, and overwrites a file only where that is requested.",
      source: "Whole sessions",
      needs: ["export_session"],
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "Export me");
        const file = await requireFile(conversation);
        const outputPath = `${context.folder}/exported.out`;
        const params = { format: "jsonl", outputPath };
        void (await conversation.ask("export_session", { ...params, overwrite: true })).result;
        if (!readBytes(outputPath).equals(readBytes(file)))
          throw conversation.broken("the stored bytes", readBytes(outputPath).toString());
        (await conversation.ask("export_session", params)).mustFail("already_exists");
        void (await conversation.ask("export_session", { ...params, overwrite: true })).result;
      },
    },
    {
      name: "imported",
      title: "import_session copies a file byte for byte once; what exists already is known.",
      source: "import_session",
      needs: ["import_session"],
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "Import me");
        const file = await requireFile(conversation);
        const id = word(context, "imported");
        const [head, ...rest] = readBytes(file).toString().split("\n");
        const path = `${context.folder}/imported.jsonl`;
        const copy = [JSON.stringify({ ...JSON.parse(head), id }), ...rest].join("\n");
        writeTo(path, copy);
        const first = await conversation.ask("import_session", { path });
        first.must(first.string("outcome") === "new", "the outcome new");
        const place = first.string("sessionPath");
        first.must(readBytes(place).toString() === copy, "the same bytes among the sessions");
        const again = await conversation.ask("import_session", { path });
        again.must(again.string("outcome") === "known", "the outcome known");
      },
    },
    {
      name: "named",
      title: "set_session_name gives a session a display name; line breaks become spaces.",
      source: "set_session_name",
      needs: ["set_session_name"],
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        void (await conversation.ask("set_session_name", { name: "Two\nlines" })).result;
        const reply = await conversation.ask("get_state");
        reply.must(reply.result.sessionName === "Two lines", 'the sessionName "Two lines"');
      },
    },
    {
      name: "model-and-level",
      title: "set_model and set_thinking_level are recorded at the leaf, and the state has them.",
      source: "set_model",
      needs: ["set_model", "set_thinking_level"],
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        await append(conversation, makeUser("One"));
        void (await conversation.ask("set_model", { provider: "openai", modelId: "gpt-4o" })).result;
        void (await conversation.ask("set_thinking_level", { level: "high" })).result;
        const reply = await conversation.ask("get_state");
        const { model, thinkingLevel } = reply.result;
        reply.must(model?.provider === "openai" && model.id === "gpt-4o", "the model gpt-4o of openai");
        reply.must(thinkingLevel === "high", "the thinkingLevel high");
        const { entries, reply: read } = await getEntries(conversation);
        const types = entries.map(({ type }) => type).join();
        read.must(types === "message,model_change,thinking_level_change", "an entry for each change");
      },
    },
    {
      name: "state-counts",
      title: "get_state counts the entries of the session, the messages of the context and the branches.",
      source: "get_state",
      needs: ["branch"],
      applies: isJsonrpc,
      async run(context) {
        const conversation = await context.plain();
        const [first] = await makeTurns(conversation, "One");
        void (await conversation.ask("branch", { entryId: first })).result;
        await append(conversation, makeCustom(1));
        await requirePath(conversation);
        const reply = await conversation.ask("get_state");
        const { entryCount, messageCount, branchCount, persisted, version } = reply.result;
        reply.must(messageCount === 1 && branchCount === 1, "one message in the context, and one branch");
        const all = (await getEntries(conversation)).entries.length;
        reply.must(entryCount === all, `${all} entries`);
        reply.must(persisted === true && version === 3, "that it is persisted, in version 3");
      },
    },
  ],
};
