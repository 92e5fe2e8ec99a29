/** The Model Context Protocol on the wire of a host. */

import { toJsonText } from "../../core/json/json.ts";
import type { Refusal } from "../../server/connection/dialect.ts";
import type { Face, FaceWire } from "../../server/face.ts";
import type { McpConversation } from "./protocol.ts";

/** Milliseconds for the last replies after the end of the input. */
const LAST_REPLIES = 150;

export class McpFace implements Face {
  readonly isFull = false;
  private readonly wire: FaceWire;
  private readonly conversation: McpConversation;
  private readonly pending = new Set<Promise<void>>();

  constructor(wire: FaceWire, makeConversation: (notify: (message: object) => void) => McpConversation) {
    this.wire = wire;
    this.conversation = makeConversation((message) => this.send(message));
  }

  receive(value: unknown): void {
    const reply: Promise<void> = this.conversation.take(value).then((one) => {
      this.pending.delete(reply);
      if (one !== undefined) this.send(one);
    });
    this.pending.add(reply);
  }

  refuseInput({ kind }: Refusal, idText?: string): void {
    this.send(this.conversation.refuse(kind, idText));
  }

  private send(message: object): void {
    this.wire.output.send([toJsonText(message)]);
    this.wire.output.flush();
  }

  receiveEvent(): void {}
  catchUpAll(): void {}
  resume(): void {}
  abandon(): void {}

  async end(): Promise<void> {
    const patience = new Promise((resolve) => setTimeout(resolve, LAST_REPLIES).unref());
    await Promise.race([Promise.allSettled(this.pending), patience]);
    this.conversation.end();
  }
}
