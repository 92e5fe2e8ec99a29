/** Rules about files that are old, damaged, or written by other programs. */

import { isJsonrpc } from "../combination.ts";
import type { Conversation } from "../conversation.ts";
import type { WireValue } from "../dialect.ts";
import { appendTo, isThere, readBytes, writeTo } from "../files.ts";
import { defineTheme, type RuleRow } from "../row.ts";
import {
  append,
  getDamage,
  getEntries,
  getIds,
  getState,
  isEqual,
  makeCustom,
  makeSession,
  makeUser,
  mustHaveBytes,
  mustHaveEntries,
  openSessionAt,
  requirePath,
} from "../steps.ts";

const TIME = "2026-01-24T16:22:26.831Z";

function header(id: string, more: Readonly<Record<string, unknown>> = {}): string {
  return JSON.stringify({ type: "session", version: 3, id, timestamp: TIME, cwd: "/project", ...more });
}

/** Returns the line of a message of the user, as Pi writes it, with more members behind those of every entry. */
function line(id: string, parentId: string | null, more: Readonly<Record<string, unknown>> = {}): string {
  const message = { role: "user", content: `I am ${id}` };
  return JSON.stringify({ type: "message", id, parentId, timestamp: TIME, ...more, message });
}

const GOOD = [line("aaaaaaa1", null), line("aaaaaaa2", "aaaaaaa1"), line("aaaaaaa3", "aaaaaaa2")];

const BROKEN = [GOOD[0], GOOD[1], "}{ broken", GOOD[2]];
const BROKEN_LINE = "a broken line in the middle";

/** An entry that no program would write so. */
const ODD = `{"id":"eeeeeee1","type":"message","x" : 1.0,"parentId":null,"timestamp":"${TIME}","message":{"role":"user","content":"\\u0041","n":1e2}}`;

/** Returns the line of an entry of an incomplete list. */
function part(id: string, parentId: string, index: number): string {
  return line(id, parentId, { _batch: { session: "incomplete", index, count: 3 } });
}

/** Damaged files of a session, by the kind of damage. */
const DAMAGED: Readonly<Record<string, (id: string) => Buffer>> = {
  [BROKEN_LINE]: (id) => file(header(id), ...BROKEN),
  "a last line that was cut off": (id) => Buffer.from(`${[header(id), ...GOOD].join("\n")}\n${GOOD[0].slice(0, 40)}`),
  "bytes that are not UTF-8": (id) =>
    Buffer.concat([
      file(header(id), ...GOOD.slice(0, 2)),
      Buffer.from(`${line("bbbbbbb1", "aaaaaaa2").replace("I am", "I \xff\xfe")}\n`, "latin1"),
      file(GOOD[2]),
    ]),
  "NUL bytes between the lines": (id) =>
    Buffer.concat([file(header(id), ...GOOD.slice(0, 2)), Buffer.alloc(64), file("", GOOD[2])]),
};

function file(...lines: readonly string[]): Buffer {
  return Buffer.from(lines.map((text) => `${text}\n`).join(""));
}

/** Returns a file of an older version, with a user message and an answer. */
function oldFile(version: number): Buffer {
  const lines = [
    { type: "message", timestamp: TIME, message: { role: "user", content: "Old" } },
    { type: "message", timestamp: TIME, message: { role: "assistant", content: [{ type: "text", text: "Very" }] } },
  ];
  const head = { type: "session", ...(version === 1 ? {} : { version }), id: `old-${version}`, timestamp: TIME };
  const linked = lines.map((entry, n) =>
    version === 1 ? entry : { ...entry, id: `fffffff${n}`, parentId: n === 0 ? null : `fffffff${n - 1}` },
  );
  return file(...[{ ...head, cwd: "/project" }, ...linked].map((value) => JSON.stringify(value)));
}

/** A session file that a rule looks at, and its fault. */
interface RuleFile {
  readonly id: string;
  readonly bytes: Buffer;
  readonly what: string;
}

/** Returns a file with a sound header and these lines. */
function oneFile(id: string, ...lines: readonly string[]): RuleFile[] {
  return [{ id, bytes: file(header(id), ...lines), what: "" }];
}

