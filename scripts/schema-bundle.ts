/** The JSON Schema of the whole protocol, in one document. */

import type { Declarations } from "../src/handlers/shared/declarations.ts";
import { makeOpenRpcDocument, type Schema } from "../src/server/openrpc.ts";

/**
 * Returns the schema (draft 7). Its definitions have a name for each thing: `AppendParams`, `AppendResult`,
 * `SessionStartEvent`, `SessionBeforeForkPayload` and `...Answer`, `Failure`, `Header`, `Entry`, `Draft`, `Message` and
 * so on. The document itself describes tables of these, by the names on the wire.
 */
export function makeSchemaBundle(declared: Declarations, version: string): Schema {
  const document = makeOpenRpcDocument(declared, version);
  const definitions: Record<string, Schema> = {};
  for (const [name, schema] of Object.entries(document.components.schemas))
    definitions[typeName(name)] = renamed(schema);
  const tables = { commands: {}, events: {}, hooks: {} } as Record<string, Record<string, Schema>>;
  const define = (name: string, schema: Schema): Schema => {
    definitions[name] = renamed(schema);
    return { $ref: `#/definitions/${name}` };
  };
  const byName = new Map(document.methods.map((method) => [method.name, method]));
  for (const { name, summary, example } of declared.commands) {
    const { params, result } = byName.get(name) as (typeof document.methods)[number];
    const members = params.map((param) => {
      if (!("$ref" in param)) return param;
      return document.components.contentDescriptors[param.$ref.split("/").at(-1) as string];
    });
    tables.commands[name] = record({
      params: define(`${typeName(name)}Params`, { description: summary, ...objectOf(members) }),
      // A command that always fails has no result.
      result: define(`${typeName(name)}Result`, example.result === undefined ? { not: {} } : result.schema),
    });
  }
  for (const { name, summary, params } of document["x-events"])
    tables.events[name] = define(`${typeName(name)}Event`, { description: summary, ...objectOf(params) });
  for (const { name, summary, params, answer } of document["x-hooks"])
    tables.hooks[name] = record({
      payload: define(`${typeName(name)}Payload`, { description: summary, ...objectOf(params) }),
      answer: define(`${typeName(name)}Answer`, objectOf(answer)),
    });
  const names = Object.keys(declared.failures);
  define("FailureName", { description: "Names of expected failures.", type: "string", enum: names });
  define("Failure", {
    description: "The `error` of a failed request.",
    ...record({
      code: { type: "integer" },
      message: { type: "string", description: "for people; what to do next" },
      data: {
        ...record({
          name: { anyOf: [{ $ref: "#/definitions/FailureName" }, { type: "string" }] },
          retryable: { type: "boolean", description: "the same request may succeed later" },
        }),
        additionalProperties: true,
      },
    }),
  });
  for (const [name, table] of Object.entries(tables)) define(typeName(name), record(table));
  return withSingleTypes({
    $schema: "http://json-schema.org/draft-07/schema#",
    $id: "urn:pi-session-server:protocol",
    title: "Protocol",
    description: `The protocol of pi-session-server ${version}: params, results, events, hooks, failures, and the lines of session files.`,
    ...record({
      commands: { $ref: "#/definitions/Commands" },
      events: { $ref: "#/definitions/Events" },
      hooks: { $ref: "#/definitions/Hooks" },
      failure: { $ref: "#/definitions/Failure" },
      header: { $ref: "#/definitions/Header" },
      entry: { $ref: "#/definitions/Entry" },
    }),
    definitions,
  });
}

/**
 * Returns the same for the maker of TypeScript declarations, without the rules that no type can express. `written`: names
 * of types that are written by hand, in the place of the definitions of these names.
 */
export function makeTypesSchema(declared: Declarations, version: string, written: readonly string[]): Schema {
  const bundle = makeSchemaBundle(declared, version);
  const definitions = bundle.definitions as Record<string, Schema>;
  const said = new Map<string, Schema>();
  for (const { name, summary, example } of declared.commands)
    said.set(`Commands.${name}`, {
      description: firstSentence(summary),
      ...(example.result === undefined ? { description: summary, deprecated: true } : {}),
    });
  for (const table of ["events", "hooks"] as const)
    for (const [name, { summary }] of Object.entries(declared[table]))
      said.set(`${typeName(table)}.${name}`, { description: firstSentence(summary) });
  for (const table of ["Commands", "Events", "Hooks"])
    for (const [name, schema] of Object.entries(definitions[table].properties ?? {}))
      Object.assign(schema, said.get(`${table}.${name}`));
  // The schema says nothing of the children, because it has no name for the node.
  (definitions.GetTreeResult.properties as Record<string, Schema>).tree.tsType = "TreeNode[]";
  for (const name of written) delete definitions[name];
  return asTypes(bundle);
}

