/**
 * Processes in different namespaces that take one lock, release it, and are killed: while one holds it, no other
 * process does. Each records its steps, by one write to the end of one file, while it holds the lock.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { expect, onTestFinished } from "vitest";
import { type Apart, apart } from "./namespaces.ts";
import type { Random } from "./random.ts";
import { temporaryFolder } from "./server.ts";

const STORAGE = fileURLToPath(new URL("../../src/storage/", import.meta.url));
/** The folder in which the optional package is looked for. */
const FROM = new URL("../../src/storage/fs/sqlite.ts", import.meta.url).href;

/**
 * Runs a piece of a program that has `locks`, `file` and `place`, in namespaces of its own or in ours. `session` is the
 * locked file.
 */
export function runWithLocks(session: string, piece: string, kind?: Apart, node = process.execPath): ChildProcess {
  const folder = temporaryFolder();
  const script = join(folder, "piece.mjs");
  buildSync({
    stdin: {
      contents: `import { appendFileSync } from "node:fs";
        import { isLock, makeLocks } from "./locks/locks.ts";
        import { realDisk } from "./fs/disk.ts";
        import { locateLock } from "./locks/lock-paths.ts";
        const session = ${JSON.stringify(session)};
        const file = realDisk.info(session);
        const place = locateLock(realDisk, session, file.inode);
        const options = { disk: realDisk, stateFolder: ${JSON.stringify(folder)}, client: "a piece", now: () => new Date().toISOString() };
        const locks = makeLocks(options);
        ${piece}`,
      resolveDir: STORAGE,
    },
    bundle: true,
    platform: "node",
    format: "esm",
    outfile: script,
    define: { "import.meta.url": "__url" },
  });
  writeFileSync(script, `const __url = ${JSON.stringify(FROM)};\n${readFileSync(script, "utf8")}`);
  const [command, ...args] = [...(kind === undefined ? [] : (apart(kind) ?? [])), node, script];
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  return child;
}

const TAKER = (name: string, log: string): string => `
  const write = (what) => appendFileSync(${JSON.stringify(log)}, \`\${what} ${name}\\n\`);
  const step = () => {
    const lock = locks.acquire(file, place);
    if (isLock(lock)) {
      if (lock.kind !== "sqlite") throw new Error("a lock of another kind");
      write("take");
      write("use");
      write("end");
      lock.release();
      process.stdout.write("taken\\n");
    } else process.stdout.write("refused\\n");
    setImmediate(step);
  };
  process.stdin.on("end", () => process.exit()).resume();
  step();
`;

/** Goes on until the lock was taken so often. */
export async function takings(random: Random, wanted: number, nodes: readonly string[]) {
  const folder = temporaryFolder();
  const session = join(folder, "session.jsonl");
  const log = join(folder, "log");
  writeFileSync(session, "");
  writeFileSync(log, "");
  const written = { taken: 0, refused: 0, kills: 0 };
  const kinds: (Apart | undefined)[] = ["network", "network and pids", undefined];
  let names = 0;
  /** One process, and another one when it was killed. */
  const life = async (kind: Apart | undefined): Promise<void> => {
    while (written.taken < wanted) {
      const child = runWithLocks(session, TAKER(`p${++names}`, log), kind, random.pick(nodes));
      const gone = once(child, "close");
      // Killed after so many steps, wherever it is then.
      let steps = 1 + random.int(60);
      for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream })) {
        written[line as "taken" | "refused"]++;
        if (written.taken >= wanted) child.stdin?.end();
        else if (--steps === 0) {
          child.kill("SIGKILL");
          written.kills++;
        }
      }
      await gone;
    }
  };
  await Promise.all(kinds.map(life));
  const lines = readFileSync(log, "utf8").trimEnd().split("\n");
  const over = new Set<string>();
  let holder = "";
  for (const [at, line] of lines.entries()) {
    const [what, name] = line.split(" ");
    expect(over.has(name), `line ${at}: ${name} went on after another had taken the lock`).toBe(false);
    if (what === "take") {
      // A holder that did not release it is dead.
      if (holder !== "") over.add(holder);
      holder = name;
    } else expect(name, `line ${at}`).toBe(holder);
    if (what === "end") holder = "";
  }
  return written;
}
