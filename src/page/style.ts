/** Styles of the page: for light and dark, phones and large screens, and paper. */

import { PANE_STYLE } from "./pane-style.ts";

const LIGHT = `--bg:#fff;--fg:#1c1e21;--dim:#5c6470;--line:#dfe3e8;--soft:#f5f6f8;--user:#eaf2fd;--userline:#2a6fd6;
--link:#0b57b8;--bad:#b3261e;--badbg:#fdf0ef;--mark:#fff0b8;--markfg:#4d3b00;--add:#e4f6e7;--addfg:#10602a;--del:#fdeaea;--delfg:#9c1c1c;
--bar:#b9cdf0;--cost:#b4540a;--k:#8b2bb0;--s:#176b36;--n:#0550ae;--c:#626a75;--t:#9a4500;--f:#0b57b8;
--a0:#1c1e21;--a1:#b3261e;--a2:#176b36;--a3:#7d5a00;--a4:#0b57b8;--a5:#8b2bb0;--a6:#0b6a75;--a7:#5c6470;--aback:#fff;
--edge:#c3c9d2;--hover:#e9edf2;--pick:#dde6f3;--rail:#c5ccd6;--trail:#7ea6e6;--pane-bg:#f7f8fa;--find:#ffe27a;--findfg:#3d3000;--now:#ff9632`;

const DARK = `--bg:#14161a;--fg:#e3e6ea;--dim:#9aa3af;--line:#2d323a;--soft:#1c1f25;--user:#1a2638;--userline:#5b9bf5;
--link:#85b6ff;--bad:#ff9a91;--badbg:#2c1a1a;--mark:#5c4a10;--markfg:#ffe9a6;--add:#12301c;--addfg:#8fe0a6;--del:#371a1c;--delfg:#ffaba6;
--bar:#3a547f;--cost:#f0a35e;--k:#d6a1f2;--s:#8ad6a0;--n:#85b6ff;--c:#98a1ad;--t:#f0a878;--f:#85b6ff;
--a0:#9aa3af;--a1:#ff9a91;--a2:#8ad6a0;--a3:#e8c468;--a4:#85b6ff;--a5:#d6a1f2;--a6:#75d0dc;--a7:#d5d9de;--aback:#14161a;
--edge:#454c57;--hover:#262b33;--pick:#2a3648;--rail:#434a55;--trail:#41639a;--pane-bg:#181b20;--find:#6b5710;--findfg:#fff3c4;--now:#ff9632`;

const FRAME = `
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%;scroll-padding-top:1rem}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
.page{max-width:58rem;margin:0 auto;padding:1.5rem 1.25rem 4rem}
a{color:var(--link);text-underline-offset:.15em}
:focus-visible{outline:3px solid var(--userline);outline-offset:2px;border-radius:3px}
.vh,.skip:not(:focus){position:absolute;width:1px;height:1px;margin:-1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.skip{position:absolute;top:.5rem;left:.5rem;padding:.5rem 1rem;background:var(--bg);z-index:9}
h1,h2,h3,h4,h5,h6{line-height:1.3;overflow-wrap:anywhere;unicode-bidi:isolate}
h1{font-size:1.75rem;margin:0 0 1rem;letter-spacing:-.01em}
h2{font-size:1.25rem;margin:3rem 0 1rem}
p,ul,ol,dd,dt,li,td,th,summary,figcaption{overflow-wrap:anywhere}
pre,code,dd,mark,summary,.nolink,.prose,.plain{unicode-bidi:isolate}
code,pre,.peek{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
code{font-size:.875em;background:var(--soft);border-radius:4px;padding:.1em .3em;overflow-wrap:anywhere}
pre{margin:.5rem 0;padding:.7rem .85rem;background:var(--soft);border-radius:6px;font-size:.8125rem;line-height:1.5;white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4}
.dim,.usage,.model,.time,time,.about,.key{color:var(--dim);font-size:.8125rem;font-weight:400}
mark{background:var(--mark);color:var(--markfg);border-radius:4px;padding:.1em .45em;font-size:.8125rem;overflow-wrap:anywhere}
.bad{color:var(--bad)}
.top{border-bottom:1px solid var(--line);padding-bottom:1.25rem}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:.3rem 2rem;margin:0;font-size:.9rem}
.facts div{display:grid;grid-template-columns:6.5rem minmax(0,1fr)}
.facts dt{color:var(--dim)}
.facts dd{margin:0}
.facts dd time{color:inherit;font-size:inherit}
.chart{margin:1.25rem 0 0}
.chart svg{display:block;width:100%;height:6rem;border-bottom:1px solid var(--line)}
.hit{fill:transparent}
.bar{fill:var(--bar)}
.chart a:hover .bar{fill:var(--userline)}
.line{fill:none;stroke:var(--cost);stroke-width:1.75;vector-effect:non-scaling-stroke;pointer-events:none}
.key{margin-right:1rem}
.key::before{content:"";display:inline-block;width:.7rem;height:.7rem;margin-right:.4rem;background:var(--bar)}
.costs::before{height:2px;margin-bottom:.25rem;background:var(--cost)}
.contents{margin:1rem 0}
.contents ol,.contents ul{margin:.25rem 0 1rem;padding-left:2.75rem;font-size:.9rem;columns:24rem 2;column-gap:3rem}
.contents li{break-inside:avoid;padding:.1rem 0}
summary{cursor:pointer}
`;

