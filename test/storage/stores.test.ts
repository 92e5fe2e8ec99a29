/** Sessions are found by id and by working directory, and nothing that is no session is taken for one. */

import { describe, expect, test } from "vitest";
import { toBytes } from "../../src/core/json/json.ts";
import type { Stores } from "../../src/core/ports/stores.ts";
import { confineDisk } from "../../src/storage/fs/confined-disk.ts";
import { findPaths, makeFileName, type StoragePaths, toFolderName } from "../../src/storage/fs/paths.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { getConfines, makeStores } from "../../src/storage/stores.ts";
import { FaultDisk } from "../support/disk.ts";
import { testEnv } from "../support/env.ts";
import { fileText, headerText, TIME } from "../support/lines.ts";

const ROOT: StoragePaths = { root: "/sessions", state: "/state" };

function storesOn(disk: FaultDisk, places: StoragePaths = ROOT, allowed?: readonly string[]): Stores {
  const confined = allowed && confineDisk(disk, getConfines(places, allowed));
  const common = { env: testEnv(), locks: noLocks, durability: "sync", cwd: "/work", kind: "jsonl" } as const;
  return makeStores({ ...common, disk: confined ?? disk, paths: places, requireAllowed: confined?.requireInside });
}

function diskOf(files: Record<string, string>): FaultDisk {
  const disk = new FaultDisk();
  for (const [path, content] of Object.entries(files)) disk.put(path, toBytes(content));
  return disk;
}

const session = (id: string, cwd = "/a/b") => fileText(headerText({ id, cwd }));
const failing = (name: string) => expect.objectContaining({ name });

describe("names", () => {
  test("of files hold the time and the whole id, of folders the working directory", () => {
    expect(makeFileName({ type: "session", id: "x-1", timestamp: TIME })).toBe("2026-01-24T16-22-26-831Z_x-1.jsonl");
    const folders = ["/a/b", "/a-b", "//a", "C:\\x", "/"].map(toFolderName);
    expect(folders.join(" ")).toBe("--a-b-- --a-b-- ---a-- --C--x-- ----");
  });

  test("of places come from the environment, the settings, or Pi's own", () => {
    const found = (variables: Record<string, string>, dir?: string, settings?: unknown) =>
      findPaths({ HOME: "/home/me", ...variables }, dir, () => settings);
    const state = "/home/me/.local/state/pi-session-server";
    expect(found({})).toEqual({ root: "/home/me/.pi/agent/sessions", state });
    expect(found({ PI_CODING_AGENT_DIR: "~/x" }).root).toBe("/home/me/x/sessions");
    expect(found({ PI_SESSIONS_DIR: "/s", PI_CODING_AGENT_DIR: "/x" }).root).toBe("/s");
    expect(found({}, "/flat")).toEqual({ flat: "/flat", state });
    expect(found({ PI_CODING_AGENT_SESSION_DIR: "~/f" }).flat).toBe("/home/me/f");
    expect(found({}, undefined, { sessionDir: "/configured" }).flat).toBe("/configured");
    for (const settings of [undefined, null, 1, [], { sessionDir: 5 }])
      expect(found({}, undefined, settings).flat).toBeUndefined();
    expect(found({ XDG_STATE_HOME: "/st" }).state).toBe("/st/pi-session-server");
    expect(found({ PI_SESSION_SERVER_STATE_DIR: "/own" }).state).toBe("/own");
    expect(found({ PI_SESSIONS_DIR: "", XDG_STATE_HOME: "" })).toEqual({ root: "/home/me/.pi/agent/sessions", state });
  });
});

