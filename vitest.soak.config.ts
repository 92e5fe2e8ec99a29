import { defineConfig } from "vitest/config";
// @ts-expect-error plain JavaScript, for the build
import { pageScript } from "./scripts/page-script.js";

/** Long runs of the same properties: `npm run soak`. */
export default defineConfig({
  plugins: [pageScript],
  test: {
    include: ["test/soak/**/*.test.ts"],
    globalSetup: ["test/support/build.ts", "test/support/shared-database.ts"],
    testTimeout: 7_200_000,
    // Thousands of session files are removed after some of them.
    hookTimeout: 300_000,
    pool: "forks",
    // Some of them look at how long something takes.
    fileParallelism: false,
  },
});
