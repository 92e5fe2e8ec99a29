import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/soak/**"],
    globalSetup: ["test/support/build.ts"],
    testTimeout: 90_000,
    pool: "forks",
    // One less than there are cores is the default, and half of two.
    maxWorkers: "100%",
  },
});
