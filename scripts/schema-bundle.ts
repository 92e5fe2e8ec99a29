/** The JSON Schema of the whole protocol, in one document. */

import type { Declarations } from "../src/handlers/shared/declarations.ts";
import { openRpcDocument, type Schema } from "../src/server/openrpc.ts";

/**
 * Returns the schema (draft 7). Its definitions have a name for each thing: `AppendParams`, `AppendResult`,
 * `SessionStartEvent`, `SessionBeforeForkPayload` and `...Answer`, `Failure`, `Header`, `Entry`, `Draft`, `Message` and
 * so on. The document itself describes tables of these, by the names on the wire. `forTypes`: without the rules that no
 * type can express.
 */
export function schemaBundle(declared: Declarations, version: string, { forTypes = false } = {}): Schema {
  const document = openRpcDocument(declared, version);
  const definitions: Record<string, Schema> = {};
  for (const [name, schema] of Object.entries(document.components.schemas)) {
    const { allOf, not, ...rest } = schema;
    definitions[typeName(name)] = renamed(forTypes ? rest : schema);
  }
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
  return {
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
  };
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
