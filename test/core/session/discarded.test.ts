/** A new session that cannot become the current one is removed; what is told of it is what is at its path then. */

import { expect, test } from "vitest";
import { draftOfValues } from "../../../src/core/format/entry.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import { headerFile, pointerFile } from "../../../src/storage/fs/container-paths.ts";
import { removeTree } from "../../../src/storage/fs/staging.ts";
import { FaultDisk } from "../../support/disk.ts";
import { user } from "../../support/drafts.ts";
import { fileText, headerText, userText } from "../../support/lines.ts";
import type { Json } from "../../support/server.ts";
import { FOLDER, workspaceOn } from "../../support/sessions.ts";

const CASES = (["jsonl", "v2"] as const).flatMap((kind) =>
  (["entries to it", "its own file there", "its own session there"] as const).map((deed) => [kind, deed] as const),
);

test.each(CASES)("on %s, after another program put %s", async (kind, deed) => {
  const disk = new FaultDisk();
  disk.makeFolder(FOLDER);
  const workspace = workspaceOn(disk, kind);
  const session = workspace.create({});
  const { message } = user("one") as Json;
  session.append([draftOfValues("message", { message })]);
  await session.commit();
  await workspace.replace(session);
  const next = await workspace.fork(session, 0);
  const file = next.file as string;
  const header = kind === "v2" ? headerFile(file) : file;
  const failure = await workspace
    .replace(next, async () => {
      if (deed === "entries to it") {
        const other = workspaceOn(disk, kind).open({ sessionPath: file });
        other.append([draftOfValues("message", { message })]);
        await other.commit();
      } else {
        if (kind === "v2") disk.remove(pointerFile(file));
        if (kind === "v2") removeTree(disk, file);
        else disk.remove(file);
        const own = fileText(headerText({ id: "of-another" }), userText("x", null));
        disk.put(header, bytesOf(deed === "its own file there" ? "notes\n" : own));
      }
      throw Object.assign(new Error("the disk fails"), { code: "EIO" });
    })
    .catch((error) => error);
  expect(disk.content(header)).toBeDefined();
  expect(failure.message.includes("delete_session")).toBe(deed === "entries to it");
  expect(failure.message.includes("Look at it")).toBe(deed === "its own file there");
  await workspace.close();
});
