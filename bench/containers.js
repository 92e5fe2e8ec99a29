// Containers of Session Store V2 as benches make them: a session file of the generator, and what the server makes of it.
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ours, runWith } from "./asking.js";
import { writeSession } from "./generate.js";
import { home } from "./options.js";

/** Writes a session file with an id that V2 accepts, replacing the one migrated before. */
export function makeSession(count, shape) {
  const file = join(home, `migrated-${shape}-${count}.jsonl`);
  const id = `01991f6e-1f1d-7c3e-b0a4-${String(count).padStart(10, "0")}${shape === "lean" ? "aa" : "bb"}`;
  for (const left of [`${file}.migrated`, join(home, `${id}.v2`), join(home, `${id}.store.json`)])
    rmSync(left, { recursive: true, force: true });
  writeSession(file, count, shape);
  const bytes = readFileSync(file);
  const past = bytes.indexOf(10);
  const header = { ...JSON.parse(bytes.subarray(0, past).toString()), id };
  writeFileSync(file, Buffer.concat([Buffer.from(JSON.stringify(header)), bytes.subarray(past)]));
  return file;
}

/** Returns the container that a fresh server makes of a session file, and the milliseconds that it took. */
export const migrate = (file) =>
  runWith(ours("--no-session"), async (child) => {
    const { result, took } = await child.result("migrate_session", { sessionPath: file });
    return { container: result.sessionPath, took };
  });

/** Returns the bytes of all files of a container. */
export function measureSize(path) {
  if (!statSync(path).isDirectory()) return statSync(path).size;
  return readdirSync(path).reduce((sum, name) => sum + measureSize(join(path, name)), 0);
}
