/** Reads of another agent's file as much as lists show. */

import type { SessionHeader } from "../../../core/format/entry.ts";
import { guardErrno, useFile } from "../../../storage/fs/files.ts";
import { SurveyFacts } from "../read/survey.ts";
import type { Translator } from "../read/translator.ts";
import { Derived, type DerivedOptions, makeForeignHeader } from "./derived.ts";

/** A session of another agent as lists show it. */
export interface Surveyed {
  readonly agent: string;
  readonly header: SessionHeader;
  readonly facts: SurveyFacts;
  readonly isDamaged: boolean;
  /** The names of the sessions within its file. */
  readonly inner?: readonly string[] | undefined;
}

/** Bytes at the beginning and the end of a file whose lines are all read. */
const READ = 1 << 13;

/** `parentOf`: see ForeignOptions. Throws storage_failed. */
export function surveyFile(
  options: DerivedOptions,
  parentOf: (file: string, nativeId: string) => string | undefined,
): Surveyed {
  const { disk, file, translator, gathered } = options;
  const facts = new SurveyFacts();
  let end = 0;
  const derived = new Derived(
    { ...options, skips: skipping(translator, facts, () => end) },
    { entry: (entry) => facts.add(entry) },
  );
  guardErrno("reading the session", () => {
    if (gathered) derived.read(-1);
    else
      useFile(disk, disk.openRead(file), (fd) => {
        end = disk.infoOf(fd).size - READ;
        derived.read(fd);
      });
  });
  for (const entry of derived.waitingEntries()) facts.add(entry);
  const about = derived.about();
  const { nativeParentId } = about;
  const parent = gathered?.parent ?? (nativeParentId === undefined ? undefined : parentOf(file, nativeParentId));
  const { header } = makeForeignHeader(options, about, parent);
  return { agent: translator.agent, header, facts, isDamaged: derived.damage.length > 0, inner: about.inner };
}

/** Counts the messages of lines in the middle, up to `end`, once a person's first one was read. */
function skipping(translator: Translator, facts: SurveyFacts, end: () => number) {
  const skim = translator.skim?.();
  return (line: Uint8Array, offset: number): boolean => {
    if (!skim || offset < READ || offset > end() || facts.first === null) return false;
    const messages = skim(line);
    if (messages === undefined) return false;
    facts.messages += messages;
    facts.entries++;
    return true;
  };
}
