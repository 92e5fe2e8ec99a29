// Compares the library with Pi's own SessionManager on random session files, and checks every difference that is
// meant (docs/pi-differences.md). Not part of the tests: Pi is large. Run `npm run build` before.
//
//   node scripts/compare-with-pi.js                       installs Pi 0.73.1 into a temporary folder
//   node scripts/compare-with-pi.js --pi <folder>         uses the package that is unpacked or installed there
//   node scripts/compare-with-pi.js --node <program> --pi15 <folder>
//                                                         also Pi 1.5.2, under that Node (22.19 or newer)
//   --seed <n>  --sessions <n>  --lib <file>              the first random seed, how many files, the library's index.js
import { execFileSync, spawnSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { isDeepStrictEqual, parseArgs } from "node:util";

const SELF = fileURLToPath(import.meta.url);
const DOCUMENT = fileURLToPath(new URL("../docs/pi-differences.md", import.meta.url));

const { values: options } = parseArgs({
  options: {
    pi: { type: "string" },
    pi15: { type: "string" },
    node: { type: "string" },
    lib: { type: "string", default: fileURLToPath(new URL("../dist/lib/index.js", import.meta.url)) },
    seed: { type: "string", default: "1" },
    sessions: { type: "string", default: "300" },
    // The Pi that this process runs: set when the script calls itself.
    generation: { type: "string" },
  },
});

const GENERATIONS = {
  0.73: { name: "@mariozechner/pi-coding-agent@0.73.1", entry: "dist/index.js", modern: false },
  1.5: { name: "@earendil-works/pi-coding-agent@1.5.2", entry: "dist/bundle/index.js", modern: true },
};

// --- time ------------------------------------------------------------------------------------------------------

/** A clock of our own: both sides are asked at the same times. */
const RealDate = Date;
let now = RealDate.parse("2026-02-03T10:00:00.000Z");
class FixedDate extends RealDate {
  constructor(...given) {
    if (given.length === 0) super(now);
    else super(...given);
  }
  static now() {
    return now;
  }
}

// --- random sessions -------------------------------------------------------------------------------------------

class Random {
  constructor(seed) {
    this.state = seed >>> 0;
  }
  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
  int(limit) {
    return Math.floor(this.next() * limit);
  }
  chance(probability) {
    return this.next() < probability;
  }
  pick(list) {
    return list[this.int(list.length)];
  }
  hex(digits) {
    let text = "";
    while (text.length < digits) text += this.int(16).toString(16);
    return text;
  }
}

const START = RealDate.parse("2026-01-24T16:22:26.831Z");
const WORDS = [
  "alpha",
  "beta",
  "\u2028gamma",
  "déjà",
  "日本",
  'quote"',
  "back\\slash",
  "tab\t",
  "emoji 🚀",
  "line\nbreak",
];
const textOf = (random) => Array.from({ length: 1 + random.int(5) }, () => random.pick(WORDS)).join(" ");

function message(random, modern, time) {
  const text = textOf(random);
  const usage = {
    input: random.int(900),
    output: random.int(900),
    cacheRead: 0,
    cacheWrite: random.int(9),
    totalTokens: random.int(2000),
    cost: { input: 0.1, output: 0.25, cacheRead: 0, cacheWrite: 0, total: 0.35 },
  };
  const assistant = {
    role: "assistant",
    content: random.pick([
      [{ type: "text", text }],
      [
        { type: "thinking", thinking: text, thinkingSignature: "s" },
        { type: "toolCall", id: random.pick(["call_1", "call_2"]), name: "bash", arguments: { command: "ls", n: 1.5 } },
      ],
      [],
    ]),
    api: "anthropic-messages",
    provider: random.pick(["anthropic", "openai"]),
    model: `model-${random.int(5)}`,
    usage,
    stopReason: random.pick(["stop", "toolUse", "error"]),
    timestamp: time,
  };
  const kinds = [
    { role: "user", content: text, timestamp: time },
    {
      role: "user",
      content: [
        { type: "text", text },
        { type: "image", data: "aGk=", mimeType: "image/png" },
      ],
    },
    assistant,
    assistant,
    {
      role: "toolResult",
      toolCallId: random.pick(["call_1", "call_2"]),
      toolName: "bash",
      content: [{ type: "text", text }],
      isError: false,
    },
    { role: "custom", customType: "note", content: text, display: true, timestamp: time },
    { role: "bashExecution", command: "ls", output: text, exitCode: 0, cancelled: false, truncated: false },
    { role: "unheard_of", payload: text },
  ];
  // Features that the older Pi does not have.
  if (modern)
    kinds.push(
      { role: "user" },
      { role: "assistant", content: null, provider: "openai", model: "none" },
      systemMessage(random, time),
      systemMessage(random, time),
    );
  return random.pick(kinds);
}

function systemMessage(random, time) {
  const system = { role: "system", content: random.pick(["", "You are helpful.", textOf(random)]), timestamp: time };
  if (random.chance(0.6))
    system.sections = { [random.pick(["tools", "cwd"])]: random.chance(0.3) ? null : textOf(random), preamble: "p" };
  if (random.chance(0.4))
    system.toolsAdded = [{ name: random.pick(["bash", "read"]), description: "d", parameters: {} }];
  if (random.chance(0.3)) system.toolsRemoved = [{ name: random.pick(["bash", "read"]) }];
  return system;
}

/** A session of version 2 or 3 as values, or of version 1: a chain whose entries have no ids. */
function randomSession(random, version, modern) {
  const header = { type: "session", version, id: sessionId(random), timestamp: new RealDate(START).toISOString() };
  header.cwd = random.pick(["/home/me/project", "/home/me/other"]);
  if (version === 1) delete header.version;
  if (random.chance(0.2)) header.parentSession = "/somewhere/else.jsonl";
  const entries = [];
  const count = random.int(40) + (random.chance(0.05) ? 0 : 1);
  for (let n = 0; n < count; n++) {
    const last = entries.at(-1);
    let parent = last;
    if (version > 1 && last && random.chance(0.15)) parent = random.chance(0.1) ? undefined : random.pick(entries);
    const time = START + n * 1000;
    const entry = { type: randomType(random, modern), id: uniqueId(random, entries), parentId: parent?.id ?? null };
    entry.timestamp = new RealDate(time).toISOString();
    Object.assign(entry, body(random, modern, version, entry, entries, time));
    entries.push(entry);
  }
  if (version === 1)
    for (const entry of entries) {
      if (entry.type === "compaction") {
        const kept = entries.findIndex(({ id }) => id === entry.firstKeptEntryId);
        entry.firstKeptEntryIndex = kept + 1;
        delete entry.firstKeptEntryId;
      }
      entry.given = entry.id;
    }
  if (version === 1)
    for (const entry of entries) {
      delete entry.id;
      delete entry.parentId;
      delete entry.given;
      // Nothing can refer to entries that have no ids yet.
      if (entry.type === "label") entry.type = "label_before_ids";
      if (entry.type === "context_edit") entry.type = "edit_before_ids";
    }
  return { header, entries };
}

function sessionId(random) {
  return `01991f6e-${random.hex(4)}-7${random.hex(3)}-8${random.hex(3)}-${random.hex(12)}`;
}

function uniqueId(random, entries) {
  for (;;) {
    // Ids are eight hex digits; other programs write longer ones.
    const id = random.chance(0.05) ? `entry_${random.hex(6)}` : random.hex(8);
    if (!entries.some((entry) => entry.id === id)) return id;
  }
}

function randomType(random, modern) {
  const types = ["message", "message", "message", "message", "message", "message", "custom", "custom_message"];
  types.push("model_change", "thinking_level_change", "branch_summary", "session_info", "label", "label", "compaction");
  types.push("from_the_future");
  if (modern) types.push("usage", "context_edit", "context_edit", "compaction");
  return random.pick(types);
}

function pathTo(entries, entry) {
  const path = [];
  for (let at = entry; at; at = entries.find(({ id }) => id === at.parentId)) path.unshift(at);
  return path;
}

function body(random, modern, version, entry, entries, time) {
  const text = textOf(random);
  const anyId = () => (entries.length === 0 ? entry.id : random.pick(entries).id);
  const path = pathTo(entries, entry).slice(0, -1);
  switch (entry.type) {
    case "message": {
      const made = message(random, modern, time);
      if (version < 3 && made.role === "custom") made.role = "hookMessage";
      return { message: made };
    }
    case "custom":
      return {
        customType: "thing",
        ...(random.chance(0.8) ? { data: { count: random.int(9), deep: [1, { a: null }] } } : {}),
      };
    case "custom_message": {
      const made = { customType: "thing", content: random.chance(0.5) ? text : [{ type: "text", text }] };
      return { ...made, display: random.chance(0.5), ...(random.chance(0.3) ? { details: { from: "x" } } : {}) };
    }
    case "model_change":
      return { provider: "openai", modelId: `model-${random.int(9)}` };
    case "thinking_level_change":
      return { thinkingLevel: random.pick(["off", "low", "high"]) };
    case "branch_summary":
      return {
        fromId: anyId(),
        summary: random.chance(0.2) ? "" : text,
        ...(random.chance(0.3) ? { details: [1] } : {}),
      };
    case "session_info":
      return { name: random.chance(0.2) ? "  " : text };
    case "usage":
      return { kind: "cache_warm", provider: "openai", model: "m", usage: { totalTokens: 3 } };
    case "label":
      return { targetId: anyId(), ...(random.chance(0.8) ? { label: text } : {}) };
    case "context_edit":
      return {
        targetId: path.length > 0 && random.chance(0.8) ? random.pick(path).id : anyId(),
        replacement: random.chance(0.4) ? null : { content: random.chance(0.5) ? text : [{ type: "text", text }] },
      };
    case "compaction": {
      // A compaction without anything before it names its own entry.
      const kept = path.length === 0 ? entry.id : random.pick(path).id;
      const made = {
        summary: text,
        firstKeptEntryId: random.chance(0.15) ? entry.id : kept,
        tokensBefore: random.int(9999),
      };
      if (random.chance(0.3)) made.details = { readFiles: ["a"] };
      if (random.chance(0.2)) made.fromHook = true;
      if (modern && random.chance(0.4)) made.systemMessage = systemMessage(random, time);
      return made;
    }
    default:
      return { payload: { text, list: [1, 2.5, null, true] } };
  }
}

function fileText({ header, entries }) {
  return [header, ...entries].map((value) => `${JSON.stringify(value)}\n`).join("");
}

// --- comparing -------------------------------------------------------------------------------------------------

class Difference extends Error {}

/** Returns a value as JSON keeps it: without members that are undefined. */
function plain(value) {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

/** Ids by the place of their entry in the file, where the two sides had to invent them. */
function renamed(value, names) {
  if (Array.isArray(value)) return value.map((item) => renamed(item, names));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [
      name,
      typeof inner === "string" && REFERENCES.has(name) && names.has(inner) ? names.get(inner) : renamed(inner, names),
    ]),
  );
}

