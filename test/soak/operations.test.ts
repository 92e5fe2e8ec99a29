/**
 * The tests of disk faults at every operation and with every power cut, also where the ordinary suite takes one for many
 * because they leave the same disk or fail at the same place (`faultPoints` and `remains` in test/support/disk.ts), and
 * those of damage at every byte, and of every hostile text in every place.
 */

process.env.PI_TEST_EVERY = "1";

await import("../storage/jsonl/faults.test.ts");
await import("../storage/log/lines.test.ts");
await import("../storage/v2/faults.test.ts");
await import("../storage/v2/migration.test.ts");
await import("../end-to-end/failed-commit.test.ts");
await import("../end-to-end/keys.test.ts");
await import("../page/hostile.test.ts");
await import("../page/markdown.test.ts");
