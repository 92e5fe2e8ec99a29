import { accessSync, constants, statfsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
// @ts-expect-error plain JavaScript, for the build
import { pageScript } from "./scripts/page-script.js";
import { filesOf, TIERS } from "./test/support/tiers.ts";

/** Where the tests keep files: in memory where a gigabyte is free, because no test asks whether a medium keeps them. */
function temporaryFiles(): Record<string, string> {
  if (process.env.TMPDIR !== undefined) return {};
  try {
    accessSync("/dev/shm", constants.W_OK);
    const { bavail, bsize } = statfsSync("/dev/shm");
    return bavail * bsize >= 2 ** 30 ? { TMPDIR: "/dev/shm" } : {};
  } catch {
    return {};
  }
}

// Buffers of a MiB come and go with every file that is opened. The C library of Linux gives each back to the system and
// asks for it again, a quarter of the system's time of a worker; the workers have what is set here before they start.
process.env.MALLOC_TRIM_THRESHOLD_ ??= String(2 ** 29);
process.env.MALLOC_MMAP_THRESHOLD_ ??= String(2 ** 25);

// Most functions run a few hundred times in a test, and making machine code of them takes longer than that saves: it was
// a sixth of the time. Newer versions of Node have other names for it, and compile faster.
const compileLater = process.versions.node.startsWith("20.")
  ? ["--interrupt-budget=1000000", "--no-flush-bytecode"]
  : [];

export default defineConfig({
  plugins: [pageScript],
  test: {
    projects: TIERS.map((name, at) => ({
      extends: true,
      test: {
        name,
        include: filesOf(name, import.meta.dirname),
        // Each worker loads and compiles all modules, and a test waits when there are more workers than cores. Tests of
        // the other tiers wait for processes that they start, so half as many again keep the cores busy.
        maxWorkers: Math.ceil((name === "unit" ? 1 : 1.5) * availableParallelism()),
        // Vitest wants one tier after the other where they have different numbers of workers.
        sequence: { groupOrder: at },
      },
    })),
    tags: TIERS.map((name) => ({ name })),
    runner: "test/support/tier-runner.ts",
    reporters: ["default", "./test/support/report.ts"],
    // What a module of ours becomes for the tests is the same for each tier and each run.
    experimental: { fsModuleCache: true },
    globalSetup: ["test/support/build.ts", "test/support/shared-database.ts"],
    setupFiles: ["test/support/equality.ts"],
    testTimeout: 90_000,
    // Some start two databases, which takes 10 s where other work keeps the processors busy.
    hookTimeout: 90_000,
    // Once more where `.ci/run` says so: its machine is shared, and what is wrong fails twice.
    retry: Number(process.env.PI_TEST_RETRY ?? 0),
    pool: "forks",
    // Modules are loaded and compiled once for each core and not once for each file, which is half of the time. So
    // no test may leave anything behind in a module; what is mocked or stubbed is put back after each test. The long runs
    // do without this and in random order (test/soak/isolated.test.ts).
    isolate: false,
    restoreMocks: true,
    unstubEnvs: true,
    env: temporaryFiles(),
    // Each core has a process of its own: helpers for the garbage of one take time from the other, and most of what the
    // tests make is garbage at once, which costs nothing in a space that is large enough. A tenth of the time.
    execArgv: ["--single-threaded-gc", "--max-semi-space-size=256", "--min-semi-space-size=128", ...compileLater],
  },
});