function damagedFiles(rule: string): RuleFile[] {
  return Object.entries(DAMAGED).map(([what, make], n) => ({ id: `${rule}-${n}`, bytes: make(`${rule}-${n}`), what }));
}

function oldFiles(rule: string): RuleFile[] {
  return [1, 2].map((version) => ({ id: `${rule}-${version}`, bytes: oldFile(version), what: String(version) }));
}

/** Returns a check that writes each file, makes it the current session, and looks at it. */
function forEach(
  files: readonly RuleFile[],
  look: (conversation: Conversation, file: RuleFile, path: string) => Promise<void>,
): RuleRow["check"] {
  return async (conversation, _ids, { folder }) => {
    for (const one of files) {
      const path = `${folder}/${one.id}.jsonl`;
      writeTo(path, one.bytes);
      await openSessionAt(conversation, path);
      await look(conversation, one, path);
    }
  };
}

const MARKED = { id: "marked", bytes: Buffer.concat([Buffer.from("\ufeff"), file(header("marked"), ...GOOD)]) };

export const damageTheme = defineTheme("damage", [
  {
    name: "damage-read-past",
    title: "A damaged file opens, and the entries before and after the damage are there.",
    source: "Old and damaged files",
    check: forEach(damagedFiles("read-past"), async (conversation, { what }) => {
      const { entries, reply } = await getEntries(conversation);
      const ids = getIds(entries);
      const areThere = GOOD.every((text) => ids.includes(JSON.parse(text).id));
      reply.must(areThere, `the three good entries of a file with ${what}`);
    }),
  },
  {
    name: "damage-reported",
    title: "Damage is reported with its line, its byte offset and a reason.",
    source: "Old and damaged files",
    check: forEach(damagedFiles("reported"), async (conversation, { bytes, what }) => {
      // Damage inside an entry may be found when the entry is read.
      await getEntries(conversation);
      const { damage: found, reply } = await getDamage(conversation);
      reply.must(found.length > 0, `damage, because the file has ${what}`);
      const isPlaced = ({ byteOffset, reason }: WireValue): boolean =>
        byteOffset > 0 && byteOffset < bytes.length && typeof reason === "string" && reason !== "";
      reply.must(found.some(isPlaced), "damage with byteOffset and reason");
      const isFourth = what !== BROKEN_LINE || found.some((one) => one?.line === 4);
      reply.must(isFourth, "damage in line 4");
    }),
  },
  {
    name: "sound-not-reported",
    title: "A sound session has no damage.",
    source: "Old and damaged files",
    check: forEach(oneFile("sound", ...GOOD), async (conversation) => {
      const { damage: found, reply } = await getDamage(conversation);
      reply.must(found.length === 0, "no damage");
      const verified = await conversation.ask("verify_session");
      verified.must(verified.result.ok === true, "`ok: true`");
    }),
  },
  {
    name: "damage-verified",
    title: "verify_session reports damage and changes nothing.",
    source: "verify_session",
    check: forEach(damagedFiles("verified"), async (conversation, { bytes, what }, path) => {
      const reply = await conversation.ask("verify_session");
      reply.must(reply.list("damage").length > 0 && reply.result.ok === false, `damage, for the file has ${what}`);
      mustHaveBytes(conversation, path, bytes);
    }),
  },
  {
    name: "opening-changes-nothing",
    title: "Opening and reading a file removes and changes nothing of it, whatever is wrong with it.",
    source: "Old and damaged files",
    check: forEach(
      [{ ...MARKED, what: "a byte order mark" }, ...damagedFiles("unchanged")],
      async (conversation, { bytes }, path) => {
        await getEntries(conversation);
        await makeSession(conversation);
        mustHaveBytes(conversation, path, bytes);
      },
    ),
  },
  {
    name: "damage-survives-writes",
    title: "Writing to a damaged file adds lines and leaves its own as they are.",
    source: "Session format",
    check: forEach(oneFile("survives", ...BROKEN), async (conversation, { bytes }, path) => {
      await append(conversation, makeUser("After the damage"));
      mustHaveBytes(conversation, path, bytes, true);
      const { entries, reply } = await getEntries(conversation);
      reply.must(entries.at(-1)?.parentId === "aaaaaaa3", "the new entry after the last good one");
    }),
  },
  {
    name: "damage-repaired",
    title: "repair_session removes damage and keeps the original next to the session.",
    source: "repair_session",
    check: forEach(oneFile("repaired", ...BROKEN), async (conversation, { bytes }) => {
      const reply = await conversation.ask("repair_session");
      reply.must(reply.list("repaired").length > 0, "the damage that was removed");
      const backup = reply.string("backupPath");
      reply.must(isThere(backup) && readBytes(backup).equals(bytes), "the original, byte for byte, at backupPath");
      const { damage: found, reply: after } = await getDamage(conversation);
      const isGone = found.every(({ kind }) => kind !== "bad_line");
      after.must(isGone, "no bad_line any more");
      const { entries, reply: read } = await getEntries(conversation);
      read.must(entries.length === 3, "the three good entries");
    }),
  },
  {
    name: "incomplete-list",
    title: "An incomplete list at the end of a file was never acknowledged and does not count.",
    source: "Writing safely",
    check: forEach(
      oneFile("incomplete", ...GOOD, part("ccccccc1", "aaaaaaa3", 0), part("ccccccc2", "ccccccc1", 1)),
      async (conversation) => {
        const { entries, leafId, reply } = await getEntries(conversation);
        reply.must(entries.length === 3, "the three entries before the list");
        reply.must(leafId === "aaaaaaa3", "the leaf aaaaaaa3");
      },
    ),
  },
  {
    name: "same-id-twice",
    title: "If two entries have the same id, the second is called <id>~2.",
    source: "Ids",
    check: forEach(oneFile("twice", GOOD[0], GOOD[1], line("aaaaaaa1", "aaaaaaa2")), async (conversation) => {
      const tree = await conversation.ask("get_tree", { format: "flat" });
      tree.must(isEqual(getIds(tree.list("nodes")), ["aaaaaaa1", "aaaaaaa2", "aaaaaaa1~2"]), "a node aaaaaaa1~2");
    }),
  },
  {
    name: "old-versions-open",
    title: "Files of version 1 and 2 open as they are, and reading does not change them.",
    source: "Old and damaged files",
    check: forEach(oldFiles("old-open"), async (conversation, { bytes }, path) => {
      const { entries, reply } = await getEntries(conversation);
      reply.must(entries.length === 2, "two entries");
      const messages = await conversation.ask("get_messages");
      messages.must(messages.list("messages").length === 2, "two messages");
      await makeSession(conversation);
      mustHaveBytes(conversation, path, bytes);
    }),
  },
  {
    name: "old-ids-stand",
    title: "The ids of entries of version 1, which have none, are the same each time.",
    source: "Old and damaged files",
    async check(conversation, _ids, context) {
      const path = `${context.folder}/old-ids.jsonl`;
      writeTo(path, oldFile(1));
      const found: unknown[][] = [];
      for (const one of [conversation, await context.hooked()]) {
        await openSessionAt(one, path);
        const tree = await one.ask("get_tree", { format: "flat" });
        found.push(getIds(tree.list("nodes")));
        tree.must(found[0].length === 2, "two nodes");
        tree.must(isEqual(found.at(-1), found[0]), "the same ids in another process");
      }
    },
  },
  {
    name: "old-versions-kept",
    title: "The first write makes a file of version 1 or 2 one of version 3, and keeps the original next to it.",
    source: "Old and damaged files",
    check: forEach(oldFiles("old-kept"), async (conversation, { bytes, what: version }, path) => {
      await append(conversation, makeUser("New"));
      const backup = `${path}.v${version}.bak`;
      const isKept = isThere(backup) && readBytes(backup).equals(bytes);
      conversation.must(isKept, `the original, byte for byte, as ${backup}`, "none, or another");
      const [head] = readBytes(path).toString().split("\n");
      conversation.must(JSON.parse(head).version === 3, "a header of version 3", head);
    }),
  },
  {
    name: "newer-version",
    title: "A file of a newer version opens for reading only.",
    source: "Old and damaged files",
    check: forEach(
      [{ id: "newer", bytes: file(header("newer", { version: 99 }), ...GOOD), what: "" }],
      async (conversation, { bytes }, path) => {
        const { entries, reply } = await getEntries(conversation);
        reply.must(entries.length === 3, "three entries");
        (await conversation.ask("append", { entries: [makeCustom(1)] })).mustFail("read_only", "unsupported_version");
        mustHaveBytes(conversation, path, bytes);
      },
    ),
  },
  {
    name: "no-session-file",
    title: "A file that is no session is refused, and the session before stays.",
    source: "switch_session",
    given: ["One"],
    async check(conversation, _ids, { folder }) {
      const { sessionId } = await getState(conversation);
      const path = `${folder}/no-session-file.jsonl`;
      writeTo(path, '{"a":1}\n');
      (await conversation.ask("switch_session", { sessionPath: path })).mustFail("not_a_session");
      (await conversation.ask("switch_session", { sessionPath: `${path}.none` })).mustFail("session_not_found");
      const state = await conversation.ask("get_state");
      state.must(state.result.sessionId === sessionId, `the session ${sessionId}`);
    },
  },
  {
    name: "foreign-entries",
    title:
      "Entries that another program appends are added before the next change; if they continue the leaf, it moves.",
    source: "Other programs",
    check: forEach(oneFile("foreign", ...GOOD), async (conversation, _file, path) => {
      appendTo(path, file(line("ddddddd1", "aaaaaaa3")));
      const [own] = await append(conversation, makeUser("After the other"));
      const { entries, reply } = await getEntries(conversation);
      const foreign = entries.find(({ id }) => id === "ddddddd1");
      reply.must(foreign !== undefined, "the entry of the other program");
      const parent = entries.find(({ id }) => id === own)?.parentId;
      reply.must(parent === "ddddddd1", "that the new entry continues it");
    }),
  },
  {
    name: "foreign-event",
    title: "session_append with the origin foreign reports entries of another program.",
    source: "Other programs",
    check: forEach(oneFile("foreign-event", ...GOOD), async (conversation, _file, path) => {
      await conversation.settle();
      appendTo(path, file(line("ddddddd2", "aaaaaaa3")));
      await append(conversation, makeUser("After the other"));
      const { value, text } = await conversation.event("session_append");
      const isRight = isEqual(value.entryIds, ["ddddddd2"]) && value.origin === "foreign";
      conversation.must(isRight, "session_append of ddddddd2 with the origin foreign", text);
    }),
  },
  {
    name: "stored-bytes",
    title: "Entries of a file are sent byte for byte as they are stored.",
    source: "get_entries",
    check: forEach(oneFile("stored-bytes", ODD), async (conversation) => {
      const reply = await conversation.ask("get_entries");
      reply.must(reply.textAt("entries", 0) === ODD, ODD);
    }),
  },
  {
    name: "one-writer",
    title: "A session that one process writes to opens in another; a change there fails, or is done in the same tree.",
    source: "Several hosts on one session",
    given: ["One"],
    async check(writer, ids, context) {
      const path = await requirePath(writer);
      const other = await context.hooked();
      await openSessionAt(other, path);
      await mustHaveEntries(other, ids);
      const write = await other.ask("append", { entries: [makeCustom(1)] });
      if (write.isFailure) {
        write.mustFail("session_locked");
        if (isJsonrpc(context.combination)) {
          const state = await other.ask("get_state");
          state.must(typeof state.result.lockedBy?.pid === "number", "`lockedBy` with the process that writes");
        }
      } else {
        ids.push(...(write.list("entryIds") as string[]));
        for (const conversation of [other, writer]) await mustHaveEntries(conversation, ids);
      }
      await append(writer, makeUser("Two"));
      const { entries, reply } = await getEntries(writer);
      const isChain = entries.every(({ parentId }, at) => parentId === (entries[at - 1]?.id ?? null));
      reply.must(entries.length === ids.length + 1 && isChain, "one entry more, and each the parent of the next");
    },
  },
]);
