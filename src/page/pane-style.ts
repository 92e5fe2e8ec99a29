/** Styles of the page with its script: the tree next to it, and the parts that follow the reader. */

const PANE = `
html.js{--pane:0rem;scroll-padding-top:1.25rem;scroll-behavior:auto}
.js .wait,.js .others,.js .branches{display:none}
@media (scripting:none){.wait{display:none}}
[hidden]{display:none!important}
.chunk{min-width:0}
.pane{position:fixed;inset:0 auto 0 0;z-index:5;display:flex;flex-direction:column;width:var(--wide);background:var(--pane-bg);border-right:1px solid var(--line);font-size:.8125rem;line-height:1.45}
:root{--wide:21.5rem;--chain:url("data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16' fill='none' stroke='%23000' stroke-width='1.6' stroke-linecap='round'%3E%3Cpath d='M6.6 9.4a2.8 2.8 0 0 0 4 0l2.3-2.3a2.8 2.8 0 0 0-4-4L8 4M9.4 6.6a2.8 2.8 0 0 0-4 0L3.1 8.9a2.8 2.8 0 0 0 4 4L8 12'/%3E%3C/svg%3E")}
@media (min-width:90rem){:root{--wide:26rem}}
@media (min-width:70.01rem){html.js{--pane:var(--wide)}html.js:has(body.bare){--pane:0rem}.pane .close,.bare .pane,body:not(.bare) .opener,.shade{display:none}}
.js body{padding-left:var(--pane)}
.pane-head{display:flex;gap:.4rem;padding:.75rem .75rem .5rem;align-items:center}
.find{flex:1;display:flex;align-items:center;min-width:0;background:var(--bg);border:1px solid var(--edge);border-radius:8px;padding-right:.15rem}
.find:focus-within{border-color:var(--userline);box-shadow:0 0 0 1px var(--userline)}
.find input{flex:1;min-width:4rem;width:4rem;border:0;background:none;color:inherit;font:inherit;font-size:.875rem;padding:.42rem .1rem .42rem .65rem;outline:0}
.find input::placeholder{color:var(--dim);opacity:1}
.find input::-webkit-search-cancel-button{display:none}
.count{color:var(--dim);white-space:nowrap;font-variant-numeric:tabular-nums;font-size:.75rem}
.find:not(:has(.count:not(:empty))) .icon{display:none}
button{font:inherit;color:inherit;background:none;border:0;border-radius:6px;padding:.25rem .5rem;cursor:pointer}
button:hover{background:var(--hover)}
button:disabled{color:var(--dim);cursor:default;background:none;opacity:.75}
.icon{min-width:1.7rem;height:1.7rem;padding:0;color:var(--dim);line-height:1;flex:none}
.small{border:1px solid var(--edge);padding:.15rem .6rem;font-size:.8125rem;background:var(--bg);white-space:nowrap}
.link{padding:0;color:var(--link);text-decoration:underline;text-underline-offset:.15em;text-align:start}
.filters{display:flex;flex-wrap:wrap;gap:.1rem;padding:0 .65rem .5rem;border-bottom:1px solid var(--line)}
.chip{font-size:.75rem;color:var(--dim);padding:.2rem .5rem}
.chip[aria-pressed=true]{background:var(--pick);color:var(--fg);font-weight:600}
.lines{flex:1;overflow:auto;overflow-x:hidden;overscroll-behavior:contain;--lh:27;scrollbar-width:thin;outline-offset:-3px;position:relative}
.space{position:relative}
.none{margin:0;padding:1rem;color:var(--dim)}
.line{position:absolute;left:0;right:0;height:27px;display:flex;align-items:center;gap:.45rem;padding-right:.6rem;cursor:pointer;color:var(--dim);white-space:nowrap}
.line:hover{background:var(--hover)}
.line.on{color:var(--fg)}
.line.cursor{background:var(--pick)}
.lines:focus-visible .cursor{box-shadow:inset 3px 0 var(--userline)}
.line .words{flex:1;min-width:0;overflow:hidden;text-overflow:ellipsis;unicode-bidi:isolate}
.line .who{color:var(--dim)}
.line>mark,.tag,.found{flex:none;font-size:.6875rem;line-height:1.1rem}
.line>mark{max-width:8rem;overflow:hidden;text-overflow:ellipsis;padding:0 .4em}
.line .bad{flex:none;font-size:.6875rem;font-weight:600}
.tag{border:1px solid currentColor;border-radius:1rem;padding:0 .45em;color:var(--link);font-weight:600}
.found{background:var(--find);color:var(--findfg);border-radius:1rem;padding:0 .45em;font-variant-numeric:tabular-nums}
.dot{flex:none;width:9px;height:9px;margin:0 2px;border-radius:50%;border:2px solid var(--rail);background:var(--pane-bg)}
.on>.dot{border-color:var(--dim)}
.k-u>.dot{border-color:var(--userline);background:var(--userline)}
.k-u.on{font-weight:600}
.k-u:not(.on)>.dot{background:var(--pane-bg);opacity:.7}
.k-c>.dot,.k-s>.dot{border-radius:2px;border-color:var(--cost)}
.k-r>.dot,.k-l>.dot,.k-n>.dot,.k-m>.dot,.k-t>.dot,.k-o>.dot{width:5px;height:5px;margin:0 4px}
.failed>.dot{border-color:var(--bad)}
.twist{flex:none;width:13px;text-align:center;font-size:.75rem;line-height:1;background:var(--pane-bg)}
.cursor>.twist{background:var(--pick)}.line:hover>.twist{background:var(--hover)}
.steps,.steps.on{color:var(--dim)}
.rail{position:absolute;top:0;bottom:0;width:0;border-left:1.5px solid transparent}
.rail.own{border-left-color:var(--rail)}
.rail.own.first{top:50%}
.rail.own.last{bottom:50%}
.on>.rail.own{border-left-color:var(--trail)}
.line>.dot,.line>.twist{position:relative}
.rail.through{border-left-color:var(--rail)}
.rail.turn::after{content:"";position:absolute;left:-1.5px;top:-2px;width:11px;height:15px;border:solid var(--rail);border-width:0 0 1.5px 1.5px;border-bottom-left-radius:8px}
.reading{display:flex;flex-wrap:wrap;gap:.3rem .7rem;align-items:center;padding:.5rem .85rem;border-top:1px solid var(--line)}
.reading label{display:inline-flex;gap:.3rem;align-items:center;cursor:pointer}
.reading input{margin:0;accent-color:var(--userline)}
.reading .small{margin-left:auto}
.no-user .user,.no-answers .assistant>:is(.prose,.stop,img),.no-thinking .thinking,.no-tools :is(.call,article.tool),.no-notes .note,
.no-answers .assistant:not(:has(>.call,>.thinking)),.no-tools .assistant:not(:has(>.prose,>.stop,>img,>.thinking)),.no-thinking .assistant:not(:has(>.prose,>.stop,>img,>.call)),
.no-answers.no-tools .assistant:not(:has(>.thinking)),.no-answers.no-thinking .assistant:not(:has(>.call)),.no-tools.no-thinking .assistant:not(:has(>.prose,>.stop,>img)),
.no-answers.no-tools.no-thinking .assistant{display:none}
.chosen{border-top:1px solid var(--line);padding:.6rem .85rem .75rem;height:8.6rem;flex:none}
.chosen p{margin:0}
.chosen>p.dim{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.chosen .said{font-size:.875rem;display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:2;overflow:hidden;margin:.15rem 0 .5rem;min-height:1.4em;overflow-wrap:anywhere;unicode-bidi:isolate}
.chosen b{color:var(--fg);font-weight:600}
.acts{display:flex;flex-wrap:wrap;gap:.35rem}
.opener{position:fixed;left:1rem;bottom:1rem;z-index:3;background:var(--fg);color:var(--bg);border-radius:2rem;padding:.5rem 1.1rem;font-weight:600;font-size:.875rem;box-shadow:0 2px 12px #0004}
.opener:hover{background:var(--userline);color:var(--bg)}
.shade{position:fixed;inset:0;z-index:4;background:#0007;display:none}
.toast{position:fixed;left:50%;bottom:1.25rem;transform:translateX(-50%);z-index:9;background:var(--fg);color:var(--bg);border-radius:8px;padding:.5rem 1rem;font-size:.875rem;max-width:calc(100vw - 2rem)}
.toast:empty{display:none}
@media (max-width:70rem){
.pane{width:min(24rem,100vw - 2.5rem);visibility:hidden;transform:translateX(-101%);box-shadow:0 0 2rem #0006}
.drawer .pane{visibility:visible;transform:none}
.drawer .shade{display:block}
.drawer .opener{display:none}
.lines{--lh:36}
.line{height:36px}
.rail.turn::after{height:20px}
.small{padding:.35rem .6rem}
.chosen{height:auto;min-height:8.6rem}
.pathbar p{flex-basis:100%;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.pathbar .spare{display:none}
.filters{flex-wrap:nowrap;justify-content:space-between}
.chip{padding:.4rem .4rem}
.js .page{padding-bottom:6rem}
}
@media (max-width:70rem) and (prefers-reduced-motion:no-preference){.pane{transition:transform .18s ease-out,visibility 0s .18s}.drawer .pane{transition:transform .18s ease-out}}
`;

