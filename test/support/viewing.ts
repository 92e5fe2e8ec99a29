/** A viewer that runs in this process, readers of it that are no browsers, and time that passes while they wait. */

import { type ClientRequest, get as httpGet, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { expect, onTestFinished, vi } from "vitest";
import { user } from "./drafts.ts";
import type { Random } from "./random.ts";
import { type Json, type Place, spawnServer, temporaryPlace } from "./server.ts";
import { runOn } from "./verbs.ts";

/** More than lies between two looks of a server at its sessions. */
const A_LOOK = 510;
/** Looks, and milliseconds of the real clock, until something that must come has come. */
const MOST_LOOKS = 400;
const PATIENCE = 10_000;

interface Answered {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** Lets time pass, which stands still else, until something is so. */
export async function untilSo(isSo: () => boolean, what = "what was waited for"): Promise<void> {
  const began = performance.now();
  // Processes and sockets take real time.
  for (let looks = 0; !isSo() && (looks < MOST_LOOKS || performance.now() - began < PATIENCE); looks++) {
    await vi.advanceTimersByTimeAsync(A_LOOK);
    for (let turn = 0; turn < 20 && !isSo(); turn++) await new Promise((resolve) => setImmediate(resolve));
  }
  expect(isSo(), what).toBe(true);
}

export function request(url: string, headers: Record<string, string> = {}): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const read = async (response: IncomingMessage): Promise<Answered> => {
      let text = "";
      for await (const piece of response.setEncoding("utf8")) text += piece;
      return { status: response.statusCode as number, headers: response.headers, text };
    };
    httpGet(url, { headers, agent: false }, (response) => resolve(read(response))).on("error", reject);
  });
}

/** Reads the texts of events as they come. */
export class EventReader {
  readonly events: { readonly id: string | undefined; readonly name: string; readonly data: Json }[] = [];
  status: number | undefined;
  isOver = false;
  private readonly sent: ClientRequest;

  constructor(url: string, headers: Record<string, string>) {
    const end = (): void => {
      this.isOver = true;
    };
    let text = "";
    this.sent = httpGet(url, { headers, agent: false }, (response) => {
      this.status = response.statusCode;
      response.setEncoding("utf8").on("close", end);
      response.on("data", (piece: string) => {
        const blocks = (text + piece).split("\n\n");
        text = blocks.pop() as string;
        for (const block of blocks) this.take(block);
      });
    }).on("error", end);
  }

  get lastId(): string | undefined {
    return this.events.findLast(({ id }) => id !== undefined)?.id;
  }

  has(name: string): boolean {
    return this.events.some((event) => event.name === name);
  }

  /** Breaks the connection. */
  kill(): void {
    this.sent.destroy();
  }

  private take(block: string): void {
    const { event, id, data } = Object.fromEntries(block.split("\n").map((line) => line.split(/: ([\s\S]*)/)));
    if (event !== undefined) this.events.push({ name: event, id, data: JSON.parse(data) });
  }
}

export type Viewing = Awaited<ReturnType<typeof view>>;

/** Runs `view` in this process. */
export async function view(place: Place, args: readonly string[] = []) {
  const running = runOn(place, ["view", ...args]);
  const status = running.end.then((run) => {
    running.said += run.stderr;
    return run.status;
  });
  onTestFinished(async () => {
    running.interrupt();
    await status;
  });
  while (!running.out.includes("\n")) await new Promise((resolve) => setImmediate(resolve));
  /** The address with the token, and the folder of all addresses. */
  const url = running.out.trim();
  const root = url.replace(/[^/]*$/, "");
  const entered = await request(url);
  const cookie = String(entered.headers["set-cookie"]).split(";")[0];
  const get = (place: string): Promise<Answered> => request(root + place, { cookie });
  return {
    ...{ url, root, cookie, status, get },
    /** Returns the messages to the person. */
    said: () => running.said,
    interrupt: () => running.interrupt(),
    /** Returns the page of a session, and where its events begin. */
    async page(file: string) {
      const answered = await get(`session?path=${encodeURIComponent(file)}`);
      return { text: answered.text, from: /data-from="([^"]*)"/.exec(answered.text)?.[1] ?? "", answered };
    },
    follow(file: string, from: string, lastEventId?: string): EventReader {
      const headers = { cookie, ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId }) };
      const reader = new EventReader(`${root}events?path=${encodeURIComponent(file)}&from=${from}`, headers);
      onTestFinished(() => reader.kill());
      return reader;
    },
  };
}

/**
 * Watches a session while its writer and the reader's connection are killed, again and again, at any time. Returns the
 * messages that a reader was shown in the end, those that are in the session, and how many were acknowledged.
 */
export async function watchedThroughKills(random: Random, store: string, rounds: number, each: number) {
  const place = temporaryPlace();
  const start = () => spawnServer(["--store", store, "--events", "none", "--durability", "os"], "lines", place);
  let writer = start();
  await writer.result("append", { entries: [user("begin")] });
  const { sessionFile: file } = await writer.result("get_state");
  const viewing = await view(place);
  const { from } = await viewing.page(file);
  let reader = viewing.follow(file, from);
  let last: string | undefined;
  // As the script keeps them: each in the place of its forerunner, or behind the last.
  const page = new Map<string, string>();
  const takeIn = (): void => {
    last = reader.lastId ?? last;
    for (const { name, data } of reader.events.splice(0)) if (name === "entry") page.set(data.anchor, data.html);
  };
  const comeBack = (): void => {
    takeIn();
    reader.kill();
    reader = viewing.follow(file, from, last);
  };
  let acknowledged = 0;
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < each; i++) {
      await writer.result("append", { entries: [user(`number ${acknowledged++}.`)] });
      if (random.int(10) === 0) comeBack();
      if (random.int(2) === 0) await vi.advanceTimersByTimeAsync(A_LOOK);
    }
    // A killed writer may have written an entry that it has not acknowledged.
    writer.send({ jsonrpc: "2.0", id: "late", method: "append", params: { entries: [user(`late ${round}.`)] } });
    if (random.int(2) === 0) await new Promise((resolve) => setImmediate(resolve));
    writer.process.kill("SIGKILL");
    await writer.exit;
    comeBack();
    writer = start();
    await writer.result("switch_session", { sessionPath: file });
  }
  const { entries } = await writer.result("get_entries");
  const expected = entries.slice(1).map(({ message }: Json) => message.content);
  const shown = (): string[] => [...page.values()].map((html) => /(?:number|late) \d+\./.exec(html)?.[0] ?? html);
  await untilSo(() => {
    takeIn();
    return page.size >= expected.length;
  }, "all entries on the page");
  reader.kill();
  viewing.interrupt();
  await viewing.status;
  await writer.finish();
  return { shown: shown(), expected, acknowledged };
}
