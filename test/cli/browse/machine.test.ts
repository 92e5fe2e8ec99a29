/** The state machine of browse: keys and answers to what it shows and asks for, without terminal and server. */

import { describe, expect, test } from "vitest";
import { begin, step } from "../../../src/cli/browse/machine.ts";
import type {
  BrowseChange,
  BrowseEffect,
  BrowseState,
  ChangeOutcome,
  Happening,
} from "../../../src/cli/browse/state.ts";
import { view } from "../../../src/cli/browse/view.ts";
import type { Key, KeyName } from "../../../src/cli/terminal/keys.ts";
import { coloured, type OutputStyle, plain } from "../../../src/cli/terminal/page.ts";
import { widthOf } from "../../../src/cli/terminal/text.ts";
import { forSeeds, type Random } from "../../support/random.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const PAGE: OutputStyle = { width: 80, paint: plain, now: Date.UTC(2026, 0, 25), home: "/home/me", isTerminal: true };
const CWD = "/home/me/app";
const QUERY = { shelf: "sessions", cwd: CWD, words: "", sort: "modified", isNamed: false };

function session(n: number, more: object = {}): Json {
  return {
    sessionPath: `/s/${n}.jsonl`,
    sessionId: `id-${String(n).padStart(6, "0")}`,
    cwd: CWD,
    name: n % 3 === 0 ? `Name ${n}` : null,
    parentSession: null,
    firstMessage: `first ${n}`,
    messageCount: n,
    modified: "2026-01-24T00:00:00.000Z",
    sizeBytes: 1000 * n,
    ...more,
  };
}

const sessions = (from: number, to: number): Json[] => Array.from({ length: to - from }, (_, i) => session(from + i));

/** A browser, and a server that answers its effects when told to. */
class Browsing {
  state: BrowseState;
  readonly asked: BrowseEffect[];

  constructor(rows = 13, columns = 80) {
    const { state, effects } = begin(rows, columns, CWD);
    this.state = state;
    this.asked = [...effects];
  }

  happen(happening: Happening): this {
    const { state, effects } = step(this.state, happening);
    this.state = state;
    this.asked.push(...effects);
    return this;
  }

  /** Keys by their names, or the characters of a text. */
  press(...keys: string[]): this {
    for (const key of keys) {
      const name = /^<(.*)>$/.exec(key)?.[1];
      const pressed: Key[] = name ? [{ name: name as KeyName }] : Array.from(key, (text) => ({ text }));
      for (const one of pressed) this.happen({ what: "key", key: one });
    }
    return this;
  }

  /** What was asked for since the last look, but for looks, which come by themselves. */
  take(): BrowseEffect[] {
    return this.asked.splice(0).filter((effect) => effect.do !== "look");
  }

  /** Answers with the sessions from `from` up to, not including, `to` of `total`. */
  list(from: number, to: number, total: number): this {
    return this.listed(sessions(from, to), total, to < total ? `after ${to}` : undefined);
  }

  listed(of: Json[], total = of.length, cursor?: string): this {
    return this.happen({ what: "listed", sessions: of, total, cursor });
  }

  done(outcome: ChangeOutcome): this {
    return this.happen({ what: "done", outcome });
  }

  get screen(): string[] {
    return view(this.state, { ...PAGE, width: this.state.columns }).map((line) => line.trimEnd());
  }

  get bottom(): string {
    return this.screen.at(-1) as string;
  }

  get marked(): string | undefined {
    return this.screen.find((line) => line.startsWith("> "));
  }
}

/** A browser whose list has come; a low one has no preview. */
function ready(total = 20, rows = 13, columns = 80): Browsing {
  const browsing = new Browsing(rows, columns).list(0, Math.min(total, rows), Math.min(total, rows));
  browsing.list(0, Math.min(total, 200), total);
  while (browsing.state.list.asked && total <= 1000)
    browsing.list(
      browsing.state.list.sessions.length,
      Math.min(total, browsing.state.list.sessions.length + 200),
      total,
    );
  browsing.take();
  return browsing;
}

