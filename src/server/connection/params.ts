/** Validates params against a command's schema. */

import { BadParams } from "../../core/failure.ts";
import type { Command } from "../../handlers/shared/command.ts";
import type { Call } from "./call.ts";

type CheckedParams = Pick<Call, "params" | "fault">;

/** Returns the validated params, or as the fault what names the path of each offending member. */
export function checkedParams(command: Command, params: unknown, loose: boolean): CheckedParams {
  if (Array.isArray(params)) return faulty([{ path: "", message: "params are given by name, in an object" }]);
  const result = (loose ? command.looseParams : command.params).safeParse(params ?? {});
  if (result.success) return { params: result.data, fault: undefined };
  return faulty(
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

function faulty(issues: BadParams["issues"]): CheckedParams {
  return { params: undefined, fault: new BadParams(issues) };
}
