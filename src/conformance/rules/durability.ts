/** Rules about the data that survives the kill of a server, and about the bytes of the file. */

import type { WireValue } from "../dialect.ts";
import { readBytes } from "../files.ts";
import type { RuleContext, Theme } from "../rule.ts";
import {
  append,
  getEntries,
  getIds,
  isEqual,
  makeCustom,
  makeSession,
  makeTurns,
  makeUser,
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

/** Returns the n-th group's entries, as far as they are there. */
function groupOf(entries: readonly WireValue[], n: number): WireValue[] {
  return entries.filter(({ data }) => data?.n === n);
}

export const durabilityTheme: Theme = {
  name: "durability",
  rules: [
    {
      name: "kill-acknowledged",
      title: "Every acknowledged write is there, once, after the server was killed.",
      source: "Order",
      async run(context) {
        const conversation = context.start();
        const ids = await makeTurns(conversation, "One");
        const path = await requirePath(conversation);
        for (let n = 0; n < 10; n++) ids.push(...(await append(conversation, makeCustom(n))));
        await conversation.kill();
        const next = await context.plain();
        await openSessionAt(next, path);
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
      async run(context) {
        const { path, acknowledged } = await cutStream(context);
        const next = await context.plain();
        await openSessionAt(next, path);
        const { entries, reply } = await getEntries(next);
        for (let n = 0; n < STREAM; n++) {
          const { length } = groupOf(entries, n);
          reply.must(
            length === 0 || length === GROUP,
            `all ${GROUP} entries of the append ${n} or none, not ${length}`,
          );
          if (acknowledged.has(n)) reply.must(length === GROUP, `the acknowledged entries of the append ${n}`);
        }
      },
    },
    {
      name: "repeat-after-kill",
      title: "Appends that are repeated with their keys after the server was killed are stored once, in order.",
      source: "Writing safely",
      async run(context) {
        const { path, acknowledged } = await cutStream(context);
        const next = await context.plain();
        await openSessionAt(next, path);
        for (let n = 0; n < STREAM; n++) {
          const again = await next.ask("append", keyed(n));
          const ids = again.list("entryIds");
          const before = acknowledged.get(n);
          if (before !== undefined) again.must(isEqual(ids, before), `the acknowledged ids ${before.join(", ")}`);
        }
        const { entries, reply } = await getEntries(next);
        const kept = entries.filter(({ type }) => type === "custom").map(({ data }) => `${data?.n}.${data?.k}`);
        const expected = Array.from({ length: STREAM * GROUP }, (_, at) => `${Math.floor(at / GROUP)}.${at % GROUP}`);
        reply.must(isEqual(kept, expected), "the entries of all appends, each once and in order");
      },
    },
    {
      name: "key-in-other-process",
      title: "An idempotency key of entries works in another process, because it is stored with them.",
      source: "Writing safely",
      needs: ["close_session"],
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
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
      needs: ["branch"],
      async run(context) {
        const conversation = context.start();
        const [, leaf] = await makeTurns(conversation, "One", "Two");
        const path = await requirePath(conversation);
        const moved = await conversation.ask("branch", { entryId: leaf });
        moved.must(moved.result.durable === true, "`durable: true`");
        await conversation.kill();
        const next = await context.plain();
        await openSessionAt(next, path);
        const { leafId, reply } = await getEntries(next);
        reply.must(leafId === leaf, `the leaf ${leaf}`);
      },
    },
    {
      name: "file-format",
      title: "A session file has the header first, and a line with one entry for each that was appended.",
      source: "Session format",
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        const file = await requireFile(conversation);
        const text = readBytes(file).toString();
        const broken = (expected: string): Error => conversation.broken(expected, text);
        if (!text.endsWith("\n")) throw broken("a line feed at the end of the file");
        const [header, ...entries] = text
          .trimEnd()
          .split("\n")
          .map((line) => JSON.parse(line));
        const isHeader = header?.type === "session" && header.version === 3 && typeof header.id === "string";
        if (!isHeader) throw broken("a header with the type session, the version 3 and an id");
        if (!isEqual(getIds(entries), ids)) throw broken(`the entries ${ids.join(", ")}`);
        const areWhole = entries.every((entry) => Object.keys(entry)[0] === "type" && "parentId" in entry);
        if (!areWhole) throw broken("entries with type first and parentId");
      },
    },
    {
      name: "lines-only-added",
      title: "Lines are added to a session file and never changed.",
      source: "Session format",
      needs: ["branch", "set_label", "set_session_name"],
      async run(context) {
        const conversation = await context.plain();
        const [first] = await makeTurns(conversation, "One", "Two");
        const file = await requireFile(conversation);
        let before = readBytes(file);
        const writes = [
          ["append", { entries: [makeCustom(1)] }],
          ["set_label", { entryId: first, label: "begin" }],
          ["set_session_name", { name: "Named" }],
          ["branch", { entryId: first }],
          ["append", { entries: [makeUser("Three")] }],
        ] as const;
        for (const [command, params] of writes) {
          const reply = await conversation.ask(command, params);
          void reply.result;
          const now = readBytes(file);
          const areKept = now.subarray(0, before.length).equals(before);
          reply.must(areKept, `that the file still begins with the ${before.length} bytes that it had`);
          before = now;
        }
      },
    },
    {
      name: "bytes-in-file",
      title: "An entry is in the file as it was sent.",
      source: "Writing safely",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        await append(conversation, makeUser("One"));
        const file = await requireFile(conversation);
        const data = '{"z":1.0,"a":[1e3,"\\u00e9"],"large":12345678901234567890}';
        const reply = await conversation.ask(
          "append",
          `{"entries":[{"type":"custom","customType":"x","data":${data}}]}`,
        );
        void reply.result;
        if (!readBytes(file).includes(data)) throw reply.broken(`the text ${data} in the file ${file}`);
      },
    },
    {
      name: "reading-writes-nothing",
      title: "Reading changes no byte of a session.",
      source: "Old and damaged files",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One", "Two");
        const file = await requireFile(conversation);
        const before = readBytes(file);
        for (const command of ["get_state", "get_entries", "get_tree", "get_messages", "get_path", "get_fork_messages"])
          void (await conversation.ask(command)).result;
        await makeSession(conversation);
        await openSessionAt(conversation, file);
        await getEntries(conversation);
        if (!readBytes(file).equals(before)) throw conversation.broken("the bytes of the file as they were", "others");
      },
    },
  ],
};

/** A session that was being written in a stream of appends when its server was killed. */
interface CutStream {
  readonly path: string;
  /** Acknowledged ids, by the number of the append. */
  readonly acknowledged: ReadonlyMap<number, WireValue[]>;
}

/** Kills a server in a stream of appends, once for all rules that check the remaining file. */
function cutStream(context: RuleContext): Promise<CutStream> {
  return context.once("cut stream", async () => {
    const conversation = context.start();
    await makeTurns(conversation, "Begin");
    const path = await requirePath(conversation);
    // One write for each, so that the server has not read all of them when it dies.
    const requests = Array.from({ length: STREAM }, (_, n) => conversation.begin(["append", keyed(n)])[0]);
    const acknowledged = new Map<number, WireValue[]>();
    acknowledged.set(AWAITED, (await conversation.replyTo(requests[AWAITED])).list("entryIds"));
    await conversation.kill();
    for (const [n, id] of requests.entries()) {
      const reply = n === AWAITED ? undefined : await conversation.replyIfThere(id);
      if (reply !== undefined && !reply.isFailure) acknowledged.set(n, reply.list("entryIds"));
    }
    return { path, acknowledged };
  });
}
