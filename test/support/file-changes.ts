/** Changes of other programs, and people, to the files of listed folders. */

import * as fs from "node:fs";
import { basename, dirname, join } from "node:path";
import type { Random } from "./random.ts";

/** Things that a change may use. */
interface Chosen {
  readonly random: Random;
  /** A file and a folder among those that are listed. */
  readonly file: string;
  readonly folder: string;
  /** A folder that is not listed. */
  readonly outside: string;
  /** The text of a new session, and a line that may follow any. */
  text(): string;
  line(): string;
  /** Makes a new session where one may be. */
  create(): void;
}

function moveInto(file: string, text: string): void {
  fs.writeFileSync(`${file}.tmp`, text);
  fs.renameSync(`${file}.tmp`, file);
}

function cut({ random, file }: Chosen): void {
  fs.truncateSync(file, random.int(fs.statSync(file).size + 1));
}

/** Writes as many bytes as there are, and sets the times back. */
function keepStamp(file: string, text: string): void {
  const { atime, mtime } = fs.statSync(file);
  fs.writeFileSync(file, text);
  fs.utimesSync(file, atime, mtime);
}

export const FILE_CHANGES: Readonly<Record<string, (chosen: Chosen) => void>> = {
  create: (chosen) => chosen.create(),
  "create a folder": ({ random, folder }) => fs.mkdirSync(join(folder, random.hex(4))),
  delete: ({ file }) => fs.unlinkSync(file),
  append: ({ file, line }) => fs.appendFileSync(file, line()),
  "append half a line": ({ file, line }) => fs.appendFileSync(file, line().slice(0, 50)),
  "append without line feed": ({ file, line }) => fs.appendFileSync(file, line().trimEnd()),
  truncate: cut,
  "truncate and append"(chosen) {
    cut(chosen);
    for (let n = chosen.random.int(9); n > 0; n--) fs.appendFileSync(chosen.file, `\n${chosen.line()}`);
  },
  "write anew in place": ({ file, text }) => fs.writeFileSync(file, text()),
  replace: ({ file, text }) => moveInto(file, text()),
  "write anew and keep size and times": ({ file }) => keepStamp(file, "x".repeat(fs.statSync(file).size)),
  "change a byte and keep size and times": ({ file }) =>
    keepStamp(file, fs.readFileSync(file, "utf8").replace('"text":"a', '"text":"A').replace("One", "Eno")),
  "restore with an old time"({ file, line }) {
    const { atime, mtime } = fs.statSync(file);
    moveInto(file, fs.readFileSync(file, "utf8") + line());
    fs.utimesSync(file, atime, mtime);
  },
  touch: ({ random, file }) => fs.utimesSync(file, random.int(2e9), random.int(2e9)),
  "rename a file": ({ random, file }) => fs.renameSync(file, join(dirname(file), `_${random.hex(12)}.jsonl`)),
  "rename a folder": ({ random, folder }) => fs.renameSync(folder, join(dirname(folder), `--moved-${random.hex(4)}--`)),
  "remove a folder": ({ folder }) => fs.rmSync(folder, { recursive: true }),
  "put another folder in its place"({ random, folder, outside, create }) {
    fs.renameSync(folder, join(outside, `away-${random.hex(6)}`));
    fs.mkdirSync(folder);
    create();
  },
  "move a folder away and back"({ random, folder }) {
    fs.renameSync(folder, `${folder}-away`);
    if (random.chance(0.5)) return fs.renameSync(`${folder}-away`, folder);
    fs.mkdirSync(folder);
    for (const name of fs.readdirSync(`${folder}-away`))
      fs.renameSync(join(`${folder}-away`, name), join(folder, name));
    fs.rmSync(`${folder}-away`, { recursive: true });
  },
  "a link in the place of a folder"({ random, folder, outside }) {
    const away = join(outside, `away-${random.hex(6)}`);
    fs.renameSync(folder, away);
    fs.symlinkSync(away, folder);
  },
  "make something that is no session"({ random, file }) {
    const texts = ["", "{}\n", "hello\n\n", '{"type":"message"}\n', fs.readFileSync(file, "utf8").slice(9)];
    fs.writeFileSync(join(dirname(file), `other-${random.hex(4)}.jsonl`), random.pick(texts));
  },
  "a file that has another name elsewhere"({ random, file, outside, text }) {
    const other = join(outside, `outside-${random.hex(6)}.jsonl`);
    fs.writeFileSync(other, text());
    random.pick([fs.symlinkSync, fs.linkSync])(other, join(dirname(file), `link-${random.hex(4)}.jsonl`));
  },
  "write to one by its other name"({ random, outside, line }) {
    const others = fs.readdirSync(outside).filter((name) => basename(name).startsWith("outside-"));
    if (others.length > 0) fs.appendFileSync(join(outside, random.pick(others)), line());
  },
};
