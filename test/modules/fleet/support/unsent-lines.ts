/** Machines with pending lines for a fleet. */

import { toBytes } from "../../../../src/core/json/json.ts";
import type { Log } from "../../../../src/core/ports/store.ts";
import type { Journal } from "../../../../src/modules/fleet/replica/journal.ts";
import type { UploadPlace } from "../../../../src/modules/fleet/replica/uploads.ts";
import type { FaultDisk } from "../../../support/disk.ts";
import { id, SESSION, userText } from "../../../support/lines.ts";
import type { Machine } from "./machine.ts";

export const journaled = { isJournaled: true } as const;
export const mine = (n: number, parent: number | null, text = `on one ${n}`): string =>
  userText(id(n), parent === null ? null : id(parent), text);
export const notesOn = (disk: FaultDisk): string[] =>
  disk.paths().filter((path) => /fleet-journal\/.*json$/.test(path));
export const inFleet = ({ fleet }: Machine): string[] => fleet.table.linesOf(SESSION);
export const placeOf = ({ journal, store, file }: Machine, own: Journal = journal): UploadPlace => ({
  ...{ journal: own, openCopy: store.open, find: () => file },
});

/** Acknowledges an entry while the fleet is away. */
export async function leavePending(machine: Machine, log: Log, ...texts: string[]): Promise<void> {
  machine.fleet.faultAt = () => "before";
  log.append(texts.map((text) => toBytes(text)));
  await log.commit();
}

/** Brings the fleet back to a machine. */
export function healed({ fleet }: Machine): void {
  fleet.faultAt = () => undefined;
}
