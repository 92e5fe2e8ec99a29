/** The contract of the module recall: past sessions for agents that ask, over the Model Context Protocol or in a shell. */

import type listSessions from "../handlers/list_sessions.ts";
import type searchSessions from "../handlers/search_sessions.ts";
import type { Face, FaceWire } from "./face.ts";

export interface RecallModule {
  /** Returns the tools, in the order in which models see them. Asks nothing. */
  listRecallTools(): readonly ToolFace[];
  /** Runs a tool by its name, which must be one. A mistake in the arguments and a failure of a command are texts, too. */
  runRecallTool(
    ask: AskCommand,
    place: RecallPlace,
    name: string,
    args: Readonly<Record<string, unknown>>,
  ): Promise<RecallOutcome>;
  /** Returns the clients whose registration is known. */
  listRecallClients(): readonly string[];
  /** Returns the lines that tell a person how a client starts this server; undefined for a client that is not known. */
  describeRecallRegistration(client: string, options: readonly string[]): string[] | undefined;
  /** Starts the conversation with a client in the Model Context Protocol. */
  startRecallFace(wire: FaceWire, place: RecallPlace & { readonly version: string }): Face;
}

// biome-ignore lint/suspicious/noExplicitAny: results come from the commands, as any client has them
export type CommandResult = any;

/** A session as lists have it that are not streamed. */
export type RecallSession = Readonly<NonNullable<(typeof listSessions)["types"]>["result"]["sessions"][number]> & {
  readonly shortId: string;
};

export type RecallHit = Readonly<NonNullable<(typeof searchSessions)["types"]>["result"]["hits"][number]>;

/** Runs a command and returns its result. Rejects with its failure, which has a name. */
export type AskCommand = (command: string, params?: Readonly<Record<string, unknown>>) => Promise<CommandResult>;

/** Choices of the person who starts the server, which no client can change. */
export interface RecallSettings {
  /** Folders whose projects and sessions are kept out. */
  readonly excluded: readonly string[];
  /** False if secrets stay. */
  readonly redacts: boolean;
}

/** The machine, the project and the person. */
export interface RecallPlace extends RecallSettings {
  readonly variables: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /** Returns where a path really leads. Throws errno errors. */
  realPath(path: string): string;
  /** Returns the processes that started this one, its parent first. */
  findAncestors(): readonly number[];
}

/** A tool as the command line declares it. */
export interface ToolFace {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly params: ParamDeclarations;
  /** The params that words of a command line are, in their order; the last one takes all that are left. */
  readonly operands: readonly string[];
}

export type ParamDeclarations = Readonly<Record<string, ParamDeclaration>>;

export interface ParamDeclaration {
  readonly type: "string" | "integer" | "boolean" | "list";
  readonly description?: string;
  readonly oneOf?: readonly string[];
  readonly most?: number;
  readonly least?: number;
  readonly isNeeded?: boolean;
}

/** The text of a call; `isError`: it says what was wrong with it. */
export interface RecallOutcome {
  readonly text: string;
  readonly isError: boolean;
}
