/** Flat nodes of a tree as JSON text, made of the bytes of entries; only those of unusual entries are parsed. */

import { toPreview } from "../../core/format/message.ts";
import { hasEscape, type MessagePlace, MessagePlaces, PLACE } from "../../core/format/message-places.ts";
import { writePreview } from "../../core/format/preview.ts";
import { replaceHalves } from "../../core/json/halves.ts";
import { parse, toBytes } from "../../core/json/json.ts";
import { TextBlock } from "../../core/json/text-block.ts";
import type { Session } from "../../core/session/session.ts";
import type { Nodes } from "../../core/tree/nodes.ts";
import {
  formatCalls,
  getPreview,
  getPreviewCalls,
  getPreviewText,
  LONG_ENTRY,
  parsePreviewBody,
} from "./entry-preview.ts";
import { writeId } from "./id-text.ts";

/** Bytes of the texts of a long entry that are parsed: a preview shows no more of them. */
const SEEN = 4096;

const ID = toBytes('{"id":');
const PARENT = toBytes(',"parentId":');
const TYPE = toBytes(',"type":"message"');
const TIMESTAMP = toBytes(',"timestamp":');
const ROLE = toBytes(',"role":');
const PREVIEW = toBytes(',"preview":');
const CALLS = toBytes(',"calls":');
const TOOL_NAME = toBytes(',"toolName":');
const IS_ERROR = toBytes(',"isError":true');
const LABEL = toBytes(',"label":');
const CHILDREN = toBytes(',"childCount":');
const TRUE = toBytes("true");
const ERROR = toBytes('"error"');
const ZERO = toBytes("0");
const QUOTE = 0x22;
const OPEN = 0x5b;
const CLOSE = 0x5d;
const COMMA = 0x2c;

/** The first part of a node's text. */
interface NodeText {
  /** The parent when the text was made: it changes when a lost parent is bridged, or when the parent comes later. */
  readonly parent: number;
  readonly text: Uint8Array;
}

/** Nodes of one session that are remembered. */
const MAX_REMEMBERED = 10_000;
/**
 * Texts of the nodes of each session, valid as long as no entry was lost or cut. A host asks for its page again whenever
 * the session has changed, and all but a few of its nodes are as they were: then their entries are not read.
 */
const memories = new WeakMap<Nodes, { losses: number; cuts: number; texts: Map<number, NodeText> }>();

function earlierTexts(nodes: Nodes): Map<number, NodeText> {
  const { losses, cuts } = nodes;
  const known = memories.get(nodes);
  if (known?.losses === losses && known.cuts === cuts && known.texts.size < MAX_REMEMBERED) return known.texts;
  const texts = new Map<number, NodeText>();
  memories.set(nodes, { losses, cuts, texts });
  return texts;
}

/** Nodes as they are when this is made: their texts may be asked for when the tree has grown. */
export class FlatNodes {
  private readonly positions: Int32Array;
  private readonly session: Session;
  private readonly parents: Int32Array;
  private readonly childCounts: Int32Array;
  private readonly labels: Session["tree"]["labels"];
  private readonly places = new MessagePlaces();
  private readonly out = new TextBlock();

  constructor(session: Session, found: readonly number[]) {
    const { tree, log } = session;
    this.session = session;
    this.positions = Int32Array.from(found);
    this.parents = this.positions.map((position) => log.nodes.parent(position));
    this.childCounts = this.positions.map((position) => tree.childCount(position));
    this.labels = new Map(tree.labels);
  }

  /** Yields the text of each node; it is valid until the next is requested. */
  *texts(): Generator<Uint8Array> {
    const { out } = this;
    for (const _ of this.written(this.positions.length)) {
      yield out.bytes.subarray(0, out.length);
      out.length = 0;
    }
  }

  /** Yields the array of the first nodes, in blocks. */
  *array(count: number): Generator<Uint8Array> {
    const { out } = this;
    out.length = 0;
    out.byte(OPEN);
    for (const index of this.written(count)) {
      if (out.isFull) yield out.take();
      if (index < count - 1) out.byte(COMMA);
    }
    out.byte(CLOSE);
    yield out.take();
  }

