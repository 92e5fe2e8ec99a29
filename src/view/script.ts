/**
 * The script of a session's page in `view`: it inserts new entries in their places. It is served as a file of its own,
 * as written here; without it the page stays as it was loaded.
 */

export const VIEW_SCRIPT = `"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const status = byId("view.status"), news = byId("view.news"), section = byId("conversation.path");
  if (!status || !news || !section) return;
  const { events, from } = status.dataset;
  /** Milliseconds between two tries to reach a viewer that is gone, and between two reloads by ourselves. */
  const FIRST_TRY = 1000, LAST_TRY = 15000, BETWEEN_RELOADS = 2000;
  const types = globalThis.trustedTypes?.createPolicy?.("view", { createHTML: (html) => html });
  let last = from, source, wait = FIRST_TRY, retry, isOver = false, unseen = 0, came = 0, waiting = [], drawing;

  const say = (text, state) => {
    if (status.textContent !== text) status.textContent = text;
    status.dataset.state = state;
  };
  const isAtEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 160;
  const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  const offer = (text, act) => {
    news.hidden = text === "";
    news.textContent = text;
    news.onclick = act;
  };
  const opened = (element) => [...element.querySelectorAll("details")].map((one) => one.open);

  /** Puts one stretch in the place of the one that it replaces, or behind the last. */
  function put({ anchor, html }) {
    const template = document.createElement("template");
    template.innerHTML = types ? types.createHTML(html) : html;
    const element = template.content.firstElementChild;
    const known = byId(anchor);
    if (!known) {
      section.append(template.content);
      return;
    }
    // A result that already stands within its call is in its place.
    if (!known.matches("article,.note") || !element) return;
    const folds = element.querySelectorAll("details");
    opened(known).forEach((is, i) => { if (is && folds[i]) folds[i].open = true; });
    known.replaceWith(template.content);
  }

  function draw() {
    drawing = undefined;
    const wasAtEnd = isAtEnd();
    const stretches = waiting;
    waiting = [];
    for (const one of stretches) put(one);
    globalThis.piSession?.refresh?.();
    if (wasAtEnd) return toEnd();
    unseen += stretches.length;
    offer(unseen + " new, to the end", () => { unseen = 0; offer("", null); toEnd(); });
  }

  const take = (stretch) => {
    came++;
    waiting.push(stretch);
    drawing ??= setTimeout(draw, 60);
  };

  /** Shows what cannot be added to the page: at its end by itself, else when the reader wants it. */
  function reload(text) {
    isOver = true;
    source?.close();
    say(text, "off");
    const at = Number(sessionStorage.getItem("view.reloaded") ?? 0);
    const left = Math.max(0, at + BETWEEN_RELOADS - Date.now());
    const go = () => { sessionStorage.setItem("view.reloaded", String(Date.now())); location.reload(); };
    if (isAtEnd() && String(getSelection()) === "") setTimeout(go, left);
    else offer(text + " Show it", go);
  }

  function connect() {
    clearTimeout(retry);
    source?.close();
    source = new EventSource(events + "&from=" + encodeURIComponent(last));
    const on = (name, act) => source.addEventListener(name, (event) => {
      if (event.lastEventId) last = event.lastEventId;
      act(JSON.parse(event.data));
    });
    on("begun", () => { wait = FIRST_TRY; say("Live", "on"); });
    on("entry", take);
    on("caught", ({ aside }) => say("Live" + (came ? ", " + came + " new" : "") + (aside ? ", " + aside + " elsewhere" : ""), "on"));
    on("moved", ({ why }) => reload(why === "branch" ? "The conversation went on in another branch." : "The session was rewritten."));
    on("gone", () => reload("The session is no longer here."));
    on("failed", ({ sentence }) => { say(sentence, "off"); source.close(); again(); });
    source.onerror = () => {
      say("Not connected", "off");
      if (source.readyState === EventSource.CLOSED) again();
    };
  }

  function again() {
    clearTimeout(retry);
    if (isOver || document.hidden) return;
    retry = setTimeout(connect, wait);
    wait = Math.min(LAST_TRY, wait * 2);
  }

  if (!events) return say("Not live: its ids are too long", "off");
  // A browser has six connections for all pages, and a hidden page needs none.
  document.addEventListener("visibilitychange", () => {
    if (isOver) return;
    if (!document.hidden) return connect();
    source?.close();
    clearTimeout(retry);
  });
  if (!document.hidden) connect();
})();
`;
