/** Addresses of databases: URLs as other programs of PostgreSQL take them. */

import { AddressError } from "../../../storage/fleet-module.ts";
import type { DatabaseServer } from "./driver.ts";

const SSL_MODES = ["disable", "require", "verify-ca", "verify-full"];
/** Parameters of a URL. `connect_timeout` has no effect: the settings have the time limits. */
const KNOWN = new Set(
  "host port user password dbname sslmode sslrootcert application_name tenant target_session_attrs connect_timeout".split(
    " ",
  ),
);
/** Other parameters of psql, with the way to go on without them. */
const INSTEAD: Readonly<Record<string, string>> = {
  options: "which poolers refuse. Give the role these settings in the database: alter role ... set ... = ...",
  passfile: "which the driver does not take. Name that file in PGPASSFILE",
  ...Object.fromEntries(
    ["sslcert", "sslkey"].map((name) => [name, "but certificates of clients cannot be used. Give the role a password"]),
  ),
  service: "but services are not read. Write into the address what the service has",
};
/** Values of `target_session_attrs`, which have no effect either: a fleet always needs a writable server. */
const TARGETS = ["any", "read-write", "primary"];
const LOOPBACK = /^(?:localhost|127\.\d+\.\d+\.\d+|::1)$/;

export interface Address {
  readonly server: DatabaseServer;
  /** The address without its password, for people. */
  readonly shown: string;
  readonly hasPassword: boolean;
  /** The tenant, whose sessions no other tenant sees. Empty for the first. */
  readonly tenant: string;
}

/** Only the operator's system knows which server is the primary; a client that chooses may choose a former one. */
const SEVERAL =
  "The address of the fleet lists several servers. Name one endpoint that always leads to the present primary: a pooler, a virtual address or a DNS name.";

