/** The properties of the ordinary suite that have no long form of their own, with `SOAK_TIMES` times as many seeds (20). */

process.env.PI_TEST_TIMES = process.env.SOAK_TIMES ?? "20";

await import("../catalog/changes.test.ts");
await import("../catalog/containers.test.ts");
await import("../catalog/damage.test.ts");
await import("../catalog/search.test.ts");
await import("../core/context.test.ts");
await import("../core/fork.test.ts");
await import("../core/nodes.test.ts");
await import("../core/store/jsonl/side-index.test.ts");
await import("../core/store/jsonl/written.test.ts");
await import("../core/store/segmented/damage.test.ts");
await import("../core/store/segmented/kept.test.ts");
await import("../core/tree.test.ts");
await import("../server/output.test.ts");
await import("../services/properties.test.ts");
