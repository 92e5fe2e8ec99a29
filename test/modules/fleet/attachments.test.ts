/** Attachments of a fleet's sessions: on every machine, as they are, and there before the lines that name them. */

import { createHash, randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import type { FleetBatch } from "../../../src/core/ports/fleet.ts";
import { getAttachmentFolder } from "../../../src/storage/log/attachments.ts";
import { user } from "../../support/drafts.ts";
import { entryText, headerText, id, SESSION } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import type { Machine } from "./support/machine.ts";
import { Scene } from "./support/scene.ts";
import { fleetSuite, type Machine as SqlMachine } from "./support/sql-machines.ts";

const digestOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
/** Returns the line of an entry with a picture that is kept next to the session. */
const naming = (bytes: Uint8Array, entryId = id(0)): string => {
  const data = { $piBlob: `sha256:${digestOf(bytes)}`, sizeBytes: bytes.length, encoding: "base64" };
  const content = [{ type: "image", mimeType: "image/png", data }];
  return entryText("message", entryId, null, { message: { role: "user", content, timestamp: 1 } });
};
const KINDS = ["jsonl", "v2"] as const;

acrossTiers(describe, KINDS)("an attachment of %s", (kind) => {
  const bytes = toBytes("a picture");
  const digest = digestOf(bytes);
  /** Puts the picture next to the session. Returns the folder where it is. */
  const getFolder = ({ disk, file }: Machine): string => {
    const folder = getAttachmentFolder(file);
    disk.makeFolder(folder);
    disk.put(join(folder, digest), bytes);
    return folder;
  };
  const attached = ({ table }: Scene): string[] => [...(table.attached.get(SESSION) ?? [])];

  test.each(["before", "after", "late"] as const)("is there before the line that names it (%s)", async (fault) => {
    for (let failing = 0, isOver = false; !isOver; failing++) {
      const scene = new Scene(kind);
      const { one, table } = scene;
      await one.put([naming(bytes)]);
      getFolder(one);
      one.fleet.faultAt = (call) => (call === failing ? fault : undefined);
      // The fleet may not be reached.
      await scene.play("asks; writes 1").catch(() => {});
      isOver = one.fleet.calls.length <= failing;
      if (table.linesOf(SESSION).some((text) => text.includes("$piBlob")))
        expect(table.blobs.has(digest), `call ${failing}`).toBe(true);
      await scene.play("closes; heals; asks");
      if (scene.log.readOnly === null) await scene.play("writes 9<0");
      expect(attached(scene)).toEqual([digest]);
    }
  });

  test("comes with a session whose first append nobody knew of", async () => {
    const scene = new Scene(kind);
    const { one, log, table } = scene;
    table.blobs.set(digest, bytes);
    await scene.play("loses append after");
    log.append([toBytes(naming(bytes))]);
    await expect(log.commit()).rejects.toMatchObject({ name: "outcome_unknown" });
    await scene.play("heals; asks; writes 1");
    expect(table.linesOf(SESSION)[0]).toBe(naming(bytes));
    expect([table.linesOf(SESSION).length, one.disk.paths()]).toEqual([
      ...[2, expect.arrayContaining([join(getAttachmentFolder(one.file), digest)])],
    ]);
  });

  test.each(
    (["openRead", "infoOf", "read"] as const).flatMap((operation) =>
      ["EMFILE", "EIO"].flatMap((code) => [true, false].map((goesOn) => [operation, code, goesOn] as const)),
    ),
  )(
    "that cannot be read for a moment fails the commit, and the next one has it (%s, %s, alone: %s)",
    async (operation, code, isJournaled) => {
      const scene = await new Scene(kind, { isJournaled }).play("writes 0");
      const { log, table } = scene;
      const { disk } = scene.one;
      const folder = getFolder(scene.one);
      const append = (): Promise<void> => {
        // A picture that this machine never had changes nothing.
        log.append([naming(bytes, id(1)), naming(toBytes("elsewhere"), id(2))].map((line) => toBytes(line)));
        return log.commit();
      };
      let opened = -1;
      let failures = 1;
      const { openRead } = disk;
      disk.openRead = (path) => {
        const fd = openRead.call(disk, path);
        if (path.startsWith(folder)) opened = fd;
        return fd;
      };
      const plain = disk[operation] as (...args: unknown[]) => unknown;
      const struck = (subject: string | number, ...more: unknown[]): unknown => {
        const isMeant = typeof subject === "string" ? subject.startsWith(folder) : subject === opened;
        if (isMeant && failures-- > 0) throw Object.assign(new Error(`test: ${code}`), { code });
        return plain.call(disk, subject, ...more);
      };
      Object.assign(disk, { [operation]: struck });
      const refused = { name: "storage_failed", retryable: true, details: { errno: code } };
      await expect(append()).rejects.toMatchObject(refused);
      await scene.play("fleet 0");
      expect(failures).toBe(0);
      await log.replica?.ready();
      await append();
      expect([attached(scene), table.blobs.has(digest)]).toEqual([[digest], true]);
      // A reader has the file that is there.
      failures = 1;
      expect(log.attachment(1, digest, bytes.length)).toBe(null);
      expect(log.attachment(1, digest, bytes.length)).toBe(Buffer.from(bytes).toString("base64"));
    },
  );
});

describe("attachments in PostgreSQL", { ...SYSTEM, ...needs(POSTGRESQL) }, () => {
  const suite = fleetSuite();
  const sql = (text: string): string => suite.sql(text);
  const machine = (kind: string, fleet = suite.connect()) => suite.machine({ fleet, args: ["--store", kind] });
  /** Brings a session with a picture in. Returns its id. */
  const imported = async ({ wire, place }: SqlMachine, name: string, bytes: Uint8Array): Promise<string> => {
    const path = join(place.home, `${name}.jsonl`);
    const sessionId = `01a207fe-a9e0-7627-b723-${name.padStart(12, "0")}`;
    writeFileSync(path, `${headerText({ id: sessionId, cwd: place.cwd })}\n${naming(bytes)}\n`);
    mkdirSync(getAttachmentFolder(path));
    writeFileSync(join(getAttachmentFolder(path), digestOf(bytes)), bytes);
    await wire.result("import_session", { path });
    return sessionId;
  };
  /** Opens a session. Returns the path of its picture, which need not be there. */
  const pictureOf = async ({ wire }: SqlMachine, sessionId: string, bytes: Uint8Array): Promise<string> => {
    await wire.result("new_session");
    await wire.result("switch_session", { sessionId });
    return join(getAttachmentFolder((await wire.result("get_state")).sessionFile), digestOf(bytes));
  };
  const exportedPicture = (out: string, bytes: Uint8Array): string => {
    const names = readdirSync(out, { recursive: true, encoding: "utf8" });
    return join(out, names.find((name) => name.endsWith(digestOf(bytes))) as string);
  };
  const counts = (...tables: string[]): string =>
    tables.map((table) => sql(`select count(*) from pi_fleet.${table}`)).join(" ");
  const sessionsOf = ({ place }: SqlMachine): string => join(place.home, ".pi/agent/sessions");

  test("a commit fails as the disk does that refuses one, and not as if the database were away", async () => {
    const refused = new Failure("storage_failed", "test: EIO", { errno: "EIO" });
    const read = (): never => {
      throw refused;
    };
    const attachments = [{ sha256: digestOf(toBytes("a picture")), read }];
    const batch = { sessionId: "s", attachments } as unknown as FleetBatch;
    await expect(suite.connect().fleet.append(batch)).rejects.toBe(refused);
  });

  acrossTiers(test, KINDS)("come with the session, are checked, and go in and out as files (%s)", async (kind) => {
    const bytes = randomBytes(1_100_000);
    const [one, two] = [await machine(kind), await machine(kind)];
    const sessionId = await imported(one, "1", bytes);
    expect(counts("blob_part")).toBe("2");
    expect(readFileSync(await pictureOf(two, sessionId, bytes)).equals(bytes)).toBe(true);
    const wrong = async (): Promise<Json[]> => JSON.parse((await suite.verb("verify --json", one.place)).stdout).faults;
    expect(await wrong()).toEqual([]);
    // One that the fleet has damaged is taken for none.
    sql("update pi_fleet.blob_part set bytes = set_byte(bytes, 0, 255 - get_byte(bytes, 0)) where part = 1");
    expect(await wrong()).toMatchObject([{ sessionId, fault: "attachment" }]);
    expect((await suite.verb("verify", one.place)).status).toBe(3);
    const three = await machine(kind);
    expect(existsSync(await pictureOf(three, sessionId, bytes))).toBe(false);
    await suite.runVerb(`import ${sessionsOf(one)}`, one.place);
    expect(await wrong()).toEqual([]);
    // The next opening has it then.
    expect(readFileSync(await pictureOf(three, sessionId, bytes)).equals(bytes)).toBe(true);
    const out = join(two.place.home, "out");
    await suite.runVerb(`export ${out}`, two.place);
    expect(readFileSync(exportedPicture(out, bytes)).equals(bytes)).toBe(true);
    suite.empty();
    await suite.runVerb(`import ${out}`, two.place);
    expect(counts("blob_part", "attached")).toBe("2 1");
  });

  test("that cannot be written beside an exported session are named, and the exit status says so", async () => {
    const one = await machine("jsonl");
    const all = ["whole", "gone", "bent", "other"].map((text) => toBytes(text));
    const [, gone, bent, other] = all;
    for (const [n, bytes] of all.entries()) await imported(one, `${n}`, bytes);
    const out = join(one.place.home, "out");
    const exported = async () => {
      const { status, stdout } = await suite.verb(`export ${out} --json`, one.place);
      const { files } = JSON.parse(stdout);
      const missing = files.flatMap(({ missingAttachments = [] }: Json) => missingAttachments);
      return { status, files, missing: missing.sort() };
    };
    sql(`delete from pi_fleet.blob_part where sha256 = '${digestOf(gone)}'`);
    sql(`update pi_fleet.blob_part set bytes = 'BENT' where sha256 = '${digestOf(bent)}'`);
    for (const outcome of ["new", "known"]) {
      const { status, files, missing } = await exported();
      expect([status, missing]).toEqual([1, [digestOf(gone), digestOf(bent)].sort()]);
      expect(files.map((file: Json) => file.outcome)).toEqual(all.map(() => outcome));
      expect(files.filter(({ message }: Json) => message?.includes(digestOf(gone)))).toHaveLength(1);
    }
    expect((await suite.verb(`export ${out}`, one.place)).stdout).toContain("2 sessions lack attachments");
    await suite.runVerb(`import ${sessionsOf(one)}`, one.place);
    expect(await suite.connect().fleet.attachment(digestOf(bent))).not.toBeNull();
    const path = exportedPicture(out, other);
    writeFileSync(path, "something else");
    expect(await exported()).toMatchObject({ status: 1, missing: [digestOf(other)] });
    expect(readFileSync(path, "utf8")).toBe("something else");
    writeFileSync(path, other);
    expect(await exported()).toMatchObject({ status: 0, missing: [] });
  });

  test("go when no session names them, and come back with the next one that does", async () => {
    const bytes = toBytes("a picture of many");
    const one = await machine("jsonl");
    const ids = [await imported(one, "1", bytes), await imported(one, "2", bytes)];
    expect(counts("blob", "attached")).toBe("1 2");
    const prune = (): Promise<Json> => suite.runVerb("prune --apply --yes", one.place);
    sql("truncate pi_fleet.attached");
    // A file that was just uploaded is about to be named.
    expect(await prune()).toMatchObject({ attachments: 0 });
    sql("insert into pi_fleet.attached select '', id, 0, sha256 from pi_fleet.session, pi_fleet.blob");
    for (const [n, sessionId] of ids.entries()) {
      await one.wire.result("delete_session", { sessionId, permanent: true });
      sql("update pi_fleet.blob set touched_at = now() - interval '2 days'");
      expect(await prune()).toMatchObject({ attachments: n });
      expect(counts("blob", "blob_part")).toBe(n === 0 ? "1 1" : "0 0");
    }
    // The process remembers that it was there.
    const sessionId = await imported(one, "3", bytes);
    await one.wire.result("switch_session", { sessionId });
    await one.wire.result("append", { entries: [user("more")] });
    expect(counts("blob", "attached", "blob_part")).toBe("1 1 1");
    expect(decodeText(bytes)).toBe(sql("select convert_from(bytes, 'utf8') from pi_fleet.blob_part"));
  });
});