describe("the list", () => {
  test("begins with what the directory's folder has at once, and goes on with all of it", () => {
    const browsing = new Browsing();
    expect(browsing.take()).toEqual([{ do: "list", query: QUERY, cursor: undefined, limit: 13, isQuick: true }]);
    expect(browsing.bottom).toBe("Reading the sessions…");
    browsing.list(0, 3, 3);
    expect(browsing.take()).toEqual([{ do: "list", query: QUERY, cursor: undefined, limit: 200, isQuick: false }]);
    expect(browsing.screen.slice(0, 6)).toEqual([
      expect.stringMatching(/^Sessions of ~\/app {50,}1 of 3$/),
      "     AGE  MSGS  NAME OR FIRST MESSAGE",
      ">     1d     0  Name 0",
      "      1d     1  first 1",
      "      1d     2  first 2",
      "",
    ]);
    browsing.press("j").listed([session(7), ...sessions(0, 3)]);
    expect(browsing.marked).toContain("first 1");
    expect(browsing.screen[0]).toMatch(/3 of 4$/);
  });

  test("of a directory without any shows those of all", () => {
    const browsing = new Browsing().listed([]).listed([]);
    expect(browsing.bottom).toBe("This folder has no sessions; these are those of all folders.");
    expect(browsing.take().at(-1)).toMatchObject({ do: "list", query: { ...QUERY, cwd: undefined } });
    browsing.listed([]);
    expect(browsing.screen[2]).toBe("  There are no sessions.");
    expect(browsing.press("<enter>", "t", "d", "y", "r", "e").take()).toEqual([]);
  });

  test("moves by arrows, letters, pages, and to its ends; the mark stays on the screen", () => {
    const browsing = ready();
    const on = (...keys: string[]): number => {
      browsing.press(...keys);
      const { selected } = browsing.state.list;
      expect(browsing.marked).toMatch(new RegExp(`(?:Name|first) ${selected}$`));
      return selected;
    };
    expect([on("<down>"), on("j"), on("<up>"), on("k"), on("k")]).toEqual([1, 2, 1, 0, 0]);
    expect([on("<pageDown>"), on("<pageDown>"), on("<pageUp>")]).toEqual([10, 19, 9]);
    expect([on("<end>"), on("j"), on("<home>"), on("G"), on("g")]).toEqual([19, 19, 0, 19, 0]);
    expect(browsing.take()).toEqual([]);
  });

  test("ends with the session on Enter, with nothing on q and Ctrl+C", () => {
    expect(ready().press("j", "<enter>").take()).toEqual([{ do: "end", session: session(1) }]);
    for (const key of ["q", "<ctrl+c>"]) expect(ready().press(key).take()).toEqual([{ do: "end", session: null }]);
  });

  test("of ten thousand is fetched as it is walked, and in long pieces for its end", () => {
    const browsing = ready(10_000);
    for (let i = 0; i < 18; i++) browsing.press("<pageDown>");
    expect(browsing.take()).toEqual([{ do: "list", query: QUERY, cursor: "after 200", limit: 200, isQuick: false }]);
    browsing.press("<pageDown>").list(200, 400, 10_000);
    expect([browsing.state.list.selected, browsing.take()]).toEqual([190, []]);
    browsing.press("<end>");
    for (let from = 400; from < 10_000; ) {
      expect(browsing.take()).toEqual([
        { do: "list", query: QUERY, cursor: `after ${from}`, limit: 2000, isQuick: false },
      ]);
      const to = Math.min(10_000, from + 2000);
      browsing.list(from, to, 10_000);
      from = to;
    }
    expect([browsing.state.list.selected, browsing.state.list.rows.length]).toEqual([9999, 10_000]);
    expect(browsing.take()).toEqual([]);
    expect(browsing.screen[0]).toMatch(/10,000 of 10,000$/);
  });

  test("a move on the way to the end gives the end up", () => {
    const browsing = ready(10_000).press("<end>", "<home>");
    browsing.list(200, 2200, 10_000);
    expect(browsing.state.list.selected).toBe(0);
    expect(browsing.take()).toHaveLength(1);
  });

  test("has forks under their originals, wherever those would stand, and each session once", () => {
    const fork = (n: number, of: number): Json => session(n, { parentSession: `/s/${of}.jsonl` });
    const browsing = new Browsing().listed([]);
    browsing.listed([fork(5, 2), session(1), fork(4, 5), session(2), fork(7, 8), fork(8, 7), fork(9, 99)]);
    expect(browsing.screen.slice(2, 9).map((line) => line.slice(16))).toEqual([
      "first 2",
      "└ first 5",
      "  └ first 4",
      "first 1",
      "first 8",
      "└ first 7",
      "Name 9",
    ]);
    browsing
      .press("s", "s")
      .listed([])
      .listed([fork(5, 2), session(2)]);
    expect(browsing.screen.slice(2, 4).map((line) => line.slice(-7))).toEqual(["first 5", "first 2"]);
    const lone = session(6, { parentSession: "/gone.jsonl", forkedFrom: { sessionId: "x", name: "The first try" } });
    expect(new Browsing().listed([lone]).marked).toContain("Name 6 (fork of The first try)");
  });

  test("Tab, m, s, A and D change what it is of; Esc leads back to the sessions", () => {
    const browsing = ready();
    const asked = (key: string): unknown => {
      const [effect] = browsing.press(key).take();
      browsing.listed(sessions(0, 5));
      browsing.take();
      return (effect as { query?: unknown } | undefined)?.query;
    };
    expect(asked("<tab>")).toEqual({ ...QUERY, cwd: undefined });
    expect(browsing.screen[0]).toMatch(/^Sessions of all folders/);
    expect(browsing.screen[1]).toContain("DIRECTORY");
    expect(asked("<tab>")).toEqual(QUERY);
    expect(asked("m")).toEqual({ ...QUERY, isNamed: true });
    expect(asked("m")).toEqual(QUERY);
    for (const sort of ["created", "size", "cost", "modified"]) expect(asked("s")).toEqual({ ...QUERY, sort });
    expect(asked("O")).toEqual({ ...QUERY, agents: "all" });
    expect(browsing.screen[0]).toContain("and those of other agents");
    expect(asked("O")).toEqual(QUERY);
    expect(asked("A")).toEqual({ ...QUERY, shelf: "archive" });
    expect(browsing.screen[0]).toMatch(/^Archive/);
    expect(asked("A")).toEqual(QUERY);
    expect(asked("D")).toEqual({ ...QUERY, shelf: "trash" });
    expect(asked("<escape>")).toEqual(QUERY);
    expect(asked("<escape>")).toBe(undefined);
  });

  test("that cannot be had so says why, and is asked for anew with the next key", () => {
    const browsing = ready().press("s", "s");
    browsing.happen({ what: "failed", isList: true, message: "No." });
    expect(browsing.bottom).toBe("No.");
    expect(browsing.take().at(-1)).toMatchObject({ do: "list", query: { sort: "size" } });
    browsing.list(0, 20, 20);
    expect(browsing.screen[1]).toMatch(/SIZE/);
  });

  test("of another place is not mixed with what was there, and one that cannot be had leads back", () => {
    const browsing = ready().press("D");
    expect(browsing.marked).toBe(undefined);
    expect(browsing.press("d", "y", "<enter>", "r", "a").take()).toMatchObject([
      { do: "list", query: { shelf: "trash" } },
    ]);
    browsing.happen({ what: "failed", isList: true, message: "There is no trash." });
    expect(browsing.take()).toMatchObject([{ do: "list", query: QUERY }]);
    expect(browsing.list(0, 20, 20).screen[0]).toMatch(/^Sessions of ~/);
    browsing.press("D").happen({ what: "failed", isList: true, message: "There is no trash." });
    expect(browsing.bottom).toBe("There is no trash.");
  });

  test("marks what is open elsewhere, damaged, not to be written, and V2, as it is looked at", () => {
    const browsing = new Browsing().listed([]);
    browsing.listed([session(0), session(1), session(2), session(3, { sessionPath: "/s/3.v2" })]);
    const facts: Json[] = [{ lockedBy: { client: "pi", pid: 7 } }, { damageCount: 2 }, { readOnly: "read_only" }, {}];
    for (const [n, more] of facts.entries()) {
      const [look] = browsing.asked.splice(0).filter((effect) => effect.do === "look");
      const sessionPath = `/s/${n}.${n === 3 ? "v2" : "jsonl"}`;
      expect(look).toEqual({ do: "look", sessionPath });
      browsing.happen({ what: "looked", sessionPath, facts: { damageCount: 0, ...more } });
    }
    expect(browsing.screen.slice(2, 6).map((line) => line.slice(2, 4))).toEqual(["* ", "! ", "# ", " 2"]);
    expect(browsing.asked).toEqual([]);
  });
});

