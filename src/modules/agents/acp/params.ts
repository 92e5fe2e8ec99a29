/** Params of the methods of the Agent Client Protocol. Unknown members are accepted, as the protocol requires. */

import { isAbsolute, resolve } from "node:path";
import * as z from "zod";
import { BadParams } from "../../../core/failure.ts";
import { check } from "../../../core/format/issues.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { SERVER_NAME } from "./update-mapper.ts";

const shapes = {
  sessionId: () => z.string(),
  cwd: () =>
    z
      .string()
      .refine((path) => isAbsolute(path), "must be an absolute path")
      .refine((path) => !path.includes("\0"), "must have no NUL, which no path has")
      // Sessions store it without a slash at the end.
      .transform((path) => resolve(path)),
  cursor: () => z.string().nullish(),
  archived: () => z.enum(["exclude", "include", "only"]).nullish(),
  title: () => z.string(),
  prompt: () => z.array(z.looseObject({ type: z.string() })),
  modeId: () => z.string(),
  configId: () => z.string(),
  value: () => z.union([z.string(), z.boolean()]),
  mcpServers: () => z.array(z.unknown()).nullish(),
  additionalDirectories: () => z.array(z.string()).nullish(),
  entryId: () => z.string().nullable(),
};

type Shapes = typeof shapes;

/** The checked params of a request. */
type CheckedMembers<N extends keyof Shapes> = { readonly [K in N]: z.output<ReturnType<Shapes[K]>> } & LooseMembers;

/** Checks these members of the params. Throws BadParams. */
export function parseParams<N extends keyof Shapes>(given: unknown, ...names: readonly N[]): CheckedMembers<N> {
  const result = check(getSchema(names), given ?? {});
  if (result.success) return result.data as CheckedMembers<N>;
  throw new BadParams(result.error.issues.map(({ path, message }) => ({ path: path.join("."), message })));
}

/** Schemas by the names of their members. Making one takes 0.15 ms, which would delay each prompt. */
const schemas = new Map<string, z.ZodType>();

function getSchema(names: readonly (keyof Shapes)[]): z.ZodType {
  const key = names.join();
  let schema = schemas.get(key);
  if (!schema) {
    const shape = Object.fromEntries(names.map((name) => [name, shapes[name]()]));
    schema = z.looseObject({ ...shape, _meta: z.looseObject({}).nullish() });
    schemas.set(key, schema);
  }
  return schema;
}

/** Returns the working directory to list; undefined for all. Throws BadParams. */
export function parseListCwd(params: LooseMembers): string | undefined {
  return params.cwd === undefined || params.cwd === null ? undefined : parseParams(params, "cwd").cwd;
}

/** Returns our part of the `_meta` that the client sent. */
export function getMeta({ _meta }: LooseMembers): LooseMembers {
  return toMembers(toMembers(_meta)[SERVER_NAME]);
}

/** Returns a text of our part of `_meta`. Throws BadParams when it is not a string. */
export function getMetaText(params: LooseMembers, name: string): string | undefined {
  const value = getMeta(params)[name];
  if (value === undefined || value === null || typeof value === "string") return value ?? undefined;
  throw new BadParams([{ path: `_meta.${SERVER_NAME}.${name}`, message: "must be a string" }]);
}

/** Params that only an agent uses. The reply names those that the client gave and no agent used. */
const UNUSED = ["mcpServers", "additionalDirectories", "systemPrompt"];

export function listUnusedParams(params: LooseMembers): string[] {
  const isEmpty = (value: unknown): boolean =>
    value === undefined || value === null || (Array.isArray(value) && value.length === 0);
  return UNUSED.filter((name) => !isEmpty(params[name]));
}
