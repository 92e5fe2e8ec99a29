/** Amounts as people read them. */

/** Returns an amount of things as people read it: 950, 12.3k, 1.2M. */
export function formatAmount(amount: number): string {
  if (amount < 1000) return String(Math.round(amount));
  const [size, unit] = amount < 999_500 ? [amount / 1000, "k"] : [amount / 1e6, "M"];
  return `${size < 99.95 ? size.toFixed(1).replace(/\.0$/, "") : Math.round(size)}${unit}`;
}

export function formatCost(cost: number): string {
  if (cost === 0) return "$0";
  return cost < 0.01 ? `$${cost.toPrecision(2)}` : `$${cost.toFixed(2)}`;
}

export function formatCount(amount: number, one: string, many = `${one}s`): string {
  return `${amount.toLocaleString("en-US")} ${amount === 1 ? one : many}`;
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