  /** Writes the first nodes one by one, and yields the index of each. */
  private *written(count: number): Generator<number> {
    const { out, parents } = this;
    const positions = this.positions.subarray(0, count);
    const texts = earlierTexts(this.session.log.nodes);
    const known = texts.size === 0 ? [] : Array.from(positions, (position) => texts.get(position));
    const isKnown = (index: number): boolean => known[index]?.parent === parents[index];
    const unknown = texts.size === 0 ? positions : positions.filter((_, index) => !isKnown(index));
    const lines = this.session.log.readMany(unknown, true)[Symbol.iterator]();
    for (let index = 0; index < count; index++) {
      if (isKnown(index)) out.all((known[index] as NodeText).text);
      else {
        const begun = out.length;
        this.write(index, lines.next().value);
        if (texts.size < MAX_REMEMBERED)
          texts.set(positions[index], { parent: parents[index], text: out.bytes.slice(begun, out.length) });
      }
      this.writeRest(index);
      yield index;
    }
  }

  /** Writes the first part of a node, which is valid as long as the entry is. */
  private write(index: number, line: Uint8Array): void {
    const { out } = this;
    const begun = out.length;
    if (this.writeUsual(index, line)) return;
    out.length = begun;
    out.all(toBytes(replaceHalves(this.parsedText(index, line))));
  }

  /** Writes the members of a node that can change while its entry stays the same. */
  private writeRest(index: number): void {
    const { out } = this;
    const label = this.labels.get(this.positions[index]);
    if (label) {
      out.all(LABEL);
      out.json(label.label);
    }
    out.all(CHILDREN);
    out.number(this.childCounts[index]);
    out.byte(0x7d);
  }

  /** Returns the first part of the node of any entry, which is parsed for it. */
  private parsedText(index: number, line: Uint8Array): string {
    const { nodes } = this.session.log;
    const position = this.positions[index];
    const body = parsePreviewBody(line, SEEN);
    const entryPreview = getPreview(body);
    const text = getPreviewText(body) || formatCalls(entryPreview.calls);
    const node = {
      id: nodes.id(position),
      parentId: this.session.idOrNull(this.parents[index]),
      type: nodes.type(position),
      timestamp: typeof body.timestamp === "string" ? body.timestamp : undefined,
      role: entryPreview.role,
      preview: text === "" ? undefined : toPreview(text),
      ...entryPreview,
    };
    return JSON.stringify(node).slice(0, -1);
  }

  /** Writes the first part of the node of a message; returns false where its entry must be parsed. */
  private writeUsual(index: number, line: Uint8Array): boolean {
    const { out, places } = this;
    const { nodes } = this.session.log;
    const position = this.positions[index];
    if (!nodes.isType(position, "message") || !places.read(line) || places.texts > 1) return false;
    const calls = places.calls();
    const text = places.start(PLACE.text);
    const textEnd = places.end(PLACE.text);
    const hasText = textEnd - text > 2;
    // Without text it may be the command that is shown, and of long entries only the beginnings of texts are parsed.
    if ((!hasText && places.end(PLACE.command) > 0) || (calls.length > 0 && line.length > LONG_ENTRY)) return false;
    if (places.end(PLACE.exitCode) > 0 && !places.is(line, PLACE.exitCode, ZERO)) return false;
    if (hasEscape(line, places.start(PLACE.stopReason), places.end(PLACE.stopReason))) return false;
    out.all(ID);
    writeId(out, nodes, position);
    out.all(PARENT);
    writeId(out, nodes, this.parents[index]);
    out.all(TYPE);
    if (!this.writeString(line, TIMESTAMP, PLACE.timestamp) || !this.writeString(line, ROLE, PLACE.role)) return false;
    const entryPreview =
      calls.length === 0 ? undefined : getPreviewCalls(calls.map(({ start, end }) => parse(line, start, end)));
    if (hasText) {
      out.all(PREVIEW);
      writePreview(out, line, text, textEnd);
    } else if (entryPreview) {
      out.all(PREVIEW);
      out.json(toPreview(formatCalls(entryPreview)));
    }
    if (entryPreview) {
      out.all(CALLS);
      out.json(entryPreview);
    }
    if (!this.writeString(line, TOOL_NAME, PLACE.toolName)) return false;
    if (this.hasFailed(line)) out.all(IS_ERROR);
    return true;
  }

  /** Writes a member if its value is a string. Returns false where that may be written in another form. */
  private writeString(line: Uint8Array, name: Uint8Array, place: MessagePlace): boolean {
    const start = this.places.start(place);
    const end = this.places.end(place);
    if (end === 0 || line[start] !== QUOTE) return true;
    if (hasEscape(line, start, end)) return false;
    this.out.all(name);
    this.out.copy(line, start, end);
    return true;
  }

  private hasFailed(line: Uint8Array): boolean {
    const { places } = this;
    return (
      places.is(line, PLACE.isError, TRUE) ||
      places.is(line, PLACE.cancelled, TRUE) ||
      places.is(line, PLACE.stopReason, ERROR)
    );
  }
}
