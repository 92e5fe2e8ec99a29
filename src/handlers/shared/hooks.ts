/** Hooks: requests that the server sends before it acts, to a host that registered for them (protocol, section 5). */

import * as z from "zod";

const summaryAnswer = z.looseObject({
  summary: z.string().min(1),
  details: z.unknown().optional(),
  usage: z.unknown().optional(),
});

export const hooks = {
  session_before_switch: {
    summary: "Another session is about to become the current one.",
    payload: { reason: z.enum(["new", "resume"]), targetSessionFile: z.string().nullable().optional() },
    answer: { cancel: z.boolean().optional() },
  },
  session_before_fork: {
    summary: "A fork is about to be made.",
    payload: { entryId: z.string().nullable(), position: z.enum(["before", "at"]) },
    answer: { cancel: z.boolean().optional() },
  },
  session_before_tree: {
    summary: "The leaf is about to move; the answer may bring a summary of the branch that is left, and a label.",
    payload: {
      preparation: z.looseObject({
        targetId: z.string().nullable(),
        oldLeafId: z.string().nullable(),
        commonAncestorId: z.string().nullable(),
        entriesToSummarize: z.array(z.unknown()),
        userWantsSummary: z.boolean(),
        label: z.string().optional(),
      }),
    },
    answer: { cancel: z.boolean().optional(), summary: summaryAnswer.optional(), label: z.string().min(1).optional() },
  },
  session_before_compact: {
    summary: "Pi's compact was called: the answer brings the summary that the host's model wrote.",
    payload: {
      preparation: z.looseObject({}),
      branchEntries: z.array(z.unknown()),
      customInstructions: z.string().optional(),
    },
    answer: {
      cancel: z.boolean().optional(),
      compaction: z
        .looseObject({
          summary: z.string().min(1),
          firstKeptEntryId: z.string(),
          tokensBefore: z.number(),
          details: z.unknown().optional(),
        })
        .optional(),
    },
  },
} as const;

export type HookName = keyof typeof hooks;

export interface HookRegistration {
  readonly name: HookName;
  /** The meaning of an answer that does not come in time. */
  readonly onTimeout?: "cancel" | "continue";
}

export interface HookAnswer {
  readonly cancelled: boolean;
  /** The reason when cancelled: `hook`, `hook_timeout`, `hook_failed` or `host_gone`. */
  readonly reason?: string;
  readonly answer?: Readonly<Record<string, unknown>>;
}

/** Returns the validated answer of a hook, or undefined when it does not have the declared shape. */
export function checkedAnswer<N extends HookName>(
  name: N,
  answer: HookAnswer["answer"],
): z.output<z.ZodObject<(typeof hooks)[N]["answer"]>> | undefined {
  const result = z.looseObject(hooks[name].answer).safeParse(answer ?? {});
  return result.success ? (result.data as never) : undefined;
}

/** The result member next to `cancelled` with the reason why nothing was done. */
export const vetoReason = z
  .string()
  .optional()
  .describe("when cancelled: hook, hook_timeout, hook_failed or host_gone");
