/** The catalog of a fleet in PostgreSQL: one statement for each question, none of which waits for writers. */

import { tryParse } from "../../../core/json/json.ts";
import type { ListRequest, Order } from "../../../core/ports/catalog.ts";
import type { FleetDescription } from "../../../core/ports/fleet.ts";
import type {
  FleetCatalog,
  FleetCursor,
  FleetListed,
  FleetPresence,
  FleetSpent,
  FoundCandidate,
  TakenOver,
  TextQuestion,
} from "../../../core/ports/fleet-catalog.ts";
import { findUniqueBeginning, getIdInPath, NOTHING_SAID_WORDS } from "../../../core/search/listing.ts";
import { fold, type Sought } from "../../../core/search/query.ts";
import type { Connections } from "./connections.ts";
import { parseDescription, SUMS, toStorableText } from "./fact-parts.ts";
import { parseStoredHead } from "./heads.ts";
import { parsePackHeads, ROWS_AND_PACKS, unpackLines } from "./pack.ts";
import { makeBeginsAgainCondition } from "./schema.ts";
import { makeDoubleColumn, parseDoubles, type SqlRow, SqlValues } from "./sql-values.ts";

/** Maximum bytes of a line that is fetched to check a hit. */
const LONGEST_LINE = 8 << 20;
const NO_LINE = new Uint8Array(0);
/** Words that hold one part, at most; with more, a text is looked for by the other parts. */
const MOST_WORDS = 500;
/** Latest texts that are looked at before the index is asked for many words, at up to 20 us each. */
const LOOKED_AT = 500;
/** Number of hits among these from which on the rest is searched by time, not by the index. */
const FREQUENT = 3;
/** Maximum words of a part that are looked up in the index: with hundreds, the server finds reading every text cheaper. */
const FEW_WORDS = 20;
/** Maximum forks of forks that are followed to the origin of an entry. */
const MOST_FORKS = 50;

/** Description of a session whose own is unreadable; `fleet verify` reports it. */
const UNKNOWN: FleetDescription = { cwd: null, name: null, firstMessage: null, parentSession: null, timestamp: null };

/** Columns of a session `s` with its description `d`. */
const COLUMNS = `s.id, s.messages, ${makeDoubleColumn("s.modified")} as modified, s.is_plain, s.entries,
  s.bytes + s.entries + pg_catalog.octet_length(s.header) + 1 as size, s.archived, d.facts`;

/**
 * The ids before and after that of `s`, in their order. Compared together with the tenant, so that the server uses the
 * index: for tables that were filled just now it has no statistics, and would sort all ids for each session.
 */
const makeNeighbourColumns = (tenant: string): string => {
  const neighbours = (
    beyond: string,
    direction: string,
  ): string => `(select case when n.tenant = ${tenant} then n.id end
    from (select x.tenant, x.id from pi_fleet.session x
      where x.state = 1 and (x.tenant, x.id collate "C") ${beyond} (${tenant}, s.id)
      order by x.tenant ${direction}, x.id collate "C" ${direction} limit 1) n)`;
  return `${neighbours("<", "desc")} as id_before, ${neighbours(">", "asc")} as id_after`;
};

/**
 * The session with an id, and its description, for each row of something. Written so that it is looked up by its key:
 * tables that were filled just now have no statistics, and were read as a whole for each row.
 */
const LOOKED_UP = (tenant: string, id: string): string => `
  cross join lateral (select * from pi_fleet.session x where x.tenant = ${tenant} and x.id = ${id} limit 1) s
  cross join lateral (select * from pi_fleet.described x where x.tenant = ${tenant} and x.session_id = s.id limit 1) d`;

/** The head of an entry of `of`, and its line, unless that is in a pack, which is named then. */
const ENTRY = (tenant: string, of: string): string => `
  select x.head, x.line, null::bigint as pack from pi_fleet.entry x where x.tenant = ${tenant}
    and x.session_id = ${of}.session_id and x.generation = ${of}.generation and x.seq = ${of}.seq
  union all select pg_catalog.split_part(x.heads, E'\\n', (${of}.seq - x.seq)::int + 1), null, x.seq
    from (select * from pi_fleet.pack p where p.tenant = ${tenant} and p.session_id = ${of}.session_id
      and p.generation = ${of}.generation and p.seq <= ${of}.seq order by p.seq desc limit 1) x
    where x.seq + x.count > ${of}.seq
  limit 1`;

