/**
 * One PostgreSQL for the whole run (Vitest's global set-up). It starts when the first test needs a database, and ends with
 * the run, however that ends. The tests reach it by database.ts.
 */

import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createConnection, createServer } from "node:net";
import { tmpdir } from "node:os";
import { text } from "node:stream/consumers";
import type { TestProject } from "vitest/node";
import type { Postgres } from "./postgres.ts";

/** The port at which this process gives the folder of the server, and the secret that a test process sends first. */
interface SharedServer {
  readonly port: number;
  readonly secret: string;
}

declare module "vitest" {
  interface ProvidedContext {
    sharedServer: SharedServer;
  }
}

/** Settings that all of the tests need together. */
const SETTINGS = ["max_connections = 600", "wal_level = minimal", "max_wal_senders = 0"];

export default async function setup(project: TestProject): Promise<(() => Promise<void>) | undefined> {
  const root = project.vitest.getRootProject();
  // Each project of the run has this module anew.
  if (root.getProvidedContext().sharedServer !== undefined) return undefined;
  const secret = randomBytes(16).toString("hex");
  let started: Promise<Postgres> | undefined;
  const start = async (): Promise<Postgres> => {
    const { Postgres } = await import("./postgres.ts");
    const server = new Postgres(SETTINGS, project.config.env.TMPDIR ?? tmpdir());
    await server.start();
    return server;
  };
  const answer = async (): Promise<{ folder: string } | { error: string }> => {
    started ??= start();
    return started.then(
      ({ folder }) => ({ folder }),
      (error) => ({ error: String(error) }),
    );
  };
  const asked = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", async (said) => {
      socket.end(JSON.stringify(String(said) === secret ? await answer() : { error: "who is it?" }));
    });
  });
  asked.listen(0, "127.0.0.1").unref();
  await once(asked, "listening");
  root.provide("sharedServer", { port: (asked.address() as AddressInfo).port, secret });
  return async () => {
    asked.close();
    await (await started?.catch(() => undefined))?.close();
  };
}

/** Returns the folder of the server, which starts if it has not. */
export async function folderOf({ port, secret }: SharedServer): Promise<string> {
  const socket = createConnection(port, "127.0.0.1");
  socket.write(secret);
  const { folder, error } = JSON.parse(await text(socket));
  if (folder === undefined) throw new Error(error);
  return folder;
}
