/** Commands of Pi that need a model or a tool runner: they fail at once and say what to use instead. */

import * as z from "zod";
import { Failure } from "../../core/failure.ts";
import { command, type Typed } from "./command.ts";

export function unsupported<const N extends string, const S extends z.ZodRawShape>(
  name: N,
  params: S,
  instead: string,
): Typed<N, S, z.ZodNever> {
  return command({
    name,
    summary: `Pi's command for its own agent. Not offered here: ${instead}`,
    effect: "control",
    params,
    result: z.never(),
    failures: ["unsupported_command"],
    example: { params: {}, result: undefined },
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
  return unsupported(name, params, "call your model with what get_messages returns, and store its answer with append.");
}
