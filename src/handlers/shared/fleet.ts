/** The params and members about sessions on other machines. */

import * as z from "zod";

export const hereParam = z
  .boolean()
  .optional()
  .describe("with a fleet: only sessions that are on this machine, without asking its database");

export const remoteMember = z
  .literal(true)
  .optional()
  .describe("only the fleet has it: sessionPath is where its copy will be, and opening it brings it there");

export const limited = z
  .string()
  .optional()
  .describe("with a fleet: why sessions that are not on this machine may be missing");
