/** What moves a whole session takes all of it along and nothing else, and every way back brings every byte back. */

import { existsSync, readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { archiveFolder, folderName } from "../../src/storage/fs/paths.ts";
import { nameOf } from "../support/asking.ts";
import { library, listed, put, rootOf, sessionId } from "../support/lifecycle.ts";
import type { HereServer, Json } from "../support/server.ts";
import { bornContainer, migratedContainer, type Stored, textsOf, wholeSession } from "../support/stored-sessions.ts";
import { SWEEP } from "../support/tiers.ts";

/** A session file and a neighbour, each with all that can belong to one. */
async function wholeFile(): Promise<Stored> {
  const all = library(0);
  const [source] = [1, 2].map((n) => wholeSession(all.place, n));
  return { ...all, file: source, id: sessionId(1), source };
}

/** The sessions that lists have, and those that they have of the archive. */
const bothLists = async (server: HereServer): Promise<string[][]> => [
  await listed(server),
  await listed(server, { archived: true }),
];

for (const [kind, make, tier] of [
  ["a session file", wholeFile, {}],
  ["a container born as one", bornContainer, {}],
  ["a container that was migrated", migratedContainer, SWEEP],
] as const)
  describe(kind, tier, () => {
    test.each([
      ["delete", "restore_session"],
      ["archive", "unarchive_session"],
      ["delete", "undo"],
      ["archive", "undo"],
      ["relocate", "undo"],
    ])("goes whole with %s, and comes back byte for byte with %s", async (operation, back) => {
      const { place, server, file, id, contents } = await make();
      const [before, lists, texts] = [contents(), await bothLists(server), await textsOf(server, file)];
      const isOther = (path: string): boolean => path.includes(sessionId(2));
      const others = Object.fromEntries(Object.entries(before).filter(([path]) => isOther(path)));
      const trash = join(place.state, "trash");
      const cwd = operation === "relocate" ? { cwd: "/new/place", allowMissing: true } : {};
      const { movedTo, ...moved } = await server.result(`${operation}_session`, { sessionId: id, ...cwd });
      expect(moved).toMatchObject({ sessionId: id, sessionPath: file });
      const goals = {
        delete: () => join(trash, readdirSync(trash)[0]),
        archive: () => join(archiveFolder({ root: rootOf(place), state: place.state }), basename(dirname(file))),
        relocate: () => join(rootOf(place), folderName("/new/place")),
      };
      expect(movedTo).toBe(join(goals[operation as keyof typeof goals](), basename(file)));
      const rest = lists[0].filter((one) => one !== id);
      const seen = { delete: [rest, []], archive: [rest, [id]], relocate: lists }[operation];
      expect(await bothLists(server)).toEqual(seen);
      expect(await textsOf(server, movedTo)).toEqual(texts);
      if (operation === "delete") expect(moved.trash).toBe("own");
      if (operation !== "relocate") expect(contents()).toEqual(others);
      const { sessions } = await server.result("list_sessions", { archived: operation === "archive" });
      if (operation !== "delete") expect(sessions.map(({ sessionPath }: Json) => sessionPath)).toContain(movedTo);
      const after = Object.keys(contents());
      for (const method of back === "undo" ? ["undo", "redo", "undo"] : [back]) {
        const named = method.endsWith("_session") ? { sessionId: id } : {};
        const reply = await server.result(method, named);
        if (method === back && back !== "undo") expect(reply).toMatchObject({ sessionPath: movedTo, movedTo: file });
        else expect(reply).toMatchObject({ text: expect.stringMatching(/^(Took back|Did again): \w+d "/) });
        if (method === "redo") expect(Object.keys(contents())).toEqual(after);
        else expect([contents(), await bothLists(server)]).toEqual([before, lists]);
      }
      expect(existsSync(trash) ? readdirSync(trash) : []).toEqual([]);
    });

    test("goes whole when it is deleted for good, and nothing else does", async () => {
      const { place, server, file, id, contents } = await make();
      put(join(dirname(file), `${basename(file)}x`), "not ours");
      const isOther = ([path]: [string, string]): boolean => path.includes(sessionId(2)) || path === `${file}x`;
      const others = Object.fromEntries(Object.entries(contents()).filter(isOther));
      const deleted = await server.result("delete_session", { sessionId: id, permanent: true });
      const about = { operationId: expect.any(String), sessionId: id, sessionPath: file };
      expect(deleted).toEqual({ ...about, trash: "none" });
      expect([contents(), existsSync(join(place.state, "trash"))]).toEqual([others, false]);
      expect(await nameOf(server, "restore_session", { sessionId: id })).toBe("session_not_found");
    });
  });
