/** The door of recall: past sessions for agents that ask, over the Model Context Protocol or in a shell. */

import { runCommand } from "../../server/dispatch/command-runner.ts";
import type { Face, FaceWire } from "../../server/face.ts";
import type { AskCommand, RecallOutcome, RecallPlace, ToolFace } from "../../server/recall-module.ts";
import { McpFace } from "./face.ts";
import { Library } from "./library.ts";
import type { ToolArguments } from "./params.ts";
import { McpConversation } from "./protocol.ts";
import { runTool, tools } from "./tools.ts";
import { makeRecallWorld } from "./world.ts";

export { describeRecallRegistration, listRecallClients } from "./registrations.ts";

export function listRecallTools(): readonly ToolFace[] {
  return tools;
}

/** Runs a tool by its name, which must be one. */
export function runRecallTool(
  ask: AskCommand,
  place: RecallPlace,
  name: string,
  args: ToolArguments,
): Promise<RecallOutcome> {
  const tool = tools.find((one) => one.name === name);
  if (tool === undefined) throw new Error(`There is no tool ${name}.`);
  return runTool(new Library(makeRecallWorld(ask, place)), tool, args);
}

export function startRecallFace(wire: FaceWire, place: RecallPlace & { readonly version: string }): Face {
  const ask: AskCommand = (command, params = {}) => runCommand(wire.dispatcher, command, params);
  const library = new Library(makeRecallWorld(ask, place));
  return new McpFace(wire, (notify) => new McpConversation(library, place.version, notify));
}
