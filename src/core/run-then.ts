/** Work that ends at once or later, and what follows it. */

/** Runs `run`, which may return a promise, and then `after`, however it ended. */
export function runThen<T>(run: () => T, after: () => void): T {
  let result: T;
  try {
    result = run();
  } catch (error) {
    after();
    throw error;
  }
  if (result instanceof Promise) return result.finally(after) as T;
  after();
  return result;
}
