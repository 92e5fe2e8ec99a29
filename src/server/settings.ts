/** The settings that a server is started with. */

import type { DialectName } from "./connection/dialect.ts";
import type { FramingName } from "./connection/framing.ts";

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
  /** The address of the database that has the sessions, too. */
  readonly fleet?: string;
  /** Whether writes fail while that is away, or are acknowledged and brought there later. */
  readonly fleetAway: "refuse" | "journal";
  /** Whether it has the words by which other machines find sessions; by default as PI_FLEET_SEARCH says. */
  readonly fleetSearch?: "on" | "off";
  readonly framing: FramingName | "auto";
  readonly dialect: DialectName | "acp" | "auto";
  readonly events: readonly string[] | "all";
  readonly readOnly: boolean;
  /** Whether sessions are shared with other processes: their holder lets others join. */
  readonly attach: "auto" | "off";
  readonly maxMessageBytes: number;
  /** Milliseconds a host has to answer any hook; by default as the protocol says for each. */
  readonly hookTimeout: number | undefined;
  /** Milliseconds for which the holder of a session that was joined may say nothing, if not the usual ones. */
  readonly holderTimeout: number | undefined;
  /** Folders besides the session folders that may be accessed; undefined when paths are not confined. */
  readonly allowedPaths: readonly string[] | undefined;
  readonly provider?: string;
  readonly model?: string;
  readonly thinking?: string;
  /** The agent behind this server: how it is started, and how long it may take to answer; undefined when there is none. */
  readonly agent: AgentSettings | undefined;
  /** Whether the server stands in for Pi (`--mode rpc`). */
  readonly asPi: boolean;
  readonly action: "serve" | "help" | "version";
}

/** An agent that this server starts. */
export interface AgentSettings {
  /** The program and its arguments. */
  readonly words: readonly string[];
  /** The language that it speaks: Pi's dialect, or the Agent Client Protocol, of which each line is passed on and recorded. */
  readonly protocol: "pi" | "acp";
  /** Milliseconds that it has to answer a question of ours, and to read what waits for it. */
  readonly within: number;
}