const REFERENCES = new Set(["id", "parentId", "targetId", "fromId", "firstKeptEntryId"]);

function namesOf(manager) {
  return new Map(manager.getEntries().map(({ id }, index) => [id, `#${index}`]));
}

function same(what, ours, pi) {
  if (isDeepStrictEqual(plain(ours), plain(pi))) return;
  throw new Difference(`${what}\n  ours ${JSON.stringify(ours)}\n  pi   ${JSON.stringify(pi)}`);
}

const counts = { leaves: 0, contexts: 0, operations: 0, refused: 0, hijacked: 0, forks: 0, labelledForks: 0, files: 0 };

/** Compares everything that two managers return about a session, at every leaf. */
function compareManagers(what, ours, pi, { modern, ignoreLeaf = false, ignoreFromId = false }) {
  const [oursNames, piNames] = [namesOf(ours), namesOf(pi)];
  const check = (name, a, b) => {
    let [left, right] = [renamed(plain(a), oursNames), renamed(plain(b), piNames)];
    if (ignoreFromId) [left, right] = [withoutFrom(left), withoutFrom(right)];
    same(`${what}: ${name}`, left, right);
  };
  check("entries", ours.getEntries(), pi.getEntries());
  check("tree", ours.getTree(), pi.getTree());
  check("roots", ours.getChildren(null), pi.getChildren(null));
  check("name", ours.getSessionName(), pi.getSessionName());
  if (!ignoreLeaf) check("leaf", { id: ours.getLeafId() }, { id: pi.getLeafId() });
  const leaf = [ours.getLeafId(), pi.getLeafId()];
  const [oursEntries, piEntries] = [ours.getEntries(), pi.getEntries()];
  for (const [index, { id }] of oursEntries.entries()) {
    const other = piEntries[index].id;
    check(`entry ${id}`, ours.getEntry(id), pi.getEntry(other));
    check(`label of ${id}`, ours.getLabel(id), pi.getLabel(other));
    check(`children of ${id}`, ours.getChildren(id), pi.getChildren(other));
    check(`branch of ${id}`, ours.getBranch(id), pi.getBranch(other));
    ours.branch(id);
    pi.branch(other);
    counts.leaves++;
    compareContext(check, id, ours, pi, modern);
  }
  ours.resetLeaf();
  pi.resetLeaf();
  compareContext(check, "the beginning", ours, pi, modern);
  check("branch of the beginning", ours.getBranch(), pi.getBranch());
  restore(ours, leaf[0]);
  restore(pi, leaf[1]);
}

