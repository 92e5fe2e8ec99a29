/** Attachments of a fleet's sessions: on every machine, as they are, and there before the lines that name them. */

import { createHash, randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import type { FleetBatch } from "../../../src/core/ports/fleet.ts";
import { attachmentFolder } from "../../../src/storage/log/attachments.ts";
import { suiteDatabase } from "../../support/database.ts";
import { user } from "../../support/drafts.ts";
import { FleetTable } from "../../support/fleet.ts";
import { lines, Machine } from "../../support/fleet-machine.ts";
import { entryText, headerText, id, userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Place, Wire } from "../../support/server.ts";
import { beginning } from "../../support/sessions.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import { type Run, runHere } from "../../support/verbs.ts";

const digestOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
/** Returns the line of an entry with a picture that is kept beside the session. */
const naming = (bytes: Uint8Array, entryId = id(0)): string => {
  const data = { $piBlob: `sha256:${digestOf(bytes)}`, sizeBytes: bytes.length, encoding: "base64" };
  const content = [{ type: "image", mimeType: "image/png", data }];
  return entryText("message", entryId, null, { message: { role: "user", content, timestamp: 1 } });
};
const KINDS = ["jsonl", "v2"] as const;

acrossTiers(describe, KINDS)("an attachment of %s", (kind) => {
  const bytes = bytesOf("a picture");

  test.each(["before", "after", "late"] as const)(
    "is there before the line that names it, whatever call fails (%s)",
    async (fault) => {
      for (let failing = 0, isOver = false; !isOver; failing++) {
        const table = new FleetTable();
        const one = new Machine(kind, table, "one");
        await one.put([naming(bytes)]);
        const folder = attachmentFolder(one.file);
        one.disk.makeFolder(folder);
        one.disk.put(join(folder, digestOf(bytes)), bytes);
        one.fleet.faultAt = (call) => (call === failing ? fault : undefined);
        const log = one.store.open(one.file);
        try {
          await log.ready?.();
          log.append(lines(1));
          await log.commit();
        } catch {
          // The fleet was not reached.
        }
        isOver = one.fleet.calls.length <= failing;
        for (const text of table.linesOf(log.header.id))
          if (text.includes("$piBlob")) expect(table.blobs.has(digestOf(bytes)), `call ${failing}`).toBe(true);
        log.close();
        one.fleet.faultAt = () => undefined;
        const again = one.store.open(one.file);
        await again.ready?.();
        if (again.readOnly === null) {
          again.append([bytesOf(userText(id(9), id(0)))]);
          await again.commit();
        }
        expect([...(table.attached.get(again.header.id) ?? [])]).toEqual([digestOf(bytes)]);
        again.close();
      }
    },
  );

  test("comes with a session whose first append nobody knew of", async () => {
    const table = new FleetTable();
    table.blobs.set(digestOf(bytes), bytes);
    const one = new Machine(kind, table, "one");
    const log = one.create();
    one.fleet.faultAt = (_, name) => (name === "append" ? "after" : undefined);
    log.append([bytesOf(naming(bytes))]);
    await expect(log.commit()).rejects.toMatchObject({ name: "outcome_unknown" });
    one.fleet.faultAt = () => undefined;
    await log.ready?.();
    log.append([bytesOf(userText(id(9), id(0)))]);
    await log.commit();
    expect(table.linesOf(log.header.id)).toEqual([naming(bytes), userText(id(9), id(0))]);
    expect(one.disk.paths()).toContain(join(attachmentFolder(one.file), digestOf(bytes)));
  });

  test.each(
    (["openRead", "infoOf", "read"] as const).flatMap((operation) =>
      ["EMFILE", "EIO"].flatMap((code) => [true, false].map((goesOn) => [operation, code, goesOn] as const)),
    ),
  )(
    "that cannot be read for a moment is no missing one: the commit fails, and the next one has it (%s, %s, goes on alone: %s)",
    async (operation, code, isJournaled) => {
      const table = new FleetTable();
      const one = new Machine(kind, table, "one", { isJournaled });
      const log = one.store.create(beginning(undefined, one.file));
      log.append(lines(0));
      await log.commit();
      const folder = attachmentFolder(one.file);
      one.disk.makeFolder(folder);
      one.disk.put(join(folder, digestOf(bytes)), bytes);
      // One that this machine never had is as ever.
      log.append([naming(bytes, id(1)), naming(bytesOf("elsewhere"), id(2))].map((line) => bytesOf(line)));
      let opened = -1;
      let failures = 1;
      const { disk } = one;
      const { openRead } = disk;
      const inFolder = (subject: string | number): boolean =>
        typeof subject === "string" ? subject.startsWith(folder) : subject === opened;
      disk.openRead = (path) => {
        const fd = openRead.call(disk, path);
        if (path.startsWith(folder)) opened = fd;
        return fd;
      };
      const plain = disk[operation] as (...args: unknown[]) => unknown;
      const struck = (subject: string | number, ...more: unknown[]): unknown => {
        if (inFolder(subject) && failures-- > 0) throw Object.assign(new Error(`test: ${code}`), { code });
        return plain.call(disk, subject, ...more);
      };
      Object.assign(disk, { [operation]: struck });
      await expect(log.commit()).rejects.toMatchObject({
        name: "storage_failed",
        retryable: true,
        details: { errno: code },
      });
      expect(table.linesOf(log.header.id)).toEqual(lines(0).map((line) => textOf(line)));
      expect(failures).toBe(0);
      await log.ready?.();
      log.append([naming(bytes, id(1)), naming(bytesOf("elsewhere"), id(2))].map((line) => bytesOf(line)));
      await log.commit();
      expect([...(table.attached.get(log.header.id) ?? [])]).toEqual([digestOf(bytes)]);
      expect(table.blobs.has(digestOf(bytes))).toBe(true);
      // A reader has what is there.
      failures = 1;
      expect(log.attachment(1, digestOf(bytes), bytes.length)).toBe(null);
      expect(log.attachment(1, digestOf(bytes), bytes.length)).toBe(Buffer.from(bytes).toString("base64"));
      log.close();
    },
  );
});

describe("attachments in PostgreSQL", { ...SYSTEM, ...needs(POSTGRESQL) }, () => {
  const database = suiteDatabase();
  const { connect, fleets } = database;
  const asked = async (place: Place, ...args: string[]): Promise<Json> =>
    JSON.parse((await fleetVerb(place, ...args, "--json")).stdout);
  const fleetVerb = (place: Place, ...args: string[]): Promise<Run> =>
    runHere(place, ["fleet", ...args], { variables: { PI_FLEET_URL: database.server.url }, hashes: true });
  const machine = async (kind: string): Promise<{ wire: Wire; place: Place }> => {
    const lives = new HereLives({ fleet: connect(), seed: 1 + fleets.length });
    return { wire: await lives.start(["--store", kind]), place: lives.place };
  };
  /** Brings a session with a picture in. Returns its id and path. */
  const imported = async ({ wire, place }: { wire: Wire; place: Place }, name: string, bytes: Uint8Array) => {
    const path = join(place.home, `${name}.jsonl`);
    const sessionId = `01a207fe-a9e0-7627-b723-${name.padStart(12, "0")}`;
    writeFileSync(path, `${headerText({ id: sessionId, cwd: place.cwd })}\n${naming(bytes)}\n`);
    mkdirSync(attachmentFolder(path));
    writeFileSync(join(attachmentFolder(path), digestOf(bytes)), bytes);
    const { sessionPath } = await wire.result("import_session", { path });
    return { sessionId, sessionPath };
  };
  const pathOf = async (wire: Wire, sessionId: string): Promise<string> => {
    await wire.result("switch_session", { sessionId });
    const { sessionFile } = await wire.result("get_state");
    return sessionFile;
  };
  const count = (table: string): string => database.server.sql(`select count(*) from pi_fleet.${table}`);

  beforeEach(() => {
    database.server.sql(
      "truncate pi_fleet.session, pi_fleet.entry, pi_fleet.described, pi_fleet.attached, pi_fleet.blob cascade",
    );
  });

  test("a commit fails as the disk does that refuses one, and not as if the database were away", async () => {
    const refused = new Failure("storage_failed", "test: EIO", { errno: "EIO" });
    const read = (): never => {
      throw refused;
    };
    const attachments = [{ sha256: digestOf(bytesOf("a picture")), read }];
    const batch = { sessionId: "s", attachments } as unknown as FleetBatch;
    await expect(connect().fleet.append(batch)).rejects.toBe(refused);
  });

  acrossTiers(test, KINDS)("come with the session, are checked, and go in and out as files (%s)", async (kind) => {
    const bytes = randomBytes(1_100_000);
    const [one, two] = [await machine(kind), await machine(kind)];
    const { sessionId } = await imported(one, "1", bytes);
    expect(count("blob_part")).toBe("2");
    const path = await pathOf(two.wire, sessionId);
    expect(readFileSync(join(attachmentFolder(path), digestOf(bytes))).equals(bytes)).toBe(true);
    expect((await asked(two.place, "verify")).faults).toEqual([]);
    // One that the fleet has damaged is taken for none.
    database.server.sql(
      "update pi_fleet.blob_part set bytes = set_byte(bytes, 0, 255 - get_byte(bytes, 0)) where part = 1",
    );
    const { status, stdout } = await fleetVerb(one.place, "verify", "--json");
    expect([status, JSON.parse(stdout).faults]).toMatchObject([3, [{ sessionId, fault: "attachment" }]]);
    const fleet = connect();
    const lives = new HereLives({ fleet, seed: 1 + fleets.length });
    const three = { wire: await lives.start(["--store", kind]), place: lives.place };
    const asking = vi.spyOn(fleet.connections, "run");
    const fetched = (): number =>
      asking.mock.calls.filter(([asked]) => "text" in asked && asked.text.startsWith("select bytes")).length;
    const there = await pathOf(three.wire, sessionId);
    expect(existsSync(join(attachmentFolder(there), digestOf(bytes)))).toBe(false);
    expect(fetched()).toBe(2);
    // It was seen what it is, and comes no second time as long as nobody has given it anew.
    await three.wire.result("new_session");
    await pathOf(three.wire, sessionId);
    expect(fetched()).toBe(2);
    const folder = join(one.place.home, ".pi/agent/sessions");
    await asked(one.place, "import", folder);
    expect((await asked(one.place, "verify")).faults).toEqual([]);
    // Whoever opens it again has it then.
    await three.wire.result("new_session");
    await pathOf(three.wire, sessionId);
    expect(readFileSync(join(attachmentFolder(there), digestOf(bytes))).equals(bytes)).toBe(true);
    const out = join(two.place.home, "out");
    await asked(two.place, "export", out);
    const written = readdirSync(out, { recursive: true, encoding: "utf8" }).find((name) =>
      name.endsWith(digestOf(bytes)),
    );
    expect(readFileSync(join(out, written as string)).equals(bytes)).toBe(true);
    database.server.sql(
      "truncate pi_fleet.session, pi_fleet.entry, pi_fleet.described, pi_fleet.attached, pi_fleet.blob cascade",
    );
    await asked(two.place, "import", out);
    expect([count("blob_part"), count("attached")]).toEqual(["2", "1"]);
  });

  test("that cannot be written beside an exported session are named, and the exit status says so", async () => {
    const one = await machine("jsonl");
    const [whole, gone, bent, other] = ["whole", "gone", "bent", "other"].map((text) => bytesOf(text));
    for (const [n, bytes] of [whole, gone, bent, other].entries()) await imported(one, `${n}`, bytes);
    const out = join(one.place.home, "out");
    const exported = async () => {
      const { status, stdout } = await fleetVerb(one.place, "export", out, "--json");
      const { files } = JSON.parse(stdout);
      const missing = files.flatMap(({ missingAttachments = [] }: Json) => missingAttachments);
      return { status, files, missing: missing.sort() };
    };
    database.server.sql(`delete from pi_fleet.blob_part where sha256 = '${digestOf(gone)}'`);
    database.server.sql(`update pi_fleet.blob_part set bytes = 'BENT' where sha256 = '${digestOf(bent)}'`);
    for (const outcome of ["new", "known"]) {
      const { status, files, missing } = await exported();
      expect([status, missing]).toEqual([1, [digestOf(gone), digestOf(bent)].sort()]);
      expect(files.map((file: Json) => file.outcome)).toEqual(Array.from({ length: 4 }, () => outcome));
      expect(files.filter(({ message }: Json) => message?.includes(digestOf(gone)))).toHaveLength(1);
    }
    const { stdout } = await fleetVerb(one.place, "export", out);
    expect(stdout).toContain("2 sessions lack attachments");
    const folder = join(one.place.home, ".pi/agent/sessions");
    await asked(one.place, "import", folder);
    const again = connect();
    expect(await again.fleet.attachment(digestOf(bent))).not.toBeNull();
    const name = readdirSync(out, { recursive: true, encoding: "utf8" }).find((one) => one.endsWith(digestOf(other)));
    writeFileSync(join(out, name as string), "something else");
    expect(await exported()).toMatchObject({ status: 1, missing: [digestOf(other)] });
    expect(readFileSync(join(out, name as string), "utf8")).toBe("something else");
    writeFileSync(join(out, name as string), other);
    expect(await exported()).toMatchObject({ status: 0, missing: [] });
  });

  test("go when no session names them, and come back with the next one that does", async () => {
    const bytes = bytesOf("a picture of many");
    const one = await machine("jsonl");
    const ids = [(await imported(one, "1", bytes)).sessionId, (await imported(one, "2", bytes)).sessionId];
    expect([count("blob"), count("attached")]).toEqual(["1", "2"]);
    database.server.sql("truncate pi_fleet.attached");
    // What was given just now is about to be named.
    expect(await asked(one.place, "prune", "--apply", "--yes")).toMatchObject({ attachments: 0 });
    database.server.sql("insert into pi_fleet.attached select '', id, 0, sha256 from pi_fleet.session, pi_fleet.blob");
    const age = (): string => database.server.sql("update pi_fleet.blob set touched_at = now() - interval '2 days'");
    for (const [n, sessionId] of ids.entries()) {
      await one.wire.result("delete_session", { sessionId, permanent: true });
      age();
      expect(await asked(one.place, "prune", "--apply", "--yes")).toMatchObject({ attachments: n });
      expect(count("blob")).toBe(String(1 - n));
    }
    expect(count("blob_part")).toBe("0");
    // The process remembers that it was there.
    const { sessionId } = await imported(one, "3", bytes);
    await one.wire.result("switch_session", { sessionId });
    await one.wire.result("append", { entries: [user("more")] });
    expect([count("blob"), count("attached"), count("blob_part")]).toEqual(["1", "1", "1"]);
    expect(textOf(bytes)).toBe(database.server.sql("select convert_from(bytes, 'utf8') from pi_fleet.blob_part"));
  });
});
