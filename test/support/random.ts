/** Pseudo-random numbers of our own, so that a failure names the seed that repeats it. */

export class Random {
  readonly seed: number;
  private state: number;

  constructor(seed: number) {
    this.seed = seed;
    this.state = seed >>> 0;
  }

  /** A number from 0 up to, not including, 1 (mulberry32). */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  /** A whole number from 0 up to, not including, `limit`. */
  int(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.int(list.length)];
  }

  hex(digits: number): string {
    let text = "";
    while (text.length < digits) text += this.int(16).toString(16);
    return text;
  }
}

/** The first seed of every property; `PI_TEST_SEED=<n>` begins elsewhere. */
const FIRST_SEED = Number(process.env.PI_TEST_SEED ?? 1);

/** Returns the seed after the last one; `PI_TEST_TIMES=<n>` takes n times as many (test/soak/properties.test.ts). */
function endOfSeeds(count: number): number {
  return FIRST_SEED + count * Number(process.env.PI_TEST_TIMES ?? 1);
}

/** Returns whether to leave out nothing, not even what the ordinary suite takes one for many of (test/soak/operations.test.ts). */
export function isEvery(): boolean {
  return process.env.PI_TEST_EVERY === "1";
}

/**
 * Returns the share of a sweep that the ordinary suite goes through: so many of its steps, spread evenly from one that the
 * first seed chooses. The long runs go through all ({@link isEvery}).
 */
export function share<T>(steps: readonly T[], count: number): readonly T[] {
  if (isEvery() || steps.length <= count) return steps;
  const stride = steps.length / count;
  const first = new Random(FIRST_SEED).next();
  return Array.from({ length: count }, (_, n) => steps[Math.floor((n + first) * stride)]);
}

/** Returns the whole numbers from one to another that is left out, as the steps of a sweep. */
export function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, n) => from + n);
}

/** Checks a property with several seeds. A failure names its seed. */
export function forSeeds(count: number, property: (random: Random) => void): void {
  for (let seed = FIRST_SEED; seed < endOfSeeds(count); seed++) {
    try {
      property(new Random(seed));
    } catch (error) {
      throw withSeed(error, seed);
    }
  }
}

export async function forSeedsAsync(count: number, property: (random: Random) => Promise<void>): Promise<void> {
  for (let seed = FIRST_SEED; seed < endOfSeeds(count); seed++) {
    try {
      await property(new Random(seed));
    } catch (error) {
      throw withSeed(error, seed);
    }
  }
}

function withSeed(error: unknown, seed: number): unknown {
  if (error instanceof Error) error.message = `PI_TEST_SEED=${seed}: ${error.message}`;
  return error;
}
