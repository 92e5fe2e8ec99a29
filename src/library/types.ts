/** Types that callers of the library see: Pi's names and shapes for messages, entries, trees and contexts. */

// --- messages --------------------------------------------------------------------------------------------------

export interface TextContent {
  type: "text";
  text: string;
  textSignature?: string;
}

export interface ThinkingContent {
  type: "thinking";
  thinking: string;
  thinkingSignature?: string;
  redacted?: boolean;
}

export interface ImageContent {
  type: "image";
  /** Base64. */
  data: string;
  mimeType: string;
}

export interface ToolCall {
  type: "toolCall";
  id: string;
  name: string;
  // biome-ignore lint/suspicious/noExplicitAny: arguments are whatever the tool takes, as in Pi's types
  arguments: Record<string, any>;
  thoughtSignature?: string;
}

export interface Usage {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  totalTokens: number;
  cost: { input: number; output: number; cacheRead: number; cacheWrite: number; total: number };
}

interface MessageBase<Role extends string> {
  role: Role;
  /** Milliseconds since 1970. */
  timestamp: number;
}

export interface UserMessage extends MessageBase<"user"> {
  content: string | (TextContent | ImageContent)[];
}

export interface AssistantMessage extends MessageBase<"assistant"> {
  content: (TextContent | ThinkingContent | ToolCall)[];
  api: string;
  provider: string;
  model: string;
  usage: Usage;
  stopReason: "stop" | "length" | "toolUse" | "error" | "aborted";
  errorMessage?: string;
  thinkingLevel?: string;
}

export interface ToolResultMessage<Details = unknown> extends MessageBase<"toolResult"> {
  toolCallId: string;
  toolName: string;
  content: (TextContent | ImageContent)[];
  details?: Details;
  isError: boolean;
}

/** A change to the system prompt and the tools: sections by name (null removes one), tools added and removed. */
export interface SystemMessage extends MessageBase<"system"> {
  content: string;
  sections?: Record<string, string | null>;
  toolsAdded?: { name: string; description?: string; parameters?: unknown }[];
  toolsRemoved?: { name: string }[];
}

/** A message that a model sees, without an agent's own kinds. */
export type Message = UserMessage | AssistantMessage | ToolResultMessage | SystemMessage;

export interface CustomMessage<Details = unknown> extends MessageBase<"custom"> {
  customType: string;
  content: string | (TextContent | ImageContent)[];
  display: boolean;
  details?: Details;
}

export interface BashExecutionMessage extends MessageBase<"bashExecution"> {
  command: string;
  output: string;
  exitCode: number | undefined;
  cancelled: boolean;
  truncated: boolean;
  fullOutputPath?: string;
  excludeFromContext?: boolean;
}

export interface BranchSummaryMessage extends MessageBase<"branchSummary"> {
  summary: string;
  fromId: string;
}

export interface CompactionSummaryMessage extends MessageBase<"compactionSummary"> {
  summary: string;
  tokensBefore: number;
}

export type AgentMessage =
  | Message
  | CustomMessage
  | BashExecutionMessage
  | BranchSummaryMessage
  | CompactionSummaryMessage;

// --- entries ---------------------------------------------------------------------------------------------------

/** First line of a session file. */
export interface SessionHeader {
  type: "session";
  /** Missing in version 1. */
  version?: number;
  id: string;
  timestamp: string;
  cwd: string;
  /** File of the session this one was forked from. */
  parentSession?: string;
}

export interface SessionEntryBase<Type extends string = string> {
  type: Type;
  id: string;
  /** Null for the first entry of a branch. */
  parentId: string | null;
  /** ISO 8601 in UTC. */
  timestamp: string;
}

export interface SessionMessageEntry extends SessionEntryBase<"message"> {
  message: AgentMessage;
}

export interface ThinkingLevelChangeEntry extends SessionEntryBase<"thinking_level_change"> {
  thinkingLevel: string;
}

export interface ModelChangeEntry extends SessionEntryBase<"model_change"> {
  provider: string;
  modelId: string;
}

