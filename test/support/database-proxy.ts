/** A way to a database's socket that loses connections: before a request arrives, before its answer, or late. */

import { mkdirSync, rmSync } from "node:fs";
import { createConnection, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import type { Random } from "./random.ts";

const SOCKET = ".s.PGSQL.5432";
/** Bytes with which a connection begins; what comes in them is never lost, so that there is one. */
const BEGINNING = 1;

export class DatabaseProxy {
  readonly folder: string;
  cuts = 0;
  /** The share of requests at which something is lost. */
  share = 0;
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();

  constructor(database: string, folder: string, random: Random) {
    this.folder = folder;
    mkdirSync(folder, { recursive: true });
    this.server = createServer((near) => {
      const far = createConnection(join(database, SOCKET));
      let requests = 0;
      let isDeaf = false;
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
        if (++requests <= BEGINNING || !random.chance(this.share)) {
          far.write(chunk);
          return;
        }
        this.cuts++;
        const kind = random.int(4);
        // Lost before it arrives; after half of it; before the answer; and arriving when the sender is gone.
        if (kind === 0) far.destroy();
        else if (kind === 1) far.end(chunk.subarray(0, chunk.length >> 1));
        else if (kind === 2) {
          isDeaf = true;
          far.write(chunk);
          far.once("data", () => far.destroy());
        } else {
          isDeaf = true;
          far.removeAllListeners("close");
          near.destroy();
          setTimeout(() => {
            far.write(chunk);
            setTimeout(() => far.destroy(), 50);
          }, random.int(60));
        }
      });
      far.on("data", (chunk) => {
        if (!isDeaf) near.write(chunk);
      });
    });
  }

  async listen(): Promise<void> {
    const path = join(this.folder, SOCKET);
    rmSync(path, { force: true });
    await new Promise<void>((resolve) => this.server.listen(path, resolve));
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
