/** Members of stored values whose shape nobody has promised: content blocks, and arguments of tools. */

export type LooseMembers = Readonly<Record<string, unknown>>;

export function membersOf(value: unknown): LooseMembers {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as LooseMembers) : {};
}

/** Returns the first of these members that is a text. */
export function textMember(members: LooseMembers, ...names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = Object.hasOwn(members, name) ? members[name] : undefined;
    if (typeof value === "string") return value;
  }
  return undefined;
}

/** Returns the blocks of a content; a string is one block of text. */
export function blocksOf(content: unknown): LooseMembers[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return Array.isArray(content) ? content.map(membersOf) : [];
}

/** Arguments of tools that name the file. */
export const PATHS = ["path", "file_path", "filePath", "file"] as const;

/** Returns the changes that an edit asks for, as Pi and others name them. */
export function editsIn(given: LooseMembers): { before: string; after: string }[] {
  const edits = Array.isArray(given.edits) && given.edits.length > 0 ? given.edits.map(membersOf) : [given];
  return edits.flatMap((edit) => {
    const before = textMember(edit, "oldText", "old_string", "old_str");
    const after = textMember(edit, "newText", "new_string", "new_str");
    return before === undefined && after === undefined ? [] : [{ before: before ?? "", after: after ?? "" }];
  });
}
