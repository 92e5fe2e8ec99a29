/** The door of recall: past sessions for agents that ask, over the Model Context Protocol or in a shell. */

import { parse } from "../../core/json/json.ts";
import { LineDecoder } from "../../server/connection/framing.ts";
import type { RecallOutcome, RecallWorld, ToolFace } from "../../server/recall-module.ts";
import { Library } from "./library.ts";
import type { ToolArguments } from "./params.ts";
import { McpConversation } from "./protocol.ts";
import { describeRegistration, registrations } from "./registrations.ts";
import { runTool, tools } from "./tools.ts";

/** Bytes of a message; the clients' own limit. */
const LONGEST = 10 << 20;
/** Milliseconds for the last replies after the end of the input. */
const LAST_REPLIES = 150;

export function listRecallTools(): readonly ToolFace[] {
  return tools;
}

/** Runs a tool by its name, which must be one. */
export function runRecallTool(world: RecallWorld, name: string, args: ToolArguments): Promise<RecallOutcome> {
  const tool = tools.find((one) => one.name === name);
  if (tool === undefined) throw new Error(`There is no tool ${name}.`);
  return runTool(new Library(world), tool, args);
}

export function listRecallClients(): readonly string[] {
  return Object.keys(registrations);
}

export function describeRecallRegistration(client: string, options: readonly string[]): string[] | undefined {
  return describeRegistration(client, options);
}

/** Makes the conversation with one client, for a transport that cuts and parses its messages. */
export function makeMcpConversation(
  world: RecallWorld,
  version: string,
  notify: (message: object) => void,
): McpConversation {
  return new McpConversation(new Library(world), version, notify);
}

/** Speaks with a client over streams of lines, until the input ends or no reader is left. */
export async function serveMcp(
  world: RecallWorld,
  version: string,
  input: AsyncIterable<Uint8Array>,
  print: (text: string) => Promise<boolean>,
): Promise<void> {
  let isHeard = true;
  let last: Promise<unknown> = Promise.resolve();
  const send = (message: object): void => {
    const line = `${JSON.stringify(message).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029")}\n`;
    last = last.then(async () => {
      if (isHeard) isHeard = await print(line);
    });
  };
  const conversation = makeMcpConversation(world, version, send);
  const pending = new Set<Promise<void>>();
  const decoder = new LineDecoder(LONGEST);
  const take = (bytes: Uint8Array): void => {
    let message: unknown;
    try {
      message = parse(bytes);
    } catch {
      return send(conversation.refuse("parse"));
    }
    const reply: Promise<void> = conversation.take(message).then((one) => {
      pending.delete(reply);
      if (one !== undefined) send(one);
    });
    pending.add(reply);
  };
  const drain = (cut = decoder.next()): void => {
    for (let one = cut; one !== undefined; one = decoder.next())
      if (one.kind === "payload") take(one.bytes);
      else send(conversation.refuse("size", one.kind === "too_large" ? Buffer.from(one.bytes).toString("latin1") : ""));
  };
  for await (const chunk of input) {
    decoder.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    drain();
    if (!isHeard) break;
  }
  drain(decoder.end());
  const patience = new Promise((resolve) => setTimeout(resolve, LAST_REPLIES).unref());
  await Promise.race([Promise.allSettled(pending), patience]);
  conversation.end();
  await Promise.race([last, patience]);
}
