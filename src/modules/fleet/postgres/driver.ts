/** The PostgreSQL driver, an optional package that is loaded when a fleet is used. Only this file loads it. */

import { Failure } from "../../../core/failure.ts";
import { type PasswordPlace, readPassword } from "./password-file.ts";

/** A statement. Values are never part of its text; without a name, it works through poolers. */
export interface SqlStatement {
  readonly text: string;
  /** Name of the prepared statement. */
  readonly name?: string;
  /** True if it is sent repeatedly, with other values. */
  readonly isRepeated?: boolean;
  readonly values?: readonly unknown[];
  /** True if results come as bytes, not as twice as many digits. */
  readonly binary?: boolean;
  /** Parser for the values of results. */
  readonly types?: { getTypeParser(): (value: unknown) => unknown };
  /** Milliseconds within which it is answered, if it may take longer than others. */
  readonly within?: number;
  /** The only server that may run it. */
  readonly server?: string;
}

/** Results as bytes. The driver reads them as UTF-8, which every line of a session is. */
export const AS_BYTES: Pick<SqlStatement, "binary" | "types"> = {
  binary: true,
  types: { getTypeParser: () => (value) => value },
};

export interface Rows {
  readonly rows: readonly Readonly<Record<string, unknown>>[];
}

/** A notice of the server with an answer. */
export interface Notice {
  readonly severity?: string;
  readonly message?: string;
}

/** A connection of the driver. */
export interface DatabaseClient {
  connect(): Promise<void>;
  query(statement: SqlStatement): Promise<Rows>;
  end(): Promise<void>;
  ref(): void;
  unref(): void;
  on(event: "error", heard: (error: Error) => void): void;
  on(event: "end", heard: () => void): void;
  on(event: "notice", heard: (notice: Notice) => void): void;
  /** Process number of the server, as the other end reports it; null before that. */
  readonly processID?: number | null;
  /** The socket, which is destroyed when the server does not answer. */
  readonly connection: {
    readonly stream: {
      destroy(): void;
      readonly writableLength: number;
      once(event: "drain", heard: () => void): void;
    };
  };
}

/** One server to connect to. Members that are missing come from the PG* variables, as everywhere. */
export interface DatabaseServer {
  readonly host?: string;
  readonly port?: number;
  readonly user?: string;
  /** A function is called if the server asks for a password. */
  readonly password?: string | ((place: PasswordPlace) => string);
  readonly database?: string;
  readonly ssl?:
    | false
    | { readonly rejectUnauthorized: boolean; readonly ca?: string; readonly checkServerIdentity?: () => undefined };
  readonly connectionTimeoutMillis?: number;
  readonly keepAlive?: boolean;
  readonly keepAliveInitialDelayMillis?: number;
  readonly application_name?: string;
}

export type MakeClient = (config: DatabaseServer) => DatabaseClient;

function getPassword(): DatabaseServer["password"] {
  return process.env.PGPASSWORD || ((place) => readPassword(place));
}

/** Loads the driver. Throws storage_failed if it is not installed. */
export async function loadDriver(): Promise<MakeClient> {
  // A name that the compiler does not follow: the package may be missing, and has no types.
  const name = "pg";
  try {
    const { default: driver } = (await import(name)) as {
      default: { Client: new (config: DatabaseServer) => DatabaseClient };
    };
    return (config) => new driver.Client({ ...config, password: config.password ?? getPassword() });
  } catch (error) {
    const sentence = "A fleet needs the package pg, which is not installed. Install it beside this one: npm install pg";
    throw new Failure("storage_failed", sentence, { fleet: true }, { cause: error, retryable: false });
  }
}
