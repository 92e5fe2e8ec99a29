/** Members of stored values without a promised shape: content blocks, and arguments of tools. */

export type LooseMembers = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is LooseMembers {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function toMembers(value: unknown): LooseMembers {
  return isObject(value) ? value : {};
}

/** Returns the first of these members that is a text. */
export function findTextMember(members: LooseMembers, ...names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = Object.hasOwn(members, name) ? members[name] : undefined;
    if (typeof value === "string") return value;
  }
  return undefined;
}

/** Returns the blocks of a content; a string is one block of text. */
export function toBlocks(content: unknown): LooseMembers[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return Array.isArray(content) ? content.map(toMembers) : [];
}

/** Arguments of tools that name the file. */
export const PATHS = ["path", "file_path", "filePath", "file"] as const;

/** Returns the changes that an edit asks for, as Pi and others name them. */
export function findEdits(given: LooseMembers): { before: string; after: string }[] {
  const edits = Array.isArray(given.edits) && given.edits.length > 0 ? given.edits.map(toMembers) : [given];
  return edits.flatMap((edit) => {
    const before = findTextMember(edit, "oldText", "old_string", "old_str");
    const after = findTextMember(edit, "newText", "new_string", "new_str");
    return before === undefined && after === undefined ? [] : [{ before: before ?? "", after: after ?? "" }];
  });
}