/** The parent of a session `d`, if it is there; looked up by its key, for the same reason. */
const PARENT = (tenant: string): string => `
  left join lateral (select x.id as parent, y.facts as parent_facts from pi_fleet.session x, pi_fleet.described y
    where x.tenant = ${tenant} and x.id = d.parent_id and x.state = 1 and y.tenant = ${tenant}
      and y.session_id = d.parent_id limit 1) above on true`;

const LATEST_FIRST = (of: string): string =>
  `order by ${of}.at desc, ${of}.session_id collate "C" desc, ${of}.seq desc, ${of}.kind desc, ${of}.nth desc`;

const KEYS: Readonly<Record<Order, string>> = {
  modified: "coalesce(s.modified, '-infinity'::float8)",
  created: "coalesce(d.created, '-infinity'::float8)",
  name: `coalesce(d.name_sought, e'\\uFFFF') collate "C"`,
  size: "(s.bytes + s.entries + pg_catalog.octet_length(s.header) + 1)::float8",
  // As in a catalog of files, a cost that is not known comes after all others.
  cost: `coalesce((select case when pg_catalog.sum(p.cost) = 0 and pg_catalog.sum(p.unpriced) > 0 then '-infinity'
    else pg_catalog.sum(p.cost) end from pi_fleet.spent p where p.tenant = s.tenant and p.session_id = s.id
    and p.generation = s.generation and not p.inherited), 0)`,
};

export class SqlCatalog implements FleetCatalog {
  private readonly connections: Connections;
  private readonly tenant: string;

  constructor(connections: Connections, tenant: string) {
    this.connections = connections;
    this.tenant = tenant;
  }

  async list(
    request: Omit<ListRequest, "cursor" | "agents">,
    after: FleetCursor | undefined,
    most: number | undefined,
  ): Promise<{ sessions: FleetListed[]; total: number }> {
    const { sort = "modified" } = request;
    const values = new SqlValues();
    const tenant = values.add(this.tenant);
    const filters = filtersOf(request, values);
    const [beyond, direction] = sort === "name" ? [">", "asc"] : ["<", "desc"];
    let rest = "";
    if (after) {
      const [key, id] = [values.add(after.key), values.add(toStorableText(after.id))];
      const type = sort === "name" ? 'text collate "C"' : "float8";
      const cast = `${key}::${type}`;
      rest = `where fit.key ${beyond} ${cast} or (fit.key = ${cast} and fit.id collate "C" < ${id})`;
    }
    const limit = most === undefined ? "" : `limit ${values.add(most)}`;
    const order = `order by key ${direction}, id collate "C" desc`;
    const text = `with fit as materialized (
        select s.id, ${KEYS[sort]} as key
        from pi_fleet.session s join pi_fleet.described d on d.tenant = s.tenant and d.session_id = s.id
        where s.tenant = ${tenant} and s.state = 1 ${filters.map((one) => `and ${one}`).join(" ")}
      ), page as (select * from fit ${rest} ${order} ${limit})
      select (select count(*) from fit) as total, ${sort === "name" ? "page.key" : `${makeDoubleColumn("page.key")} as key`}, ${COLUMNS}, above.parent, above.parent_facts, ${makeNeighbourColumns(tenant)}
      from page ${LOOKED_UP(tenant, "page.id")} ${PARENT(tenant)}
      order by page.key ${direction}, page.id collate "C" desc`;
    const rows = await this.connections.read({ text, values: values.all });
    const sessions = rows.map(listedOf);
    const costOf = (key: unknown) => (key === Number.NEGATIVE_INFINITY ? undefined : Number(key));
    const counted = sort === "cost" ? sessions.map((one) => ({ ...one, cost: costOf(one.key) })) : sessions;
    // No row has the total after the last session.
    const total = rows[0]?.total ?? (after || most === 0 ? (await this.list(request, undefined, 1)).total : 0);
    return { sessions: counted, total: Number(total) };
  }

  async known(ids: readonly string[]): Promise<ReadonlyMap<string, FleetPresence>> {
    if (ids.length === 0) return new Map();
    const rows = await this.connections.read({
      text: `select s.id, s.messages, s.state <> 1 as deleted
        from pg_catalog.unnest($2::text[]) as asked (id)
        join pi_fleet.session s on s.tenant = $1 and s.id = asked.id
        left join pi_fleet.described d on d.tenant = s.tenant and d.session_id = s.id
        where s.state = 2 or s.state = 1 and d.session_id is not null or ${makeBeginsAgainCondition("s.")}`,
      values: [this.tenant, ids.map(toStorableText)],
    });
    return new Map(
      rows.map(({ id, messages, deleted }) => [
        String(id),
        { messages: Number(messages), isDeleted: deleted === true },
      ]),
    );
  }