describe("the filter", () => {
  test("asks with each character, one request at a time, and heeds only what fits", () => {
    const browsing = ready().press("/", "q", "u", "x", "<backspace>");
    const words = (text: string): object => ({ ...QUERY, words: text });
    expect(browsing.take()).toEqual([
      { do: "list", query: words("q"), cursor: undefined, limit: 200, isQuick: false },
      { do: "search", words: "qu", cwd: CWD },
      { do: "search", words: "qux", cwd: CWD },
      { do: "search", words: "qu", cwd: CWD },
    ]);
    expect(browsing.screen[0]).toMatch(/^Filter: qu_ {2}Sessions/);
    browsing.list(5, 6, 1);
    expect(browsing.take()).toEqual([
      { do: "list", query: words("qu"), cursor: undefined, limit: 200, isQuick: false },
    ]);
    expect(browsing.state.list.rows).toHaveLength(20);
    browsing.list(7, 9, 2).press("<down>");
    expect(browsing.marked).toContain("first 8");
    expect(browsing.press("<enter>").take()).toEqual([{ do: "end", session: session(8) }]);
  });

  test("finds what was said too: after the names, each session once, with the words around", () => {
    const browsing = ready().press("/", "pear").list(1, 2, 1).list(1, 2, 1);
    const hit = (n: number, entryId: string): Json => ({
      sessionPath: `/s/${n}.jsonl`,
      sessionId: `id-${n}`,
      entryId,
      snippet: `a pear in ${entryId}`,
    });
    browsing.happen({ what: "found", words: "pea", hits: [hit(9, "old")] });
    expect(browsing.state.list.rows).toHaveLength(1);
    const unknown = { ...hit(77, "d"), name: "From elsewhere", cwd: "/x" };
    browsing.happen({ what: "found", words: "pear", hits: [hit(4, "a"), hit(1, "b"), hit(4, "c"), unknown] });
    expect(browsing.screen.slice(2, 6).map((line) => line.slice(16))).toEqual([
      "first 1  a pear in b",
      "first 4  a pear in a",
      "From elsewhere  a pear in d",
      "",
    ]);
    expect(browsing.screen[0]).toMatch(/1 of 3$/);
    browsing.take();
    browsing.happen({ what: "found", words: "pear", hits: [hit(4, "a")], cursor: "next" });
    expect(browsing.take()).toContainEqual({ do: "search", words: "pear", cwd: CWD, cursor: "next" });
    browsing.happen({ what: "found", words: "pear", hits: [hit(6, "f")], from: "next" });
    expect(browsing.state.list.rows.map(({ session }) => session.sessionId)).toEqual(
      [1, 4, 6].map((n) => session(n).sessionId),
    );
    expect(browsing.press("<escape>").state.list.query.words).toBe("");
  });

  test("n and N go through the places in one session", () => {
    const browsing = ready(20, 30, 120).press("/", "pear").list(1, 2, 1).list(1, 2, 1);
    const hits = ["a", "b"].map((entryId) => ({
      sessionPath: "/s/1.jsonl",
      sessionId: "id",
      entryId,
      snippet: "pear",
    }));
    browsing.happen({ what: "found", words: "pear", hits });
    const entry = (): unknown => browsing.state.preview.place?.entryId;
    expect(entry()).toBe("a");
    // While words are typed, letters are words; the arrows lead to the list, where they are keys.
    expect(browsing.press("n").state.list.query.words).toBe("pearn");
    browsing.press("<backspace>").list(1, 2, 1).list(1, 2, 1);
    browsing.happen({ what: "found", words: "pear", hits });
    browsing.press("<down>");
    expect([browsing.press("n").bottom, entry()]).toEqual(["Place 2 of 2.", "b"]);
    expect([browsing.press("n").bottom, entry()]).toEqual(["Place 1 of 2.", "a"]);
    expect([browsing.press("N").bottom, browsing.state.list.query.words]).toEqual(["Place 2 of 2.", "pear"]);
    expect(browsing.press("/", "s").state.list.query.words).toBe("pears");
  });

  test("keys wait for the list that they are meant for, and for what was said where no name fits", () => {
    const browsing = ready().press("/", "qu", "<down>", "a", "<enter>");
    expect([browsing.list(5, 6, 1).take().at(-1), browsing.bottom]).toMatchObject([
      { do: "list", query: { words: "qu" } },
      "Reading the sessions…",
    ]);
    expect(browsing.list(7, 9, 2).take()).toEqual([
      { do: "change", change: { change: "archive", session: session(8) } },
    ]);

    const said = ready().press("/", "pear", "<enter>").listed([]).listed([]);
    expect(said.take().filter((effect) => effect.do === "end")).toEqual([]);
    expect(said.happen({ what: "unfound", message: "No." }).take()).toEqual([]);
    said.press("r", "<enter>").listed([]).take();
    said.happen({
      what: "found",
      words: "pearr",
      hits: [{ sessionPath: "/s/4.jsonl", sessionId: "id", entryId: "a" }],
    });
    expect(said.take()).toEqual([{ do: "end", session: session(4) }]);

    for (const key of ["<enter>", "a", "d", "f", "j", "t"]) {
      const other = ready().press("<tab>", key);
      expect(
        other.take().map((effect) => effect.do),
        key,
      ).toEqual(["list"]);
      expect([other.press("<escape>").list(3, 5, 2).take(), other.state.list.selected], key).toEqual([[], 0]);
      const none = ready().press("s", key).happen({ what: "failed", isList: true, message: "No." });
      expect([none.take().length, none.bottom], key).toEqual([1, "No."]);
    }
    const ended = ready()
      .press("/", "pe", "<enter>", "d", "y")
      .listed([])
      .listed([session(1)]);
    expect(ended.take().slice(-1)).toEqual([{ do: "end", session: session(1) }]);
    expect(ready().press("m", "<enter>", "<ctrl+c>").take().at(-1)).toEqual({ do: "end", session: null });
  });

  test("is cleared by Esc; that nothing fits is said", () => {
    const browsing = ready().press("/", "zz").list(0, 0, 0).list(0, 0, 0);
    expect(browsing.screen[2]).toBe("  No session matches.");
    browsing.take();
    browsing.press("<escape>");
    expect([browsing.state.list.query.words, browsing.state.list.isTyping]).toEqual(["", false]);
    expect(browsing.take()).toEqual([{ do: "list", query: QUERY, cursor: undefined, limit: 200, isQuick: false }]);
    expect(browsing.list(0, 20, 20).press("j").state.list.selected).toBe(1);
  });

  test("Ctrl+U empties it, Ctrl+W takes a word, and Esc with nothing typed asks for nothing", () => {
    const browsing = ready().press("/", "one two", "<ctrl+w>");
    expect(browsing.state.list.query.words).toBe("one ");
    expect(browsing.press("<ctrl+u>").state.list.query.words).toBe("");
    expect(ready().press("/", "<escape>", "<escape>").take()).toEqual([]);
  });
});

