/**
 * Redacts the lines of a session. A line is read as text, string by string; only strings with a finding are written
 * anew, and every other byte stays.
 */

import { canBeSecret, getLabel, getSecretKind, isAccountName } from "./names.ts";
import { printsSecret } from "./sources.ts";
import { type Finding, holdsBinary, replaceFindings, TextRedactor } from "./text.ts";

/** Members that tie entries together or name their kinds: they stay as they are. By depth, and by the member above. */
const STRUCTURE: readonly (readonly [depth: number, above: string, names: ReadonlySet<string>])[] = [
  [1, "", new Set("type id parentId timestamp targetId fromId firstKeptEntryId customType version".split(" "))],
  [2, "message", new Set("role toolCallId timestamp stopReason api responseId customType".split(" "))],
  [4, "message", new Set("type id toolCallId mimeType".split(" "))],
  [3, "content", new Set("type mimeType".split(" "))],
];

/** Members with text that only its maker can read, and that may repeat a secret that was removed elsewhere. */
const OPAQUE = /^(?:(?:thinking|thought|text|reasoning)_?signature|signature|encrypted_?content|redacted_?thinking)$/i;
/** Members with a tool's output or with text to write. */
const PRINTED = /^(?:text|content|output|stdout|new_?(?:text|string)|file_?text)$/i;
const LONG_SIGNATURE = 64;

/** The beginning of a line with an unchanged record of another agent, which may name the user's account. */
const FOREIGN = /^[^\n]{0,400}?"customType":"import:[a-z0-9]+"/;

/** An object or array that the walk is in. */
interface Nesting {
  readonly isObject: boolean;
  /** The name of the member that it is the value of. */
  readonly above: string;
  /** The name of the next member, once it was read. */
  name: string | undefined;
  /** The string before, in an array; in an object, the member's name. */
  before: string;
  /** Its own type, as blocks of content have it. */
  type: string;
  data: "none" | "text" | "binary";
}

/** A string of a line with its findings. */
interface Literal {
  readonly start: number;
  readonly end: number;
  readonly value: string;
  findings: readonly Finding[];
  /** The member, if it is content that may go on in the next string. */
  readonly block: string;
}

export type KindCounts = Map<string, number>;

const add = (counts: KindCounts, kind: string): KindCounts => counts.set(kind, (counts.get(kind) ?? 0) + 1);

interface ExaminedLine {
  readonly literals: readonly Literal[];
  readonly unjudged: readonly string[];
}

export class LineRedactor {
  readonly texts: TextRedactor;
  /** Calls of tools that print or write a value that is a secret as a whole, and the current call. */
  private readonly printing = new Set<string>();
  private call = "";

  constructor(emails = false) {
    this.texts = new TextRedactor(emails);
  }

  /** Reads a line, and learns its secrets. Returns whether there are any; adds the parts that cannot be examined. */
  learn(line: Uint8Array, unjudged: KindCounts): boolean {
    const examined = this.examine(textOf(line));
    for (const kind of examined.unjudged) add(unjudged, kind);
    return examined.literals.length > 0;
  }

  /** Returns the line without its secrets: the same bytes if it has none. Adds the counts of the replacements. */
  redact(line: Uint8Array, counts: KindCounts): Uint8Array {
    const text = textOf(line);
    const parts: string[] = [];
    let copied = 0;
    for (const { start, end, value, findings } of this.examine(text).literals) {
      for (const { kind, counts: isCounted } of findings) if (isCounted) add(counts, kind);
      parts.push(text.slice(copied, start), JSON.stringify(replaceFindings(value, findings)));
      copied = end;
    }
    return copied === 0 ? line : encoder.encode(parts.join("") + text.slice(copied));
  }

  /** Returns a text without its secrets. */
  text(text: string): string {
    return replaceFindings(text, this.texts.find(text));
  }

  /** Returns whether a line without findings has a secret that was found in another one. */
  hasKnown(line: Uint8Array): boolean {
    return this.texts.hasKnown(textOf(line));
  }

