// Makes the example sessions by driving the built server, as a coding agent would: `node examples/make.js`.
// The conversation is invented; ids and times are what the server gives.
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client, isolatedEnvironment } from "./client.js";

const PROJECT = "/home/dev/notes-app";
const STORE = `import { appendFileSync, readFileSync } from "node:fs";

export interface Note {
  at: string;
  text: string;
}

const FILE = "notes.jsonl";

export function add(text: string): void {
  appendFileSync(FILE, JSON.stringify({ at: new Date().toISOString(), text }) + "\\n");
}

export function list(): Note[] {
  return readFileSync(FILE, "utf8").split("\\n").filter(Boolean).map((line) => JSON.parse(line));
}
`;

const folder = mkdtempSync(join(tmpdir(), "pi-session-examples-"));
const here = (name) => fileURLToPath(new URL(name, import.meta.url));

try {
  const server = new Client(["--session-dir", join(folder, "sessions")], {
    env: isolatedEnvironment(folder),
    cwd: folder,
  });
  const { sessionFile } = await server.request("new_session", { cwd: PROJECT });
  await converse(server);
  if ((await server.close()) !== 0) throw new Error(`The server failed. ${server.complaints}`);
  copyFileSync(sessionFile, here("branches.jsonl"));
  writeFileSync(here("old-v1.jsonl"), oldSession());
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** A small piece of work with second thoughts: branches, a compaction, labels, a summary of what was left. */
async function converse(server) {
  let model = { provider: "anthropic", id: "claude-sonnet-4-5" };
  let calls = 0;
  let read = 0;

  const append = async (entry) => (await server.request("append", { entries: [entry] })).leafId;
  const say = (message) => append({ type: "message", message: { ...message, timestamp: Date.now() } });
  const user = (text) => say({ role: "user", content: [{ type: "text", text }] });
  const assistant = (content) => {
    const output = Math.ceil(JSON.stringify(content).length / 4);
    const input = 40 + calls;
    const usage = { input, output, cacheRead: read, cacheWrite: output * 2 };
    read += input + output * 3;
    return say({
      role: "assistant",
      content,
      api: "anthropic-messages",
      provider: model.provider,
      model: model.id,
      usage: { ...usage, totalTokens: input + output * 3 + usage.cacheRead, cost: costOf(usage) },
      stopReason: content.some(({ type }) => type === "toolCall") ? "toolUse" : "stop",
    });
  };
  const text = (words) => ({ type: "text", text: words });
  const thinking = (words) => ({ type: "thinking", thinking: words, thinkingSignature: "" });
  const answer = (words) => assistant([text(words)]);
  /** One answer with tool calls, and their results: `[name, arguments, output, isError?]` each. */
  const work = async (before, ...tools) => {
    const made = tools.map(([name, args]) => ({
      type: "toolCall",
      id: `call_${String(++calls).padStart(3, "0")}`,
      name,
      arguments: args,
    }));
    await assistant([...before, ...made]);
    for (const [i, [name, , output, isError = false]] of tools.entries())
      await say({
        role: "toolResult",
        toolCallId: made[i].id,
        toolName: name,
        content: [{ type: "text", text: output }],
        isError,
      });
  };
  const label = (entryId, words) => server.request("set_label", { entryId, label: words });
  const useModel = (id) => {
    model = { ...model, id };
    return append({ type: "model_change", provider: model.provider, modelId: id });
  };

  // --- the trunk: looking around, then a search command ----------------------------------------------------------

  await useModel(model.id);
  await append({ type: "thinking_level_change", thinkingLevel: "medium" });
  await server.request("set_session_name", { name: "Notes app: search and tags" });

  await user("What does this project do? Have a look before we change anything.");
  await work(
    [text("I'll look at the files first.")],
    ["bash", { command: "git ls-files" }, "README.md\npackage.json\nsrc/cli.ts\nsrc/store.ts\ntest/store.test.ts\n"],
  );
  await work(
    [],
    ["read", { path: "src/store.ts" }, STORE],
    [
      "read",
      { path: "src/cli.ts" },
      'import { add, list } from "./store.js";\n\nconst [command, ...words] = process.argv.slice(2);\n' +
        'if (command === "add") add(words.join(" "));\nelse for (const note of list()) console.log(note.text);\n',
    ],
  );
  await answer(
    "It is a notebook for the terminal. `notes add <text>` appends a line to `notes.jsonl`, and any other call " +
      "prints every note. There is one test file, and no way to find a note again except by reading all of them.",
  );

  await user("Add a search command that prints the notes containing a word.");
  await work(
    [
      thinking("search belongs beside list in store.ts, so that it can be tested without the command line."),
      text("I'll put the search into the store and let the command line call it."),
    ],
    [
      "edit",
      {
        path: "src/store.ts",
        oldText: "",
        newText:
          "export function search(word: string): Note[] {\n  return list().filter((n) => n.text.includes(word));\n}\n",
      },
      "Edited src/store.ts",
    ],
  );
  await work(
    [],
    [
      "edit",
      {
        path: "src/cli.ts",
        oldText: "else for",
        newText:
          'else if (command === "search") for (const note of search(words[0])) console.log(note.text);\nelse for',
      },
      "Edited src/cli.ts",
    ],
  );
  await work(
    [],
    [
      "bash",
      { command: "npm test" },
      "not ok 4 - search in a new notebook\n  Error: ENOENT: no such file or directory, open 'notes.jsonl'\n# fail 1\n",
      true,
    ],
  );
  await work(
    [text("A notebook nobody has written to has no file yet. `list` should treat that as empty.")],
    [
      "edit",
      {
        path: "src/store.ts",
        oldText: 'readFileSync(FILE, "utf8")',
        newText: 'existsSync(FILE) ? readFileSync(FILE, "utf8") : ""',
      },
      "Edited src/store.ts",
    ],
  );
  await work([], ["bash", { command: "npm test" }, "# tests 4\n# pass 4\n# fail 0\n"]);
  const searchWorks = await answer(
    "`notes search <word>` works. On the way I fixed `list`, which failed in a folder without notes.",
  );
  const { entryId: labelled } = await label(searchWorks, "search works");

  // --- a question aside, beside the label ---------------------------------------------------------------------------

  await server.request("branch", { entryId: searchWorks });
  await user("By the way: would SQLite be a better store?");
  await answer("Not for a few thousand short notes. One line each is easy to read, to merge and to back up.");
  await server.request("branch", { entryId: labelled });

  // --- first try at ignoring case, which is left again -------------------------------------------------------------

  const firstTry = await user("Search should not care about upper and lower case.");
  await work(
    [],
    [
      "edit",
      {
        path: "src/store.ts",
        oldText: "n.text.includes(word)",
        newText: "n.text.toLowerCase().includes(word.toLowerCase())",
      },
      "Edited src/store.ts",
    ],
  );
  await answer("Done: both the note and the word are lower-cased before they are compared.");
  await user("Does it find “Straße” when I type “strasse”, and “café” when I type “cafe”?");
  await answer("No. Lower-casing leaves ß and é as they are, so both searches come back empty.");

  await server.request("branch", {
    entryId: firstTry,
    position: "before",
    summary: {
      summary:
        "Tried to ignore case with toLowerCase on both sides. It works for plain letters but does not find " +
        "“Straße” for “strasse” or “café” for “cafe”. The change was not kept.",
      details: { readFiles: [], modifiedFiles: ["src/store.ts"] },
    },
    label: "lower-casing, not enough",
  });

  // --- second try, which stays -------------------------------------------------------------------------------------

  await append({ type: "thinking_level_change", thinkingLevel: "high" });
  await user("Make search ignore case, and treat accents and ß as the plain letters people type.");
  await work(
    [
      thinking("NFD splits accents off as combining marks, which can be dropped. ß does not decompose: map it to ss."),
      text("That wants a function of its own, which folds text to what people type."),
    ],
    [
      "write",
      {
        path: "src/fold.ts",
        content:
          "/** Text as people type it when they search. */\nexport function fold(text: string): string {\n" +
          '  return text.toLowerCase().replaceAll("ß", "ss").normalize("NFD").replace(/\\p{M}/gu, "");\n}\n',
      },
      "Wrote src/fold.ts",
    ],
    [
      "edit",
      { path: "src/store.ts", oldText: "n.text.includes(word)", newText: "fold(n.text).includes(fold(word))" },
      "Edited src/store.ts",
    ],
  );
  await work(
    [],
    [
      "write",
      {
        path: "test/fold.test.ts",
        content:
          'test("accents and case", () => assert.equal(fold("Café"), "cafe"));\n' +
          'test("sharp s", () => assert.equal(fold("Straße"), "strasse"));\n',
      },
      "Wrote test/fold.test.ts",
    ],
  );
  await work([], ["bash", { command: "npm test" }, "# tests 6\n# pass 6\n# fail 0\n"]);
  const folding = await answer("Search now folds both sides: “strasse” finds “Straße”, “cafe” finds “café”.");
  await label(folding, "folding");

  const tags = await user("Now tags: #word in a note is a tag. Add `notes tags`, which lists them with counts.");
  await work(
    [],
    [
      "edit",
      {
        path: "src/store.ts",
        oldText: "",
        newText:
          "export function tags(): Map<string, number> {\n  const counts = new Map<string, number>();\n" +
          "  for (const { text } of list())\n    for (const [tag] of text.matchAll(/#[\\p{L}\\d-]+/gu))\n" +
          "      counts.set(tag, (counts.get(tag) ?? 0) + 1);\n  return counts;\n}\n",
      },
      "Edited src/store.ts",
    ],
  );
  await work([], ["bash", { command: "npm test && node dist/cli.js tags" }, "# pass 8\n#garden 3\n#work 2\n"]);
  await answer("`notes tags` lists each tag with the number of times it occurs.");

  // --- the context is getting long ---------------------------------------------------------------------------------

  await server.request("compact_append", {
    summary:
      "notes-app is a notebook for the terminal: src/store.ts keeps notes in notes.jsonl, src/cli.ts is the command " +
      "line. `search` was added; it ignores case, accents and ß through fold() in src/fold.ts. `list` treats a " +
      "missing file as empty. All tests pass. Plain lower-casing was tried and dropped.",
    firstKeptEntryId: tags,
    tokensBefore: 14820,
    details: {
      readFiles: ["src/cli.ts", "src/store.ts"],
      modifiedFiles: ["src/cli.ts", "src/fold.ts", "src/store.ts", "test/fold.test.ts"],
    },
  });
  await user("What is missing before I can use this every day?");
  const plan = await answer(
    "Three things:\n\n1. Notes live in the folder you happen to be in; a config file should name one place.\n" +
      "2. There is no way out: an export to Markdown would do.\n3. A note cannot be edited or removed.",
  );

  // --- one way on, kept for later ----------------------------------------------------------------------------------

  await append({
    type: "custom_message",
    customType: "checklist",
    content: "Open points: config file, Markdown export, editing and removing notes.",
    display: true,
    details: { open: 3, done: 0 },
  });
  await append({ type: "custom", customType: "checklist.state", data: { open: ["config", "export", "edit"] } });
  const exportFirst = await user("Start with the export to Markdown.");
  await work(
    [],
    [
      "write",
      {
        path: "src/export.ts",
        content:
          "export function toMarkdown(notes: Note[]): string {\n" +
          '  return notes.map((note) => "- " + note.text).join("\\n");\n}\n',
      },
      "Wrote src/export.ts",
    ],
  );
  await answer("`notes export` prints all notes as a Markdown list. Dates are not in it yet.");
  await label(exportFirst, "export, for later");

  // --- the way that was taken --------------------------------------------------------------------------------------

  await server.request("branch", { entryId: plan });
  await useModel("claude-haiku-4-5");
  await user("Start with the config file: one place for the notes, wherever I am.");
  await work([], ["read", { path: "package.json" }, '{ "name": "notes-app", "bin": { "notes": "dist/cli.js" } }\n']);
  await work(
    [text("I'll read the folder from `~/.config/notes/config.json` and fall back to the home folder.")],
    [
      "write",
      {
        path: "src/config.ts",
        content:
          'const file = join(homedir(), ".config", "notes", "config.json");\n' +
          'export const folder: string = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).folder : homedir();\n',
      },
      "Wrote src/config.ts",
    ],
    [
      "edit",
      { path: "src/store.ts", oldText: '"notes.jsonl"', newText: 'join(folder, "notes.jsonl")' },
      "Edited src/store.ts",
    ],
  );
  await work([], ["bash", { command: "npm test" }, "# tests 8\n# pass 8\n# fail 0\n"]);
  await answer("Notes now live in one folder, your home folder unless `config.json` names another.");
  await say({
    role: "bashExecution",
    command: "git status --short",
    output: " M src/cli.ts\n M src/store.ts\n?? src/config.ts\n?? src/fold.ts\n?? test/fold.test.ts\n",
    exitCode: 0,
    cancelled: false,
    truncated: false,
  });
  await user("Looks right. Commit it.");
  await work(
    [],
    [
      "bash",
      { command: 'git add -A && git commit -m "Search, tags and a config file"' },
      "[main 4be1c0d] Search, tags and a config file\n 5 files changed, 41 insertions(+), 4 deletions(-)\n",
    ],
  );
  await answer("Committed as 4be1c0d. Next on the list: export, then editing and removing notes.");
}

/** US dollars for a usage, at rates of the order that providers ask. */
function costOf({ input, output, cacheRead, cacheWrite }) {
  const dollars = (tokens, perMillion) => Number(((tokens * perMillion) / 1e6).toFixed(6));
  const cost = {
    input: dollars(input, 3),
    output: dollars(output, 15),
    cacheRead: dollars(cacheRead, 0.3),
    cacheWrite: dollars(cacheWrite, 3.75),
  };
  const total = cost.input + cost.output + cost.cacheRead + cost.cacheWrite;
  return { ...cost, total: Number(total.toFixed(6)) };
}

/** A session of format version 1: no version in the header, no ids, the compaction counts lines. */
function oldSession() {
  const start = Date.parse("2025-10-14T09:20:00.000Z");
  let minutes = 0;
  const at = () => new Date(start + minutes++ * 60_000).toISOString();
  let model = { provider: "anthropic", modelId: "claude-sonnet-4-5" };
  const message = (content) => {
    const timestamp = at();
    return { type: "message", timestamp, message: { ...content, timestamp: Date.parse(timestamp) } };
  };
  const user = (text) => message({ role: "user", content: text });
  const assistant = (...content) =>
    message({
      role: "assistant",
      content,
      api: "anthropic-messages",
      provider: model.provider,
      model: model.modelId,
      usage: {
        input: 900,
        output: 120,
        cacheRead: 0,
        cacheWrite: 0,
        cost: costOf({ input: 900, output: 120, cacheRead: 0, cacheWrite: 0 }),
      },
      stopReason: content.some(({ type }) => type === "toolCall") ? "toolUse" : "stop",
    });
  const changeModel = (modelId) => {
    model = { ...model, modelId };
    return { type: "model_change", timestamp: at(), ...model };
  };
  const lines = [
    {
      type: "session",
      id: "5b0c7a52-6a4f-4f5e-9a3e-2f7d1c0b8e64",
      timestamp: at(),
      cwd: PROJECT,
      ...model,
      thinkingLevel: "off",
    },
    user("Set up a TypeScript project for a notebook on the command line."),
    assistant(
      { type: "text", text: "I'll start with package.json." },
      {
        type: "toolCall",
        id: "call_a",
        name: "write",
        arguments: { path: "package.json", content: '{ "name": "notes-app", "type": "module" }\n' },
      },
    ),
    message({
      role: "toolResult",
      toolCallId: "call_a",
      toolName: "write",
      content: [{ type: "text", text: "Wrote package.json" }],
      isError: false,
    }),
    assistant({ type: "text", text: "The project is set up; there is nothing in it yet." }),
    user("Keep the notes in one JSON line each."),
    assistant({ type: "text", text: "src/store.ts appends to notes.jsonl and reads it back line by line." }),
    {
      type: "compaction",
      timestamp: at(),
      summary: "A TypeScript project for a notebook was set up. Notes are stored as JSON lines.",
      // Counts the lines of this file, the header being 0: the question before the last answer.
      firstKeptEntryIndex: 5,
      tokensBefore: 6120,
    },
    user("Add a first test."),
    assistant({ type: "text", text: "test/store.test.ts adds a note and reads it back." }),
    { type: "thinking_level_change", timestamp: at(), thinkingLevel: "low" },
    changeModel("claude-haiku-4-5"),
    user("Write two sentences for the README."),
    assistant({ type: "text", text: "notes-app keeps short notes. Type `notes add` and a sentence." }),
  ];
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}
