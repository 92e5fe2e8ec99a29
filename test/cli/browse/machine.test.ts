/** The state machine of browse: keys and answers in, screens and requests out, without terminal and server. */

import { describe, expect, test } from "vitest";
import { begin, step } from "../../../src/cli/browse/machine.ts";
import type { BrowseChange, BrowseEffect, BrowseEvent, BrowseState } from "../../../src/cli/browse/state.ts";
import { renderScreen } from "../../../src/cli/browse/view.ts";
import type { Key, KeyName } from "../../../src/cli/terminal/keys.ts";
import { coloured, type OutputStyle, plain } from "../../../src/cli/terminal/page.ts";
import { forSeeds, type Random, range } from "../../support/random.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { expectTame } from "../../support/verbs.ts";

const PAGE: OutputStyle = { width: 80, paint: plain, now: Date.UTC(2026, 0, 25), home: "/home/me", isTerminal: true };
const CWD = "/home/me/app";

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

const sessions = (from: number, to: number): Json[] => range(from, to).map((n) => session(n));

/** Returns a place that a search found; from number 50 on, sessions are not in the list. */
function hit(n: number, entryId: string): Json {
  const more = n < 50 ? {} : { name: "From elsewhere", cwd: "/x" };
  return { sessionPath: `/s/${n}.jsonl`, sessionId: `id-${n}`, entryId, snippet: `a pear in ${entryId}`, ...more };
}

/** Returns a request in short: sessions by their numbers, and of a list only the unusual members. */
function inShort(effect: BrowseEffect): string {
  const n = (path: string): string => /(\d+)\.(?:jsonl|v2)$/.exec(path)?.[1] ?? path;
  const joined = (...words: unknown[]): string => words.filter((word) => word !== undefined && word !== "").join(" ");
  switch (effect.do) {
    case "list": {
      const { shelf, cwd, words, sort, isNamed, agents } = effect.query;
      const place = joined(shelf === "sessions" ? "" : shelf, cwd === CWD ? "" : "all folders");
      const which = joined(words && `"${words}"`, sort === "modified" ? "" : sort, isNamed ? "named" : "", agents);
      const piece = joined(effect.cursor, effect.limit === 200 ? "" : effect.limit, effect.isQuick ? "quick" : "");
      return joined("list", place, which, piece);
    }
    case "search":
      return joined("search", effect.words, effect.cwd === CWD ? "" : "all folders", effect.cursor);
    case "preview":
      return joined("preview", n(effect.place.sessionPath), effect.place.entryId, `#${effect.ticket}`);
    case "change": {
      const {
        change,
        session,
        others = [],
        ...rest
      } = effect.change as BrowseChange & { session?: Json; others?: Json };
      const paths = [...(session ? [session] : []), ...others].map(({ sessionPath }) => n(sessionPath));
      return joined(change, ...paths, ...Object.values(rest).map((value) => value || "''"));
    }
    case "open":
      return joined("open", n(effect.session.sessionPath));
    case "end":
      return joined("end", effect.session ? n(effect.session.sessionPath) : "");
    case "copy":
      return joined("copy", effect.text);
    case "look":
      return joined("look", effect.sessionPath);
  }
}

/** A pattern of a text with `*` for any text. */
const globOf = (text: string): RegExp =>
  new RegExp(
    `^${text
      .split("*")
      .map((part) => part.replace(/[\\^$.+?()[\]{}|]/g, "\\$&"))
      .join(".*")}$`,
  );

/** A browser, and a server that answers its effects at the test's word. */
class Browsing {
  state: BrowseState;
  readonly asked: BrowseEffect[];
  private change: BrowseChange | undefined;

  constructor(rows = 13, columns = 80, words = "") {
    const { state, effects } = begin(rows, columns, CWD, words);
    this.state = state;
    this.asked = [...effects];
  }

  happen(event: BrowseEvent): this {
    const { state, effects } = step(this.state, event);
    this.state = state;
    this.asked.push(...effects);
    for (const effect of effects) if (effect.do === "change") this.change = effect.change;
    return this;
  }

  /** Keys by their names, or the characters of a text. */
  press(...keys: string[]): this {
    for (const key of keys) {
      const name = /^<(.+)>$/.exec(key)?.[1];
      const pressed: Key[] = name ? [{ name: name as KeyName }] : Array.from(key, (text) => ({ text }));
      for (const one of pressed) this.happen({ what: "key", key: one });
    }
    return this;
  }

