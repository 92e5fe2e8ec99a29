/** Commands of Pi for its agent: those that do nothing here, settings that clients read back, and those that fail. */

import * as z from "zod";
import { Failure } from "../../core/failure.ts";
import { toBytes } from "../../core/json/json.ts";
import { Raw } from "../../core/json/raw.ts";
import type { Session } from "../../core/session/session.ts";
import { type ClientSettings, type CommandContext, defineCommand, type Typed } from "./command.ts";

/** Declares a command that succeeds and does nothing. With `says`, its reply in Pi's dialect has `"data":null`. */
export function defineNeutralCommand<const N extends string>(name: N, summary: string, says = false) {
  return defineCommand({
    name,
    summary,
    effect: "control",
    result: () => z.null(),
    example: { params: {}, result: null },
    run: () => null,
    pi: () => (says ? Raw.of(toBytes("null")) : null),
  });
}

/** Declares a command that keeps a setting while the process lives. */
export function defineSettingCommand<const N extends string, K extends keyof ClientSettings, const P extends string>(
  name: N,
  summary: string,
  key: K,
  param: P,
  value: z.ZodType<ClientSettings[K]>,
  example: ClientSettings[K],
) {
  return defineCommand({
    name,
    summary,
    effect: "control",
    params: { [param]: value } as Record<P, z.ZodType<ClientSettings[K]>>,
    result: () => z.null(),
    example: { params: { [param]: example }, result: null },
    run(context, params) {
      context.settings[key] = (params as Record<P, ClientSettings[K]>)[param];
      return null;
    },
  });
}

/**
 * Declares a command that needs a model or a tool runner: it fails at once and says what to use instead, or as `refused`
 * has it.
 */
export function defineUnsupportedCommand<const N extends string, const S extends z.ZodRawShape>(
  name: N,
  params: S,
  example: z.input<z.ZodObject<S>>,
  instead: string,
  refused?: (context: CommandContext) => Failure | undefined,
): Typed<N, S, z.ZodNever> {
  return defineCommand({
    name,
    summary: `Pi's command for its own agent. Not offered here: ${instead}`,
    effect: "control",
    params,
    result: () => z.never(),
    failures: ["unsupported_command", "agent_failed"],
    example: { params: example, result: undefined },
    run(context) {
      const sentence = `This server owns the history and runs no agent: ${instead}`;
      throw refused?.(context) ?? new Failure("unsupported_command", sentence, { command: name });
    },
  });
}

/** Declares a command that would send a message to the model. */
export function definePromptingCommand<const N extends string>(name: N) {
  const params = {
    message: z.string().optional(),
    images: z.array(z.unknown()).optional(),
    streamingBehavior: z.string().optional(),
  };
  return defineUnsupportedCommand(
    name,
    params,
    { message: "Hello" },
    "call your model with what get_messages returns, and store its answer with append.",
    ({ server, host, workspace }) =>
      server.asPi && host.dialectName === "pi" ? refusedPrompt(name, workspace.current) : undefined,
  );
}

/**
 * Returns the failure that a client of Pi's shows its person, once in the reply and once as a notice: Emacs and Neovim
 * show the first, pi-acp passes over it and shows the second.
 */
function refusedPrompt(name: string, session: Session | null): Failure {
  const isListed = session?.log.persisted && session.file !== null;
  const sentence = (id: string): string =>
    "This server keeps the history and runs no model: your message was neither sent nor stored. To go on, let your " +
    `client start pi instead${isListed ? `, or end the client and run pi-session-server resume ${id}` : ""}.`;
  // pi-acp takes an error with 401 or 403 in it, as ids may have, for a missing key.
  const reply = sentence("with the session's id");
  return new Failure("unsupported_command", reply, { command: name }, { notice: sentence(session?.id ?? "") });
}
