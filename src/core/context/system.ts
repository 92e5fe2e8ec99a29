/**
 * The system prompt in force. Pi 1.5 keeps it in messages of role system that patch each other; a compaction contains
 * them merged, because it leaves out the ones before it (session-format reference, sections 2 and 3).
 */

type SystemPatch = Readonly<Partial<Record<"content" | "sections" | "toolsAdded" | "toolsRemoved", unknown>>>;

/** Merges system messages, in order, into one with the `timestamp` in milliseconds; undefined for an empty list. */
export function foldSystemMessages(patches: readonly SystemPatch[], timestamp: number) {
  if (patches.length === 0) return undefined;
  const texts: string[] = [];
  const sections = new Map<string, unknown>();
  const tools = new Map<unknown, unknown>();
  for (const patch of patches) {
    const text = textOfPrompt(patch.content);
    if (text !== "") texts.push(text);
    if (typeof patch.sections === "object" && patch.sections !== null)
      for (const [name, value] of Object.entries(patch.sections))
        if (value === null) sections.delete(name);
        else sections.set(name, value);
    for (const tool of listOf(patch.toolsRemoved)) tools.delete(nameOf(tool));
    for (const tool of listOf(patch.toolsAdded)) tools.set(nameOf(tool), tool);
  }
  return {
    role: "system" as const,
    content: texts.join("\n\n"),
    ...(sections.size > 0 ? { sections: Object.fromEntries(sections) } : {}),
    ...(tools.size > 0 ? { toolsAdded: [...tools.values()] } : {}),
    timestamp,
  };
}

function textOfPrompt(content: unknown): string {
  if (typeof content === "string") return content;
  const texts = listOf(content).map((block) => (block as { text?: unknown } | null)?.text);
  return texts.filter((text) => typeof text === "string").join("\n");
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function nameOf(tool: unknown): unknown {
  return (tool as { name?: unknown } | null)?.name;
}
