/** The properties of the ordinary suite that have no long form of their own, with `SOAK_TIMES` times as many seeds (50). */

process.env.PI_TEST_TIMES = process.env.SOAK_TIMES ?? "50";

await import("../catalog/changes.test.ts");
await import("../catalog/containers.test.ts");
await import("../catalog/damage.test.ts");
await import("../catalog/search.test.ts");
await import("../core/context/context.test.ts");
await import("../core/session/fork.test.ts");
await import("../core/tree/nodes.test.ts");
await import("../storage/kept.test.ts");
await import("../core/tree/tree.test.ts");
await import("../server/connection/output.test.ts");
await import("../services/properties.test.ts");
