/** Sessions of Cline and Roo Code: which session a file is, and whose. */

import { expect, test } from "vitest";
import { drawnContext, entriesOf, fidelityOf, foreignSession } from "../support/foreign/checks.ts";
import { CLINE_SESSION, ClineWriter, wholeClineScreen, wholeClineSession } from "../support/foreign/cline.ts";
import { acrossTiers } from "../support/tiers.ts";

const FORMS = ["contract", "cline", "roo"] as const;
const HISTORY = "/elsewhere/tasks/1784094124598/api_conversation_history.json";

test.each(FORMS)("the end of a whole session of %s, and when and with what it began", (form) => {
  const session = foreignSession(wholeClineSession(form).text, HISTORY);
  const end = drawnContext(session).filter((line) => !line.includes("<environment_details>"));
  expect(end.slice(-4)).toEqual(["model: [t9]", "result: nine", "user: Good", "model: Nothing."]);
  expect(entriesOf(session)[form === "contract" ? 2 : 0].timestamp).toMatch(/^2026-07-15T05:00/);
  const hasPrompt = entriesOf(session).some(({ customType }) => customType === "cline:system-prompt");
  expect(hasPrompt).toBe(form === "contract");
});

test("a contract's file names its session, and a subagent's the one that made it", () => {
  const w = wholeClineSession("contract");
  const lead = foreignSession(w.text);
  w.facts = { ...w.facts, updated_at: "2027-01-01T00:00:00.000Z" };
  expect(foreignSession(w.text).id).toBe(lead.id);
  w.facts = { ...w.facts, agent: "subagent", sessionId: `${CLINE_SESSION}__agent_1` };
  expect(foreignSession(w.text).id).not.toBe(lead.id);
});

test("a task is told by its folder, or where that is not its own by how it began", () => {
  const [one, another] = ["One", "Another"].map((text) => {
    const w = new ClineWriter("cline");
    w.ask(text);
    const ids = (): string[] => ["/elsewhere/history.json", HISTORY].map((file) => foreignSession(w.text, file).id);
    const begun = ids();
    w.reply("Yes.");
    expect(ids()).toEqual(begun);
    return begun;
  });
  expect([one[0] === another[0], one[1] === another[1]]).toEqual([false, true]);
  const shown = HISTORY.replace("api_conversation_history", "ui_messages");
  expect(foreignSession(JSON.stringify(wholeClineScreen()), shown).id).toBe(one[1]);
});

acrossTiers(test, FORMS)(
  "wherever a task of the form %s is cut, no entry of it has the id of another one of the whole task",
  (form) => {
    const w = wholeClineSession(form);
    const messages = [...w.messages];
    const whole = new Map(entriesOf(foreignSession(w.text, HISTORY)).map((entry) => [entry.id, entry]));
    for (let cut = 1; cut < messages.length; cut++) {
      // A thought alone is only the beginning of an entry, and is told to be.
      if (messages[cut - 1].type === "reasoning") continue;
      w.messages.splice(0, w.messages.length, ...messages.slice(0, cut));
      for (const entry of entriesOf(foreignSession(w.text, HISTORY))) expect(entry).toEqual(whole.get(entry.id));
    }
  },
);

const request = { ts: 3, type: "say", say: "api_req_started", text: JSON.stringify({ apiProtocol: "anthropic" }) };

test.each<[string, ...object[]]>([
  ["cline"],
  ["roo", { ts: 3, type: "say", say: "codebase_search_result", text: "{}" }],
  ["roo", { ts: 3, type: "say", say: "user_edit_todos", text: "{}" }],
  ["roo", { ts: 3, type: "say", say: "subtask_result", text: "{}" }],
  ["roo", request],
  ["cline", { ...request, modelInfo: { modelId: "x" } }],
])("what is shown of a task is of %s by what only that says: %j", (agent, ...more) => {
  const said = { ts: 1, type: "say", say: "text", text: "Make a page" };
  const text = JSON.stringify([said, { ts: 2, type: "say", say: "text", text: "Made." }, ...more]);
  expect(fidelityOf(foreignSession(text).log).agent).toBe(agent);
});
