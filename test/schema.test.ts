/** The contract for machines, as the build makes it and the verb `schema` hands it out. */

import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Ajv } from "ajv";
import { expect, test } from "vitest";
import { declarations } from "../src/handlers/shared/declarations.ts";
import { getRepetition } from "../src/handlers/shared/repetition.ts";
import { makeOpenRpcDocument } from "../src/server/openrpc.ts";
import { VERSION } from "../src/version.ts";
import { PROGRAM } from "./support/build.ts";
import { type Json, temporaryFolder } from "./support/server.ts";
import { SYSTEM } from "./support/tiers.ts";

const FOLDER = join(dirname(PROGRAM), "../schema");
const schema: Json = JSON.parse(readFileSync(join(FOLDER, "schema.json"), "utf8"));

// Each check runs a few times, and the program that makes checks faster takes longer than they do.
const ajv = new Ajv({ strict: true, inlineRefs: false, code: { optimize: false } });
// Without the root of the schema: with it, the first validator would compile every definition.
ajv.addSchema({ $id: schema.$id, definitions: schema.definitions });

/** Returns the problems of a value by a definition of the schema. */
function problems(definition: string, value: unknown): unknown[] {
  const validate = ajv.getSchema(`${schema.$id}#/definitions/${definition}`);
  if (!validate) throw new Error(`There is no definition ${definition}.`);
  return validate(value) ? [] : (validate.errors as unknown[]);
}

function nameOf(wire: string): string {
  return wire.replace(/(?:^|[._])([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

test("it is a JSON Schema, and refers to nothing that is missing", () => {
  expect(new Ajv({ strict: false }).validateSchema(schema)).toBe(true);
  const references = [...JSON.stringify(schema).matchAll(/"\$ref":"#\/definitions\/([^"]+)"/g)].map(([, name]) => name);
  expect(references.length).toBeGreaterThan(150);
  expect(references.filter((name) => !(name in schema.definitions))).toEqual([]);
});

test.each(declarations.commands.map((command) => [command.name, command] as const))(
  "the example of %s is what its definitions describe, and other things are not",
  (name, { example }) => {
    expect(problems(`${nameOf(name)}Params`, example.params)).toEqual([]);
    if (example.result !== undefined) expect(problems(`${nameOf(name)}Result`, example.result)).toEqual([]);
    expect(problems(`${nameOf(name)}Params`, { ...(example.params as object), no_such_member: 1 })).not.toEqual([]);
    expect(problems(`${nameOf(name)}Params`, [])).not.toEqual([]);
  },
);

test("events, hooks, failures and lines of sessions have definitions", () => {
  const event = { sessionId: "s", leafId: null, seq: 1, newLeafId: "a", oldLeafId: null };
  expect(problems("SessionTreeEvent", event)).toEqual([]);
  expect(problems("SessionTreeEvent", { ...event, seq: "1" })).not.toEqual([]);
  for (const name of Object.keys(declarations.events))
    expect(schema.definitions).toHaveProperty(`${nameOf(name)}Event`);
  expect(problems("SessionBeforeForkPayload", { entryId: null, position: "at" })).toEqual([]);
  expect(problems("SessionBeforeForkAnswer", { cancel: 1 })).not.toEqual([]);
  for (const [name, { code, retryable, meaning }] of Object.entries(declarations.failures))
    expect(problems("Failure", { code, message: meaning, data: { name, retryable } })).toEqual([]);
  expect(problems("Header", { type: "session", version: 3, id: "x", timestamp: "t", cwd: "/" })).toEqual([]);
  expect(problems("Header", { type: "session" })).not.toEqual([]);
  const label = { type: "label", id: "a", parentId: null, timestamp: "t", targetId: 5 };
  expect(problems("EntryLabel", label)).not.toEqual([]);
});

test("the other files say the same", () => {
  const discovered = JSON.parse(JSON.stringify(makeOpenRpcDocument(declarations, VERSION)));
  expect(JSON.parse(readFileSync(join(FOLDER, "openrpc.json"), "utf8"))).toEqual(discovered);
  const types = readFileSync(join(FOLDER, "protocol.d.ts"), "utf8");
  for (const name of Object.keys(schema.definitions))
    expect(types).toMatch(new RegExp(`^export (?:type|interface) ${name}\\b`, "m"));
  expect(types).not.toContain("was referenced by");
});

test("the verb writes all of them, again too, or prints one", SYSTEM, () => {
  const out = join(temporaryFolder(), "new/folder");
  const run = (...args: string[]): string =>
    execFileSync(process.execPath, [PROGRAM, "schema", ...args], { encoding: "utf8" });
  for (let i = 0; i < 2; i++) run("--out", out);
  expect(readdirSync(out).sort()).toEqual(["openrpc.json", "protocol.d.ts", "schema.json"]);
  for (const name of readdirSync(out)) expect(readFileSync(join(out, name))).toEqual(readFileSync(join(FOLDER, name)));
  expect(JSON.parse(run("openrpc"))).toHaveProperty("openrpc");
  expect(JSON.parse(run("json")).$id).toBe(schema.$id);
  expect(run("types")).toContain("export interface Commands");
});

test("what a repeat of a command does follows from what it writes", () => {
  const named = (wanted: string): string[] =>
    declarations.commands.filter((command) => getRepetition(command) === wanted).map(({ name }) => name);
  const process = "repair_session migrate_session rollback_migration create_checkpoint undo redo recover_kept".split(
    " ",
  );
  expect(named("session")).toEqual(["new_session", "fork", "clone"]);
  expect(named("process")).toEqual(process);
  const writes = declarations.commands.filter(({ effect, name }) => effect === "write" && !process.includes(name));
  expect(named("entries").sort()).toEqual(writes.map(({ name }) => name).sort());
  // No command that changes files by itself is called repeatable.
  const none =
    "delete_session restore_session archive_session unarchive_session relocate_session import_session empty_trash " +
    "prune_leftovers fix_health export_session export_html";
  expect(named("none").join(" ")).toBe(none);
});
