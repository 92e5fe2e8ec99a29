/** What stays in a session's file though its commit failed, because another program wrote to it after that. */

import { expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import { FaultDisk } from "../../support/disk.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import { FILE, openOn } from "../../support/sessions.ts";

/** A disk whose next sync fails, after another program has done something. */
class MeddledDisk extends FaultDisk {
  meddle: (() => void) | undefined;

  override sync = async (fd: number): Promise<void> => {
    const { meddle } = this;
    this.meddle = undefined;
    if (!meddle) return this.syncNow(fd);
    meddle();
    throw Object.assign(new Error("the medium fails"), { code: "EIO" });
  };
}

const draft = (n: number) => ({ type: "custom", id: id(n), rest: bytesOf("") });

test("what stayed when a session was left, or in an earlier commit, is not what a later commit is told of", async () => {
  const disk = new MeddledDisk();
  disk.put(FILE, bytesOf(fileText(headerText(), ...chain(3))));
  const writeAsOther = (entryId: string): void => {
    const fd = disk.openAppend(FILE);
    disk.write(fd, bytesOf(`${userText(entryId, id(2))}\n`));
    disk.close(fd);
  };
  const session = openOn(disk);
  session.moveLeaf(0);
  disk.meddle = () => writeAsOther("other-1");
  await expect(session.leave()).rejects.toMatchObject({ name: "outcome_unknown" });
  for (const [n, name] of [
    [10, "storage_failed"],
    [11, undefined],
    [12, "outcome_unknown"],
    [13, undefined],
    [14, "storage_failed"],
  ] as const) {
    session.refresh();
    session.foreign.fresh();
    session.append([draft(n)]);
    if (name) disk.meddle = () => name === "outcome_unknown" && writeAsOther(`other-${n}`);
    if (name) await expect(session.commit(), id(n)).rejects.toMatchObject({ name });
    else await session.commit();
    const { isCertain, hasStayed, nodes } = session.log as Required<typeof session.log>;
    const position = nodes.position(id(n));
    expect(position >= 0, id(n)).toBe(name !== "storage_failed");
    if (position >= 0)
      expect([isCertain.call(session.log, position), hasStayed.call(session.log, position)]).toEqual(
        name ? [false, true] : [true, false],
      );
  }
  expect(session.log.isCertain?.(session.position(id(11)))).toBe(true);
});
