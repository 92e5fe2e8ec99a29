/** Unchanged bytes are kept: lines already there, and members of drafts as the host sent them. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { put } from "../support/lifecycle.ts";
import { fileText, linesOf } from "../support/lines.ts";
import { HereLives, sessionFiles } from "../support/proof.ts";
import type { Framing } from "../support/server.ts";

const TIME = "2026-01-24T16:22:26.831Z";

/** Members that a parser would give back otherwise than they came. */
const ODD_MEMBERS = [
  '"float":1.0',
  '"huge":1e400',
  '"tiny":-1E-400',
  '"exact":9007199254740993',
  '"zero":-0',
  '"twice":1,"twice":{"b":1,"a":[1.50,2E+5],"b":2}',
  '"__proto__":{"toString":null}',
  '"10":1,"9":2,"":3',
  '"escaped":"\\u0041\\/\\ud83d\\ude00\\ud800 \\u2028"',
  '"spaced" : [ 1 , { "x" :  1.10 } ]',
  '"unicode":"é\u0085👩‍👩‍👧"',
];

/** Entries that are odd as a whole; `id`s and parents make one chain from the root. */
const ODD_LINES = [
  `{"type":"message","id":"00000001","parentId":null,"timestamp":"${TIME}","message":{"role":"user","content":"go","n":1.0,"n":1e400}}`,
  `{"type":"unheard_of","id":"00000002","parentId":"00000001","timestamp":"${TIME}",${ODD_MEMBERS.join(",")}}`,
  `{"type":"message","message":{"content":[{"text":"1.0","type":"text","w":1.0}],"role":"assistant","x":-0},"timestamp":"${TIME}","parentId":"00000002","id":"00000003"}`,
  `{"type":"custom","customType":"thing","data":{"exact":9007199254740993},"id":"00000004","parentId":"00000003","timestamp":"${TIME}"}`,
  `{"type":"label","id":"00000005","parentId":"00000004","timestamp":"${TIME}","targetId":"00000001","label":"first","odd":1.0}`,
  `{"type" : "message", "id" : "00000006", "parentId" : "00000005", "timestamp" : "${TIME}", "message" : {"role":"user","content":"on"}, "n" : 1.00 }`,
  `{"type":"compaction","id":"00000007","parentId":"00000006","timestamp":"${TIME}","summary":"s","firstKeptEntryId":"00000005","tokensBefore":1.0e3,"details":{"z":1,"a":2.0,"z":3}}`,
  `{"type":"message","id":"00000008","parentId":"00000007","timestamp":"${TIME}","message":{"role":"user","content":"end"},"id":"00000008"}`,
];

const HEADER = `{"type":"session","version":3,"id":"01991f6e-1f1d-7c3e-b0a4-0242ac120002","timestamp":"${TIME}","cwd":"/p","odd":1.0,"odd":9007199254740993}`;

/** Lives with a file of these lines. */
function withFile(lines: readonly string[], framing: Framing = "lines"): { lives: HereLives; file: string } {
  const lives = new HereLives({ framing });
  return { lives, file: put(join(lives.place.home, "files/odd.jsonl"), fileText(...lines)) };
}

const linesIn = (file: string): string[] => linesOf(readFileSync(file));