const CONVERSATION = `
article,.note,.left{content-visibility:auto;contain-intrinsic-size:auto 6rem}
article{margin:.9rem 0;padding:0 .25rem}
article>header{display:flex;flex-wrap:wrap;align-items:baseline;gap:.1rem .75rem;margin-bottom:.15rem}
article>header h3,article>header h4{margin:0;font-size:.9375rem;font-weight:650}
.about{margin-left:auto;display:inline-flex;gap:.6rem;align-items:baseline;flex-wrap:wrap}
.self{text-decoration:none;padding:0 .35rem;color:var(--dim)}
.self:hover{text-decoration:underline}
:target{outline:2px solid var(--userline);outline-offset:4px;border-radius:6px}
.user{margin-top:2.25rem;padding:.75rem 1rem;background:var(--user);border-radius:10px;border-left:4px solid var(--userline)}
.number{color:var(--dim);font-weight:400}
.assistant.on{margin-top:.2rem}
.assistant.on>header{line-height:1.2;margin-bottom:0}
.tool{position:relative}
.tool>header{position:absolute;top:.85rem;right:.9rem;margin:0;z-index:1}
.tool .what{padding-right:7rem}
.assistant.on>header h4{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.model{border:1px solid var(--line);border-radius:1rem;padding:.05rem .6rem;color:var(--fg);overflow-wrap:anywhere}
.custom,.summary{border:1px solid var(--line);border-radius:8px;padding:.6rem 1rem}
.summary{border-left:4px solid var(--cost)}
.note{display:flex;flex-wrap:wrap;gap:0 1rem;align-items:baseline;margin:.5rem 0;padding:0 .25rem;font-size:.875rem;color:var(--dim)}
.note p{margin:0}
.note b{color:var(--fg);font-weight:600}
.note>details{flex:1 1 20rem;min-width:0}
.left{margin:.9rem 0;padding:.5rem 1rem;border:1px dashed var(--line);border-radius:8px;font-size:.875rem}
.left p,.left ul{margin:0}
.left ul{padding-left:1.25rem}
.prose>:first-child{margin-top:.25rem}
.prose>:last-child{margin-bottom:.25rem}
.prose p,.prose ul,.prose ol{margin:.6rem 0}
.prose ul,.prose ol{padding-left:1.6rem}
.prose h4{font-size:1.2rem;margin:1.2rem 0 .5rem}
.prose h5{font-size:1.05rem;margin:1.1rem 0 .4rem}
.prose h6{font-size:.95rem;margin:1rem 0 .4rem}
.prose blockquote{margin:.6rem 0;padding:.1rem 1rem;border-left:3px solid var(--line);color:var(--dim)}
.prose hr{border:0;border-top:1px solid var(--line);margin:1.2rem 0}
.user .prose code{background:var(--bg)}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.9rem;margin:.5rem 0}
th,td{border:1px solid var(--line);padding:.35rem .7rem;text-align:start;overflow-wrap:normal}
th{background:var(--soft)}
.center{text-align:center}
.right{text-align:right}
.plain,.thinking .plain{white-space:pre-wrap;overflow-wrap:anywhere}
.nolink{color:var(--dim)}
img{max-width:100%;height:auto;max-height:40rem;border-radius:6px;border:1px solid var(--line);display:block;margin:.5rem 0}
.call{margin:.5rem 0;border:1px solid var(--line);border-radius:8px;padding:.4rem .8rem .5rem;min-width:0}
.call.failed{border-color:var(--bad);border-left-width:4px;background:var(--badbg)}
.what{margin:0;font-size:.875rem}
.what code{background:none;padding:0}
.call pre{margin:.35rem 0 .1rem}
.call .dim{margin:.2rem 0}
pre.cmd{background:none;padding:.1rem 0}
.cmd::before{content:"$ ";color:var(--dim)}
.plus{color:var(--addfg);font-size:.8125rem}
.minus{color:var(--delfg);font-size:.8125rem}
.long>summary{list-style:none;border-radius:6px}
.long>summary::-webkit-details-marker{display:none}
.peek{display:block;padding:.7rem .85rem;background:var(--soft);border-radius:6px;font-size:.8125rem;line-height:1.5;white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4;margin:.35rem 0}
.long[open]>summary .peek{display:none}
.len{font-size:.8125rem;color:var(--link)}
.len::before{content:"▸ Show all "}
.long[open]>summary .len::before{content:"▾ Fold "}
.thinking>summary,.more>summary{color:var(--dim);font-size:.875rem}
.thinking .plain{color:var(--dim);font-size:.9rem;border-left:3px solid var(--line);padding-left:1rem;margin:.3rem 0 .6rem}
.stop{margin:.4rem 0}
.past,.branch{border:1px solid var(--line);border-radius:8px;padding:.6rem 1rem;margin:.75rem 0}
.past>summary{font-weight:600}
.replaced{font-size:.875rem;color:var(--dim);margin:1rem 0 .25rem}
.branch>summary{overflow-wrap:anywhere}
.from{font-size:.875rem;margin:.4rem 0}
.diff{padding:.5rem 0}
.diff>span{display:block;padding:0 .85rem}
.add{background:var(--add);color:var(--addfg)}
.del{background:var(--del);color:var(--delfg)}
.hunk{color:var(--dim)}
`;

