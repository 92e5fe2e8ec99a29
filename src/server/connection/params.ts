/** Validates params against a command's schema. */

import { BadParams } from "../../core/failure.ts";
import type { Command } from "../../handlers/shared/command.ts";

/** Returns the validated params. Throws BadParams with the path of each offending member. */
export function checkParams(command: Command, params: unknown, loose: boolean): unknown {
  const result = (loose ? command.looseParams : command.params).safeParse(params ?? {});
  if (result.success) return result.data;
  throw new BadParams(
    result.error.issues.flatMap((issue) => {
      const path = issue.path.join(".");
      if (issue.code === "unrecognized_keys")
        return issue.keys.map((key) => ({
          path: path === "" ? key : `${path}.${key}`,
          message: `no such member; the known ones are ${Object.keys(command.params.shape).join(", ")}`,
        }));
      return [{ path, message: issue.message }];
    }),
  );
}
