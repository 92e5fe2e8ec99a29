/**
 * Servers with one fault each, for the conformance kit to find: our server behind a proxy that changes what passes. A
 * fault names the rule that it breaks, and those that cannot help noticing it too.
 */

import { appendFileSync, readFileSync } from "node:fs";
import { PassThrough, type Readable, type Writable } from "node:stream";
import type { Combination } from "../../src/conformance/combination.ts";
import { FrameCutter, frameMessage } from "../../src/conformance/frames.ts";
import type { Json } from "./server.ts";

/** One connection through a proxy with a fault. */
interface Passing {
  /** Returns the texts that go on to the server in place of a message of the host. */
  request?(text: string, message: Json): readonly string[];
  /** Returns the texts that go on to the host in place of a message of the server. */
  reply?(text: string, message: Json): readonly string[];
  /** Returns a message to the host in its frame. */
  frame?(text: string): Buffer;
  /** Returns bytes of the host as they go on to the server, before they are cut into messages. */
  bytes?(chunk: Buffer): Buffer;
}

/** A way to send the host something that the server did not say. */
type Say = (text: string) => void;

export interface Fault {
  /** The rule that it breaks. */
  readonly rule: string;
  /** Further rules that look at the same thing. */
  readonly also?: readonly string[];
  readonly framing?: Combination["framing"];
  readonly dialect?: Combination["dialect"];
  pass(say: Say): Passing;
}

/** Returns the fault that changes replies or requests; a message for which `change` returns nothing stays unchanged. */
function on(whose: "reply" | "request", change: (message: Json) => Json | undefined): Fault["pass"] {
  const changed = (text: string, message: Json): string[] => {
    const other = change(message);
    return [other === undefined ? text : JSON.stringify(other)];
  };
  return () => ({ [whose]: changed });
}

const onReply = (change: (message: Json) => Json | undefined) => on("reply", change);
const onRequest = (change: (message: Json) => Json | undefined) => on("request", change);

/** Returns the fault that changes the texts of what the server says. */
function onText(change: (text: string) => string): Fault["pass"] {
  return () => ({ reply: (text) => [change(text)] });
}

/** Returns the fault that takes a param out of requests. */
function without(param: string): Fault["pass"] {
  return onRequest((message) => {
    if ((message?.params?.[param] ?? null) === null) return undefined;
    const { [param]: _left, ...params } = message.params;
    return { ...message, params };
  });
}

/** Returns the fault that answers notifications of a method. */
function answering(method: string, reply: object): Fault["pass"] {
  return (say) => ({
    request(text, message) {
      if (message?.method === method && !("id" in message)) say(JSON.stringify({ jsonrpc: "2.0", id: null, ...reply }));
      return [text];
    },
  });
}

/** Returns the fault that changes replies to the requests of one method. */
function onReplyTo(method: string, change: (message: Json, text: string) => readonly string[]): Fault["pass"] {
  return () => {
    const ids = new Set<string>();
    return {
      request(text, message) {
        if ((message?.method ?? message?.type) === method) ids.add(JSON.stringify(message.id));
        return [text];
      },
      reply(text, message) {
        if (message?.id === undefined || !ids.delete(JSON.stringify(message.id))) return [text];
        return change(message, text);
      },
    };
  };
}

function linesOf(chunk: Buffer): number {
  return chunk.toString("latin1").split("\n").length - 1;
}

function isEvent(message: Json): boolean {
  return "method" in message && !("id" in message);
}

type Broken = Fault & Required<Pick<Fault, "also">>;

/** Returns a fault that breaks the first of these rules; the others cannot help noticing it. */
function breaks(rules: string, pass: Fault["pass"], more: Pick<Fault, "framing" | "dialect"> = {}): Broken {
  const [rule, ...also] = rules.split(" ");
  return { rule, also, ...more, pass };
}

/** The same in Pi's dialect. */
const breaksPi = (rules: string, pass: Fault["pass"]): Broken => breaks(rules, pass, { dialect: "pi" });

