/**
 * Admission of requests. Any page that the person's browser shows can send requests to a port of this machine, and so
 * can the programs of its other users; so each request must name this host and know the secret.
 */

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

/** A request as it came, before anything of it is believed. */
interface RawRequest {
  readonly method: string;
  /** The text after the method: normally a path and a query. */
  readonly target: string;
  /** Returns every value that a header was sent with. */
  header(name: string): readonly string[];
}

/** The decision on a request. */
export type Admission =
  | { readonly do: "refuse"; readonly status: 400 | 403 | 404 | 405 | 421; readonly sentence: string }
  | {
      readonly do: "enter";
      /** The target, now without the token. */
      readonly location: string;
      readonly cookie: string;
      /** True if another site led here, so that a browser keeps a strict cookie back until a page of ours leads on. */
      readonly isFromElsewhere: boolean;
    }
  | { readonly do: "answer"; readonly path: string; readonly query: URLSearchParams };

const COOKIE = "view";
/** Bytes of the secrets. */
const LENGTH = 32;
/** Milliseconds for another program to use a token. */
const ONCE_VALID = 120_000;

const MISSING = "Open the address that view printed in the terminal; it has the token that this page needs.";

/** The secrets of one viewer, and the admissions that they grant. */
export class Guard {
  private readonly token = randomBytes(LENGTH).toString("base64url");
  /**
   * The folder of all addresses. A browser sends a cookie to every port of a machine, but only to addresses below the
   * cookie's folder, so servers at other ports do not get it.
   */
  private readonly room = randomBytes(9).toString("base64url");
  private readonly now: () => number;
  private readonly port: number;
  private once: { readonly token: string; readonly until: number } | undefined;

  constructor(port: number, now: () => number) {
    this.port = port;
    this.now = now;
  }

  /** The path of the folder of all addresses, with slashes around it. */
  get root(): string {
    return `/${this.room}/`;
  }

  /** Returns the address that a person opens. `place` is a path in the folder, with its query. */
  address(place = "", token = this.token): string {
    return `http://127.0.0.1:${this.port}${this.root}${place}${place.includes("?") ? "&" : "?"}token=${token}`;
  }

  /** Returns an address that works once and soon: other users see what programs are started with. */
  addressOnce(place = ""): string {
    this.once = { token: randomBytes(LENGTH).toString("base64url"), until: this.now() + ONCE_VALID };
    return this.address(place, this.once.token);
  }

  admit(request: RawRequest): Admission {
    const { method, target } = request;
    const refuse = (status: 400 | 403 | 404 | 405 | 421, sentence: string): Admission => ({
      do: "refuse",
      status,
      sentence,
    });
    const hosts = request.header("host");
    // A name that an attacker leads to this machine is sent here with the attacker's name.
    if (hosts.length !== 1 || ![`127.0.0.1:${this.port}`, `localhost:${this.port}`].includes(hosts[0].toLowerCase()))
      return refuse(421, "This address is not served here.");
    if (method !== "GET") return refuse(405, "Only GET is answered: nothing can be changed from here.");
    if (hasBody(request)) return refuse(400, "A request here has no body.");
    const parsed = target.startsWith("/") && !target.startsWith("//") ? urlOf(target) : undefined;
    if (parsed === undefined) return refuse(400, "The address is not valid. Open the address that view printed.");
    const { pathname, searchParams: query } = parsed;
    if (!pathname.startsWith(this.root))
      return refuse(404, "There is nothing at this address. Open the address that view printed.");
    const token = query.get("token");
    const from = request.header("sec-fetch-site")[0] ?? "none";
    if (token !== null) {
      if (!this.isToken(token)) return refuse(403, MISSING);
      query.delete("token");
      const rest = query.size > 0 ? `?${query}` : "";
      return {
        do: "enter",
        location: `${pathname}${rest}`,
        cookie: `${COOKIE}=${this.token}; Path=${this.root}; HttpOnly; SameSite=Strict`,
        isFromElsewhere: from !== "none" && from !== "same-origin",
      };
    }
    const origins = request.header("origin");
    const isOwn = origins.every((origin) => origin === `http://${hosts[0].toLowerCase()}`);
    if (!isOwn || (from !== "none" && from !== "same-origin")) return refuse(403, MISSING);
    if (!this.hasCookie(request)) return refuse(403, MISSING);
    return { do: "answer", path: pathname.slice(this.root.length), query };
  }

  private isToken(given: string): boolean {
    const { once } = this;
    if (once && isSame(given, once.token)) {
      this.once = undefined;
      return this.now() < once.until;
    }
    return isSame(given, this.token);
  }

  private hasCookie(request: RawRequest): boolean {
    const values = request.header("cookie").flatMap((line) => line.split(";"));
    return values.some((one) => {
      const [name, value = ""] = one.trim().split("=", 2);
      return name === COOKIE && isSame(value, this.token);
    });
  }
}

/**
 * Returns true if two texts are equal, in a time that depends neither on the place of the difference nor on their
 * lengths.
 */
function isSame(a: string, b: string): boolean {
  const hash = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(hash(a), hash(b));
}

function hasBody(request: RawRequest): boolean {
  const length = request.header("content-length");
  return request.header("transfer-encoding").length > 0 || length.some((value) => value.trim() !== "0");
}

function urlOf(target: string): URL | undefined {
  try {
    return new URL(target, "http://127.0.0.1");
  } catch {
    return undefined;
  }
}
