/** The settings of a server. */

import type { AgentSettings } from "./agents-module.ts";
import type { DialectName, FaceName } from "./connection/dialect.ts";
import type { FramingName } from "./connection/framing.ts";
import type { RecallSettings } from "./recall-module.ts";

export interface ServerSettings {
  readonly session?: string;
  readonly continueLatest: boolean | "top";
  readonly fork?: string;
  readonly sessionId?: string;
  readonly name?: string;
  readonly sessionDir?: string;
  readonly inMemory: boolean;
  readonly store: "jsonl" | "v2";
  readonly durability: "sync" | "os";
  /** The address of the shared database, which has the sessions, too. */
  readonly fleet?: string;
  /** Writes without the database: refused, or acknowledged and uploaded later. */
  readonly fleetAway: "refuse" | "journal";
  /** Indexes words for the search of other machines; by default as PI_FLEET_SEARCH says. */
  readonly fleetSearch?: "on" | "off";
  readonly framing: FramingName | "auto";
  readonly dialect: DialectName | FaceName | "auto";
  readonly events: readonly string[] | "all";
  readonly readOnly: boolean;
  /** Sharing of sessions with other processes, which may join their holder. */
  readonly attach: "auto" | "off";
  readonly maxMessageBytes: number;
  /** Milliseconds that a host has to answer any hook; by default as the protocol says for each. */
  readonly hookTimeout: number | undefined;
  /** Milliseconds of silence of a joined session's holder, if not the default. */
  readonly holderTimeout: number | undefined;
  /** Folders, besides the session folders, that may be accessed; undefined when paths are not confined. */
  readonly allowedPaths: readonly string[] | undefined;
  readonly provider?: string;
  readonly model?: string;
  readonly thinking?: string;
  /** The agent behind this server, if there is one. */
  readonly agent: AgentSettings | undefined;
  /** For agents that ask about past sessions. */
  readonly recall: RecallSettings;
  /** True if the server replaces Pi (`--mode rpc`). */
  readonly asPi: boolean;
  readonly action: "serve" | "help" | "version";
}

/** Reports settings that this build cannot serve. */
export class SettingsError extends Error {}