const PLACES = `
.here{outline:2px solid var(--userline);outline-offset:4px;border-radius:8px}
article:focus,.note:focus,.result:focus{outline:2px solid var(--userline);outline-offset:4px}
.js .self{display:none}
.copy{width:1.5rem;height:1.5rem;margin:-.4rem 0;padding:0;flex:none;align-self:center;position:relative;color:var(--dim)}
.js .about{align-items:center}
.copy::before{content:"";position:absolute;inset:.2rem;background:currentColor;mask:var(--chain) center/1rem no-repeat}
@media (hover:hover){.copy{opacity:0}article:hover>header .copy,.note:hover .copy,.call:hover>.result>.copy,.copy:focus-visible,.here .copy{opacity:1}}
.js article>header{min-height:1.75rem}
.call{position:relative}
.js .call:has(>.result) .what{padding-right:2rem}
.result>.copy{margin:0;position:absolute;right:.45rem;top:.4rem}
.pathbar{position:sticky;top:.5rem;z-index:2;display:flex;flex-wrap:wrap;gap:.4rem .5rem;align-items:center;margin:1rem 0;padding:.55rem .9rem;background:var(--mark);color:var(--markfg);border-radius:10px;font-size:.875rem;box-shadow:0 2px 10px #0002}
.pathbar p{flex:1 1 16rem;margin:0;min-width:0;overflow-wrap:anywhere}
.pathbar .small{color:var(--fg)}
.js:has(.pathbar:not([hidden])){scroll-padding-top:6rem}
.ending{margin:2rem 0 0;padding:.9rem 1.1rem;border:1px dashed var(--edge);border-radius:10px;font-size:.875rem}
.ending p,.ending ul{margin:0}
.ending ul{padding-left:1.25rem}
.past.void{border:0;padding:0}
.past.void>summary{display:none}
::highlight(found){background-color:var(--find);color:var(--findfg)}
::highlight(now){background-color:var(--now);color:#000}
`;

