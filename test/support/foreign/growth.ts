/** Files of other agents that change while they are open. */

import type { FaultDisk } from "../disk.ts";
import { diskWithForeign, entriesOf, FOREIGN_FILE, foreignSessionOn, requireSound } from "./checks.ts";

/** Opens a document, replaces it by another one, and returns what the open session makes of that. */
export function rewritten(before: string, after: string) {
  return changed(before, (disk) => disk.put(FOREIGN_FILE, Buffer.from(after)));
}

/** Opens a file of lines, appends more of them, and returns what the open session makes of that. */
export function appended(before: string, more: string) {
  return changed(before, (disk) => {
    const fd = disk.openAppend(FOREIGN_FILE);
    disk.write(fd, Buffer.from(more));
    disk.close(fd);
  });
}

function changed(before: string, change: (disk: FaultDisk) => void) {
  const disk = diskWithForeign(before);
  const session = foreignSessionOn(disk);
  const first = entriesOf(session);
  change(disk);
  const { kind } = session.log.refresh();
  requireSound(session);
  return { kind, first, later: entriesOf(session) };
}
