/** Params and results of exports that leave secrets out. */

import * as z from "zod";
import { removeSecrets } from "../../core/export/redacted.ts";
import type { Session } from "../../core/session/session.ts";
import type { CommandContext } from "./command.ts";
import type { Unchanged } from "./shapes.ts";

const counts = z.record(z.string(), z.number().int());

export const redactionParams = {
  redact: z
    .boolean()
    .optional()
    .describe(
      "whether secrets (keys, tokens, private keys, cookies, passwords) and the paths of home folders are replaced, " +
        "wherever they are; ids, parents and types stay. What cannot be searched stops the export",
    ),
  redactEmails: z.boolean().optional().describe("whether e-mail addresses are replaced too; it means redact"),
  allowUnjudged: z
    .boolean()
    .optional()
    .describe(
      "redact: export although images, binary data or damage cannot be searched for secrets; damage is left out",
    ),
};

export const redactionResult = {
  redactions: counts.optional().describe("redact: how often each kind was replaced in the entries of the export"),
  review: z.string().optional().describe("redact: what a person has to do before the export is passed on"),
  unjudged: counts.optional().describe("redact: what could not be searched, and was allowed, by kind"),
};

/** No rule knows every secret, so every redacted export asks for this. */
const REVIEW = "A secret that no rule knows stays: look through the export before you share it.";

type RedactionReport = Unchanged<z.input<z.ZodObject<typeof redactionResult>>>;

/** Returns the session as it may be shown, and its report, which is complete once it is exported; undefined if not asked for. */
export async function redactSession(
  { workspace }: CommandContext,
  session: Session,
  { redact, redactEmails = false, allowUnjudged = false }: z.output<z.ZodObject<typeof redactionParams>>,
  all: boolean,
): Promise<{ readonly session: Session; report(): RedactionReport } | undefined> {
  if (!(redact || redactEmails)) return undefined;
  // A file of its own, which nothing else loads.
  const { LineRedactor } = await import("../../core/redact/main.ts");
  const pause = (): Promise<void> => workspace.stores.pause();
  const { home } = workspace.stores;
  const redacted = await removeSecrets(session, new LineRedactor(redactEmails), { all, allowUnjudged, home, pause });
  const { unjudged } = redacted;
  return {
    session: redacted.session,
    report: () => ({
      redactions: redacted.counts(),
      review: REVIEW,
      ...(Object.keys(unjudged).length === 0 ? {} : { unjudged }),
    }),
  };
}

/** Returns a function that removes the secrets of a text, with the path of a home as its own. It is for one result: it keeps texts. */
export async function makeTextRedaction(home: string | undefined): Promise<(text: string) => string> {
  const { LineRedactor } = await import("../../core/redact/main.ts");
  const redactor = new LineRedactor();
  if (home !== undefined) redactor.texts.homes.learnHome(home);
  const known = new Map<string, string>();
  return (text) => {
    let shown = known.get(text);
    if (shown === undefined) {
      shown = redactor.text(text);
      known.set(text, shown);
    }
    return shown;
  };
}
