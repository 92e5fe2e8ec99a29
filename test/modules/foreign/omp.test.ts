/** oh-my-pi's sessions: Pi's entries with a title before them, read with what its own entries mean. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { getModelAt, getThinkingLevelAt } from "../../../src/core/context/context.ts";
import { BLOB, OMP_SESSION, OmpWriter, picture, wholeOmpSession, words } from "../../support/foreign/omp.ts";
import { put, serveLibrary } from "../../support/lifecycle.ts";
import { temporaryPlace } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";
import { drawnContext, entriesOf, fidelityOf, foreignSession, requireSound, strictContext } from "./support/checks.ts";

const BELOW = ".omp/agent/sessions/-project";
const NAME = `2026-10-01T08-00-00-000Z_${OMP_SESSION}.jsonl`;
const AT = "2026-01-24T16:22:26.831Z";

/** The whole session, with more entries at its end. */
function withMore(...entries: object[]) {
  const lines = entries.map((entry) => `${JSON.stringify({ timestamp: AT, ...entry })}\n`);
  return foreignSession(wholeOmpSession().text + lines.join(""));
}

test("entries keep their ids; the model, the level and what it took are known", () => {
  const session = withMore();
  const { tree, log } = session;
  expect(log.header).toMatchObject({ id: OMP_SESSION, cwd: "/home/me/project" });
  expect(entriesOf(session).map(({ id }) => id)).toEqual(expect.arrayContaining(["00000002", "0000000a"]));
  const modelOf = (id: string) => getModelAt(tree, session, log.nodes.position(id));
  expect(modelOf("00000002")).toEqual({ provider: "openrouter", id: "anthropic/claude" });
  // A model that stands in for a while is not the session's.
  expect(modelOf("0000000a")).toEqual({ provider: "openai", id: "gpt-5" });
  expect(getThinkingLevelAt(tree, session, tree.leaf)).toBe("high");
  expect(entriesOf(session).find(({ type }) => type === "usage")).toMatchObject({ kind: "title", model: "gpt-5" });
  expect(fidelityOf(log).kinds.map(({ kind }) => kind)).toContain("reset_boundary");
});

test("nothing before the place where the conversation was cleared is in the context, and references are no pictures", () => {
  const session = withMore();
  expect(drawnContext(session)).toEqual(["user: Now the jam", "model: It is red"]);
  const before = strictContext(session, session.log.nodes.position("00000007"));
  expect(before).toHaveLength(3);
  const blocks = before.flatMap(({ content }) => content as { text?: string; data?: string }[]);
  expect(blocks.filter(({ data }) => data !== undefined)).toEqual([]);
  const named = blocks.filter(({ text }) => /image\/png/.test(text ?? "") && text?.includes("sha256:abab"));
  expect(named).toHaveLength(2);
});

test("a picture without bytes is a text for the model, and a warning names it", () => {
  const message = { role: "user", content: [{ type: "image", data: "", mimeType: "image/png" }], timestamp: 1 };
  const session = withMore({ type: "message", id: "0000000e", parentId: null, message });
  expect(drawnContext(session, session.log.nodes.position("0000000e"))).toEqual(["user: [image: image/png]"]);
  const sentences = fidelityOf(session.log).warnings.map(({ sentence }) => sentence);
  expect(sentences.join()).toContain("Pictures of it are not here");
});

test("an entry with an empty type keeps its place, for those that continue it", () => {
  const session = withMore(
    { type: "", customType: "x", id: "000000f1", parentId: null },
    { type: "session", customType: "x", id: "000000f2", parentId: "000000f1" },
    { type: "custom", customType: "x", id: "000000f3", parentId: null },
    { type: "custom", customType: "x", id: "000000f4", parentId: "000000f1" },
  );
  requireSound(session);
  const parents = entriesOf(session).map(({ type, id, parentId }) => [type, id, parentId]);
  expect(parents.slice(-4)).toEqual([
    ["unknown", "000000f1", parents[0][1]],
    ["session", "000000f2", "000000f1"],
    ["custom", "000000f3", parents[0][1]],
    ["custom", "000000f4", "000000f1"],
  ]);
});

