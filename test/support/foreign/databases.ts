/** Databases as opencode 1.18, Goose and pi_agent_rust have them, made up by a real SQLite from the exports of the same. */

import { type Database, findSqlite, type OpenDatabase } from "../../../src/storage/fs/sqlite.ts";
import type { Random } from "../random.ts";
import type { GooseWriter } from "./goose.ts";
import type { OpencodeWriter } from "./opencode.ts";
import type { Fields } from "./writing.ts";

export const SQLITE = findSqlite() as OpenDatabase;

const OPENCODE = `
  CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, time_created integer NOT NULL);
  CREATE TABLE \`message\` (
    \`id\` text PRIMARY KEY, \`session_id\` text NOT NULL, \`time_created\` integer NOT NULL,
    \`time_updated\` integer NOT NULL, \`data\` text NOT NULL,
    CONSTRAINT \`fk_message\` FOREIGN KEY (\`session_id\`) REFERENCES \`session\`(\`id\`) ON DELETE CASCADE
  );
  CREATE TABLE \`part\` (
    \`id\` text PRIMARY KEY, \`message_id\` text NOT NULL, \`session_id\` text NOT NULL,
    \`time_created\` integer NOT NULL, \`time_updated\` integer NOT NULL, \`data\` text NOT NULL,
    CONSTRAINT \`fk_part\` FOREIGN KEY (\`message_id\`) REFERENCES \`message\`(\`id\`) ON DELETE CASCADE
  );
  CREATE TABLE \`session_message\` (\`id\` text PRIMARY KEY, \`session_id\` text NOT NULL, \`type\` text NOT NULL,
    \`seq\` integer NOT NULL, \`data\` text NOT NULL);
  CREATE TABLE \`todo\` (
    \`session_id\` text NOT NULL, \`content\` text NOT NULL, \`status\` text NOT NULL, \`priority\` text NOT NULL,
    \`position\` integer NOT NULL, CONSTRAINT \`todo_pk\` PRIMARY KEY(\`session_id\`, \`position\`)
  );
  CREATE TABLE \`session\` (
    \`id\` text PRIMARY KEY, \`project_id\` text NOT NULL, \`workspace_id\` text, \`parent_id\` text,
    \`slug\` text NOT NULL, \`directory\` text NOT NULL, \`path\` text, \`title\` text NOT NULL, \`version\` text NOT NULL,
    \`share_url\` text, \`summary_additions\` integer, \`summary_deletions\` integer, \`summary_files\` integer,
    \`summary_diffs\` text, \`metadata\` text, \`cost\` real DEFAULT 0 NOT NULL, \`tokens_input\` integer DEFAULT 0 NOT NULL,
    \`tokens_output\` integer DEFAULT 0 NOT NULL, \`revert\` text, \`permission\` text, \`agent\` text, \`model\` text,
    \`time_created\` integer NOT NULL, \`time_updated\` integer NOT NULL, \`time_compacting\` integer, \`time_archived\` integer
  )`;

const OPENCODE_INDEXES = `
  CREATE INDEX \`message_session_time_created_id_idx\` ON \`message\` (\`session_id\`,\`time_created\`,\`id\`);
  CREATE INDEX \`part_message_id_id_idx\` ON \`part\` (\`message_id\`,\`id\`);
  CREATE INDEX \`part_session_idx\` ON \`part\` (\`session_id\`);
  CREATE INDEX \`session_project_idx\` ON \`session\` (\`project_id\`)`;

interface Making {
  /** By default as opencode and Goose have it, with a log. */
  readonly journal?: "WAL" | "DELETE";
  readonly pageSize?: number;
  readonly encoding?: "UTF-8" | "UTF-16le" | "UTF-16be";
  readonly withoutIndexes?: boolean;
}

function begin(file: string, { journal = "WAL", pageSize = 4096, encoding = "UTF-8" }: Making): Database {
  const database = SQLITE(file);
  database.exec(`PRAGMA page_size = ${pageSize}; PRAGMA encoding = '${encoding}'; PRAGMA journal_mode = ${journal}`);
  return database;
}

/** Makes a database of opencode's, and leaves it open: in WAL mode, the last rows are only in the log until it is closed. */
export function opencodeDatabase(file: string, sessions: readonly OpencodeWriter[], making: Making = {}): Database {
  const database = begin(file, making);
  database.exec(OPENCODE);
  if (!making.withoutIndexes) database.exec(OPENCODE_INDEXES);
  for (const session of sessions) addOpencode(database, session);
  return database;
}

/** Adds a session, or the rest of one. */
export function addOpencode(database: Database, { info, messages }: OpencodeWriter, from = 0): void {
  const { id, slug = "", projectID = "global", directory, parentID, title, version = "", revert, time } = info;
  const { created, updated } = time as { created: number; updated: number };
  const given = revert === undefined ? null : JSON.stringify(revert);
  const facts = [id, projectID, parentID ?? null, slug, directory, title, version, given, created, updated + from];
  database
    .prepare(
      `INSERT INTO session (id, project_id, parent_id, slug, directory, title, version, revert, time_created,
       time_updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT(id) DO UPDATE SET title = excluded.title, time_updated = excluded.time_updated`,
    )
    .run(...facts);
  for (const { info: message, parts } of messages.slice(from)) addMessage(database, message, parts);
}

