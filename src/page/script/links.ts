/** Links into the page: an entry, an entry on the path to another, or a comparison of two ends. */

/** `#<id>`, `#<id>@<end>`, `#<end>~<end>`: no id has these signs. */
export interface PagePlace {
  readonly id: string;
  readonly end?: string;
  readonly other?: string;
}

export function parsePlace(hash: string): PagePlace | undefined {
  // Some programs that pass links on write these signs as codes.
  const plain = hash.replace(/%40/g, "@").replace(/%7E/gi, "~");
  const found = /^#?([A-Za-z0-9_.-]+)(?:([@~])([A-Za-z0-9_.-]+))?$/.exec(plain);
  if (!found) return undefined;
  const [, id, sign, more] = found;
  return { id, ...(sign === "@" ? { end: more } : {}), ...(sign === "~" ? { other: more } : {}) };
}

export function toHash({ id, end, other }: PagePlace): string {
  return `#${id}${end === undefined ? "" : `@${end}`}${other === undefined ? "" : `~${other}`}`;
}
