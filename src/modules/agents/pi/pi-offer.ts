/** Converts the models and thinking levels that Pi offers to modes and options of an editor. */

import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";

/** Pi's offer in a directory. */
export interface PiOffer {
  readonly models: readonly LooseMembers[];
  readonly commands: readonly LooseMembers[];
  /** Pi's initial model and level. */
  readonly model: LooseMembers | undefined;
  readonly thinkingLevel: string;
}

/** The current model and level of a session. */
export interface PiSelection {
  readonly model: LooseMembers | undefined;
  readonly thinkingLevel: string;
  /** The levels of the model, from Pi itself. */
  readonly levels?: readonly string[];
}

const LEVELS = ["off", "minimal", "low", "medium", "high"];
export const MODEL_OPTION = "model";
export const LEVEL_OPTION = "thought_level";

/** Returns the option value of a model. */
export function toModelName(model: LooseMembers): string {
  return `${toStored(model.provider)}/${toStored(model.id)}`;
}

/** Returns the declared levels of a model, or the usual ones. */
export function listLevels(model: LooseMembers | undefined): readonly string[] {
  if (model?.reasoning !== true) return [];
  const map = toMembers(model.thinkingLevelMap);
  const more = ["xhigh", "max"].filter((level) => typeof map[level] === "string");
  return [...LEVELS.filter((level) => map[level] !== null), ...more];
}

/** Returns the thinking levels as modes, and `configOptions`; a setting with a single value is left out. */
export function toSettings({ models }: PiOffer, { model, thinkingLevel, levels }: PiSelection): LooseMembers {
  const offered = levels ?? listLevels(model);
  const known = offered.includes(thinkingLevel) ? offered : [thinkingLevel, ...offered];
  const configOptions: object[] = [];
  const listed = model && !models.some((one) => toModelName(one) === toModelName(model)) ? [model, ...models] : models;
  if (model && listed.length > 0)
    configOptions.push({
      ...{ id: MODEL_OPTION, name: "Model", category: "model", type: "select", currentValue: toModelName(model) },
      options: listed.map((one) => ({
        value: toModelName(one),
        name: toStored(one.name) || toStored(one.id),
        description: toStored(one.provider),
      })),
    });
  if (offered.length < 2) return { configOptions };
  configOptions.push({
    ...{
      id: LEVEL_OPTION,
      name: "Thinking",
      category: "thought_level",
      type: "select",
      currentValue: thinkingLevel,
    },
    options: known.map((value) => ({ value, name: value })),
  });
  const availableModes = known.map((id) => ({ id, name: `Thinking: ${id}` }));
  return { modes: { currentModeId: thinkingLevel, availableModes }, configOptions };
}

/** Returns Pi's slash commands: prompts, skills and those of extensions. */
export function toCommandsUpdate({ commands }: PiOffer): object {
  const availableCommands = commands
    .filter(({ name }) => typeof name === "string" && name !== "")
    .map(({ name, description, source }) => ({
      name,
      description: toStored(description) || toStored(source) || "A command of the agent",
      input: { hint: "arguments" },
    }));
  return { sessionUpdate: "available_commands_update", availableCommands };
}