export const FAULTS = {
  "drops a reply when many wait": breaks("every-request-answered", () => {
    let isDue = false;
    return {
      bytes(chunk) {
        isDue = linesOf(chunk) > 100;
        return chunk;
      },
      reply(text) {
        const isDropped = isDue;
        isDue = false;
        return isDropped ? [] : [text];
      },
    };
  }),
  "answers twice": breaks(
    "one-reply",
    onReplyTo("get_session_stats", (_message, text) => [text, text]),
  ),
  "swaps two replies when many wait": breaks("replies-in-order", () => {
    let isDue = false;
    let held: string | undefined;
    return {
      bytes(chunk) {
        isDue = linesOf(chunk) === 30;
        return chunk;
      },
      reply(text, message) {
        if (isDue && !isEvent(message)) {
          isDue = false;
          held = text;
          return [];
        }
        if (held === undefined || isEvent(message)) return [text];
        const texts = [text, held];
        held = undefined;
        return texts;
      },
    };
  }),
  "makes numbers of ids strings": breaks(
    `id-number id-large-number ids-by-type one-reply`,
    onReply((message) =>
      typeof message.id === "number" && !message.method ? { ...message, id: String(message.id) } : undefined,
    ),
  ),
  "loses the last member of a batch": breaks(
    "batch-array batch-invalid batch-order",
    onReply((message) => (Array.isArray(message) && message.length > 1 ? message.slice(0, -1) : undefined)),
  ),
  "answers notifications": breaks("notification-unanswered", answering("get_state", { result: {} })),
  "answers unknown notifications": breaks(
    "unknown-notification",
    answering("no_such_command", { error: { code: -32601, message: "Unknown." } }),
  ),
  "counts characters in Content-Length": breaks(
    "length-of-replies pieces length-of-requests id-string reply-limit strings-as-sent listed archived only-frames",
    () => ({ frame: (text) => Buffer.from(`Content-Length: ${text.length}\r\n\r\n${text}`) }),
    { framing: "headers" },
  ),
  "does not know carriage returns": breaks("carriage-return", (say) => ({
    bytes(chunk) {
      if (!/\}\r\n$/.test(chunk.toString("latin1"))) return chunk;
      say('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"No.","data":{"name":"parse_error"}}}');
      return Buffer.alloc(0);
    },
  })),
  "does not know byte order marks": breaks("byte-order-mark", () => ({
    bytes: (chunk) => (chunk[0] === 0xef ? Buffer.alloc(0) : chunk),
  })),
  "prints a greeting": breaks("only-frames", () => {
    let isGreeted = false;
    return {
      frame(text) {
        const greeting = isGreeted ? "" : "server ready\n";
        isGreeted = true;
        return Buffer.from(`${greeting}${text}\n`);
      },
    };
  }),
  "accepts params by position": breaks(
    "positional-params",
    onRequest((message) => (Array.isArray(message?.params) ? { ...message, params: { entryId: "x" } } : undefined)),
  ),
  "ignores unknown params": breaks("unknown-params", without("wish")),
  "leaves out retryable": breaks(
    "error-data",
    onReply((message) => {
      const { error } = message;
      return error?.data?.name && { ...message, error: { ...error, data: { ...error.data, retryable: undefined } } };
    }),
  ),
  "numbers unknown methods as invalid requests": breaks(
    "unknown-method",
    onReply((message) =>
      message.error?.code === -32601 ? { ...message, error: { ...message.error, code: -32600 } } : undefined,
    ),
  ),
  "sends events before the reply": breaks(`events-after-reply`, () => {
    const writes = new Set<string>();
    let held: string | undefined;
    return {
      request(text, message) {
        const isWrite = message?.method === "append" && message.params.idempotencyKey === undefined;
        if (isWrite) writes.add(JSON.stringify(message.id));
        return [text];
      },
      reply(text, message) {
        if (held === undefined) {
          const isWrite = writes.delete(JSON.stringify(message.id)) && message.result !== undefined;
          if (!isWrite) return [text];
          held = text;
          return [];
        }
        const texts = isEvent(message) ? [text, held] : [held, text];
        held = undefined;
        return texts;
      },
    };
  }),
  "sends no session_start at the beginning": breaks("start-event-first initialize-first initialize-state", () => ({
    reply: (text, message) => (message.params?.reason === "startup" ? [] : [text]),
  })),
  "sends events that were not chosen": breaks(
    "chosen-events",
    onRequest((message) => {
      if (message?.method !== "initialize" || message.params.capabilities?.events === undefined) return undefined;
      const { events: _events, ...capabilities } = message.params.capabilities;
      return { ...message, params: { ...message.params, capabilities } };
    }),
  ),
  "serializes entries anew": breaks(
    "numbers-as-sent strings-as-sent members-as-sent stored-bytes id-large-number separators-escaped",
    onReply((message) => message),
  ),
  "forgets nextCursor": breaks(
    "pages-of-path",
    onReplyTo("get_path", (message) => {
      const { nextCursor: _cursor, ...result } = message.result;
      return [JSON.stringify({ ...message, result })];
    }),
  ),
  "sends the last item of a page again": breaks(
    "pages-of-messages",
    onReplyTo("get_messages", (message) => {
      const { messages, nextCursor } = message.result;
      const again = nextCursor === undefined ? [] : messages.slice(-1);
      return [JSON.stringify({ ...message, result: { ...message.result, messages: [...messages, ...again] } })];
    }),
  ),
  "ignores maxReplyBytes": breaks("reply-limit reply-too-large", without("maxReplyBytes")),
  "ignores expectedLeafId": breaks(
    "expected-leaf error-data failed-in-order failed-without-events",
    without("expectedLeafId"),
  ),
  "forgets keys": breaks("idempotency-key key-in-other-process", without("idempotencyKey")),
  "remembers keys only while it lives": breaks("key-in-other-process repeat-after-kill", (say) => {
    const results = new Map<string, string>();
    const keys = new Map<string, string>();
    return {
      request(text, message) {
        const key = message?.params?.idempotencyKey;
        if (key === undefined) return [text];
        const known = results.get(key);
        if (known !== undefined) {
          say(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":${known}}`);
          return [];
        }
        keys.set(JSON.stringify(message.id), key);
        return [text.replace(`,"idempotencyKey":${JSON.stringify(key)}`, "")];
      },
      reply(text, message) {
        const key = keys.get(JSON.stringify(message.id));
        if (key !== undefined) results.set(key, JSON.stringify(message.result));
        return [text];
      },
    };
  }),
  "acts against the veto": breaks(
    "hook-veto",
    onRequest((message) => (message?.result?.cancel === true ? { ...message, result: {} } : undefined)),
  ),
  "asks hooks that were not named": breaks("hook-unnamed hook-named-only", (say) => {
    let isNamed = false;
    return {
      request(text, message) {
        if (text.includes('{"name":"session_before_tree"}')) isNamed = true;
        const isAsked = message?.method === "branch" && !isNamed;
        if (isAsked) say('{"jsonrpc":"2.0","id":"own","method":"session_before_tree","params":{}}');
        return message?.id === "own" ? [] : [text];
      },
    };
  }),
  "hides damage": breaks(
    "damage-reported",
    onReply(({ result, ...message }) =>
      result?.diagnostics?.length > 0 ? { ...message, result: { ...result, diagnostics: [] } } : undefined,
    ),
  ),
  "ends cut lines when it opens a file": breaks(
    "opening-changes-nothing damage-verified",
    onRequest((message) => {
      const { sessionPath } = message?.params ?? {};
      if (message?.method !== "switch_session" || !sessionPath.endsWith(".jsonl")) return undefined;
      try {
        if (readFileSync(sessionPath).at(-1) !== 0x0a) appendFileSync(sessionPath, "\n");
      } catch {
        // There is no such file.
      }
      return undefined;
    }),
  ),
  "loses what it writes to a session of another process": breaks("one-writer", (say) => {
    let isHeld = false;
    return {
      request(text, message) {
        if (message?.method === "new_session") isHeld = false;
        if (message?.method === "switch_session") return [text, '{"jsonrpc":"2.0","id":"own","method":"get_state"}'];
        if (message?.method !== "append" || !isHeld) return [text];
        const entryIds = message.params.entries.map((_: Json, at: number) => `lost-${at}`);
        say(JSON.stringify({ jsonrpc: "2.0", id: message.id, result: { entryIds, leafId: entryIds.at(-1) } }));
        return [];
      },
      reply(text, message) {
        if (message.id !== "own") return [text];
        const { lockedBy, holder } = message.result ?? {};
        isHeld = (lockedBy ?? holder ?? null) !== null;
        return [];
      },
    };
  }),
  "omits success": breaksPi(
    "pi-reply-shape",
    onText((text) => text.replace(',"success":true', "")),
  ),
  "calls every event an event": breaksPi(
    "pi-event-shape events-after-reply event-members append-event compact-event chosen-events foreign-event",
    onReply((message) =>
      message.type === "session_append" ? { ...message, type: "event", event: message.type } : undefined,
    ),
  ),
  "calls failures errors only": breaksPi(
    "pi-failure-shape",
    onReply((message) => (message.success === false ? { ...message, error: { message: message.error } } : undefined)),
  ),
  "refuses unknown members": breaksPi("pi-unknown-members", (say) => ({
    request(text, message) {
      if (message?.wish === undefined) return [text];
      const reply = { type: "response", command: message.type, success: false, error: "No.", code: "invalid_params" };
      say(JSON.stringify({ id: message.id, ...reply }));
      return [];
    },
  })),
} satisfies Readonly<Record<string, Fault>>;

