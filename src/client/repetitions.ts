/** Which commands may be sent again after their server died. The build puts the table's answer in place of this file. */

import { type Repetition, repetitionOf } from "../handlers/shared/repetition.ts";
import { table } from "../handlers/shared/table.ts";

export const repetitions: Readonly<Record<string, Repetition>> = Object.fromEntries(
  table.map((command) => [command.name, repetitionOf(command)]),
);
