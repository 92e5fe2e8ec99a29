/**
 * A way to a database's socket that loses connections: before a request arrives, before its answer, or late. It may also
 * leave them open, and let nothing through, or nothing back.
 */

import { chmodSync, mkdirSync, rmSync } from "node:fs";
import { createConnection, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import type { Random } from "../../../support/random.ts";

const SOCKET = ".s.PGSQL.5432";
/** Bytes at the start of a connection that are never lost, so that the connection is made. */
const BEGINNING = 1;

export class DatabaseProxy {
  readonly folder: string;
  /** The folder of the server to which the proxy leads new connections. */
  database: string;
  cuts = 0;
  /** The share of requests that lose something. */
  share = 0;
  /** True if some connections stay open when nothing comes through them any more. */
  stalls = false;
  /** True if everything is lost that comes from the database. */
  isDeaf = false;
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();

  constructor(database: string, folder: string, random: Random) {
    this.folder = folder;
    this.database = database;
    mkdirSync(folder, { recursive: true });
    this.server = createServer((near) => {
      const far = createConnection(join(this.database, SOCKET));
      let requests = 0;
      let isDeaf = false;
      let isMute = false;
      for (const socket of [near, far]) {
        this.sockets.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => {
          this.sockets.delete(socket);
          near.destroy();
          far.destroy();
        });
      }
      near.on("data", (chunk) => {
        if (isMute) return;
        if (++requests <= BEGINNING || !random.chance(this.share)) {
          far.write(chunk);
          return;
        }
        this.cuts++;
        const kind = random.int(this.stalls ? 6 : 4);
        isDeaf = kind > 1;
        isMute = kind === 4;
        // Lost before it arrives; after half of it; before the answer; arriving when the sender is gone; and without an end,
        // before it arrives or before the answer.
        if (kind === 0) far.destroy();
        else if (kind === 1) far.end(chunk.subarray(0, chunk.length >> 1));
        else if (kind === 2) {
          far.write(chunk);
          far.once("data", () => far.destroy());
        } else if (kind === 5) far.write(chunk);
        else if (kind === 3) {
          far.removeAllListeners("close");
          near.destroy();
          setTimeout(() => {
            far.write(chunk);
            setTimeout(() => far.destroy(), 50);
          }, random.int(60));
        }
      });
      far.on("data", (chunk) => {
        if (!isDeaf && !this.isDeaf) near.write(chunk);
      });
    });
  }

  /** Ends all connections. */
  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  async listen(): Promise<void> {
    const path = join(this.folder, SOCKET);
    rmSync(path, { force: true });
    await new Promise<void>((resolve) => this.server.listen(path, resolve));
    // Databases are those of another user.
    chmodSync(path, 0o777);
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
