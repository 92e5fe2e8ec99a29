/**
 * Returns milliseconds of a clock that only goes forward; its zero means nothing. `performance`, which has the same,
 * takes a millisecond to load.
 */
export function readClock(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e3 + nanoseconds / 1e6;
}

/** Returns the milliseconds that the processors worked for this process, however long others kept it waiting. */
export function readWork(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
