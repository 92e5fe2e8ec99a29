/** The refused callers: other sites, other hosts, other users and wrong requests. */

import { expect, test } from "vitest";
import { type Admission, Guard } from "../../src/view/guard.ts";

const PORT = 4711;
const at = { now: 1000 };
const guard = new Guard(PORT, () => at.now);
const { root } = guard;
const token = new URL(guard.address()).searchParams.get("token") as string;
const cookie = `view=${token}`;

type Headers = Record<string, string | string[]>;

function ask(target: string, headers: Headers = {}, method = "GET"): Admission {
  const all: Headers = { host: `127.0.0.1:${PORT}`, ...headers };
  return guard.admit({ method, target, header: (name) => [all[name] ?? []].flat() });
}

function status(...asked: Parameters<typeof ask>): number | string {
  const admission = ask(...asked);
  return admission.do === "refuse" ? admission.status : admission.do;
}

/** Asks with the token of an address. */
function enter(address: string, from?: string): Admission {
  const { pathname, search } = new URL(address);
  return ask(pathname + search, from === undefined ? {} : { "sec-fetch-site": from });
}

test("the token becomes a cookie for this folder alone, and an address without it; other sites may lead here with it", () => {
  const address = guard.address("session?path=%2Fa%20b&id=x");
  expect(enter(address, "none")).toEqual({
    do: "enter",
    location: `${root}session?path=%2Fa+b&id=x`,
    cookie: `view=${token}; Path=${root}; HttpOnly; SameSite=Strict`,
    isFromElsewhere: false,
  });
  expect(enter(address, "cross-site")).toMatchObject({ isFromElsewhere: true });
  for (const from of ["cross-site", "same-site"])
    expect(status(`${root}?token=${token}`, { "sec-fetch-site": from })).toBe("enter");
  expect(token).toMatch(/^[\w-]{43}$/);
  expect(new Guard(PORT, () => 0).root).not.toBe(root);
});

test("with the cookie, the path and the query are answered", () => {
  const answered = ask(`${root}session?path=%2Fx`, { cookie: `other=1; ${cookie}` });
  expect(answered).toMatchObject({ do: "answer", path: "session" });
  expect(answered.do === "answer" && answered.query.get("path")).toBe("/x");
  expect(ask(`${root}a/../../${root.slice(1)}session`, { cookie })).toMatchObject({ do: "answer", path: "session" });
  const own = { "sec-fetch-site": "same-origin", origin: `http://localhost:${PORT}`, host: `LocalHost:${PORT}` };
  for (const headers of [own, { "content-length": "0" }])
    expect(status(root, { cookie, ...(headers as Headers) })).toBe("answer");
});

const WRONG = ["", "x", token.slice(1), `${token}x`, token.toLowerCase(), `${token.slice(0, -1)}!`];
const HOSTS = [
  ...["127.0.0.1:1", `127.0.0.1:${PORT}.evil.example`, `127.1:${PORT}`, `[::1]:${PORT}`, `0.0.0.0:${PORT}`],
  ...[[], "evil.example", `evil.example:${PORT}`, "127.0.0.1", `localhost.:${PORT}`, ` 127.0.0.1:${PORT}`],
  [`127.0.0.1:${PORT}`, "evil.example"],
];
const ORIGINS = ["null", "http://127.0.0.1:1", "http://evil.example", `https://127.0.0.1:${PORT}`];
const METHODS = ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", ""];
const NO_PATHS = ["*", "", "http://127.0.0.1/", `http://evil${root}`, `//evil${root}`, `evil:1${root}`];
const ELSEWHERE = [
  "/",
  root.slice(0, -1),
  `${root}../`,
  `${root}%2e%2e/x`,
  `/x${root}`,
  "/favicon.ico",
  `\\\\x${root}`,
];

const BODIES: Headers[] = [{ "content-length": "1" }, { "transfer-encoding": "chunked" }];
const SITES = ["cross-site", "same-site"];
const OTHER_NAME = cookie.replace("view", "View");

test.each<[what: string, refused: (number | string)[], statuses: (number | string)[]]>([
  ["wrong tokens", WRONG.map((wrong) => status(`${root}?token=${wrong}`)), [403]],
  ["wrong cookies", WRONG.map((wrong) => status(root, { cookie: `view=${wrong}` })), [403]],
  ["no secret, or one of another name", [status(root), status(root, { cookie: OTHER_NAME })], [403]],
  ["a wrong token, which the cookie does not make good", [status(`${root}?token=x`, { cookie })], [403]],
  ["other hosts, as after DNS rebinding", HOSTS.map((host) => status(root, { cookie, host })), [421]],
  ["other ports and other sites by their origin", ORIGINS.map((origin) => status(root, { cookie, origin })), [403]],
  ["other sites by their fetch", SITES.map((site) => status(root, { cookie, "sec-fetch-site": site })), [403]],
  ["other methods than GET", METHODS.map((method) => status(root, { cookie }, method)), [405]],
  ["a body", BODIES.map((body) => status(root, { cookie, ...body })), [400]],
  ["what is no path", NO_PATHS.map((target) => status(target, { cookie })), [400]],
  ["what is not below the folder", ELSEWHERE.map((target) => status(target, { cookie })), [400, 404]],
])("refused are %s", (_what, refused, statuses) => {
  expect(refused.length).toBeGreaterThan(0);
  for (const one of refused) expect(statuses).toContain(one);
});

test("an address for another program works once, and soon", () => {
  const address = guard.addressOnce("costs");
  const first = enter(address);
  expect(first).toMatchObject({ do: "enter", location: `${root}costs`, cookie: expect.stringContaining(token) });
  expect(address).not.toContain(token);
  expect(enter(address)).toMatchObject({ do: "refuse", status: 403 });
  const late = guard.addressOnce();
  at.now += 120_000;
  expect(enter(late)).toMatchObject({ do: "refuse", status: 403 });
  expect(enter(guard.addressOnce("costs")).do).toBe("enter");
});
