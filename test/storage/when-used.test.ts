import { expect, test } from "vitest";
import { makeWhenUsed } from "../../src/storage/when-used.ts";

test("an object is made once, at its first use, and its methods are its own", () => {
  class Counter {
    private count = 0;
    readonly name = "counter";
    next(): number {
      return ++this.count;
    }
  }
  let made = 0;
  const counter = makeWhenUsed(() => {
    made++;
    return new Counter();
  });
  expect(made).toBe(0);
  const { next } = counter;
  expect([next(), counter.next(), counter.name, made]).toEqual([1, 2, "counter", 1]);
});

test("what is idle until then does nothing, and then does what it does", () => {
  const closed: string[] = [];
  const files = makeWhenUsed(() => ({ open: () => "open", close: () => closed.push("closed") }), ["close"]);
  files.close();
  expect(closed).toEqual([]);
  expect(files.open()).toBe("open");
  files.close();
  expect(closed).toEqual(["closed"]);
});

test("one that cannot be made is made again at the next use", () => {
  let isThere = false;
  const late = makeWhenUsed(() => {
    if (!isThere) throw new Error("not yet");
    return { value: 1 };
  });
  expect(() => late.value).toThrow("not yet");
  isThere = true;
  expect(late.value).toBe(1);
});
