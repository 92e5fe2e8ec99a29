/** Walks through every state that a system can come to, the nearest first, so that what is found wrong is told by a shortest way. */

export interface System<S> {
  readonly initial: S;
  /** The steps that are possible in a state, each with its name and the state after it. */
  steps(state: S): Iterable<readonly [name: string, next: S]>;
  /** The same for states that differ in nothing that matters, such as which process is called which. */
  keyOf(state: S): string;
  /** The rules that a state breaks. */
  faults(state: S): readonly string[];
}

interface Limits {
  /** Steps from the beginning; more are not taken. */
  readonly depth?: number;
  /** States; the walk ends there, and {@link Explored.isWhole} is false. */
  readonly states?: number;
  /** Only these faults end the walk; by default each does. */
  readonly fault?: (name: string) => boolean;
}

export interface Explored<S> {
  readonly states: number;
  readonly steps: number;
  /** Steps of the longest of the shortest ways. */
  readonly depth: number;
  /** Every state that can be reached was looked at. */
  readonly isWhole: boolean;
  readonly found: { readonly fault: string; readonly trace: readonly string[]; readonly state: S } | null;
  /** Returns a shortest way to a state by its number. */
  traceTo(index: number): string[];
}

/** Explores a system breadth first. */
export function explore<S>(system: System<S>, limits: Limits = {}): Explored<S> {
  const { depth: deepest = Number.POSITIVE_INFINITY, states: most = Number.POSITIVE_INFINITY } = limits;
  const counts = limits.fault ?? (() => true);
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
  let isWhole = true;
  const end = (found: Explored<S>["found"]): Explored<S> => ({
    states: parents.length,
    steps,
    depth,
    isWhole: isWhole && found === null,
    found,
    traceTo,
  });
  let level: [number, S][] = [[0, system.initial]];
  while (level.length > 0) {
    if (depth >= deepest) {
      isWhole = false;
      break;
    }
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
        if (parents.length >= most) {
          isWhole = false;
          return end(null);
        }
      }
    if (next.length > 0) depth++;
    level = next;
  }
  return end(null);
}
