/** Tables of members in protocol.md, and types in words. */

import type * as z from "zod";
import { getComponentName, type Schema, type SchemaOf } from "../src/server/openrpc.ts";
import { formatTable } from "./markdown.ts";

interface TableMember {
  readonly name: string;
  readonly optional: boolean;
  readonly schema: Schema;
}

export function getShapeMembers(shape: Readonly<Record<string, z.ZodType>>, schemaOf: SchemaOf): TableMember[] {
  const members = Object.entries(shape);
  return getMembers({
    properties: Object.fromEntries(members.map(([name, schema]) => [name, schemaOf(schema)])),
    required: members.filter(([, schema]) => schema._zod.optin !== "optional").map(([name]) => name),
  });
}

/**
 * Returns the members of an object, each followed by those of the objects inside it, as `outer.inner` and
 * `list[].inner`.
 */
export function getMembers({ properties = {}, required = [] }: Schema, before = ""): TableMember[] {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const member = { name: `${before}${name}`, optional: !required.includes(name), schema };
    const isList = schema.type === "array";
    const inner = isList ? (schema.items as Schema) : schema;
    if (inner.properties === undefined || !isWorthRows(inner)) return [member];
    return [member, ...getMembers(inner, `${member.name}${isList ? "[]" : ""}.`)];
  });
}

/**
 * Returns whether an object's members get rows of their own; those of small objects without explanations share one
 * cell.
 */
function isWorthRows({ properties = {} }: Schema): boolean {
  const inner = Object.values(properties);
  return inner.length > 4 || inner.some((schema) => schema.description !== undefined || schema.properties);
}

export function formatMembersTable(members: readonly TableMember[]): string {
  return formatTable(
    ["member", "type", ""],
    members.map(({ name, optional, schema }) => [
      `\`${name}\`${optional ? "?" : ""}`,
      formatType(schema),
      schema.description ?? "",
    ]),
  );
}

/** Links that stand for the schemas of the components. */
const NAMES: Readonly<Record<string, string>> = {
  entry: "[entry](#session-format)",
  draft: "[entry](#session-format)",
  message: "[message](#messages)",
  contextMessage: "[message](#messages)",
};

/** Returns a type in words and quotes: `string or null`, `"at" or "before"`, `list of integer`. */
export function formatType(schema: Schema): string {
  const component = getComponentName(schema);
  if (component !== undefined) return NAMES[component];
  // This version of JSON Schema writes a reference with a description like this.
  if (Array.isArray(schema.allOf) && schema.allOf.length === 1) return formatType(schema.allOf[0]);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return alternatives(schema.enum.map((value) => JSON.stringify(value)));
  if (schema.anyOf) return alternatives(schema.anyOf.map(formatType));
  if (Array.isArray(schema.type)) return alternatives(schema.type.map((type) => formatType({ ...schema, type })));
  if (schema.type === "array")
    return `list of ${formatType(schema.items ?? {})}${countText(schema.minItems, schema.maxItems, "item")}`;
  if (schema.type === "object") return objectText(schema);
  return `${schema.type ?? "anything"}${limitsText(schema)}`;
}

/** Returns whether a member such as `outer.inner` is one of those named, or inside one of them. */
export function isWithin(member: string, names: readonly string[]): boolean {
  return names.includes(member.split(/[.[]/, 1)[0]);
}

function objectText(schema: Schema): string {
  const { properties, required = [], additionalProperties } = schema;
  const named = typeof additionalProperties === "object" && Object.keys(additionalProperties).length > 0;
  if (properties === undefined || Object.keys(properties).length === 0)
    return named ? `object of ${formatType(additionalProperties)} by name` : "object";
  if (isWorthRows(schema)) return "object";
  const members = Object.entries(properties).map(
    ([name, inner]) => `${name}${required.includes(name) ? "" : "?"}: ${formatType(inner)}`,
  );
  return `{ ${members.join(", ")} }`;
}

function alternatives(texts: readonly string[]): string {
  return [...new Set(texts)].join(" or ");
}

/** Returns the limits of a number or a string, in words. */
function limitsText(schema: Schema): string {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, maxLength, pattern } = schema;
  const limits = [
    ...(isLimit(minimum) ? [`from ${minimum}`] : []),
    ...(isLimit(exclusiveMinimum) ? [`over ${exclusiveMinimum}`] : []),
    ...(isLimit(maximum) ? [`to ${maximum}`] : []),
    ...(isLimit(exclusiveMaximum) ? [`under ${exclusiveMaximum}`] : []),
    ...(pattern === undefined ? [] : [`matching \`${pattern}\``]),
  ];
  return `${limits.map((limit) => ` ${limit}`).join("")}${countText(minLength, maxLength, "character")}`;
}

/** Returns whether a limit is one that was declared: integers have those of the number type too. */
function isLimit(value: unknown): value is number {
  return typeof value === "number" && Math.abs(value) < Number.MAX_SAFE_INTEGER;
}

/** Returns how many items or characters there may be: `, 1 to 256 characters`. */
function countText(least: unknown, most: unknown, unit: string): string {
  const [from, to] = [least, most].map((count) => (isLimit(count) && count > 0 ? count : undefined));
  if (from === undefined && to === undefined) return "";
  if (from === 1 && to === undefined) return ", not empty";
  const units = (to ?? from) === 1 ? unit : `${unit}s`;
  if (to === undefined) return `, at least ${from} ${units}`;
  return `, ${from === undefined ? "at most" : `${from} to`} ${to} ${units}`;
}
