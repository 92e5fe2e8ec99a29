/** Links into the page: an entry, or an entry on the path to another. */

/** `#<id>`, `#<id>@<end>`: no id has this sign. */
export interface PagePlace {
  readonly id: string;
  readonly end?: string;
}

export function parsePlace(hash: string): PagePlace | undefined {
  // Some programs that pass links on write this sign as a code.
  const found = /^#?([A-Za-z0-9_.-]+)(?:@([A-Za-z0-9_.-]+))?$/.exec(hash.replace(/%40/g, "@"));
  if (!found) return undefined;
  const [, id, end] = found;
  return end === undefined ? { id } : { id, end };
}

export function toHash({ id, end }: PagePlace): string {
  return `#${id}${end === undefined ? "" : `@${end}`}`;
}