/** Tokens and cost that belong to no message. */
export interface UsageEntry extends SessionEntryBase<"usage"> {
  kind: string;
  provider: string;
  model: string;
  usage: Usage;
  note?: string;
}

export interface CompactionEntry<T = unknown> extends SessionEntryBase<"compaction"> {
  summary: string;
  /** First kept entry of the path; the compaction's own id keeps none. */
  firstKeptEntryId: string;
  tokensBefore: number;
  details?: T;
  usage?: Usage;
  /** True if an extension wrote the summary. */
  fromHook?: boolean;
  /** The system prompt and tools in force at this point. */
  systemMessage?: SystemMessage;
}

export interface BranchSummaryEntry<T = unknown> extends SessionEntryBase<"branch_summary"> {
  /** The leaf that was left, `root` for before the first entry. */
  fromId: string;
  summary: string;
  details?: T;
  usage?: Usage;
  fromHook?: boolean;
}

/** State of an extension; never shown to the model. */
export interface CustomEntry<T = unknown> extends SessionEntryBase<"custom"> {
  customType: string;
  data?: T;
}

/** A message of an extension, shown to the model. */
export interface CustomMessageEntry<T = unknown> extends SessionEntryBase<"custom_message"> {
  customType: string;
  content: string | (TextContent | ImageContent)[];
  details?: T;
  /** True if a person sees it. */
  display: boolean;
}

export interface LabelEntry extends SessionEntryBase<"label"> {
  targetId: string;
  /** Missing or empty clears it. */
  label: string | undefined;
}

export interface SessionInfoEntry extends SessionEntryBase<"session_info"> {
  name?: string;
}

export type ContextEditableContent =
  | UserMessage["content"]
  | AssistantMessage["content"]
  | ToolResultMessage["content"]
  | CustomMessage["content"];

/** Other content for an entry in the model's view; the entry itself stays. */
export interface ContextEditEntry extends SessionEntryBase<"context_edit"> {
  targetId: string;
  /** Null leaves the target out. */
  replacement: { content: ContextEditableContent } | null;
}

export type SessionEntry =
  | SessionMessageEntry
  | ThinkingLevelChangeEntry
  | ModelChangeEntry
  | UsageEntry
  | CompactionEntry
  | BranchSummaryEntry
  | CustomEntry
  | CustomMessageEntry
  | ContextEditEntry
  | LabelEntry
  | SessionInfoEntry;

/** A line of a session file. */
export type FileEntry = SessionHeader | SessionEntry;

// --- results made from entries ---------------------------------------------------------------------------------

export interface SessionTreeNode {
  entry: SessionEntry;
  /** Oldest first. */
  children: SessionTreeNode[];
  label?: string;
  /** Time when the label was set. */
  labelTimestamp?: string;
}

export interface SessionContext {
  messages: AgentMessage[];
  thinkingLevel: string;
  model: { provider: string; modelId: string } | null;
}

export interface ProjectedSessionEntry {
  sourceEntry: SessionEntry;
  /** Messages that it contributes to the context; none for state and for entries that an edit leaves out. */
  messages: AgentMessage[];
}

/** A context with the source entry of each message. */
export interface SessionProjection extends SessionContext {
  entries: ProjectedSessionEntry[];
}

export interface SessionInfo {
  path: string;
  id: string;
  /** Empty if the header names none. */
  cwd: string;
  name?: string;
  parentSessionPath?: string;
  created: Date;
  /** Time of the last message of the user or the assistant. */
  modified: Date;
  messageCount: number;
  firstMessage: string;
  allMessagesText: string;
}

/** A callback for each session that is read. Now and then `partialSessions` are those so far, the latest first. */
export type SessionListProgress = (loaded: number, total: number, partialSessions?: readonly SessionInfo[]) => void;

/** The promise of an append: to survive the death of this process (`os`), or a power cut once flushed (`sync`). */
export type Durability = "os" | "sync";

export interface SessionOptions {
  /**
   * `os` by default. With `sync` an append is on the medium when {@link SessionManager.flush} has resolved, and is
   * removed when that fails. Pi has no such option.
   */
  durability?: Durability;
}

export interface NewSessionOptions {
  id?: string;
  parentSession?: string;
}
