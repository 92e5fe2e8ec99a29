/**
 * The statements of the parts of a long commit. Their packs have a generation that no session has, a place of their own: no
 * reader asks for it, and the parts of a writer that lost its lease are never shown.
 */

import type { FleetPart } from "../../../core/ports/fleet.ts";
import {
  type Appender,
  makeContinuesCondition,
  makeGuardedStatement,
  makeLeaseEnd,
  makeServerCondition,
} from "./append-statement.ts";
import type { SqlStatement } from "./driver.ts";
import type { Pack } from "./pack.ts";
import { getPlaceGeneration, makeCopyPart, makePackPart, makePacksProof } from "./pack-parts.ts";
import { WAITS_FOR } from "./server-fact.ts";
import { SqlValues } from "./sql-values.ts";

/** Returns the statement that stores a part, if epoch and end are the session's; it returns a row if it was done. */
export function makePartStatement(part: FleetPart, by: Appender, packs: readonly Pack[] | undefined): SqlStatement {
  const values = new SqlValues();
  const held = heldBy(part, by, values);
  const generation = `${values.add(getPlaceGeneration(part.place))}::int`;
  const after = part.stretches.at(-1) ?? part.from;
  const { source } = part;
  const put =
    source === undefined
      ? makePackPart(packs ?? [], values, generation)
      : makeCopyPart(source, part.from, after, values, generation);
  const proof = source === undefined ? "" : `, ${makePacksProof(part.from, part.stretches, values)} as proven`;
  return makeGuardedStatement(
    `with held as (${held}), put_0 as (${put}) select ${WAITS_FOR}${proof} from held`,
    by,
    values,
  );
}

/** Returns the statement that removes parts that earlier, failed commits have left in other places. */
export function makeClearStatement(part: FleetPart, by: Appender): SqlStatement {
  const values = new SqlValues();
  const held = heldBy(part, by, values);
  const gone = `delete from pi_fleet.pack p using held where p.tenant = held.tenant and p.session_id = held.id
    and p.generation < 0 and p.generation <> ${values.add(getPlaceGeneration(part.place))}::int`;
  return makeGuardedStatement(`with held as (${held}), gone as (${gone}) select ${WAITS_FOR} from held`, by, values);
}

/**
 * Returns the query for the session of a part, if epoch and end are those of the writer: after a lost lease, or on another
 * server, nothing is changed. Another process that takes the lease waits until the statement has ended.
 */
function heldBy({ sessionId, epoch, before }: FleetPart, by: Appender, values: SqlValues): string {
  const lease = makeLeaseEnd(by, values);
  return `update pi_fleet.session s set lease_until = ${lease}
    where tenant = ${values.add(by.tenant)} and id = ${values.add(sessionId)} and epoch = ${values.add(epoch)}
      and holder = ${values.add(by.holder)} and state < 2 ${makeServerCondition(by, values)}
      and ${makeContinuesCondition(`${values.add(before.entries)}::bigint`, values.add(Buffer.from(before.chain, "hex")))}
    returning tenant, id, epoch`;
}
