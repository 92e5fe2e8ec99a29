/**
 * The password for a server that asks for one and is given none: from the file of passwords (~/.pgpass) that the other
 * programs of PostgreSQL read, too. The driver's own way to that file is going away, and says so on stderr.
 */

import { join } from "node:path";
import { Failure } from "../../../core/failure.ts";
import { type Disk, readWhole, realDisk } from "../../../storage/fs/disk.ts";

/** The server and the role that a password is for. */
export interface PasswordPlace {
  readonly host?: string | null;
  readonly port?: number | null;
  readonly database?: string | null;
  readonly user?: string | null;
}

/** The bits of a mode by which others than the owner read or write a file. */
const OTHERS = 0o077;
const ELSEWHERE = "the URL of the fleet has none, and PGPASSWORD is not set";

/** Returns the path of the file. */
function getPasswordFile({ PGPASSFILE, APPDATA, HOME }: NodeJS.ProcessEnv): string {
  if (PGPASSFILE) return PGPASSFILE;
  if (process.platform === "win32") return join(APPDATA ?? ".", "postgresql", "pgpass.conf");
  return join(HOME ?? ".", ".pgpass");
}

/** Returns the password for a server. Throws storage_failed, with the reason why there is none. */
export function readPassword(place: PasswordPlace, disk: Disk = realDisk, variables = process.env): string {
  const file = getPasswordFile(variables);
  const fail = (why: string): Failure =>
    new Failure(
      "storage_failed",
      `The fleet's database asks for a password: ${ELSEWHERE}; ${file} ${why}.`,
      { fleet: true },
      { retryable: false },
    );
  let text: string;
  try {
    const { kind, mode } = disk.info(file);
    if (kind !== "file") throw fail("is not used, because it is no plain file");
    if (process.platform !== "win32" && (mode & OTHERS) !== 0)
      throw fail(
        `is not used, because others than its owner may read or write it (mode ${(mode & 0o777).toString(8)}): chmod 600 it`,
      );
    text = Buffer.from(readWhole(disk, file)).toString("utf8");
  } catch (error) {
    if (error instanceof Failure) throw error;
    const { code, message } = error as { code?: string; message: string };
    throw fail(code === "ENOENT" ? "does not exist" : `cannot be read (${code ?? message})`);
  }
  const { host, port, database, user } = place;
  const wanted = [host, port ?? 5432, database, user].map((part) => String(part ?? ""));
  for (const line of text.split(/\r?\n/)) {
    const [password, ...places] = splitLine(line);
    if (password && places.every((one, n) => one === "*" || one === wanted[n])) return password;
  }
  throw fail(`has no line for ${wanted.join(":")}`);
}

/** Returns the password of a line, and the parts before it; nothing of a comment or another text. */
function splitLine(line: string): string[] {
  if (line.startsWith("#")) return [];
  // A colon or a backslash in a part has a backslash before it.
  const [, ...parts] =
    /^((?:\\.|[^\\:])*):((?:\\.|[^\\:])*):((?:\\.|[^\\:])*):((?:\\.|[^\\:])*):(.*)$/.exec(line) ?? [];
  const [password = "", ...places] = parts.map((part) => part.replace(/\\([\\:])/g, "$1")).reverse();
  return [password, ...places.reverse()];
}
