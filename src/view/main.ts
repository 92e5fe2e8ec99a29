/**
 * Shows sessions in a browser on this machine: a web server that answers with pages, and is a client of the same
 * commands as every other. It is a file of its own in the built program, which the verb `view` loads.
 */

import { AskFailed, makeTextAnswer, type ViewAnswer, type ViewHost, type ViewRequest } from "./answer.ts";
import { renderCostsPage } from "./costs.ts";
import { renderFamilyPage } from "./family.ts";
import { BAR_STYLE, getHttpStatus, PLACES, renderFailedPage, VIEW_STYLE } from "./frame.ts";
import { Guard } from "./guard.ts";
import { renderListPage } from "./list.ts";
import { streamEvents } from "./live.ts";
import { VIEW_SCRIPT } from "./script.ts";
import { SessionPages } from "./session.ts";
import { Watches } from "./watches.ts";
import { serveWeb } from "./web.ts";

export { AskFailed, type ViewHost } from "./answer.ts";

interface ViewOptions {
  readonly host: ViewHost;
  /** 0 for any that is free. */
  readonly port: number;
  /** Reports an error that no command had to the person. */
  onError(sentence: string): void;
  /** Milliseconds for a reader to take the written bytes; by default half a minute. */
  readonly stallTime?: number;
}

/** A viewer that runs. */
export interface Viewer {
  /** Returns the address to open: of the list, or of one session. */
  address(session?: ViewedSession): string;
  /** Returns one that works once, for another program to open. */
  addressOnce(session?: ViewedSession): string;
  /** Says that something may have come to a session. */
  onSessionEvent(sessionId: string): void;
  /** Calls back after so many milliseconds without requests or watchers. */
  whenIdle(milliseconds: number, act: () => void): void;
  end(): Promise<void>;
}

export interface ViewedSession {
  readonly sessionPath: string;
  readonly sessionId: string;
}

/** Begins to serve. Rejects with an errno error where the port cannot be had. */
export async function startView({ host, port, onError: trouble, stallTime }: ViewOptions): Promise<Viewer> {
  const watches = new Watches(host);
  const pages = new SessionPages(host);
  const answer = async (request: ViewRequest): Promise<ViewAnswer> => {
    try {
      return await routed(request, { host, watches, pages });
    } catch (error) {
      if (error instanceof AskFailed) return refusal(request, error);
      trouble(error instanceof Error ? error.message : String(error));
      return makeTextAnswer("Something went wrong here; the terminal says what.", 500);
    }
  };
  const web = await serveWeb({ port, guardFor: (port) => new Guard(port, host.now), answer, stallTime });
  const placeOf = (session: ViewedSession | undefined): string =>
    session === undefined
      ? ""
      : `${PLACES.session}?${new URLSearchParams({ path: session.sessionPath, id: session.sessionId })}`;
  return {
    address: (session) => web.guard.address(placeOf(session)),
    addressOnce: (session) => web.guard.addressOnce(placeOf(session)),
    onSessionEvent: (sessionId) => watches.onSessionEvent(sessionId),
    whenIdle: web.whenIdle,
    async end() {
      await web.close();
      watches.end();
    },
  };
}

interface ViewParts {
  readonly host: ViewHost;
  readonly watches: Watches;
  readonly pages: SessionPages;
}

async function routed(request: ViewRequest, { host, watches, pages }: ViewParts): Promise<ViewAnswer> {
  const { path, query } = request;
  switch (path) {
    case "":
      return renderListPage(host, query);
    case PLACES.costs:
      return renderCostsPage(host, query);
    case PLACES.family:
      return renderFamilyPage(host, query);
    case PLACES.session:
      return pages.page(query);
    case PLACES.events:
      return streamEvents(watches, request);
    case PLACES.style:
      return { ...makeTextAnswer(VIEW_STYLE, 200), type: "text/css; charset=utf-8" };
    case PLACES.barStyle:
      return { ...makeTextAnswer(BAR_STYLE, 200), type: "text/css; charset=utf-8" };
    case PLACES.script:
      return { ...makeTextAnswer(VIEW_SCRIPT, 200), type: "text/javascript; charset=utf-8" };
    default:
      throw new AskFailed("session_not_found", "There is no such page.");
  }
}

/** Too many of something: the reader tries again later. */
const LATER: ReadonlySet<string> = new Set(["too_many", "same_id", "busy"]);

function refusal({ path }: ViewRequest, error: AskFailed): ViewAnswer {
  if (LATER.has(error.failure)) return makeTextAnswer(error.message, 503, { "Retry-After": "5" });
  return path === PLACES.events ? makeTextAnswer(error.message, getHttpStatus(error)) : renderFailedPage(error);
}