function compareContext(check, at, ours, pi, modern) {
  counts.contexts++;
  check(`context at ${at}`, ours.buildSessionContext(), pi.buildSessionContext());
  if (!modern) return;
  check(`context entries at ${at}`, ours.buildContextEntries(), pi.buildContextEntries());
  check(`projection at ${at}`, ours.buildSessionProjection(), pi.buildSessionProjection());
}

function restore(manager, leafId) {
  if (leafId === null) manager.resetLeaf();
  else manager.branch(leafId);
}

function withoutFrom(value) {
  if (Array.isArray(value)) return value.map(withoutFrom);
  if (typeof value !== "object" || value === null) return value;
  const { fromId: _, ...rest } = value;
  return Object.fromEntries(Object.entries(rest).map(([name, inner]) => [name, withoutFrom(inner)]));
}

/** The leaf by our rule: labels and names at the end move it only where they continue the entry before them. */
function expectedLeaf(entries) {
  const last = entries.at(-1);
  const decisive = entries.findLast(({ type }) => type !== "label" && type !== "session_info");
  if (!decisive) return last?.id ?? null;
  return pathTo(entries, last).some(({ id }) => id === decisive.id) ? last.id : decisive.id;
}

function isHijacked(manager) {
  const entries = manager.getEntries();
  return (entries.at(-1)?.id ?? null) !== expectedLeaf(entries);
}

function compareFunctions(what, text, version, lib, pi, modern) {
  const entries = pi.parseSessionEntries(text);
  same(`${what}: parseSessionEntries`, lib.parseSessionEntries(text), entries);
  const mine = lib.parseSessionEntries(text);
  lib.migrateSessionEntries(mine);
  pi.migrateSessionEntries(entries);
  const places = (list) =>
    new Map(list.filter(({ type }) => type !== "session").map(({ id }, index) => [id, `#${index}`]));
  const [mineNames, piNames] = [places(mine), places(entries)];
  same(`${what}: migrateSessionEntries`, renamed(plain(mine), mineNames), renamed(plain(entries), piNames));
  const [left, right] = [mine.slice(1), entries.slice(1)];
  const leaves = [undefined, null, "nobody", ...left.slice(0, 5).map(({ id }) => id)];
  for (const leafId of leaves) {
    const other = left.findIndex(({ id }) => id === leafId);
    const piLeaf = other < 0 ? leafId : right[other].id;
    const check = (name, a, b) =>
      same(`${what}: ${name} at ${leafId}`, renamed(plain(a), mineNames), renamed(plain(b), piNames));
    check("buildSessionContext()", lib.buildSessionContext(left, leafId), pi.buildSessionContext(right, piLeaf));
    const index = (list) => new Map(list.map((entry) => [entry.id, entry]));
    check(
      "the same with an index",
      lib.buildSessionContext(left, leafId, index(left)),
      pi.buildSessionContext(right, piLeaf, index(right)),
    );
    if (modern)
      check("buildContextEntries()", lib.buildContextEntries(left, leafId), pi.buildContextEntries(right, piLeaf));
  }
  same(
    `${what}: getLatestCompactionEntry`,
    renamed(plain(lib.getLatestCompactionEntry(left)), mineNames),
    renamed(plain(pi.getLatestCompactionEntry(right)), piNames),
  );
  if (modern && version > 1)
    for (const [n, entry] of left.entries())
      same(
        `${what}: messages of entry ${n}`,
        lib.sessionEntryToContextMessages(entry),
        pi.sessionEntryToContextMessages(right[n]),
      );
}