describe("by id", () => {
  const disk = diskOf({
    "/sessions/--a--/2026-01-24T16-22-26-831Z_aaaa-1.jsonl": session("aaaa-1"),
    "/sessions/--a--/2026-01-24T16-22-26.831Z_bbbbbbbb.jsonl": session("bbbbbbbb-cccc"),
    "/sessions/--b--/named by hand.jsonl": session("dddd-1"),
    "/sessions/--b--/2026_aaaa-2.jsonl": session("aaaa-2"),
    "/sessions/--b--/2026_aaaa-22.jsonl": session("aaaa-22"),
    "/sessions/--b--/2026_eeee.jsonl.v1.bak": session("eeee"),
    "/sessions/--b--/.2026_ffff.jsonl.1-1.tmp": session("ffff"),
    "/sessions/--b--/.2026_hhhh.jsonl": session("hhhh"),
    "/sessions/--b--/not a session.jsonl": "hello",
    "/sessions/stray.jsonl": session("gggg"),
  });
  const { find } = storesOn(disk);

  test("whole, however its file is called", () => {
    expect(find("aaaa-1")).toBe("/sessions/--a--/2026-01-24T16-22-26-831Z_aaaa-1.jsonl");
    expect(find("bbbbbbbb-cccc")).toBe("/sessions/--a--/2026-01-24T16-22-26.831Z_bbbbbbbb.jsonl");
    expect(find("dddd-1")).toBe("/sessions/--b--/named by hand.jsonl");
    expect(find("aaaa-2")).toBe("/sessions/--b--/2026_aaaa-2.jsonl");
  });

  test("by its beginning, if only one begins so", () => {
    expect(find("bbbbbbbb-c")).toBe("/sessions/--a--/2026-01-24T16-22-26.831Z_bbbbbbbb.jsonl");
    expect(find("ddd")).toBe("/sessions/--b--/named by hand.jsonl");
    expect(() => find("aaaa")).toThrow(failing("ambiguous_id"));
  });

  test("is not found where there is none, and refused where it is no id", () => {
    for (const id of ["eeee", "ffff", "hhhh", "hello", "zzzz"])
      expect(() => find(id), id).toThrow(failing("session_not_found"));
    for (const id of ["", "../x", "a/b", "*", "a b", ".a", "a\0"])
      expect(() => find(id), id).toThrow(failing("invalid_id"));
  });

  test("in a flat folder", () => {
    const flat = storesOn(diskOf({ "/flat/x_aaaa.jsonl": session("aaaa") }), { flat: "/flat", state: "/state" });
    expect(flat.find("aaaa")).toBe("/flat/x_aaaa.jsonl");
    expect(() => storesOn(new FaultDisk()).find("aaaa")).toThrow(failing("session_not_found"));
  });
});

test("the latest of a working directory is its own, though another one's folder has the same name", () => {
  const { latest } = storesOn(
    diskOf({
      "/sessions/--a-b--/1_old.jsonl": session("old", "/a/b"),
      "/sessions/--a-b--/2_new.jsonl": session("new", "/a/b"),
      "/sessions/--a-b--/3_other.jsonl": session("other", "/a-b"),
      "/sessions/--a-b--/4_broken.jsonl": "hello",
    }),
  );
  expect(latest("/a/b")).toBe("/sessions/--a-b--/2_new.jsonl");
  expect(latest("/a-b")).toBe("/sessions/--a-b--/3_other.jsonl");
  expect(latest("/nowhere")).toBeUndefined();
});

describe("paths", () => {
  test("of a host are absolute, or relative to where we work", () => {
    const { absolute } = storesOn(new FaultDisk());
    const paths = ["/x/y.jsonl", "y.jsonl", "../y.jsonl"].map(absolute);
    expect(paths).toEqual(["/x/y.jsonl", "/work/y.jsonl", "/y.jsonl"]);
  });

  test("lie where they may, if that is confined", () => {
    const disk = diskOf({ "/sessions/--a--/x.jsonl": session("x"), "/other/y.jsonl": session("y") });
    const { absolute, open } = storesOn(disk, ROOT, ["/allowed"]);
    for (const path of ["/sessions/--a--/x.jsonl", "/sessions/new/z.jsonl", "/allowed/deep/z.jsonl"])
      expect(absolute(path)).toBe(path);
    for (const path of ["/other/y.jsonl", "/sessions", "/allowed", "/etc/passwd", "y.jsonl"])
      expect(() => absolute(path), path).toThrow(failing("path_outside_root"));
    expect(() => open("/other/y.jsonl")).toThrow(failing("path_outside_root"));
    expect(() => absolute("/sessions/../other/y.jsonl")).toThrow(failing("path_outside_root"));
  });

  test("of one file are the same", () => {
    const disk = diskOf({ "/x.jsonl": session("x"), "/z.jsonl": session("z") });
    disk.link("/x.jsonl", "/y.jsonl");
    const { isSame } = storesOn(disk);
    const pairs = [
      ["/x.jsonl", "/y.jsonl"],
      ["/x.jsonl", "/z.jsonl"],
      ["/n", "/n"],
      ["/n", "/m"],
    ] as const;
    expect(pairs.map(([one, other]) => isSame(one, other))).toEqual([true, false, true, false]);
  });
});
