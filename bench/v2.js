// Rows of containers of Session Store V2, each made by the server from a session file of the generator.
//
// Resume is the time from the start of a process to its answer to get_state. A durable append is one request after the
// other, each answered when it is on the medium.
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { measureFirstReply, ours, runWith, state } from "./asking.js";
import { writeSession } from "./generate.js";
import { toFigure } from "./measure.js";
import { home, million, quick } from "./options.js";

/** Writes a session file with an id that V2 accepts, replacing the one migrated before. */
function makeSession(count, shape) {
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

/** Returns the container that a fresh server makes of a session, the session's bytes, and the milliseconds it took. */
async function migrate(count, shape) {
  const file = makeSession(count, shape);
  const { size } = statSync(file);
  return runWith(ours("--no-session"), async (child) => {
    const { result, took } = await child.result("migrate_session", { sessionPath: file });
    return { container: result.sessionPath, size, took };
  });
}

/** Returns the bytes of all files of a container. */
function measureSize(path) {
  if (!statSync(path).isDirectory()) return statSync(path).size;
  return readdirSync(path).reduce((sum, name) => sum + measureSize(join(path, name)), 0);
}

/** The median of the milliseconds of appends that wait for one another. */
const appendTo = (container) =>
  runWith(ours("--session", container), async (child) => {
    await child.result("get_state");
    const times = [];
    for (let n = 0; n < (quick ? 20 : 200); n++) {
      const message = { role: "user", content: `append ${n} ${"x".repeat(200)}` };
      times.push((await child.result("append", { entries: [{ type: "message", message }] })).took);
    }
    return toFigure(times).median;
  });

export function* makeContainerRows() {
  const sizes = quick ? [1000] : [10_000, 100_000, ...(million ? [1_000_000] : [])];
  for (const count of sizes)
    for (const shape of ["lean", ...(count <= 100_000 ? ["realistic"] : [])]) {
      const name = `${count} entries, ${shape}`;
      let made;
      const prepare = async () => {
        made ??= await migrate(count, shape);
      };
      yield {
        what: `V2, migration, ${name}`,
        unit: "MB/s",
        goal: shape === "lean" ? "100 MB/s" : "150 MB/s",
        more: true,
        async ours() {
          made = await migrate(count, shape);
          return made.size / 1e3 / made.took;
        },
      };
      yield {
        what: `V2, bytes on the disk per payload byte, ${name}`,
        unit: "",
        goal: shape === "realistic" && !quick ? "1.3" : "",
        prepare,
        ours: async () => measureSize(made.container) / made.size,
      };
      yield {
        what: `resume, V2, ${name}`,
        unit: "ms",
        goal: count === 1_000_000 ? "start + 40 ms" : "",
        prepare,
        ours: () => measureFirstReply(ours("--session", made.container), state("s")),
      };
      yield { what: `durable append, V2, ${name}`, unit: "ms", prepare, ours: () => appendTo(made.container) };
    }
  const large = sizes.at(-1);
  let both;
  yield {
    what: `V2, durable append, ${large} entries to 1001`,
    unit: "x",
    goal: "1.2 x",
    async prepare() {
      both ??= [await migrate(large, "lean"), await migrate(1001, "lean")];
    },
    ours: async () => (await appendTo(both[0].container)) / (await appendTo(both[1].container)),
  };
}
