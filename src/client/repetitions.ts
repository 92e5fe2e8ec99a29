/** Commands that may be sent again after their server died. The build replaces this file by the table's answer. */

import { getRepetition, type Repetition } from "../handlers/shared/repetition.ts";
import { commandTable } from "../handlers/shared/table.ts";

export const repetitions: Readonly<Record<string, Repetition>> = Object.fromEntries(
  commandTable.map((command) => [command.name, getRepetition(command)]),
);
