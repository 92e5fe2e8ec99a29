/** Rules about how a stream is cut into messages. */

import { isHeaders, isJsonrpc, isLines } from "../combination.ts";
import type { Conversation } from "../conversation.ts";
import { frameMessage } from "../frames.ts";
import { defineTheme, type RuleRow } from "../row.ts";
import type { Rule, RuleContext } from "../rule.ts";
import { append, getEntries, makeCustom, makeUser, mustNotBeAnswered } from "../steps.ts";
import { NotApplicable } from "../verdict.ts";

/** A text whose characters, UTF-16 units and bytes are three different numbers. */
const WIDE = "Grüße, 世界 👋 ́";

/** Bytes of a message limit beyond which no larger message is sent. */
const LARGEST = 256 << 20;
const MEBIBYTE = 1 << 20;

/** Sends bytes that hold a request, and checks that it is answered. */
async function mustAnswer(
  conversation: Conversation,
  around: (text: string) => Uint8Array | string,
  meaning: (text: string) => string,
): Promise<void> {
  const { id, text } = conversation.request("get_state");
  conversation.sendBytes(Buffer.from(around(text) as string), meaning(text));
  void (await conversation.replyTo(id)).result;
}

/** Returns the rule that messages which cannot be read are each answered with parse_error and a null id. */
function unreadable(name: string, title: string, messages: readonly Buffer[]): RuleRow {
  return {
    name,
    title,
    source: "Errors",
    async check(conversation, _ids, { combination }) {
      for (const message of messages) {
        conversation.sendBytes(frameMessage(combination.framing, message), message.toString("latin1"));
        const reply = await conversation.replyWithoutId();
        reply.mustFail("parse_error");
        reply.must(!isJsonrpc(combination) || reply.received.idText === "null", "the id null");
        await conversation.run("get_state");
      }
    },
  };
}

/** Returns the most bytes of a message that the server says it accepts. */
async function limitOf(context: RuleContext): Promise<number> {
  const { introduction } = await context.hooked();
  const limit = introduction?.result.capabilities?.limits?.maxMessageBytes;
  if (typeof limit !== "number") throw new NotApplicable("capabilities.limits has no maxMessageBytes");
  if (limit > LARGEST) throw new NotApplicable(`the limit of ${limit} bytes is too high to be tried`);
  return limit;
}

/** Yields a message, with a text of so many bytes in the place of its only empty one. */
function* larger(framing: "lines" | "headers", message: string, bytes: number): Generator<Buffer> {
  const [before, after] = message.split('""');
  if (framing === "headers")
    yield Buffer.from(`Content-Length: ${Buffer.byteLength(before) + bytes + 2 + Buffer.byteLength(after)}\r\n\r\n`);
  yield Buffer.from(`${before}"`);
  const piece = Buffer.alloc(MEBIBYTE, "x");
  for (let left = bytes; left > 0; left -= piece.length) yield left < piece.length ? piece.subarray(0, left) : piece;
  yield Buffer.from(`"${after}${framing === "lines" ? "\n" : ""}`);
}

