/** The parts of a page one by one: Markdown, code, changes, colours of programs, calls, folds. */

import { describe, expect, test } from "vitest";
import { formatAmount, formatCost } from "../../src/page/amounts.ts";
import { renderAnsi } from "../../src/page/ansi.ts";
import { renderImage } from "../../src/page/blocks.ts";
import { renderCall, renderCommandRun } from "../../src/page/calls.ts";
import { renderChart } from "../../src/page/chart.ts";
import { findLanguage, renderCode } from "../../src/page/code.ts";
import { computeDiff, parseDiff, renderDiff } from "../../src/page/diff.ts";
import { renderLines } from "../../src/page/fold.ts";
import { writeCall } from "../../src/page/markdown/calls.ts";
import { renderProse } from "../../src/page/prose.ts";
import { processorTimeOf } from "../support/processor.ts";
import { forSeeds } from "../support/random.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

/** Returns what prose is drawn as, without the block around it. */
function prose(text: string): string {
  const html = renderProse(text);
  expect(html).toMatch(/^<div class="prose" dir="auto">[\s\S]*<\/div>$/);
  return html.slice(30, -6).trim();
}

const LINK = 'rel="noopener noreferrer nofollow"';
const unlinked = (html: string): string => `<p><span class="nolink">${html}</span></p>`;

describe("Markdown", () => {
  test.each([
    ["a **b** *c* `d<e` ~~f~~", "<p>a <strong>b</strong> <em>c</em> <code>d&lt;e</code> <s>f</s></p>"],
    ["one\ntwo", "<p>one<br>\ntwo</p>"],
    ["# Head\n## Next\n#### Deep", "<h4>Head</h4>\n<h5>Next</h5>\n<h6>Deep</h6>"],
    ["- a\n- b\n  1. c", "<ul>\n<li>a</li>\n<li>b\n<ol>\n<li>c</li>\n</ol>\n</li>\n</ul>"],
    ["- [ ] todo\n- [x] done", "<ul>\n<li>☐ todo</li>\n<li>☑ done</li>\n</ul>"],
    ["[site](https://a.b/?a=1&b=2)", `<p><a href="https://a.b/?a=1&amp;b=2" ${LINK}>site</a></p>`],
    ["see https://a.b/x.", `<p>see <a href="https://a.b/x" ${LINK}>https://a.b/x</a>.</p>`],
    ["[store](src/store.ts)", unlinked("store <code>src/store.ts</code>")],
    ["[x](javascript:alert(1))", unlinked("x <code>javascript:alert(1)</code>")],
    ["![chart](https://a.b/c.png)", unlinked("[image chart] <code>https://a.b/c.png</code>")],
    ["<b onclick=x>bold</b>", "<p>&lt;b onclick=x&gt;bold&lt;/b&gt;</p>"],
    ["&lt; &#x202e;x &#0;", "<p>&lt; \ufffdx \ufffd</p>"],
    ["```ts\nconst a = 1;\n```", '<pre class="code"><i class="k">const</i> a = <i class="n">1</i>;\n</pre>'],
    ["```\n<x>\n```", '<pre class="code">&lt;x&gt;\n</pre>'],
  ])("%j", (text, html) => expect(prose(text)).toBe(html));

  acrossTiers(test, ["`a`b", "a line\n", "*a* "])("a paragraph of very many parts is shown as it is: %j", (part) => {
    expect(prose(part.repeat(5000))).toMatch(/<br>|<code>|<em>/);
    const long = renderProse(part.repeat(20_000));
    expect(long).toMatch(/^<details class="long">/);
    expect(long).not.toMatch(/<br>|<code>|<em>/);
  });

  test("tables scroll by themselves, and are aligned without styles", () => {
    const html = prose("| a | b |\n|:-:|--:|\n| 1 | 2 |");
    expect(html).toContain('<div class="scroll" role="region" aria-label="Table" tabindex="0"><table>');
    expect(html).toContain('<td class="center">1</td>\n<td class="right">2</td>');
    expect(html).not.toContain("style=");
  });

  test("nested deeper than anybody nests, is shown as it is", () => {
    for (const deep of ["> ", "- "]) expect(renderProse(`${deep.repeat(300)}treasure`)).toContain("treasure");
    expect(renderProse(`${"> ".repeat(10)}text`)).toContain("<blockquote>");
  });

  acrossTiers(test, [
    { what: "quotes", text: "> ".repeat(90_000) },
    { what: "emphasis", text: "*a ".repeat(60_000) },
    { what: "code", text: "`a".repeat(90_000) },
    { what: "brackets", text: "[".repeat(150_000) },
    { what: "pictures", text: "![[](".repeat(40_000) },
  ])("takes no time that grows with the square of $what", async ({ text }) => {
    let html = "";
    const took = await processorTimeOf(() => {
      html = renderProse(text);
    });
    expect(html.length).toBeGreaterThan(text.length / 2);
    expect(took).toBeLessThan(5000);
  });
});

