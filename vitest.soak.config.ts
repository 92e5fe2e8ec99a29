import { defineConfig } from "vitest/config";

/** Long runs of the same properties: `npm run soak`. */
export default defineConfig({
  test: {
    include: ["test/soak/**/*.test.ts"],
    globalSetup: ["test/support/build.ts"],
    testTimeout: 7_200_000,
    // Thousands of session files are removed after some of them.
    hookTimeout: 300_000,
    pool: "forks",
    // Some of them look at how long something takes.
    fileParallelism: false,
  },
});
