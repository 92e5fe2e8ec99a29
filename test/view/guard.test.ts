/** Who gets an answer: other sites, other hosts, other users and wrong requests do not. */

import { expect, test } from "vitest";
import { type Admission, Guard } from "../../src/view/guard.ts";

const PORT = 4711;

function guarded(): { guard: Guard; token: string; cookie: string; at: { now: number } } {
  const at = { now: 1000 };
  const guard = new Guard(PORT, () => at.now);
  const token = new URL(guard.address()).searchParams.get("token") as string;
  return { guard, token, cookie: `view=${token}`, at };
}

function ask(guard: Guard, target: string, headers: Record<string, string | string[]> = {}, method = "GET"): Admission {
  const all: Record<string, string | string[]> = { host: `127.0.0.1:${PORT}`, ...headers };
  return guard.admit({ method, target, header: (name) => [all[name] ?? []].flat() });
}

function status(admission: Admission): number | string {
  return admission.do === "refuse" ? admission.status : admission.do;
}

test("the token becomes a cookie for this folder alone, and an address without it", () => {
  const { guard, token } = guarded();
  const address = new URL(guard.address("session?path=%2Fa%20b&id=x"));
  const entered = ask(guard, address.pathname + address.search, { "sec-fetch-site": "none" });
  expect(entered).toEqual({
    do: "enter",
    location: `${guard.root}session?path=%2Fa+b&id=x`,
    cookie: `view=${token}; Path=${guard.root}; HttpOnly; SameSite=Strict`,
    isFromElsewhere: false,
  });
  expect(ask(guard, address.pathname + address.search, { "sec-fetch-site": "cross-site" })).toMatchObject({
    isFromElsewhere: true,
  });
  expect(token).toMatch(/^[\w-]{43}$/);
  expect(new Guard(PORT, () => 0).root).not.toBe(guard.root);
});

test("with the cookie, the path and the query are answered", () => {
  const { guard, cookie } = guarded();
  const answered = ask(guard, `${guard.root}session?path=%2Fx`, { cookie: `other=1; ${cookie}` });
  expect(answered).toMatchObject({ do: "answer", path: "session" });
  expect(answered.do === "answer" && answered.query.get("path")).toBe("/x");
  const own = {
    cookie,
    "sec-fetch-site": "same-origin",
    origin: `http://localhost:${PORT}`,
    host: `LocalHost:${PORT}`,
  };
  expect(status(ask(guard, guard.root, own))).toBe("answer");
});

test("wrong, missing and nearly right secrets are refused", () => {
  const { guard, token, cookie } = guarded();
  const { root } = guard;
  for (const wrong of ["", "x", token.slice(1), `${token}x`, token.toLowerCase(), `${token.slice(0, -1)}!`]) {
    expect(status(ask(guard, `${root}?token=${wrong}`))).toBe(403);
    expect(status(ask(guard, root, { cookie: `view=${wrong}` }))).toBe(403);
  }
  expect(status(ask(guard, root))).toBe(403);
  expect(status(ask(guard, root, { cookie: cookie.replace("view", "View") }))).toBe(403);
  // A wrong token is not made good by the cookie.
  expect(status(ask(guard, `${root}?token=x`, { cookie }))).toBe(403);
});

test("other hosts are refused, as after DNS rebinding", () => {
  const { guard, cookie } = guarded();
  const hosts = [
    [],
    "evil.example",
    `evil.example:${PORT}`,
    "127.0.0.1",
    "127.0.0.1:1",
    `127.0.0.1:${PORT}.evil.example`,
    `127.1:${PORT}`,
    `[::1]:${PORT}`,
    `0.0.0.0:${PORT}`,
    `localhost.:${PORT}`,
    ` 127.0.0.1:${PORT}`,
    [`127.0.0.1:${PORT}`, "evil.example"],
  ];
  for (const host of hosts) expect(status(ask(guard, guard.root, { cookie, host }))).toBe(421);
});

test("requests of other sites and other ports are refused, even with the cookie", () => {
  const { guard, cookie, token } = guarded();
  for (const from of ["cross-site", "same-site"]) {
    expect(status(ask(guard, guard.root, { cookie, "sec-fetch-site": from }))).toBe(403);
    expect(status(ask(guard, `${guard.root}?token=${token}`, { "sec-fetch-site": from }))).toBe("enter");
  }
  for (const origin of ["null", "http://127.0.0.1:1", "http://evil.example", `https://127.0.0.1:${PORT}`])
    expect(status(ask(guard, guard.root, { cookie, origin }))).toBe(403);
});

test("only GET without a body is answered, and only below the folder", () => {
  const { guard, cookie } = guarded();
  const { root } = guard;
  for (const method of ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", ""])
    expect(status(ask(guard, root, { cookie }, method))).toBe(405);
  expect(status(ask(guard, root, { cookie, "content-length": "1" }))).toBe(400);
  expect(status(ask(guard, root, { cookie, "transfer-encoding": "chunked" }))).toBe(400);
  expect(status(ask(guard, root, { cookie, "content-length": "0" }))).toBe("answer");
  for (const target of ["*", "", "http://127.0.0.1/", `http://evil${root}`, `//evil${root}`, `evil:1${root}`])
    expect(status(ask(guard, target, { cookie }))).toBe(400);
  for (const target of [
    "/",
    root.slice(0, -1),
    `${root}../`,
    `${root}%2e%2e/x`,
    `/x${root}`,
    "/favicon.ico",
    `\\\\x${root}`,
  ])
    expect([400, 404]).toContain(status(ask(guard, target, { cookie })));
  const far = ask(guard, `${root}a/../../${root.slice(1)}session`, { cookie });
  expect(far).toMatchObject({ do: "answer", path: "session" });
});

test("an address for another program works once, and soon", () => {
  const { guard, token, at } = guarded();
  const open = (): Admission => {
    const { pathname, search } = new URL(guard.addressOnce("costs"));
    return ask(guard, pathname + search);
  };
  const address = new URL(guard.addressOnce("costs"));
  const first = ask(guard, address.pathname + address.search);
  expect(first).toMatchObject({ do: "enter", location: `${guard.root}costs` });
  expect(first.do === "enter" && first.cookie).toContain(token);
  expect(address.search).not.toContain(token);
  expect(status(ask(guard, address.pathname + address.search))).toBe(403);
  const late = new URL(guard.addressOnce());
  at.now += 120_000;
  expect(status(ask(guard, late.pathname + late.search))).toBe(403);
  expect(status(open())).toBe("enter");
});