/** Does the same thing to both managers. */
function operate(random, ours, pi, modern) {
  counts.operations++;
  now += 1000 + random.int(5000);
  const entries = ours.getEntries();
  const at = entries.length === 0 ? -1 : random.int(entries.length);
  const ids = at < 0 ? [undefined, undefined] : [entries[at].id, pi.getEntries()[at].id];
  const both = (run) => [run(ours, ids[0]), run(pi, ids[1])];
  const text = textOf(random);
  const kinds = ["message", "message", "message", "message", "level", "model", "custom", "custom_message", "name"];
  if (at >= 0) kinds.push("label", "label", "unlabel", "branch", "branch", "summary", "compaction");
  kinds.push("reset");
  if (modern) kinds.push("usage", "edit", "edit", "compaction");
  const kind = random.pick(kinds);
  switch (kind) {
    case "message": {
      const made = message(random, modern, now);
      both((manager) => manager.appendMessage(structuredClone(made)));
      break;
    }
    case "level":
      both((manager) => manager.appendThinkingLevelChange("high"));
      break;
    case "model":
      both((manager) => manager.appendModelChange("openai", text));
      break;
    case "custom":
      both((manager) => manager.appendCustomEntry("thing", random.state % 2 ? undefined : { text }));
      break;
    case "custom_message":
      both((manager) => manager.appendCustomMessageEntry("thing", text, true, { a: 1 }));
      break;
    case "name":
      // The older Pi keeps line breaks in a name.
      both((manager) => manager.appendSessionInfo(modern ? text : text.replaceAll("\n", " ")));
      break;
    case "label":
      both((manager, id) => manager.appendLabelChange(id, text));
      break;
    case "unlabel":
      both((manager, id) => manager.appendLabelChange(id, undefined));
      break;
    case "branch":
      both((manager, id) => manager.branch(id));
      break;
    case "reset":
      both((manager) => manager.resetLeaf());
      break;
    case "summary":
      both((manager, id) => manager.branchWithSummary(id, text, { readFiles: [] }, false));
      break;
    case "usage":
      both((manager) => manager.appendUsage("cache_warm", "openai", "m", { totalTokens: 1 }, text));
      break;
    case "compaction": {
      const path = ours.getBranch();
      const kept = path.length === 0 || (modern && random.chance(0.2)) ? null : random.int(path.length);
      if (kept === null && !modern) break;
      const keptIds = kept === null ? [null, null] : [path[kept].id, pi.getBranch()[kept].id];
      try {
        ours.appendCompaction(text, keptIds[0], 1234, { a: 1 }, true);
      } catch (error) {
        if (error.name !== "invalid_boundary") throw error;
        counts.refused++;
        break;
      }
      pi.appendCompaction(text, keptIds[1], 1234, { a: 1 }, true);
      break;
    }
    case "edit": {
      if (at < 0) break;
      const replacement = random.chance(0.4) ? null : { content: random.chance(0.5) ? text : [{ type: "text", text }] };
      const outcomes = both((manager, id) => {
        try {
          manager.appendContextEdit(id, replacement);
          return "done";
        } catch {
          return "refused";
        }
      });
      same("context edit", ...outcomes);
      break;
    }
  }
}

/** The chain of labels at the end of a fork may stand in another order. */
function forkOf(entries) {
  const first = entries.findIndex(
    ({ type }, index) => entries.slice(index).every((entry) => entry.type === "label") && type === "label",
  );
  const kept = first < 0 ? entries : entries.slice(0, first);
  const labels =
    first < 0 ? [] : entries.slice(first).map(({ targetId, label, timestamp }) => ({ targetId, label, timestamp }));
  return { kept, labels: labels.map((label) => JSON.stringify(label)).sort() };
}

function closed(entries) {
  const ids = new Set(entries.map(({ id }) => id));
  return entries.every(({ parentId }) => parentId === null || ids.has(parentId));
}

