/** The derivation of a large file, kept for the next process: the same session, for the same file only. */

import * as fs from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type Disk, type FileInfo, realDisk } from "../../../src/storage/fs/disk.ts";
import { ClaudeWriter, call, said } from "../../support/foreign/claude.ts";
import { put } from "../../support/lifecycle.ts";
import { temporaryFolder } from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";
import { entriesOf, fidelityOf, foreignSessionOn, requireSound } from "./support/checks.ts";

const PARTS = 45;

/** Bytes from which on a file's derivation is kept here; much less than the usual limit. */
const LONG = 100_000;

/** A session of 120 kB, or of 4.5 MB, whose last answer waits. */
function large(repeats = 200): ClaudeWriter {
  const w = new ClaudeWriter();
  const text = "a long text ".repeat(repeats);
  for (let n = 0; n < PARTS; n++) {
    w.ask(`Turn ${n} ${text}`);
    w.answer([said("I look."), call(`toolu_${n}`)]);
    w.result(`toolu_${n}`, `output ${n}`);
  }
  w.answer([said("At the end.")]);
  return w;
}

/** Puts a session. `worthKeeping`: bytes from which on a file's derivation is kept. */
function placed(text: string, worthKeeping: number | undefined = LONG) {
  const home = temporaryFolder();
  const file = put(join(home, "session.jsonl"), text);
  // A file that changed in this moment may change again under the same stamp.
  age(file);
  const state = join(home, "state");
  const folder = join(state, "foreign");
  return {
    file,
    state,
    /** Returns the file with the kept derivation; undefined without one. */
    kept(): string | undefined {
      const names = fs.existsSync(folder) ? fs.readdirSync(folder) : [];
      const name = names.find((one) => one.endsWith(".kept"));
      return name && join(folder, name);
    },
    open: () => foreignSessionOn(realDisk, file, state, worthKeeping),
  };
}

/** Waits until a stamp is sure to change with the next write. */
function age(file: string): void {
  const { mtimeMs } = fs.statSync(file);
  fs.utimesSync(file, mtimeMs / 1000 - 60, mtimeMs / 1000 - 60);
  const changed = fs.statSync(file).ctimeMs;
  while (Date.now() - changed < 25);
}

/** Opens and closes a session, so that it is kept, and returns all that is known of it. */
function seen(place: ReturnType<typeof placed>) {
  const session = place.open();
  const { header, damage } = session.log;
  const { leaf } = session.tree;
  const all = { entries: entriesOf(session), header, damage, fidelity: fidelityOf(session.log), leaf };
  session.close();
  return all;
}

test("it is the same session, and nothing is translated again", () => {
  const place = placed(`${large().lines.join("\n")}\n{"type":"user","uuid":\n`);
  const first = seen(place);
  const kept = place.kept() as string;
  expect(fs.statSync(kept).mode & 0o777).toBe(0o600);
  const before = fs.readFileSync(kept);
  expect(seen(place)).toEqual(first);
  expect(fs.readFileSync(kept).equals(before)).toBe(true);
  // Another stamp of the same bytes.
  age(place.file);
  expect(seen(place)).toEqual(first);
  expect(fs.readFileSync(kept).equals(before)).toBe(false);
});

test(
  "it goes on where the file does, also in the middle of an answer, and is not what was kept where the file is another",
  SYSTEM,
  () => {
    const w = large();
    const place = placed(w.text);
    seen(place);
    const session = place.open();
    const { count } = session.log.nodes;
    const append = (write: () => void): unknown => {
      const { length } = w.text;
      write();
      fs.appendFileSync(place.file, w.text.slice(length));
      return session.log.refresh();
    };
    const talk = (): void => {
      w.ask("And now?");
      w.reply("More.");
    };
    expect(append(talk)).toEqual({ kind: "grown", first: count });
    expect(append(() => w.ask("And then?"))).toEqual({ kind: "grown", first: count + 2 });
    const whole = entriesOf(foreignSessionOn(realDisk, place.file, temporaryFolder()));
    expect(entriesOf(session)).toEqual(whole);
    requireSound(session);
    age(place.file);
    session.close();
    const again = place.open();
    fs.writeFileSync(place.file, w.text.replace("Turn 0", "Torn 0"));
    expect(again.log.refresh()).toEqual({ kind: "replaced" });
    again.close();
    expect(JSON.stringify(seen(place).entries)).toContain("Torn 0");
  },
);