const DIALOGS = `
dialog{border:1px solid var(--line);border-radius:14px;padding:0;color:var(--fg);background:var(--bg);box-shadow:0 1rem 4rem #0006;max-width:calc(100vw - 1.5rem);max-height:calc(100vh - 2rem)}
dialog::backdrop{background:#0008}
dialog>header{display:flex;align-items:center;gap:.5rem;padding:.9rem 1.25rem;border-bottom:1px solid var(--line)}
dialog h2{flex:1;margin:0;font-size:1.1rem}
.help dl{margin:0;padding:.75rem 1.25rem 1.25rem;overflow:auto}
.help dl div{display:grid;grid-template-columns:8.5rem 1fr;gap:.75rem;padding:.22rem 0;font-size:.875rem}
.help dd{margin:0}
kbd{font:inherit;font-size:.8125rem;border:1px solid var(--edge);border-bottom-width:2px;border-radius:5px;padding:.02rem .4rem;background:var(--soft)}
@media (max-width:40rem){dialog>header{padding:.75rem .9rem}}
@media print{.pane,.opener,.toast,.pathbar,.shade,.copy,.ending{display:none!important}.js body{padding-left:0}.here{outline:0}}
`;

export const PANE_STYLE = `${PANE}${PLACES}${DIALOGS}`;
