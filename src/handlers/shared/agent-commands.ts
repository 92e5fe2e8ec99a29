/** Commands of Pi for its agent: those that do nothing here, settings that clients read back, and those that fail. */

import * as z from "zod";
import { Failure } from "../../core/failure.ts";
import { bytesOf } from "../../core/json/json.ts";
import { Raw } from "../../core/json/raw.ts";
import { type ClientSettings, command, type Typed } from "./command.ts";

/** Declares a command that succeeds and does nothing. With `says`, its reply in Pi's dialect has `"data":null`. */
export function neutral<const N extends string>(name: N, summary: string, says = false) {
  return command({
    name,
    summary,
    effect: "control",
    result: z.null(),
    example: { params: {}, result: null },
    run: () => null,
    pi: () => (says ? Raw.of(bytesOf("null")) : null),
  });
}

/** Declares a command that keeps a setting while the process lives. */
export function setting<const N extends string, K extends keyof ClientSettings, const P extends string>(
  name: N,
  summary: string,
  key: K,
  param: P,
  value: z.ZodType<ClientSettings[K]>,
  example: ClientSettings[K],
) {
  return command({
    name,
    summary,
    effect: "control",
    params: { [param]: value } as Record<P, z.ZodType<ClientSettings[K]>>,
    result: z.null(),
    example: { params: { [param]: example }, result: null },
    run(context, params) {
      context.settings[key] = (params as Record<P, ClientSettings[K]>)[param];
      return null;
    },
  });
}

/** Declares a command that needs a model or a tool runner: it fails at once and says what to use instead. */
export function unsupported<const N extends string, const S extends z.ZodRawShape>(
  name: N,
  params: S,
  example: z.input<z.ZodObject<S>>,
  instead: string,
): Typed<N, S, z.ZodNever> {
  return command({
    name,
    summary: `Pi's command for its own agent. Not offered here: ${instead}`,
    effect: "control",
    params,
    result: z.never(),
    failures: ["unsupported_command"],
    example: { params: example, result: undefined },
    run() {
      throw new Failure("unsupported_command", `This server owns the history and runs no agent: ${instead}`, {
        command: name,
      });
    },
  });
}

/** Declares a command that would send a message to the model. */
export function prompting<const N extends string>(name: N) {
  const params = {
    message: z.string().optional(),
    images: z.array(z.unknown()).optional(),
    streamingBehavior: z.string().optional(),
  };
  return unsupported(
    name,
    params,
    { message: "Hello" },
    "call your model with what get_messages returns, and store its answer with append.",
  );
}