export type FaultName = keyof typeof FAULTS | keyof typeof PROCESS_FAULTS;

/** Faults that show only where a process is killed, or another one is asked. */
export const PROCESS_FAULTS = {
  "acknowledges appends before it stores them": breaks("kill-acknowledged bytes-in-file", (say) => {
    let made = 0;
    const held: string[] = [];
    const early = new Set<string>();
    return {
      request(text, message) {
        const isHeld = message?.method === "append" && message.params.idempotencyKey === undefined;
        if (!isHeld) return [...held.splice(0), text];
        const entryIds: string[] = [];
        const named = text.replace(/\{"type":"(?:message|custom)",/g, (start) => {
          entryIds.push(`early-${++made}`);
          return `${start}"id":"early-${made}",`;
        });
        held.push(named);
        early.add(JSON.stringify(message.id));
        say(JSON.stringify({ jsonrpc: "2.0", id: message.id, result: { entryIds, leafId: entryIds.at(-1) } }));
        return [];
      },
      reply: (text, message) => (early.delete(JSON.stringify(message.id)) ? [] : [text]),
    };
  }),
} satisfies Readonly<Record<string, Fault>>;

/** Returns the streams of a server behind a proxy with a fault, whose host has these. */
export function faultyStreams(
  name: FaultName,
  input: Readable,
  output: Writable,
): { input: PassThrough; output: PassThrough } {
  const fault: Fault = { ...FAULTS, ...PROCESS_FAULTS }[name];
  const server = { input: new PassThrough(), output: new PassThrough() };
  const { framing = "lines" } = fault;
  const say: Say = (text) => output.write(passing.frame?.(text) ?? frameMessage(framing, text));
  const passing = fault.pass(say);
  const fromHost = new FrameCutter(framing);
  const fromServer = new FrameCutter(framing);
  input.on("data", (chunk: Buffer) => {
    const bytes = passing.bytes?.(chunk) ?? chunk;
    if (passing.request === undefined) {
      server.input.write(bytes);
      return;
    }
    for (const { bytes: payload } of fromHost.push(bytes)) {
      const message = jsonIn(payload);
      const sent = payload.toString("utf8");
      // An unchanged message passes as its original bytes.
      for (const text of message === undefined ? [sent] : passing.request(sent, message))
        server.input.write(frameMessage(framing, text === sent ? payload : text));
    }
  });
  input.on("end", () => server.input.end());
  server.output.on("data", (chunk: Buffer) => {
    for (const { bytes } of fromServer.push(chunk)) {
      const text = bytes.toString("utf8");
      for (const changed of passing.reply?.(text, JSON.parse(text)) ?? [text]) say(changed);
    }
  });
  return server;
}

/** Bytes beyond which a message is not looked at. */
const LARGE = 1 << 20;

function jsonIn(bytes: Buffer): Json | undefined {
  if (bytes.length > LARGE) return undefined;
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}