function addMessage(database: Database, message: Fields, parts: readonly Fields[]): void {
  const { id, sessionID, ...data } = message;
  const at = (data.time as { created: number }).created;
  database
    .prepare("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)")
    .run(id, sessionID, at, at, JSON.stringify(data));
  const insert = database.prepare("INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?, ?)");
  for (const { id: part, sessionID: _, messageID, ...rest } of parts)
    insert.run(part, messageID ?? id, sessionID, at, at, JSON.stringify(rest));
}

const GOOSE = `
  CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
  CREATE TABLE sessions (
    id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', description TEXT NOT NULL DEFAULT '',
    user_set_name BOOLEAN DEFAULT FALSE, session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    extension_data TEXT DEFAULT '{}', total_tokens INTEGER, accumulated_input_tokens INTEGER, recipe_json TEXT,
    provider_name TEXT, model_config_json TEXT
  );
  CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL,
    timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP, tokens INTEGER, metadata_json TEXT
  )`;

const GOOSE_INDEXES = `
  CREATE INDEX idx_messages_session ON messages(session_id);
  CREATE INDEX idx_sessions_updated ON sessions(updated_at DESC)`;

/** Makes a database of Goose's, and leaves it open. */
export function gooseDatabase(file: string, sessions: readonly GooseWriter[], making: Making = {}): Database {
  const database = begin(file, making);
  database.exec(GOOSE);
  if (!making.withoutIndexes) database.exec(GOOSE_INDEXES);
  for (const session of sessions) addGoose(database, session);
  return database;
}

export function addGoose(database: Database, { session, after, conversation }: GooseWriter, from = 0): void {
  const { id, working_dir, name, user_set_name, created_at, updated_at, total_tokens = null } = session;
  const { provider_name = null, model_config = null } = after;
  const model = model_config === null ? null : JSON.stringify(model_config);
  const isNamed = user_set_name ? 1 : 0;
  const time = (value: unknown): string => String(value).replace("T", " ").replace("Z", "");
  database
    .prepare(
      `INSERT INTO sessions (id, name, user_set_name, working_dir, created_at, updated_at, total_tokens, provider_name,
       model_config_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT(id) DO UPDATE SET updated_at = excluded.updated_at`,
    )
    .run(id, name, isNamed, working_dir, time(created_at), time(updated_at), total_tokens, provider_name, model);
  const insert = database.prepare(
    `INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json)
     VALUES (?, ?, ?, ?, ?, ?)`,
  );
  for (const { id: own, role, content, created, metadata } of conversation.slice(from))
    insert.run(own ?? null, id, role, JSON.stringify(content), created, JSON.stringify(metadata ?? {}));
}

const PAGE = 4096;

/** Returns a database that was damaged in one of many ways; its first page only seldom. */
export function damagedDatabase(random: Random, whole: Uint8Array): Buffer {
  const bytes = Buffer.from(whole);
  const pages = bytes.length / PAGE;
  for (let times = 1 + random.int(3); times > 0; times--) {
    const page = PAGE * (random.chance(0.9) ? 1 + random.int(pages - 1) : 0);
    const at = page + random.int(PAGE);
    const ways: (() => unknown)[] = [
      () => bytes.fill(random.int(256), page, page + PAGE),
      () => bytes.writeUInt8(random.int(256), at),
      () => bytes.writeUInt16BE(random.int(1 << 16), Math.min(at, bytes.length - 2)),
      () => bytes.copy(bytes, page, PAGE * random.int(pages), PAGE * (1 + random.int(pages))),
    ];
    random.pick(ways)();
  }
  return random.chance(0.1) ? bytes.subarray(0, random.int(bytes.length)) : bytes;
}

/** Makes a database of pi_agent_rust's, and leaves it open. */
export function rustDatabase(file: string, header: string, entries: readonly string[], making: Making = {}): Database {
  const database = begin(file, making);
  database.exec(`CREATE TABLE pi_session_header(id TEXT PRIMARY KEY, json TEXT NOT NULL);
    CREATE TABLE pi_session_entries(seq INTEGER PRIMARY KEY, json TEXT NOT NULL);
    CREATE TABLE pi_session_meta(key TEXT PRIMARY KEY, value TEXT NOT NULL)`);
  database.prepare("INSERT INTO pi_session_header VALUES (?, ?)").run(JSON.parse(header).id, header);
  for (const [n, entry] of entries.entries())
    database.prepare("INSERT INTO pi_session_entries VALUES (?, ?)").run(n + 1, entry);
  return database;
}