/** Colours of programs: 16 for text, 16 behind it with text that can be read on them. */
const COLOURS = [0, 1, 2, 3, 4, 5, 6, 7]
  .map(
    (n) =>
      `.f${n},.f${n + 8}{color:var(--a${n})}.b${n},.b${n + 8}{background:var(--a${n});color:var(--aback)}.in.f${n},.in.f${n + 8}{background:var(--a${n});color:var(--aback)}`,
  )
  .join("\n");

const MARKS = `
.bo{font-weight:700}.di{color:var(--dim)}.it{font-style:italic}.un{text-decoration:underline}.st{text-decoration:line-through}
.in:not([class*=f]){background:var(--fg);color:var(--bg)}
`;

const SYNTAX = `
pre i,.cmd i{font-style:normal}
i.k{color:var(--k)}i.s{color:var(--s)}i.n{color:var(--n)}i.t{color:var(--t)}i.f{color:var(--f)}i.d{color:var(--delfg)}
pre i.c{color:var(--c);font-style:italic}pre i.e{font-style:italic}i.g{font-weight:700}
`;

const SIZES = `
@media (max-width:40rem){
.page{padding:1rem .75rem 3rem}
h1{font-size:1.4rem}
body{font-size:15px}
.facts div{grid-template-columns:5.5rem minmax(0,1fr)}
.user,.custom,.summary,.past,.branch{padding-left:.7rem;padding-right:.7rem}
.call{padding-left:.6rem;padding-right:.6rem}
.self{min-width:1.5rem;text-align:center}
}
@media (min-width:160rem){html{font-size:20px}body{font-size:20px}}
@media (min-width:220rem){html{font-size:26px}body{font-size:26px}}
@media print{
:root{${LIGHT}}
body{font-size:10.5pt}
.page{max-width:none;padding:0}
.others,.contents,.skip,.self,.left,.thinking{display:none}
article,.note{content-visibility:visible}
.user,.call,pre{break-inside:auto;print-color-adjust:exact}
article>header{break-after:avoid}
}
`;

export const STYLE = `:root{color-scheme:light dark;${LIGHT}}
@media (prefers-color-scheme:dark){:root{${DARK}}}
${FRAME}${CONVERSATION}${COLOURS}${MARKS}${SYNTAX}${PANE_STYLE}${SIZES}`;
