/** Rules about hooks, the server's questions to the host. */

import type { Conversation } from "../conversation.ts";
import type { Params, Received, WireValue } from "../dialect.ts";
import type { Reply } from "../reply.ts";
import type { Rule, RuleContext, Theme } from "../rule.ts";
import { beginFork, getEntries, getState, makeSession, makeTurns } from "../steps.ts";

/** Sends a command that asks a hook, has it answered, and returns the reply. */
async function answered(
  conversation: Conversation,
  hook: string,
  [command, params]: readonly [string, Params],
  answer: (asked: Received) => void,
): Promise<Reply> {
  conversation.hold(hook);
  const [id] = conversation.begin([command, params]);
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
): Rule {
  return {
    name,
    title,
    source: "Asking the host",
    needs: ["fork", "branch"],
    async run(context) {
      const conversation = await context.hooked();
      const [first] = await makeTurns(conversation, "One");
      const before = await imprint(conversation);
      const actions = [
        ["session_before_fork", ["fork", { entryId: first }]],
        ["session_before_tree", ["branch", { entryId: first }]],
        ["session_before_switch", ["new_session", {}]],
      ] as const;
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

export const hooksTheme: Theme = {
  name: "hooks",
  rules: [
    {
      name: "hook-asked",
      title: "A host that named a hook is asked before the action; the answer {} lets it go on.",
      source: "Asking the host",
      needs: ["fork"],
      async run(context) {
        const conversation = await context.hooked();
        const [first] = await makeTurns(conversation, "One");
        const { sessionId } = await getState(conversation);
        let asked: WireValue;
        const act = ["fork", { entryId: first }] as const;
        const reply = await answered(conversation, "session_before_fork", act, (hook) => {
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
      needs: ["branch"],
      async run(context) {
        const conversation = await context.hooked();
        const [first] = await makeTurns(conversation, "One");
        const act = ["branch", { entryId: first }] as const;
        const reply = await answered(conversation, "session_before_tree", act, (hook) =>
          conversation.answer(hook, null),
        );
        reply.must(reply.result.cancelled === false, "`cancelled: false`");
      },
    },
    stopping(
      "hook-veto",
      "The answer {cancel: true} stops the action; everything is as before.",
      "hook",
      (talk, asked) => talk.answer(asked, { cancel: true }),
    ),
    stopping("hook-failed", "A hook that fails stops the action, too.", "hook_failed", (talk, { idText = "null" }) =>
      talk.send(talk.dialect.failedAnswer(idText, "The hook has a fault.")),
    ),
    {
      name: "hook-unnamed",
      title: "A host that named no hook is not asked.",
      source: "Asking the host",
      needs: ["fork", "branch"],
      async run(context) {
        const conversation = await context.plain();
        const [first] = await makeTurns(conversation, "One");
        void (await conversation.ask("branch", { entryId: first })).result;
        void (await conversation.ask("fork", { entryId: first })).result;
        if (conversation.agreed.length > 0) throw conversation.broken("no hook", conversation.agreed.join(", "));
      },
    },
    {
      name: "hook-named-only",
      title: "A host is asked only by the hooks that it named.",
      source: "Asking the host",
      needs: ["fork", "branch"],
      async run(context) {
        const conversation = await context.modest();
        const [first] = await makeTurns(conversation, "One");
        const before = conversation.agreed.length;
        void (await conversation.ask("branch", { entryId: first })).result;
        void (await conversation.ask("fork", { entryId: first })).result;
        await makeSession(conversation);
        const agreed = conversation.agreed.slice(before);
        if (agreed.join() !== "session_before_fork")
          throw conversation.broken("the hook session_before_fork, once", agreed.join(", ") || "none");
      },
    },
    {
      name: "hook-reads",
      title: "While a hook waits, reads that name it are answered at once, from the state before the command.",
      source: "Asking the host",
      needs: ["fork"],
      async run(context) {
        const conversation = await context.hooked();
        const {
          ids: [id],
          hook: asked,
        } = await beginFork(conversation);
        const read = await conversation.ask("get_entries", namingHook(context, asked));
        read.must(read.list("entries").length === 2, "the two entries of the source");
        conversation.answer(asked, {});
        void (await conversation.replyTo(id)).result;
      },
    },
    {
      name: "hook-summary",
      title: "The answer to session_before_tree may bring a summary, which becomes an entry at the new place.",
      source: "session_before_tree",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.hooked();
        const [first] = await makeTurns(conversation, "One", "Two");
        const act = ["branch", { entryId: first }] as const;
        const reply = await answered(conversation, "session_before_tree", act, (asked) =>
          conversation.answer(asked, { summary: { summary: "Two was tried." } }),
        );
        const { summaryEntryId } = reply.result;
        const { entries } = await getEntries(conversation);
        const entry = entries.find(({ id }) => id === summaryEntryId);
        const isRight =
          entry?.type === "branch_summary" && entry.summary === "Two was tried." && entry.parentId === first;
        reply.must(isRight, `a branch_summary with the summary below ${first}`);
      },
    },
    {
      name: "hook-compaction",
      title: "compact asks session_before_compact, whose answer brings the summary that is appended.",
      source: "compact",
      needs: ["compact"],
      async run(context) {
        const conversation = await context.hooked();
        const [, , third] = await makeTurns(conversation, "One", "Two");
        const compaction = { summary: "One was said.", firstKeptEntryId: third, tokensBefore: 30 };
        const reply = await answered(conversation, "session_before_compact", ["compact", {}], (asked) =>
          conversation.answer(asked, { compaction }),
        );
        reply.must(reply.result.summary === "One was said.", "the summary of the answer");
        const { entries } = await getEntries(conversation);
        const last = entries.at(-1);
        reply.must(last?.type === "compaction" && last.firstKeptEntryId === third, "the compaction as the last entry");
      },
    },
  ],
};

/** Returns the params of a read that names a hook, by its id as it came. */
function namingHook({ combination }: RuleContext, { idText }: Received): string {
  return combination.dialect === "pi" ? `{"hook":${idText}}` : `{"_meta":{"hook":${idText}}}`;
}
