/** Finds commands by name. scripts/build.js makes one that loads each when asked for: all take 12 ms of a start. */

import type { Command } from "./command.ts";
import { commandTable } from "./table.ts";

const byName = new Map<string, Command>();
for (const command of commandTable) {
  byName.set(command.name, command);
  if (command.alias !== undefined) byName.set(command.alias, command);
}

export function findCommand(name: string): Command | undefined {
  return byName.get(name);
}

export const commandNames: readonly string[] = [...byName.keys()];
