/** Files of other agents that were damaged at random: 100 times as many as in the ordinary suite, 10,000 of each format. */

process.env.PI_TEST_TIMES = process.env.SOAK_TIMES ?? "100";

await import("../foreign/claude.test.ts");
await import("../foreign/codex.test.ts");
