/** The tables of a fleet. */

/** The version of the tables that this program reads and writes. */
export const SCHEMA_VERSION = 5;

/**
 * The tables. No index has a column that each commit changes, and facts that seldom change are in tables of their own, so that
 * a commit updates the row of its session in place.
 */
const TABLES = `create table pi_fleet.session (
    tenant text not null,
    id text not null,
    generation int not null default 0,
    header bytea not null,
    entries bigint not null default 0,
    bytes bigint not null default 0,
    chain bytea not null,
    epoch bigint not null default 0,
    holder text,
    holder_name text,
    holder_host text,
    holder_since text,
    lease_until timestamptz,
    state smallint not null default 0,
    made_at timestamptz not null default clock_timestamp(),
    changed_at timestamptz not null default clock_timestamp(),
    indexed bigint not null default 0,
    messages bigint not null default 0,
    modified double precision,
    is_plain boolean not null default false,
    archived boolean not null default false,
    deleted_at timestamptz,
    removed_at timestamptz,
    emptied int not null default 0,
    primary key (tenant, id)
  ) with (fillfactor = 70);
  comment on column pi_fleet.session.state is '0 being filled, 1 there, 2 deleted';
  comment on column pi_fleet.session.chain is 'hash chain over the lines, as in Session Store V2';
  comment on column pi_fleet.session.indexed is 'number of entries whose facts are in described, said and spent';
  comment on column pi_fleet.session.is_plain is 'whether all entries are on one path';
  comment on column pi_fleet.session.removed_at is 'since when its rows are removed for good; this one stays, so that the id is taken';
  comment on column pi_fleet.session.emptied is 'generations before this one have no rows any more';
  create index session_id_order on pi_fleet.session (tenant, (id collate "C"));
  create index session_aside on pi_fleet.session (tenant, state, deleted_at) where state <> 1;
  create index session_halfway on pi_fleet.session (tenant, id) where generation > emptied;
  create table pi_fleet.entry (
    tenant text not null,
    session_id text not null,
    generation int not null,
    seq bigint not null,
    epoch bigint not null,
    head text not null,
    line bytea not null,
    primary key (tenant, session_id, generation, seq)
  );
  comment on column pi_fleet.entry.head is 'id, parent, type and role as JSON, whose escapes stand for what text cannot hold';
  create table pi_fleet.described (
    tenant text not null,
    session_id text not null,
    facts text not null,
    cwd text,
    parent_path text,
    parent_id text,
    created double precision,
    name_sought text,
    sought text not null,
    primary key (tenant, session_id)
  );
  comment on column pi_fleet.described.facts is 'as JSON, whose escapes stand for what text cannot hold';
  comment on column pi_fleet.described.sought is 'name, first message, directory and id, folded';
  create index described_parent on pi_fleet.described (tenant, parent_id) where parent_id is not null;
  create table pi_fleet.said (
    tenant text not null,
    session_id text not null,
    generation int not null,
    seq bigint not null,
    kind text not null,
    nth int not null,
    role text not null,
    at double precision not null,
    words tsvector not null,
    primary key (tenant, session_id, generation, seq, kind, nth)
  );
  comment on table pi_fleet.said is 'the words of what is said and of what tools are given; outputs of tools are left out';
  comment on column pi_fleet.said.at is 'milliseconds; -infinity where no time is known';
  create index said_time on pi_fleet.said (tenant, at);
  create index said_words on pi_fleet.said using gin (words) with (gin_pending_list_limit = 512);
  create table pi_fleet.word (
    tenant text not null,
    word text not null,
    unused_since timestamptz,
    primary key (tenant, word)
  );
  create index word_unused on pi_fleet.word (tenant, word) where unused_since is not null;
  comment on table pi_fleet.word is 'every word of said, by which parts of words are found';
  comment on column pi_fleet.word.unused_since is 'when a text with it was removed, unless a later one was written since';
  create table pi_fleet.spent (
    tenant text not null,
    session_id text not null,
    generation int not null,
    quarter bigint not null,
    provider text not null,
    model text not null,
    inherited boolean not null,
    messages double precision not null,
    unpriced double precision not null,
    input double precision not null,
    output double precision not null,
    cache_read double precision not null,
    cache_write double precision not null,
    total double precision not null,
    cost double precision not null,
    primary key (tenant, session_id, generation, quarter, provider, model, inherited)
  );
  comment on column pi_fleet.spent.quarter is 'quarter of an hour since 1970, or -1';
  create table pi_fleet.pack (
    tenant text not null,
    session_id text not null,
    generation int not null,
    seq bigint not null,
    count int not null,
    epoch bigint not null,
    chain bytea not null,
    ends int[] not null,
    heads text not null,
    codec smallint not null,
    lines bytea not null,
    primary key (tenant, session_id, generation, seq)
  );
  comment on table pi_fleet.pack is 'consecutive lines of a session; what is here is not in entry';
  comment on column pi_fleet.pack.seq is 'position of the first line';
  comment on column pi_fleet.pack.chain is 'of the session up to the last line, checked when the lines become visible';
  comment on column pi_fleet.pack.ends is 'where each line ends in the lines joined by line feeds';
  comment on column pi_fleet.pack.heads is 'as in entry, joined by line feeds';
  comment on column pi_fleet.pack.codec is 'of the lines: 0 as they are, 1 brotli';
  create table pi_fleet.behind (
    tenant text not null,
    session_id text not null,
    worker text,
    until timestamptz not null,
    primary key (tenant, session_id)
  );
  comment on table pi_fleet.behind is 'sessions that have entries whose facts are not in said, word and spent yet';
  comment on column pi_fleet.behind.until is 'when others than the worker may add them';
  create table pi_fleet.blob (
    tenant text not null,
    sha256 text not null,
    size bigint not null,
    is_whole boolean not null default false,
    touched_at timestamptz not null default clock_timestamp(),
    primary key (tenant, sha256)
  );
  comment on table pi_fleet.blob is 'attachments by their content';
  create table pi_fleet.blob_part (
    tenant text not null,
    sha256 text not null,
    part int not null,
    bytes bytea not null,
    primary key (tenant, sha256, part),
    foreign key (tenant, sha256) references pi_fleet.blob on delete cascade
  );
  alter table pi_fleet.blob_part alter column bytes set storage external;
  create table pi_fleet.attached (
    tenant text not null,
    session_id text not null,
    generation int not null,
    sha256 text not null,
    primary key (tenant, session_id, generation, sha256),
    foreign key (tenant, sha256) references pi_fleet.blob
  );
  create index attached_blob on pi_fleet.attached (tenant, sha256);
  comment on table pi_fleet.attached is 'the attachments that lines of a session name';`;

