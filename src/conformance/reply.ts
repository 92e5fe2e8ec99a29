/** One reply as the rules look at it, whichever dialect it came in. */

import { findValue } from "../core/json/json.ts";
import { isRecord, type Received, type WireValue } from "./dialect.ts";
import { RuleBroken } from "./verdict.ts";

/** A failure in the form of both dialects. */
interface ReportedFailure {
  readonly name: unknown;
  /** The number of JSON-RPC. */
  readonly number: unknown;
  readonly sentence: unknown;
  readonly data: WireValue;
}

export class Reply {
  readonly received: Received;
  /** The request. */
  readonly sent: string;
  private readonly isPi: boolean;

  constructor(received: Received, sent: string, dialect: "jsonrpc" | "pi") {
    this.received = received;
    this.sent = sent;
    this.isPi = dialect === "pi";
  }

  /** Returns whether the command failed. Whether a reply has all that it must have is left to the rules about that. */
  get isFailure(): boolean {
    const { value } = this.received;
    return "error" in value || value.success === false;
  }

  /** Returns the result. Throws RuleBroken when the command failed. */
  get result(): WireValue {
    if (this.isFailure) throw this.broken("that the command succeeds");
    const { value } = this.received;
    return this.isPi ? value.data : value.result;
  }

  /** Returns the failure. Throws RuleBroken when the command succeeded. */
  get failure(): ReportedFailure {
    if (!this.isFailure) throw this.broken("that the command fails");
    const { value } = this.received;
    if (this.isPi) return { name: value.code, number: undefined, sentence: value.error, data: value.data };
    const { code, message, data } = value.error ?? {};
    return { name: data?.name, number: code, sentence: message, data };
  }

  /** Throws RuleBroken unless the command failed with one of these names, and with the number if one is among them. */
  mustFail(...expected: readonly (string | number)[]): void {
    const { name, number } = this.failure;
    for (const value of [String(name), number]) {
      const some = expected.filter((one) => (typeof one === "string") === (typeof value === "string"));
      this.must(some.length === 0 || some.some((one) => one === value), `the failure ${some.join(" or ")}`);
    }
  }

  /** Returns a list of the result. Throws RuleBroken if it is not a list. */
  list(name: string): WireValue[] {
    const { result } = this;
    const list = isRecord(result) ? result[name] : undefined;
    if (!Array.isArray(list)) throw this.broken(`a result with the list \`${name}\``);
    return list;
  }

  /** Returns a text of the result. Throws RuleBroken if it is not a text. */
  string(name: string): string {
    const { result } = this;
    const text = isRecord(result) ? result[name] : undefined;
    if (typeof text !== "string") throw this.broken(`a result with the text \`${name}\``);
    return text;
  }

  /** Returns the JSON text of a value inside the result, as it came; undefined if the result lacks it. */
  textAt(...path: readonly (string | number)[]): string | undefined {
    const bytes = Buffer.from(this.received.text);
    const found = findValue(bytes, { start: 0, end: bytes.length }, [this.isPi ? "data" : "result", ...path]);
    return found && bytes.toString("utf8", found.start, found.end);
  }

  /** Throws RuleBroken unless a condition holds. */
  must(holds: boolean, expected: string): void {
    if (!holds) throw this.broken(expected);
  }

  broken(expected: string): RuleBroken {
    return new RuleBroken({ sent: this.sent, expected, came: this.received.text });
  }
}
