/** Every command the host can send, one line each. A new command is a new file and a line here. */

import abort from "../abort.ts";
import abort_bash from "../abort_bash.ts";
import abort_retry from "../abort_retry.ts";
import append from "../append.ts";
import archive_session from "../archive_session.ts";
import bash from "../bash.ts";
import branch from "../branch.ts";
import clear_queue from "../clear_queue.ts";
import clone from "../clone.ts";
import close_session from "../close_session.ts";
import compact from "../compact.ts";
import compact_append from "../compact_append.ts";
import compare_branches from "../compare_branches.ts";
import create_checkpoint from "../create_checkpoint.ts";
import cycle_model from "../cycle_model.ts";
import cycle_thinking_level from "../cycle_thinking_level.ts";
import delete_head from "../delete_head.ts";
import delete_session from "../delete_session.ts";
import edit_context from "../edit_context.ts";
import empty_trash from "../empty_trash.ts";
import exit from "../exit.ts";
import export_html from "../export_html.ts";
import export_session from "../export_session.ts";
import fix_health from "../fix_health.ts";
import follow_up from "../follow_up.ts";
import fork from "../fork.ts";
import get_available_models from "../get_available_models.ts";
import get_available_thinking_levels from "../get_available_thinking_levels.ts";
import get_commands from "../get_commands.ts";
import get_context from "../get_context.ts";
import get_entries from "../get_entries.ts";
import get_entry from "../get_entry.ts";
import get_fork_messages from "../get_fork_messages.ts";
import get_health from "../get_health.ts";
import get_last_assistant_text from "../get_last_assistant_text.ts";
import get_messages from "../get_messages.ts";
import get_path from "../get_path.ts";
import get_session_family from "../get_session_family.ts";
import get_session_stats from "../get_session_stats.ts";
import get_state from "../get_state.ts";
import get_tree from "../get_tree.ts";
import get_usage from "../get_usage.ts";
import import_session from "../import_session.ts";
import initialize from "../initialize.ts";
import list_clients from "../list_clients.ts";
import list_heads from "../list_heads.ts";
import list_kept from "../list_kept.ts";
import list_leftovers from "../list_leftovers.ts";
import list_open_sessions from "../list_open_sessions.ts";
import list_operations from "../list_operations.ts";
import list_sessions from "../list_sessions.ts";
import list_trash from "../list_trash.ts";
import merge_branch from "../merge_branch.ts";
import migrate_session from "../migrate_session.ts";
import migration_status from "../migration_status.ts";
import new_session from "../new_session.ts";
import open_session from "../open_session.ts";
import prepare_branch_summary from "../prepare_branch_summary.ts";
import prepare_compaction from "../prepare_compaction.ts";
import preview_session from "../preview_session.ts";
import prompt from "../prompt.ts";
import prune_leftovers from "../prune_leftovers.ts";
import recover_kept from "../recover_kept.ts";
import redo from "../redo.ts";
import relocate_session from "../relocate_session.ts";
import repair_session from "../repair_session.ts";
import restore_session from "../restore_session.ts";
import rollback_migration from "../rollback_migration.ts";
import rpc_discover from "../rpc.discover.ts";
import search_sessions from "../search_sessions.ts";
import set_auto_compaction from "../set_auto_compaction.ts";
import set_auto_retry from "../set_auto_retry.ts";
import set_follow_up_mode from "../set_follow_up_mode.ts";
import set_label from "../set_label.ts";
import set_model from "../set_model.ts";
import set_session_name from "../set_session_name.ts";
import set_steering_mode from "../set_steering_mode.ts";
import set_thinking_level from "../set_thinking_level.ts";
import shutdown from "../shutdown.ts";
import steer from "../steer.ts";
import switch_session from "../switch_session.ts";
import unarchive_session from "../unarchive_session.ts";
import undo from "../undo.ts";
import verify_session from "../verify_session.ts";
import verify_sessions from "../verify_sessions.ts";
import type { Command } from "./command.ts";

const commands = [
  initialize,
  shutdown,
  exit,
  rpc_discover,
  get_state,
  get_messages,
  get_entries,
  get_entry,
  get_path,
  get_tree,
  get_context,
  get_fork_messages,
  get_last_assistant_text,
  get_session_stats,
  new_session,
  switch_session,
  open_session,
  close_session,
  list_open_sessions,
  list_clients,
  list_sessions,
  preview_session,
  search_sessions,
  get_usage,
  get_session_family,
  fork,
  clone,
  branch,
  append,
  prepare_compaction,
  compact_append,
  prepare_branch_summary,
  compare_branches,
  merge_branch,
  set_session_name,
  set_label,
  set_model,
  set_thinking_level,
  edit_context,
  verify_session,
  verify_sessions,
  repair_session,
  migrate_session,
  rollback_migration,
  migration_status,
  create_checkpoint,
  delete_head,
  delete_session,
  restore_session,
  archive_session,
  unarchive_session,
  relocate_session,
  import_session,
  list_operations,
  undo,
  redo,
  list_trash,
  empty_trash,
  list_heads,
  list_kept,
  list_leftovers,
  prune_leftovers,
  recover_kept,
  get_health,
  fix_health,
  export_session,
  export_html,
  get_commands,
  get_available_models,
  get_available_thinking_levels,
  cycle_model,
  cycle_thinking_level,
  set_steering_mode,
  set_follow_up_mode,
  set_auto_compaction,
  set_auto_retry,
  abort,
  abort_bash,
  abort_retry,
  clear_queue,
  prompt,
  steer,
  follow_up,
  bash,
  compact,
] as const satisfies readonly Command[];

export const commandTable: readonly Command[] = commands;

/** All commands as a type, the source of names, params and results for the typed client. */
export type AnyCommand = (typeof commands)[number];
