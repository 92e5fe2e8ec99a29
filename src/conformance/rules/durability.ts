/** Rules about the data that survives the kill of a server, and about the bytes of the file. */

import type { Conversation } from "../conversation.ts";
import type { WireValue } from "../dialect.ts";
import { readBytes } from "../files.ts";
import { defineTheme } from "../row.ts";
import type { RuleContext } from "../rule.ts";
import {
  append,
  getEntries,
  getIds,
  isEqual,
  makeCustom,
  makeSession,
  makeTurns,
  makeUser,
  mustHaveBytes,
  openSessionAt,
  requireFile,
  requirePath,
} from "../steps.ts";

/** Appends that are sent in one stream, the entries of each, and those that are waited for before the server is killed. */
const STREAM = 60;
const GROUP = 3;
const AWAITED = 20;

/** Returns the params of the n-th append of a stream. */
function keyed(n: number): { entries: WireValue[]; idempotencyKey: string } {
  const entries = Array.from({ length: GROUP }, (_, k) => makeCustom({ n, k }));
  return { entries, idempotencyKey: `stream-${n}` };
}

/** A session that was being written in a stream of appends when its server was killed. */
interface CutStream {
  readonly path: string;
  /** Acknowledged ids, by the number of the append. */
  readonly acknowledged: ReadonlyMap<number, WireValue[]>;
}

/** Kills a server in a stream of appends, once for all rules, and opens the remaining file in another. */
async function openCutStream(conversation: Conversation, context: RuleContext): Promise<CutStream["acknowledged"]> {
  const { path, acknowledged } = await context.once("cut stream", async (): Promise<CutStream> => {
    const killed = context.start();
    await makeTurns(killed, "Begin");
    const path = await requirePath(killed);
    // One write for each, so that the server has not read all of them when it dies.
    const requests = Array.from({ length: STREAM }, (_, n) => killed.begin(["append", keyed(n)])[0]);
    const acknowledged = new Map<number, WireValue[]>();
    acknowledged.set(AWAITED, (await killed.replyTo(requests[AWAITED])).list("entryIds"));
    await killed.kill();
    for (const [n, id] of requests.entries()) {
      const reply = n === AWAITED ? undefined : await killed.replyIfThere(id);
      if (reply !== undefined && !reply.isFailure) acknowledged.set(n, reply.list("entryIds"));
    }
    return { path, acknowledged };
  });
  await openSessionAt(conversation, path);
  return acknowledged;
}

/** Kills a server, and opens its session in another. */
async function openAfterKill(killed: Conversation, context: RuleContext, path: string): Promise<Conversation> {
  await killed.kill();
  const next = await context.plain();
  await openSessionAt(next, path);
  return next;
}

