/**
 * Replaces zod in the built program: notes how each schema is made, and accepts usual values by these notes. zod makes
 * a schema only for a value that its note does not accept, and for documents: it names the mistake, if there is one. To
 * load zod and make the schemas of one command takes 6 ms of a start, on Node 24 up to 11.
 */

import type * as zod from "zod";
import { isObject } from "./loose.ts";
import * as library from "./schema-library.ts";

/** Result for a value that a note does not accept: zod validates it. */
const UNUSUAL = Symbol("unusual");
/** Returns the schema's result for a value, or UNUSUAL. */
type Accept = (value: unknown) => unknown;
type NotedMembers = Readonly<Record<string, Note>>;
type GivenObject = Readonly<Record<string, unknown>>;

/** Returns an argument with the schemas in the place of their notes. */
function made(argument: unknown): unknown {
  if (argument instanceof Note) return argument.schema;
  if (Array.isArray(argument)) return argument.map(made);
  if (typeof argument !== "object" || argument === null || argument instanceof RegExp) return argument;
  return Object.fromEntries(Object.entries(argument).map(([name, value]) => [name, made(value)]));
}

class Note {
  readonly accept: Accept;
  private readonly isOptional: boolean;
  readonly shape: NotedMembers | undefined;
  private readonly make: () => zod.ZodType;
  private known: zod.ZodType | undefined;

  constructor(accept: Accept, make: () => zod.ZodType, isOptional = false, shape?: NotedMembers) {
    this.accept = accept;
    this.make = make;
    this.isOptional = isOptional;
    this.shape = shape;
  }

  get schema(): zod.ZodType {
    this.known ??= this.make();
    return this.known;
  }

  get _zod(): unknown {
    return this.schema._zod;
  }

  toJSONSchema(...options: Parameters<zod.ZodType["toJSONSchema"]>): unknown {
    return this.schema.toJSONSchema(...options);
  }

  safeParse(value: unknown, options?: Parameters<zod.ZodType["safeParse"]>[1]): unknown {
    const data = this.accept(value);
    return data === UNUSUAL ? this.schema.safeParse(value, options) : { success: true, data };
  }

  /** Accepts the member of an object, which need not be there if it is optional. */
  acceptedIn(object: GivenObject, name: string): unknown {
    return name in object ? this.accept(object[name]) : this.isOptional ? undefined : UNUSUAL;
  }

  describe(text: string): Note {
    return this.with("describe", [text], this.accept, this.isOptional, this.shape);
  }

  optional(): Note {
    return this.with("optional", [], (value) => (value === undefined ? value : this.accept(value)), true);
  }

  nullable(): Note {
    return this.with("nullable", [], (value) => (value === null ? value : this.accept(value)), this.isOptional);
  }

  nullish(): Note {
    const accept: Accept = (value) => (value === null || value === undefined ? value : this.accept(value));
    return this.with("nullish", [], accept, true);
  }

  int(...all: unknown[]): Note {
    return this.where("int", all, Number.isSafeInteger);
  }

  min(...all: unknown[]): Note {
    return this.where("min", all, (value) => sizeOf(value) >= (all[0] as number));
  }

  max(...all: unknown[]): Note {
    return this.where("max", all, (value) => sizeOf(value) <= (all[0] as number));
  }

  length(...all: unknown[]): Note {
    return this.where("length", all, (value) => sizeOf(value) === all[0]);
  }

  regex(...all: unknown[]): Note {
    return this.where("regex", all, (value) => (all[0] as RegExp).test(value as string));
  }

  refine(...all: unknown[]): Note {
    return this.where("refine", all, all[0] as (value: unknown) => boolean);
  }

  superRefine(...all: unknown[]): Note {
    const validate = all[0] as (value: unknown, context: object) => void;
    return this.where("superRefine", all, (value) => {
      let isAccepted = true;
      const addIssue = (): void => {
        isAccepted = false;
      };
      validate(value, { value, addIssue });
      return isAccepted;
    });
  }

  transform(...all: unknown[]): Note {
    const change = all[0] as Accept;
    return this.with("transform", all, (value) => {
      const accepted = this.accept(value);
      return accepted === UNUSUAL ? accepted : change(accepted);
    });
  }

