/** Events on their way to those who listen. */

import type { Events } from "./protocol.ts";

/** An event with its name. */
export type NamedEvent<N extends keyof Events> = {
  [M in N]: { readonly name: M; readonly params: Events[M] };
}[N];

/** Calls a handler of the host. An error of its own is thrown outside of our work, which goes on. */
export function call<T>(handler: (value: T) => void, value: T): void {
  try {
    handler(value);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

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

  notify(name: string, params: unknown): void {
    for (const handler of [...(this.handlers.get(name) ?? [])]) call(handler, params as never);
  }

  /** Ends all streams, once they have yielded what waits in them. */
  end(): void {
    this.hasEnded = true;
    for (const handler of [...this.endHandlers]) handler();
  }

  /** Yields events of these names from this call on, until the end, the signal's abort, or its `return`. */
  stream<N extends keyof Events>(
    names: readonly N[],
    signal: AbortSignal | undefined,
  ): AsyncIterableIterator<NamedEvent<N>, void, undefined> {
    const waiting: NamedEvent<N>[] = [];
    const takers: ((result: IteratorResult<NamedEvent<N>, void>) => void)[] = [];
    let isDone = false;
    const stops = names.map((name) =>
      this.on(name, (params) => {
        const event = { name, params } as NamedEvent<N>;
        const taker = takers.shift();
        if (taker) taker({ done: false, value: event });
        else waiting.push(event);
      }),
    );
    const stop = (): void => {
      isDone = true;
      for (const off of stops) off();
      this.endHandlers.delete(stop);
      signal?.removeEventListener("abort", stop);
      for (const taker of takers.splice(0)) taker({ done: true, value: undefined });
    };
    this.endHandlers.add(stop);
    signal?.addEventListener("abort", stop);
    if (this.hasEnded || signal?.aborted) stop();
    return {
      next() {
        const value = waiting.shift();
        if (value !== undefined) return Promise.resolve({ done: false, value });
        if (isDone) return Promise.resolve({ done: true, value: undefined });
        return new Promise((resolve) => takers.push(resolve));
      },
      return() {
        waiting.length = 0;
        stop();
        return Promise.resolve({ done: true, value: undefined });
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }
}
