/** The web server: of all files only this one speaks HTTP. It bounds what a reader can make it hold. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { ALLOW_NOTHING, makeTextAnswer, type ViewAnswer, type ViewRequest } from "./answer.ts";
import type { Guard } from "./guard.ts";

/** Connections at a time. A browser opens six. */
const CONNECTIONS = 128;
/** Those of them that have not sent a whole request. The oldest makes room for the next. */
const WAITING = 64;
/** Bytes of a request's headers. */
const HEADERS = 16_384;
/** Milliseconds for a request to arrive. */
const REQUEST_TIME = 10_000;
/** Milliseconds between the looks for those that have not. */
const LOOK_TIME = 2000;
/** Milliseconds that a connection may rest between two requests. */
const REST_TIME = 5000;
/** Milliseconds for a reader to take the written bytes before it is dropped. */
const STALL_TIME = 30_000;

const ALWAYS: Readonly<Record<string, string>> = {
  "Cache-Control": "no-store",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
};

interface WebOptions {
  /** 0 for any that is free. */
  readonly port: number;
  /** Makes the guard, when the port is known. */
  guardFor(port: number): Guard;
  /** Answers a request that was admitted. Throws nothing. */
  answer(request: ViewRequest): Promise<ViewAnswer>;
  readonly stallTime?: number;
}

export interface Web {
  readonly guard: Guard;
  /** Calls back after so many milliseconds without requests and readers; refused requests do not count. */
  whenIdle(milliseconds: number, act: () => void): void;
  close(): Promise<void>;
}

/** Begins to serve on this machine alone. Rejects with an errno error. */
export async function serveWeb(options: WebOptions): Promise<Web> {
  const { port, guardFor, stallTime = STALL_TIME } = options;
  let guard: Guard | undefined;
  let reading = 0;
  let touched = (): void => {};
  const waiting = new Set<Socket>();
  const awaitRequest = (socket: Socket): void => {
    waiting.add(socket);
    const [oldest] = waiting.size > WAITING ? waiting : [];
    oldest?.destroy();
  };
  const server = createServer(
    {
      maxHeaderSize: HEADERS,
      requestTimeout: REQUEST_TIME,
      headersTimeout: REQUEST_TIME,
      connectionsCheckingInterval: LOOK_TIME,
      keepAliveTimeout: REST_TIME,
    },
    (request, response) => {
      const { socket } = request;
      waiting.delete(socket);
      response.on("close", () => {
        if (!socket.destroyed) awaitRequest(socket);
      });
      const admitted = (): void => {
        touched();
        reading++;
        response.on("close", () => {
          reading--;
          touched();
        });
      };
      respond(guard as Guard, options, request, response, { stallTime, admitted }).catch(() => response.destroy());
    },
  );
  server.maxConnections = CONNECTIONS;
  server.on("connection", (socket: Socket) => {
    awaitRequest(socket);
    socket.on("close", () => waiting.delete(socket));
  });
  server.on("clientError", (_error, socket) => socket.destroy());
  await listen(server, port);
  // With too many open files, a connection is refused; the others continue.
  server.on("error", () => {});
  const made = guardFor((server.address() as AddressInfo).port);
  guard = made;
  let idle: NodeJS.Timeout | undefined;
  return {
    guard: made,
    whenIdle(milliseconds, act) {
      idle = setTimeout(() => (reading > 0 ? idle?.refresh() : act()), milliseconds);
      touched = () => void idle?.refresh();
    },
    close() {
      clearTimeout(idle);
      return new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host: "127.0.0.1", port, exclusive: true }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

async function respond(
  guard: Guard,
  { answer }: WebOptions,
  request: IncomingMessage,
  response: ServerResponse,
  { stallTime, admitted }: { readonly stallTime: number; admitted(): void },
): Promise<void> {
  const { method = "", url: target = "", headersDistinct } = request;
  const header = (name: string): readonly string[] => headersDistinct[name] ?? [];
  const admission = guard.admit({ method, target, header });
  if (admission.do === "refuse") {
    const { status, sentence } = admission;
    const allow = status === 405 ? { Allow: "GET" } : undefined;
    // Whatever follows such a request is not looked at.
    return send(response, makeTextAnswer(sentence, status, { ...allow, Connection: "close" }), stallTime);
  }
  admitted();
  if (admission.do === "enter") {
    const { location, cookie, isFromElsewhere } = admission;
    return send(response, entry(location, cookie, isFromElsewhere), stallTime);
  }
  const left = new AbortController();
  response.on("close", () => left.abort());
  const { path, query } = admission;
  const lastEventId = header("last-event-id")[0];
  return send(response, await answer({ path, query, lastEventId, signal: left.signal }), stallTime);
}

/** Returns the answer to the right token: a cookie in its place, and an address without it. */
function entry(location: string, cookie: string, isFromElsewhere: boolean): ViewAnswer {
  if (!isFromElsewhere)
    return makeTextAnswer("Signed in. Redirecting…", 303, { Location: location, "Set-Cookie": cookie });
  const address = location.replace(/&/g, "&amp;").replace(/["'<>]/g, encodeURIComponent);
  return {
    status: 200,
    type: "text/html; charset=utf-8",
    policy: ALLOW_NOTHING,
    headers: { "Set-Cookie": cookie },
    body: `<!doctype html><html lang="en"><title>Sessions</title><meta http-equiv="refresh" content="0;url=${address}"><p><a href="${address}">Go on</a></p></html>`,
  };
}

async function send(response: ServerResponse, answer: ViewAnswer, stallTime: number): Promise<void> {
  const { status, type, policy, headers, body } = answer;
  response.writeHead(status, { ...ALWAYS, ...headers, "Content-Type": type, "Content-Security-Policy": policy });
  if (typeof body === "string") {
    if (!response.write(body)) await taken(response, stallTime);
    response.end();
    return;
  }
  response.flushHeaders();
  for await (const piece of body) {
    if (response.destroyed) return;
    if (!response.write(piece)) await taken(response, stallTime);
  }
  response.end();
}

/** Resolves when the reader has taken the written bytes; one that does not is dropped. */
function taken(response: ServerResponse, stallTime: number): Promise<void> {
  if (response.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const late = setTimeout(() => response.destroy(), stallTime);
    const end = (): void => {
      clearTimeout(late);
      response.off("drain", end);
      response.off("close", end);
      resolve();
    };
    response.on("drain", end);
    response.on("close", end);
  });
}