  partial(...all: unknown[]): Note {
    return this.with("partial", all, () => UNUSUAL, false, this.shape);
  }

  pick(members: Readonly<Record<string, true>>): Note {
    const shape = Object.fromEntries(Object.keys(members).map((name) => [name, (this.shape as NotedMembers)[name]]));
    return this.with("pick", [members], membersOf(shape, "left out"), false, shape);
  }

  extend(members: NotedMembers): Note {
    const shape = { ...this.shape, ...members };
    return this.with("extend", [members], membersOf(shape, "left out"), false, shape);
  }

  private where(method: string, all: unknown[], fits: (value: unknown) => boolean): Note {
    return this.with(method, all, (value) => {
      const accepted = this.accept(value);
      return accepted !== UNUSUAL && fits(accepted) ? accepted : UNUSUAL;
    });
  }

  private with(method: string, all: unknown[], accept: Accept, isOptional?: boolean, shape?: NotedMembers): Note {
    const methods = (): Methods => this.schema as unknown as Methods;
    return new Note(accept, () => methods()[method](...all.map(made)), isOptional, shape);
  }
}

type Methods = Readonly<Record<string, (...all: unknown[]) => zod.ZodType>>;

const sizeOf = (value: unknown): number => (typeof value === "number" ? value : (value as { length: number }).length);

/** Returns a note that accepts an object with these members. Others are refused, left out or kept. */
function membersOf(shape: NotedMembers, others: "refused" | "left out" | "kept"): Accept {
  const members = Object.entries(shape);
  return (value) => {
    if (!isObject(value) || Object.hasOwn(value, "__proto__")) return UNUSUAL;
    const object = value as GivenObject;
    const accepted: Record<string, unknown> = {};
    for (const [name, member] of members) {
      const one = member.acceptedIn(object, name);
      if (one === UNUSUAL) return UNUSUAL;
      if (name in object) accepted[name] = one;
    }
    if (others !== "left out")
      for (const name of Object.keys(object)) {
        if (Object.hasOwn(shape, name)) continue;
        if (others === "refused") return UNUSUAL;
        accepted[name] = object[name];
      }
    return accepted;
  };
}

/** Notes a schema that a function of zod makes of these arguments. */
function noted(name: string, all: unknown[], accept: Accept, shape?: NotedMembers): Note {
  return new Note(accept, () => (library as Methods)[name](...all.map(made)), false, shape);
}

const objects =
  (name: string, others: "refused" | "left out" | "kept") =>
  (shape: NotedMembers, ...more: unknown[]): Note =>
    noted(name, [shape, ...more], membersOf(shape, others), shape);

const where =
  (name: string, fits: (value: unknown) => boolean) =>
  (...all: unknown[]): Note =>
    noted(name, all, (value) => (fits(value) ? value : UNUSUAL));

const oneOf =
  (name: string) =>
  (values: unknown, ...more: unknown[]): Note => {
    const all = [values].flat();
    return noted(name, [values, ...more], (value) => (all.includes(value) ? value : UNUSUAL));
  };

const nullOnly = where("null", (value) => value === null);
const enumOf = oneOf("enum");

export { enumOf as enum, nullOnly as null };
export const literal = oneOf("literal");
export const string = where("string", (value) => typeof value === "string");
export const number = where("number", Number.isFinite);
export const boolean = where("boolean", (value) => typeof value === "boolean");
export const unknown = where("unknown", () => true);
export const custom = where("custom", () => false);
export const never = where("never", () => false);
export const record = where("record", () => false);
export const object = objects("object", "left out");
export const strictObject = objects("strictObject", "refused");
export const looseObject = objects("looseObject", "kept");

export function array(element: Note, ...more: unknown[]): Note {
  return noted("array", [element, ...more], (value) => {
    if (!Array.isArray(value)) return UNUSUAL;
    const accepted = value.map((one) => element.accept(one));
    return accepted.includes(UNUSUAL) ? UNUSUAL : accepted;
  });
}

export function union(options: readonly Note[], ...more: unknown[]): Note {
  return noted("union", [options, ...more], (value) => {
    for (const option of options) {
      const accepted = option.accept(value);
      if (accepted !== UNUSUAL) return accepted;
    }
    return UNUSUAL;
  });
}
