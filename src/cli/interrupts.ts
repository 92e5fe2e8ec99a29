/** Ctrl+C while a verb runs: what only reads ends at once, what changes something ends whole or says how to go on. */

import type { Wire } from "./wire.ts";

/** The end of a verb that was interrupted. */
export class InterruptedError extends Error {}

/** Exit status of a program that Ctrl+C ended, as shells know it. */
export const INTERRUPTED = 130;

interface InterruptPlace {
  /** Calls back with each Ctrl+C until the returned function is called. */
  onInterrupt(handler: () => void): () => void;
  /** Prints a sentence next to the output. */
  say(sentence: string): void;
  wire(): Wire | undefined;
}

interface Interrupts {
  /** Rejects with InterruptedError when the verb is to end at once. */
  readonly ended: Promise<never>;
  /** True if Ctrl+C was typed. */
  readonly isAsked: boolean;
  /** Listens from now on. A program that listens does not end by itself, so one that only reads begins late. */
  listen(): void;
  stop(): void;
}

/** `onInterrupt` is how to go on after a change that was cut off; a verb without it changes nothing. */
export function watchInterrupts({ onInterrupt, say, wire }: InterruptPlace, howToGoOn: string | undefined): Interrupts {
  let stop: (() => void) | undefined;
  let asked = 0;
  let end: (error: InterruptedError) => void = () => {};
  const ended = new Promise<never>((_resolve, reject) => {
    end = reject;
  });
  // The caller may have stopped waiting for it.
  ended.catch(() => {});
  const handle = (): void => {
    asked++;
    const here = wire();
    if (asked === 1 && here?.isChanging) {
      here.cancelAll();
      say("Work that has begun is being finished. Ctrl+C again ends it now.");
      return;
    }
    if (howToGoOn !== undefined) say(here?.mayHaveChanged ? howToGoOn : "Nothing was changed.");
    end(new InterruptedError());
  };
  return {
    ended,
    get isAsked() {
      return asked > 0;
    },
    listen() {
      stop ??= onInterrupt(handle);
    },
    stop: () => stop?.(),
  };
}
