/** The port for migrations: takes paths as hosts give them, and confines them. */

import { Failure } from "../../core/failure.ts";
import type { Migrations } from "../../core/ports/migrations.ts";
import { guarded } from "../fs/files.ts";
import { audit } from "./audit.ts";
import { migrate } from "./migration.ts";
import { type MigrationOptions, plan } from "./migration-plan.ts";
import { rollBack } from "./rollback.ts";
import { currentPathOf, status } from "./session-location.ts";

/** Makes the port. `allowed` returns the absolute path, or throws path_outside_root. */
export function makeMigrations(
  options: MigrationOptions,
  allowed: (path: string) => string,
  readOnly: boolean,
): Migrations {
  const writable = (path: string): string => {
    if (readOnly) throw new Failure("read_only");
    return allowed(path);
  };
  return {
    plan: (path, progress) => plan(options, allowed(path), progress),
    migrate: async (path, wishes) => migrate(options, writable(path), wishes),
    rollBack: async (path, wishes) => rollBack(options, writable(path), wishes),
    status: (path) => status(options.disk, allowed(path)),
    currentPathOf: (path) => guarded("looking for the session", () => currentPathOf(options.disk, allowed(path))),
    audit: (container, progress) =>
      guarded("reading the session", async () => audit(options.disk, allowed(container), { progress })),
  };
}
