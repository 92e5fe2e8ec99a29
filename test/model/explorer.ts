/** Walks through every state that a system can come to, the nearest first, so that a fault has a shortest trace. */

export interface System<S> {
  readonly initial: S;
  /** The steps that are possible in a state, each with its name and the state after it. */
  steps(state: S): Iterable<readonly [name: string, next: S]>;
  /** The same for states that differ in nothing that matters, such as which process is called which. */
  keyOf(state: S): string;
  /** The rules that a state breaks. */
  faults(state: S): readonly string[];
}

export interface Explored<S> {
  readonly states: number;
  readonly steps: number;
  /** Steps of the longest of the shortest ways. */
  readonly depth: number;
  /** The fault that ended the walk: without it, every reachable state was looked at. */
  readonly found: { readonly fault: string; readonly trace: readonly string[]; readonly state: S } | null;
  /** Returns a shortest way to a state by its number. */
  traceTo(index: number): string[];
}

/**
 * Explores a system breadth first, until a fault is found that counts. That no state is passed over, and that ways are the
 * shortest, shows in the figures of docs/model.md, which each run is held against.
 */
export function explore<S>(system: System<S>, counts: (fault: string) => boolean = () => true): Explored<S> {
  const visited = new Set<string>([system.keyOf(system.initial)]);
  const parents: number[] = [-1];
  const names: string[] = [""];
  const traceTo = (index: number): string[] => {
    const trace: string[] = [];
    for (let at = index; at > 0; at = parents[at]) trace.unshift(names[at]);
    return trace;
  };
  let steps = 0;
  let depth = 0;
  const end = (found: Explored<S>["found"]): Explored<S> => ({ states: parents.length, steps, depth, found, traceTo });
  let level: [number, S][] = [[0, system.initial]];
  while (level.length > 0) {
    const next: [number, S][] = [];
    for (const [from, state] of level)
      for (const [name, after] of system.steps(state)) {
        steps++;
        const key = system.keyOf(after);
        if (visited.has(key)) continue;
        visited.add(key);
        const index = parents.push(from) - 1;
        names.push(name);
        const fault = system.faults(after).find(counts);
        if (fault !== undefined) {
          depth++;
          return end({ fault, trace: traceTo(index), state: after });
        }
        next.push([index, after]);
      }
    if (next.length > 0) depth++;
    level = next;
  }
  return end(null);
}
