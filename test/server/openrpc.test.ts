import { createRequire } from "node:module";
import { Ajv, type ValidateFunction } from "ajv";
import draft7 from "ajv/dist/refs/json-schema-draft-07.json" with { type: "json" };
import { expect, test } from "vitest";
import { declarations } from "../../src/handlers/shared/declarations.ts";
import { commandNames } from "../../src/handlers/shared/find.ts";
import { makeOpenRpcDocument, type OpenRpcDocument } from "../../src/server/openrpc.ts";
import { serveHere } from "../support/server.ts";

const document = makeOpenRpcDocument(declarations, "1.2.3");

/** Checks values against schemas of the document, which are named by JSON pointers into it. */
const ajv = new Ajv({ strict: false, inlineRefs: false, code: { optimize: false } });
ajv.addSchema({ ...document, $id: "doc" }, "doc", undefined, false);

function at(pointer: string): ValidateFunction {
  return ajv.compile({ $ref: `doc#${pointer}` });
}

function problems(validate: ValidateFunction, value: unknown): unknown {
  return validate(value) ? [] : validate.errors;
}

test("the document is one by the OpenRPC 1.3 meta-schema", () => {
  const meta = new Ajv({ strict: false, validateFormats: false, inlineRefs: false, code: { optimize: false } });
  // The meta-schema refers to that of JSON Schema in another edition, which gives one definition another place.
  const { definitions, ...jsonSchema } = draft7;
  const JSONSchemaObject = { properties: { $ref: jsonSchema.properties.$ref } };
  for (const id of ["https://meta.json-schema.tools", "https://meta.json-schema.tools/"])
    meta.addSchema({ ...jsonSchema, $id: id, definitions: { ...definitions, JSONSchemaObject } }, id, undefined, false);
  // Its declarations leave out an export.
  const { $schema: _, ...schema } = createRequire(import.meta.url)("@open-rpc/meta-schema").default;
  const validate = meta.compile(schema);
  expect(problems(validate, document)).toEqual([]);
  const wrong = { name: "x", params: [{ name: "y", schema: { type: "no type" } }] };
  expect(problems(validate, { ...document, methods: [wrong] })).not.toEqual([]);
  expect(document.openrpc).toMatch(/^1\.3\./);
  expect(document.info.version).toBe("1.2.3");
  expect(document.methods.map(({ name }) => name)).toEqual(commandNames);
});

/** The schemas are compiled in parts. */
const PARTS = 5;

test.each(Array.from({ length: PARTS }, (_, part) => part))("schemas are sound and lack none (%i)", (part) => {
  const ofPart = (_: unknown, n: number): boolean => n % PARTS === part;
  for (const name of Object.keys(document.components.schemas).filter(ofPart)) at(`/components/schemas/${name}`);
  for (const { $ref } of [...references(document)].filter(ofPart)) expect(() => at($ref.slice(1)), $ref).not.toThrow();
});

const METHODS = document.methods.map((method, index) => ({ ...method, index }));

test.each(METHODS)("the example of $name keeps to its schemas", ({ index, examples, params, errors }) => {
  expect(new Set(errors.map(({ code }) => code)).size).toBe(errors.length);
  const named = params.map((param) => ("$ref" in param ? descriptorOf(param.$ref) : param));
  for (const example of examples) {
    for (const { name, value } of example.params) {
      const i = named.findIndex((param) => param.name === name);
      expect(i, `${name} is no param`).toBeGreaterThanOrEqual(0);
      const own = params[i];
      const pointer = "$ref" in own ? own.$ref.slice(1) : `/methods/${index}/params/${i}`;
      expect(problems(at(`${pointer}/schema`), value)).toEqual([]);
    }
    for (const { name, required } of named)
      if (required) expect(example.params.map((param) => param.name)).toContain(name);
    if (example.result) expect(problems(at(`/methods/${index}/result/schema`), example.result.value)).toEqual([]);
  }
});

test("a draft is checked by its type, a message by its role", () => {
  const draft = at("/components/schemas/draft");
  const message = (content: unknown) => ({ type: "message", message: { role: "user", content } });
  for (const right of [message("Hello"), { type: "something-else", any: "thing" }]) expect(draft(right)).toBe(true);
  for (const wrong of [message(5), { type: "message" }, { type: "session", id: "x" }]) expect(draft(wrong)).toBe(false);
});

test("rpc.discover answers it", async () => {
  const answered = (await serveHere(["--no-session"]).result("rpc.discover")) as OpenRpcDocument;
  expect(JSON.stringify(answered)).toBe(JSON.stringify(makeOpenRpcDocument(declarations, answered.info.version)));
});

function descriptorOf($ref: string): OpenRpcDocument["components"]["contentDescriptors"][string] {
  return document.components.contentDescriptors[$ref.split("/").at(-1) as string];
}

function* references(value: unknown): Generator<{ $ref: string }> {
  if (typeof value !== "object" || value === null) return;
  if ("$ref" in value && typeof value.$ref === "string") yield { $ref: value.$ref };
  for (const inner of Object.values(value)) yield* references(inner);
}