describe("lines already there", () => {
  test("stay as they are under append, label, name, branch and the marker of leaving", async () => {
    const { lives, file } = withFile([HEADER, ...ODD_LINES]);
    const wire = await lives.start(["--session", file]);
    await wire.result("append", { entries: [{ type: "message", message: { role: "user", content: "more" } }] });
    await wire.result("set_label", { entryId: "00000003", label: "x" });
    await wire.result("set_session_name", { name: "odd" });
    await wire.result("branch", { entryId: "00000003", summary: { summary: "left" } });
    await wire.result("compact_append", { summary: "s", firstKeptEntryId: "00000002", tokensBefore: 1 });
    await wire.result("branch", { entryId: "00000002" });
    await lives.end();
    const lines = linesIn(file);
    expect(lines.slice(0, 1 + ODD_LINES.length)).toEqual([HEADER, ...ODD_LINES]);
    const types = lines.slice(1 + ODD_LINES.length).map((line) => JSON.parse(line).type);
    expect(types.join(" ")).toBe("message label session_info branch_summary compaction custom");
  });

  test("are sent as they are, to both dialects and in both framings", async () => {
    for (const [framing, dialect] of [
      ["lines", "pi"],
      ["headers", "jsonrpc"],
    ] as const) {
      const { lives, file } = withFile([HEADER, ...ODD_LINES], framing);
      const wire = await lives.start(["--session", file, "--framing", framing, "--dialect", dialect]);
      const chunks: Buffer[] = [];
      wire.output.on("data", (chunk: Buffer) => chunks.push(chunk));
      const nested = { format: "nested" };
      for (const method of ["get_entries", "get_path", "get_tree"])
        if (dialect === "pi") wire.send({ id: 1, type: method, ...nested });
        else wire.ask(method, method, method === "get_tree" ? nested : {});
      await lives.end();
      // get_entries, get_path and the nested tree hold each line.
      const said = Buffer.concat(chunks).toString("utf8");
      for (const line of ODD_LINES) expect(said.split(line).length - 1, line).toBe(3);
    }
  });

  test.each(["clone", "fork"])(
    "go into a %s as they are; past labels only parentId and the kept id change",
    async (how) => {
      const { lives, file } = withFile([HEADER, ...ODD_LINES]);
      const wire = await lives.start(["--session", file]);
      const params = how === "fork" ? { entryId: "00000008", position: "at" } : {};
      const { sessionFile } = await wire.result(how, params);
      await lives.end();
      expect(linesIn(file)).toEqual([HEADER, ...ODD_LINES]);
      const copied = linesIn(sessionFile).slice(1);
      expect(copied.slice(0, 7)).toEqual([
        ...ODD_LINES.slice(0, 4),
        ODD_LINES[5].replace('"00000005"', '"00000004"'),
        ODD_LINES[6].replace('"firstKeptEntryId":"00000005"', '"firstKeptEntryId":"00000006"'),
        ODD_LINES[7],
      ]);
      expect(copied).toHaveLength(8);
      expect(JSON.parse(copied[7])).toMatchObject({ type: "label", targetId: "00000001", label: "first" });
    },
  );
});

describe("drafts", () => {
  /** The lines of the entries that these requests, as JSON texts, made of a new session. */
  async function written(requests: readonly string[], framing: Framing = "lines"): Promise<string[]> {
    const lives = new HereLives({ framing });
    const wire = await lives.start([]);
    for (const request of requests) wire.send(request);
    await lives.end();
    return linesIn(sessionFiles(lives.place.home)[0]).slice(1);
  }

  const inPi = (text: string): string => `{"id":"a","type":"append","entries":[${text}]}`;
  const inJsonRpc = (text: string): string =>
    `{"jsonrpc":"2.0","id":"a","params":{"entries":[${text}]},"method":"append"}`;

  /** Returns the rest of a line after the timestamp, and after the batch if there is one. */
  function rest(line: string): string {
    const base = /^\{"type":"[a-z_]+","id":"[0-9a-f]{8}","parentId":(?:null|"[0-9a-f]{8}"),"timestamp":"[^"]*"/.exec(
      line,
    );
    return line.slice(base?.[0].length).replace(/^,"_batch":\{[^}]*\}/, "");
  }

  test.each([
    ["Pi's dialect", inPi],
    ["JSON-RPC", inJsonRpc],
  ])("in a frame of many lines lose nothing but the line breaks, in %s", async (_, request) => {
    const text = '{\n  "type": "unheard_of",\r\n  "list": [\n    1.0,\n    2\n  ],\n  "text": "a\\nb"\n}';
    const [line] = await written([request(text)], "headers");
    expect(rest(line)).toBe(',"list": [     1.0,     2   ],"text": "a\\nb"}');
  });

  test("in a batch of requests keep theirs", async () => {
    const second = inJsonRpc('{"type":"odd","n":1e400}').replace('"a"', "2");
    const lines = await written([`[${inJsonRpc('{"type":"odd","n":1.0}')}, ${second}]`]);
    expect(lines.map(rest)).toEqual([',"n":1.0}', ',"n":1e400}']);
  });

  test("and details of summaries, replacements and usage are written as they were sent", async () => {
    const details = `{${ODD_MEMBERS.join(",")}}`;
    const request = (method: string, params: string): string =>
      `{"jsonrpc":"2.0","id":"${method}","method":"${method}","params":${params}}`;
    const [, compaction, edit, summary] = await written([
      request("append", `{"entries":[{"type":"message","id":"first","message":{"role":"user","content":"a"}}]}`),
      request(
        "compact_append",
        `{"details":${details},"summary":"s","usage":{"input":1.0},"firstKeptEntryId":null,"tokensBefore":10}`,
      ),
      request("edit_context", `{"targetId":"first","replacement":{"content":"b","more":1.0}}`),
      request("branch", `{"entryId":"first","summary":{"details":${details},"summary":"left","usage":{"input":2.0}}}`),
    ]);
    for (const line of [compaction, summary]) expect(line).toContain(`"details":${details}`);
    expect(compaction).toContain('"usage":{"input":1.0}');
    expect(edit).toContain('"replacement":{"content":"b","more":1.0}');
    expect(summary).toContain('"usage":{"input":2.0}');
  });
});