/** Returns a schema with the types of TypeScript for what its maker would make something else of. */
function asTypes(schema: Schema): Schema {
  const { description, deprecated, tsType, $ref } = schema;
  const typed = (type: string): Schema => ({
    ...(description === undefined ? {} : { description }),
    ...(deprecated === undefined ? {} : { deprecated }),
    tsType: type,
  });
  if (typeof tsType === "string") return typed(tsType);
  if ($ref !== undefined) return typed($ref.split("/").at(-1) as string);
  const { minItems, maxItems, allOf, not, definitions, ...rest } = schema;
  const [only, ...others] = (allOf as Schema[] | undefined) ?? [];
  if (only?.$ref !== undefined && others.length === 0) return asTypes({ ...rest, ...only });
  if (not !== undefined && Object.keys(rest).length === 0) return typed("never");
  // Without a type list next to it, `string` removes none of an editor's proposals.
  if (rest.anyOf?.length === 2 && rest.anyOf[0].$ref?.endsWith("/FailureName"))
    return typed("FailureName | (string & {})");
  if (Object.keys(rest).every((keyword) => keyword === "description" || keyword === "$schema")) return typed("unknown");
  return {
    ...mapped(rest, asTypes),
    ...(definitions === undefined ? {} : { definitions: mappedValues(definitions as Record<string, Schema>, asTypes) }),
  };
}

/** Returns a schema with one type for each place, as strict readers want it: `anyOf` for lists of types. */
function withSingleTypes(schema: Schema): Schema {
  const { definitions, ...rest } = mapped(schema, withSingleTypes);
  const defined = definitions && mappedValues(definitions as Record<string, Schema>, withSingleTypes);
  const whole = defined ? { ...rest, definitions: defined } : rest;
  if (!Array.isArray(whole.type)) return whole;
  const { type: types, description, ...rules } = whole;
  const anyOf = (types as string[]).map((type) => ({ type, ...(type === "null" ? {} : rules) }));
  return { ...(description === undefined ? {} : { description }), anyOf };
}

/** Returns a schema with others in the place of those in it. */
function mapped(schema: Schema, change: (schema: Schema) => Schema): Schema {
  const { properties, items, additionalProperties, anyOf, allOf, not } = schema;
  return {
    ...schema,
    ...(properties ? { properties: mappedValues(properties, change) } : {}),
    ...(items ? { items: change(items) } : {}),
    ...(typeof additionalProperties === "object" && Object.keys(additionalProperties).length > 0
      ? { additionalProperties: change(additionalProperties) }
      : {}),
    ...(anyOf ? { anyOf: anyOf.map(change) } : {}),
    ...(allOf ? { allOf: (allOf as Schema[]).map(change) } : {}),
    ...(not ? { not: change(not as Schema) } : {}),
  };
}

function mappedValues(table: Record<string, Schema>, change: (schema: Schema) => Schema): Record<string, Schema> {
  return Object.fromEntries(Object.entries(table).map(([name, schema]) => [name, change(schema)]));
}

function firstSentence(text: string): string {
  return /^.*?[.](?=\s|$)/.exec(text)?.[0] ?? text;
}

/** Returns the schema of an object that has these members and no others. */
function record(properties: Record<string, Schema>): Schema {
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}

/** Returns the schema of an object with these members. */
function objectOf(
  members: readonly { name: string; required?: boolean; description?: string; schema: Schema }[],
): Schema {
  const properties = members.map(({ name, description, schema }) => [
    name,
    description === undefined ? schema : { description, ...schema },
  ]);
  const required = members.filter((member) => member.required).map(({ name }) => name);
  return { type: "object", properties: Object.fromEntries(properties), required, additionalProperties: false };
}

/** Returns the name of a type: `session_start` is `SessionStart`, `entry.branch_summary` is `EntryBranchSummary`. */
function typeName(name: string): string {
  return name.replace(/(?:^|[._-])([a-z])/gi, (_, letter: string) => letter.toUpperCase());
}

/** Returns a schema whose references are to the definitions of this document. */
function renamed(schema: Schema): Schema {
  const text = JSON.stringify(schema).replace(
    /"\$ref":"#\/components\/schemas\/([^"]+)"/g,
    (_, name: string) => `"$ref":"#/definitions/${typeName(name)}"`,
  );
  return JSON.parse(text);
}