test("a file without a title is oh-my-pi's by its place; subagents name who began them; each agent is listed", async () => {
  const place = temporaryPlace();
  const main = new OmpWriter("", { title: "Older" });
  main.user("Where is the jam?");
  const file = put(join(place.home, BELOW, NAME), main.text);
  const sub = new OmpWriter("Subagent", { id: OMP_SESSION.replace("0199", "0200") });
  sub.add("session_init", { systemPrompt: "x", task: "Look", tools: [] });
  sub.user("Look at the shelves");
  const below = put(join(place.home, BELOW, NAME.replace(".jsonl", ""), "0-Look.jsonl"), sub.text);
  const other = put(join(place.home, ".omp/profiles/work/agent/sessions/-x", NAME), wholeOmpSession().text);
  const { sessions } = await serveLibrary(place).result("list_sessions", { agents: ["omp"] });
  expect(sessions).toHaveLength(3);
  for (const row of [
    { sessionPath: file, agent: "omp", name: "Older", firstMessage: "Where is the jam?" },
    { sessionPath: below, parentSession: file },
    { sessionPath: other, name: "Shelves" },
  ])
    expect(sessions).toContainEqual(expect.objectContaining(row));
});

test(
  "in a file that counts as Pi's, too, a medium that is not here is named in the context and the page",
  SYSTEM,
  async () => {
    const place = temporaryPlace();
    const server = serveLibrary(place);
    const w = new OmpWriter("", { cwd: place.home });
    w.add("model_change", { model: "openai/gpt-5" });
    w.user([words("Look"), picture]);
    const file = put(join(place.home, "pi.jsonl"), w.text);
    await server.result("switch_session", { sessionPath: file });
    expect((await server.result("get_state")).model).toMatchObject({ provider: "openai", id: "gpt-5" });
    const named = { type: "text", text: `[image/png that is not here: ${BLOB.slice(5)}]` };
    const { messages } = await server.result("get_messages");
    expect(messages[0].content).toEqual([words("Look"), named]);
    const { entries } = await server.result("get_entries");
    expect(entries[1].message.content[1]).toEqual(picture);
    const html = JSON.stringify(await server.result("export_session", { format: "html" }));
    expect(html).toContain("image/png that is not here");
    expect(html).not.toContain('"data\\":\\"blob:');
  },
);

const HEADER = { type: "session", id: "5f0c8a52-4f1a-4a3c-9d1e-0123456789ab", timestamp: "2026-01-01T00:00:00.000Z" };
const MESSAGE = { role: "user", content: "Hello", timestamp: 1 };
const ENTRY = { type: "message", id: "aaaaaaaa", parentId: null, timestamp: HEADER.timestamp, message: MESSAGE };
const SAID = `${JSON.stringify(ENTRY)}\n`;

test("one in our folder, which begins with a title, is sound, is listed, and is only read", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const { sessionFile } = await server.result("get_state");
  const title = { type: "title", v: 1, title: "My title", updatedAt: HEADER.timestamp, pad: "" };
  const slot = JSON.stringify({ ...title, pad: " ".repeat(255 - JSON.stringify(title).length) });
  const header = JSON.stringify({ ...HEADER, version: 3, cwd: place.home });
  const file = put(join(sessionFile, "..", "omp.jsonl"), `${slot}\n${header}\n${SAID}`);
  const { damage, ok } = await server.result("verify_session", { sessionPath: file });
  expect([damage, ok]).toEqual([[], true]);
  const { sessions } = await server.result("list_sessions", { query: "Hello" });
  expect(sessions).toMatchObject([{ sessionPath: file, sessionId: HEADER.id, cwd: place.home, messageCount: 1 }]);
  expect((await server.result("get_health")).damaged).toEqual([]);
  await server.result("switch_session", { sessionPath: file });
  const refused = await server.failure("append", { entries: [JSON.parse(SAID)] });
  expect(refused).toMatchObject({ message: expect.stringMatching(/oh-my-pi/), data: { name: "read_only" } });
  expect(readFileSync(file, "utf8")).toBe(`${slot}\n${header}\n${SAID}`);
});
