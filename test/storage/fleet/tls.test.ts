/**
 * A fleet behind TLS, with a certificate of the test's own. Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { addressOf } from "../../../src/storage/fleet/address.ts";
import { Connections, type SqlAnswer } from "../../../src/storage/fleet/connections.ts";
import { loadDriver } from "../../../src/storage/fleet/driver.ts";
import { needProgram, needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { SWEEP } from "../../support/tiers.ts";

const OPENSSL = needProgram("openssl");

/** Returns a port that nobody listens on. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Makes a certificate for a host, signed by its own key. */
function certify(folder: string, name: string, host: string): void {
  const [key, certificate] = [join(folder, `${name}.key`), join(folder, `${name}.crt`)];
  execFileSync(
    "openssl",
    [
      ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
      ...["-subj", `/CN=${host}`, "-addext", `subjectAltName=DNS:${host}`, "-keyout", key, "-out", certificate],
    ],
    { stdio: "ignore" },
  );
  const { uid, gid } = statSync(folder);
  for (const file of [key, certificate]) chownSync(file, uid, gid);
  chmodSync(key, 0o600);
}

describe("a fleet behind TLS", needs(POSTGRESQL, OPENSSL), () => {
  let server: Postgres;
  let port: number;
  const open: Connections[] = [];

  /** Asks whether the connection is encrypted. */
  const asked = async (host: string, query: string): Promise<SqlAnswer> => {
    const url = `postgres://fleet@${host}:${port}/postgres?${query}`;
    const address = addressOf(url, (path) => readFileSync(path, "utf8"));
    const connections = new Connections({
      ...{ address, driver: loadDriver, most: 1, connectWithin: 60_000, answerWithin: 60_000 },
    });
    open.push(connections);
    return connections.run({ text: "select ssl from pg_stat_ssl where pid = pg_backend_pid()" });
  };
  const encrypted = { kind: "done", rows: [{ ssl: true }] };
  // That lasts, and is no outage.
  const refused = (code: string) => ({ kind: "failed", code });
  const root = (name: string): string => `sslrootcert=${encodeURIComponent(join(server.data, `${name}.crt`))}`;

  beforeAll(async () => {
    port = await freePort();
    server = new Postgres(["listen_addresses = '127.0.0.1'", `port = ${port}`, "ssl = on"]);
    certify(server.data, "server", "localhost");
    certify(server.data, "stranger", "localhost");
    await server.start();
  });
  afterAll(async () => {
    await Promise.all(open.map((connections) => connections.close()));
    await server.close();
  });

  test("is used where its certificate is for the host, and signed by who is trusted", async () => {
    expect(await asked("localhost", `sslmode=verify-full&${root("server")}`)).toMatchObject(encrypted);
  });

  test("is refused under another name, unless the name does not matter", async () => {
    const query = `sslmode=verify-full&${root("server")}`;
    expect(await asked("127.0.0.1", query)).toMatchObject(refused("untrusted"));
    expect(await asked("127.0.0.1", query.replace("full", "ca"))).toMatchObject(encrypted);
  });

  test("is refused where somebody else signed, unless nobody asks", async () => {
    for (const mode of ["verify-full", "verify-ca", "require"])
      expect(await asked("localhost", `sslmode=${mode}&${root("stranger")}`), mode).toMatchObject(refused("untrusted"));
    expect(await asked("localhost", "sslmode=verify-ca")).toMatchObject(refused("untrusted"));
    expect(await asked("localhost", "sslmode=require")).toMatchObject(encrypted);
    expect(await asked("localhost", "sslmode=disable")).toMatchObject({ kind: "done", rows: [{ ssl: false }] });
  });

  test("that the server does not speak is not gone without", SWEEP, async () => {
    const plain = new Postgres(["listen_addresses = '127.0.0.1'", `port = ${await freePort()}`]);
    const other = port;
    try {
      await plain.start();
      port = Number(/port = (\d+)/.exec(readFileSync(join(plain.data, "postgresql.auto.conf"), "utf8"))?.[1]);
      for (const mode of ["require", "verify-ca", "verify-full"])
        expect(await asked("localhost", `sslmode=${mode}`), mode).toMatchObject(refused("plain"));
    } finally {
      port = other;
      await plain.close();
    }
  });
});
