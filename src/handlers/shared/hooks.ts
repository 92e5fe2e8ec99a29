/** Hooks: requests that the server sends before it acts, to a host that registered for them (protocol, section 5). */

import * as z from "zod";
import { check } from "../../core/format/issues.ts";
import type { Session } from "../../core/session/session.ts";
import { entry, sharedClient, typeStored } from "./shapes.ts";

const summaryAnswer = z.looseObject({
  summary: z.string().min(1),
  details: z.unknown().optional(),
  usage: z.unknown().optional(),
});

/** The members that say which leaf a hook is about, where several hosts share a session. */
const about = {
  sessionId: z.string(),
  leafId: z.string().nullable().describe("the leaf of the host whose command it is, which may be another than yours"),
  head: z.string().optional().describe("the head of that host, if it has one"),
  client: sharedClient()
    .pick({ id: true, name: true, pid: true })
    .optional()
    .describe("with another host's command: whose it is"),
};

/** Returns what a hook about the leaf says of it. */
export function describeLeaf({ id: sessionId, leafId, head }: Session) {
  return { sessionId, leafId, ...(head === null ? {} : { head }) };
}

export const hookDeclarations = {
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
        entriesToSummarize: typeStored(z.array(entry)),
        userWantsSummary: z.boolean(),
        label: z.string().optional(),
      }),
      ...about,
    },
    answer: { cancel: z.boolean().optional(), summary: summaryAnswer.optional(), label: z.string().min(1).optional() },
  },
  session_before_compact: {
    summary: "Pi's compact was called: the answer brings the summary that the host's model wrote.",
    payload: {
      preparation: z.looseObject({}).describe("what prepare_compaction returns"),
      branchEntries: typeStored(z.array(entry)).describe("the entries of the path, the first one first"),
      customInstructions: z.string().optional(),
      ...about,
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

export type HookName = keyof typeof hookDeclarations;

export interface HookRegistration {
  readonly name: HookName;
  /** The meaning of an answer that does not come in time. */
  readonly onTimeout?: "cancel" | "continue";
}

export interface HookAnswer {
  readonly cancelled: boolean;
  /** The reason when cancelled: `hook`, `hook_timeout`, `hook_failed` or `host_gone`. */
  readonly reason?: string;
  /** Why the hook counts as failed, for the author of the host. */
  readonly message?: string;
  readonly answer?: Readonly<Record<string, unknown>>;
}

type AnswerOf<N extends HookName> = z.output<z.ZodObject<(typeof hookDeclarations)[N]["answer"]>>;

/** Returns the answer of a hook as its declared shape; {@link decideOnAnswer} has checked it. */
export function toHookAnswer<N extends HookName>(_name: N, answer: HookAnswer["answer"]): AnswerOf<N> {
  return (answer ?? {}) as AnswerOf<N>;
}

const HOW_TO_ANSWER = 'Answer {} to let the action go on, {"cancel":true} to stop it.';
/** Characters of a name or sentence of the host that are repeated. */
const SHOWN = 200;

/**
 * Returns the decision that the host's answer to a hook means. An answer that says nothing the hook knows, or says it
 * wrongly, is no consent: the host may have meant to stop the action.
 */
export function decideOnAnswer(name: HookName, answer: unknown): HookAnswer {
  if (answer === null || answer === undefined) return { cancelled: false };
  if (typeof answer !== "object" || Array.isArray(answer))
    return failedHook(`The answer to ${name} is no object. ${HOW_TO_ANSWER}`);
  const { answer: shape } = hookDeclarations[name];
  const members = Object.keys(answer);
  if (members.length > 0 && !members.some((member) => Object.hasOwn(shape, member))) {
    const known = Object.keys(shape).join(", ");
    const given = members[0].slice(0, SHOWN);
    return failedHook(`The answer to ${name} has ${given}, but none of its members: ${known}. ${HOW_TO_ANSWER}`);
  }
  const { data, error } = check(z.looseObject(shape), answer);
  if (error) {
    const [{ path, message }] = error.issues;
    return failedHook(`The answer to ${name} is wrong: ${path.join(".")} ${message}. ${HOW_TO_ANSWER}`);
  }
  return data.cancel === true ? { cancelled: true, reason: "hook" } : { cancelled: false, answer: data };
}

/** Returns the decision when the host's hook ended with an error. */
export function decideOnError(name: HookName, { message }: Error): HookAnswer {
  return failedHook(`${name} was answered with an error: ${message.slice(0, SHOWN)}`);
}

function failedHook(message: string): HookAnswer {
  return { cancelled: true, reason: "hook_failed", message };
}

/** The result members next to `cancelled`: why nothing was done. */
export const veto = {
  reason: z.string().optional().describe("when cancelled: hook, hook_timeout, hook_failed or host_gone"),
  message: z.string().optional().describe("with hook_failed: the fault in the host's answer"),
};
