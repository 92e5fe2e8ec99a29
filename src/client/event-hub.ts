/** Events on their way to those who listen. */

import type { Events } from "./protocol.ts";

/** An event with its name. */
export type NamedEvent<N extends keyof Events> = {
  [M in N]: { readonly name: M; readonly params: Events[M] };
}[N];

export class EventHub {
  private readonly handlers = new Map<string, Set<(event: never) => void>>();
  private readonly endHandlers = new Set<() => void>();
  private hasEnded = false;

  /** Calls the handler for every such event. Returns a function that ends this. */
  on<N extends keyof Events>(name: N, handler: (event: Events[N]) => void): () => void {
    const known = this.handlers.get(name) ?? new Set();
    this.handlers.set(name, known.add(handler));
    return () => void known.delete(handler);
  }

  tell(name: string, params: unknown): void {
    for (const handler of [...(this.handlers.get(name) ?? [])]) handler(params as never);
  }

  /** Ends all streams, once they have yielded what waits in them. */
  end(): void {
    this.hasEnded = true;
    for (const handler of this.endHandlers) handler();
  }

  /** Yields events of these names from this call on, until the end or until the signal is aborted. */
  stream<N extends keyof Events>(
    names: readonly N[],
    signal: AbortSignal | undefined,
  ): AsyncGenerator<NamedEvent<N>, void, undefined> {
    const waiting: NamedEvent<N>[] = [];
    let wake = (): void => {};
    const woken = (): void => wake();
    const stops = names.map((name) =>
      this.on(name, (params) => {
        waiting.push({ name, params } as NamedEvent<N>);
        wake();
      }),
    );
    this.endHandlers.add(woken);
    signal?.addEventListener("abort", woken);
    const isDone = (): boolean => this.hasEnded || signal?.aborted === true;
    const stop = (): void => {
      for (const off of stops) off();
      this.endHandlers.delete(woken);
      signal?.removeEventListener("abort", woken);
    };
    return (async function* () {
      try {
        for (;;) {
          while (waiting.length > 0) yield waiting.shift() as NamedEvent<N>;
          if (isDone()) return;
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      } finally {
        stop();
      }
    })();
  }
}
