/** The server and the terminal as a verb sees them, and the errors that the server answers with. */

import type { Commands } from "../client/protocol.ts";
import type { Failure } from "../core/failure.ts";
import type { Service } from "../server/main.ts";
import type { Disk } from "../storage/fs/disk.ts";
import type { Variables } from "../storage/fs/paths.ts";
import type { CommandLine } from "./options.ts";
import type { OutputStyle } from "./terminal/page.ts";
import type { Launch } from "./terminal/programs.ts";
import type { Screen } from "./terminal/screen.ts";
import { collectTexts, rewordAsVerbs } from "./wording.ts";

// biome-ignore lint/suspicious/noExplicitAny: results come from the wire, as any client has them
export type AnyResult = any;

/** The result of a command. */
export type ResultOf<Name extends keyof Commands> = Commands[Name]["result"];

/** Sends a command and returns its result. Throws {@link CommandFailed}. */
export type Ask = <Name extends keyof Commands>(
  method: Name,
  params?: Commands[Name]["params"],
) => Promise<ResultOf<Name>>;

/** The operands and options of a verb's command line. */
export type VerbArguments = Omit<CommandLine, "settings">;

/** A callback for events, with the text that came. Nothing more is read until it resolves. */
export type EventCallback = (name: string, params: AnyResult, text: string) => Promise<void>;

/** The server and the terminal as a verb sees them while it runs. */
export interface VerbContext {
  /** Sends a command and returns its result. Throws {@link CommandFailed}. */
  readonly ask: Ask;
  readonly service: Service;
  /** Shows the progress of long work if a person would see it. `what` is the command that does it. */
  progress(done: number, total: number, what?: string): void;
  readonly variables: Variables;
  /** The working directory; paths that a person gives refer to it. */
  readonly cwd: string;
  /** True if stdout is a terminal. */
  readonly isTerminal: boolean;
  /** Returns the page of a terminal with so many columns; without a number, that of stdout. */
  page(columns?: number): OutputStyle;
  /** Takes over the terminal; returns undefined if there is none. */
  openScreen(): Screen | undefined;
  /** Asks a question with the answers yes and no; returns undefined if no person can be asked. */
  confirm(question: string): Promise<boolean | undefined>;
  /** Prints on stdout at once, for verbs with live output. Returns false if the reader has gone. */
  print(text: string): Promise<boolean>;
  /** Prints a sentence for the person, apart from the output. */
  say(sentence: string): void;
  /** Returns all that is on stdin. */
  readInput(): Promise<string>;
  /** Calls back for each event that the verb's `serverOptions` ask for. */
  listen(callback: EventCallback): void;
  /** Calls back when the person wants the verb to end; without this, the process ends. Returns what undoes it. */
  onInterrupt(act: () => void): () => void;
  /** True if the person typed Ctrl+C. A verb that changes one thing after the other ends with the one that it has begun. */
  readonly isInterrupted: boolean;
  /** The files of this machine, for facts that no command returns. */
  readonly disk: Disk;
  /** Ends the server, which closes its sessions; the next command starts another one. */
  leave(): Promise<void>;
  /** Hands the terminal to a program and returns its exit status. */
  start(launch: Launch): Promise<number>;
}

/** An error as the server answers with it. */
export interface CommandError {
  readonly code: number;
  readonly message: string;
  readonly data?: { readonly name?: string; readonly retryable?: boolean; readonly [member: string]: unknown };
}

/** The error that a command was answered with; its message is in the words of the command line. */
export class CommandFailed extends Error {
  readonly error: CommandError;
  constructor(error: CommandError) {
    super(rewordAsVerbs(error.message, collectTexts(error.data)));
    this.error = error;
  }
}

/** Returns a failure of what a verb does without the server as the error that a command would have been answered with. */
export function toCommandFailed({ code, message, name, retryable, details }: Failure): CommandFailed {
  return new CommandFailed({ code, message, data: { name, retryable, ...details } });
}

/** Returns the sentence about one of the things in a result in verbs and options, with its paths and ids as they are. */
export function toSentence({ message, ...of }: { readonly message: string }): string {
  return rewordAsVerbs(message, collectTexts(of));
}
