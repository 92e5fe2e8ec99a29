/** The picker of browse: keys and answers to what it shows and asks for, without terminal and server. */

import { describe, expect, test } from "vitest";
import {
  begin,
  type Happening,
  type PickerEffect,
  type PickerState,
  type Step,
  step,
  view,
} from "../../src/cli/picker.ts";
import type { Key, KeyName } from "../../src/cli/terminal/keys.ts";
import { coloured, type OutputStyle, plain } from "../../src/cli/terminal/page.ts";
import { widthOf } from "../../src/cli/terminal/text.ts";
import { forSeeds, type Random } from "../support/random.ts";
import type { Json } from "../support/server.ts";

const PAGE: OutputStyle = { width: 80, paint: plain, now: Date.UTC(2026, 0, 25), home: "/home/me", isTerminal: true };

function session(n: number): Json {
  return {
    sessionPath: `/s/${n}.jsonl`,
    sessionId: `id-${String(n).padStart(6, "0")}`,
    cwd: "/home/me/app",
    name: n % 3 === 0 ? `Name ${n}` : null,
    firstMessage: `first ${n}`,
    messageCount: n,
    modified: "2026-01-24T00:00:00.000Z",
  };
}

/** A picker, and a server that answers its effects when told to. */
class Picking {
  state: PickerState;
  readonly asked: PickerEffect[];

  constructor(rows = 13, columns = 80) {
    const { state, effects } = begin(rows, columns);
    this.state = state;
    this.asked = [...effects];
  }

