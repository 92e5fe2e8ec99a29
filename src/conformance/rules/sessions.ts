/** Rules about several sessions, and about sessions as a whole. */

import { isJsonrpc } from "../combination.ts";
import type { Conversation } from "../conversation.ts";
import { isFileAt, readBytes, writeTo } from "../files.ts";
import { defineTheme, fails } from "../row.ts";
import type { RuleContext } from "../rule.ts";
import {
  append,
  getEntries,
  getState,
  isEqual,
  makeCustom,
  makeSession,
  makeTurns,
  makeUser,
  mustBeThere,
  mustHaveBytes,
  mustHaveEntries,
  openSessionAt,
  requireFile,
  requirePath,
} from "../steps.ts";

/** An id that no session has. */
const NO_SESSION = "01991f6e-1f1d-7c3e-b0a4-ffffffffffff";

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

export const sessionsTheme = defineTheme("sessions", [
  {
    name: "switch-back",
    title: "switch_session makes another session the current one, with its leaf.",
    source: "switch_session",
    given: ["One"],
    async check(conversation, ids) {
      const sessionPath = await requirePath(conversation);
      await makeTurns(conversation, "Two");
      const reply = await conversation.ask("switch_session", { sessionPath });
      reply.must(reply.result.cancelled === false && reply.result.leafId === ids[1], `the leaf ${ids[1]}`);
      await mustHaveEntries(conversation, ids);
    },
  },
  {
    name: "several-open",
    title: "open_session opens a session besides the current one; commands reach it by its sessionId.",
    source: "open_session",
    async check(conversation) {
      const { sessionId, path } = await leftSession(conversation, "One");
      const current = (await getState(conversation)).sessionId;
      const opened = await conversation.ask("open_session", { sessionPath: path });
      opened.must(opened.string("sessionId") === sessionId, `the sessionId ${sessionId}`);
      await conversation.run("append", { entries: [makeCustom(1)], sessionId });
      const read = await conversation.ask("get_entries", { sessionId });
      read.must(read.list("entries").length === 3, "three entries in the session that was named");
      const own = await conversation.ask("get_entries");
      own.must(own.list("entries").length === 0, "none in the current one");
      const list = await conversation.ask("list_open_sessions");
      const [first, ...others] = list.list("sessions");
      list.must(first?.sessionId === current && first.current === true, "the current session first");
      const isListed = others.some((other) => other?.sessionId === sessionId);
      list.must(isListed, `the session ${sessionId}`);
      await conversation.run("close_session", { sessionId });
      (await conversation.ask("get_entries", { sessionId })).mustFail("session_not_found");
    },
  },
  {
    name: "no-session",
    title: "When the current session is closed, commands on it fail with no_session until another is current.",
    source: "close_session",
    given: ["One"],
    steps: [["close_session"], ["get_entries", {}, fails("no_session")], ["new_session"], ["get_entries"]],
  },
  {
    name: "listed",
    title: "list_sessions lists a session with its path, its first message and the number of its messages.",
    source: "list_sessions",
    async check(conversation) {
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
    async check(conversation, _ids, context) {
      const rare = word(context, "Quokka");
      const { sessionId, ids } = await leftSession(conversation, `A ${rare} on the island`);
      const query = `ISLAND ${rare.toLowerCase()}`;
      const reply = await conversation.ask("search_sessions", { query, role: "user" });
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
    given: ["One", "Two"],
    async check(conversation, [, , entryId]) {
      await requirePath(conversation);
      const parent = (await getState(conversation)).sessionId;
      await conversation.run("fork", { entryId });
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
    steps: [
      ["get_entries", { sessionId: NO_SESSION }, fails("session_not_found")],
      ["append", { entries: [makeCustom(1)], sessionId: NO_SESSION }, fails("session_not_found")],
    ],
  },
  {
    name: "ids-of-hosts",
    title: "A host may choose the id of a new session; one that is no id is refused with invalid_id.",
    source: "Ids",
    async check(conversation, _ids, context) {
      const newSessionId = `${word(context, "chosen")}.1`;
      await conversation.run("new_session", { newSessionId });
      const { sessionId } = await getState(conversation);
      conversation.must(sessionId === newSessionId, `the sessionId ${newSessionId}`, String(sessionId));
      for (const bad of ["../x", "-x", "x/y", ""])
        (await conversation.ask("new_session", { newSessionId: bad })).mustFail("invalid_id", "invalid_params");
    },
  },
  {
    name: "open-not-deleted",
    title: "A session that is open is not deleted: session_locked.",
    source: "Whole sessions",
    given: ["One"],
    async check(conversation) {
      const path = await requirePath(conversation);
      (await conversation.ask("delete_session", { sessionPath: path })).mustFail("session_locked");
      mustBeThere(conversation, path, true, "as before");
    },
  },
  {
    name: "deleted-restored",
    title: "delete_session moves a session away, restore_session brings it back as it was.",
    source: "Whole sessions",
    async check(conversation) {
      const { path, ids } = await leftSession(conversation, "Delete me");
      const before = isFileAt(path) ? readBytes(path) : undefined;
      const { trash } = await conversation.run("delete_session", { sessionPath: path });
      mustBeThere(conversation, path, false, "any more");
      if (trash !== "own") return;
      await conversation.run("restore_session", { sessionPath: path });
      if (before !== undefined) mustHaveBytes(conversation, path, before);
      await openSessionAt(conversation, path);
      await mustHaveEntries(conversation, ids);
    },
  },
  {
    name: "archived",
    title: "An archived session is not listed among the others, but with archived, and can come back.",
    source: "Whole sessions",
    async check(conversation) {
      const { sessionId } = await leftSession(conversation, "Archive me");
      const mustBeListed = async (archived: boolean, isExpected: boolean): Promise<void> => {
        const reply = await conversation.ask("list_sessions", { archived });
        const isListed = reply.list("sessions").some((session) => session?.sessionId === sessionId);
        reply.must(isListed === isExpected, `a list ${isExpected ? "with" : "without"} the session ${sessionId}`);
      };
      await conversation.run("archive_session", { sessionId });
      await mustBeListed(false, false);
      await mustBeListed(true, true);
      await conversation.run("unarchive_session", { sessionId });
      await mustBeListed(false, true);
    },
  },
  {
    name: "exported",
    title: "export_session in jsonl has the stored bytes, and overwrites a file only where that is requested.",
    source: "Whole sessions",
    given: ["Export me"],
    async check(conversation, _ids, { folder }) {
      const file = await requireFile(conversation);
      const params = { format: "jsonl", outputPath: `${folder}/exported.out` };
      await conversation.run("export_session", { ...params, overwrite: true });
      mustHaveBytes(conversation, params.outputPath, readBytes(file));
      (await conversation.ask("export_session", params)).mustFail("already_exists");
      await conversation.run("export_session", { ...params, overwrite: true });
    },
  },
  {
    name: "imported",
    title: "import_session copies a file byte for byte once; what exists already is known.",
    source: "import_session",
    given: ["Import me"],
    async check(conversation, _ids, context) {
      const file = await requireFile(conversation);
      const [head, ...rest] = readBytes(file).toString().split("\n");
      const path = `${context.folder}/imported.jsonl`;
      const copy = [JSON.stringify({ ...JSON.parse(head), id: word(context, "imported") }), ...rest].join("\n");
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
    given: ["One"],
    steps: [
      ["set_session_name", { name: "Two\nlines" }],
      ["get_state", {}, { sessionName: "Two lines" }],
    ],
  },
  {
    name: "model-and-level",
    title: "set_model and set_thinking_level are recorded at the leaf, and the state has them.",
    source: "set_model",
    given: [],
    steps: [
      ["append", { entries: [makeUser("One")] }],
      ["set_model", { provider: "openai", modelId: "gpt-4o" }],
      ["set_thinking_level", { level: "high" }],
      ["get_state", {}, { model: { provider: "openai", id: "gpt-4o" }, thinkingLevel: "high" }],
      [
        "get_entries",
        {},
        { entries: [{ type: "message" }, { type: "model_change" }, { type: "thinking_level_change" }] },
      ],
    ],
  },
  {
    name: "state-counts",
    title: "get_state counts the entries of the session, the messages of the context and the branches.",
    source: "get_state",
    applies: isJsonrpc,
    given: ["One"],
    async check(conversation, [first]) {
      await conversation.run("branch", { entryId: first });
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
]);
