/** The server in its life: the connection, and how it ends. */

import type { MessageStream } from "./message-stream.ts";

export interface ServerProcess {
  readonly wire: MessageStream;
  /** Resolves after `wire.ended`, when the process is gone, with its last words. */
  readonly gone: Promise<string>;
  /** Closes the server's input; ends the server if it lives on. */
  end(): void;
  /** Ends the server at once. */
  kill(): void;
}

/** Milliseconds that a server may live on after its input or its output was closed. */
const LINGER = 5_000;

export function superviseProcess(wire: MessageStream, gone: Promise<string>, kill: () => void): ServerProcess {
  const end = (): void => {
    wire.end();
    const timer = setTimeout(kill, LINGER);
    void gone.then(() => clearTimeout(timer));
  };
  void wire.ended.then(end);
  return { wire, gone, end, kill };
}
