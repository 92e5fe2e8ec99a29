/** The port for migrations: takes paths as hosts give them, and confines them. */

import { storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Migrations } from "../../core/ports/migrations.ts";
import { audit } from "./audit.ts";
import { migrate, rollBack } from "./migration.ts";
import { type MigrationOptions, plan } from "./migration-plan.ts";
import { standsAt, status } from "./migration-site.ts";

/** Makes the port. `allowed` returns the absolute path, or throws path_outside_root. */
export function makeMigrations(
  options: MigrationOptions,
  allowed: (path: string) => string,
  readOnly: boolean,
): Migrations {
  const demandWriting = (): void => {
    if (readOnly) throw new Failure("read_only");
  };
  return {
    plan: (path, progress) => plan(options, allowed(path), progress),
    async migrate(path, wishes) {
      demandWriting();
      return migrate(options, allowed(path), wishes);
    },
    async rollBack(path, wishes) {
      demandWriting();
      return rollBack(options, allowed(path), wishes);
    },
    status: (path) => status(options.disk, allowed(path)),
    standsAt(path) {
      try {
        return standsAt(options.disk, allowed(path));
      } catch (error) {
        throw storageFailure(error, "looking for the session");
      }
    },
    async audit(container, progress) {
      try {
        return await audit(options.disk, allowed(container), { progress });
      } catch (error) {
        throw storageFailure(error, "reading the session");
      }
    },
  };
}