/** LZ4 takes less than half of the time of the server's own compression, and the lines of packs are compressed already. */
const STORAGE = `alter table pi_fleet.pack alter lines set storage external;
  do $$ begin
    if exists (select from pg_settings where name = 'default_toast_compression' and 'lz4' = any(enumvals)) then
      alter table pi_fleet.entry alter line set compression lz4;
      alter table pi_fleet.pack alter heads set compression lz4, alter ends set compression lz4;
    end if;
  end $$;`;

/**
 * The condition of a session that begins again: its lines were removed, and a machine is about to send them again. Until
 * they are there, its row keeps the previous end, so that a copy with fewer lines cannot begin it.
 */
export const makeBeginsAgainCondition = (of = ""): string => `(${of}state = 0 and ${of}deleted_at is not null)`;

/** Tables with rows of a session that have its generation. */
export const SESSION_ROWS = ["entry", "pack", "said", "spent", "attached"] as const;

/** Returns the statement that marks the words of removed texts as possibly unused. */
export const makeNotedWordsStatement = (tenant: string, removed: string): string => `update pi_fleet.word w
  set unused_since = clock_timestamp()
  where w.tenant = ${tenant} and w.unused_since is null
    and w.word in (select distinct pg_catalog.unnest(pg_catalog.tsvector_to_array(words)) from ${removed})`;

/** Returns the version of the tables; fails if they are missing. */
export const VERSION_QUERY = "select value from pi_fleet.meta where key = 'version'";

/** The statements that bring tables of an earlier version to the present one; sent together, they are one transaction. */
export const UPGRADES: Readonly<Record<number, string>> = {
  4: `alter table pi_fleet.pack drop column first_epoch, drop column bytes;
    update pi_fleet.meta set value = '${SCHEMA_VERSION}' where key = 'version'`,
};

/** The statements that create the tables. Sent together, they are one transaction, which fails if tables exist. */
export const MAKE_TABLES = `create schema if not exists pi_fleet;
  create table pi_fleet.meta (key text primary key, value text not null);
  insert into pi_fleet.meta (key, value)
    values ('version', '${SCHEMA_VERSION}'), ('store', gen_random_uuid()::text);
  ${TABLES}
  ${STORAGE}`;
