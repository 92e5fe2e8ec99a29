/**
 * The types of the protocol, by name, from the declarations. The package has them written out in its place: see
 * scripts/schema.js.
 */

import type * as z from "zod";
import type { FailureName as Declared } from "../core/failure.ts";
import type { commonParams } from "../handlers/shared/command.ts";
import type { eventBase, eventDeclarations } from "../handlers/shared/events.ts";
import type { hookDeclarations } from "../handlers/shared/hooks.ts";
import type { AnyCommand } from "../handlers/shared/table.ts";

export type * from "./conversation.ts";

type Name = AnyCommand["name"];

type TypesOf<N extends Name> = NonNullable<Extract<AnyCommand, { readonly name: N }>["types"]>;

type Common = z.input<z.ZodObject<typeof commonParams>>;

/** Params of a command. Members that many commands take are optional for all, and refused where they mean nothing. */
type ParamsOf<N extends Name> = string extends keyof TypesOf<N>["params"]
  ? Common
  : Omit<Common, keyof TypesOf<N>["params"]> & TypesOf<N>["params"];

/** Params and result of each command. */
export type Commands = { [N in Name]: { params: ParamsOf<N>; result: TypesOf<N>["result"] } };

/** Members of each event. */
export type Events = {
  [N in keyof typeof eventDeclarations]: z.output<z.ZodObject<typeof eventBase>> &
    z.output<z.ZodObject<(typeof eventDeclarations)[N]["payload"]>>;
};

/** The question and the answer of each hook. */
export type Hooks = {
  [N in keyof typeof hookDeclarations]: {
    payload: z.output<z.ZodObject<(typeof hookDeclarations)[N]["payload"]>>;
    answer: z.input<z.ZodObject<(typeof hookDeclarations)[N]["answer"]>>;
  };
};

/** Names of expected failures, as `error.data.name` has them. */
export type FailureName = Declared;
