/** Runs commands for a face: calls like those of any host, with outcomes as values. */

import { parse } from "../../core/json/json.ts";
import { holdsRaw, toTextPieces } from "../../core/json/raw.ts";
import type { Command } from "../../handlers/shared/command.ts";
import { findCommand } from "../../handlers/shared/find.ts";
import type { Call, Outcome } from "../connection/call.ts";
import { checkParams } from "../connection/dialect.ts";
import type { Dispatcher } from "./dispatcher.ts";

type CommandParams = Readonly<Record<string, unknown>>;

/** Runs a command of the table. Rejects with its failure. */
export function runCommand(dispatcher: Dispatcher, name: string, params: CommandParams): Promise<CommandParams> {
  const command = findCommand(name) as Command;
  return new Promise((resolve, reject) => {
    const answer = (outcome: Outcome): void => {
      try {
        if ("error" in outcome) reject(outcome.error);
        else resolve(parseResult(outcome.result));
      } catch (error) {
        // Stored entries are read only here.
        reject(error);
      }
    };
    let bytes: Buffer | undefined;
    const messageText: Call["messageText"] = () => {
      bytes ??= Buffer.from(JSON.stringify(params));
      return { bytes, range: { start: 0, end: bytes.length }, toParams: [] };
    };
    // Bad params are reported as the host's mistake.
    const checked = checkParams(command, params, false);
    dispatcher.submit({ command, name, ...checked, idText: undefined, messageText, answer });
    dispatcher.commitPending();
  });
}

/** Returns a result whose stored entries are read and parsed. */
function parseResult(result: unknown): CommandParams {
  if (!holdsRaw(result)) return result as CommandParams;
  const pieces = [...toTextPieces(result)].map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece));
  return parse(Buffer.concat(pieces)) as CommandParams;
}
