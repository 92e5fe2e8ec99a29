/**
 * The WebAssembly module of fast-path.ts, put together from its instructions. The build puts its bytes in place of this
 * file (scripts/build.js), which saves a new process 2 ms.
 */

/** Bytes that can be looked at together. */
export const ROOM = 1 << 21;
// The memory: what is looked at, zeros that stop what goes too far, two tables, a byte for each container that is open.
export const ESCAPES = ROOM + 16;
export const DIGITS = ESCAPES + 256;
const OPEN = DIGITS + 256;
const MEMORY = OPEN + ROOM;
const PAGE = 1 << 16;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

// --- instructions, as the specification encodes them (WebAssembly 2.0, section 5.4) --------------------------------

/** Code is put together as a tree, which takes half the time of copying it from list to list. */
type Code = number | readonly Code[];

function unsigned(value: number): Code {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, unsigned(value >>> 7)];
}

function signed(value: bigint): Code {
  const low = Number(value & 0x7fn);
  return value >= -0x40n && value < 0x40n ? [low] : [low | 0x80, signed(value >> 7n)];
}

const I32 = 0x7f;
const I64 = 0x7e;
const V128 = 0x7b;
const get = (local: number): Code => [0x20, local];
const number = (value: number): Code => [0x41, signed(BigInt(value))];
const long = (value: bigint): Code => [0x42, signed(BigInt.asIntN(64, value))];
const set = (local: number, value: Code): Code => [value, 0x21, local];
const tee = (local: number, value: Code): Code => [value, 0x22, local];
const add = (a: Code, b: Code): Code => [a, b, 0x6a];
const minus = (a: Code, b: Code): Code => [a, b, 0x6b];
const and = (a: Code, b: Code): Code => [a, b, 0x71];
const or = (a: Code, b: Code): Code => [a, b, 0x72];
const is = (a: Code, b: Code): Code => [a, b, 0x46];
const isNot = (a: Code, b: Code): Code => [a, b, 0x47];
const isBelow = (a: Code, b: Code): Code => [a, b, 0x49];
const isZero = (a: Code): Code => [a, 0x45];
const byteAt = (at: Code, offset = 0): Code => [at, 0x2d, 0, unsigned(offset)];
const fourAt = (at: Code, offset = 0): Code => [at, 0x28, 0, unsigned(offset)];
const eightAt = (at: Code, offset = 0): Code => [at, 0x29, 0, unsigned(offset)];
const put = (at: Code, value: Code, offset: number): Code => [at, value, 0x3a, 0, unsigned(offset)];
const when = (condition: Code, body: Code, otherwise?: Code): Code =>
  otherwise ? [condition, 0x04, 0x40, body, 0x05, otherwise, 0x0b] : [condition, 0x04, 0x40, body, 0x0b];
const loop = (...body: Code[]): Code => [0x03, 0x40, body, 0x0b];
/** Once more through the loop that is `depth` blocks further out. */
const again = (depth: number): Code => [0x0c, depth];
const againIf = (condition: Code): Code => [condition, 0x0d, 0];
const call = (called: number, argument: Code): Code => [argument, 0x10, called];
const answer = (value: Code): Code => [value, 0x0f];
const UNREACHABLE: Code = [0x00];
const step = (local: number, by: number): Code => set(local, add(get(local), number(by)));
const character = (c: string): Code => number(c.charCodeAt(0));
/** Gives up: it is malformed, or not as it is usually written. */
const giveUpIf = (condition: Code): Code => when(condition, answer(number(-1)));

// --- the three functions -------------------------------------------------------------------------------------------

const [STRING, NUMBER] = [0, 1];
const AT = 0;

/** From inside of a string to just past its quote, or -1. */
function stringFunction(): Code {
  const [, FOUND, BYTES, CONTROL, QUOTES, BACKSLASHES] = [AT, 1, 2, 3, 4, 5];
  const everywhere = (c: number): Code => [number(c), 0xfd, 0x0f];
  const equal = (all: number): Code => [get(BYTES), get(all), 0xfd, 0x23];
  const control = [get(BYTES), get(CONTROL), 0xfd, 0x26];
  const marks = [control, equal(QUOTES), 0xfd, 0x50, equal(BACKSLASHES), 0xfd, 0x50, 0xfd, 0x64];
  const lowest = [get(FOUND), 0x68];
  const digit = (offset: number): Code => byteAt(byteAt(get(AT), offset), DIGITS);
  return [
    set(CONTROL, everywhere(0x20)),
    set(QUOTES, everywhere(QUOTE)),
    set(BACKSLASHES, everywhere(BACKSLASH)),
    loop(
      set(BYTES, [get(AT), 0xfd, 0x00, 0, 0]),
      when(isZero(tee(FOUND, marks)), [step(AT, 16), again(1)]),
      set(FOUND, byteAt(tee(AT, add(get(AT), lowest)))),
      when(is(get(FOUND), number(QUOTE)), answer(add(get(AT), number(1)))),
      giveUpIf(isNot(get(FOUND), number(BACKSLASH))),
      giveUpIf(isZero(tee(FOUND, byteAt(byteAt(get(AT), 1), ESCAPES)))),
      when(is(get(FOUND), number(6)), giveUpIf(isZero(and(and(digit(2), digit(3)), and(digit(4), digit(5)))))),
      set(AT, add(get(AT), get(FOUND))),
      again(0),
    ),
  ];
}