describe("changes", () => {
  const changes = (browsing: Browsing): BrowseChange[] =>
    browsing.take().flatMap((effect) => (effect.do === "change" ? [effect.change] : []));

  test("a deletion is asked about; n and Esc keep, y deletes, and other keys do nothing", () => {
    const browsing = ready().press("j", "d");
    expect(browsing.bottom).toBe('Delete "first 1", 1 message, 1.0 kB? y/n');
    expect(browsing.press("x", "<enter>", "<down>", "q").take()).toEqual([]);
    expect(browsing.press("n").bottom).toBe("Nothing was changed.");
    browsing.press("<ctrl+d>", "<escape>");
    expect([browsing.take(), browsing.state.prompt]).toEqual([[], undefined]);

    const change: BrowseChange = { change: "delete", session: session(1) };
    expect(changes(browsing.press("<delete>", "y"))).toEqual([change]);
    expect(browsing.press("<enter>", "<tab>", "j", "d").take()).toEqual([]);
    browsing.done({ change, notice: "It is in the trash." });
    expect([browsing.state.list.rows.length, browsing.state.list.total, browsing.state.list.selected]).toEqual([
      19, 19, 1,
    ]);
    expect(browsing.bottom).toBe("It is in the trash.");
    expect(browsing.marked).toContain("first 2");
  });

  test("that fail say why, and all stays", () => {
    const browsing = ready().press("d", "y");
    browsing.happen({ what: "failed", isList: false, message: "Another process\nwrites to it." });
    expect([browsing.state.list.rows.length, browsing.bottom]).toEqual([20, "Another process writes to it."]);
    expect(browsing.press("j").marked).toContain("first 1");
  });

  test("of the last one mark the one before it", () => {
    const browsing = ready(3).press("<end>", "a");
    const change: BrowseChange = { change: "archive", session: session(2) };
    expect(changes(browsing)).toEqual([change]);
    expect(browsing.done({ change, notice: "" }).marked).toContain("first 1");
  });

  test("a name is typed, and nothing is renamed by Esc or an empty one", () => {
    const browsing = ready().press("j", "r", "New name");
    expect(browsing.bottom).toBe("Name: New name_");
    const change: BrowseChange = { change: "rename", session: session(1), name: "New name" };
    expect(changes(browsing.press("<enter>"))).toEqual([change]);
    expect(browsing.done({ change, notice: "ok" }).marked).toContain("New name");
    expect(changes(browsing.press("r", "<ctrl+u>", "<enter>"))).toEqual([]);
    expect(changes(browsing.press("r", "x", "<escape>"))).toEqual([]);
    expect(browsing.press("r").bottom).toBe("Name: New name_");
  });

  const held = { damageCount: 0, lockedBy: { client: "an editor", pid: 7 } };
  const free = { damageCount: 0 };
  const looked = (browsing: Browsing, n: number, facts: typeof held | typeof free) =>
    browsing.happen({ what: "looked", sessionPath: `/s/${n}.jsonl`, facts });
  const SAID = "Open in an editor (process 7): close it there first.";

  test.each(["r", "d"])("what another process has open, %s says before it asks", (key) => {
    const browsing = looked(ready().press("j"), 1, held).press(key);
    expect(browsing.asked.at(-1)).toEqual({ do: "look", sessionPath: "/s/1.jsonl" });
    expect(browsing.bottom).not.toMatch(/Name: |Delete/);
    expect(looked(browsing, 1, held).bottom).toBe(SAID);
    expect(changes(browsing.press("y"))).toEqual([]);
    // It was closed since: the look tells, and the question comes.
    expect(looked(browsing.press(key), 1, free).bottom).toMatch(/^(?:Name: |Delete "first 1")/);
  });

  test("a question goes away when the look behind it finds another process", () => {
    const browsing = ready().press("j", "d");
    expect(looked(browsing, 2, held).bottom).toMatch(/^Delete "first 1"/);
    expect(looked(browsing, 1, held).bottom).toBe(SAID);
    expect(changes(browsing.press("y"))).toEqual([]);
    // To write a copy takes no lock.
    expect(looked(browsing.press("e"), 1, held).bottom).toMatch(/^Export to file: /);
  });

  test("export, fork, undo and redo", () => {
    const browsing = ready().press("e");
    expect(browsing.bottom).toBe("Export to file: name-0.md_");
    expect(changes(browsing.press("<enter>"))).toEqual([{ change: "export", session: session(0), file: "name-0.md" }]);
    browsing.happen({ what: "failed", isList: false, message: "" });
    expect(changes(browsing.press("f"))).toEqual([{ change: "fork", session: session(0) }]);
    browsing.done({ change: { change: "fork", session: session(0) }, notice: "Copied.", made: "/s/50.jsonl" });
    expect(browsing.take()).toMatchObject([{ do: "list", cursor: undefined }]);
    browsing.listed([...sessions(0, 3), session(50)]);
    expect(browsing.marked).toContain("first 50");
    for (const [key, change] of [
      ["u", "undo"],
      ["U", "redo"],
      ["<ctrl+r>", "redo"],
    ]) {
      expect(changes(browsing.press(key))).toEqual([{ change }]);
      browsing.done({ change: { change: change as "undo" }, notice: "Taken back." });
      expect([browsing.bottom, browsing.take()[0]?.do]).toEqual(["Taken back.", "list"]);
      browsing.listed([...sessions(0, 3), session(50)]);
    }
  });

  test("what was done elsewhere is taken back only after a question", () => {
    const browsing = ready().press("u");
    browsing.take();
    const wanted: BrowseChange = { change: "undo", operationId: "op" };
    const question = { ask: "yes", question: "Take back what was done elsewhere?", wanted } as const;
    browsing.done({ change: { change: "undo" }, notice: "", question });
    expect([browsing.bottom, browsing.take()]).toEqual(["Take back what was done elsewhere? y/n", []]);
    expect(changes(browsing.press("y"))).toEqual([wanted]);
  });

  test("in the trash r restores, and what is there cannot be opened or changed", () => {
    const browsing = ready().press("D");
    browsing.listed([session(3, { itemPath: "/t/3.jsonl" })]);
    browsing.take();
    for (const key of ["<enter>", "a", "d", "f", "e", "l"]) {
      expect(browsing.press(key).take(), key).toEqual([]);
      expect(browsing.bottom).toContain("r brings it back");
    }
    expect(changes(browsing.press("r"))).toMatchObject([{ change: "restore", session: { itemPath: "/t/3.jsonl" } }]);
  });

  test("in the archive a brings back", () => {
    const browsing = ready().press("A").list(0, 2, 2);
    expect(changes(browsing.press("a"))).toEqual([{ change: "unarchive", session: session(0) }]);
  });

  test("y copies the id and Y the path, and the line shows it", () => {
    const browsing = ready();
    expect(browsing.press("y", "Y").take()).toEqual([
      { do: "copy", text: "id-000000" },
      { do: "copy", text: "/s/0.jsonl" },
    ]);
    expect(browsing.bottom).toBe("Copied: /s/0.jsonl");
  });
});