test("what is damaged or cut off is made anew", SWEEP, () => {
  const place = placed(large(9000).text, 4 << 20);
  const first = seen(place);
  const kept = place.kept() as string;
  const whole = fs.readFileSync(kept);
  for (const at of [1000, whole.length - 4000, whole.length - 3]) {
    const bytes = Buffer.from(whole);
    bytes[at] ^= 1;
    fs.writeFileSync(kept, bytes);
    expect(seen(place)).toEqual(first);
  }
  for (const size of [7, whole.length - 1]) {
    fs.writeFileSync(kept, whole.subarray(0, size));
    expect(seen(place)).toEqual(first);
    expect(fs.readFileSync(kept).equals(whole)).toBe(true);
  }
});

test("it is what the file gives, where that changed in the middle before it grew", () => {
  const w = large();
  const place = placed(w.text);
  const session = place.open();
  w.ask("And now?");
  fs.writeFileSync(place.file, w.text.replace("Turn 20", "Torn 20"));
  age(place.file);
  session.log.refresh();
  session.close();
  expect(JSON.stringify(seen(place).entries)).toContain("Torn 20");
});

test("it is what the file gives, where that changed again in the moment in which it was read", () => {
  const place = placed(large().text);
  const { modified, changed = 0 } = realDisk.info(place.file);
  let now = changed + 5;
  const still = (info: FileInfo): FileInfo => ({ ...info, modified, changed });
  const disk: Disk = {
    ...realDisk,
    clock: () => now,
    info: (path, plain) => still(realDisk.info(path, plain)),
    infoOf: (fd) => still(realDisk.infoOf(fd)),
  };
  const session = foreignSessionOn(disk, place.file, place.state, LONG);
  fs.writeFileSync(place.file, large().text.replace("Turn 20", "Torn 20"));
  now += 100;
  session.close();
  expect(JSON.stringify(entriesOf(foreignSessionOn(disk, place.file, place.state, LONG)))).toContain("Torn 20");
});

test("a last line that goes on after it was whole is another one", () => {
  const w = large();
  const place = placed(w.lines.join("\n"));
  const session = place.open();
  fs.appendFileSync(place.file, ' and more"}\n');
  expect(session.log.refresh()).toEqual({ kind: "replaced" });
  age(place.file);
  session.close();
  expect(seen(place).entries).toEqual(entriesOf(foreignSessionOn(realDisk, place.file, temporaryFolder())));
});

test("a small one is not kept, nor one that changed while it was open", () => {
  const small = placed(large().lines.slice(0, 12).join("\n"));
  seen(small);
  expect(small.kept()).toBeUndefined();
  const place = placed(large().text);
  const session = place.open();
  fs.appendFileSync(place.file, "\n");
  session.close();
  expect(place.kept()).toBeUndefined();
});

test("what was kept of a file that is gone goes when the next one is kept", () => {
  const place = placed(large().text);
  seen(place);
  const gone = place.kept();
  const damaged = join(place.state, "foreign", `${"0".repeat(32)}.kept`);
  fs.writeFileSync(damaged, "cut");
  const moved = `${place.file}.else`;
  fs.renameSync(place.file, moved);
  age(moved);
  foreignSessionOn(realDisk, moved, place.state, LONG).close();
  const now = place.kept();
  expect([gone !== undefined, now !== undefined, gone === now]).toEqual([true, true, false]);
  expect(fs.existsSync(damaged)).toBe(false);
});