  happen(happening: Happening): this {
    const { state, effects }: Step = step(this.state, happening);
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

  /** What was asked for since the last look. */
  take(): PickerEffect[] {
    return this.asked.splice(0);
  }

  /** Answers with the sessions from `from` up to, not including, `to` of `total`. */
  list(from: number, to: number, total: number): this {
    const sessions = Array.from({ length: to - from }, (_, i) => session(from + i));
    return this.happen({ what: "listed", sessions, total, cursor: to < total ? `after ${to}` : undefined });
  }

  get screen(): string[] {
    return view(this.state, { ...PAGE, width: this.state.columns });
  }

  get marked(): string | undefined {
    return this.screen.find((line) => line.startsWith("> "));
  }
}

function ready(total = 20): Picking {
  const picking = new Picking().list(0, Math.min(total, 200), total);
  picking.take();
  return picking;
}

describe("the list", () => {
  test("is asked for at once, and shown in columns", () => {
    const picking = new Picking();
    expect(picking.take()).toEqual([{ do: "list", query: "", cursor: undefined, limit: 200 }]);
    expect(picking.screen.at(-1)).toBe("Reading the sessions…");
    picking.list(0, 3, 3);
    expect(picking.take()).toEqual([]);
    expect(picking.screen).toHaveLength(13);
    expect(picking.screen.slice(0, 6).map((line) => line.trimEnd())).toEqual([
      expect.stringMatching(/^Sessions {60,}1 of 3$/),
      "   AGE  MSGS  NAME OR FIRST MESSAGE                         DIRECTORY  ID",
      ">   1d     0  Name 0                                        ~/app      id-000000",
      "    1d     1  first 1                                       ~/app      id-000001",
      "    1d     2  first 2                                       ~/app      id-000002",
      "",
    ]);
  });

  test("moves by arrows, letters, pages, and to its ends; the mark stays on the screen", () => {
    const picking = ready();
    const at = (): number => picking.state.selected;
    const on = (...keys: string[]): number => {
      picking.press(...keys);
      expect(picking.marked).toContain(`id-${String(at()).padStart(6, "0")}`);
      return at();
    };
    expect([on("<down>"), on("j"), on("<up>"), on("k"), on("k")]).toEqual([1, 2, 1, 0, 0]);
    expect([on("<pageDown>"), on("<pageDown>"), on("<pageUp>")]).toEqual([10, 19, 9]);
    expect([on("<end>"), on("j"), on("<home>"), on("G"), on("g")]).toEqual([19, 19, 0, 19, 0]);
    expect(picking.take()).toEqual([]);
  });

  test("ends with the path on Enter, with nothing on q and Ctrl+C", () => {
    expect(ready().press("j", "<enter>").take()).toEqual([{ do: "end", sessionPath: "/s/1.jsonl" }]);
    for (const key of ["q", "<ctrl+c>"]) expect(ready().press(key).take()).toEqual([{ do: "end", sessionPath: null }]);
    expect(ready(0).press("<enter>", "<tab>", "<ctrl+d>", "y").take()).toEqual([]);
    expect(ready(0).screen[2]).toBe("  There are no sessions.");
  });

  test("of ten thousand is fetched as it is walked, and whole for its end", () => {
    const picking = ready(10_000);
    for (let i = 0; i < 18; i++) picking.press("<pageDown>");
    expect(picking.take()).toEqual([{ do: "list", query: "", cursor: "after 200", limit: 200 }]);
    picking.press("<pageDown>").list(200, 400, 10_000);
    expect([picking.state.selected, picking.take()]).toEqual([190, []]);
    picking.press("<end>");
    let from = 400;
    for (const effect of picking.take()) {
      expect(effect).toEqual({ do: "list", query: "", cursor: `after ${from}`, limit: 2000 });
    }
    while (from < 10_000) {
      const to = Math.min(10_000, from + 2000);
      picking.list(from, to, 10_000);
      from = to;
    }
    expect([picking.state.selected, picking.state.sessions.length]).toEqual([9999, 10_000]);
    expect(picking.take()).toHaveLength(4);
    expect(picking.screen[0]).toMatch(/10,000 of 10,000$/);
  });

  test("a move on the way to the end gives the end up", () => {
    const picking = ready(10_000).press("<end>", "<home>");
    picking.list(200, 2200, 10_000);
    expect(picking.state.selected).toBe(0);
    expect(picking.take()).toHaveLength(1);
  });
});

describe("the filter", () => {
  test("asks with each character, one request at a time, and heeds only what fits", () => {
    const picking = ready().press("/", "q", "u", "x", "<backspace>");
    expect(picking.take()).toEqual([{ do: "list", query: "q", cursor: undefined, limit: 200 }]);
    expect(picking.screen[0]).toMatch(/^Filter: qu_ /);
    picking.list(5, 6, 1);
    expect(picking.take()).toEqual([{ do: "list", query: "qu", cursor: undefined, limit: 200 }]);
    expect(picking.state.sessions).toHaveLength(20);
    picking.list(7, 9, 2).press("<down>");
    expect(picking.marked).toContain("id-000008");
    expect(picking.press("<enter>").take()).toEqual([{ do: "end", sessionPath: "/s/8.jsonl" }]);
  });

  test("is cleared by Esc; what does not fit is said", () => {
    const picking = ready().press("/", "zz").list(0, 0, 0).list(0, 0, 0);
    expect(picking.screen[2]).toBe("  No session matches.");
    picking.take();
    picking.press("<escape>");
    expect([picking.state.filter, picking.state.isTyping]).toEqual(["", false]);
    expect(picking.take()).toEqual([{ do: "list", query: "", cursor: undefined, limit: 200 }]);
    expect(picking.list(0, 20, 20).press("j").state.selected).toBe(1);
  });

  test("Ctrl+U empties it, and Esc with nothing typed asks for nothing", () => {
    const picking = ready().press("/", "a").list(0, 1, 1);
    picking.take();
    expect(picking.press("<ctrl+u>").take()).toHaveLength(1);
    expect(ready().press("/", "<escape>", "<escape>").take()).toEqual([]);
  });
});

describe("deletion", () => {
  test("is asked about; n and Esc keep, y deletes, and other keys do nothing", () => {
    const picking = ready().press("j", "<ctrl+d>");
    expect(picking.screen.at(-1)).toBe('Delete "first 1"? y/n');
    expect(picking.press("x", "<enter>", "<down>", "q").take()).toEqual([]);
    expect(picking.press("n").screen.at(-1)).toMatch(/^arrows move/);
    picking.press("<ctrl+d>", "<escape>");
    expect([picking.take(), picking.state.doomed]).toEqual([[], undefined]);

    expect(picking.press("<ctrl+d>", "y").take()).toEqual([{ do: "delete", session: session(1) }]);
    expect(picking.press("<enter>", "<tab>", "j").take()).toEqual([]);
    picking.happen({ what: "deleted", session: session(1), notice: "It is in the trash." });
    expect([picking.state.sessions.length, picking.state.total, picking.state.selected]).toEqual([19, 19, 1]);
    expect(picking.screen.at(-1)).toBe("It is in the trash.");
    expect(picking.marked).toContain("id-000002");
  });

  test("that fails says why, and the session stays", () => {
    const picking = ready().press("<ctrl+d>", "y");
    picking.happen({ what: "failed", isList: false, message: "Another process\nwrites to it." });
    expect([picking.state.sessions.length, picking.screen.at(-1)]).toEqual([20, "Another process writes to it."]);
    expect(picking.press("j").marked).toContain("id-000001");
  });

  test("of the last one marks the one before it", () => {
    const picking = ready(3).press("<end>", "<ctrl+d>", "y");
    picking.happen({ what: "deleted", session: session(2), notice: "" });
    expect(picking.marked).toContain("id-000001");
  });
});

const NODES = [
  { id: "a", parentId: null, type: "message", role: "user", preview: "one" },
  { id: "b", parentId: "a", type: "message", role: "assistant", preview: "two" },
  { id: "c", parentId: "a", type: "message", role: "assistant", preview: "other" },
];

function inTree(): Picking {
  const picking = ready().press("<tab>");
  expect(picking.take()).toEqual([{ do: "open", session: session(0) }]);
  return picking.happen({ what: "opened", session: session(0), nodes: NODES, leafId: "c" });
}

describe("the tree", () => {
  test("shows the branches with the leaf marked, and moves the leaf", () => {
    const picking = inTree();
    expect(picking.screen.slice(0, 4).map((line) => line.trimEnd())).toEqual([
      expect.stringMatching(/^Name 0 .*3 of 3$/),
      "    a  user: one",
      "    b  ├─ assistant: two",
      "> * c  └─ assistant: other",
    ]);
    expect(picking.press("<enter>").take()).toEqual([]);
    expect(picking.press("k", "<enter>").take()).toEqual([{ do: "move", entryId: "b" }]);
    expect(picking.press("j").state.tree?.selected).toBe(1);
    picking.happen({ what: "moved", leafId: "b", isKept: true });
    expect(picking.marked?.trimEnd()).toBe("> * b  ├─ assistant: two");
    expect(picking.screen.at(-1)).toBe("The conversation goes on from here.");
  });

  test("a move that is not kept is no silent one", () => {
    const picking = inTree().press("k", "<enter>").happen({ what: "moved", leafId: "b", isKept: false });
    expect(picking.screen.at(-1)).toMatch(/^The move is not saved/);
  });

  test("Esc leads back to the list as it was, q ends", () => {
    const picking = inTree();
    expect(picking.press("<escape>").take()).toEqual([{ do: "close" }]);
    expect(picking.marked).toContain("id-000000");
    expect(inTree().press("q").take()).toEqual([{ do: "end", sessionPath: null }]);
  });

  test("that cannot be opened leaves the list", () => {
    const picking = ready().press("<tab>").happen({ what: "failed", isList: false, message: "It is gone." });
    expect([picking.state.tree, picking.screen.at(-1)]).toEqual([undefined, "It is gone."]);
  });
});

test("whatever is pressed and answered, the screen is full, no line is wider, and nothing in it acts", () => {
  const keys = [
    "<up>",
    "<down>",
    "<pageUp>",
    "<pageDown>",
    "<home>",
    "<end>",
    "<tab>",
    "<escape>",
    "<backspace>",
    "<ctrl+d>",
    "<enter>",
    ..."jkgGyn/a日😀",
  ];
  forSeeds(6, (random) => {
    const picking = new Picking(1 + random.int(30), 10 + random.int(120));
    for (let i = 0; i < 60; i++) {
      const waiting = picking.take().filter((effect) => effect.do !== "end");
      for (const effect of waiting) answer(picking, effect, random);
      if (random.chance(0.1))
        picking.happen({ what: "resized", rows: 1 + random.int(30), columns: 10 + random.int(120) });
      picking.press(random.pick(keys));
      const { rows, columns } = picking.state;
      for (const paint of [plain, coloured]) {
        const lines = view(picking.state, { ...PAGE, width: columns, paint }).map((line) =>
          // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are what is taken out
          line.replace(/\u001b\[\d+m/g, ""),
        );
        expect(lines.length).toBeLessThanOrEqual(Math.max(rows, 4));
        for (const line of lines) {
          expect(widthOf(line)).toBeLessThanOrEqual(columns);
          expect(line).not.toMatch(/[\p{Cc}\u202e]/u);
        }
      }
    }
  });
});

function answer(picking: Picking, effect: PickerEffect, random: Random): void {
  if (random.chance(0.1)) {
    picking.happen({ what: "failed", isList: effect.do === "list", message: "\u001b[2Jno\u202e" });
    return;
  }
  switch (effect.do) {
    case "list": {
      const total = effect.query === "" ? 500 : 30;
      const from = Number(effect.cursor?.split(" ")[1] ?? 0);
      const sessions = Array.from({ length: Math.min(effect.limit, total - from) }, (_, i) => ({
        ...session(from + i),
        name: random.pick([null, "日本語 ".repeat(20), "\u001b[31mred\u202e", "plain"]),
      }));
      const to = from + sessions.length;
      picking.happen({ what: "listed", sessions, total, cursor: to < total ? `after ${to}` : undefined });
      break;
    }
    case "open":
      picking.happen({ what: "opened", session: effect.session, nodes: NODES, leafId: random.pick(["a", "b", null]) });
      break;
    case "move":
      picking.happen({ what: "moved", leafId: effect.entryId, isKept: random.chance(0.5) });
      break;
    case "delete":
      picking.happen({ what: "deleted", session: effect.session, notice: "gone" });
      break;
  }
}