describe("code", () => {
  test("has a language by its name or by the ending of a file", () => {
    const names = ["ts", "src/a.test.tsx", "PY", "x.mts", "Makefile.unknown", "a b", "__proto__"];
    expect(names.map(findLanguage)).toEqual(["ts", "tsx", "py", "typescript", "", "", ""]);
  });

  test("is left plain where it is no code that anybody wrote", () => {
    const long = `x = "${"<".repeat(5000)}"`;
    expect(renderCode(long, "python")).not.toContain("<i class");
    expect(renderCode("x = 1\n".repeat(10_000), "python")).not.toContain("<i class");
    expect(renderCode("x = '<b>'", "python")).toBe('x = <i class="s">&#x27;&lt;b&gt;&#x27;</i>');
  });
});

describe("changes", () => {
  test("are the lines that differ", () => {
    const lines = computeDiff("a\nb\nc\nd\n", "a\nB\nc\nd\ne\n");
    expect(lines.map(({ sign, text }) => sign + text)).toEqual([" a", "-b", "+B", " c", " d", "+e"]);
    expect(computeDiff("", "x\n")).toEqual([{ sign: "+", text: "x" }]);
    expect(computeDiff("same", "same")).toEqual([{ sign: " ", text: "same" }]);
  });

  test("make one text of the other, whatever the texts are", () => {
    forSeeds(300, (random) => {
      const text = (): string => Array.from({ length: random.int(12) }, () => `${random.pick([..."abc"])}\n`).join("");
      const [before, after] = [text(), text()];
      const lines = computeDiff(before, after);
      const without = (sign: string): string => lines.map((one) => (one.sign === sign ? "" : `${one.text}\n`)).join("");
      expect([without("+"), without("-")]).toEqual([before, after]);
    });
  });

  test("of long texts are found without comparing every pair", () => {
    const text = (word: string): string => Array.from({ length: 20_000 }, (_, n) => `${word} ${n}\n`).join("");
    expect(computeDiff(text("a"), text("b")).length).toBe(40_000);
  });

  test("of lines that begin with signs themselves are no names of files", () => {
    const lines = parseDiff("--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,3 @@\n--- a comment\n+++i;\n ---\n----\n+++ b\n");
    expect(lines.map(({ sign }) => sign).join("")).toBe("@@@-+ -+");
    expect(lines.slice(3).map(({ text }) => text)).toEqual(["-- a comment", "++i;", "---", "---", "++ b"]);
  });

  test("are drawn with their signs, far lines left out", () => {
    const lines = parseDiff(`@@ -1 +1 @@\n-a<\n+b\n${" x\n".repeat(10)}`);
    expect(renderDiff(lines)).toBe(
      '<span class="hunk">@@ -1 +1 @@\n</span><span class="del">-a&lt;\n</span><span class="add">+b\n</span>' +
        `${'<span class="ctx"> x\n</span>'.repeat(3)}<span class="hunk">⋯ 7 unchanged</span>`,
    );
  });
});

describe("colours of programs", () => {
  test.each([
    ["plain <b>", "plain &lt;b&gt;"],
    ["\u001b[31mred\u001b[0m", '<span class="f1">red</span>'],
    ["\u001b[1;92mok\u001b[22m go\u001b[m.", '<span class="f10 bo">ok</span><span class="f10"> go</span>.'],
    ["\u001b[38;5;196mx\u001b[39my", '<span class="f9">x</span>y'],
    ["\u001b[48;2;0;0;130mx", '<span class="b4">x</span>'],
    ["\u001b[38;5;240mgrey", '<span class="f8">grey</span>'],
    ["\u001b]0;title\u0007a\u001b[2K\u001b[1Gb", "ab"],
    ["\u001b]8;;http://x\u001b\\link\u001b]8;;\u001b\\", "link"],
    ["10%\r50%\r100%\r\nend", "10%\n50%\n100%\nend"],
    ["\u001b]0;never ended", "␛]0;never ended"],
    ["\u001b[99999999999;;;38;5;999m<", "&lt;"],
  ])("%j", (text, html) => expect(renderAnsi(text)).toBe(html));
});

