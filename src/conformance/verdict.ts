/** The early ends of a rule's check. */

/** Characters of a message that evidence shows. */
const SHOWN = 2000;

/** The facts that show a rule to be broken, as texts for a person. */
export interface Evidence {
  /** The message, or the act, that the rule begins with. */
  readonly sent?: string;
  readonly expected: string;
  readonly came: string;
}

/** The server does not keep the rule. */
export class RuleBroken extends Error {
  readonly evidence: Evidence;
  constructor({ sent, expected, came }: Evidence) {
    super(`expected ${expected}`);
    this.evidence = { sent: sent === undefined ? undefined : shortenText(sent), expected, came: shortenText(came) };
  }
}

/** The rule cannot be checked with this server; the message says why. */
export class NotApplicable extends Error {}

/** Returns the beginning of a text that is too long to be shown. */
export function shortenText(text: string, longest = SHOWN): string {
  return text.length <= longest ? text : `${text.slice(0, longest)}... (${text.length} characters)`;
}