  private examine(text: string): ExaminedLine {
    const literals: Literal[] = [];
    const unjudged: string[] = [];
    const open: Nesting[] = [];
    const isForeign = FOREIGN.test(text);
    this.call = "";
    for (let at = 0; at < text.length; ) {
      const c = text.charCodeAt(at);
      const inside = open.at(-1);
      if (c === QUOTE) {
        const end = stringEnd(text, at);
        const raw = text.slice(at + 1, end - 1);
        const value = raw.includes("\\") ? (JSON.parse(text.slice(at, end)) as string) : raw;
        if (inside?.isObject && inside.name === undefined) {
          inside.name = value;
          const findings = this.texts.find(value);
          if (findings.length > 0) literals.push({ start: at, end, value, findings, block: "" });
        } else {
          const literal = this.value({ start: at, end, value }, open, unjudged, isForeign);
          if (literal) literals.push(literal);
          this.passed(inside, value);
        }
        at = end;
        continue;
      }
      if (c === OPEN_BRACE || c === OPEN_BRACKET) {
        open.push({
          isObject: c === OPEN_BRACE,
          above: inside?.isObject ? (inside.name ?? "") : (inside?.above ?? ""),
          name: undefined,
          before: "",
          type: "",
          data: "none",
        });
      } else if (c === CLOSE_BRACE || c === CLOSE_BRACKET) {
        const closed = open.pop();
        const isImage = closed?.data !== "none" && /^image/i.test(closed?.type ?? "");
        if (isImage) unjudged.push("image");
        else if (closed?.data === "binary") unjudged.push("binary");
      } else if (c === COMMA && inside) inside.name = undefined;
      else if (c >= ZERO && c <= NINE) {
        const end = numberEnd(text, at);
        const value = text.slice(at, end);
        const whole =
          inside?.isObject && !isStructure(open.length, open[0]?.name ?? "", inside.name ?? "")
            ? secretNumber(inside, value)
            : undefined;
        if (whole) literals.push({ start: at, end, value, findings: this.texts.find(value, whole), block: "" });
        at = end;
        continue;
      }
      at++;
    }
    this.join(literals);
    return { literals: literals.filter(({ findings }) => findings.length > 0), unjudged };
  }

  /** Keeps the part of a string that its neighbours need. */
  private passed(inside: Nesting | undefined, value: string): void {
    if (!inside) return;
    if (inside.isObject && /^(?:id|toolCallId|tool_use_id|call_id)$/.test(inside.name ?? "")) this.call = value;
    if (!inside.isObject) inside.before = value.length <= 64 ? value : "";
    else if (/^(?:name|key|id|parameterKey|field)$/i.test(inside.name ?? "")) inside.before = value.slice(0, 64);
    else if (/^(?:type|mimeType|mime_type|media_type)$/.test(inside.name ?? "") && !/^image/i.test(inside.type))
      inside.type = value.slice(0, 64);
  }

  private value(
    place: { readonly start: number; readonly end: number; readonly value: string },
    open: readonly Nesting[],
    unjudged: string[],
    isForeign: boolean,
  ): Literal | undefined {
    const { value } = place;
    const inside = open.at(-1);
    const name = inside?.name ?? "";
    const top = open[0]?.name ?? "";
    const depth = open.length;
    if (inside?.isObject && isStructure(depth, top, name)) {
      if (this.texts.find(value).length > 0) unjudged.push("id");
      return undefined;
    }
    if (name === "$piBlob") unjudged.push("attachment");
    if (OPAQUE.test(name) && value.length >= LONG_SIGNATURE) {
      const whole: Finding = { start: 0, end: value.length, kind: "signature", replacement: "", counts: true };
      return { ...place, findings: [whole], block: "" };
    }
    const isTheirs = isForeign && top === "data";
    const whole = secretNamed(inside, name, value) ?? (isTheirs ? accountNamed(name, value) : undefined);
    const isCommand = /^(?:command|cmd|(?:file_?)?path)$/i.test(name);
    if (isCommand && this.call !== "" && printsSecret(value)) this.printing.add(this.call);
    const isPrinted = PRINTED.test(name) && this.printing.has(this.call);
    const findings = this.texts.find(value, whole, isTheirs, isPrinted);
    // A key is no binary data any more once it is replaced.
    const binary = holdsBinary(replaceFindings(value, findings));
    if (inside && name === "data") inside.data = binary || inside.data === "binary" ? "binary" : "text";
    else if (binary) unjudged.push("binary");
    const isBlock = (name === "text" || name === "thinking") && (depth === 4 || depth === 3);
    const block = isBlock ? name : "";
    return findings.length > 0 || isBlock ? { ...place, findings, block } : undefined;
  }

  /** Finds secrets that begin in one block of content and end in another. */
  private join(literals: Literal[]): void {
    const blocks = literals.filter(({ block }) => block !== "");
    if (blocks.length < 2) return;
    for (let first = 0; first < blocks.length; ) {
      let past = first + 1;
      while (past < blocks.length && blocks[past].block === blocks[first].block) past++;
      for (const group of groups(blocks.slice(first, past))) this.joinGroup(group);
      first = past;
    }
  }

