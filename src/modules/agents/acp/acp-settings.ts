/** The settings of a session of an ACP agent: its mode and its options. */

import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import type { AcpUpdate } from "./update-mapper.ts";

export class SessionSettings {
  private modes: LooseMembers | undefined;
  configOptions: readonly unknown[] | undefined;

  /** `opened`: the agent's reply to the request that opened the session. */
  constructor({ modes, configOptions }: LooseMembers) {
    if (toStored(toMembers(modes).currentModeId) !== "") this.modes = toMembers(modes);
    this.setOptions(configOptions);
  }

  /** The settings, as members of a reply. */
  get current(): LooseMembers {
    const { modes, configOptions } = this;
    return { ...(modes ? { modes } : {}), ...(configOptions ? { configOptions } : {}) };
  }

  /** Applies an update of the settings. */
  note({ sessionUpdate, currentModeId, configOptions }: LooseMembers): void {
    if (sessionUpdate === "current_mode_update") this.setMode(currentModeId);
    if (sessionUpdate === "config_option_update") this.setOptions(configOptions);
  }

  setMode(currentModeId: unknown): void {
    if (this.modes && typeof currentModeId === "string") this.modes = { ...this.modes, currentModeId };
  }

  setOptions(configOptions: unknown): void {
    if (Array.isArray(configOptions)) this.configOptions = configOptions;
  }

  /** Yields the updates from the client's former settings to these. */
  *changesSince(before: SessionSettings): Generator<AcpUpdate> {
    const { modes, configOptions } = this;
    if (modes && modes.currentModeId !== before.modes?.currentModeId)
      yield { sessionUpdate: "current_mode_update", currentModeId: modes.currentModeId };
    if (configOptions && JSON.stringify(configOptions) !== JSON.stringify(before.configOptions))
      yield { sessionUpdate: "config_option_update", configOptions };
  }
}