  async idsBeginning(beginning: string, most: number): Promise<readonly string[]> {
    const rows = await this.connections.read({
      text: `select id from pi_fleet.session where tenant = $1 and state = 1 and id collate "C" >= $2
        and pg_catalog.starts_with(id, $2) order by id collate "C" limit $3`,
      values: [this.tenant, toStorableText(beginning), most],
    });
    return rows.map(({ id }) => String(id));
  }

  async idsBegunAt(moment: number, most: number): Promise<readonly string[]> {
    const rows = await this.connections.read({
      text: `select session_id from pi_fleet.described where tenant = $1 and created = $2
        order by session_id collate "C" limit $3`,
      values: [this.tenant, moment, most],
    });
    return rows.map((row) => String(row.session_id));
  }

  async texts(question: TextQuestion): Promise<FoundCandidate[]> {
    const { kinds, words, without, except, after, cwd, since, until, limit } = question;
    const values = new SqlValues();
    const tenant = values.add(this.tenant);
    const filters = [
      `(${Array.from(kinds, ([kind, role]) => {
        const of = `t.kind = ${values.add(kind)}`;
        return role === undefined ? of : `(${of} and t.role = ${values.add(role)})`;
      }).join(" or ")})`,
    ];
    const queryOf = (of: Sought): string | undefined =>
      of.length === 0 ? undefined : `${values.add(tsqueryOf(of))}::tsquery`;
    const sought = queryOf(words);
    if (sought) filters.push(`t.words @@ ${sought}`);
    if (without) filters.push(`not (t.words @@ ${values.add(tsqueryOf(without))}::tsquery)`);
    const places: string[] = [];
    if (since !== undefined) places.push(`t.at >= ${values.add(since)}`);
    if (until !== undefined) places.push(`t.at <= ${values.add(until)}`);
    const inCwd =
      cwd === undefined
        ? ""
        : `join pi_fleet.described d on d.tenant = t.tenant and d.session_id = t.session_id and d.cwd = ${values.add(toStorableText(cwd))}`;
    if (except.length > 0)
      filters.push(
        `not exists (select from pg_catalog.unnest(${values.add(except.map(toStorableText))}::text[]) x where x = t.session_id)`,
      );
    if (after) {
      const place = [after.time ?? Number.NEGATIVE_INFINITY, after.sessionId, after.position, after.kind, after.nth];
      const [at, id, seq, kind, nth] = place.map((value) => values.add(value));
      places.push(
        `(t.at, t.session_id collate "C", t.seq, t.kind, t.nth) < (${at}::float8, ${id}::text, ${seq}::bigint, ${kind}::text, ${nth}::int)`,
      );
    }
    filters.push(...places);
    const most = `${values.add(limit)}::int`;
    const found = (texts: string, further = ""): string => `
      select t.session_id, t.generation, t.seq, t.kind, t.nth, t.role, t.at from ${texts} t
      cross join lateral (select from pi_fleet.session x where x.tenant = ${tenant} and x.id = t.session_id
        and x.generation = t.generation and x.state = 1 limit 1) s ${inCwd}
      where t.tenant = ${tenant} ${further} and ${filters.join(" and ")} ${LATEST_FIRST("t")} limit ${most}`;
    // Rare words are found by their index, and frequent ones among the latest texts: the server knows which they are. It
    // takes many words, such as those that contain a part, for frequent, and would read every text; a sample of the latest
    // texts decides instead.
    const near = "(select count(*) from near)";
    const indexed = (): string | undefined => queryOf(words.filter(({ length }) => length <= FEW_WORDS)) ?? sought;
    const candidates =
      without === undefined || sought === undefined
        ? `found as materialized (${found("pi_fleet.said")})`
        : `near as materialized (${found(`(select * from pi_fleet.said t where t.tenant = ${tenant}
            ${places.map((one) => `and ${one}`).join(" ")} ${LATEST_FIRST("t")} limit ${LOOKED_AT})`)}),
          often as materialized (${found("pi_fleet.said", `and ${near} >= ${FREQUENT} and ${near} < ${most}`)}),
          seldom as materialized (${found(
            `(select * from pi_fleet.said t where t.tenant = ${tenant} and t.words @@ ${indexed()} offset 0)`,
            `and ${near} < least(${FREQUENT}, ${most})`,
          )}),
          found as (select * from near where ${near} >= ${most} union all select * from often union all select * from seldom)`;
    const text = `with ${candidates}
      select f.seq as position, f.kind, f.nth, f.role, ${makeDoubleColumn("f.at")} as at, ${COLUMNS}, above.parent,
        above.parent_facts, ${makeNeighbourColumns(tenant)},
        f.generation, e.pack, e.head, case when pg_catalog.octet_length(e.line) <= ${LONGEST_LINE} then e.line end as line
      from found f ${LOOKED_UP(tenant, "f.session_id")}
      cross join lateral (${ENTRY(tenant, "f")}) e ${PARENT(tenant)}
      ${LATEST_FIRST("f")}`;
    const rows = await this.connections.read({ text, values: values.all });
    const inPacks = new PackedEntries(this.connections, this.tenant);
    return Promise.all(
      rows.map(async (row) => {
        const line = row.pack === null ? ((row.line as Uint8Array | null) ?? NO_LINE) : await inPacks.lineOf(row);
        return {
          ...{
            sessionId: String(row.id),
            position: Number(row.position),
            nth: Number(row.nth),
            role: String(row.role),
          },
          kind: row.kind as FoundCandidate["kind"],
          // If its head was tampered with, its line has the id.
          entryId:
            parseStoredHead(String(row.head))?.id ?? String((tryParse(line) as { id?: unknown } | undefined)?.id ?? ""),
          time: timeIn(row.at),
          line,
          session: listedOf(row),
        };
      }),
    );
  }