async function compareRandomSessions(lib, pi, { modern, name }, folder) {
  const first = Number(options.seed);
  const total = Number(options.sessions);
  const listed = join(folder, "listed");
  mkdirSync(listed);
  for (let seed = first; seed < first + total; seed++) {
    const random = new Random(seed);
    const version = random.pick([1, 2, 3, 3, 3, 3]);
    const what = `${name}, seed ${seed}, version ${version}`;
    const text = fileText(randomSession(random, version, modern));
    const place = (who) => {
      mkdirSync(join(folder, `${seed}-${who}`));
      return join(folder, `${seed}-${who}`, "session.jsonl");
    };
    const [oursFile, piFile] = [place("ours"), place("pi")];
    for (const file of [oursFile, piFile]) writeFileSync(file, text);
    // Cases in which Pi's listing takes U+2028 for a line end, and drops a session for one message without content.
    writeFileSync(
      join(listed, `${seed}.jsonl`),
      text.replaceAll("\u2028", "").replaceAll('"content":null', '"content":[]'),
    );
    counts.files++;

    const ours = lib.SessionManager.open(oursFile);
    const theirs = pi.SessionManager.open(piFile);
    same(`${what}: header`, ours.getHeader(), theirs.getHeader());
    const hijacked = version > 1 && isHijacked(theirs);
    if (hijacked) {
      counts.hijacked++;
      same(`${what}: leaf by our rule`, ours.getLeafId(), expectedLeaf(ours.getEntries()));
    }
    compareManagers(what, ours, theirs, { modern, ignoreLeaf: hijacked });
    same(`${what}: opening writes nothing`, readFileSync(oursFile, "utf8"), text);
    compareFunctions(what, text, version, lib, pi, modern);

    // The same operations on both, from the same leaf on.
    const entries = ours.getEntries();
    const leaf = entries.length === 0 ? null : random.int(entries.length);
    restore(ours, leaf === null ? null : entries[leaf].id);
    restore(theirs, leaf === null ? null : theirs.getEntries()[leaf].id);
    for (let n = 0; n < 12; n++) operate(random, ours, theirs, modern);
    // Until then the older Pi keeps appended entries in memory.
    const answer = { role: "assistant", content: [], provider: "p", model: "m", timestamp: now };
    for (const manager of [ours, theirs]) manager.appendMessage(answer);
    const after = { modern, ignoreFromId: !modern };
    compareManagers(`${what}, continued`, ours, theirs, after);
    await crossRead(`${what}, continued`, lib, pi, ours, theirs, after);
    compareForks(what, random, lib, pi, ours, theirs, after, folder);
    compareNewSession(`${what}, new`, random, lib, pi, folder, seed, after);
    ours.close();
  }
  await compareLists(name, lib, pi, listed, modern);
}

/** Each reads what the other wrote. */
async function crossRead(what, lib, pi, ours, theirs, how) {
  const leaf = (manager) => ({ ...how, ignoreLeaf: isHijacked(manager) });
  const [oursFile, piFile] = [ours.getSessionFile(), theirs.getSessionFile()];
  if (!existsSync(oursFile) || !existsSync(piFile)) return;
  const copy = `${oursFile}.read-by-pi`;
  copyFileSync(oursFile, copy);
  const readByPi = pi.SessionManager.open(copy);
  const readByUs = lib.SessionManager.open(piFile);
  const again = lib.SessionManager.open(oursFile);
  compareManagers(`${what}, ours read by both`, again, readByPi, { ...leaf(readByPi), ignoreFromId: false });
  compareManagers(`${what}, Pi's read by us`, readByUs, theirs, { ...how, ignoreLeaf: true });
  again.close();
  readByUs.close();
}

function compareForks(what, random, lib, pi, ours, theirs, { modern }, folder) {
  const path = theirs.getBranch();
  if (path.length === 0) return;
  counts.forks++;
  const at = random.int(path.length);
  const labelled = path.slice(0, at + 1).some(({ type }) => type === "label");
  const names = [namesOf(ours), namesOf(theirs)];
  const kept = (manager) => manager.getEntries().filter(({ id }) => names.some((known) => known.has(id)));
  const oursLeaf = ours.getBranch()[at].id;
  const sources = [ours.getSessionFile(), theirs.getSessionFile()];
  ours.createBranchedSession(oursLeaf);
  theirs.createBranchedSession(path[at].id);
  same(`${what}: fork is closed`, closed(ours.getEntries()), true);
  if (labelled && !modern) {
    // The older Pi leaves children of dropped labels without a parent.
    counts.labelledForks++;
    same(`${what}: entries of the fork`, kept(ours).length, kept(theirs).length);
  } else {
    const [left, right] = [
      forkOf(renamed(plain(ours.getEntries()), names[0])),
      forkOf(renamed(plain(theirs.getEntries()), names[1])),
    ];
    same(`${what}: fork`, withoutFrom(left), withoutFrom(right));
  }
  if (existsSync(sources[0]) && existsSync(sources[1]) && !isDoubled(sources[1])) {
    now += 1000;
    const target = join(folder, "forks");
    const [mine, other] = [
      lib.SessionManager.forkFrom(sources[0], "/home/me/third", target),
      pi.SessionManager.forkFrom(sources[1], "/home/me/third", target),
    ];
    compareManagers(`${what}, forkFrom`, mine, other, { modern, ignoreFromId: !modern, ignoreLeaf: isHijacked(other) });
    mine.close();
  }
}

/** Returns true if Pi wrote entries twice, as the older one does. */
function isDoubled(file) {
  const lines = readFileSync(file, "utf8").trim().split("\n");
  return new Set(lines).size < lines.length;
}

/** A session that both make from nothing. */
function compareNewSession(what, random, lib, pi, folder, seed, how) {
  const ours = lib.SessionManager.create("/home/me/project", join(folder, `${seed}-new-ours`));
  const theirs = pi.SessionManager.create("/home/me/project", join(folder, `${seed}-new-pi`));
  for (let n = 0; n < 15; n++) operate(random, ours, theirs, how.modern);
  compareManagers(what, ours, theirs, how);
  const talks = ours.getEntries().some(({ message }) => message?.role === "user" || message?.role === "assistant");
  same(`${what}: the file exists`, existsSync(ours.getSessionFile()), talks);
  if (how.modern) same(`${what}: Pi's file exists`, existsSync(theirs.getSessionFile()), talks);
  const memory = [lib.SessionManager.inMemory("/home/me/project"), pi.SessionManager.inMemory("/home/me/project")];
  for (let n = 0; n < 10; n++) operate(random, ...memory, how.modern);
  compareManagers(`${what}, in memory`, ...memory, how);
  ours.close();
}

