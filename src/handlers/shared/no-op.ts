/** Commands of Pi that do nothing in a server without an agent, and settings that Pi's clients read back. */

import * as z from "zod";
import { bytesOf } from "../../core/json/json.ts";
import { Raw } from "../../core/json/raw.ts";
import { type ClientSettings, command } from "./command.ts";

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
