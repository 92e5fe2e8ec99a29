/** F: cutting bytes into messages. */

import { expect } from "vitest";
import { call, cases } from "../../support/cases.ts";
import { user } from "../../support/drafts.ts";
import {
  type Framing,
  frame,
  type Json,
  serveHere,
  serveInput,
  spawnServer,
  temporaryPlace,
} from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";

const QUIET = ["--no-session", "--events", "none"];
const FRAMINGS: readonly Framing[] = ["lines", "headers"];

/** What Node 24's readline, and other readers of lines, split at. */
const LINE_ENDS = /\r\n|[\n\r\v\u0085\u2028\u2029]/;

async function parseErrorThenServes(framing: Framing, bytes: string | Uint8Array): Promise<void> {
  const server = serveHere(["--framing", framing, "--dialect", "jsonrpc", ...QUIET], { framing });
  server.write(bytes);
  server.send(call("after", "get_state"));
  const replies = [await server.next()];
  while (replies.at(-1).id !== "after") replies.push(await server.next());
  expect(replies.at(-1).result.entryCount).toBe(0);
  expect(replies.slice(0, -1)).toMatchObject([{ id: null, error: { code: -32700 } }]);
}

cases("F", [
  {
    id: "F1",
    fault: "a request split at every byte, inside UTF-8 and inside the header",
    async run() {
      for (const framing of FRAMINGS) {
        const server = serveHere(["--framing", framing, ...QUIET], { framing });
        const request = Buffer.from(frame(framing, call(7, "get_entry", { entryId: "é𝄞€" })));
        server.write(request);
        const expected = await server.next();
        expect(expected.error.data.entryId).toBe("é𝄞€");
        for (let at = 1; at < request.length; at++) {
          server.write(request.subarray(0, at));
          server.write(request.subarray(at));
          expect(await server.next(), `${framing} split at ${at}`).toEqual(expected);
        }
      }
    },
  },
  {
    id: "F2",
    fault: "1,000 requests in one write",
    async run() {
      for (const framing of FRAMINGS) {
        const server = serveHere(QUIET, { framing });
        server.send(...Array.from({ length: 1000 }, (_, id) => call(id, "get_last_assistant_text")));
        expect((await server.take(1000)).map(({ id }) => id)).toEqual(Array.from({ length: 1000 }, (_, id) => id));
      }
    },
  },
  {
    id: "F3",
    fault: "characters that end lines for some readers, inside strings",
    async run() {
      const text = "a\u2028b\u2029c\u0085d\ve\rf";
      const place = temporaryPlace();
      // As a host might send them: bare, where JSON allows that.
      const append = JSON.stringify(call(1, "append", { entries: [user(text)] }));
      expect(append).toContain("\u2028");
      const read = JSON.stringify(call(2, "get_messages"));
      const { stdout } = await serveInput(`${append}\n${read}\n`, ["--events", "none"], place);
      const records = stdout.split(/\r\n|[\n\r\v\u2028\u2029]/).filter((line) => line !== "");
      expect(records).toHaveLength(2);
      expect(JSON.parse(records[1]).result.messages[0].content).toBe(text);
      expect(stdout).not.toMatch(/[\u2028\u2029]/);
      expect("\u0085").toMatch(LINE_ENDS);
    },
  },
  {
    id: "F4",
    fault: "lines that end with CR LF, and blank lines",
    async run() {
      const server = serveHere(QUIET);
      server.write(
        `\r\n\n  \r\n${JSON.stringify(call(1, "get_state"))}\r\n\n\r\n${JSON.stringify(call(2, "get_state"))}\r\n`,
      );
      expect((await server.take(2)).map(({ id, result }) => [id, result.entryCount])).toEqual([
        [1, 0],
        [2, 0],
      ]);
      expect((await server.finish()).messages).toEqual([]);
    },
  },
  {
    id: "F5",
    fault: "a line of a log between requests",
    run: () => parseErrorThenServes("lines", "[info] started in 12 ms\n"),
  },
  {
    id: "F6",
    fault: "Content-Length missing, negative, no number, huge, or with bare line feeds",
    async run() {
      for (const header of [
        "Content-Type: x\r\n\r\n",
        "Content-Length: -5\r\n\r\n",
        "Content-Length: NaN\r\n\r\n",
        "Content-Length: 99999999999999\r\n\r\n",
        "no header at all\r\n",
      ])
        await parseErrorThenServes("headers", header);
      const server = serveHere(QUIET, { framing: "headers" });
      const request = JSON.stringify(call(1, "get_state"));
      server.write(`Content-Length: ${request.length}\n\n${request}`);
      expect((await server.next()).result.entryCount).toBe(0);
      // The end of the input inside of what was announced ends the process.
      const { stdout, status } = await serveInput("Content-Length: 4000000000\r\n\r\n{}", QUIET);
      expect(stdout).toContain("message_too_large");
      expect(status).toBe(0);
    },
  },
  {
    id: "F8",
    fault: "a request of one byte over the limit",
    async run() {
      for (const framing of FRAMINGS) {
        const server = serveHere([...QUIET, "--max-message-bytes", "2000"], { framing });
        const sized = (id: number, size: number): string => {
          const bare = JSON.stringify(call(id, "get_state", { _meta: { filler: "" } })).length;
          return JSON.stringify(call(id, "get_state", { _meta: { filler: "x".repeat(size - bare) } }));
        };
        server.send(sized(1, 2000), sized(2, 2001), sized(3, 200_000), call(4, "get_state"));
        const [at, over, far, after] = await server.take(4);
        expect(at.result.entryCount).toBe(0);
        for (const [id, reply] of [over, far].entries())
          expect(reply).toMatchObject({ id: id + 2, error: { data: { name: "message_too_large", limit: 2000 } } });
        expect(after.result.entryCount).toBe(0);
      }
    },
  },
  {
    id: "F9",
    fault: "a last request without line feed, then the end of input",
    async run() {
      const { stdout, status } = await serveInput(JSON.stringify(call(1, "get_last_assistant_text")), QUIET);
      expect([JSON.parse(stdout).id, status]).toEqual([1, 0]);
    },
  },
  {
    id: "F11",
    fault: "a module that writes to the console, to stdout, or warns",
    options: SYSTEM,
    async run() {
      const script =
        // It begins once the program serves.
        "setInterval(() => { if (process.listenerCount('SIGTERM') === 0) return; " +
        "console.log('stray'); process.stdout.write('stray'); process.emitWarning('stray'); }, 1).unref()";
      const place = temporaryPlace();
      const env = { ...place.variables, NODE_OPTIONS: `--import "data:text/javascript,${encodeURIComponent(script)}"` };
      const server = spawnServer(QUIET, "lines", { ...place, variables: env });
      // The host's end fails on anything that is no frame.
      for (let n = 0; n < 200; n++) expect((await server.result("get_state")).entryCount).toBe(0);
      expect((await server.finish()).messages).toEqual([]);
      expect(server.stderr).toContain("stray");
    },
  },
  {
    id: "F12",
    fault: "a byte order mark before the first message",
    async run() {
      for (const framing of FRAMINGS) {
        const server = serveHere(QUIET, { framing });
        server.write(Buffer.of(0xef, 0xbb, 0xbf));
        expect((await server.result("get_state")).entryCount).toBe(0);
      }
    },
  },
  {
    id: "F13",
    fault: "bytes that are not UTF-8",
    async run() {
      const bad = Buffer.from(JSON.stringify(call(1, "get_entry", { entryId: "?" })));
      bad[bad.indexOf("?")] = 0xff;
      await parseErrorThenServes("lines", Buffer.concat([bad, Buffer.from("\n")]));
      await parseErrorThenServes("headers", Buffer.concat([Buffer.from(`Content-Length: ${bad.length}\r\n\r\n`), bad]));
    },
  },
  {
    id: "F14",
    fault: "framing that nobody named",
    async run() {
      for (const framing of FRAMINGS) {
        const server = serveHere(QUIET, { framing });
        await server.result("get_state");
        // Fixed from then on: the other framing is no message.
        server.write(`${frame(framing === "lines" ? "headers" : "lines", call(9, "get_state"))}\n`);
        const replies: Json[] = [await server.next()];
        server.send(call("after", "get_state"));
        while (replies.at(-1).id !== "after") replies.push(await server.next());
        expect(replies[0]).toMatchObject({ id: null, error: { code: -32700 } });
      }
    },
  },
]);
