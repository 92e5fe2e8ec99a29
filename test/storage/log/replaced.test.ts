/** Replacing what a session has with what other machines wrote: a refusal after the swap says that it is there. */

import { expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { CopiedLog } from "../../../src/storage/log/outside.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import { diskWith, FILE, idsOf, jsonlOn } from "../../support/sessions.ts";
import { CONTAINER, containerWith, v2On } from "../../support/v2.ts";

test.each(["jsonl", "v2"])(
  "what replaces a session, and its folder not synced, is there all the same (%s)",
  async (kind) => {
    const disk = kind === "v2" ? await containerWith(chain(3)) : diskWith(fileText(headerText(), ...chain(3)));
    const path = kind === "v2" ? CONTAINER : FILE;
    const store = kind === "v2" ? v2On(disk) : jsonlOn(disk);
    const log = store.open(path) as CopiedLog;
    log.acquireLock();
    const rename = disk.rename.bind(disk);
    disk.rename = (from, to) => {
      rename(from, to);
      if (to !== path) return;
      disk.syncFolderNow = () => {
        throw Object.assign(new Error("no"), { code: "EIO" });
      };
    };
    const replace = async (): Promise<string> => log.replaceFrom(1, [bytesOf(userText(id(50), id(0)))]);
    const { name, message, details } = await replace().catch((error) => error);
    expect([name, details.backupPath]).toEqual(["storage_failed", `${path}.damaged.bak`]);
    expect(message).not.toContain("Nothing was changed");
    expect(message).toContain(details.backupPath);
    Reflect.deleteProperty(disk, "syncFolderNow");
    expect(log.refresh()).toEqual({ kind: "replaced" });
    log.close();
    const next = store.open(path);
    expect(idsOf(next)).toEqual([id(0), id(50)]);
    next.close();
  },
);
