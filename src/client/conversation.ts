/**
 * Entries and messages in types, for hosts. The build writes this text into the package's schema/protocol.d.ts, so that
 * it imports nothing. The server itself is looser (core/format/schemas.ts): assign a value to `Record<string, unknown>`
 * to read the members that it accepts and keeps beyond these.
 */

declare enum Unlisted {
  name = "any name that is not listed here",
}

/**
 * A type or a role that is not known here. It is a string; being a type of its own, it lets `entry.type === "message"`
 * separate the known ones. To compare with a name of your own, assign it to a string first; to write one: `"my_type" as
 * OtherName`.
 */
export type OtherName = Unlisted;

// --- content -----------------------------------------------------------------------------------------------------------

export type TextBlock = { type: "text"; text: string; textSignature?: string };

/** Thoughts of the model. */
export type ThinkingBlock = { type: "thinking"; thinking: string; thinkingSignature?: string; redacted?: boolean };

export type ImageBlock = {
  type: "image";
  /** Base64. */
  data: string;
  mimeType: string;
};

export type ToolCallBlock = {
  type: "toolCall";
  id: string;
  name: string;
  arguments: Record<string, unknown>;
  thoughtSignature?: string;
};

export type OtherBlock = { type: OtherName; [member: string]: unknown };

export type Block = TextBlock | ThinkingBlock | ImageBlock | ToolCallBlock | OtherBlock;

export type MessageContent = string | Block[];

/** Tokens and their cost. The server adds members that a message lacks; files of other writers may lack any of them. */
export type TokenUsage = {
  input?: number;
  output?: number;
  cacheRead?: number;
  cacheWrite?: number;
  totalTokens?: number;
  cost?: { input?: number; output?: number; cacheRead?: number; cacheWrite?: number; total?: number };
};

// --- messages ----------------------------------------------------------------------------------------------------------

type Spoken<Role> = {
  role: Role;
  /** Milliseconds since 1970. */
  timestamp?: number;
};

export type RoleUser = Spoken<"user"> & { content?: MessageContent };

/** An answer of the model. `append` adds what Pi needs of it and is missing. */
export type RoleAssistant = Spoken<"assistant"> & {
  content?: MessageContent;
  api?: string;
  provider?: string;
  model?: string;
  usage?: TokenUsage;
  stopReason?: "stop" | "length" | "toolUse" | "error" | "aborted" | (string & {});
  errorMessage?: string;
  thinkingLevel?: string;
};

export type RoleToolResult = Spoken<"toolResult"> & {
  toolCallId?: string;
  toolName?: string;
  content?: MessageContent;
  isError?: boolean;
  /** Kept unchanged. */
  details?: unknown;
};

/** A change to the system prompt and the tools: sections by name (null removes one), tools added and removed. */
export type RoleSystem = Spoken<"system"> & {
  content?: MessageContent;
  sections?: Record<string, string | null>;
  toolsAdded?: { name: string; description?: string; parameters?: unknown }[];
  toolsRemoved?: { name: string }[];
};

/** A message of an extension. */
export type RoleCustom = Spoken<"custom"> & {
  customType?: string;
  content?: MessageContent;
  /** True if a person sees it. */
  display?: boolean;
  details?: unknown;
};

/** A command that a person ran, with its output. */
export type RoleBashExecution = Spoken<"bashExecution"> & {
  command: string;
  output: string;
  exitCode?: number | null;
  cancelled?: boolean;
  truncated?: boolean;
  fullOutputPath?: string;
  excludeFromContext?: boolean;
};

/** A summary of a branch that was left, as the model sees it. */
export type RoleBranchSummary = Spoken<"branchSummary"> & { summary: string; fromId: string };

/** A summary in place of what came before, as the model sees it. */
export type RoleCompactionSummary = Spoken<"compactionSummary"> & { summary: string; tokensBefore: number };

export type OtherMessage = { role: OtherName; [member: string]: unknown };

/** A message of any role: `if (message.role === "user") message.content`. */
export type Message =
  | RoleUser
  | RoleAssistant
  | RoleToolResult
  | RoleSystem
  | RoleCustom
  | RoleBashExecution
  | RoleBranchSummary
  | RoleCompactionSummary
  | OtherMessage;

