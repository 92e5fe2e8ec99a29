import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["test/**/*.test.ts"], exclude: ["test/soak/**"], testTimeout: 30_000, pool: "forks" },
});
