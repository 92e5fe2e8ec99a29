// Rows that benches of their own measure, here in turn with their floors: containers, and lists of many sessions.
import { rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { measureFirstReply, ours, runWith, state } from "../asking.js";
import { makeSession, measureSize, migrate } from "../containers.js";
import { Child, counted } from "../measure.js";
import { env, home, large, node, program, quick } from "../options.js";
import { segmentedGoal } from "../other-benches.js";
import { makeSessions } from "../sessions.js";
import { measureListingFloor, migrating, openingContainer } from "./asking.js";

export function* makeFloorRows() {
  for (const count of quick ? [1000] : [10_000, 100_000]) {
    yield migration(count, "lean");
    yield migration(count, "realistic");
  }
  yield resuming(quick ? 1000 : large ? 1_000_000 : 100_000);
  yield firstList(quick ? 20 : 1000, quick ? 50 : 550, "350 ms");
  if (large) yield firstList(100_000, 6.5, "5000 ms");
}

function migration(count, shape) {
  const what = `V2, migration, ${count} entries, ${shape}`;
  let made;
  const rate = (bytes, took) => bytes / 1e3 / took;
  return {
    what,
    unit: "MB/s",
    goal: segmentedGoal(what),
    more: true,
    async ours() {
      const file = makeSession(count, shape);
      const { size } = statSync(file);
      const { container, took } = await migrate(file);
      made = { file: `${file}.migrated`, size, bytes: measureSize(container) };
      return rate(size, took);
    },
    against: [
      "as many bytes, hashed, written and read",
      async () => rate(made.size, await migrating(made.file, count, made.bytes)),
    ],
  };
}

/** A container that is opened at the start, over a start without a session. */
function resuming(count) {
  let container;
  return {
    what: `resume, V2, ${counted(count)} entries, over a bare start`,
    unit: "ms",
    goal: count === 1_000_000 ? "40 ms" : undefined,
    async prepare() {
      container ??= (await migrate(makeSession(count, "lean"))).container;
      await measureFirstReply(ours("--session", container), state(0));
    },
    async ours() {
      const bare = await measureFirstReply(ours("--no-session"), state(0));
      return (await measureFirstReply(ours("--session", container), state(0))) - bare;
    },
    against: ["its index snapshot, and its sum", () => openingContainer(container)],
  };
}

/** The first list of sessions in a home of their own. */
function firstList(count, kilobytes, goal) {
  const folder = join(home, `listed-${count}`);
  const stateFolder = join(folder, "state");
  return {
    what: `list ${counted(count)} sessions, ${Math.round((count * kilobytes) / 1000)} MB, first time`,
    unit: "ms",
    goal,
    prepare: () => makeSessions(folder, count, kilobytes),
    ours() {
      rmSync(stateFolder, { recursive: true, force: true });
      const server = new Child(node, [program, "--events", "none", "--no-session"], {
        ...env,
        HOME: folder,
        PI_SESSION_SERVER_STATE_DIR: stateFolder,
      });
      return runWith(server, async (child) => {
        await child.result("get_state");
        const { result, took } = await child.result("list_sessions", { limit: 50 });
        if (result.total !== count) throw new Error(`${result.total} of ${count} sessions are listed`);
        return took;
      });
    },
    against: ["opened, read, a row each", () => measureListingFloor(folder)],
  };
}
