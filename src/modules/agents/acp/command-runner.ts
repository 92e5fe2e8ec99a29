/** Runs commands for the conversation with an editor: calls like those of any host, with outcomes as values. */

import { parse } from "../../../core/json/json.ts";
import { holdsRaw, toTextPieces } from "../../../core/json/raw.ts";
import type { Command } from "../../../handlers/shared/command.ts";
import { findCommand } from "../../../handlers/shared/find.ts";
import type { Call, Outcome } from "../../../server/connection/call.ts";
import { checkParams } from "../../../server/connection/dialect.ts";

/** The receiver of calls. */
export interface CallSubmitter {
  /** Runs a call in its turn, and makes its writes durable. */
  submit(call: Call): void;
}

type CommandParams = Readonly<Record<string, unknown>>;

export class CommandRunner {
  private readonly server: CallSubmitter;
  private calls = 0;

  constructor(server: CallSubmitter) {
    this.server = server;
  }

  /** Runs a command of the table. Rejects with its failure. */
  ask(name: string, params: CommandParams): Promise<CommandParams> {
    const command = findCommand(name) as Command;
    // Bad params are reported as the host's mistake.
    return this.submit(command, checkParams(command, params, false), params) as Promise<CommandParams>;
  }

  /** Runs a command of ours, whose params and result are values. */
  run<R>(command: Command & { readonly types?: { readonly result: R } }, params: CommandParams): Promise<R> {
    return this.submit(command, { params, fault: undefined }, params) as Promise<R>;
  }

  private submit(command: Command, checked: Pick<Call, "params" | "fault">, given: CommandParams): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const answer = (outcome: Outcome): void => {
        try {
          if ("error" in outcome) reject(outcome.error);
          else resolve(parsedResult(outcome.result));
        } catch (error) {
          // Stored entries are read only here.
          reject(error);
        }
      };
      let bytes: Buffer | undefined;
      const messageText: Call["messageText"] = () => {
        bytes ??= Buffer.from(JSON.stringify(given));
        return { bytes, range: { start: 0, end: bytes.length }, toParams: [] };
      };
      this.calls++;
      const idText = JSON.stringify(`acp ${this.calls}`);
      this.server.submit({ command, name: command.name, ...checked, idText, messageText, answer });
    });
  }
}

/** Returns a result whose stored entries are read and parsed. */
function parsedResult(result: unknown): unknown {
  if (!holdsRaw(result)) return result;
  const pieces = [...toTextPieces(result)].map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece));
  return parse(Buffer.concat(pieces));
}
