/**
 * A fleet behind TLS, with a certificate of the test's own. Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { needProgram, needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { SWEEP } from "../../support/tiers.ts";
import { sqlFleet } from "./support/sql-fleet.ts";

const OPENSSL = needProgram("openssl");

/** Returns a port without a listener. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Makes a certificate for localhost, signed by its own key. */
function certify(folder: string, name: string): void {
  const [key, certificate] = [join(folder, `${name}.key`), join(folder, `${name}.crt`)];
  const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost";
  const more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate];
  execFileSync("openssl", [...words.split(" "), ...more], { stdio: "ignore" });
  const { uid, gid } = statSync(folder);
  for (const file of [key, certificate]) chownSync(file, uid, gid);
  chmodSync(key, 0o600);
}

describe("a fleet behind TLS", needs(POSTGRESQL, OPENSSL), () => {
  let server: Postgres;
  let port: number;

  /** Asks whether the connection is encrypted. Returns the answer: a refusal lasts, and is no outage. */
  const asked = async (host: string, query: string, at = port): Promise<unknown> => {
    const signer = query.replace(/sslrootcert=(\w+)/, (_, name) => `sslrootcert=${join(server.data, `${name}.crt`)}`);
    const { fleet, connections } = sqlFleet(`postgres://fleet@${host}:${at}/postgres?${signer}`, "one");
    const text = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    const answer = await connections.run({ text });
    await fleet.close();
    return answer.kind === "done" ? answer.rows[0].ssl : `${answer.kind} ${"code" in answer ? answer.code : ""}`;
  };

  beforeAll(async () => {
    port = await freePort();
    server = new Postgres(["listen_addresses = '127.0.0.1'", `port = ${port}`, "ssl = on"]);
    for (const name of ["server", "stranger"]) certify(server.data, name);
    await server.start();
  });
  afterAll(() => server.close());

  test.each([
    ["localhost", "sslmode=verify-full&sslrootcert=server", true],
    // Another name, which does not matter to some.
    ["127.0.0.1", "sslmode=verify-full&sslrootcert=server", "failed untrusted"],
    ["127.0.0.1", "sslmode=verify-ca&sslrootcert=server", true],
    // Another authority signed the certificate.
    ["localhost", "sslmode=verify-full&sslrootcert=stranger", "failed untrusted"],
    ["localhost", "sslmode=verify-ca&sslrootcert=stranger", "failed untrusted"],
    ["localhost", "sslmode=require&sslrootcert=stranger", "failed untrusted"],
    ["localhost", "sslmode=verify-ca", "failed untrusted"],
    ["localhost", "sslmode=require", true],
    ["localhost", "sslmode=disable", false],
  ])(
    "is used where its certificate is for the host, and signed by who is trusted: %s %s",
    async (host, query, said) => {
      expect(await asked(host, query)).toBe(said);
    },
  );

  test("that the server does not speak is not gone without", SWEEP, async () => {
    const at = await freePort();
    const plain = new Postgres(["listen_addresses = '127.0.0.1'", `port = ${at}`]);
    try {
      await plain.start();
      for (const mode of ["require", "verify-ca", "verify-full"])
        expect(await asked("localhost", `sslmode=${mode}`, at), mode).toBe("failed plain");
    } finally {
      await plain.close();
    }
  });
});
