/** Rules about hooks, the server's questions to the host. */

import type { Conversation, Request } from "../conversation.ts";
import type { Received, WireValue } from "../dialect.ts";
import type { Reply } from "../reply.ts";
import { defineTheme, type RuleRow } from "../row.ts";
import { beginFork, getEntries, getState, makeSession } from "../steps.ts";

/** Sends a command that asks a hook, has it answered, and returns the reply. */
async function answered(
  conversation: Conversation,
  hook: string,
  request: Request,
  answer: (asked: Received) => void,
): Promise<Reply> {
  conversation.hold(hook);
  const [id] = conversation.begin(request);
  answer(await conversation.hook(hook));
  return conversation.replyTo(id);
}

/** Returns what must not change when a hook stops an action. */
async function imprint(conversation: Conversation): Promise<WireValue> {
  const { sessionId } = await getState(conversation);
  const { entries, leafId } = await getEntries(conversation);
  return JSON.stringify([sessionId, leafId, entries.length]);
}

/** Returns the rule that an answer stops the actions that ask, and leaves everything as it was. */
function stopping(
  name: string,
  title: string,
  reason: string,
  stop: (conversation: Conversation, asked: Received) => void,
): RuleRow {
  return {
    name,
    title,
    source: "Asking the host",
    on: "hooked",
    given: ["One"],
    async check(conversation, [first]) {
      const before = await imprint(conversation);
      const actions: [hook: string, request: Request][] = [
        ["session_before_fork", ["fork", { entryId: first }]],
        ["session_before_tree", ["branch", { entryId: first }]],
        ["session_before_switch", ["new_session"]],
      ];
      for (const [hook, action] of actions) {
        const reply = await answered(conversation, hook, action, (asked) => stop(conversation, asked));
        reply.must(reply.result?.cancelled === true, "`cancelled: true`");
        const reported = reply.result.reason;
        reply.must(reported === undefined || reported === reason, `the reason ${reason}`);
        reply.must((await imprint(conversation)) === before, "everything as before");
      }
    },
  };
}

export const hooksTheme = defineTheme("hooks", [
  {
    name: "hook-asked",
    title: "A host that named a hook is asked before the action; the answer {} lets it go on.",
    source: "Asking the host",
    on: "hooked",
    given: ["One"],
    async check(conversation, [first]) {
      const { sessionId } = await getState(conversation);
      let asked: WireValue;
      const reply = await answered(conversation, "session_before_fork", ["fork", { entryId: first }], (hook) => {
        asked = hook.value.params ?? hook.value;
        conversation.answer(hook, {});
      });
      const isReported = asked.entryId === first && asked.position === "before";
      reply.must(isReported, "a hook that was told the entry and the position");
      reply.must(reply.result.cancelled === false, "`cancelled: false`");
      const now = (await getState(conversation)).sessionId;
      reply.must(now !== sessionId, "that the fork is the current session");
    },
  },
  {
    name: "hook-null",
    title: "The answer null lets the action go on, too.",
    source: "Asking the host",
    on: "hooked",
    given: ["One"],
    async check(conversation, [first]) {
      const reply = await answered(conversation, "session_before_tree", ["branch", { entryId: first }], (hook) =>
        conversation.answer(hook, null),
      );
      reply.must(reply.result.cancelled === false, "`cancelled: false`");
    },
  },
  stopping("hook-veto", "The answer {cancel: true} stops the action; everything is as before.", "hook", (talk, asked) =>
    talk.answer(asked, { cancel: true }),
  ),
  stopping("hook-failed", "A hook that fails stops the action, too.", "hook_failed", (talk, { idText = "null" }) =>
    talk.send(talk.dialect.failedAnswer(idText, "The hook has a fault.")),
  ),
  {
    name: "hook-unnamed",
    title: "A host that named no hook is not asked.",
    source: "Asking the host",
    given: ["One"],
    async check(conversation, [first]) {
      await conversation.run("branch", { entryId: first });
      await conversation.run("fork", { entryId: first });
      conversation.must(conversation.agreed.length === 0, "no hook", conversation.agreed.join(", "));
    },
  },
  {
    name: "hook-named-only",
    title: "A host is asked only by the hooks that it named.",
    source: "Asking the host",
    on: "modest",
    given: ["One"],
    async check(conversation, [first]) {
      const before = conversation.agreed.length;
      await conversation.run("branch", { entryId: first });
      await conversation.run("fork", { entryId: first });
      await makeSession(conversation);
      const agreed = conversation.agreed.slice(before).join(", ");
      const expected = "session_before_fork";
      conversation.must(agreed === expected, `the hook ${expected}, once`, agreed || "none");
    },
  },
  {
    name: "hook-reads",
    title: "While a hook waits, reads that name it are answered at once, from the state before the command.",
    source: "Asking the host",
    on: "hooked",
    async check(conversation, _ids, { combination }) {
      const { ids, hook } = await beginFork(conversation);
      const { idText } = hook;
      const named = combination.dialect === "pi" ? `{"hook":${idText}}` : `{"_meta":{"hook":${idText}}}`;
      const read = await conversation.ask("get_entries", named);
      read.must(read.list("entries").length === 2, "the two entries of the source");
      conversation.answer(hook, {});
      void (await conversation.replyTo(ids[0])).result;
    },
  },
  {
    name: "hook-summary",
    title: "The answer to session_before_tree may bring a summary, which becomes an entry at the new place.",
    source: "session_before_tree",
    on: "hooked",
    given: ["One", "Two"],
    async check(conversation, [first]) {
      const reply = await answered(conversation, "session_before_tree", ["branch", { entryId: first }], (asked) =>
        conversation.answer(asked, { summary: { summary: "Two was tried." } }),
      );
      const { summaryEntryId } = reply.result;
      const { entries } = await getEntries(conversation);
      const { type, summary, parentId } = entries.find(({ id }) => id === summaryEntryId) ?? {};
      const isRight = type === "branch_summary" && summary === "Two was tried." && parentId === first;
      reply.must(isRight, `a branch_summary with the summary below ${first}`);
    },
  },
  {
    name: "hook-compaction",
    title: "compact asks session_before_compact, whose answer brings the summary that is appended.",
    source: "compact",
    on: "hooked",
    given: ["One", "Two"],
    async check(conversation, [, , third]) {
      const compaction = { summary: "One was said.", firstKeptEntryId: third, tokensBefore: 30 };
      const reply = await answered(conversation, "session_before_compact", ["compact"], (asked) =>
        conversation.answer(asked, { compaction }),
      );
      reply.must(reply.result.summary === "One was said.", "the summary of the answer");
      const last = (await getEntries(conversation)).entries.at(-1);
      reply.must(last?.type === "compaction" && last.firstKeptEntryId === third, "the compaction as the last entry");
    },
  },
]);
