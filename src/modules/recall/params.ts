/** Params of tools: declared once, for the schema that models see, for checks, and for the options of the shell. */

import { AGENTS } from "../../core/foreign/agents.ts";
import type { ParamDeclaration, ParamDeclarations } from "../../server/recall-module.ts";

/** The arguments of a call, as they were checked. */
export type ToolArguments = Readonly<Record<string, unknown>>;

/** A mistake in a call that the model can correct. */
export class CallMistake extends Error {}

const NAMED_AGENTS = ["pi", ...AGENTS];
const LONGEST_TEXT = 4096;

/** Params that several tools have. */
export const agentsParam: ParamDeclaration = { type: "list", oneOf: NAMED_AGENTS, description: "default: all" };
export const projectParam: ParamDeclaration = {
  type: "string",
  description: "a directory, `here`, or `all` (default)",
};
export const sinceParam: ParamDeclaration = { type: "string", description: "such as 7d, yesterday, 2026-03-14" };
export const untilParam: ParamDeclaration = { type: "string" };
export const cursorParam: ParamDeclaration = { type: "string", most: 8192, description: "of the last answer" };
export const budgetParam = (usual: number, most: number): ParamDeclaration => ({
  type: "integer",
  least: 800,
  most,
  description: `default ${usual}`,
});

/** Returns the JSON Schema of params. */
export function toInputSchema(params: ParamDeclarations): object {
  const properties = Object.fromEntries(
    Object.entries(params).map(([name, { type, oneOf, most, least, description }]) => {
      const said = description === undefined ? {} : { description };
      if (type === "list") return [name, { type: "array", items: { enum: oneOf }, ...said }];
      const limits = type === "integer" ? { minimum: least ?? 1, maximum: most } : {};
      return [name, { type, ...(oneOf ? { enum: oneOf } : {}), ...limits, ...said }];
    }),
  );
  const required = Object.entries(params).flatMap(([name, { isNeeded }]) => (isNeeded ? name : []));
  return { type: "object", properties, ...(required.length > 0 ? { required } : {}), additionalProperties: false };
}

/** Checks the arguments of a call. Throws CallMistake. */
export function checkArguments(params: ParamDeclarations, given: ToolArguments): ToolArguments {
  const checked: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null) continue;
    if (!Object.hasOwn(params, name))
      throw new CallMistake(`There is no param ${name.slice(0, 60)}. Params: ${Object.keys(params).join(", ")}.`);
    checked[name] = checkOne(name, params[name], value);
  }
  for (const [name, { isNeeded }] of Object.entries(params))
    if (isNeeded && checked[name] === undefined) throw new CallMistake(`${name} is needed.`);
  return checked;
}

function checkOne(name: string, { type, oneOf, most, least = 1 }: ParamDeclaration, value: unknown): unknown {
  if (type === "string") {
    if (typeof value !== "string") throw new CallMistake(`${name} is a string.`);
    if (value.length > (most ?? LONGEST_TEXT))
      throw new CallMistake(`${name} has ${most ?? LONGEST_TEXT} characters at most.`);
    if (oneOf && !oneOf.includes(value)) throw new CallMistake(`${name} is one of ${oneOf.join(", ")}.`);
    return value;
  }
  if (type === "boolean") {
    if (typeof value !== "boolean") throw new CallMistake(`${name} is true or false.`);
    return value;
  }
  if (type === "integer") {
    if (typeof value !== "number" || !Number.isInteger(value)) throw new CallMistake(`${name} is a whole number.`);
    // A number beyond the limits means the limit.
    return Math.max(least, Math.min(most ?? value, value));
  }
  const list = typeof value === "string" ? value.split(",").map((one) => one.trim()) : value;
  if (!Array.isArray(list) || !list.every((one) => typeof one === "string" && (oneOf?.includes(one) ?? true)))
    throw new CallMistake(`${name} is a list of ${oneOf?.join(", ") ?? "strings"}.`);
  return list.length === 0 ? undefined : list;
}

const UNITS: Readonly<Record<string, number>> = {
  h: 3600e3,
  d: 86_400e3,
  w: 604_800e3,
  m: 2_629_800e3,
  y: 31_557_600e3,
};

/** Reads a moment: ISO 8601, so many hours, days, weeks, months or years ago, today or yesterday. Throws CallMistake. */
export function readTime(name: string, given: unknown, now: number): string | undefined {
  if (typeof given !== "string" || given.trim() === "") return undefined;
  const text = given.trim().toLowerCase();
  const [, count, unit] = /^(\d{1,5})\s*([hdwmy])(?:\w*\s*ago|\w*)$/.exec(text) ?? [];
  if (unit !== undefined) return new Date(now - Number(count) * UNITS[unit]).toISOString();
  if (text === "today" || text === "yesterday") {
    const day = new Date(now);
    day.setHours(0, 0, 0, 0);
    return new Date(day.getTime() - (text === "today" ? 0 : UNITS.d)).toISOString();
  }
  const time = Date.parse(given.trim());
  if (Number.isNaN(time)) throw new CallMistake(`${name} is a time such as 7d, yesterday or 2026-03-14.`);
  return new Date(time).toISOString();
}
