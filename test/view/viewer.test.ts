/** The output of `view`: its pages, hostile sessions in them, and entries that come while a page is open. */

import { appendFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { FileLog } from "../../src/storage/log/file-log.ts";
import { renderMarked } from "../../src/view/frame.ts";
import { fileOf, sessionFile } from "../support/cases.ts";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { assistantText, chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { builtPage } from "../support/pages.ts";
import { PAYLOADS, sessionSaying } from "../support/payloads.ts";
import { imprint } from "../support/proof.ts";
import { Random } from "../support/random.ts";
import { type Json, type Place, serveHere, stopTimers, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";
import { type EventReader, request, untilSo, type Viewing, view, watchedThroughKills } from "../support/viewing.ts";

// The verb loads it when it is asked for, which takes longer than a test may.
import "../../src/view/main.ts";

const ELEMENTS = (
  "html head meta title link body a nav main h1 h2 p form label input select option button ul li span mark time div table " +
  "thead tbody tr th td dl dt dd figure figcaption svg g rect"
).split(" ");
/** Addresses that stay below the folder of all addresses, and within a page. */
const OWN_ADDRESS = /^(?:\.\/|costs|session|family)?(?:\?[\w.~%*&=+-]*)?(?:#[\w.%-]*)?$/;

/** Reads a page as a browser builds it; fails for whatever could run, load or lead elsewhere. */
function lookAt(html: string) {
  const { elements, text } = builtPage(html);
  const links: string[] = [];
  for (const { tagName, attrs } of elements) {
    expect(ELEMENTS).toContain(tagName);
    for (const { name, value } of attrs) {
      expect(name).not.toMatch(/^on|^style$|^src/);
      if (name === "href" && value.includes("?")) links.push(value);
      if ((name === "href" && !/\.css$|^#view\.main$/.test(value)) || name === "action")
        expect(value).toMatch(OWN_ADDRESS);
    }
  }
  return { text, links, elements: elements.map(({ tagName }) => tagName) };
}

function viewed(place: Place, ...args: string[]): Promise<Viewing> {
  return view(place, ["--session-dir", place.cwd, ...args]);
}

async function pageAt(viewing: Viewing, address: string) {
  const { status, text } = await viewing.get(address);
  expect([address, status]).toEqual([address, 200]);
  return lookAt(text);
}

describe("pages", () => {
  test("the list is cut into pages, and every session is on one of them", SYSTEM, async () => {
    const place = temporaryPlace();
    for (let n = 0; n < 53; n++) sessionFile(place, chain(1), `s${n}.jsonl`, headerText({ id: `session-${n}` }));
    const before = readdirSync(place.cwd);
    const viewing = await viewed(place);
    const found: string[] = [];
    let pages = 0;
    for (let next: string | undefined = ""; next !== undefined; pages++) {
      const { links } = await pageAt(viewing, next);
      found.push(...links.flatMap((link) => /^session\?.*id=([^&#]*)/.exec(link)?.[1] ?? []));
      next = links.find((link) => link.includes("cursor="))?.replace(/^\.\//, "");
    }
    expect([pages, new Set(found).size, found.length]).toEqual([2, 53, 53]);
    expect((await viewing.get("?cursor=nonsense")).status).toBe(410);
    expect((await pageAt(viewing, "?sort=name&archived=1")).text).toContain("0 sessions");
    expect(readdirSync(place.cwd)).toEqual(before);
  });

  test("forks stand below what they come from, and search leads to the entry with words and calls", async () => {
    const place = temporaryPlace();
    const call = { type: "toolCall", id: "c", name: "bash", arguments: { command: "npm run frobnicate" } };
    const lines = [
      userText(id(0), null, "about *stars* & <moons>"),
      entryText("message", id(1), id(0), { message: { role: "assistant", content: [call], model: "m" } }),
      entryText("session_info", id(2), id(1), { name: "Heavens" }),
    ];
    const parent = sessionFile(place, lines, "parent.jsonl", headerText({ id: "parent-1", cwd: "/work/sky" }));
    const child = headerText({ id: "child-1", cwd: "/work/sky", parentSession: parent });
    sessionFile(place, [...chain(1), userText(id(1), id(0), "the fork")], "child.jsonl", child);
    sessionFile(place, chain(1), "other.jsonl", headerText({ id: "other-1", cwd: "/elsewhere" }));
    const viewing = await viewed(place);
    const all = await pageAt(viewing, "");
    expect(all.text).toMatch(/Heavens.*say a0000000.*fork of Heavens/s);
    expect(all.elements.filter((name) => name === "ul")).toHaveLength(2);
    expect((await pageAt(viewing, "?cwd=/work/sky")).text).not.toContain("/elsewhere");
    expect((await pageAt(viewing, "?named=1")).text).toContain("1 session");
    const family = await pageAt(viewing, "family?id=child-1");
    expect(family.text).toMatch(/2 sessions.*Heavens.*say a0000000.*this one/s);
    expect((await viewing.get("family?id=unknown")).status).toBe(404);
    const said = await pageAt(viewing, `?q=${encodeURIComponent("<moons>")}`);
    expect(said.text).toContain("about *stars* & <moons>");
    expect(said.links.some((link) => link.endsWith(`#${id(0)}`))).toBe(true);
    expect((await pageAt(viewing, "?q=frobnicate")).links.some((link) => link.endsWith(`#${id(1)}`))).toBe(true);
    expect((await pageAt(viewing, "?q=nowhere+said")).text).toContain("Found nowhere.");
  });

  test("the words of a search are marked as the search reads them, the longest first", () => {
    expect(renderMarked("Foo bar <foobar>", 'foo "foo bar" "unclosed')).toBe(
      "<mark>Foo bar</mark> &lt;<mark>foo</mark>bar&gt;",
    );
  });

  test("costs by day, model and project, with a chart", async () => {
    const place = temporaryPlace();
    const days = ["2026-01-20", "2026-01-22", "2026-01-24"];
    const lines = days.map((day, n) => {
      const usage = {
        input: 1000,
        output: 200,
        cacheRead: 0,
        cacheWrite: 0,
        totalTokens: 1200,
        cost: { total: n + 0.25 },
      };
      const timestamp = `${day}T12:00:00Z`;
      const said = { role: "assistant", provider: "anthropic", model: `model <${n}>`, content: [], usage };
      const message = { ...said, timestamp: Date.parse(timestamp) };
      return entryText("message", id(n), n === 0 ? null : id(n - 1), { timestamp, message });
    });
    sessionFile(place, lines, "s.jsonl", headerText({ cwd: "/work/<b>" }));
    const viewing = await viewed(place);
    const seen = await pageAt(viewing, "costs?days=all");
    expect(seen.text).toContain("$3.75");
    for (const text of ["anthropic/model <2>", "/work/<b>", ...days, "$2.25"]) expect(seen.text).toContain(text);
    // A column for each day of two weeks, also for those without cost.
    expect(seen.elements.filter((name) => name === "rect")).toHaveLength(28);
    expect((await pageAt(viewing, "costs?days=7&cwd=/nowhere")).text).toContain("Nothing was spent");
  });

  describe("of hostile sessions", SYSTEM, () => {
    acrossTiers(test, [32, 8])("names, words, directories, ids and addresses do nothing, one in %i", async (each) => {
      const place = temporaryPlace();
      for (const [n, payload] of PAYLOADS.entries()) {
        if (n % each !== 0) continue;
        const header = headerText({ id: `evil-${n}`, cwd: payload, parentSession: payload });
        const named = entryText("session_info", id(1), id(0), { name: payload });
        const session = [userText(id(0), null, `evil ${payload}`), ...(n % (2 * each) === 0 ? [named] : [])];
        sessionFile(place, session, `s${n}.jsonl`, header);
      }
      fileOf(place, sessionSaying(PAYLOADS.slice(0, 160 / each).join("\n\n")), "saying.jsonl");
      sessionFile(place, chain(1), "odd.jsonl", headerText({ id: '../"><script>alert(1)</script>&token=x\n' }));
      const viewing = await viewed(place);
      const { links } = await pageAt(viewing, "");
      await pageAt(viewing, "?q=evil");
      await pageAt(viewing, "?q=alert&output=1");
      await pageAt(viewing, "costs?days=all");
      for (const payload of PAYLOADS.slice(0, 40 / each)) {
        const text = encodeURIComponent(payload.replace(/[\ud800-\udfff]/gu, "?"));
        await pageAt(viewing, `?q=${text}&cwd=${text}&sort=${text}`);
        for (const wrong of [`?cursor=${text}`, `family?id=${text}`, `session?path=${text}&id=${text}`, `${text}`]) {
          const answered = await viewing.get(wrong);
          expect([wrong, answered.status >= 400 && answered.status < 500]).toEqual([wrong, true]);
          lookAt(answered.text);
        }
      }
      for (const link of links.filter((one) => one.startsWith("session?")).slice(0, 5))
        expect((await viewing.get(link)).status).toBe(200);
      expect(viewing.said()).not.toMatch(/went wrong|TypeError/);
    });
  });

  const NO_SESSIONS = "{cwd} {cwd}/secret.txt /etc/passwd ../../etc/passwd /dev/zero \0 ~ /proc/self/environ";
  test.each(NO_SESSIONS.split(" "))("only sessions are shown, whatever path is asked for: %j", async (path) => {
    const place = temporaryPlace();
    fileOf(place, "secret", "secret.txt");
    const viewing = await viewed(place);
    for (const page of ["session", "events"]) {
      const asked = encodeURIComponent(path.replace("{cwd}", place.cwd));
      const { status, text } = await viewing.get(`${page}?path=${asked}&from=W251bGwsbnVsbF0`);
      expect(status).toBeGreaterThanOrEqual(400);
      expect(text).not.toMatch(/secret$|root:|PATH=/m);
    }
  });

  test("a session's page has the export's policy, ours, and nothing inline of ours", async () => {
    const place = temporaryPlace();
    const lines = [...chain(2), "}{", userText(id(3), id(2))];
    const file = fileOf(place, `${fileText(headerText(), ...lines)}{"type":"mess`, "damaged.jsonl");
    const before = imprint(file);
    const viewing = await viewed(place);
    const { answered, text } = await viewing.page(file);
    const policy = String(answered.headers["content-security-policy"]);
    expect(policy).toMatch(/^default-src 'none'; /);
    expect(policy).toMatch(/script-src [^;]*'self'(?:;|$)/);
    expect(policy).toMatch(/style-src 'sha256-[^;]* 'self'(?:;|$)/);
    for (const part of ["connect-src 'self'", "frame-ancestors 'none'"]) expect(policy).toContain(part);
    expect(policy).not.toMatch(/unsafe|\*|https?:/);
    expect(text).not.toContain("http-equiv");
    expect(text).toContain("3 damaged places");
    expect(text).toContain('<script src="live.js" defer></script>');
    expect((await viewing.get("live.js")).headers["content-type"]).toMatch(/^text\/javascript/);
    expect(imprint(file)).toEqual(before);
  });

  test("the verb opens the session that is named, and takes no port that is taken", async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(2), "s.jsonl", headerText({ id: "abcdef01-named" }));
    const viewing = await viewed(place, "abcdef01", "--idle", "1h");
    const { pathname, searchParams } = new URL(viewing.url);
    expect(pathname).toMatch(/\/session$/);
    expect(searchParams.get("path")).toBe(file);
    expect((await viewing.get(`session?${new URLSearchParams({ path: file })}`)).text).toContain(`say ${id(1)}`);
    const { port } = new URL(viewing.url);
    expect((await runHere(place, ["view", "--port", port])).status).toBe(2);
    viewing.interrupt();
    expect(await viewing.status).toBe(0);
    await expect(request(viewing.url)).rejects.toThrow("ECONNREFUSED");
  });
});

function entriesOf(reader: EventReader): Json[] {
  return reader.events.filter(({ name }) => name === "entry").map(({ data }) => data);
}

describe("as events", () => {
  beforeEach(() => stopTimers());

  /** The page of a session, and what comes to it from then on. */
  async function watched(place: Place, file: string) {
    const viewing = await view(place);
    const page = await viewing.page(file);
    const reader = viewing.follow(file, page.from);
    await untilSo(() => reader.has("begun"));
    return { viewing, file, ...page, reader };
  }

  async function watchedChain(count: number) {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(count));
    const before = imprint(file);
    const watching = await watched(place, file);
    expect(imprint(file)).toEqual(before);
    return watching;
  }

  async function expectMoved(viewing: Viewing, reader: EventReader, file: string, why: string, text: string) {
    await untilSo(() => reader.isOver);
    expect(reader.events.at(-1)).toMatchObject({ name: "moved", data: { why } });
    expect((await viewing.page(file)).text).toContain(text);
  }

  acrossTiers(test, ["jsonl", "v2"])("what another server writes in %s comes as the page draws it", async (store) => {
    const server = serveHere(["--store", store, "--events", "none"]);
    await server.result("append", { entries: [user("begin"), toolCall("call 1")] });
    const { sessionFile: file } = await server.result("get_state");
    const { text, reader } = await watched(server.place, file);
    expect(text).toContain("begin");
    const shown = (text: string) => untilSo(() => JSON.stringify(reader.events).includes(text), text);
    const { entryIds } = await server.result("append", { entries: [toolResult("call 1", "the <b>output")] });
    await shown("the &lt;b");
    // The result comes within its call, which takes the place of the one without.
    const [result] = entriesOf(reader);
    expect(text).toContain(`id="${result.anchor}"`);
    expect(result.html).toContain(`class="result" id="${entryIds[0]}"`);
    await server.result("append", { entries: [assistant("So **that** is it."), user("go on")] });
    await shown("go on");
    const [, answer, question] = entriesOf(reader);
    expect(answer.html).toContain("<strong>that</strong>");
    // The model is named where it changes, and an answer that goes on has no heading of its own.
    expect(answer.html).toContain('class="assistant on"');
    expect(answer.html).not.toContain('class="model"');
    expect(question.html).toContain('class="user"');
    expect(reader.events.at(-1)?.name).toBe("caught");
  });

  test("a connection that breaks misses nothing and gets nothing twice", async () => {
    const { viewing, file, from, reader: first } = await watchedChain(2);
    let reader = first;
    const seen: string[] = [];
    let last: string | undefined;
    for (let round = 0; round < 4; round++) {
      appendFileSync(file, fileText(...chain(20, 2 + round * 20)));
      // Broken while entries come, and before any.
      await untilSo(() => round === 2 || entriesOf(reader).length > 5);
      seen.push(...entriesOf(reader).map(({ anchor }) => anchor));
      last = reader.lastId ?? last;
      reader.kill();
      reader = viewing.follow(file, from, last);
    }
    await untilSo(() => seen.length + entriesOf(reader).length >= 80);
    seen.push(...entriesOf(reader).map(({ anchor }) => anchor));
    expect(seen).toEqual(Array.from({ length: 80 }, (_, i) => id(i + 2)));
  });

  test("what came between page and connection comes, and where another branch goes on the page is to be loaded again", async () => {
    const { viewing, file, from } = await watchedChain(4);
    appendFileSync(file, fileText(assistantText("bbbb0001", id(3))));
    const reader = viewing.follow(file, from);
    await untilSo(() => entriesOf(reader).length === 1);
    appendFileSync(file, fileText(userText("bbbb0004", id(0), "elsewhere")));
    await expectMoved(viewing, reader, file, "branch", "elsewhere");
  });

  test("a file that is replaced is followed further, and one without the reader's entries is told", async () => {
    const { viewing, file, reader } = await watchedChain(4);
    const replace = (...lines: string[]): void => {
      writeFileSync(`${file}.new`, fileText(headerText(), ...lines));
      renameSync(`${file}.new`, file);
    };
    replace(...chain(4), userText("cccc0001", id(3), "added"));
    await untilSo(() => entriesOf(reader).length === 1);
    replace(...chain(2), userText("cccc0002", id(1), "rewritten"));
    await expectMoved(viewing, reader, file, "rewritten", "rewritten");
  });

  test("a session that is deleted, or archived, while it is watched", async () => {
    const server = serveHere(["--events", "none"]);
    await server.result("append", { entries: [user("begin"), assistant("b")] });
    const { sessionFile: file, sessionId } = await server.result("get_state");
    await server.result("close_session");
    const { viewing, reader } = await watched(server.place, file);
    await server.result("archive_session", { sessionPath: file });
    await untilSo(() => reader.isOver);
    expect(reader.events.at(-1)?.name).toBe("gone");
    // The page leads to where it is now.
    const moved = await viewing.get(`session?path=${encodeURIComponent(file)}&id=${sessionId}`);
    expect(moved.status).toBe(303);
    const location = String(moved.headers.location);
    expect((await viewing.get(location)).text).toContain("begin");
    rmSync(new URL(location, viewing.root).searchParams.get("path") as string);
    const gone = await viewing.get(location);
    expect([gone.status, gone.text]).toEqual([404, expect.stringContaining("<h1>This cannot be shown</h1>")]);
  });

  test("entries with odd ids and hostile words, and places that are none", async () => {
    const { viewing, file, from, reader } = await watchedChain(1);
    const odd = 'a\n\nevent: gone\u2028"><script>alert(1)</script>';
    const said = '</article><script>alert(1)</script><img src=x onerror="alert(1)">\r\n\r\nid: 1';
    appendFileSync(file, fileText(userText(odd, id(0), said)));
    await untilSo(() => reader.events.at(-1)?.name === "caught");
    appendFileSync(file, fileText(userText("bbbb0002", odd, "after the odd one")));
    await untilSo(() => JSON.stringify(reader.events).includes("after the odd one"));
    const [first] = entriesOf(reader);
    expect(first.anchor).toMatch(/^id\.[\w.-]+$/);
    expect(first.html).not.toMatch(/<script>|<img/);
    const again = viewing.follow(file, from, reader.events.find(({ name }) => name === "entry")?.id);
    await untilSo(() => entriesOf(again).length === 1);
    expect(entriesOf(again)[0].anchor).toBe("bbbb0002");
    for (const wrong of ["", "x", "W10", Buffer.from('["nowhere",null]').toString("base64url")]) {
      const refused = viewing.follow(file, wrong);
      await untilSo(() => refused.isOver);
      expect(refused.status === 400 || refused.has("moved")).toBe(true);
    }
  });

  describe("kills of the writer and of the reader", SYSTEM, () => {
    acrossTiers(test, ["jsonl", "v2"])("lose nothing, in %s", async (store) => {
      const { shown, expected, acknowledged } = await watchedThroughKills(new Random(7), store, 1, 8);
      expect(acknowledged).toBe(8);
      expect(expected.length).toBeGreaterThanOrEqual(acknowledged);
      expect(shown).toEqual(expected);
    });
  });
});

test("a session too large for a page is refused with the path from its last compaction", SYSTEM, async () => {
  const place = temporaryPlace();
  const compaction = { summary: "what was", firstKeptEntryId: id(2), tokensBefore: 1 };
  sessionFile(place, [...chain(3), entryText("compaction", id(3), id(2), compaction)]);
  const viewing = await viewed(place);
  const { links } = await pageAt(viewing, "");
  const session = links.find((link) => link.startsWith("session?")) as string;
  vi.spyOn(FileLog.prototype, "length").mockReturnValue(100 << 20);
  const { status, text } = await viewing.get(session);
  expect(status).toBe(413);
  const recent = lookAt(text).links.find((link) => link.includes("part=recent")) as string;
  const shown = await viewing.get(recent);
  expect([shown.status, shown.text.includes("2 entries before these")]).toEqual([200, true]);
});
