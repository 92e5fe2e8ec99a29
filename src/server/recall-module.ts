/** The contract of the module recall: past sessions for agents that ask, over the Model Context Protocol or in a shell. */

export interface RecallModule {
  /** Returns the tools, in the order in which models see them. Asks nothing. */
  listRecallTools(): readonly ToolFace[];
  /** Runs a tool by its name, which must be one. A mistake in the arguments and a failure of a command are texts, too. */
  runRecallTool(world: RecallWorld, name: string, args: Readonly<Record<string, unknown>>): Promise<RecallOutcome>;
  /** Returns the clients whose registration is known. */
  listRecallClients(): readonly string[];
  /** Returns the lines that tell a person how a client starts this server; undefined for a client that is not known. */
  describeRecallRegistration(client: string, options: readonly string[]): string[] | undefined;
  /** Speaks with a client over streams of lines, until the input ends or `print` returns false: no reader is left. */
  serveMcp(
    world: RecallWorld,
    version: string,
    input: AsyncIterable<Uint8Array>,
    print: (text: string) => Promise<boolean>,
  ): Promise<void>;
}

// biome-ignore lint/suspicious/noExplicitAny: results come from the commands, as any client has them
export type CommandResult = any;

/** Runs a command and returns its result. Rejects with its failure, which has a name. */
export type AskCommand = (command: string, params?: Readonly<Record<string, unknown>>) => Promise<CommandResult>;

/** Everything around the tools. */
export interface RecallWorld {
  readonly ask: AskCommand;
  now(): number;
  readonly cwd: string;
  readonly home: string | undefined;
  /** Absolute paths of folders whose projects and sessions are kept out. */
  readonly excluded: readonly string[];
  /** Returns where a path really leads; the path itself if nothing is there. */
  realPath(path: string): string;
  /** False if secrets stay. */
  readonly redacts: boolean;
  /** Returns the processes that started this one. */
  ancestors(): readonly number[];
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
