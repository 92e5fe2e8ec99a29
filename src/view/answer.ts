/** Requests and answers as the pages of `view` know them, before they are HTTP. */

/** A request that was admitted. */
export interface ViewRequest {
  /** Below the folder of all addresses, without a slash before it. */
  readonly path: string;
  readonly query: URLSearchParams;
  /** The id of the last event that a reader got before its connection broke. */
  readonly lastEventId: string | undefined;
  /** Aborted when the reader has gone. */
  readonly signal: AbortSignal;
}

export interface ViewAnswer {
  readonly status: number;
  readonly type: string;
  /** The content security policy. */
  readonly policy: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Pieces that come over time are asked for as the reader takes them. */
  readonly body: string | AsyncIterable<string>;
}

/** A policy that lets nothing run and nothing load. */
export const ALLOW_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/** The policy of our own pages: a style sheet of ours, and forms that lead to us. */
const OWN = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

export function makeHtmlAnswer(body: string, status = 200, policy = OWN): ViewAnswer {
  return { status, type: "text/html; charset=utf-8", policy, body };
}

export function makeTextAnswer(body: string, status: number, headers?: ViewAnswer["headers"]): ViewAnswer {
  return { status, type: "text/plain; charset=utf-8", policy: ALLOW_NOTHING, headers, body: `${body}\n` };
}

export function redirect(location: string): ViewAnswer {
  return makeTextAnswer(`The session is at another address now: ${location}`, 303, { Location: location });
}

/** The sessions and commands as the pages see them. */
export interface ViewHost {
  /** Sends a command and returns its result. Throws {@link AskFailed}. */
  // biome-ignore lint/suspicious/noExplicitAny: results come from the wire, as any client has them
  ask(method: string, params?: Readonly<Record<string, unknown>>): Promise<any>;
  /** Returns true if there is something at a path. */
  isThere(path: string): boolean;
  /** Milliseconds since 1970. */
  now(): number;
  /** The agents whose sessions lists show; by default our own, and those of others where a person ticks that. */
  readonly agents?: "all" | readonly string[];
  /** The person's home folder, for short paths. */
  readonly home: string | undefined;
}

/** The failure that a command was answered with. */
export class AskFailed extends Error {
  readonly failure: string;
  /** HTML of a link to what can be shown in its place. */
  readonly instead: string | undefined;
  constructor(failure: string, sentence: string, instead?: string) {
    super(sentence);
    this.failure = failure;
    this.instead = instead;
  }
}
