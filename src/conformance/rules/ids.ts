/** Rules about the ids of JSON-RPC requests. */

import { isJsonrpc } from "../combination.ts";
import { defineTheme, type RuleRow } from "../row.ts";
import { beginFork } from "../steps.ts";

/** Returns the rule that these ids, as JSON texts, are returned as they were sent. */
function echoed(name: string, title: string, texts: readonly string[], isExact = false): RuleRow {
  return {
    name,
    title,
    source: "Dialects",
    async check(conversation) {
      for (const id of texts) {
        const text = conversation.dialect.request(id, "get_state");
        conversation.expectReply(id, text);
        conversation.send(text);
        const reply = await conversation.anyReply();
        // A number beyond 53 bits is identified by its digits; everything else may be written in other ways.
        const { idText = "" } = reply.received;
        const isEqual = isExact ? idText === id : JSON.parse(idText || "{}") === JSON.parse(id);
        conversation.must(isEqual, `the id ${id}`, reply.received.text);
      }
    },
  };
}

const STRINGS = ['"5"', '""', '"null"', '"\\u0000 \\"quoted\\" \\\\ \\/"', '"Grüße 👋"'];
const NUMBERS = ["5", "0", "-7", "1.5", "4294967296"];
const LARGE_NUMBERS = ["9007199254740993", "18446744073709551615"];

export const idsTheme = defineTheme(
  "ids",
  [
    echoed("id-string", "An id that is a string is returned as it was sent.", STRINGS),
    echoed("id-number", "An id that is a number is returned as that number.", NUMBERS),
    echoed("id-large-number", "An id that is a number beyond 53 bits is returned digit by digit.", LARGE_NUMBERS, true),
    echoed("id-null", "An id that is null makes a request, which is answered with that id.", ["null"]),
    {
      name: "ids-by-type",
      title: 'The ids 5 and "5" are different.',
      source: "Ids",
      async check(conversation) {
        const texts = ["5", '"5"'].map((id) => {
          const text = conversation.dialect.request(id, "get_state");
          conversation.expectReply(id, text);
          return text;
        });
        conversation.send(...texts);
        for (const id of ["5", '"5"']) void (await conversation.replyTo(id)).result;
      },
    },
    {
      name: "illegal-id",
      title: "A request whose id is neither a string nor a number nor null is refused with -32600 and the id null.",
      source: "Errors",
      async check(conversation) {
        for (const id of ["true", "[1]", '{"a":1}']) {
          conversation.send(conversation.dialect.request(id, "get_state"));
          const reply = await conversation.anyReply();
          reply.mustFail(-32600);
          reply.must(reply.received.idText === "null", "the id null");
        }
      },
    },
    {
      name: "id-in-use",
      title:
        "A request whose id belongs to one that is still being answered is refused with -32600; the first runs once.",
      source: "Ids",
      on: "hooked",
      async check(conversation) {
        const { ids, hook } = await beginFork(conversation);
        const [id] = ids;
        conversation.send(conversation.dialect.request(id, "get_state"));
        const refusal = await conversation.anyReply();
        refusal.mustFail(-32600);
        refusal.must(refusal.received.idText === id, `the id ${id}`);
        conversation.expectReply(id, refusal.sent);
        conversation.answer(hook, {});
        const reply = await conversation.replyTo(id);
        reply.must(reply.result.cancelled === false, "the result of the first request");
      },
    },
  ],
  isJsonrpc,
);