describe("calls", () => {
  const call = (name: string, args: unknown, message: Record<string, unknown> = {}): string =>
    renderCall({ id: "1", name, arguments: args }, { message, anchor: "r" });

  test("name the tool, its main argument and the result, and say when they failed", () => {
    const html = call("bash", { command: "npm test" }, { isError: true, content: [{ type: "text", text: "no" }] });
    expect(html).toBe(
      '<div class="call failed"><p class="what"><b>bash</b> <code class="cmd">npm <i class="t">test</i></code>' +
        ' <b class="bad">failed</b></p><div class="result" id="r"><pre class="out">no</pre></div></div>\n',
    );
    expect(renderCall({ id: "1", name: "ls", arguments: { path: "/x" } }, undefined)).toContain("No result.");
    expect(call("mcp", { a: 1, url: "http://x", b: [2] })).toContain("<code>http://x</code>");
    expect(renderCommandRun({ command: "ls", output: "", exitCode: 2 })).toContain('<b class="bad">failed, exit 2</b>');
  });

  test("edits are changes, by the result's own diff where it has one", () => {
    const asked = call("edit", { path: "a.ts", oldText: "x\ny", newText: "x\nz" });
    expect(asked).toContain('<span class="del">-y\n</span><span class="add">+z\n</span>');
    expect(asked).toContain('<span class="plus">+1</span> <span class="minus">−1</span>');
    const edits = ["p", "r"].map((oldText) => ({ oldText, newText: "q" }));
    expect(call("Edit", { file_path: "a", edits }).match(/class="del"/g)).toHaveLength(2);
    const made = call("edit", { path: "a", oldText: "o", newText: "n" }, { details: { diff: "+ 7 real\n" } });
    expect([made.includes("7 real"), made.includes(">-o")]).toEqual([true, false]);
  });

  test("HTML and Markdown show the same of a call", () => {
    const made = { message: { details: { diff: "+ 7 real\n" } }, anchor: "r" };
    const edit = { id: "1", name: "edit", arguments: { path: "a", oldText: "o", newText: "n" } };
    expect(renderCall(edit, made)).toContain('<span class="plus">+1</span> <span class="minus">−0</span>');
    expect(writeCall(edit, made)).toMatch(/^\*\*edit\*\* `a` \+1 −0\n\n```diff\n\+ 7 real\n```\n/);
    const long = { id: "1", name: "say", arguments: "word ".repeat(100) };
    for (const shown of [renderCall(long, undefined), writeCall(long, undefined)])
      expect(shown).toContain("word ".repeat(90));
  });

  test("a file that is written or read is drawn as what it is", () => {
    expect(call("write", { path: "a.py", content: "def f(): pass" })).toContain('<i class="k">def</i>');
    const read = { content: [{ type: "text", text: '{"a": 1}' }] };
    expect(call("read", { path: "a.json", offset: 5, limit: 3 }, read)).toMatch(/lines 5–7[\s\S]*<i class="t">/);
    // An error message is no JSON.
    expect(call("read", { path: "a.json" }, { ...read, isError: true })).not.toContain("<i class");
  });
});

test("long stretches are folded, with their first or last lines and their length", () => {
  const text = Array.from({ length: 16 }, (_, n) => `line ${n}\n`).join("");
  expect(renderLines("a\n".repeat(15), "x", "out")).toBe('<pre class="out">x</pre>');
  expect(renderLines(text, "x", "out")).toMatch(/line 4<\/span><span class="len">16 lines, 118 B<\/span>/);
  expect(renderLines(text, "x", "out", "last")).toMatch(/16 lines, 118 B<\/span><span class="peek"[^>]*>line 11\n/);
  expect(renderLines("y".repeat(10_000_000), "x", "out").length).toBeLessThan(600);
});

test("millions of characters that are replaced end no process", SWEEP, () => {
  const text = "<\r\n\ud83d\ude00".repeat(1_000_000);
  const html = renderLines(text, renderAnsi(text), "out", "last");
  expect(html.startsWith('<details class="long">')).toBe(true);
  expect(html.includes("\ufffd")).toBe(false);
  expect(html.length).toBeGreaterThan(7_000_000);
});

test("only pictures that are some are shown", () => {
  const png = "iVBORw0KGgoAAAAN";
  expect(renderImage({ mimeType: "image/png", data: png })).toBe(
    `<img alt="Picture, png, 12 B" loading="lazy" decoding="async" src="data:image/png;base64,${png}">`,
  );
  for (const other of [
    { mimeType: "image/svg+xml", data: png },
    { mimeType: "image/jpeg", data: png },
    { mimeType: "image/png", data: `${png}"onerror="x` },
    { mimeType: "image/png", data: "AAAA" },
    { mimeType: "constructor", data: png },
    { mimeType: {}, data: 1 },
  ])
    expect(renderImage(other)).toMatch(/^<p class="nolink">\[image [^<>"]*not shown\]<\/p>$/);
});

test("the chart has a bar for each turn, and at most 180", () => {
  const turns = (count: number) =>
    Array.from({ length: count }, (_, n) => ({ position: n, preview: "", contextTokens: n * 100, cost: n / 100 }));
  const bars = (count: number): number => renderChart(turns(count), (n) => `e${n}`).split('class="bar"').length - 1;
  expect([0, 1, 2, 180, 181, 5000].map(bars)).toEqual([0, 0, 2, 180, 91, 179]);
  expect(renderChart(turns(10), (n) => `e${n}`)).toContain("Turn 10: 900 tokens, $0.09");
});

test("amounts are short", () => {
  const counts = [0, 999, 1000, 12_345, 999_499, 999_500, 47_600_000].map(formatAmount);
  expect(counts.join(" ")).toBe("0 999 1k 12.3k 999k 1M 47.6M");
  expect([0, 0.00123, 0.25, 30.331].map(formatCost)).toEqual(["$0", "$0.0012", "$0.25", "$30.33"]);
});