  async behind(): Promise<number> {
    const [row] = await this.connections.read({
      text: `select count(*) as behind from pi_fleet.behind b
        join pi_fleet.session s on s.tenant = b.tenant and s.id = b.session_id and s.state = 1 and s.indexed < s.entries
        where b.tenant = $1`,
      values: [this.tenant],
    });
    return Number(row.behind);
  }

  async isMissingWords(except: readonly string[]): Promise<boolean> {
    // Such a row has no time, and is looked up by that.
    const [row] = await this.connections.read({
      text: `select exists (select from pi_fleet.said t join pi_fleet.session s
          on s.tenant = t.tenant and s.id = t.session_id and s.generation = t.generation and s.state = 1
        where t.tenant = $1 and t.at = '-infinity' and t.seq = -1 and t.session_id <> all($2::text[])) as lacks`,
      values: [this.tenant, except.map(toStorableText)],
    });
    return row.lacks === true;
  }

  async wordsWith(parts: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>> {
    const most = (MOST_WORDS + 1) * parts.length;
    const patterns = parts.map((part) => `%${part.replaceAll("_", "\\_")}%`);
    // One pass over all words, if that does not end early.
    const rows = await this.connections.read({
      text: `select word from pi_fleet.word where tenant = $1 and word like any($2::text[]) limit ${most}`,
      values: [this.tenant, patterns],
    });
    if (rows.length === most && parts.length > 1) {
      const each = await Promise.all(parts.map((part) => this.wordsWith([part])));
      return new Map(each.flatMap((found) => [...found]));
    }
    const words = rows.map(({ word }) => String(word));
    const found = parts.map((part) => [part, words.filter((word) => word.includes(part))] as const);
    return new Map(found.filter(([, holding]) => holding.length <= MOST_WORDS));
  }

  async heads(sessionId: string): Promise<(readonly [string, string | null])[]> {
    const rows = await this.connections.read({
      text: ROWS_AND_PACKS,
      values: [this.tenant, toStorableText(sessionId), 0, Number.MAX_SAFE_INTEGER],
    });
    return rows.flatMap((row) =>
      parsePackHeads({ heads: String(row.heads) }).map((text): [string, string | null] => {
        const head = parseStoredHead(text);
        return head ? [head.id, head.parentId] : ["", null];
      }),
    );
  }

  async origins(entries: readonly TakenOver[]): Promise<(FleetListed | null)[]> {
    const origins: (FleetListed | null)[] = entries.map(() => null);
    let asked = entries.map((entry, n) => ({ ...entry, n }));
    for (let fork = 0; fork < MOST_FORKS && asked.length > 0; fork++) {
      const above = await this.parentsWith(asked);
      for (const { n, parent } of above) origins[n] = parent;
      asked = above.map(({ n, parent }) => ({ ...entries[n], sessionId: parent.id, n }));
    }
    return origins;
  }

  /** Returns for those entries that the session above has, too, that session. */
  private async parentsWith(
    asked: readonly (TakenOver & { readonly n: number })[],
  ): Promise<{ n: number; parent: FleetListed }[]> {
    const sent = asked.map(({ n, sessionId, entryId, kind, nth, time }) => {
      // The head as it was sent, up to the end of the id.
      return { n, id: toStorableText(sessionId), head: `[${JSON.stringify(entryId)},`, kind, nth, at: time };
    });
    const rows = await this.connections.read({
      text: `select a.n, ${COLUMNS}, null as parent, null as parent_facts, null as id_before, null as id_after
        from pg_catalog.json_to_recordset($2::json) as a (n int, id text, head text, kind text, nth int, at float8)
        join pi_fleet.described c on c.tenant = $1 and c.session_id = a.id and c.created >= a.at
        join pi_fleet.session s on s.tenant = $1 and s.id = c.parent_id and s.id <> a.id and s.state = 1
        join pi_fleet.described d on d.tenant = s.tenant and d.session_id = s.id
        where exists (select from pi_fleet.said t cross join lateral (${ENTRY("$1", "t")}) e
          where t.tenant = $1 and t.session_id = s.id and t.generation = s.generation and t.at = a.at
            and t.kind = a.kind and t.nth = a.nth and pg_catalog.starts_with(e.head, a.head))`,
      values: [this.tenant, JSON.stringify(sent)],
    });
    return rows.map((row) => ({ n: Number(row.n), parent: listedOf(row) }));
  }

  async spent({ cwd, archived }: { cwd?: string; archived?: boolean }): Promise<FleetSpent[]> {
    const values = new SqlValues();
    const tenant = values.add(this.tenant);
    const filters = [
      ...(cwd === undefined ? [] : [`d.cwd = ${values.add(toStorableText(cwd))}`]),
      ...(archived ? [] : ["not s.archived"]),
    ];
    const rows = await this.connections.read({
      text: `select ${COLUMNS}, null as parent, null as parent_facts, s.id_before, s.id_after, p.spendings
        from (select x.*, pg_catalog.lag(x.id) over beside as id_before, pg_catalog.lead(x.id) over beside as id_after
          from pi_fleet.session x where x.tenant = ${tenant} and x.state = 1
          window beside as (order by x.id collate "C")) s
        cross join lateral (select * from pi_fleet.described x where x.tenant = ${tenant} and x.session_id = s.id limit 1) d
        cross join lateral (select pg_catalog.json_agg(pg_catalog.json_build_array(quarter, provider, model, inherited,
              pg_catalog.encode(${SUMS.map((name) => makeDoubleColumn(name)).join(" || ")}, 'base64'))) as spendings
          from pi_fleet.spent p where p.tenant = ${tenant} and p.session_id = s.id and p.generation = s.generation) p
        where ${["true", ...filters].join(" and ")}`,
      values: values.all,
    });
    return rows.map((row) => ({
      session: listedOf(row),
      spendings: ((row.spendings as [number, string, string, boolean, string][] | null) ?? []).map(
        ([quarter, provider, model, isInherited, sums]) => ({
          ...{ quarter, provider: provider || null, model: model || null, isInherited },
          numbers: parseDoubles(Buffer.from(sums, "base64")),
        }),
      ),
    }));
  }

  async relatives(): Promise<FleetListed[]> {
    const rows = await this.connections.read({
      text: `select ${COLUMNS}, null as parent, null as parent_facts, null as id_before, null as id_after
        from pi_fleet.session s join pi_fleet.described d on d.tenant = s.tenant and d.session_id = s.id
        where s.tenant = $1 and s.state = 1 and (d.parent_id is not null
          or s.id in (select parent_id from pi_fleet.described where tenant = $1 and parent_id is not null)
          or pg_catalog.left(s.id, 8) in (select parent_id from pi_fleet.described where tenant = $1 and pg_catalog.length(parent_id) = 8))`,
      values: [this.tenant],
    });
    return rows.map(listedOf);
  }
}

/** Returns the conditions of a list. */
function filtersOf(request: Omit<ListRequest, "cursor" | "agents">, values: SqlValues): string[] {
  const { cwd, query, name, named, unnamed, top, parent, since, until, archived, headerOnly } = request;
  const filters = [`s.archived = ${values.add(archived ?? false)}`];
  if (headerOnly !== true) filters.push("s.entries > 0");
  if (cwd !== undefined) filters.push(`d.cwd = ${values.add(toStorableText(cwd))}`);
  if (since !== undefined) filters.push(`s.modified >= ${values.add(since)}`);
  // A session without a time is not known to be old.
  if (until !== undefined) filters.push(`(s.modified is null or s.modified < ${values.add(until)})`);
  if (named) filters.push("d.name_sought is not null");
  if (unnamed) filters.push("d.name_sought is null");
  if (top) filters.push("d.parent_path is null");
  if (name !== undefined) filters.push(`position(${values.add(toStorableText(fold(name)))} in d.name_sought) > 0`);
  if (parent !== undefined) {
    const [path, id] = [parent, getIdInPath(parent)].map((text) => values.add(toStorableText(text)));
    filters.push(`(d.parent_path = ${path} or d.parent_id = ${id})`);
  }
  for (const word of fold(query ?? "").match(/\S+/g) ?? []) {
    const isSaid = `position(${values.add(toStorableText(word))} in d.sought) > 0`;
    filters.push(NOTHING_SAID_WORDS.has(word) ? `(${isSaid} or (s.messages = 0 and d.name_sought is null))` : isSaid);
  }
  return filters;
}

/**
 * Returns words as a query of the server. None has a quotation mark or a backslash. The server looks for them in this order
 * until it knows that a text does not fit: so the shortest list comes first.
 */
function tsqueryOf(sought: Sought): string {
  const lists = [...sought].sort((a, b) => a.length - b.length);
  return lists.map((any) => `(${any.map((word) => `'${toStorableText(word)}'`).join(" | ")})`).join(" & ");
}

/** Returns the time of a text; null if unknown. */
function timeIn(sent: unknown): number | null {
  const [time] = parseDoubles(sent as Uint8Array);
  return Number.isFinite(time) ? time : null;
}

function listedOf(row: SqlRow): FleetListed {
  const id = String(row.id);
  const neighbours = [row.id_before, row.id_after].filter((one) => typeof one === "string");
  const parent = row.parent_facts === null ? null : (parseDescription(row.parent_facts) ?? UNKNOWN);
  return {
    ...(parseDescription(row.facts) ?? UNKNOWN),
    id,
    messages: Number(row.messages),
    modified: row.modified === null ? null : parseDoubles(row.modified as Uint8Array)[0],
    isPlain: row.is_plain === true,
    entries: Number(row.entries),
    sizeBytes: Number(row.size),
    archived: row.archived === true,
    shortId: findUniqueBeginning(id, neighbours),
    parent: parent && { id: String(row.parent), name: parent.name },
    key: row.key instanceof Uint8Array ? parseDoubles(row.key)[0] : typeof row.key === "string" ? row.key : 0,
  };
}

/** Maximum stored bytes of a pack that is fetched for one entry. */
const LARGEST_PACK = 8 << 20;

/** Single entries of packs: each pack is fetched once, whatever number of its entries is asked for. */
class PackedEntries {
  private readonly connections: Connections;
  private readonly tenant: string;
  private readonly opened = new Map<string, Promise<readonly Uint8Array[]>>();

  constructor(connections: Connections, tenant: string) {
    this.connections = connections;
    this.tenant = tenant;
  }

  /** Returns the line at a `position` in a `pack` of session `id`; empty if it is too long, or gone. */
  async lineOf({ id, generation, pack, position }: SqlRow): Promise<Uint8Array> {
    const key = JSON.stringify([id, generation, pack]);
    let lines = this.opened.get(key);
    if (!lines) {
      lines = this.open([this.tenant, id, generation, pack, LARGEST_PACK]);
      this.opened.set(key, lines);
    }
    return (await lines)[Number(position) - Number(pack)] ?? NO_LINE;
  }

  private async open(values: readonly unknown[]): Promise<readonly Uint8Array[]> {
    const [row] = await this.connections.read({
      text: `select ends, codec, lines from pi_fleet.pack where tenant = $1 and session_id = $2 and generation = $3
        and seq = $4 and pg_catalog.octet_length(lines) <= $5`,
      values,
    });
    if (!row) return [];
    return unpackLines({ ends: row.ends as number[], codec: Number(row.codec), lines: row.lines as Uint8Array });
  }
}
