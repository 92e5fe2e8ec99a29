/**
 * One `psql` that runs statement after statement. A process for each took 80 ms of processor time, and more where a
 * large process starts it: the system copies its table of pages.
 */

import { execFileSync, type SpawnOptions, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Printed by psql after each answer. */
const END = "-- end of the answer --\n";

export class Psql {
  /** The pipes of its input and output. */
  private readonly input: number;
  private readonly output: number;
  private readonly buffer = Buffer.alloc(65536);

  /** `place`: where and as whom it runs. */
  constructor(program: string, args: readonly string[], place: SpawnOptions) {
    const folder = mkdtempSync(join(tmpdir(), "pi-psql-"));
    const [statements, answers] = [join(folder, "statements"), join(folder, "answers")];
    execFileSync("mkfifo", [statements, answers]);
    // Each end of a pipe waits to be opened until there is another one, but for one that is both.
    const ends = [statements, answers].map((path) => openSync(path, "r+"));
    this.input = openSync(statements, "w");
    this.output = openSync(answers, "r");
    const its = [openSync(statements, "r"), openSync(answers, "w")];
    const given = ["-qAtX", "-v", "ON_ERROR_STOP=1", ...args];
    // Output that is neither an answer nor an error is ignored.
    const env = { ...place.env, PGOPTIONS: "-c client_min_messages=error" };
    spawn(program, given, { ...place, env, stdio: [its[0], its[1], its[1]] }).unref();
    // From now on only psql has its ends: its output is over when it is.
    for (const end of [...ends, ...its]) closeSync(end);
    rmSync(folder, { recursive: true });
  }

  /** Returns the output for a statement, and whether psql ended with it, as after an error. */
  run(text: string): { said: string; ended: boolean } {
    try {
      writeSync(this.input, `${text}\n;\n\\echo '${END.trim()}'\n`);
    } catch (error) {
      // It ended before; its output then says why.
      if ((error as NodeJS.ErrnoException).code !== "EPIPE") throw error;
    }
    let said = Buffer.alloc(0);
    for (;;) {
      const count = readSync(this.output, this.buffer);
      said = Buffer.concat([said, this.buffer.subarray(0, count)]);
      const text = said.toString("utf8");
      if (count === 0) return { said: text, ended: true };
      if (text.endsWith(END)) return { said: text.slice(0, -END.length), ended: false };
    }
  }

  /** Ends it: it has nothing more to read. */
  close(): void {
    closeSync(this.input);
    closeSync(this.output);
  }
}
