/** Unix sockets with a path: they answer across network and pid namespaces, and refuse at once when their process died. */

import { connect, createServer } from "node:net";
import type { Duplex } from "node:stream";

/** Bytes of a socket's path, without the zero at its end. Node 20 cuts longer ones silently. */
const LONGEST = process.platform === "linux" ? 107 : 103;
/** Connections at a time; those beyond are closed. */
const MOST = 64;

/**
 * Listens at a path and gives each connection to `entered`, whose own end stays open when the other has ended. Binding
 * happens inside `listen`, so that the outcome is known when it returns. Returns a function that stops listening;
 * existing connections stay. Throws EADDRNOTAVAIL when nothing is bound.
 */
export function listenAt(path: string, entered: (stream: Duplex) => void): () => void {
  requireShort(path);
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", ignore);
    entered(socket);
  });
  server.on("error", ignore);
  server.maxConnections = MOST;
  // Exclusive: otherwise the workers of a cluster share the socket.
  server.listen({ path, exclusive: true });
  server.unref();
  if (!server.listening) throw Object.assign(new Error("no socket here"), { code: "EADDRNOTAVAIL" });
  return () => server.close();
}

/** Returns whether {@link listenAt} was refused. Node reports the reason only later. */
export function isUnbound(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === "EADDRNOTAVAIL";
}

/** Connects to a path, which must be valid only until this returns. */
export function connectTo(path: string): Promise<Duplex> {
  requireShort(path);
  return new Promise((resolve, reject) => {
    const socket = connect({ path });
    socket.once("error", reject);
    socket.once("connect", () => {
      socket.off("error", reject);
      socket.on("error", ignore);
      resolve(socket);
    });
  });
}

function requireShort(path: string): void {
  if (Buffer.byteLength(path) > LONGEST)
    throw Object.assign(new Error(`ENAMETOOLONG: ${path}`), { code: "ENAMETOOLONG" });
}

/** The owner of the stream sees it close. */
function ignore(): void {}
