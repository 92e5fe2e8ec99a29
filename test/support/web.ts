/** Requests to a web server of ours, and time that passes while something is waited for. */

import { get as httpGet, type IncomingHttpHeaders } from "node:http";
import { expect, vi } from "vitest";

/** More than lies between two looks of a server at its sessions. */
export const A_LOOK = 510;
/** Looks, and milliseconds of the real clock, until something that must come has come. */
const MOST_LOOKS = 400;
const PATIENCE = 10_000;

export interface Answered {
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
    httpGet(url, { headers, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (piece: string) => {
        text += piece;
      });
      response.on("end", () => resolve({ status: response.statusCode as number, headers: response.headers, text }));
      response.on("error", reject);
    }).on("error", reject);
  });
}
