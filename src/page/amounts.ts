/** Amounts as people read them. */

/** Returns an amount of things as people read it: 950, 12.3k, 1.2M. */
export function formatAmount(amount: number): string {
  if (amount < 1000) return String(Math.round(amount));
  const [size, unit] = amount < 999_500 ? [amount / 1000, "k"] : [amount / 1e6, "M"];
  return `${size < 99.95 ? size.toFixed(1).replace(/\.0$/, "") : Math.round(size)}${unit}`;
}

/** Returns a whole number with commas between the thousands. */
export function group(amount: number): string {
  return String(amount).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Returns an amount of money with so many digits after the point. */
export function formatMoney(cost: number, digits = 2): string {
  const [whole, fraction] = cost.toFixed(digits).split(".");
  return `$${group(Number(whole))}.${fraction}`;
}

/** Returns an amount of money with the digits that show how much it is. */
export function formatCost(cost: number): string {
  if (cost === 0) return "$0";
  return cost < 0.01 ? `$${cost.toPrecision(2)}` : formatMoney(cost);
}

export function formatCount(amount: number, one: string, many = `${one}s`): string {
  return `${group(amount)} ${amount === 1 ? one : many}`;
}

/** Returns a duration in its largest unit; rounded up, for work that rather ends sooner than it said. */
export function formatSpan(milliseconds: number, round = Math.round): string {
  const seconds = round(milliseconds / 1000);
  if (seconds < 90) return `${seconds} s`;
  const minutes = round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = round(minutes / 60);
  return hours < 48 ? `${hours} h` : formatCount(round(hours / 24), "day");
}

const SIZE_UNITS = ["kB", "MB", "GB", "TB", "PB", "EB"];

/** Returns a number of bytes in the largest unit that fits, in seven columns at most. */
export function formatSize(bytes: number): string {
  if (bytes < 1000) return `${Math.round(bytes)} B`;
  let size = bytes / 1000;
  let unit = 0;
  for (; size >= 999.5 && unit < SIZE_UNITS.length - 1; unit++) size /= 1000;
  return `${size < 9.95 ? size.toFixed(1) : size.toFixed(0)} ${SIZE_UNITS[unit]}`;
}