const SHOWN = {
  sessionId: "id-000000",
  leafId: "c",
  entriesBefore: 2,
  entryCount: 5,
  branchCount: 1,
  damageCount: 0,
  store: "jsonl",
  entries: [
    { id: "a", type: "message", role: "user", text: "Where are\nthe pears?" },
    { id: "b", type: "message", role: "assistant", text: "", calls: [{ name: "bash", argument: "grep pear" }] },
    { id: "n", type: "session_info", text: "Fruit" },
    { id: "c", type: "message", role: "assistant", text: `${"Here. ".repeat(60)}`, label: "found" },
  ],
};

describe("the preview", () => {
  test("is asked for what is selected, and only the latest reply counts", () => {
    const browsing = ready(20, 30);
    const { place, ticket } = browsing.state.preview;
    expect(place).toEqual({ sessionPath: "/s/0.jsonl", entryId: undefined });
    expect(browsing.press("j").take()).toEqual([
      { do: "preview", place: { sessionPath: "/s/1.jsonl", entryId: undefined }, ticket: ticket + 1 },
    ]);
    browsing.happen({ what: "previewed", ticket, shown: SHOWN });
    expect(browsing.screen.join("\n")).not.toContain("pears");
    browsing.happen({ what: "previewed", ticket: ticket + 1, shown: SHOWN });
    const text = browsing.screen.join("\n");
    expect(text).toContain("first 1\nid-000001  ~/app  1 message  1 branch point  1.0 kB\n");
    expect(text).toContain("[bash: grep pear]");
    expect(text).toContain("assistant [found]");
    expect(text).not.toContain("Fruit");
  });

  test("stands beside the list on a wide screen, below it on a high one, and p decides", () => {
    const hasPane = (rows: number, columns: number, ...keys: string[]): boolean => {
      const browsing = ready(5, rows, columns).press(...keys);
      return browsing.screen.some((line) => line.includes("│") || line.startsWith("───"));
    };
    expect([hasPane(13, 80), hasPane(13, 120), hasPane(24, 80), hasPane(10, 40)]).toEqual([false, true, true, false]);
    expect([hasPane(13, 80, "p"), hasPane(13, 120, "p"), hasPane(24, 80, "p", "p")]).toEqual([true, false, true]);
  });

  test("has the hit in view, and J and K scroll", () => {
    const browsing = ready(20, 24).press("/", "pear").list(0, 1, 1).list(0, 1, 1);
    const hits = [{ sessionPath: "/s/0.jsonl", sessionId: "id", entryId: "c", snippet: "pear" }];
    browsing.happen({ what: "found", words: "pear", hits });
    const { ticket } = browsing.state.preview;
    const far = { ...SHOWN.entries[3], text: `${"line\n".repeat(200)}a pear\n${"line\n".repeat(200)}` };
    browsing.happen({ what: "previewed", ticket, shown: { ...SHOWN, entries: [...SHOWN.entries.slice(0, 3), far] } });
    expect(browsing.screen).toContain("a pear");
    browsing.press("<enter>");
    const scrolled = ready(20, 24);
    scrolled.happen({ what: "previewed", ticket: scrolled.state.preview.ticket, shown: SHOWN });
    const before = scrolled.screen;
    expect(scrolled.press("K").screen).not.toEqual(before);
    expect(scrolled.press("J").screen).toEqual(before);
  });

  test("that fails says why, and a damaged session gets its mark", () => {
    const browsing = ready(20, 30);
    const { ticket } = browsing.state.preview;
    browsing.happen({ what: "unpreviewed", ticket, message: "It is damaged.", isDamaged: true });
    expect(browsing.screen).toContain("It is damaged.");
    expect(browsing.marked?.slice(2, 3)).toBe("!");
  });

  test("tells who has the session open, and gives l the entry at which it stands", () => {
    const browsing = ready(20, 30);
    const { ticket } = browsing.state.preview;
    browsing.happen({ what: "previewed", ticket, shown: { ...SHOWN, lockedBy: { client: "pi", pid: 42 } } });
    expect(browsing.screen).toContain("Open in pi (process 42).");
    browsing.take();
    browsing.press("l").happen({ what: "looked", sessionPath: "/s/0.jsonl", facts: { damageCount: 0 } });
    browsing.press("good", "<enter>");
    expect(browsing.take()).toEqual([
      { do: "change", change: { change: "label", session: session(0), entryId: "c", label: "good" } },
    ]);
  });
});

