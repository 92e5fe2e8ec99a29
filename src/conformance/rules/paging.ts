/** Rules about long answers, which come in pages. */

import type { Params } from "../dialect.ts";
import { MODEST_REPLY, type Rule, type Theme } from "../rule.ts";
import { append, getIds, isEqual, makeCustom, makeSession, makeTurns, makeUser, readPages } from "../steps.ts";

/** Entries of the sessions that are paged through. */
const COUNT = 23;
const LIMIT = 5;

/** Returns the rule that the pages of a command have all that one answer has, each once and in order. */
function paged(name: string, command: string, member: string, params: Params = {}): Rule {
  return {
    name,
    title: `The pages of ${command} have at most limit items, and together all of them once, in order.`,
    source: "Long answers",
    needs: [command],
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      await append(conversation, ...Array.from({ length: COUNT }, (_, n) => makeUser(`Number ${n}`)));
      const whole = (await conversation.ask(command, params)).list(member);
      const { items, pages } = await readPages(conversation, command, member, { ...params, limit: LIMIT });
      const [first] = pages;
      first.must(whole.length === COUNT, `${COUNT} items without a limit`);
      for (const page of pages) page.must(page.list(member).length <= LIMIT, `at most ${LIMIT} items`);
      first.must(typeof first.result.nextCursor === "string", "a nextCursor, because there is more");
      if (!isEqual(items, whole))
        throw pages[pages.length - 1].broken(`all ${whole.length} items, each once and in order; ${items.length} came`);
    },
  };
}

export const pagingTheme: Theme = {
  name: "paging",
  rules: [
    paged("pages-of-entries", "get_entries", "entries"),
    paged("pages-of-path", "get_path", "entries"),
    paged("pages-of-messages", "get_messages", "messages"),
    paged("pages-of-tree", "get_tree", "nodes", { format: "flat" }),
    {
      name: "last-page",
      title: "A page that nothing follows has no nextCursor.",
      source: "Long answers",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One", "Two");
        for (const limit of [4, 5]) {
          const reply = await conversation.ask("get_entries", { limit });
          reply.must(reply.list("entries").length === 4, "all four entries");
          reply.must(reply.result.nextCursor === undefined, "no nextCursor");
        }
      },
    },
    {
      name: "unknown-cursor",
      title: "A cursor that does not belong to the session's state fails with cursor_expired.",
      source: "Failures",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One", "Two");
        for (const cursor of ["nothing", "../etc", "9.9.9"])
          (await conversation.ask("get_entries", { cursor })).mustFail("cursor_expired");
      },
    },
    {
      name: "reply-limit",
      title: "With maxReplyBytes, pages end early, no reply is larger, and nothing is left out.",
      source: "Long answers",
      async run(context) {
        const conversation = await context.modest();
        await makeSession(conversation);
        const texts = Array.from({ length: 20 }, (_, n) => makeUser(`${n} ${"é".repeat(300)}`));
        const ids: unknown[] = [];
        for (const text of texts) ids.push(...(await append(conversation, text)));
        const { items, pages } = await readPages(conversation, "get_entries", "entries", {});
        for (const page of pages) {
          const size = Buffer.byteLength(page.received.text);
          if (size > MODEST_REPLY) throw page.broken(`at most ${MODEST_REPLY} bytes; it has ${size}`);
        }
        if (!isEqual(getIds(items), ids)) throw pages[0].broken("pages with all 20 entries, each once and in order");
      },
    },
    {
      name: "reply-too-large",
      title: "A reply that cannot be made small enough for maxReplyBytes fails with message_too_large.",
      source: "Long answers",
      async run(context) {
        const conversation = await context.modest();
        await makeSession(conversation);
        const [large] = await append(conversation, makeCustom("x".repeat(2 * MODEST_REPLY)));
        (await conversation.ask("get_entry", { entryId: large })).mustFail("message_too_large");
        void (await conversation.ask("get_entries", { types: ["message"] })).result;
      },
    },
    {
      name: "pages-stand",
      title: "A cursor goes on where its page ended, also after other requests.",
      source: "Long answers",
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two", "Three");
        const first = await conversation.ask("get_entries", { limit: 4 });
        const cursor = first.string("nextCursor");
        void (await conversation.ask("get_entries", { limit: 1 })).result;
        void (await conversation.ask("get_state")).result;
        const next = await conversation.ask("get_entries", { limit: 4, cursor });
        next.must(isEqual(getIds(next.list("entries")), ids.slice(4)), `the entries ${ids.slice(4).join(", ")}`);
      },
    },
  ],
};
