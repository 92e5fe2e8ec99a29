/**
 * Finds commands by name. The build replaces this file with one that loads each command's file when the command is
 * first asked for (scripts/build.js): making the schemas of all took 12 of the 100 ms of a start.
 */

import type { Command } from "./command.ts";
import { table } from "./table.ts";

const byName = new Map<string, Command>();
for (const command of table) {
  byName.set(command.name, command);
  if (command.alias !== undefined) byName.set(command.alias, command);
}

/** Returns the command with that name or alias. */
export function findCommand(name: string): Command | undefined {
  return byName.get(name);
}

export const commandNames: readonly string[] = [...byName.keys()];