const NODES = [
  { id: "a", parentId: null, type: "message", role: "user", preview: "one" },
  { id: "b", parentId: "a", type: "message", role: "assistant", preview: "two" },
  { id: "c", parentId: "a", type: "message", role: "assistant", preview: "other" },
  { id: "d", parentId: "c", type: "message", role: "user", preview: "next" },
];

function inTree(): Browsing {
  const browsing = ready().press("t");
  expect(browsing.take()).toEqual([{ do: "open", session: session(0) }]);
  return browsing.happen({ what: "opened", session: session(0), nodes: NODES, leafId: "c" });
}

describe("the tree", () => {
  test("shows the branches with the leaf marked", () => {
    expect(inTree().screen.slice(0, 5)).toEqual([
      expect.stringMatching(/^Name 0 .*default {2}3 of 4$/),
      "    user: one",
      "    ├─ assistant: two",
      "> * assistant: other",
      "    user: next",
    ]);
  });

  test("asks before the leaf moves, and says how to take it back", () => {
    const browsing = inTree();
    expect(browsing.press("<enter>").bottom).toBe("The conversation goes on from here already.");
    expect(browsing.press("k", "<enter>").bottom).toBe('Continue after "two"? y/n');
    expect(browsing.press("n", "<enter>", "<escape>", "<enter>", "x").take()).toEqual([]);
    const change: BrowseChange = { change: "move", session: session(0), entryId: "b", position: "at", leafId: "c" };
    expect(browsing.press("y").take()).toEqual([{ do: "change", change }]);
    browsing.done({ change, leafId: "b", notice: "Moved. u takes it back." });
    expect([browsing.marked, browsing.bottom]).toEqual(["> * assistant: two", "Moved. u takes it back."]);
  });

  test("a user message is gone back to before, and its text handed back", () => {
    const browsing = inTree().press("j", "<enter>");
    expect(browsing.bottom).toBe('Go back to before "next", and take its text along? y/n');
    const change: BrowseChange = { change: "move", session: session(0), entryId: "d", position: "before", leafId: "c" };
    expect(browsing.press("y").take()).toEqual([{ do: "change", change }]);
    browsing.done({ change, leafId: "c", text: "next, in full", notice: "" });
    expect(browsing.take()).toEqual([{ do: "copy", text: "next, in full" }]);
    expect(browsing.state.text).toBe("next, in full");
  });

  test("? begins with the keys of the screen it was pressed on", () => {
    expect(inTree().press("?").screen[1]).toBe("Tree");
    expect(ready().press("?").screen[1]).toBe("Sessions");
  });

  test("labels are set and cleared, and filters show them", () => {
    const browsing = inTree().press("l", "good", "<enter>");
    const change: BrowseChange = { change: "label", session: session(0), entryId: "c", label: "good" };
    expect(browsing.take()).toEqual([{ do: "change", change }]);
    browsing.done({ change, notice: "" });
    expect(browsing.marked).toBe("> * assistant: other [good]");
    expect(browsing.press("4").screen.slice(1, 3)).toEqual(["> * assistant: other [good]", ""]);
    expect(browsing.press("1", "l", "<ctrl+u>", "<enter>").take()).toMatchObject([{ change: { label: "" } }]);
    browsing.done({ change: { ...change, label: "" }, notice: "" });
    expect(browsing.press("4").screen[1]).toBe("  No entry passes the filter; 5 shows all.");
    expect(browsing.press("<left>", "<right>", " ", "[", "=", "z", "<enter>", "l").take()).toEqual([]);
    expect(browsing.press("f").screen[0]).toMatch(/all {2}\d of 4$/);
  });

  test("words are looked for, and n goes on", () => {
    const browsing = inTree().press("/", "assistant", "<enter>");
    expect(browsing.marked).toContain("two");
    expect(browsing.press("n").marked).toContain("other");
    expect(browsing.press("N").marked).toContain("two");
    expect(browsing.press("/", "nowhere", "<enter>").bottom).toBe("Nothing here has nowhere.");
    expect(browsing.press("/", "q").screen[0]).toMatch(/^Search: q_/);
    expect(browsing.press("<escape>").state.tree?.words).toBe("");
  });

  test("branches fold, and [ and ] go from one to the next", () => {
    const browsing = inTree().press("[");
    expect(browsing.marked).toContain("two");
    expect(browsing.press("[").marked).toContain("user: one");
    expect(browsing.press("[").bottom).toBe("There is no branch further up.");
    browsing.press("=");
    expect(browsing.marked).toContain("other");
    const long = [...NODES, ...Array.from({ length: 100 }, (_, i) => chained(i))];
    browsing.happen({ what: "opened", session: session(0), nodes: long, leafId: "c" });
    expect(browsing.state.tree?.branches.rows).toBeLessThan(10);
    browsing.press("g", "j", "j", "<right>");
    expect(browsing.state.tree?.branches.rows).toBeGreaterThan(90);
    expect(browsing.press("<left>").state.tree?.branches.rows).toBeLessThan(10);
    browsing.press("z");
    expect(browsing.state.tree?.branches.rows).toBe(104);
  });

  test("Esc leads back to the list as it was, q ends", () => {
    expect(inTree().press("<escape>").marked).toContain("Name 0");
    expect(inTree().press("q").take()).toEqual([{ do: "end", session: null }]);
  });

  test("that cannot be opened leaves the list", () => {
    const browsing = ready().press("t").happen({ what: "failed", isList: false, message: "It is gone." });
    expect([browsing.state.tree, browsing.bottom]).toEqual([undefined, "It is gone."]);
  });

  test("is read again when something in it was taken back", () => {
    const browsing = inTree().press("u");
    browsing.take();
    const undone = { kind: "branch", sessionPath: "/s/0.jsonl" };
    browsing.done({ change: { change: "undo" }, notice: "Taken back.", undone });
    expect(browsing.take().map((effect) => effect.do)).toEqual(["list", "open"]);
  });
});

