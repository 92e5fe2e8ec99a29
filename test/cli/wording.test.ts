/** Sentences of failures as a person reads them who typed a verb. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { findVerb, verbs } from "../../src/cli/table.ts";
import type { Verb, VerbArguments } from "../../src/cli/verb.ts";
import { collectTexts, rewordAsVerbs, rewordParamIssues } from "../../src/cli/wording.ts";
import { Failure } from "../../src/core/failure.ts";
import { commandNames } from "../../src/handlers/shared/find.ts";
import { commandTable } from "../../src/handlers/shared/table.ts";
import { temporaryPlace } from "../support/server.ts";
import { playVerbs, runHere, runVerbHere } from "../support/verbs.ts";

test.each([
  ["No such session. list_sessions shows those that exist.", "No such session. list shows those that exist."],
  ["A and B. get_entries and get_tree show the ids.", "A and B. tree shows the ids."],
  ["Use clone or fork to continue in a copy.", "Use fork to continue in a copy."],
  ["fork, clone or import_session makes it yours.", "fork or import makes it yours."],
  ["repair_session gives it a new one; clone copies it.", "repair gives it a new one; fork copies it."],
  ["rollback_migration (pi-session-server rollback) completes it.", "rollback completes it."],
  ["migrate_session (pi-session-server migrate --apply) moves it.", "migrate --apply moves it."],
  ["The process 31 (pi-session-server 0.1.0) has it.", "The process 31 (pi-session-server 0.1.0) has it."],
  ["At /clone/list_sessions/clone it is. Set overwrite.", "At /clone/list_sessions/clone it is. Use --overwrite."],
  ["branch it; clone continues in a copy.", "branch it; fork continues in a copy."],
  ["Close it there, or clone it here.", "Close it there, or fork it here."],
  ["Do it again with delete_session with permanent.", "Do it again with delete --permanent."],
  ["Delete it then; permanent deletes it for good.", "Delete it then; delete --permanent deletes it for good."],
])("%s", (onTheWire, typed) => {
  expect(rewordAsVerbs(onTheWire)).toBe(typed);
});

test("what a person gave stays as it was", () => {
  const data = { name: "session_not_found", sessionPath: "/my list_sessions dir/x", sessionId: "get_tree" };
  for (const kept of ["Nothing at /my list_sessions dir/x", "No session has the id get_tree"])
    expect(rewordAsVerbs(`${kept}. list_sessions lists.`, collectTexts(data))).toBe(`${kept}. list lists.`);
  expect(rewordAsVerbs("\ue0000\ue001 $& \ue0009\ue001", ["$&"])).not.toContain("undefined");
});

const SRC = fileURLToPath(new URL("../../src", import.meta.url));

/** Returns every text in the sources with at least three words: the texts for people, and some others. */
function sentencesIn(folder: string): string[] {
  const files = readdirSync(join(SRC, folder), { recursive: true, encoding: "utf8" });
  return files
    .filter((name) => name.endsWith(".ts"))
    .flatMap((file) => {
      const text = readFileSync(join(SRC, folder, file), "utf8")
        .replace(/\/\*\*[\s\S]*?\*\//g, "")
        .replace(/^\s*\/\/.*$/gm, "")
        // Descriptions of the protocol, in its words. The meaning of a failure is also its sentence.
        .replace(/(?:describe\(|summary:)\s*(?:(?:"(?:[^"\\\n]|\\.)*"|`[^`]*`)[\s+]*)+/g, "");
      const texts = text.match(/"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g) ?? [];
      return texts.map((quoted) => quoted.slice(1, -1).replace(/\$\{[^}]*\}/g, "X"));
    })
    .filter((text) => /\w \w+ \w/.test(text) && !/\b(SELECT|PRAGMA|INSERT|CREATE|BEGIN)\b|[{}]/.test(text));
}

/** Sentences that only a host can meet, because no verb asks what they answer. */
const HOSTS_ONLY: readonly RegExp[] = [
  // Commands about the agent and the model, and the hooks and answers of a host.
  /compact_append|prepare_compaction|session_before_compact|with append\b|of the role bashExecution|Prompt there|list_heads/,
  /in initialize|initialize was answered|Send initialize|protocolVersion|was used by branch/,
  // Entries that a host writes.
  /new_session|parentId|toolName|mimeType|stopReason|idempotencyKey/,
  /switch_session opens|entries\./,
];

/** Members of entries and of results, of which verbs speak, too, and names of tools. */
const MEMBERS = /\b(pi_agent_rust|entry_id)\b|^bash shell .*/g;

/** The word before a command's name where that is a word of English: a branch, the next prompt. */
const BEFORE_NOUNS = /^(?:an?|the|another|every|that|next|no)$/i;
/** Params with a name that no sentence has but for them, and that an option has, too. */
const PARAMS_OF_ONE_WORD = ["overwrite", "permanent"];

const params = new Set(commandTable.flatMap((command) => Object.keys(command.params.shape)));

/** Returns the commands and params that a sentence names, but for words that are verbs of the command line, too. */
function wireWordsIn(sentence: string): string[] {
  const words = sentence.match(/(?<![-\w])[A-Za-z_]+/g) ?? [];
  const isCommand = (word: string, before = ""): boolean =>
    commandNames.includes(word) && !findVerb(word) && !BEFORE_NOUNS.test(before);
  const isParam = (word: string): boolean =>
    PARAMS_OF_ONE_WORD.includes(word) || (params.has(word) && /[A-Z]/.test(word));
  return words.filter((word, i) => isCommand(word, words[i - 1]) || isParam(word));
}

test("no sentence of a failure brings a command or a param to a person", () => {
  const sentences = ["core", "storage", "handlers", "server"].flatMap(sentencesIn);
  expect(sentences.length).toBeGreaterThan(300);
  const left = sentences
    .filter((sentence) => !HOSTS_ONLY.some((pattern) => pattern.test(sentence)))
    .filter((sentence) => wireWordsIn(rewordAsVerbs(sentence).replace(MEMBERS, "")).length > 0);
  expect(left).toEqual([]);
});

test("every command has its verb, and every verb that is named exists", () => {
  const hosts =
    /^(set_model|set_thinking|set_(auto|steering|follow)|cycle_|get_available|get_commands|clear_queue)|^(append|branch|bash|compact|exit|initialize|prompt|shutdown|steer)$|^rpc\.|^(abort|follow_up|new_session|edit_context|compact[_-]append|prepare_|create_checkpoint|list_clients|list_heads|delete_head)/;
  for (const command of commandNames) {
    if (findVerb(command) || hosts.test(command)) continue;
    const typed = rewordAsVerbs(`Use ${command} for it.`);
    expect(typed, command).not.toContain(command);
    const [, verb] = /^Use ([a-z]+)/.exec(typed) ?? [];
    expect(findVerb(verb)?.name, command).toBe(verb);
  }
});

test("params that are refused are named by their options and operands", () => {
  const search = verbs.find(({ name }) => name === "search");
  const flags = Object.keys(search?.flags ?? {});
  const said = (path: string, message: string): string =>
    rewordParamIssues([{ path, message }], flags, search?.operands ?? []);
  expect(said("since", "must be a time")).toBe("--since must be a time.");
  expect(said("query", "is missing (a string)")).toBe("<words...> is missing (a string).");
  expect(said("includeToolResults", "must be a boolean")).toBe("--tools must be a boolean.");
  expect(said("some.thing", "give allowMissing")).toBe("some: give --allow-missing.");
});

const PATH = "/my clone dir/x";
const ON_THE_WIRE = `${PATH} was deleted. clone writes what is known of it, and restore_session brings it back.`;
const TYPED = `${PATH} was deleted. fork writes what is known of it, and restore brings it back.`;

test("a verb that fails names verbs, and with --json commands, also one that asks no server", async () => {
  const place = temporaryPlace();
  await playVerbs(place)(`
    $ show nowhere !! . list shows those that exist.
    $ show nowhere --json | error.message
    {...}. list_sessions shows those{...}
    = 1`);
  expect((await runHere(place, ["search", "x", "--limit", "99999999"])).stderr).not.toContain("Invalid params");
  const run = () => Promise.reject(new Failure("session_not_found", ON_THE_WIRE, { sessionPath: PATH }));
  const verb: Verb = { name: "tried", meaning: "fails", operands: [], run, print: () => [] };
  expect((await runVerbHere(place, verb, [])).stderr).toBe(`pi-session-server: ${TYPED}\n`);
  const { error } = JSON.parse((await runVerbHere(place, verb, ["--json"])).stdout);
  expect(error).toMatchObject({ message: ON_THE_WIRE, data: { name: "session_not_found", sessionPath: PATH } });
});

test.each(["push", "restore", "verify", "import", "export"])(
  "fleet %s tells in verbs of what it could not do",
  (word) => {
    const refusal = { sessionPath: PATH, sessionId: "01a1", outcome: "refused", message: ON_THE_WIRE };
    const found = { sessions: [refusal], files: [refusal], faults: [refusal], copies: [], lacking: [], journal: [] };
    const result = { ...found, refused: 1, deleted: 0, entries: 0, bytes: 0 };
    const given = { operands: [], flags: new Map(), took: [] } as unknown as VerbArguments;
    const verb = findVerb("fleet")?.subverbs?.find(({ name }) => name === `fleet ${word}`) as Verb;
    const printed = [...verb.print(result, given, undefined as never)];
    expect(printed.filter((line) => line.endsWith(TYPED))).toHaveLength(1);
  },
);