  /** Looks at blocks as one text. Of long ones only the ends count. */
  private joinGroup(blocks: readonly Literal[]): void {
    if (blocks.length < 2) return;
    const starts: number[] = [];
    let text = "";
    for (const [index, { value }] of blocks.entries()) {
      starts.push(text.length);
      const isLast = index === blocks.length - 1;
      text += index === 0 ? value.slice(-WINDOW) : isLast ? value.slice(0, WINDOW) : value;
    }
    for (const found of this.texts.find(text)) {
      const parts = blocks.flatMap((block, index) => {
        const shift = starts[index] - (index === 0 ? Math.max(0, block.value.length - WINDOW) : 0);
        const size = (starts[index + 1] ?? text.length) - starts[index];
        const start = Math.max(found.start, starts[index]) - shift;
        const end = Math.min(found.end, starts[index] + size) - shift;
        return start < end ? [{ block, start, end }] : [];
      });
      let isFirst = true;
      for (const { block, start, end } of parts) {
        // A secret within one block, found from that block alone, is known already.
        const isNew = !block.findings.some((one) => one.start < end && one.end > start);
        if (parts.length === 1 && !isNew) continue;
        const others = block.findings.filter((one) => one.end <= start || one.start >= end);
        const own: Finding = { ...found, start, end, replacement: isFirst ? found.replacement : "", counts: isFirst };
        block.findings = [...others, own].sort((a, b) => a.start - b.start);
        isFirst = false;
      }
    }
  }
}

/** Characters at the end of a block and at the beginning of the next that are read together. */
const WINDOW = 8192;

/** Cuts blocks into groups of short ones, except the first and last; neighbours share the block between them. */
function* groups(blocks: readonly Literal[]): Generator<Literal[]> {
  let group: Literal[] = [];
  for (const block of blocks) {
    group.push(block);
    if (group.length === 1 || (block.value.length < WINDOW && group.length < 64)) continue;
    yield group;
    group = [block];
  }
  if (group.length > 1) yield group;
}

/** Returns the kind of a value that is secret by its name: of its member, of its neighbour, or of a flag before it. */
function secretNamed(inside: Nesting | undefined, name: string, value: string): { kind: string } | undefined {
  if (!inside || value.length > 8192) return undefined;
  const called = !inside.isObject
    ? /^--?[a-z]/i.test(inside.before)
      ? inside.before
      : inside.above
    : /^(?:value|default|plaintext)$/i.test(name)
      ? inside.before || inside.above || name
      : name;
  const kind = called === "" ? undefined : getSecretKind(called);
  const writing = kind === "secret" && /^[A-Z0-9_]+$/.test(called) ? "setting" : "quoted";
  const can = kind && canBeSecret(value, kind, writing, /^[A-Z0-9_]+$/.test(called));
  return can ? { kind: getLabel(kind) } : undefined;
}

/** Returns the kind of a number that is secret by its name: only passwords and the like are made of digits. */
function secretNumber({ name = "" }: Nesting, value: string): { kind: string } | undefined {
  const kind = getSecretKind(name);
  if (kind !== "pin" && (kind !== "password" || /^pass$/i.test(name))) return undefined;
  return /^\d+$/.test(value) && canBeSecret(value, kind, "quoted") ? { kind: getLabel(kind) } : undefined;
}

function numberEnd(text: string, at: number): number {
  let end = at;
  while (/[\d.eE+-]/.test(text[end] ?? "")) end++;
  return end;
}

/** Returns the kind of a value that is the id or name of an account by the name of its member. */
function accountNamed(name: string, value: string): { kind: string } | undefined {
  return value.length >= 3 && value.length <= 256 && isAccountName(name) ? { kind: "account_id" } : undefined;
}

function isStructure(depth: number, top: string, name: string): boolean {
  return STRUCTURE.some(([at, above, names]) => at === depth && (above === "" || above === top) && names.has(name));
}

const QUOTE = 0x22;
const ZERO = 0x30;
const NINE = 0x39;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const encoder = new TextEncoder();

function textOf(line: Uint8Array): string {
  return decoder.decode(line);
}

/** Returns the position past the string that begins at `at`, in a text that is known to be JSON. */
function stringEnd(text: string, at: number): number {
  for (let quote = text.indexOf('"', at + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let escapes = 0;
    while (text.charCodeAt(quote - 1 - escapes) === BACKSLASH) escapes++;
    if (escapes % 2 === 0) return quote + 1;
  }
  return text.length;
}