function chained(i: number): Json {
  return { id: `n${i}`, parentId: i === 0 ? "b" : `n${i - 1}`, type: "message", role: "assistant", preview: "x" };
}

test("? shows the keys, all of them, and other keys lead back", () => {
  const browsing = ready(5, 24).press("?");
  expect(browsing.screen[0]).toBe("Keys");
  const seen = new Set(browsing.screen);
  for (let i = 0; i < 60; i++) for (const line of browsing.press("j").screen) seen.add(line);
  for (const word of ["Sessions", "Changes", "Tree", "Marks", "Elsewhere"]) expect(seen).toContain(word);
  expect(browsing.press("<escape>").marked).toContain("Name 0");
});

const KEYS = [
  ...["up", "down", "left", "right", "pageUp", "pageDown", "home", "end", "tab", "escape", "backspace", "delete"],
  ...["ctrl+d", "ctrl+u", "ctrl+w", "ctrl+r", "enter", "enter"],
].map((name) => `<${name}>`);

acrossTiers(test, [
  { count: 1, presses: 25 },
  { count: 4, presses: 60 },
])(
  "whatever is pressed and answered, the screen is full, no line is wider, and nothing in it acts ($count)",
  ({ count, presses }) => {
    forSeeds(count, (random) => {
      const size = (): [number, number] => [1 + random.int(40), 1 + random.int(200)];
      const browsing = new Browsing(...size());
      for (let i = 0; i < presses; i++) {
        for (const effect of browsing.asked.splice(0)) answer(browsing, effect, random);
        if (random.chance(0.05)) {
          const [rows, columns] = size();
          browsing.happen({ what: "resized", rows, columns });
        }
        browsing.press(
          random.chance(0.3) ? random.pick(KEYS) : random.pick([..."jkgGyYnNqtlraAdDfesmpJKuUz[]=?/12345 日😀"]),
        );
        const { rows, columns } = browsing.state;
        for (const paint of [plain, coloured]) {
          const lines = view(browsing.state, { ...PAGE, width: columns, paint }).map((line) =>
            // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are what is taken out
            line.replace(/\u001b\[\d+m/g, ""),
          );
          expect(lines.length).toBeLessThanOrEqual(Math.max(rows, 4));
          expect(lines.filter((line) => widthOf(line) > columns || /[\p{Cc}\u202e]/u.test(line))).toEqual([]);
        }
      }
    });
  },
);

const NASTY = "\u001b[2Jno\u202e\0";

function answer(browsing: Browsing, effect: BrowseEffect, random: Random): void {
  const name = (): string | null => random.pick([null, "日本語 ".repeat(20), NASTY, "plain", "e\u0301🏳️‍🌈".repeat(9)]);
  if (random.chance(0.1)) {
    const isList = effect.do === "list";
    if (isList || effect.do === "open" || effect.do === "change")
      browsing.happen({ what: "failed", isList, message: NASTY });
  }
  switch (effect.do) {
    case "list": {
      const total = effect.query.words === "" ? 250 : 30;
      const from = Number(effect.cursor?.split(" ")[1] ?? 0);
      const of = sessions(from, Math.min(from + effect.limit, total)).map((one) => ({
        ...one,
        name: name(),
        cost: random.pick([undefined, 1.5]),
        parentSession: random.chance(0.3) ? `/s/${random.int(500)}.jsonl` : null,
        ...(effect.query.shelf === "trash" ? { itemPath: `/t${one.sessionPath}` } : {}),
      }));
      browsing.listed(of, total, from + of.length < total ? `after ${from + of.length}` : undefined);
      break;
    }
    case "search": {
      const hits = Array.from({ length: random.int(20) }, (_, i) => ({
        sessionPath: `/s/${random.int(600)}.jsonl`,
        sessionId: NASTY,
        entryId: `e${i}`,
        snippet: NASTY,
      }));
      browsing.happen({ what: "found", words: effect.words, hits });
      break;
    }
    case "preview": {
      const { ticket } = effect;
      const entries = SHOWN.entries.map((entry) => ({
        ...entry,
        text: random.pick([entry.text, NASTY, "日本".repeat(99)]),
      }));
      if (random.chance(0.2)) browsing.happen({ what: "unpreviewed", ticket, message: NASTY, isDamaged: true });
      else browsing.happen({ what: "previewed", ticket, shown: { ...SHOWN, entries } });
      break;
    }
    case "look":
      if (random.chance(0.5))
        browsing.happen({ what: "looked", sessionPath: effect.sessionPath, facts: { damageCount: 1 } });
      break;
    case "open": {
      const nodes = NODES.map((node) => ({ ...node, preview: random.pick([node.preview, NASTY]) }));
      browsing.happen({ what: "opened", session: effect.session, nodes, leafId: random.pick(["a", "b", null]) });
      break;
    }
    case "change": {
      const undone = random.pick([undefined, { kind: "branch", sessionPath: "/s/0.jsonl" }]);
      const leafId = random.pick([undefined, "a", null]);
      browsing.done({
        change: effect.change,
        notice: NASTY,
        leafId,
        undone,
        made: random.pick([undefined, "/s/3.jsonl"]),
      });
      break;
    }
  }
}

test("a narrow screen leaves out other keys than ?", () => {
  expect(ready(20, 13, 40).bottom).toBe("Enter opens  / filter  ? help");
  expect(ready(20, 13, 80).bottom).toMatch(/^Enter opens {2}\/ filter {2}Tab .* {2}t tree {2}q quit {2}\? help/);
});
