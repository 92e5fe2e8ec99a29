/** The contract of the module with agents: the face for editors, and agents behind the server. */

import type { ChildProcessByStdio, SpawnOptionsWithStdioTuple, StdioPipe } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import type { Session } from "../core/session/session.ts";
import type { Call, Outcome } from "./connection/call.ts";
import type { Face, FaceWire } from "./face.ts";

export interface AgentsModule {
  /** Starts the conversation with an editor in the Agent Client Protocol. Without an agent behind, prompts are refused. */
  startEditorFace(wire: FaceWire, facts: EditorFacts, agent?: AgentOptions): Face;
  /** Puts Pi behind a host that speaks Pi's dialect. The agent starts with the first command for it. */
  startPiBehind(wire: PiWire, agent: AgentOptions): PiBehind;
}

/** Facts about the server for an editor. */
export interface EditorFacts {
  readonly version: string;
  readonly readOnly: boolean;
}

/** An agent that this server starts. */
export interface AgentSettings {
  /** The program and its arguments. */
  readonly words: readonly string[];
  /** Pi's dialect, or the Agent Client Protocol. */
  readonly protocol: "pi" | "acp";
  /** Milliseconds that the agent has to answer a question of ours, and to read its pending input. */
  readonly within: number;
}

/** Options to start an agent. */
export interface AgentOptions extends AgentSettings {
  readonly variables: Readonly<Record<string, string | undefined>>;
  readonly maxLineBytes: number;
  /** By default Node's `spawn`. */
  readonly spawn?: SpawnAgent;
  readonly patience?: AgentPatience;
  /** Shows a sentence to a person. */
  printError(sentence: string): void;
  /** Returns the agent's working directory for a session. */
  cwdFor(session: Pick<Session, "cwd"> | null): string;
}

export type SpawnAgent = (
  program: string,
  args: readonly string[],
  options: SpawnOptionsWithStdioTuple<StdioPipe, StdioPipe, StdioPipe>,
) => ChildProcessByStdio<Writable, Readable, Readable>;

export interface AgentPatience {
  /** Milliseconds after the end of its input until a living agent gets SIGTERM, and SIGKILL. */
  readonly terminatedAfter: number;
  readonly killedAfter: number;
  /** Milliseconds after its exit until its output is closed; a process that it started may hold it. */
  readonly outputEndsWithin: number;
}

export interface PiWire extends FaceWire {
  /** Sends the reply to a call. */
  reply(call: Call, outcome: Outcome): void;
}

export interface PiBehind {
  /** True if the agent does not read its input. */
  readonly isFull: boolean;
  /** Takes a message of the host. Returns false for one that the server answers alone. */
  accept(value: unknown, bytes: Buffer): boolean;
  /** Called when the host reads again. */
  resume(): void;
  /** Ends the agent, and recovers its turn. */
  end(): Promise<void>;
}
