import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/soak/**"],
    globalSetup: ["test/support/build.ts"],
    testTimeout: 90_000,
    pool: "forks",
  },
});