async function compareLists(name, lib, pi, folder, modern) {
  const describe = (sessions) =>
    sessions.map(({ path, created, modified, ...rest }) => ({
      ...rest,
      path: basename(path),
      created: +created,
      modified: +modified,
    }));
  const byPath = (sessions) => describe(sessions).sort((a, b) => (a.path < b.path ? -1 : 1));
  // The older Pi does not look at the working directory.
  const cwds = modern ? ["/home/me/project", "/home/me/other", "/nowhere"] : [];
  for (const cwd of cwds) {
    const [ours, theirs] = [await lib.SessionManager.list(cwd, folder), await pi.SessionManager.list(cwd, folder)];
    same(`${name}: list of ${cwd}`, byPath(ours), byPath(theirs));
    same(
      `${name}: order of the list`,
      describe(ours).map(({ modified }) => modified),
      describe(theirs).map(({ modified }) => modified),
    );
  }
  const everything = modern
    ? await pi.SessionManager.listAll(folder)
    : await pi.SessionManager.list("/home/me/project", folder);
  same(`${name}: listAll`, byPath(await lib.SessionManager.listAll(folder)), byPath(everything));
  const id = everything[0]?.id;
  if (modern && id !== undefined)
    same(
      `${name}: findById`,
      lib.SessionManager.findById(everything[0].cwd, id, folder),
      pi.SessionManager.findById(everything[0].cwd, id, folder),
    );
}

// --- differences that are meant --------------------------------------------------------------------------------

const TIME = new RealDate(START).toISOString();
const HEADER = `{"type":"session","version":3,"id":"01991f6e-1f1d-7c3e-b0a4-0242ac120002","timestamp":"${TIME}","cwd":"/w"}\n`;
const line = (type, id, parentId, rest) => `${JSON.stringify({ type, id, parentId, timestamp: TIME, ...rest })}\n`;
const said = (id, parentId) => line("message", id, parentId, { message: { role: "user", content: id } });
const answered = (id, parentId) =>
  line("message", id, parentId, { message: { role: "assistant", content: [], provider: "p", model: "m" } });
const CHAIN = HEADER + said("a0000001", null) + answered("a0000002", "a0000001") + said("a0000003", "a0000002");

const contents = (manager) => manager.buildSessionContext().messages.map(({ role, content }) => content ?? role);
const outcome = async (run) => {
  try {
    return await run();
  } catch (error) {
    return `throws ${error.name}`;
  }
};

/**
 * Each has an anchor in docs/pi-differences.md. `show` returns the view through one manager's module; `ours` is the
 * result expected from ours. Pi's must differ, unless looking would end the process.
 */
