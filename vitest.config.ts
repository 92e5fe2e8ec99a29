import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/soak/**"],
    globalSetup: ["test/support/build.ts"],
    testTimeout: 90_000,
    pool: "forks",
    // Modules are loaded and compiled once for each core and not once for each file, which is half of the time. So
    // no test may leave anything behind in a module; what is mocked or stubbed is put back after each test.
    isolate: false,
    restoreMocks: true,
    unstubEnvs: true,
    // One less than there are cores is the default, and half of two.
    maxWorkers: "100%",
  },
});
