/** The part of Pi's settings that a server without a model uses. */

export interface CompactionSettings {
  /** True if the user wants automatic compaction. */
  readonly enabled: boolean;
  /** Tokens of the window that are reserved for the answer. */
  readonly reserveTokens: number;
  /** Tokens of the newest messages that a compaction keeps. */
  readonly keepRecentTokens: number;
}

const DEFAULTS: CompactionSettings = { enabled: true, reserveTokens: 16_384, keepRecentTokens: 20_000 };

/** Merges the `compaction` blocks of settings files, the last counts; ignores values of the wrong type. */
export function mergeCompactionSettings(files: readonly unknown[]): CompactionSettings {
  let settings = DEFAULTS;
  for (const file of files) {
    const { enabled, reserveTokens, keepRecentTokens } = blockOf(file);
    settings = {
      enabled: typeof enabled === "boolean" ? enabled : settings.enabled,
      reserveTokens: isTokens(reserveTokens) ? reserveTokens : settings.reserveTokens,
      keepRecentTokens: isTokens(keepRecentTokens) ? keepRecentTokens : settings.keepRecentTokens,
    };
  }
  return settings;
}

function blockOf(file: unknown): Readonly<Record<string, unknown>> {
  const { compaction } = (typeof file === "object" && file !== null ? file : {}) as { compaction?: unknown };
  return typeof compaction === "object" && compaction !== null ? (compaction as Record<string, unknown>) : {};
}

function isTokens(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}