const DIFFERENCES = [
  {
    anchor: "cycle",
    file: CHAIN + said("b0000001", "b0000002") + said("b0000002", "b0000001"),
    show: ({ open }) => contents(open()),
    ours: ["b0000001", "b0000002"],
    endsPi: true,
  },
  {
    anchor: "unreadable-lines",
    file: `${CHAIN.slice(0, -1)}\n\0\0\0\0\n1\n`,
    show: ({ open }) => [contents(open()).length, open().getEntries().length],
    ours: [3, 3],
  },
  {
    anchor: "glued-lines",
    file: `${HEADER}${said("a0000001", null)}{"type":"mess${said("a0000002", "a0000001")}`,
    show: ({ open }) => contents(open()),
    ours: ["a0000001", "a0000002"],
  },
  {
    anchor: "lost-line",
    file: `${HEADER}${said("a0000001", null)}{"type":"message","id":"a0000002\n${said("a0000003", "a0000002")}`,
    show: ({ open }) => contents(open()),
    ours: ["a0000001", "a0000003"],
  },
  {
    anchor: "hijacked-leaf",
    file: CHAIN + line("label", "c0000001", "a0000001", { targetId: "a0000002", label: "x" }),
    show: ({ open }) => open().getLeafId(),
    ours: "a0000003",
  },
  {
    anchor: "off-path-kept-id",
    file:
      CHAIN +
      line("compaction", "c0000001", "a0000003", { summary: "s", firstKeptEntryId: "nowhere0", tokensBefore: 1 }) +
      said("a0000004", "c0000001"),
    show: ({ open }) => contents(open()).length,
    ours: 5,
  },
  {
    anchor: "malformed-compaction",
    file: CHAIN + line("compaction", "c0000001", "a0000003", { firstKeptEntryId: "a0000003", tokensBefore: 1 }),
    show: ({ open }) => contents(open()).length,
    ours: 3,
  },
  {
    anchor: "message-null",
    file: CHAIN + line("message", "c0000001", "a0000003", { message: null }),
    show: ({ open }) => contents(open()).length,
    ours: 3,
  },
  {
    anchor: "missing-content",
    file: HEADER + line("message", "c0000001", null, { message: { role: "user" } }),
    show: ({ open }) => open().buildSessionContext().messages[0].content,
    ours: [],
    only: 0.73,
  },
  {
    anchor: "newer-entries",
    file: CHAIN + line("context_edit", "c0000001", "a0000003", { targetId: "a0000001", replacement: null }),
    show: ({ open }) => contents(open()).length,
    ours: 2,
    only: 0.73,
  },
  {
    anchor: "model-without-name",
    file: CHAIN + line("message", "c0000001", "a0000003", { message: { role: "assistant", content: [] } }),
    show: ({ open }) => plain(open().buildSessionContext().model),
    ours: { provider: "p", modelId: "m" },
  },
  {
    anchor: "header-model",
    file: `${HEADER.slice(0, -2)},"provider":"p","modelId":"m","thinkingLevel":"low"}\n${said("a0000001", null)}`,
    show: ({ open }) => [open().buildSessionContext().model, open().buildSessionContext().thinkingLevel],
    ours: [{ provider: "p", modelId: "m" }, "low"],
  },
  {
    anchor: "header-leaf",
    file: CHAIN.replace('"cwd":"/w"', '"cwd":"/w","leafId":"a0000001"'),
    show: ({ open }) => open().getLeafId(),
    ours: "a0000001",
  },
  {
    anchor: "duplicate-ids",
    file: CHAIN + said("a0000001", "a0000003").replace('"content":"a0000001"', '"content":"other"'),
    show: ({ open }) =>
      open()
        .getEntries()
        .map(({ id }) => id),
    ours: ["a0000001", "a0000002", "a0000003", "a0000001~2"],
  },
  {
    anchor: "missing-ids",
    file: HEADER + said("a0000001", null).replace('"id":"a0000001",', ""),
    show: ({ open }) => /^[0-9a-f]{8}$/.test(open().getLeafId()),
    ours: true,
  },
  {
    anchor: "old-ids",
    file: CHAIN.replace('"version":3,', ""),
    show: ({ open, file, text }) => {
      const ids = () =>
        open()
          .getEntries()
          .map(({ id }) => id);
      const before = ids();
      writeFileSync(file, text);
      return isDeepStrictEqual(before, ids());
    },
    ours: true,
  },
  {
    anchor: "opening-writes",
    file: CHAIN.replace('"version":3,', ""),
    show: ({ open, file, text }) => {
      open();
      return readFileSync(file, "utf8") === text;
    },
    ours: true,
  },
  {
    anchor: "migration-backup",
    file: CHAIN.replace('"version":3', '"version":2'),
    show: ({ open, file }) => {
      open().appendMessage({ role: "user", content: "more" });
      return readdirSync(resolve(file, "..")).length;
    },
    ours: 2,
  },
  {
    anchor: "newer-version",
    file: CHAIN.replace('"version":3', '"version":99'),
    show: async ({ open }) => [open().getEntries().length, await outcome(() => open().appendCustomEntry("x"))],
    ours: [3, "throws unsupported_version"],
  },
  {
    anchor: "damaged-header",
    file: CHAIN.slice(5),
    show: ({ open }) => open().getEntries().length,
    ours: 3,
  },
  {
    anchor: "byte-order-mark",
    file: `\ufeff${CHAIN}`,
    show: ({ open }) => open().getEntries().length,
    ours: 3,
    only: 1.5,
  },
  {
    anchor: "line-separators",
    file: HEADER + said("a0000001", null).replace('"content":"a0000001"', '"content":"one\u2028two"'),
    show: async ({ module, file }) => (await module.SessionManager.listAll(resolve(file, "..")))[0].firstMessage,
    ours: "one\u2028two",
    only: 1.5,
  },
  {
    anchor: "empty-file",
    file: "",
    show: async ({ open, file }) => [await outcome(() => open().getEntries().length), readFileSync(file, "utf8")],
    ours: ["throws not_a_session", ""],
  },
  {
    anchor: "invalid-time",
    file: HEADER + line("branch_summary", "a0000001", null, { summary: "s", fromId: "x", timestamp: "yesterday" }),
    show: ({ open }) => open().buildSessionContext().messages[0].timestamp,
    ours: 0,
  },
  {
    anchor: "label-of-nobody",
    file: CHAIN + line("label", "c0000001", "a0000003", { targetId: "nowhere0", label: "x" }),
    show: ({ open }) => open().getLabel("nowhere0"),
    ours: undefined,
  },
  {
    anchor: "refused-boundary",
    file: CHAIN,
    show: ({ open }) => typeof open().appendCompaction("s", "nowhere0", 1),
    ours: "throws invalid_boundary",
  },
  {
    anchor: "summary-from",
    file: CHAIN,
    show({ open }) {
      const manager = open();
      return manager.getEntry(manager.branchWithSummary("a0000001", "s")).fromId;
    },
    ours: "a0000003",
    only: 0.73,
  },
  {
    anchor: "hidden-session",
    file: HEADER + line("message", "a0000001", null, { message: { role: "assistant", content: null } }),
    show: async ({ module, file }) => (await module.SessionManager.listAll(resolve(file, ".."))).length,
    ours: 1,
    only: 1.5,
  },
  {
    anchor: "doubled-entries",
    file: HEADER + said("a0000001", null),
    show({ open, file }) {
      const manager = open();
      manager.appendCustomEntry("x");
      manager.appendMessage({ role: "assistant", content: [], provider: "p", model: "m" });
      return readFileSync(file, "utf8").trim().split("\n").length;
    },
    ours: 4,
    only: 0.73,
  },
  {
    anchor: "first-user-message",
    show({ create }) {
      const manager = create();
      manager.appendMessage({ role: "user", content: "hi" });
      return existsSync(manager.getSessionFile());
    },
    ours: true,
    only: 0.73,
  },
  {
    anchor: "labelled-fork",
    file:
      CHAIN +
      line("label", "c0000001", "a0000003", { targetId: "a0000001", label: "x" }) +
      said("a0000004", "c0000001"),
    show({ open }) {
      const manager = open();
      manager.createBranchedSession("a0000004");
      return closed(manager.getEntries());
    },
    ours: true,
    only: 0.73,
  },
  {
    anchor: "unsaved-parent",
    show({ create }) {
      const manager = create();
      const id = manager.appendCustomEntry("x");
      manager.createBranchedSession(id);
      return plain(manager.getHeader()).parentSession;
    },
    ours: undefined,
  },
  {
    anchor: "own-entries",
    show({ create }) {
      const manager = create();
      const message = { role: "user", content: "hi" };
      const id = manager.appendMessage(message);
      message.content = "changed afterwards";
      return manager.getEntry(id).message.content;
    },
    ours: "hi",
  },
  {
    anchor: "file-modes",
    show({ create, modeOf }) {
      const manager = create();
      manager.appendMessage({ role: "user", content: "hi" });
      manager.appendMessage({ role: "assistant", content: [], provider: "p", model: "m" });
      return modeOf(manager.getSessionFile());
    },
    ours: "600",
  },
];

