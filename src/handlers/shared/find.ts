/**
 * Commands by name. The build puts the same list in place of this file with each command's file loaded when the command
 * is first asked for (scripts/build.js): making the schemas of all took 12 of the 100 ms of a start.
 */

import type { Command } from "./command.ts";
import { table } from "./table.ts";

const byName = new Map<string, Command>();
for (const command of table) {
  byName.set(command.name, command);
  if (command.alias !== undefined) byName.set(command.alias, command);
}

/** The command with that name or alias. */
export function findCommand(name: string): Command | undefined {
  return byName.get(name);
}

export const commandNames: readonly string[] = [...byName.keys()];
