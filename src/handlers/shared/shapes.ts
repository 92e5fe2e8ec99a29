/** Shapes that several commands, events and hooks share. */

import * as z from "zod";
import { IMAGE_FORMS } from "../../core/format/images.ts";
import { toSessionName } from "../../core/session/workspace.ts";

export const entry = z
  .looseObject({ type: z.string(), id: z.string(), parentId: z.string().nullish(), timestamp: z.string().optional() })
  .describe("an entry as it is stored");

export const messageResult = z.looseObject({ role: z.string() }).describe("a message as the model sees it");

/** An assistant message with all that Pi relies on, for examples. */
export const assistantExample = {
  role: "assistant",
  content: [{ type: "text", text: "Hi there." }],
  api: "anthropic-messages",
  provider: "anthropic",
  model: "claude-sonnet-4-5",
  usage: {
    input: 10,
    output: 3,
    cacheRead: 0,
    cacheWrite: 0,
    totalTokens: 13,
    cost: { input: 0.00003, output: 0.000045, cacheRead: 0, cacheWrite: 0, total: 0.000075 },
  },
  stopReason: "stop",
  timestamp: 1769271746831,
};

/** Returns the stored message of a user, for examples. */
export function makeEntryExample(id: string, parentId: string | null, content: string) {
  const message = { role: "user", content };
  return { type: "message", id, parentId, timestamp: "2026-01-24T16:22:31.120Z", message };
}

/** Returns a schema of a path that refuses what no system takes for one. */
export function refuseNul<S extends z.ZodType<string>>(path: S): S {
  return path.refine((given) => !given.includes("\0"), "must have no NUL, which no path has") as S;
}

/** A working directory that a session is to have. */
export const directory = refuseNul(
  z
    .string()
    .min(1)
    .refine((path) => /^(?:[\\/]|[A-Za-z]:[\\/])/.test(path), "must be an absolute path"),
);

/** The display name that a command gives. */
export const displayName = z
  .string()
  .refine((name) => toSessionName(name) !== "", "must not be blank")
  .describe("not blank; line breaks become spaces");

/** The working directory of the sessions that are wanted. Headers may have any text. */
export const wantedDirectory = z
  .string()
  .optional()
  .describe(
    "only sessions of this working directory, whatever absolute path leads to it; any other text as their headers have it",
  );

/** A path or an id that may be left out. */
export const optionalName = z.string().min(1).optional();

/** The session of commands that take any; it need not be open. */
export const anySessionPath = optionalName.describe("of a session that need not be open; the current one by default");

/** The id of the session that most examples are about. */
export const exampleId = "01991f6e-1f1d-7c3e-b0a4-0242ac120002";

/** The process that writes to a session. */
/** `host`: its machine, where that is another one of the fleet. */
export const holder = () =>
  z.object({
    client: z.string(),
    pid: z.number(),
    since: z.string(),
    host: z.string().optional(),
  });

/** A program that has a session open through a server of its own. */
export const sharedClient = () =>
  z.object({
    id: z.string().describe("the same for as long as its server lives"),
    name: z
      .string()
      .nullable()
      .describe("as it calls itself in `initialize`, in 200 characters at most; null until it does"),
    version: z.string().optional(),
    pid: z.number().int().describe("the process of its server, as that sees it; 0 where that is not known"),
    since: z.string().optional().describe("when it came; missing where sessions are not shared"),
  });

export const limit = z.number().int().min(1).optional().describe("at most this many; all by default");

/** The time that a list or a search may read. */
export const within = z
  .number()
  .int()
  .min(1)
  .max(60_000)
  .optional()
  .describe(
    "milliseconds of reading: then the answer has the known sessions, and `behind` counts the rest; all by default",
  );

export const behind = z
  .number()
  .int()
  .optional()
  .describe("with within: sessions that are not read in their present state; missing for none");

export const cursor = z.string().optional().describe("nextCursor of the page before");

export const unreadFile = () =>
  z.object({
    path: z.string(),
    agent: z.string().optional().describe("the agent whose place it is in; missing for Pi's"),
    text: z.string().describe("how it is, and what to do next"),
    isDamaged: z.boolean().describe("false for a newer or unknown format"),
  });

export const fromEnd = z
  .boolean()
  .optional()
  .describe("the last page first, and then backwards; the items of each page are in their order");

export const nextCursor = z.string().optional().describe("there is more; pass this as cursor");

/** A result or an event as it is sent: nothing changes it any more, so that parts of it may be what others keep. */
export type Unchanged<T> = T extends readonly (infer Item)[]
  ? readonly Unchanged<Item>[]
  : T extends object
    ? { readonly [K in keyof T as string extends K ? (unknown extends T[K] ? never : K) : K]: Unchanged<T[K]> }
    : T;

/** Types a result member whose text comes from the session's bytes. */
export function typeStored<T extends z.ZodType>(schema: T): z.ZodType<z.output<T>, unknown> {
  return schema as z.ZodType<z.output<T>, unknown>;
}

/** Damage as it is reported: see the core's Damage. */
export const damageResult = () =>
  z.looseObject({
    kind: z.string(),
    line: z.number(),
    byteOffset: z.number(),
    length: z.number(),
    entryId: z.string().optional(),
    reason: z.string(),
    salvaged: z.boolean(),
    keptAt: z.string().optional().describe("where the bytes are that were removed from the file"),
    renamed: z
      .array(z.object({ from: z.string(), to: z.string() }))
      .optional()
      .describe("entries of a branch that have another id now, because others gave theirs: the first 100"),
  });

const recordCount = z.number().int();

/** The report about another agent's file. */
export const fidelity = () =>
  z.object({
    agent: z.string(),
    records: recordCount.describe("records that were read: the sum of all counts"),
    kinds: z.array(
      z.object({
        kind: z.string().describe("as the agent calls it; in brackets where the file has none"),
        first: recordCount.describe("number of the first such record, from 1: its line, or its place in a document"),
        preserved: recordCount.describe("all that these say is in entries, at least as the raw record"),
        derived: recordCount.describe("entries say less than these, or say it otherwise"),
        dropped: recordCount.describe("nothing of these is in entries"),
      }),
    ),
    warnings: z.array(z.object({ record: recordCount, sentence: z.string() })).describe("the first hundred"),
    warningCount: recordCount,
  });

export const images = z
  .enum(IMAGE_FORMS)
  .optional()
  .describe(
    "omit: [image omitted] in place of each picture; reference: the data of a picture is an object with the entryId " +
      "that has it and the index of its block. By default the data is there",
  );