async function checkDifferences(lib, pi, generation, folder) {
  const { statSync } = await import("node:fs");
  const document = readFileSync(DOCUMENT, "utf8");
  let checked = 0;
  const wrong = [];
  for (const { anchor, file: text, show, ours, endsPi, only } of DIFFERENCES) {
    if (!document.includes(`\`${anchor}\``)) wrong.push(`docs/pi-differences.md does not tell of ${anchor}`);
    if (only !== undefined && String(only) !== generation) continue;
    checked++;
    const see = (module, who) => {
      const dir = join(folder, `${anchor}-${who}`);
      mkdirSync(dir);
      const file = join(dir, "session.jsonl");
      if (text !== undefined) writeFileSync(file, text);
      return show({
        module,
        file,
        text,
        open: () => module.SessionManager.open(file),
        create: () => module.SessionManager.create("/w", join(dir, "made")),
        modeOf: (path) => (statSync(path).mode & 0o777).toString(8),
      });
    };
    const mine = await outcome(() => see(lib, "ours"));
    const other = endsPi ? undefined : await outcome(() => see(pi, "pi"));
    if (!isDeepStrictEqual(mine, ours)) wrong.push(`${anchor}: ours is ${JSON.stringify(mine)}`);
    if (!endsPi && isDeepStrictEqual(other, ours)) wrong.push(`${anchor}: Pi does the same, so it is no difference`);
  }
  if (wrong.length > 0) throw new Difference(wrong.join("\n"));
  return checked;
}

// --- the run ---------------------------------------------------------------------------------------------------

function installed(generation, folder) {
  const { name, entry } = GENERATIONS[generation];
  const bare = name.slice(0, name.lastIndexOf("@"));
  const given = generation === "0.73" ? options.pi : options.pi15;
  if (given !== undefined) {
    const found = [given, join(given, "package"), join(given, "node_modules", bare)].find((at) =>
      existsSync(join(at, entry)),
    );
    if (!found) throw new Error(`There is no ${bare} at ${given}.`);
    return resolve(found, entry);
  }
  const target = join(folder, "pi");
  mkdirSync(target);
  if (generation === "0.73") {
    console.log(`installing ${name} (about 200 MB)`);
    writeFileSync(join(target, "package.json"), "{}");
    execFileSync("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", name], {
      cwd: target,
      stdio: "inherit",
    });
    return join(target, "node_modules", bare, entry);
  }
  console.log(`fetching ${name}`);
  const archive = execFileSync("npm", ["pack", "--silent", name], { cwd: target, encoding: "utf8" }).trim();
  execFileSync("tar", ["-xzf", archive], { cwd: target });
  return join(target, "package", entry);
}

async function run(generation) {
  const folder = mkdtempSync(join(tmpdir(), "compare-with-pi-"));
  try {
    const pi = installed(generation, folder);
    // Neither side may find or leave anything in the folders of the person who runs this.
    const home = join(folder, "home");
    mkdirSync(home);
    Object.assign(process.env, { HOME: home, XDG_STATE_HOME: join(home, "state") });
    for (const name of ["PI_CODING_AGENT_DIR", "PI_SESSIONS_DIR", "PI_SESSION_SERVER_STATE_DIR"])
      delete process.env[name];
    globalThis.Date = FixedDate;
    const lib = await import(pathToFileURL(resolve(options.lib)).href);
    const theirs = await import(pathToFileURL(pi).href);
    const differences = await checkDifferences(lib, theirs, generation, folder);
    await compareRandomSessions(lib, theirs, GENERATIONS[generation], folder);
    const figures = Object.entries(counts).map(([what, count]) => `${count} ${what}`);
    console.log(`${GENERATIONS[generation].name} on Node ${process.versions.node}, from seed ${options.seed}: equal`);
    console.log(`  ${figures.join(", ")}; ${differences} intended differences checked`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function main() {
  if (options.generation !== undefined) return run(options.generation);
  await run("0.73");
  if (options.node === undefined) return;
  const passed = process.argv.slice(2);
  const { status } = spawnSync(options.node, [SELF, ...passed, "--generation", "1.5"], { stdio: "inherit" });
  if (status !== 0) process.exitCode = 1;
}

main().then(
  // Pi keeps timers running.
  () => process.exit(process.exitCode ?? 0),
  (error) => {
    console.error(error instanceof Difference ? `DIFFERENCE ${error.message}` : error);
    process.exit(1);
  },
);
