/**
 * Notes of schemas, which the built program has in the place of zod: they accept what zod accepts, and make the same of it.
 *
 * @module-tag system
 */

import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import type * as z from "zod";
// @ts-expect-error plain JavaScript, for the build
import { notedSchemas } from "../../../scripts/program.js";
import { declarations } from "../../../src/handlers/shared/declarations.ts";
import { makeOpenRpcDocument } from "../../../src/server/openrpc.ts";

const SEED = Number(process.env.PI_TEST_SEED ?? 1);
const TIMES = 25 * Number(process.env.PI_TEST_TIMES ?? 1);
/** Next to the sources, so that it finds the same packages. */
const FILE = fileURLToPath(new URL(`../../../noted-${process.pid}.tmp.mjs`, import.meta.url));

let noted: typeof declarations;

beforeAll(async () => {
  const options = { bundle: true, platform: "node", format: "esm", packages: "external", outfile: FILE } as const;
  const absWorkingDir = fileURLToPath(new URL("../../..", import.meta.url));
  const entryPoints = ["src/handlers/shared/declarations.ts"];
  await build({ ...options, absWorkingDir, entryPoints, plugins: [notedSchemas] });
  ({ declarations: noted } = await import(FILE));
});

afterAll(() => rmSync(FILE, { force: true }));

/** Values of members: usual ones, and such as a schema may refuse. */
const scalar = fc.oneof(
  fc.constantFrom(..."a message user all /tmp a1b2c3d4 a\0b".split(" ")),
  fc.constantFrom<unknown>(null, true, false, "", 0, 1, -1, 1.5),
  fc.constantFrom<unknown>(2 ** 53, 1e308 * 10, JSON.parse('{"__proto__":1}'), "x".repeat(300)),
);
const value = fc.oneof(
  { weight: 4, arbitrary: scalar },
  fc.array(scalar, { maxLength: 3 }),
  fc.jsonValue({ maxDepth: 2 }),
);

/** Returns objects with some of the members of an example, of a shape, and of others. */
function objectsLike(shape: object, example: object) {
  const members = fc.dictionary(fc.constantFrom(...Object.keys(shape), "_meta", "other", "__proto__"), value, {
    maxKeys: 3,
  });
  const ofExample = fc.subarray(Object.entries(example)).map((entries) => Object.fromEntries(entries));
  return fc
    .tuple(fc.oneof(fc.constant(example), ofExample), fc.option(members))
    .map(([given, more]) => ({ ...given, ...more }));
}

/** Holds a note against its schema, for these values. */
function compare(name: string, schema: z.ZodType, note: z.ZodType, values: fc.Arbitrary<unknown>): void {
  const check = (given: unknown): void => {
    const [by, as] = [schema, note].map((one) => one.safeParse(given));
    expect([name, as.success, JSON.stringify(as.data), as.error?.issues]).toEqual([
      name,
      by.success,
      JSON.stringify(by.data),
      by.error?.issues,
    ]);
  };
  fc.assert(fc.property(values, check), { seed: SEED, numRuns: TIMES });
}

test("params of commands", () => {
  for (const [n, { name, params, looseParams, example }] of declarations.commands.entries()) {
    const values = fc.oneof({ weight: 9, arbitrary: objectsLike(params.shape, example.params as object) }, value);
    compare(name, params, noted.commands[n].params, values);
    compare(name, looseParams, noted.commands[n].looseParams, values);
  }
});

test("entries and messages", () => {
  const { draft, entry, header, message, entryTypes, messageRoles } = declarations;
  const all = { ...entryTypes, draft, entry, header, said: message };
  const types = { ...entryTypes, session: header, unknown: entry };
  const ofType = fc.constantFrom(...Object.entries(types));
  const messages = fc
    .constantFrom(...Object.entries(messageRoles), ["unknown", message] as const)
    .chain(([role, { shape }]) => objectsLike(shape, { role, content: [{ type: "text", text: "a" }] }));
  const entries = fc.tuple(ofType, messages, value).chain(([[type, { shape }], said, any]) => {
    const usual = Object.fromEntries(Object.keys(shape).map((member) => [member, "a"]));
    return objectsLike(shape, { ...usual, type, message: said, tokensBefore: 1, usage: {}, replacement: any });
  });
  const notes = { ...noted, ...noted.entryTypes, said: noted.message };
  for (const [name, schema] of Object.entries(all))
    compare(name, schema, notes[name as "draft"], fc.oneof(entries, messages, value));
  for (const [role, schema] of Object.entries(messageRoles))
    compare(role, schema, noted.messageRoles[role as "user"], fc.oneof(messages, value));
});

test("answers to hooks", () => {
  for (const [name, { answer }] of Object.entries(declarations.hooks))
    for (const [member, schema] of Object.entries<z.ZodType>(answer)) {
      const { answer: answers } = noted.hooks[name as keyof typeof noted.hooks];
      compare(`${name} ${member}`, schema, (answers as Record<string, z.ZodType>)[member], value);
    }
});

test("documents", () => {
  expect(makeOpenRpcDocument(noted, "1")).toEqual(makeOpenRpcDocument(declarations, "1"));
});
