/** Commands of Pi that have nothing to do in a server without an agent, and settings that its clients read back. */

import * as z from "zod";
import { bytesOf } from "../../core/json/json.ts";
import { Raw } from "../../core/json/raw.ts";
import { command, type Settings } from "./command.ts";

/** Succeeds and does nothing. With `says`, Pi's dialect has the null in so many words. */
export function neutral<const N extends string>(name: N, summary: string, says = false) {
  return command({
    name,
    summary,
    effect: "control",
    params: {},
    result: z.null(),
    failures: [],
    example: { params: {}, result: null },
    run: () => null,
    pi: () => (says ? Raw.of(bytesOf("null")) : null),
  });
}

/** Keeps a setting while the process lives. */
export function setting<const N extends string, K extends keyof Settings, const P extends string>(
  name: N,
  summary: string,
  key: K,
  param: P,
  value: z.ZodType<Settings[K]>,
  example: Settings[K],
) {
  return command({
    name,
    summary,
    effect: "control",
    params: { [param]: value } as Record<P, z.ZodType<Settings[K]>>,
    result: z.null(),
    failures: [],
    example: { params: { [param]: example }, result: null },
    run(context, params) {
      context.settings[key] = (params as Record<P, Settings[K]>)[param];
      return null;
    },
  });
}
