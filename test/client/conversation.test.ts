/** Types of entries and messages, which are written by hand, beside the schemas that the server checks by. */

import { expectTypeOf, test } from "vitest";
import type * as z from "zod";
import type { Draft, Entry, Message, OtherName } from "../../src/client/index.ts";
import type { entryTypes, messageRoles } from "../../src/core/format/schemas.ts";

/** The names that members of a schema have, without what it lets through. */
type Listed<T extends z.ZodObject> = keyof T["shape"];

type EntryOf<Type> = Extract<Entry, { type: Type }>;
type DraftOf<Type> = Extract<Draft, { type: Type }>;
type MessageOf<Role> = Extract<Message, { role: Role }>;

test("every type of entry and every role is listed, with all its members", () => {
  expectTypeOf<Exclude<Entry["type"], OtherName>>().toEqualTypeOf<keyof typeof entryTypes>();
  type Lacking = {
    [T in keyof typeof entryTypes]: Exclude<Listed<(typeof entryTypes)[T]>, keyof EntryOf<T>>;
  }[keyof typeof entryTypes];
  expectTypeOf<Lacking>().toEqualTypeOf<never>();
  expectTypeOf<Exclude<keyof typeof messageRoles, Message["role"]>>().toEqualTypeOf<never>();
  type LackingOfMessages = {
    [R in keyof typeof messageRoles]: Exclude<Listed<(typeof messageRoles)[R]>, keyof MessageOf<R>>;
  }[keyof typeof messageRoles];
  expectTypeOf<LackingOfMessages>().toEqualTypeOf<never>();
});

test("what they take, the server takes", () => {
  type Refused = {
    [T in keyof typeof entryTypes]: DraftOf<T> extends z.input<(typeof entryTypes)[T]> ? never : T;
  }[keyof typeof entryTypes];
  expectTypeOf<Refused>().toEqualTypeOf<never>();
  type RefusedMessages = {
    [R in keyof typeof messageRoles]: MessageOf<R> extends z.input<(typeof messageRoles)[R]> ? never : R;
  }[keyof typeof messageRoles];
  expectTypeOf<RefusedMessages>().toEqualTypeOf<never>();
});
