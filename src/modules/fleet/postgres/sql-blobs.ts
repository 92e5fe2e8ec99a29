/**
 * Attachments in PostgreSQL, by the digest of their content, in parts of bounded size. They are stored before the lines that
 * name them: a row of `attached` refers to them, so that a commit whose attachment was removed meanwhile fails, and sends it
 * again.
 */

import { Failure } from "../../../core/failure.ts";
import type { FleetAttachment } from "../../../core/ports/fleet.ts";
import { sha256 as digestOf } from "../../../storage/v2/frame.ts";
import type { Connections } from "./connections.ts";
import { toStorableText } from "./fact-parts.ts";

/** Bytes of one part. */
const PART = 1 << 20;
/** Milliseconds for which a stored attachment is remembered, much less than the time for which unused ones stay. */
const REMEMBERED = 3_600_000;

/** When a commit was last about to name it; as text that no connection setting changes. */
const TOUCHED = "extract(epoch from touched_at)::text";
/** Records that a commit is about to name it, which keeps it for a while. */
const TOUCH = `insert into pi_fleet.blob as b (tenant, sha256, size) values ($1, $2, $3)
  on conflict (tenant, sha256) do update set touched_at = clock_timestamp(), size = excluded.size
  returning is_whole, ${TOUCHED} as touched`;
const PUT = `insert into pi_fleet.blob_part (tenant, sha256, part, bytes) values ($1, $2, $3, $4) on conflict do nothing`;
/** Parts with other content, as of a faulty program, do not count. */
const FINISH = `update pi_fleet.blob b set is_whole = true where tenant = $1 and sha256 = $2
    and size = (select coalesce(pg_catalog.sum(pg_catalog.octet_length(bytes)), 0) from pi_fleet.blob_part p where p.tenant = $1 and p.sha256 = $2)
  returning 1 as done`;
/** A commit that was about to name it since then sends it again, or has done so. */
const BROKEN = `with broken as (update pi_fleet.blob set is_whole = false
    where tenant = $1 and sha256 = $2 and ${TOUCHED} = $3 returning 1)
  , gone as (delete from pi_fleet.blob_part where tenant = $1 and sha256 = $2 and exists (select from broken))
  select 1 from broken`;
const PARTS = `select (select count(*) from pi_fleet.blob_part where tenant = $1 and sha256 = $2) as parts
  from pi_fleet.blob where tenant = $1 and sha256 = $2 and is_whole`;
const HASHED = `select (select pg_catalog.encode(pg_catalog.sha256(coalesce(pg_catalog.string_agg(bytes, ''::bytea order by part), ''::bytea)), 'hex')
    from pi_fleet.blob_part where tenant = $1 and sha256 = $2) as found, ${TOUCHED} as touched
  from pi_fleet.blob where tenant = $1 and sha256 = $2 and is_whole`;
const READ = `select bytes from pi_fleet.blob_part where tenant = $1 and sha256 = $2 and part = $3`;
const OF = `select a.sha256 from pi_fleet.attached a join pi_fleet.session s on s.tenant = a.tenant and s.id = a.session_id
    and s.generation = a.generation
  where a.tenant = $1 and a.session_id = $2 order by a.sha256`;
const ATTACH = `insert into pi_fleet.attached (tenant, session_id, generation, sha256)
  select s.tenant, s.id, s.generation, a from pi_fleet.session s, pg_catalog.unnest($3::text[]) as a
  where s.tenant = $1 and s.id = $2 and s.state = 1 on conflict do nothing`;

export class SqlBlobs {
  private readonly connections: Connections;
  private readonly tenant: string;
  private readonly now: () => number;
  /** Digests that the fleet has, each with the time of its answer. */
  private readonly known = new Map<string, number>();
  /** Times that it was forgotten. */
  forgotten = 0;

  constructor(connections: Connections, tenant: string, now: () => number) {
    this.connections = connections;
    this.tenant = tenant;
    this.now = now;
  }

  private ask(text: string, ...values: readonly unknown[]) {
    return this.connections.read({ text, values: [this.tenant, ...values] });
  }

  /** Stores attachments. Returns the digests of those that are stored then. Throws storage_failed. */
  async put(attachments: readonly FleetAttachment[]): Promise<string[]> {
    const given: string[] = [];
    for (const { sha256, read } of attachments) {
      const since = this.known.get(sha256);
      const isKnown = since !== undefined && Math.abs(this.now() - since) < REMEMBERED;
      if (isKnown || (await this.putOne(sha256, read))) given.push(sha256);
    }
    return given;
  }

  private async putOne(sha256: string, read: () => Uint8Array | null): Promise<boolean> {
    const bytes = read();
    // An entry may name an attachment that this machine never had.
    if (!bytes) return false;
    const [{ is_whole: isWhole, touched }] = await this.ask(TOUCH, sha256, bytes.length);
    if (!isWhole) await this.fill(sha256, bytes, touched);
    this.known.set(sha256, this.now());
    return true;
  }

  private async fill(sha256: string, bytes: Uint8Array, touched: unknown): Promise<void> {
    for (let tries = 0; tries < 2; tries++) {
      for (let part = 0; part * PART < bytes.length; part++) {
        const some = bytes.subarray(part * PART, (part + 1) * PART);
        await this.ask(PUT, sha256, part, Buffer.from(some.buffer, some.byteOffset, some.length));
      }
      if ((await this.ask(FINISH, sha256)).length > 0) return;
      await this.ask(BROKEN, sha256, touched);
    }
    throw new Failure("storage_failed", `The attachment ${sha256} cannot be brought to the fleet. Try again.`, {
      fleet: true,
    });
  }

  /** Forgets which attachments are stored: they may have been removed. */
  forget(): void {
    this.forgotten++;
    this.known.clear();
  }

  async of(sessionId: string): Promise<string[]> {
    return (await this.ask(OF, toStorableText(sessionId))).map(({ sha256 }) => String(sha256));
  }

  async read(sha256: string): Promise<Uint8Array | null> {
    const [whole] = await this.ask(PARTS, sha256);
    if (!whole) return null;
    const pieces: Uint8Array[] = [];
    for (let part = 0; part < Number(whole.parts); part++) {
      const [row] = await this.ask(READ, sha256, part);
      if (row) pieces.push(row.bytes as Uint8Array);
    }
    const bytes = Buffer.concat(pieces);
    return digestOf(bytes) === sha256 ? bytes : null;
  }

  async attach(sessionId: string, attachments: readonly FleetAttachment[]): Promise<void> {
    for (const { sha256 } of attachments) await this.dropDamaged(sha256);
    const given = await this.put(attachments);
    if (given.length > 0) await this.ask(ATTACH, toStorableText(sessionId), given);
  }

  /** Marks a damaged attachment, so that it is sent again. */
  private async dropDamaged(sha256: string): Promise<void> {
    for (let isDone = false; !isDone; ) {
      const [one] = await this.ask(HASHED, sha256);
      if (!one || one.found === sha256) return;
      this.known.delete(sha256);
      isDone = (await this.ask(BROKEN, sha256, one.touched)).length > 0;
    }
  }
}