export const framingTheme = defineTheme("framing", [
  {
    name: "blank-lines",
    title: "Blank lines are ignored.",
    source: "Frames",
    applies: isLines,
    async check(conversation) {
      await mustAnswer(
        conversation,
        (text) => `\n\n${text}\n\n\r\n`,
        (text) => `${text} between blank lines`,
      );
      await mustNotBeAnswered(conversation, "blank lines");
    },
  },
  {
    name: "carriage-return",
    title: "A carriage return before the line feed is dropped.",
    source: "Frames",
    applies: isLines,
    check: (conversation) =>
      mustAnswer(
        conversation,
        (text) => `${text}\r\n`,
        (text) => `${text}\\r\\n`,
      ),
  },
  {
    name: "byte-order-mark",
    title: "A byte order mark before the first message is ignored.",
    source: "Frames",
    on: "own",
    check: (conversation, _ids, { combination }) =>
      mustAnswer(
        conversation,
        (text) => Buffer.concat([Buffer.from("\ufeff"), frameMessage(combination.framing, text)]),
        (text) => `(byte order mark) ${text}`,
      ),
  },
  {
    name: "pieces",
    title: "A message means the same in however many pieces it arrives.",
    source: "Frames",
    given: [],
    async check(conversation, _ids, { combination }) {
      const { id, text } = conversation.request("append", { entries: [makeUser(WIDE)] });
      const frame = frameMessage(combination.framing, text);
      for (let at = 0; at < frame.length; at += 7) {
        conversation.sendBytes(frame.subarray(at, at + 7), `${text} in pieces of 7 bytes`);
        // Pieces of one turn are often written, and read, together.
        await new Promise((resolve) => setImmediate(resolve));
      }
      void (await conversation.replyTo(id)).result;
      const { entries, reply } = await getEntries(conversation);
      reply.must(entries.at(-1)?.message?.content === WIDE, "the text as it was sent");
    },
  },
  {
    name: "separators-escaped",
    title: "U+2028 and U+2029 are escaped in lines.",
    source: "Frames",
    applies: isLines,
    given: [],
    async check(conversation) {
      await append(conversation, makeUser("a\u2028b\u2029c"));
      const { entries, reply } = await getEntries(conversation);
      reply.must(!/[\u2028\u2029]/.test(reply.received.text), "no raw U+2028 or U+2029");
      reply.must(entries.at(-1)?.message?.content === "a\u2028b\u2029c", "the text as it was sent");
    },
  },
  {
    name: "length-of-requests",
    title: "Content-Length of a request counts its bytes.",
    source: "Frames",
    applies: isHeaders,
    given: [],
    async check(conversation) {
      const ids = conversation.begin(["append", { entries: [makeCustom(WIDE)] }], ["get_entries"]);
      for (const id of ids) void (await conversation.replyTo(id)).result;
    },
  },
  {
    name: "length-of-replies",
    title: "Content-Length of a reply counts its bytes.",
    source: "Frames",
    applies: isHeaders,
    given: [],
    async check(conversation) {
      await append(conversation, makeCustom(WIDE));
      const [first, second] = conversation.begin(["get_entries"], ["get_state"]);
      const reply = await conversation.replyTo(first);
      reply.must(reply.list("entries").at(-1)?.data === WIDE, "the text as it was sent");
      void (await conversation.replyTo(second)).result;
    },
  },
  {
    name: "header-fields",
    title: "Other header fields than Content-Length are accepted, as in the Language Server Protocol.",
    source: "Frames",
    applies: isHeaders,
    async check(conversation) {
      const type = "Content-Type: application/vscode-jsonrpc; charset=utf-8";
      const framed = (text: string): string => `Content-Length: ${Buffer.byteLength(text)}\r\n${type}\r\n\r\n${text}`;
      await mustAnswer(conversation, framed, framed);
    },
  },
  {
    name: "unreadable-header",
    title: "A header block that cannot be read is answered with parse_error.",
    source: "Errors",
    applies: isHeaders,
    on: "own",
    async check(conversation) {
      await conversation.ask("get_state");
      conversation.sendBytes(Buffer.from("Content-Length: many\r\n\r\n{}"), "Content-Length: many\\r\\n\\r\\n{}");
      (await conversation.replyWithoutId()).mustFail("parse_error");
    },
  },
  unreadable("not-json", "A message that is not JSON is answered with parse_error, and the next one as usual.", [
    Buffer.from('{"id":1,'),
    Buffer.from("hello"),
    Buffer.from('{"a":1}}'),
  ]),
  unreadable("not-utf8", "A message that is not UTF-8 is answered with parse_error, and the next one as usual.", [
    Buffer.from('{"jsonrpc":"2.0","id":1,"method":"get_state","type":"get_state","x":"\xff"}', "latin1"),
  ]),
  {
    name: "too-large",
    title: "A message over the limit is answered with message_too_large, and the stream continues after it.",
    source: "Frames",
    async check(conversation, _ids, context) {
      const limit = await limitOf(context);
      const { id, text } = conversation.request("append", { entries: [makeCustom("")] });
      conversation.sendBytes(Buffer.alloc(0), "a message over the limit");
      const sent = `${text} with so long a text that it has more than ${limit} bytes`;
      await conversation.pour(larger(context.combination.framing, text, limit + MEBIBYTE), sent);
      const reply = await conversation.anyReply();
      reply.mustFail("message_too_large");
      const { idText } = reply.received;
      reply.must(idText === undefined || idText === "null" || idText === id, `the id ${id}, or none`);
      await conversation.run("get_state");
    },
  },
]);

/** Checked after all others, over what every server has said. */
export const onlyFrames: Rule = {
  name: "only-frames",
  title: "stdout carries only frames.",
  source: "Starting and ending",
  async run(context) {
    const [garbage] = context.conducts.flatMap((conduct) => conduct.garbage);
    if (garbage !== undefined) throw (await context.plain()).broken("nothing on stdout but frames with JSON", garbage);
  },
};
