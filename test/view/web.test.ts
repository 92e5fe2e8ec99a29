/** The web server of `view`, attacked over its port. */

import { connect } from "node:net";
import { expect, onTestFinished, test, vi } from "vitest";
import { makeTextAnswer, type ViewRequest } from "../../src/view/answer.ts";
import { Guard } from "../../src/view/guard.ts";
import { serveWeb } from "../../src/view/web.ts";
import { request, untilSo } from "../support/viewing.ts";

async function served(stallTime?: number) {
  const asked: ViewRequest[] = [];
  let taken = 0;
  async function* endless(): AsyncGenerator<string> {
    for (;;) {
      taken++;
      yield "x".repeat(1 << 16);
    }
  }
  const web = await serveWeb({
    port: 0,
    guardFor: (port) => new Guard(port, () => 0),
    stallTime,
    async answer(request) {
      asked.push(request);
      return request.path === "endless"
        ? { ...makeTextAnswer("", 200), body: endless() }
        : makeTextAnswer("hello", 200);
    },
  });
  onTestFinished(() => web.close());
  const { port, searchParams } = new URL(web.guard.address());
  const cookie = `view=${searchParams.get("token")}`;
  return {
    ...{ web, port: Number(port), cookie, asked },
    /** Pieces that were taken of an endless answer. */
    taken: () => taken,
    /** The lines of a request, up to the last. */
    head: (path = "") => `GET ${web.guard.root}${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nCookie: ${cookie}\r\n`,
    get: (cookie?: string) =>
      request(`http://127.0.0.1:${port}${web.guard.root}`, cookie === undefined ? {} : { cookie }),
  };
}

function raw(port: number, text: string) {
  const socket = connect(port, "127.0.0.1");
  let said = "";
  let isOver = false;
  socket.setEncoding("latin1");
  socket.on("data", (piece: string) => {
    said += piece;
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    isOver = true;
  });
  onTestFinished(() => void socket.destroy());
  socket.write(text);
  return { socket, said: () => said, isOver: () => isOver };
}

/** Lets no timer of this process run out until the test is over. */
function stopClock(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] });
  onTestFinished(() => void vi.useRealTimers());
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Lets this process go on until something is so. */
async function turns(isSo: () => boolean, most = 5000): Promise<void> {
  for (let i = 0; i < most && !isSo(); i++) await turn();
}

test("every answer has a policy, is kept nowhere, and read by no other site and no other machine", async () => {
  const { web, port, cookie, asked } = await served();
  const places: [string, number, Record<string, string>][] = [
    [web.guard.root, 200, { cookie }],
    [web.guard.root, 403, {}],
    ["/", 404, {}],
    [`${web.guard.root}?${new URL(web.guard.address()).searchParams}`, 303, {}],
    [web.guard.root, 421, { host: "evil.example" }],
  ];
  for (const [place, status, headers] of places) {
    const answered = await request(`http://127.0.0.1:${port}${place}`, headers);
    expect([place, answered.status]).toEqual([place, status]);
    expect(answered.headers).toMatchObject({
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
      "cross-origin-resource-policy": "same-origin",
    });
    expect(answered.headers["content-security-policy"]).toMatch(/default-src 'none'.*frame-ancestors 'none'/);
    expect(Object.keys(answered.headers).filter((name) => name.startsWith("access-control"))).toEqual([]);
  }
  expect(asked).toHaveLength(1);
  await expect(request(`http://127.0.0.2:${port}/`)).rejects.toThrow("ECONNREFUSED");
});

test("what is no request, or a large one, ends the connection and nothing else", async () => {
  const { web, port, head } = await served();
  const wrong = [
    "\0\0\0\r\n\r\n",
    "GET / HTTP/9.9\r\n\r\n",
    `${head()}X: ${"x".repeat(20_000)}\r\n\r\n`,
    `${head()}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc`,
    `CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`,
    `POST ${web.guard.root} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Length: 5\r\n\r\nhello`,
  ];
  for (const text of wrong) {
    const { said, isOver } = raw(port, text);
    await turns(isOver);
    expect([text.slice(0, 40), isOver()]).toEqual([text.slice(0, 40), true]);
    expect(said()).not.toContain("hello");
  }
  // A request for another protocol is one like any other.
  const upgrade = raw(port, `${head()}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`);
  await turns(() => upgrade.said().includes("hello"));
  expect(upgrade.said()).toMatch(/^HTTP\/1.1 200/);
  // Two hosts in one request.
  const two = raw(port, `${head()}Host: evil.example\r\n\r\n`);
  await turns(() => two.said() !== "");
  expect(two.said()).toMatch(/^HTTP\/1.1 4/);
});

test("of 200 connections that wait to go on the oldest end, and the others are answered", async () => {
  const { port, cookie, head, get } = await served();
  const all = Array.from({ length: 200 }, () => raw(port, head()));
  await turns(() => all.filter(({ isOver }) => isOver()).length >= 136);
  expect(all.filter(({ isOver }) => isOver())).toHaveLength(136);
  const open = all.filter(({ isOver }) => !isOver());
  for (const { socket } of open) socket.write("\r\n");
  await turns(() => open.every(({ said }) => said() !== ""));
  expect(open.every(({ said }) => said().startsWith("HTTP/1.1 200"))).toBe(true);
  for (const { socket } of open) socket.destroy();
  await turns(() => open.every(({ isOver }) => isOver()));
  expect((await get(cookie)).status).toBe(200);
});

test("a reader that does not read is given no more, and left after a while", async () => {
  stopClock();
  const { port, head, taken } = await served(5000);
  const { socket, isOver } = raw(port, `${head("endless")}\r\n`);
  socket.pause();
  let before = -1;
  while (taken() === 0 || taken() !== before) {
    before = taken();
    for (let i = 0; i < 20; i++) await turn();
  }
  // Buffers of the kernel for both ends, and one piece.
  expect(before).toBeLessThan(400);
  await vi.advanceTimersByTimeAsync(5000);
  socket.resume();
  await untilSo(isOver);
  expect(taken()).toBeLessThanOrEqual(before + 1);
});

test("it is idle when nobody asks who may, and nobody reads", async () => {
  stopClock();
  const { web, port, cookie, head, get } = await served(1e9);
  const becomesIdle = vi.fn();
  const watch = () => web.whenIdle(60_000, becomesIdle);
  watch();
  await vi.advanceTimersByTimeAsync(40_000);
  expect((await get()).status).toBe(403);
  await vi.advanceTimersByTimeAsync(40_000);
  expect(becomesIdle).toHaveBeenCalledTimes(1);
  watch();
  await vi.advanceTimersByTimeAsync(40_000);
  await get(cookie);
  await vi.advanceTimersByTimeAsync(40_000);
  expect(becomesIdle).toHaveBeenCalledTimes(1);
  const { socket, said } = raw(port, `${head("endless")}\r\n`);
  await untilSo(() => said().length > 0);
  socket.pause();
  await vi.advanceTimersByTimeAsync(600_000);
  expect(becomesIdle).toHaveBeenCalledTimes(1);
  socket.destroy();
  await untilSo(() => becomesIdle.mock.calls.length > 1);
});

test("connections without a whole request keep nobody out who sends one", async () => {
  const { port, cookie, get } = await served();
  const half = Array.from({ length: 200 }, () => raw(port, "GET /"));
  while (half.some(({ socket }) => socket.connecting)) await turn();
  const answered = await get(cookie);
  expect([answered.status, answered.text]).toEqual([200, "hello\n"]);
});
