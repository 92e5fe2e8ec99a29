/** The OpenRPC document of `rpc.discover`, derived from the declarations (OpenRPC specification 1.3). */

// Types only: this file is loaded on first use, and must not load the rest of the program with it.
import type * as z from "zod";
import type { Command } from "../handlers/shared/command.ts";
import type { Declarations } from "../handlers/shared/declarations.ts";

/** A JSON Schema, draft 7, with the keywords that the documents use. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema | boolean;
  minimum?: number;
  maximum?: number;
  description?: string;
  [keyword: string]: unknown;
}

export type OpenRpcDocument = ReturnType<typeof makeOpenRpcDocument>;

/** Returns the document, with every command under its name and under its alias. */
export function makeOpenRpcDocument(declared: Declarations, version: string) {
  const schemaOf = makeReferringSchemas(declared);
  return {
    openrpc: "1.3.2",
    info: {
      title: "pi-session-server",
      version,
      description:
        "The history of coding agents over JSON-RPC 2.0. Params are given by name; members that are not listed are " +
        "refused. error.data of every failure has a name and whether the same request may succeed later.",
      license: { name: "MIT" },
    },
    methods: declared.commands.flatMap((command) =>
      listNames(command).map((name) => describeMethod(name, command, declared, schemaOf)),
    ),
    components: {
      schemas: makeComponentSchemas(declared, schemaOf),
      contentDescriptors: Object.fromEntries(
        Object.entries(declared.commonParams).map(([name, param]) => [
          name,
          makeDescriptor(name, schemaOf(param), false),
        ]),
      ),
    },
    "x-events": Object.entries(declared.events).map(([name, { summary, payload }]) => ({
      name,
      summary,
      params: makeDescriptors({ ...declared.eventBase, ...payload }, schemaOf),
    })),
    "x-hooks": Object.entries(declared.hooks).map(([name, { summary, payload, answer }]) => ({
      name,
      summary,
      params: makeDescriptors(payload, schemaOf),
      answer: makeDescriptors(answer, schemaOf),
    })),
  };
}

function listNames({ name, alias }: Command): string[] {
  return alias === undefined ? [name] : [name, alias];
}

function describeMethod(name: string, command: Command, declared: Declarations, schemaOf: SchemaOf) {
  const { summary, effect, example } = command;
  const common: Readonly<Record<string, unknown>> = declared.commonParams;
  const params = Object.entries(command.params.shape as Record<string, z.ZodType>).map(([member, schema]) =>
    common[member] === schema
      ? { $ref: `#/components/contentDescriptors/${member}` }
      : makeDescriptor(member, schemaOf(schema), !isOptional(schema)),
  );
  return {
    name,
    summary,
    tags: [{ name: effect }],
    paramStructure: "by-name",
    params,
    result: makeDescriptor("result", schemaOf(command.result), true),
    errors: describeErrors(command, declared),
    examples: [
      {
        name: `${name} example`,
        params: Object.entries(example.params as object).map(([member, value]) => ({ name: member, value })),
        ...(example.result === undefined ? {} : { result: { name: "result", value: example.result } }),
      },
    ],
  };
}

/** Returns one error for each code, because OpenRPC requires unique codes; `data` lists the failures with the code. */
function describeErrors({ failures }: Command, declared: Declarations) {
  const byCode = new Map<number, { name: string; retryable: boolean; meaning: string }[]>();
  for (const name of failures) {
    const { code, retryable, meaning } = declared.failures[name];
    byCode.set(code, [...(byCode.get(code) ?? []), { name, retryable, meaning }]);
  }
  return [...byCode].map(([code, kinds]) => ({ code, message: kinds.map(({ name }) => name).join(", "), data: kinds }));
}

function makeDescriptor(name: string, { description, ...schema }: Schema, required: boolean) {
  return { name, ...(description === undefined ? {} : { description }), ...(required ? { required } : {}), schema };
}

function makeDescriptors(shape: Readonly<Record<string, z.ZodType>>, schemaOf: SchemaOf) {
  return Object.entries(shape).map(([member, schema]) => makeDescriptor(member, schemaOf(schema), !isOptional(schema)));
}

function isOptional(schema: z.ZodType): boolean {
  return schema._zod.optin === "optional";
}

// --- JSON Schemas ------------------------------------------------------------------------------------------------

export type SchemaOf = (schema: z.ZodType) => Schema;

const COMPONENTS = "#/components/schemas/";

export function getComponentName({ $ref }: Schema): string | undefined {
  return $ref?.startsWith(COMPONENTS) ? $ref.slice(COMPONENTS.length) : undefined;
}

/** Returns the JSON Schema of accepted values, without references. */
function makePlainSchema(schema: z.ZodType): Schema {
  return toJsonSchema(schema, () => undefined);
}

/** Returns a function that makes schemas with references to the components for entries and messages. */
export function makeReferringSchemas({ entry, draft, message, contextMessage }: Declarations): SchemaOf {
  const components = new Map<unknown, string>(
    Object.entries({ entry, draft, message, contextMessage }).map(([name, schema]) => [schema._zod, name]),
  );
  return (schema) => toJsonSchema(schema, (inner) => components.get(inner));
}

function toJsonSchema(schema: z.ZodType, componentOf: (schema: unknown) => string | undefined): Schema {
  const { $schema: _, ...json } = schema.toJSONSchema({
    io: "input",
    target: "draft-7",
    unrepresentable: "any",
    override({ zodSchema, jsonSchema }) {
      const component = componentOf(zodSchema._zod);
      if (component === undefined) return;
      for (const keyword of Object.keys(jsonSchema)) delete (jsonSchema as Schema)[keyword];
      jsonSchema.$ref = COMPONENTS + component;
    },
  });
  return json as Schema;
}

/** Returns the components. `draft` and `message` depend on a type or a role; each of these has a schema of its own. */
function makeComponentSchemas(declared: Declarations, schemaOf: SchemaOf): Record<string, Schema> {
  const { header, entry, entryTypes, messageRoles, draft, message, contextMessage } = declared;
  const types = Object.entries(entryTypes);
  const roles = Object.entries(messageRoles);
  return {
    header: schemaOf(header),
    entry: makePlainSchema(entry),
    draft: {
      ...makePlainSchema(draft),
      not: makeCondition("type", "session"),
      allOf: types.map(([type]) => makeBranch("type", type, `entry.${type}`)),
    },
    contextMessage: makePlainSchema(contextMessage),
    message: { ...makePlainSchema(message), allOf: roles.map(([role]) => makeBranch("role", role, `role.${role}`)) },
    ...Object.fromEntries(types.map(([type, schema]) => [`entry.${type}`, schemaOf(schema)])),
    ...Object.fromEntries(roles.map(([role, schema]) => [`role.${role}`, schemaOf(schema)])),
  };
}

function makeCondition(member: string, value: string): Schema {
  return { type: "object", properties: { [member]: { const: value } }, required: [member] };
}

/** Returns a schema that requires the component for objects with this value in the member, and nothing of others. */
function makeBranch(member: string, value: string, component: string): Schema {
  return { anyOf: [{ not: makeCondition(member, value) }, { $ref: COMPONENTS + component }] };
}
