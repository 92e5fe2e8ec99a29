/** Reads of another agent's file as much as lists show. */

import { SurveyFacts } from "../../core/foreign/survey.ts";
import type { SessionHeader } from "../../core/format/entry.ts";
import { guarded, withFile } from "../fs/files.ts";
import { Derived, type DerivedOptions } from "./derived.ts";

/** A session of another agent as lists show it. */
export interface Surveyed {
  readonly agent: string;
  readonly header: SessionHeader;
  readonly facts: SurveyFacts;
}

/** `parentOf`: see ForeignOptions. Throws storage_failed. */
export function survey(
  options: DerivedOptions,
  parentOf: (file: string, nativeId: string) => string | undefined,
): Surveyed {
  const { disk, file, translator, gathered } = options;
  const facts = new SurveyFacts();
  const derived = new Derived(options, { entry: (entry) => facts.add(entry) });
  guarded("reading the session", () => {
    if (gathered) derived.read(-1);
    else withFile(disk, disk.openRead(file), (fd) => derived.read(fd));
  });
  for (const entry of derived.waitingEntries()) facts.add(entry);
  const parentId = derived.nativeParentId;
  const { header } = derived.header(parentId === undefined ? undefined : parentOf(file, parentId));
  return { agent: translator.agent, header, facts };
}