  /** Returns the requests since the last look, except looks, which come by themselves. */
  take(): BrowseEffect[] {
    return this.asked.splice(0).filter((effect) => effect.do !== "look");
  }

  listed(of: Json[], total = of.length, cursor?: string): this {
    return this.happen({ what: "listed", sessions: of, total, cursor });
  }

  /**
   * Answers as a server: `0-3` or `0-200/250` with sessions; `done: notice` to the last change; `failed: why`; `held 1`;
   * `found words: 4a` with hits, each in a session and at an entry. What else the answer has stands behind it as JSON.
   */
  answer(text: string): void {
    const [, what, said = "", json = "{}"] = /^([^:{]*)(?:: ?([^{]*))?(\{.*)?$/.exec(text) as RegExpExecArray;
    const more = JSON.parse(json);
    const [, from, to, total] = /^(\d+)-(\d+)(?:\/(\d+))?$/.exec(what) ?? [];
    const [kind, word] = what.split(" ");
    if (what === "") this.listed([]);
    else if (from) {
      const of = sessions(Number(from), Number(to));
      this.listed(of, Number(total ?? of.length), Number(to) < Number(total) ? `after ${to}` : undefined);
    } else if (kind === "done")
      this.happen({ what: "done", outcome: { change: this.change as BrowseChange, notice: said.trim(), ...more } });
    else if (kind === "failed") this.happen({ what: "failed", isList: word === "list", message: said });
    else if (kind === "found") {
      const hits = said
        .trim()
        .split(" ")
        .map((place) => hit(Number.parseInt(place, 10), place.replace(/\d+/, "")));
      this.happen({ what: "found", words: word, hits, ...more });
    } else {
      const lockedBy = { client: "an editor", pid: 7 };
      const facts = { damageCount: 0, ...(kind === "held" ? { lockedBy } : {}) };
      this.happen({ what: "looked", sessionPath: `/s/${word}.jsonl`, facts });
    }
  }

  /**
   * Walks through a script, a step a line: keys and, in brackets, answers; behind each `|` an expectation: `=` the
   * requests (none where it is left out), `_` the last line, `>` the end of the marked one, `2:` another line of the
   * screen, `@` the number of the selected row and `#` of how many.
   */
  walk(script: string): this {
    for (const line of script.trim().split("\n")) {
      const [acts, ...looks] = line.trim().split(/(?:^| +)\| /);
      for (const act of acts.match(/\[(?:[^\][]|\[[^\]]*\])*\]|'[^']*'|[^\s]+/g) ?? []) {
        if (/^\[.*\]$/.test(act)) this.answer(act.slice(1, -1));
        else this.press(act.replace(/^'(.*)'$/, "$1").replace("<space>", " "));
      }
      const done: Record<string, unknown> = { "=": this.take().map(inShort).join("; ") };
      const expected: Record<string, unknown> = { "=": "" };
      for (const look of looks) {
        const [, sign, text] = /^([=_>@#]|\d+:) ?(.*)$/.exec(look) as RegExpExecArray;
        expected[sign] = sign === "=" ? text : expect.stringMatching(globOf(sign === ">" ? `*${text}` : text));
        if (sign !== "=") done[sign] = this.seen(sign);
      }
      expect({ line, ...done }).toEqual({ line, ...expected });
    }
    return this;
  }

  private seen(sign: string): string | undefined {
    const { list, tree } = this.state;
    if (sign === "_") return this.screen.at(-1);
    if (sign === ">") return this.marked;
    if (sign === "@") return String((tree ?? list).selected);
    if (sign === "#") return String(tree?.branches.rows ?? list.rows.length);
    return this.screen[Number(sign.slice(0, -1))];
  }

  get screen(): string[] {
    return renderScreen(this.state, { ...PAGE, width: this.state.columns }).map((line) => line.trimEnd());
  }

  get marked(): string | undefined {
    return this.screen.find((line) => line.startsWith("> "));
  }
}

/** A browser whose list has come; a low one has no preview. */
function ready(total = 20, rows = 13, columns = 80): Browsing {
  const browsing = new Browsing(rows, columns);
  browsing.answer(`0-${Math.min(total, rows)}`);
  browsing.answer(`0-${Math.min(total, 200)}/${total}`);
  browsing.take();
  return browsing;
}

const walk = (script: string): Browsing => ready().walk(script);

/** Declares tests that walk through a script, by default from a list of twenty sessions. */
function testScripts(scripts: Readonly<Record<string, string>>, start = walk): void {
  test.each(Object.entries(scripts))("%s", (_title, script) => void start(script));
}

describe("the list", () => {
  test("begins with what the directory's folder has at once, and goes on with all of it", () => {
    const browsing = new Browsing().walk(`
      | = list 13 quick | _ Reading the sessions…
      [0-3] | = list | 1:      AGE  MSGS  NAME OR FIRST MESSAGE | 2: >     1d     0  Name 0 | 4:       1d     2  first 2 | 5:
      | 0: Sessions of ~/app*                                                  1 of 3
      j     | > first 1`);
    browsing.listed([session(7), ...sessions(0, 3)]).walk("| > first 1 | 0: *3 of 4");
  });

  test("of a directory without any shows those of all", () => {
    new Browsing().walk(`
      | = list 13 quick
      [] | = list
      [] | = list all folders | _ This folder has no sessions; these are those of all folders.
      [] | 2:   There are no sessions.
      <enter> t d y r e`);
  });

  test("moves by arrows, letters, pages, and to its ends; the mark stays on the screen", () => {
    const steps = "<down> 1 j 2 <up> 1 k 0 k 0 <pageDown> 10 <pageDown> 19 <pageUp> 9 <end> 19 j 19 <home> 0 G 19 g 0";
    const name = (n: string) => (Number(n) % 3 === 0 ? `Name ${n}` : `first ${n}`);
    walk(steps.replace(/(\S+) (\d+) ?/g, (_, key, n) => `${key} | @ ${n} | > ${name(n)}\n`));
  });

  test("ends with the session on Enter, with nothing on q and Ctrl+C", () => {
    walk("j <enter> | = end 1");
    for (const key of ["q", "<ctrl+c>"]) expect(ready().press(key).take()).toEqual([{ do: "end", session: null }]);
  });

  test("of ten thousand is fetched as it is walked, and in long pieces for its end, which a move gives up", () => {
    const browsing = ready(10_000);
    for (let i = 0; i < 18; i++) browsing.press("<pageDown>");
    browsing.walk(`
      | = list after 200
      <pageDown> [200-400/10000] | @ 190
      <end> | = list after 400 2000`);
    for (let from = 400; from < 8400; from += 2000)
      browsing.walk(`[${from}-${from + 2000}/10000] | = list after ${from + 2000} 2000`);
    browsing.walk("[8400-10000/10000] | @ 9999 | # 10000 | 0: *10,000 of 10,000");
    ready(10_000).walk(`
      <end> <home> | = list after 200 2000
      [200-2200/10000] | @ 0`);
  });

  test("has forks under their originals, wherever those would stand, and each session once", () => {
    const fork = (n: number, of: number): Json => session(n, { parentSession: `/s/${of}.jsonl` });
    const browsing = new Browsing().listed([]);
    browsing.listed([fork(5, 2), session(1), fork(4, 5), session(2), fork(7, 8), fork(8, 7), fork(9, 99)]);
    const shown = ["first 2", "└ first 5", "  └ first 4", "first 1", "first 8", "└ first 7", "Name 9"];
    expect(browsing.screen.slice(2, 9).map((line) => line.slice(16))).toEqual(shown);
    const other = browsing
      .press("s", "s")
      .listed([])
      .listed([fork(5, 2), session(2)]);
    expect(other.screen.slice(2, 4).map((line) => line.slice(-7))).toEqual(["first 5", "first 2"]);
    const lone = session(6, { parentSession: "/gone.jsonl", forkedFrom: { sessionId: "x", name: "The first try" } });
    new Browsing().listed([lone]).walk("| = list 13 quick; list | > Name 6 (fork of The first try)");
  });

  testScripts({
    "is of other sessions by Tab, m, s, O, A and D; Esc leads back": `
      <tab>    | = list all folders
      [0-5]    | 0: Sessions of all folders* | 1: *DIRECTORY*
      <tab>    | = list
      [0-5] m  | = list named
      [0-5] m  | = list
      [0-5] s  | = list created
      [0-5] s  | = list size
      [0-5] s  | = list cost
      [0-5] s  | = list
      [0-5] O  | = list all
      [0-5]    | 0: *and those of other agents*
      O        | = list
      [0-5] A  | = list archive
      [0-5]    | 0: Archive*
      A        | = list
      [0-5] D  | = list trash
      [0-5] <escape> | = list
      [0-5] <escape>`,
    "that cannot be had so says why, and is asked for anew with the next key": `
      s | = list created
      s
      [failed list: No.] | = list size | _ No.
      [0-20] | 1: *SIZE*`,
    "of another place is not mixed with what was there, and one that cannot be had leads back": `
      D | = list trash | 2:
      d y <enter> r a
      [failed list: There is no trash.] | = list | _ There is no trash.
      [0-20] | 0: Sessions of ~*`,
  });

  test("marks what is open elsewhere, damaged, not to be written, and V2, as it is looked at", () => {
    const browsing = new Browsing().listed([]);
    browsing.listed([session(0), session(1), session(2), session(3, { sessionPath: "/s/3.v2" })]);
    for (const facts of [{ lockedBy: { client: "pi", pid: 7 } }, { damageCount: 2 }, { readOnly: "read_only" }, {}]) {
      const looks = browsing.asked.splice(0).filter((effect) => effect.do === "look");
      expect(looks).toHaveLength(1);
      browsing.happen({ what: "looked", sessionPath: looks[0].sessionPath, facts: { damageCount: 0, ...facts } });
    }
    expect(browsing.screen.slice(2, 6).map((line) => line.slice(2, 4))).toEqual(["* ", "! ", "# ", " 2"]);
    expect(browsing.asked).toEqual([]);
  });
});

describe("the filter", () => {
  testScripts({
    "asks with each character, one request at a time, and heeds only what fits": `
      / q u x <backspace> | = list "q"; search qu; search qux; search qu | 0: Filter: qu_  Sessions*
      [5-6]   | = list "qu" | # 20
      [7-9] <down> | > first 8
      <enter> | = end 8`,
    "finds what was said too: after the names, each session once, with the words around": `
      / pear | = list "p"; search pe; search pea; search pear
      [1-2] [1-2] [found pea: 9old] | = list "pear" | # 1
      [found pear: 4a 1b 4c 77d] | 2: *first 1  a pear in b | 3: *first 4  a pear in a
      | 4: *From elsewhere  a pear in d | 5: | 0: *1 of 3
      [found pear: 4a {"cursor":"next"}] | = search pear next
      [found pear: 6f {"from":"next"}] | 2: *first 1* | 3: *first 4* | 4: *Name 6* | 5:
      <escape> | = list | 0: Sessions of*`,
    "is cleared by Esc; that nothing fits is said": `
      / z | = list "z"
      [] [] | 2:   No session matches.
      <escape> | = list
      [0-20] j | @ 1
      / <escape> <escape>`,
    "takes no key but for the list that it is meant for": `
      / qu <down> a <enter> | = list "q"; search qu
      [5-6] | = list "qu" | _ Reading the sessions…
      [7-9] | = archive 8`,
    "does nothing meant for a list that did not come": `
      / pe <enter> d y | = list "p"; search pe
      [] | = list "pe"
      [1-2] | = end 1`,
  });

  test("begins with words, and with the sessions of all folders that fit them", () => {
    new Browsing(13, 80, "pear").walk(`
      <enter> | = list all folders "pear"; search pear all folders | 0: Filter: pear  Sessions of all folders
      [] | _ Reading the sessions…
      [found pear: 77d {"hits":[{"sessionPath":"/s/77.jsonl","sessionId":"x","entryId":"d","firstMessage":"Fruit"}]}] | = end 77`);
  });

  test("loses a word by Ctrl+W, and all by Ctrl+U", () => {
    const browsing = ready().press("/", "one two", "<ctrl+w>");
    expect(browsing.state.list.query.words).toBe("one ");
    expect(browsing.press("<ctrl+u>").state.list.query.words).toBe("");
  });

  test("n and N go through the places in one session", () => {
    const browsing = ready(20, 30, 120).press("/", "pear");
    const find = (): void => {
      for (const answer of ["1-2", "1-2", "found pear: 1a 1b 1c"]) browsing.answer(answer);
    };
    const entry = (): unknown => browsing.state.preview.place?.entryId;
    find();
    expect(entry()).toBe("a");
    // While words are typed, letters are words; the arrows lead to the list, where they are keys.
    expect(browsing.press("n").state.list.query.words).toBe("pearn");
    browsing.press("<backspace>");
    find();
    browsing.press("<down>").take();
    const places = [..."nnnNN"].map((key) => `${browsing.press(key).screen.at(-1)} ${entry()}`);
    expect(places).toEqual([2, 3, 1, 3, 2].map((place) => `Place ${place} of 3. ${" abc"[place]}`));
    expect(browsing.state.list.query.words).toBe("pear");
    expect(browsing.press("/", "s").state.list.query.words).toBe("pears");
  });

  test("keys wait for what was said where no name fits, and for the list of another place", () => {
    const said = walk(`
      / pear <enter> | = list "p"; search pe; search pea; search pear
      [] | = list "pear"
      []`);
    said.happen({ what: "unfound", message: "No." }).walk(`
      r <enter> | = list "pearr"; search pearr
      []
      [found pearr: 4a] | = end 4`);
    for (const key of ["<enter>", "a", "d", "f", "j", "t"])
      walk(`
        <tab> ${key} | = list all folders
        <escape> [3-5] | @ 0
        s ${key} | = list all folders created
        [failed list: No.] | _ No.`);
    walk("m <enter> <ctrl+c> | = list named; end");
  });
});

describe("changes", () => {
  const SAID = "Open in an editor (process 7): close it there first.";

  testScripts({
    "a deletion is asked about; n and Esc keep, y deletes, and other keys do nothing": `
      j d | _ Delete "first 1", 1 message, 1.0 kB? y/n
      x <enter> <down> q
      n | _ Nothing was changed.
      <ctrl+d> <escape> | _ *
      <delete> y | = delete 1
      <enter> <tab> j d
      [done: It is in the trash.] | _ It is in the trash. | > first 2 | # 19 | @ 1 | 0: *2 of 19`,
    "a name is typed, and nothing is renamed by Esc or an empty one": `
      j r 'New name' | _ Name: New name_
      <enter> | = rename 1 New name
      [done: ok] | > New name
      r <ctrl+u> <enter>
      r x <escape>
      r | _ Name: New name_`,
    "a question goes away when the look behind it finds another process; to write a copy takes no lock": `
      j d [held 2] | _ Delete "first 1"*
      [held 1] | _ ${SAID}
      y | = copy id-000001
      e [held 1] | _ Export to file: *`,
    "what was done elsewhere is taken back only after a question": `
      u | = undo
      [done: {"question":{"ask":"yes","question":"It was done elsewhere?","wanted":{"change":"undo","operationId":"op"}}}] | _ It was done elsewhere? y/n
      y | = undo op`,
    "in the archive a brings back": `
      A | = list archive
      [0-2] a | = unarchive 0`,
    "y copies the id and Y the path, and the line shows it": `
      y Y | = copy id-000000; copy /s/0.jsonl | _ Copied: /s/0.jsonl`,
  });

  testScripts({
    "several marked are archived after a question, and unmarked ones stay": `
      <space> j <space> | 0: *2 marked  4 of 20 | > Name 3 | 2: *+*Name 0 | 4: *+*first 2
      a | _ Archive 2 sessions: "Name 0", "first 2"? y/n
      n | _ Nothing was changed.
      a y | = archive 0 2
      [done: 2 sessions are in the archive. {"moved":["/s/0.jsonl","/s/2.jsonl"]}] | # 18 | > Name 3 | 0: *~/app   *
      a | = archive 3`,
    "those that were not moved stay marked": `
      <space> <space> d | _ Delete 2 sessions: "Name 0", "first 1"? y/n
      y | = delete 0 1
      [done: 1 session. {"moved":["/s/0.jsonl"]}] d | _ Delete "first 1", 1 message, 1.0 kB? y/n`,
    "marks stay while the list is filtered; Esc ends the filter, then the marks, and another shelf has none": `
      <space> / q | = list "q"
      [7-9] <down> <space> | 0: *2 marked* | # 2
      <escape> | = list | 0: *2 marked*
      [0-20] G k <space> | 0: *3 marked* | @ 19
      k <space> | 0: *2 marked*
      <escape> | 0: Sessions of ~/app *
      <space> A | = list archive
      [0-5] a | = unarchive 0`,
    "keys for marking wait for the list, too": `
      <tab> <space> | = list all folders
      [5-9] | 0: *1 marked* | 2: *+*first 5*`,
  });

  test("that fail say why, and all stays; of the last one mark the one before it", () => {
    const failed: BrowseEvent = { what: "failed", isList: false, message: "Another process\nwrites to it." };
    walk("d y | = delete 0")
      .happen(failed)
      .walk(`
      | _ Another process writes to it. | # 20
      j | > first 1`);
    ready(3).walk(`
      <end> a | = archive 2
      [done: ] | > first 1`);
  });

  test.each([
    ["r", "Name: *"],
    ["d", 'Delete "first 1"*'],
  ])("what another process has open, %s says before it asks", (key, question) => {
    const browsing = walk("j [held 1] | > first 1").press(key);
    expect(browsing.asked.at(-1)).toEqual({ do: "look", sessionPath: "/s/1.jsonl" });
    expect(browsing.screen.at(-1)).not.toMatch(globOf(question));
    // It was closed since: the look shows it, and the question comes.
    browsing.walk(`
      [held 1] | _ ${SAID}
      y | = copy id-000001
      ${key} [free 1] | _ ${question}`);
  });

  test("export, fork, undo and redo", () => {
    const browsing = walk(`
      e | _ Export to file: name-0.md_
      <enter> | = export 0 name-0.md
      [failed: ] f | = fork 0
      [done: {"made":"/s/50.jsonl"}] | = list`);
    browsing.listed([...sessions(0, 3), session(50)]).walk("| > first 50");
    for (const [key, change] of Object.entries({ u: "undo", U: "redo", "<ctrl+r>": "redo" }))
      browsing.walk(`
        ${key} | = ${change}
        [done: Taken back.] | = list | _ Taken back.
        [0-3]`);
  });

  // The trash of this machine has the first one, only the fleet has the other.
  test.each(["/t/3.jsonl", null])(
    "in the trash r restores, and nothing there can be opened or changed (%s)",
    (itemPath) => {
      const browsing = ready().press("D");
      browsing.listed([session(3, { itemPath })]).take();
      for (const key of ["<enter>", "a", "d", "f", "e", "l"]) browsing.walk(`${key} | _ *r to restore it*`);
      browsing.walk("r | = restore 3");
    },
  );
});

const SHOWN = {
  ...{
    sessionId: "id-000000",
    leafId: "c",
    lastEntryId: "c",
    entriesBefore: 2,
    entryCount: 5,
    branchCount: 1,
    damageCount: 0,
  },
  store: "jsonl",
  entries: [
    { id: "a", type: "message", role: "user", text: "Where are\nthe pears?" },
    { id: "b", type: "message", role: "assistant", text: "", calls: [{ name: "bash", argument: "grep pear" }] },
    { id: "n", type: "session_info", text: "Fruit" },
    { id: "c", type: "message", role: "assistant", text: `${"Here. ".repeat(60)}`, label: "found" },
  ],
};

describe("the preview", () => {
  const previewed = (browsing: Browsing, more: object = {}, ticket = browsing.state.preview.ticket): Browsing =>
    browsing.happen({ what: "previewed", ticket, shown: { ...SHOWN, ...more } });

  test("is asked for what is selected, and only the latest reply counts", () => {
    const browsing = ready(20, 30);
    const { place, ticket } = browsing.state.preview;
    expect(place).toEqual({ sessionPath: "/s/0.jsonl", entryId: undefined });
    browsing.walk(`j | = preview 1 #${ticket + 1}`);
    expect(previewed(browsing, {}, ticket).screen.join("\n")).not.toContain("pears");
    const text = previewed(browsing).screen.join("\n");
    expect(text).toContain("first 1\nid-000001  ~/app  1 message  1 branch point  1.0 kB\n");
    expect(text).toContain("[bash: grep pear]");
    expect(text).toContain("assistant [found]");
    expect(text).not.toContain("Fruit");
  });

  test.each([
    [13, 80, "", false],
    [13, 120, "", true],
    [24, 80, "", true],
    [13, 80, "p", true],
    [13, 120, "p", false],
    [24, 80, "pp", true],
  ])("stands beside a list that is wide, below a high one, or where p says: %i, %i, %j", (rows, columns, keys, has) => {
    const { screen } = ready(5, rows, columns).press(keys);
    expect(screen.some((line) => line.includes("│") || line.startsWith("───"))).toBe(has);
  });

  test("has the hit in view, and J and K scroll", () => {
    const browsing = ready(20, 24).press("/", "pear");
    for (const answer of ["0-1", "0-1", "found pear: 0c"]) browsing.answer(answer);
    const far = { ...SHOWN.entries[3], text: `${"line\n".repeat(200)}a pear\n${"line\n".repeat(200)}` };
    expect(previewed(browsing, { entries: [...SHOWN.entries.slice(0, 3), far] }).screen).toContain("a pear");
    const scrolled = previewed(ready(20, 24));
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
    const browsing = previewed(ready(20, 30), { lockedBy: { client: "pi", pid: 42 } });
    expect(browsing.screen).toContain("Open in pi (process 42).");
    browsing.walk("l [free 0] good <enter> | = label 0 c good");
  });
});

const NODES = [
  { id: "a", parentId: null, type: "message", role: "user", preview: "one" },
  { id: "b", parentId: "a", type: "message", role: "assistant", preview: "two" },
  { id: "c", parentId: "a", type: "message", role: "assistant", preview: "other" },
  { id: "d", parentId: "c", type: "message", role: "user", preview: "next" },
];

const opened = (nodes: Json[] = NODES): BrowseEvent => ({ what: "opened", session: session(0), nodes, leafId: "c" });
const inTree = (script: string): Browsing => walk("t | = open 0").happen(opened()).walk(script);

describe("the tree", () => {
  const scripts = {
    "shows the branches with the leaf marked": `
      | 0: Name 0 *default  3 of 4 | 1:     user: one | 2:     ├─ assistant: two | 3: > * assistant: other | 4:     user: next`,
    "asks before the leaf moves, and says how to take it back": `
      <enter> | _ The conversation goes on from here already.
      k <enter> | _ Continue after "two"? y/n
      n <enter> <escape> <enter> x
      y | = move 0 b at c
      [done: Moved. u takes it back. {"leafId":"b"}] | > > * assistant: two | _ Moved. u takes it back.`,
    "goes back to before what a user said, and hands its text back": `
      j <enter> | _ Go back to before "next", and take its text along? y/n
      y | = move 0 d before c
      [done: {"leafId":"c","text":"next, in full"}] | = copy next, in full`,
    "sets and clears labels, and filters show them": `
      l good <enter> | = label 0 c good
      [done: ] | > > * assistant: other [good]
      4 | 1: > * assistant: other [good] | 2:
      1 l <ctrl+u> <enter> | = label 0 c ''
      [done: ] 4 | 1:   No entry passes the filter; 5 shows all.
      <left> <right> <space> [ = z <enter> l
      f | 0: *all  * of 4`,
    "looks for words, and n goes on": `
      / assistant <enter> | > two
      n | > other
      N | > two
      / nowhere <enter> | _ No entry in this filter has nowhere. f changes the filter.
      / q | 0: Search: q_*
      <escape> | 0: Name 0*`,
    "leads back to the list as it was by Esc": "<escape> | > Name 0",
    "copies the path to an entry by F, from before what a user said": `
      k F | = fork 0 b at
      [done: It is copied. {"made":"/s/50.jsonl"}] | = list | _ It is copied. | > two
      [0-3] j j F | = fork 0 d before
      [done: {"made":"/s/51.jsonl","text":"next"}] | = copy next; list`,
    "ends by q": "q | = end",
    "is read again when something in it was taken back": `
      u | = undo
      [done: {"leafId":"c","undone":{"kind":"branch","sessionPath":"/s/0.jsonl"}}] | = list; open 0`,
  };
  testScripts(scripts, inTree);

  test("hands a text back to what comes after it", () => {
    const browsing = inTree('j <enter> y [done: {"leafId":"c","text":"next"}] | = move 0 d before c; copy next');
    expect(browsing.state.text).toBe("next");
  });

  test("folds branches, and [ and ] go from one to the next", () => {
    const browsing = inTree(`
      [ | > two
      [ | > user: one
      [ | _ There is no branch further up.
      = | > other`);
    const chained = range(0, 100).map((i) => ({ ...NODES[1], id: `n${i}`, parentId: i === 0 ? "b" : `n${i - 1}` }));
    browsing.happen(opened([...NODES, ...chained]));
    const rows = (...keys: string[]): number => browsing.press(...keys).state.tree?.branches.rows as number;
    expect(rows()).toBeLessThan(10);
    expect(rows("g", "j", "j", "<right>")).toBeGreaterThan(90);
    expect(rows("<left>")).toBeLessThan(10);
    expect(rows("z")).toBe(104);
  });

  test("that cannot be opened leaves the list", () => {
    expect(ready().press("t").walk("[failed: It is gone.] | = open 0 | _ It is gone.").state.tree).toBe(undefined);
  });
});

test("? shows the keys, first those of the screen, and other keys lead back; a narrow screen leaves out others than ?", () => {
  const browsing = ready(5, 24).press("?");
  const seen = new Set(browsing.walk("| 0: Keys | 1: Sessions").screen);
  for (let i = 0; i < 60; i++) for (const line of browsing.press("j").screen) seen.add(line);
  for (const word of ["Sessions", "Changes", "Tree", "Marks", "Elsewhere"]) expect(seen).toContain(word);
  browsing.walk("<escape> | > Name 0");
  expect(ready(5, 200).press("?").screen).toHaveLength(200);
  inTree("? | 1: Tree");
  ready(20, 13, 40).walk("| _ Enter opens  / filter  ? help");
  walk("| _ Enter opens  / filter  Tab *  t tree  q quit  ? help*");
});

const KEYS = [
  ...["up", "down", "left", "right", "pageUp", "pageDown", "home", "end", "tab", "escape", "backspace", "delete"],
  ...["ctrl+d", "ctrl+u", "ctrl+w", "ctrl+r", "enter", "enter"],
].map((name) => `<${name}>`);

const NASTY = "\u001b[2Jno\u202e\0";

/** Answers a request with anything that may come. */
function answerTo(effect: BrowseEffect, random: Random): BrowseEvent | undefined {
  if (random.chance(0.1) && ["list", "open", "change"].includes(effect.do))
    return { what: "failed", isList: effect.do === "list", message: NASTY };
  switch (effect.do) {
    case "list": {
      const total = effect.query.words === "" ? 250 : 30;
      const from = Number(effect.cursor?.split(" ")[1] ?? 0);
      const to = Math.min(from + effect.limit, total);
      const of = sessions(from, to).map((one) => ({
        ...one,
        name: random.pick([null, "日本語 ".repeat(20), NASTY, "plain", "e\u0301🏳️‍🌈".repeat(9)]),
        cost: random.pick([undefined, 1.5]),
        parentSession: random.chance(0.3) ? `/s/${random.int(500)}.jsonl` : null,
        ...(effect.query.shelf === "trash" ? { itemPath: `/t${one.sessionPath}` } : {}),
      }));
      return { what: "listed", sessions: of, total, cursor: to < total ? `after ${to}` : undefined };
    }
    case "search": {
      const about = { sessionId: NASTY, snippet: NASTY };
      const hit = (n: number): Json => ({ ...about, entryId: `e${n}`, sessionPath: `/s/${random.int(600)}.jsonl` });
      return { what: "found", words: effect.words, hits: range(0, random.int(20)).map(hit) };
    }
    case "preview": {
      const { ticket } = effect;
      if (random.chance(0.2)) return { what: "unpreviewed", ticket, message: NASTY, isDamaged: true };
      const text = (entry: Json): Json => ({ ...entry, text: random.pick([entry.text, NASTY, "日本".repeat(99)]) });
      return { what: "previewed", ticket, shown: { ...SHOWN, entries: SHOWN.entries.map(text) } };
    }
    case "look":
      if (random.chance(0.5)) return undefined;
      return { what: "looked", sessionPath: effect.sessionPath, facts: { damageCount: 1 } };
    case "open": {
      const nodes = NODES.map((node) => ({ ...node, preview: random.pick([node.preview, NASTY]) }));
      return { what: "opened", session: effect.session, nodes, leafId: random.pick(["a", "b", null]) };
    }
    case "change": {
      const undone = random.pick([undefined, { kind: "branch", sessionPath: "/s/0.jsonl" }]);
      const [leafId, made] = [random.pick([undefined, "a", null]), random.pick([undefined, "/s/3.jsonl"])];
      return { what: "done", outcome: { change: effect.change, notice: NASTY, leafId, undone, made } };
    }
    default:
      return undefined;
  }
}

acrossTiers(test, [
  { count: 1, presses: 25 },
  { count: 4, presses: 60 },
])("whatever is pressed and answered, no line is too wide, and nothing acts ($count)", ({ count, presses }) => {
  forSeeds(count, (random) => {
    const size = (): [number, number] => [1 + random.int(40), 1 + random.int(200)];
    const browsing = new Browsing(...size());
    for (let i = 0; i < presses; i++) {
      for (const effect of browsing.asked.splice(0)) {
        const next = answerTo(effect, random);
        if (next) browsing.happen(next);
      }
      const [rows, columns] = size();
      if (random.chance(0.05)) browsing.happen({ what: "resized", rows, columns });
      const letters = [..."jkgGyYnNqtlraAdDfesmpJKuUz[]=?/12345 日😀"];
      browsing.press(random.pick(random.chance(0.3) ? KEYS : letters));
      const { state } = browsing;
      for (const paint of [plain, coloured]) {
        const lines = renderScreen(state, { ...PAGE, width: state.columns, paint });
        expect(lines.length).toBeLessThanOrEqual(Math.max(state.rows, 4));
        for (const line of lines) expectTame(line, state.columns);
      }
    }
  });
});