/** From a number to just past it, or -1. */
function numberFunction(): Code {
  const [, FROM] = [AT, 1];
  const isDecimal = (at: Code): Code => isBelow(minus(byteAt(at), character("0")), number(10));
  /** Past digits, of which there must be one. */
  const digits: Code = [
    set(FROM, get(AT)),
    loop(when(isDecimal(get(AT)), [step(AT, 1), again(1)])),
    giveUpIf(is(get(AT), get(FROM))),
  ];
  const isOneOf = (a: string, b: string): Code =>
    or(is(byteAt(get(AT)), character(a)), is(byteAt(get(AT)), character(b)));
  return [
    when(is(byteAt(get(AT)), character("-")), step(AT, 1)),
    digits,
    giveUpIf(and(is(byteAt(get(FROM)), character("0")), isNot(add(get(FROM), number(1)), get(AT)))),
    when(is(byteAt(get(AT)), character(".")), [step(AT, 1), digits]),
    when(isOneOf("e", "E"), [step(AT, 1), when(isOneOf("+", "-"), step(AT, 1)), digits]),
    answer(get(AT)),
  ];
}

/** Members that must not stand twice, by their names with the quote behind, as far as eight bytes. */
const ONCE = ['type"', 'id"', "parentId", 'message"', "customTy", '_batch"'];
const ROLE = 'role"';

const littleEndian = (text: string): bigint =>
  [...text].reduce((sum, c, i) => sum | (BigInt(c.charCodeAt(0)) << BigInt(8 * i)), 0n);

/** What `read` of FirstLook does. */
function readFunction(): Code {
  const [, END, START, C, DEPTH, SEEN, MESSAGE, NAME] = [AT, 1, 2, 3, 4, 5, 6, 7];
  const top = byteAt(get(DEPTH), OPEN);
  const isNamed = (name: string): Code => [
    [get(NAME), long((1n << BigInt(8 * name.length)) - 1n), 0x83],
    [long(littleEndian(name)), 0x51],
  ];
  const once = (name: string, bit: number): Code =>
    when(isNamed(name), [giveUpIf(and(get(SEEN), number(1 << bit))), set(SEEN, or(get(SEEN), number(1 << bit)))]);
  const isAt = (depth: number): Code => is(get(DEPTH), number(depth));
  const member: Code = [
    giveUpIf(isNot(byteAt(get(AT)), number(QUOTE))),
    set(NAME, eightAt(get(AT), 1)),
    loop(
      set(C, byteAt(tee(AT, add(get(AT), number(1))))),
      giveUpIf(or(isBelow(get(C), number(0x20)), is(get(C), number(BACKSLASH)))),
      againIf(isNot(get(C), number(QUOTE))),
    ),
    giveUpIf(isNot(byteAt(get(AT), 1), character(":"))),
    step(AT, 2),
    when(isAt(1), [
      ONCE.map(once),
      set(MESSAGE, number(0)),
      when(isNamed('message"'), set(MESSAGE, minus(get(AT), get(START)))),
    ]),
    when(and(isAt(2), isNot(get(MESSAGE), number(0))), once(ROLE, ONCE.length)),
  ];
  const isContainer = is(and(get(C), number(0xdf)), character("["));
  const container: Code = when(is(byteAt(get(AT), 1), add(get(C), number(2))), step(AT, 2), [
    step(AT, 1),
    step(DEPTH, 1),
    put(get(DEPTH), add(get(C), number(2)), OPEN),
    again(3),
  ]);
  const word = (text: string): Code => is(fourAt(get(AT)), number(Number(littleEndian(text))));
  const value: Code = when(
    is(tee(C, byteAt(get(AT))), number(QUOTE)),
    giveUpIf(is(tee(AT, call(STRING, add(get(AT), number(1)))), number(-1))),
    when(
      isContainer,
      container,
      when(
        isBelow(get(C), number(0x3a)),
        giveUpIf(is(tee(AT, call(NUMBER, get(AT))), number(-1))),
        when(or(word("true"), word("null")), step(AT, 4), [
          giveUpIf(or(isZero(word("fals")), isNot(byteAt(get(AT), 4), character("e")))),
          step(AT, 5),
        ]),
      ),
    ),
  );
  return [
    set(START, get(AT)),
    put(number(0), number(0), OPEN),
    loop(
      when(is(top, character("}")), member),
      value,
      loop(
        when(isAt(0), [giveUpIf(isNot(get(AT), get(END))), answer(get(MESSAGE))]),
        set(C, byteAt(get(AT))),
        step(AT, 1),
        when(is(get(C), character(",")), again(2)),
        giveUpIf(isNot(get(C), top)),
        step(DEPTH, -1),
        again(0),
      ),
    ),
    UNREACHABLE,
  ];
}

// --- the module ----------------------------------------------------------------------------------------------------

const flat = (code: Code): number[] => [code].flat(Number.POSITIVE_INFINITY as 1) as number[];
const counted = (...items: Code[]): Code => [unsigned(items.length), items];
const sized = (content: Code): Code => [unsigned(flat(content).length), content];
const section = (id: number, ...items: Code[]): Code => [id, sized(counted(...items))];
const type = (...parameters: number[]): Code => [0x60, counted(...parameters), counted(I32)];
const body = (code: Code, ...locals: Code[]): Code => sized([counted(...locals), code, UNREACHABLE, 0x0b]);
const name = (letter: string): Code => sized([letter.charCodeAt(0)]);

export function makeModule(): Uint8Array {
  const parts = [
    [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    section(1, type(I32), type(I32, I32)),
    section(3, [0], [0], [1]),
    section(5, [0x00, unsigned(Math.ceil(MEMORY / PAGE))]),
    section(7, [name("m"), 0x02, 0], [name("r"), 0x00, 2]),
    section(
      10,
      body(stringFunction(), [1, I32], [4, V128]),
      body(numberFunction(), [1, I32]),
      body(readFunction(), [5, I32], [1, I64]),
    ),
  ];
  return Uint8Array.from(flat(parts));
}
