/** Rules about long answers, which come in pages. */

import type { Params } from "../dialect.ts";
import { defineTheme, fails, type RowStep, type RuleRow, withIds } from "../row.ts";
import { MODEST_REPLY } from "../rule.ts";
import { append, getIds, isEqual, makeCustom, makeUser, readPages } from "../steps.ts";

/** Entries of the sessions that are paged through. */
const COUNT = 23;
const LIMIT = 5;

/** A page with all entries of two turns. */
const WHOLE = { entries: withIds("<entry-1>", "<entry-2>", "<entry-3>", "<entry-4>"), nextCursor: "<none>" };

/** Returns the rule that the pages of a command have all that one answer has, each once and in order. */
function paged(name: string, command: string, member: string, params: Params = {}): RuleRow {
  return {
    name,
    title: `The pages of ${command} have at most limit items, and together all of them once, in order.`,
    source: "Long answers",
    given: [],
    async check(conversation) {
      await append(conversation, ...Array.from({ length: COUNT }, (_, n) => makeUser(`Number ${n}`)));
      const whole = (await conversation.ask(command, params)).list(member);
      const { items, pages } = await readPages(conversation, command, member, { ...params, limit: LIMIT });
      const [first] = pages;
      first.must(whole.length === COUNT, `${COUNT} items without a limit`);
      for (const page of pages) page.must(page.list(member).length <= LIMIT, `at most ${LIMIT} items`);
      first.must(typeof first.result.nextCursor === "string", "a nextCursor, because there is more");
      const expected = `all ${whole.length} items, each once and in order; ${items.length} came`;
      pages[pages.length - 1].must(isEqual(items, whole), expected);
    },
  };
}

export const pagingTheme = defineTheme("paging", [
  paged("pages-of-entries", "get_entries", "entries"),
  paged("pages-of-path", "get_path", "entries"),
  paged("pages-of-messages", "get_messages", "messages"),
  paged("pages-of-tree", "get_tree", "nodes", { format: "flat" }),
  {
    name: "last-page",
    title: "A page that nothing follows has no nextCursor.",
    source: "Long answers",
    given: ["One", "Two"],
    steps: [
      ["get_entries", { limit: 4 }, WHOLE],
      ["get_entries", { limit: 5 }, WHOLE],
    ],
  },
  {
    name: "unknown-cursor",
    title: "A cursor that does not belong to the session's state fails with cursor_expired.",
    source: "Failures",
    given: ["One", "Two"],
    steps: ["nothing", "../etc", "9.9.9"].map(
      (cursor): RowStep => ["get_entries", { cursor }, fails("cursor_expired")],
    ),
  },
  {
    name: "reply-limit",
    title: "With maxReplyBytes, pages end early, no reply is larger, and nothing is left out.",
    source: "Long answers",
    on: "modest",
    given: [],
    async check(conversation) {
      const texts = Array.from({ length: 20 }, (_, n) => makeUser(`${n} ${"é".repeat(300)}`));
      const ids: unknown[] = [];
      for (const text of texts) ids.push(...(await append(conversation, text)));
      const { items, pages } = await readPages(conversation, "get_entries", "entries", {});
      for (const page of pages) {
        const size = Buffer.byteLength(page.received.text);
        page.must(size <= MODEST_REPLY, `at most ${MODEST_REPLY} bytes; it has ${size}`);
      }
      pages[0].must(isEqual(getIds(items), ids), "pages with all 20 entries, each once and in order");
    },
  },
  {
    name: "reply-too-large",
    title: "A reply that cannot be made small enough for maxReplyBytes fails with message_too_large.",
    source: "Long answers",
    on: "modest",
    given: [],
    steps: [
      ["append", { entries: [makeCustom("x".repeat(2 * MODEST_REPLY))] }, { entryIds: ["<large>"] }],
      ["get_entry", { entryId: "<large>" }, fails("message_too_large")],
      ["get_entries", { types: ["message"] }],
    ],
  },
  {
    name: "pages-stand",
    title: "A cursor goes on where its page ended, also after other requests.",
    source: "Long answers",
    given: ["One", "Two", "Three"],
    steps: [
      ["get_entries", { limit: 4 }, { nextCursor: "<cursor>" }],
      ["get_entries", { limit: 1 }],
      ["get_state"],
      ["get_entries", { limit: 4, cursor: "<cursor>" }, { entries: withIds("<entry-5>", "<entry-6>") }],
    ],
  },
]);
