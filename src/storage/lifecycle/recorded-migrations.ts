/** Migrations and rollbacks as operations. */

import type { Migrated, Migrations, TransitionOptions } from "../../core/ports/migrations.ts";
import type { NewOperation } from "../../core/ports/operations.ts";
import { guardErrno, useAndClose } from "../fs/files.ts";
import { findCurrentPath, locateSessionFiles, readMigrationStatus } from "../v2/pointer.ts";
import { type LifecycleDeps, resolveLink } from "./exclusive.ts";
import { getTitleFacts, makeTitle, runRecorded } from "./recorded.ts";

const WORDS = { migrate: "Migrated", rollback: "Rolled back the migration of" } as const;

/** Returns migrations that are recorded. A migration without work is no operation. */
export function recordMigrations(deps: LifecycleDeps, migrations: Migrations): Migrations {
  const run = (
    kind: "migrate" | "rollback",
    path: string,
    options: TransitionOptions,
    go: (path: string, options: TransitionOptions) => Promise<Migrated>,
  ): Promise<Migrated> => {
    const operation = deps.readOnly ? undefined : operationOf(deps, kind, path, options);
    if (!operation) return go(path, options);
    return runRecorded(
      deps,
      operation,
      () => go(path, options),
      ({ migrationId, sessionPath }) =>
        migrationId === null
          ? null
          : { step: { ...operation.step, to: sessionPath }, sessionPath: operation.sessionPath },
    );
  };
  return {
    ...migrations,
    migrate: (path, options) => run("migrate", path, options, migrations.migrate),
    rollBack: (path, options) => run("rollback", path, options, migrations.rollBack),
  };
}

/**
 * Returns the operation that begins; undefined if the session cannot be found, which the migration reports itself, or
 * if it is in the wanted store: a refusal would then look like success, and undo would do the opposite.
 */
function operationOf(deps: LifecycleDeps, kind: "migrate" | "rollback", path: string, { as }: TransitionOptions) {
  const { disk } = deps;
  try {
    return guardErrno("looking for the session", () => {
      const file = resolveLink(disk, deps.allowed(path));
      const location = locateSessionFiles(disk, file);
      if ((readMigrationStatus(disk, file).active === "native_v2") === (kind === "migrate")) return undefined;
      const { sessionId } = location;
      const from = findCurrentPath(disk, file);
      const { name, title } = factsAt(deps, from, sessionId);
      const into = kind === "migrate" ? ("v2" as const) : ("jsonl" as const);
      const to = kind === "migrate" ? location.container : (location.source ?? from);
      const step = { do: "convert" as const, from, to, into };
      const text = `${WORDS[kind]} ${title}.`;
      return { kind, text, ...as, sessionId, sessionPath: from, name, step } satisfies NewOperation;
    });
  } catch {
    return undefined;
  }
}

function factsAt(deps: LifecycleDeps, path: string, sessionId: string): { name: string | null; title: string } {
  try {
    return useAndClose(deps.open(path), getTitleFacts);
  } catch {
    // Databases are no sessions that can be opened.
    return { name: null, title: makeTitle(null, sessionId) };
  }
}
