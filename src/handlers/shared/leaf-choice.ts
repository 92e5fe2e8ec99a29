/** The leaf of a connection in a session: the shared leaf, or a head, which is a leaf of its own. */

import * as z from "zod";
import { BadParams } from "../../core/failure.ts";
import { HEAD_NAME } from "../../core/format/entry.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";

const NAME = "1 to 64 letters, digits, dots, underscores and hyphens, with a letter or digit at both ends";

export const headName = z.string().regex(HEAD_NAME, NAME);

/** Params of commands that may change the leaf of a connection. */
export const leafParams = {
  leaf: z
    .enum(["shared", "own"])
    .optional()
    .describe("`own`: this connection writes on a leaf of its own, its head, and moves no other"),
  head: headName
    .optional()
    .describe(`the name of its head, ${NAME}; who gives it again is there again. By default a new one`),
};

export type LeafChoice = z.output<z.ZodObject<typeof leafParams>>;

/** Puts our host at the chosen leaf. Without a choice it keeps its leaf, or gets the usual one in a session that `isNew`. */
export function chooseLeaf(
  { head: usual, env }: Workspace,
  session: Session,
  { leaf, head }: LeafChoice,
  { isNew = false, client }: { isNew?: boolean; client?: string } = {},
): void {
  if (leaf === undefined && head === undefined) {
    if (isNew) session.heads.setOwn(usual);
    return;
  }
  // A repeat after a failed commit finds the name that was made the first time.
  const made = (): string => session.heads.own ?? usual ?? `${nameable(client)}-${env.entryId()}`;
  session.heads.setOwn(leaf === "shared" ? null : (head ?? made()));
}

/** Throws BadParams for a head on the shared leaf. */
export function checkLeafChoice({ leaf, head }: LeafChoice): void {
  if (leaf !== "shared" || head === undefined) return;
  throw new BadParams([{ path: "head", message: "the shared leaf is no head; leave head out, or ask for leaf own" }]);
}

/** Returns the beginning of a name for the head of a program that calls itself so. */
function nameable(client = ""): string {
  const plain = client.replace(/[^A-Za-z0-9]+/g, "-").slice(0, 40);
  return plain.replace(/^-|-$/g, "") || "head";
}
