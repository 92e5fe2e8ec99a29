/** Amounts as people read them. */

/** Returns an amount of things as people read it: 950, 12.3k, 1.2M. */
export function shortCount(amount: number): string {
  if (amount < 1000) return String(Math.round(amount));
  const [size, unit] = amount < 999_500 ? [amount / 1000, "k"] : [amount / 1e6, "M"];
  return `${size < 99.95 ? size.toFixed(1).replace(/\.0$/, "") : Math.round(size)}${unit}`;
}

export function money(cost: number): string {
  if (cost === 0) return "$0";
  return cost < 0.01 ? `$${cost.toPrecision(2)}` : `$${cost.toFixed(2)}`;
}

export function counted(amount: number, one: string, many = `${one}s`): string {
  return `${amount.toLocaleString("en-US")} ${amount === 1 ? one : many}`;
}

export function sizeOf(bytes: number): string {
  return bytes < 1024
    ? `${bytes} B`
    : bytes < 1 << 20
      ? `${(bytes / 1024).toFixed(1)} kB`
      : `${(bytes / (1 << 20)).toFixed(1)} MB`;
}