const SCHEME = /^postgres(?:ql)?:\/\//i;
/** A user, a password or a port without a host, which is in the query, or this machine. */
const HOSTLESS =
  /^(\w+:\/\/)(?!\/|\?|#|$)(?:([^/?#@:]*)(?::([^/?#@]*))?@)?(?::(\d*))?(?=[/?#]|$)([^?#]*)(?:\?([^#]*))?/;

/** Returns a URL with the part before an empty host in its query: only databases have URLs with a user and no host. */
function withHost(text: string): string {
  const [all, scheme, user, password, port, path = "", query] = HOSTLESS.exec(text) ?? [];
  if (all === undefined) return text;
  // The query comes first, because it counts.
  const parts = Object.entries({ user, password, port }).map(([name, value]) =>
    value ? `${name}=${encodeURIComponent(decoded(value))}` : "",
  );
  const full = [query, ...parts].filter(Boolean).join("&");
  return `${scheme}${path || "/"}${full === "" ? "" : `?${full}`}${text.slice(all.length)}`;
}

/**
 * Parses `postgres://user@host:port/database`; missing parts come from the PG* variables. `?host=` may name the folder
 * of a socket. `sslmode` is that of psql, but without it a remote server must prove its name (verify-full). `tenant` is
 * ours. `readFile` reads the certificates of `sslrootcert`.
 */
export function parseAddress(text: string, readFile: (path: string) => string): Address {
  let url: URL;
  if (/^\s*\w+\s*=/.test(text))
    throw new AddressError(
      "The address of the fleet is a list of keywords and values. Write it as a URL: postgres://user@host:5432/database, or for a socket postgres:///database?host=/folder&user=name",
    );
  try {
    url = new URL(withHost(text));
  } catch (error) {
    if (error instanceof AddressError) throw error;
    const isList = /^\w+:\/\/(?:[^/?#]*@)?[^/?#@]*,/.test(text);
    throw new AddressError(
      isList
        ? SEVERAL
        : "The address of the fleet is not a URL such as postgres://user@host/database. In a password or a name write %2F, %3F, %23, %40, %3A or %25 for one of / ? # @ : %.",
    );
  }
  if (!SCHEME.test(text))
    throw new AddressError(`The address of the fleet begins with postgres://, and this one with ${url.protocol}`);
  // A plus is a plus, and no space, but for the name of a tenant.
  const query = new URLSearchParams(url.search.replaceAll("+", "%2B"));
  // One of these in a password ends the host there, and the rest of it would be shown.
  if (url.hash !== "") throw new AddressError(unescaped("#", "%23"));
  const isOdd = [...query.keys()].some((name) => !KNOWN.has(name));
  if (url.pathname.includes("@") || (isOdd && url.search.includes("@")))
    throw new AddressError(unescaped("/, ? or @", "%2F, %3F or %40"));
  if (isOdd && query.has("password")) throw new AddressError(unescaped("&", "%26"));
  for (const name of query.keys())
    if (!KNOWN.has(name))
      throw new AddressError(
        Object.hasOwn(INSTEAD, name)
          ? `The address of the fleet has ${name}=, ${INSTEAD[name]}.`
          : `The address of the fleet has ${name}=, which is not known. Known are ${[...KNOWN].join(", ")}.`,
      );
  const target = query.get("target_session_attrs") ?? "any";
  if (!TARGETS.includes(target))
    throw new AddressError(
      `The address of the fleet has a target_session_attrs for which a server need not take writes. Leave it out, or choose one of ${TARGETS.join(", ")}.`,
    );
  // An address of IPv6 is between brackets in a URL, and nowhere else.
  const host = (query.get("host") ?? decoded(url.hostname)).replace(/^\[(.*)\]$/, "$1");
  const usedHost = host || process.env.PGHOST || "";
  const port = query.get("port") ?? url.port;
  if (`${usedHost}${port}`.includes(",")) throw new AddressError(SEVERAL);
  const password = query.get("password") ?? decoded(url.password);
  const server = {
    user: query.get("user") ?? (decoded(url.username) || undefined),
    password: password || undefined,
    database: query.get("dbname") ?? (decoded(url.pathname.slice(1)) || undefined),
    application_name: query.get("application_name") ?? "pi-session-server",
    host: host || undefined,
    port: portOf(port),
    ssl: sslOf(usedHost, query, readFile),
  };
  const tenant = url.searchParams.get("tenant") ?? "";
  if (query.has("tenant") && (tenant === "" || tenant.includes("\0")))
    throw new AddressError(
      "The tenant in the address of the fleet is empty or has a NUL. Name one, or leave ?tenant= out.",
    );
  url.password = "";
  if (query.has("password")) url.searchParams.delete("password");
  return { server, shown: url.href, hasPassword: password !== "", tenant };
}

function unescaped(characters: string, escapes: string): string {
  return `The address of the fleet has a ${characters} where none can be. Write ${escapes} for one in a password or a name.`;
}

/** Returns a part of a URL without its escapes. No message has the part, which may be a password. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new AddressError(
      "The address of the fleet has a percent sign in its user, password, host or database that begins no escape. Write %25 for it.",
    );
  }
}

function portOf(text: string): number | undefined {
  if (text === "") return undefined;
  const port = Number(text);
  if (Number.isInteger(port) && port > 0 && port < 65536) return port;
  throw new AddressError(`The address of the fleet has the port ${text}. A port is a number from 1 to 65535.`);
}

function sslOf(host: string, query: URLSearchParams, readFile: (path: string) => string): DatabaseServer["ssl"] {
  const isNear = host === "" || host.startsWith("/") || LOOPBACK.test(host);
  const mode = query.get("sslmode") ?? process.env.PGSSLMODE ?? (isNear ? "disable" : "verify-full");
  if (!SSL_MODES.includes(mode))
    throw new AddressError(
      `The address of the fleet has sslmode=${mode}. Choose one of ${SSL_MODES.join(", ")}: prefer and allow would send everything in the open to any program that asks for it.`,
    );
  if (mode === "disable" || host.startsWith("/")) return false;
  const given = query.get("sslrootcert") ?? process.env.PGSSLROOTCERT;
  // Those that the system trusts, whose servers prove their names.
  const isOfSystem = given === "system";
  const path = isOfSystem ? undefined : given;
  let ca: string | undefined;
  try {
    ca = path === undefined ? undefined : readFile(path);
  } catch (error) {
    throw new AddressError(`The certificates at ${path} cannot be read (${(error as Error).message}).`);
  }
  // Given certificates are always checked, as by psql.
  const isVerified = mode !== "require" || ca !== undefined || isOfSystem;
  const isNamed = mode === "verify-full" || isOfSystem;
  return { rejectUnauthorized: isVerified, ca, ...(isNamed ? {} : { checkServerIdentity: () => undefined }) };
}
