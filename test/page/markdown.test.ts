/** Prose in a Markdown document: what a parser sees in it, and nothing else. */

import MarkdownIt from "markdown-it";
import { expect, test } from "vitest";
import { writeProse } from "../../src/page/markdown/prose.ts";
import { processorTimeOf } from "../support/processor.ts";
import { isEvery, Random } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

const github = new MarkdownIt({ html: true, linkify: true });
github.linkify.add("//", null);

const PIECES = [
  ..."<script> </details> <!-- --> &lt; &#60; ` `` ``` ~~~ *** ** * _ __ ~~ [ ] ( ) ]( < > | |-| \\ ! ![".split(" "),
  ...`https://a.example/ javascript: mailto:x@y.z www.a.b : = $ @x #x %% a ' " é \u202e \ud800 \u0000`.split(" "),
  ...["\n", "\n\n", "\n    ", "\t", "  \n", "\n|-|\n", "\n---\n", "\n===\n", " ", "> ", "- ", "1. "],
  ...["# ", "b c", "[x]: "],
];

acrossTiers(test, [100, 1000])("random marks make nothing but text, and places on the web: %i", (rounds) => {
  const random = new Random(7);
  for (let round = 0; round < (isEvery() ? 60_000 : rounds); round++) {
    const text = Array.from({ length: 1 + random.int(24) }, () => random.pick(PIECES)).join("");
    const written = writeProse(text);
    const html = github.render(written);
    const acts =
      /<(?!\/?(?:p|h[4-6]|ul|ol|li|a|strong|em|s|code|pre|br|hr|table|thead|tbody|tr|t[hd]|blockquote)\b)/.exec(html);
    expect(acts === null, JSON.stringify([text, written, html])).toBe(true);
    for (const [, href] of html.matchAll(/href="([^"]*)"/g)) expect(href).toMatch(/^(?:https?:\/\/|mailto:)/i);
    expect(html).not.toMatch(/\son\w+=|\u202e/);
  }
});

test.each([
  // A link after an exclamation mark would be a picture, which is loaded.
  ["!https://a.example/x", "!<https://a.example/x>"],
  ["&#33;[x](https://a.example)", "\\![x](https://a.example)"],
  // A backtick in an address would begin code.
  ["[x](https://a.example/`) `<b>`", "[x](https://a.example/%60) `<b>`"],
  // Marks of code side by side would be longer ones.
  ["![x](a)`<b>`", "\\[image x\\] `a` `<b>`"],
  // An address without a scheme takes the backslash after it along.
  ["_www.a.b<b>", "\\_www\\.a.b&lt;b>"],
])("%j is %j", (text, written) => expect(writeProse(text)).toBe(`${written}\n\n`));

test("code that an extension of Obsidian's would run, and prose that is too deep, are shown and no more", () => {
  expect(writeProse("`= this.file` `$= dv.current()` `a = 1`")).toBe(
    "`\u200b= this.file` `\u200b$= dv.current()` `a = 1`\n\n",
  );
  expect(writeProse(`${"> ".repeat(60)}\`\`\`treasure`)).toMatch(/^````\n(?:> ){60}```treasure\n````\n\n$/);
  expect(writeProse("# a\n".repeat(60_000))).toMatch(/^<details><summary>Text: 60,000 lines, 240 kB<\/summary>\n<pre>/);
});

const OFTEN = ["[a](https://b) ", "> ".repeat(38), "**a ", "`a ", "<b ", "www.a ", "#a @b %%"];
const LONGER = [...OFTEN, "|a|\n|-|\n\n", "- a\n\n* b\n\n"].map((piece) => ({ characters: 180_000, piece }));

acrossTiers(test, [{ characters: 45_000, piece: OFTEN[0] }, ...LONGER])(
  "$characters characters of $piece take no time that grows with the square",
  async ({ characters, piece }) => {
    const text = piece.repeat(characters / piece.length);
    let written = "";
    const took = await processorTimeOf(() => {
      written = writeProse(text);
    });
    expect(written.length).toBeGreaterThan(text.length / 4);
    expect(took).toBeLessThan(5000);
  },
);
