/** Milliseconds of a clock that nobody sets; its zero means nothing. Node 20 takes a millisecond to load `performance`. */
export function readClock(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e3 + nanoseconds / 1e6;
}