export const durabilityTheme = defineTheme("durability", [
  {
    name: "kill-acknowledged",
    title: "Every acknowledged write is there, once, after the server was killed.",
    source: "Order",
    on: "own",
    given: ["One"],
    async check(conversation, ids, context) {
      const path = await requirePath(conversation);
      for (let n = 0; n < 10; n++) ids.push(...(await append(conversation, makeCustom(n))));
      const next = await openAfterKill(conversation, context, path);
      const { entries, reply } = await getEntries(next);
      for (const id of ids) {
        const times = entries.filter((entry) => entry.id === id).length;
        reply.must(times === 1, `the entry ${id} once; it is there ${times} times`);
      }
    },
  },
  {
    name: "kill-in-stream",
    title: "A server killed in a stream of appends has every acknowledged one, and of each list all entries or none.",
    source: "Writing safely",
    async check(conversation, _ids, context) {
      const acknowledged = await openCutStream(conversation, context);
      const { entries, reply } = await getEntries(conversation);
      for (let n = 0; n < STREAM; n++) {
        const { length } = entries.filter(({ data }) => data?.n === n);
        const isWhole = length === 0 || length === GROUP;
        reply.must(isWhole, `all ${GROUP} entries of the append ${n} or none, not ${length}`);
        if (acknowledged.has(n)) reply.must(length === GROUP, `the acknowledged entries of the append ${n}`);
      }
    },
  },
  {
    name: "repeat-after-kill",
    title: "Appends that are repeated with their keys after the server was killed are stored once, in order.",
    source: "Writing safely",
    async check(conversation, _ids, context) {
      const acknowledged = await openCutStream(conversation, context);
      for (let n = 0; n < STREAM; n++) {
        const again = await conversation.ask("append", keyed(n));
        const ids = again.list("entryIds");
        const before = acknowledged.get(n);
        if (before !== undefined) again.must(isEqual(ids, before), `the acknowledged ids ${before.join(", ")}`);
      }
      const { entries, reply } = await getEntries(conversation);
      const kept = entries.filter(({ type }) => type === "custom").map(({ data }) => `${data?.n}.${data?.k}`);
      const expected = Array.from({ length: STREAM * GROUP }, (_, at) => `${Math.floor(at / GROUP)}.${at % GROUP}`);
      reply.must(isEqual(kept, expected), "the entries of all appends, each once and in order");
    },
  },
  {
    name: "key-in-other-process",
    title: "An idempotency key of entries works in another process, because it is stored with them.",
    source: "Writing safely",
    given: [],
    async check(conversation, _ids, context) {
      const path = await requirePath(conversation);
      await append(conversation, makeUser("One"));
      const params = { entries: [makeUser("Once"), makeCustom(1)], idempotencyKey: "key-2" };
      const ids = (await conversation.ask("append", params)).list("entryIds");
      await makeSession(conversation);
      const other = await context.hooked();
      await openSessionAt(other, path);
      const again = await other.ask("append", params);
      again.must(isEqual(again.list("entryIds"), ids), `the entryIds ${ids.join(", ")}`);
      const { entries, reply } = await getEntries(other);
      reply.must(entries.length === 3, "three entries, those with the key once");
    },
  },
  {
    name: "leaf-after-kill",
    title: "The leaf to which branch moved is remembered when the server was killed.",
    source: "Old and damaged files",
    on: "own",
    given: ["One", "Two"],
    steps: [["branch", { entryId: "<entry-2>" }, { durable: true }]],
    async check(conversation, [, leaf], context) {
      const path = await requirePath(conversation);
      const { leafId, reply } = await getEntries(await openAfterKill(conversation, context, path));
      reply.must(leafId === leaf, `the leaf ${leaf}`);
    },
  },
  {
    name: "file-format",
    title: "A session file has the header first, and a line with one entry for each that was appended.",
    source: "Session format",
    given: ["One", "Two"],
    async check(conversation, ids) {
      const text = readBytes(await requireFile(conversation)).toString();
      conversation.must(text.endsWith("\n"), "a line feed at the end of the file", text);
      const [header, ...entries] = text
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line));
      const isHeader = header?.type === "session" && header.version === 3 && typeof header.id === "string";
      conversation.must(isHeader, "a header with the type session, the version 3 and an id", text);
      conversation.must(isEqual(getIds(entries), ids), `the entries ${ids.join(", ")}`, text);
      const areWhole = entries.every((entry) => Object.keys(entry)[0] === "type" && "parentId" in entry);
      conversation.must(areWhole, "entries with type first and parentId", text);
    },
  },
  {
    name: "lines-only-added",
    title: "Lines are added to a session file and never changed.",
    source: "Session format",
    given: ["One", "Two"],
    async check(conversation, [first]) {
      const file = await requireFile(conversation);
      const writes = [
        ["append", { entries: [makeCustom(1)] }],
        ["set_label", { entryId: first, label: "begin" }],
        ["set_session_name", { name: "Named" }],
        ["branch", { entryId: first }],
        ["append", { entries: [makeUser("Three")] }],
      ] as const;
      for (const [command, params] of writes) {
        const before = readBytes(file);
        await conversation.run(command, params);
        mustHaveBytes(conversation, file, before, true);
      }
    },
  },
  {
    name: "bytes-in-file",
    title: "An entry is in the file as it was sent.",
    source: "Writing safely",
    given: [],
    async check(conversation) {
      await append(conversation, makeUser("One"));
      const file = await requireFile(conversation);
      const data = '{"z":1.0,"a":[1e3,"\\u00e9"],"large":12345678901234567890}';
      const text = `{"entries":[{"type":"custom","customType":"x","data":${data}}]}`;
      const reply = await conversation.ask("append", text);
      void reply.result;
      reply.must(readBytes(file).includes(data), `the text ${data} in the file ${file}`);
    },
  },
  {
    name: "reading-writes-nothing",
    title: "Reading changes no byte of a session.",
    source: "Old and damaged files",
    given: ["One", "Two"],
    async check(conversation) {
      const file = await requireFile(conversation);
      const before = readBytes(file);
      for (const command of ["get_state", "get_entries", "get_tree", "get_messages", "get_path", "get_fork_messages"])
        await conversation.run(command);
      await makeSession(conversation);
      await openSessionAt(conversation, file);
      await getEntries(conversation);
      mustHaveBytes(conversation, file, before);
    },
  },
]);
