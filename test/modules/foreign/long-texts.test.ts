/** Texts of megabytes in other agents' files: their form in ours, to the byte. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { decodeText } from "../../../src/core/json/json.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { ClaudeWriter } from "../../support/foreign/claude.ts";
import { put } from "../../support/lifecycle.ts";
import { temporaryFolder } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { foreignSessionOn } from "./support/checks.ts";

/** The text that stands for a long one while it is written; a file may have it, too. */
const MARK = "\u0000long text\u0000";

acrossTiers(test, ["plain words ", "a line\n", 'é "quoted" \\ ', "😀", "\ud800", "x😀\udc00"])(
  "%j, many times",
  (part) => {
    const long = part.repeat(1_200_000 / part.length);
    const w = new ClaudeWriter();
    for (const text of [long, `x${long}`, MARK]) w.ask(text);
    const last = JSON.parse(w.lines.at(-1) as string);
    last.message.content = [MARK, long, MARK].map((text) => ({ type: "text", text }));
    const home = temporaryFolder();
    const file = put(join(home, "session.jsonl"), `${[...w.lines.slice(0, -1), JSON.stringify(last)].join("\n")}\n`);
    const { log } = foreignSessionOn(realDisk, file, join(home, "state"));
    const lines = Array.from({ length: log.nodes.count }, (_, at) => decodeText(log.read(at)));
    for (const line of lines) expect(JSON.stringify(JSON.parse(line)) === line).toBe(true);
    const contents = lines.map((line) => JSON.parse(line).message.content);
    expect(contents.slice(0, 2).map((content, n) => content === ["", "x"][n] + long)).toEqual([true, true]);
    expect(contents[2].map(({ text }: { text: string }) => text === MARK || text === long)).toEqual([true, true, true]);
    log.close();
  },
);