/** A message as the model sees it. */
export type ContextMessage = Message;

// --- entries -----------------------------------------------------------------------------------------------------------

type StoredAs<Type> = {
  type: Type;
  id: string;
  /** The entry before it; null or missing for the first of a branch. */
  parentId?: string | null;
  /** ISO 8601 in UTC. */
  timestamp?: string;
};

/** A message of the conversation. */
export type EntryMessage = StoredAs<"message"> & { message: Message };

/** A change of model. */
export type EntryModelChange = StoredAs<"model_change"> & { provider: string; modelId: string };

/** A change of thinking level. */
export type EntryThinkingLevelChange = StoredAs<"thinking_level_change"> & { thinkingLevel: string };

/** A summary in place of everything before the first kept entry. */
export type EntryCompaction = StoredAs<"compaction"> & {
  summary: string;
  /** First entry that the model still sees; its own id: keep none. */
  firstKeptEntryId: string;
  /** Tokens of the context before the compaction. */
  tokensBefore: number;
  /** Kept unchanged. */
  details?: unknown;
  usage?: TokenUsage;
  /** True if an extension wrote the summary. */
  fromHook?: boolean;
  /** The system prompt and tools in force at this point. */
  systemMessage?: RoleSystem;
};

/** A summary of another branch, where the conversation continues. */
export type EntryBranchSummary = StoredAs<"branch_summary"> & {
  /** The leaf that was left. */
  fromId: string;
  summary: string;
  /** Kept unchanged. */
  details?: unknown;
  usage?: TokenUsage;
  /** True if an extension wrote the summary. */
  fromHook?: boolean;
};

/** State of an extension; never shown to the model. */
export type EntryCustom = StoredAs<"custom"> & { customType: string; data?: unknown };

/** A message of an extension, shown to the model. */
export type EntryCustomMessage = StoredAs<"custom_message"> & {
  customType: string;
  content: MessageContent;
  /** True if a person sees it. */
  display?: boolean;
  /** Kept unchanged. */
  details?: unknown;
};

/** A label of an entry. */
export type EntryLabel = StoredAs<"label"> & {
  targetId: string;
  /** Missing, null or empty clears it. */
  label?: string | null;
};

/** The session's display name; the last one in the file counts. */
export type EntrySessionInfo = StoredAs<"session_info"> & {
  /** Missing, null or empty clears it. */
  name?: string | null;
};

/** Tokens and cost that belong to no message. */
export type EntryUsage = StoredAs<"usage"> & {
  kind: string;
  provider: string;
  model: string;
  usage: TokenUsage;
  note?: string;
};

/** Other content for an entry in what the model sees; the entry itself stays. */
export type EntryContextEdit = StoredAs<"context_edit"> & {
  targetId: string;
  /** Null leaves the target out. */
  replacement: { content: unknown } | null;
};

export type OtherEntry = StoredAs<OtherName> & { [member: string]: unknown };

type ListedEntry =
  | EntryMessage
  | EntryModelChange
  | EntryThinkingLevelChange
  | EntryCompaction
  | EntryBranchSummary
  | EntryCustom
  | EntryCustomMessage
  | EntryLabel
  | EntrySessionInfo
  | EntryUsage
  | EntryContextEdit;

/** An entry as it is stored, of any type: `if (entry.type === "message") entry.message.role`. */
export type Entry = ListedEntry | OtherEntry;

type WithoutId<E> = E extends unknown ? Omit<E, "id"> & { id?: string } : never;

/** An entry that `append` accepts. The server adds the id, parentId and timestamp that are missing. */
export type Draft =
  | WithoutId<ListedEntry>
  | (Omit<StoredAs<OtherName>, "id"> & { id?: string; [member: string]: unknown });

/** An entry with those that continue it, oldest first. */
export type TreeNode = {
  entry: Entry;
  children: TreeNode[];
  label?: string;
  /** Time when the label was set. */
  labelTimestamp?: string;
};
