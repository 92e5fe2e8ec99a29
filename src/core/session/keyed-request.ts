/** Requests that make sessions, with idempotency keys: the session's id follows from the request, so that one is made. */

import { BadParams } from "../failure.ts";
import type { SessionHeader } from "../format/entry.ts";
import { toBytes } from "../json/json.ts";
import type { Env } from "../ports/env.ts";
import type { Session } from "./session.ts";

/** The commands that make a session. The first two copy their source, the last makes one of a working directory. */
export type Maker = "fork" | "clone" | "new_session";

/** A request that makes a session, with the facts that say whether another one is its repeat. */
export interface KeyedRequest {
  readonly command: Maker;
  readonly key: string;
  /** The id of the session that it makes; undefined if no session is current that it could copy. */
  readonly id: string | undefined;
  /** The working directory of a new session. */
  readonly cwd?: string;
  /** The session that it copies, if it is open. */
  readonly source?: Session;
}

/**
 * Returns the id of the session that a request with a key makes. `of`: the id of the session that it copies, or the working
 * directory of a new session. Two processes, on any machines, make the same id of the same request, and only one of them
 * creates a session with it.
 */
export function makeKeyedId(env: Env, command: Maker, of: string, key: string): string {
  const hex = env.sha256(toBytes(JSON.stringify([command, of, key])));
  const variant = "89ab"[Number.parseInt(hex[16], 16) & 3];
  const parts = [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, variant + hex.slice(17, 20)];
  return [...parts, hex.slice(20, 32)].join("-");
}

/**
 * Returns whether a request like this one may have made a session with its key: its id says which one did, unless its source
 * is missing, or the request named the id. `idAt`: returns the id of the session at a path, if there is one.
 */
export function mayHaveMade(
  env: Env,
  { command, key }: KeyedRequest,
  { id, cwd, parentSession }: SessionHeader,
  idAt: (file: string) => string | undefined,
): boolean {
  const source = typeof parentSession === "string" ? idAt(parentSession) : undefined;
  const isOf = (maker: Maker): boolean => {
    const of = maker === "new_session" ? cwd : source;
    return typeof of === "string" && makeKeyedId(env, maker, of, key) === id;
  };
  const maker = (["fork", "clone", "new_session"] as const).find(isOf);
  return maker === undefined || maker === command;
}

/** Returns the refusal of a key with which another request made a session; its header may be damaged by now. */
export function makeKeyUsedFailure(sessionId: string | undefined): BadParams {
  const id = sessionId === undefined ? "" : ` (${sessionId})`;
  const message = `another command, or one for another session, has made a session with the key${id}; choose a new one`;
  return new BadParams([{ path: "idempotencyKey", message }]);
}
