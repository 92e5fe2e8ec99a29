/** Sizes as people read them. */

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** Returns bytes with three digits at most, in units of 1,000. */
export function sizeText(bytes: number): string {
  let size = bytes;
  let unit = 0;
  while (size >= 999.5 && unit < UNITS.length - 1) {
    size /= 1000;
    unit++;
  }
  return `${unit === 0 || size >= 99.95 ? Math.round(size) : size.toFixed(1).replace(/\.0$/, "")} ${UNITS[unit]}`;
}
