/** The door of the module. */

import type { AgentOptions, EditorFacts, PiBehind, PiWire } from "../../server/agents-module.ts";
import type { Face, FaceWire } from "../../server/face.ts";
import { AcpBackend } from "./acp/acp-backend.ts";
import { AcpConversation } from "./acp/conversation.ts";
import type { AgentSetup } from "./behind/agent-server.ts";
import { ShownComplaints } from "./behind/process.ts";
import { PiBackend } from "./pi/pi-backend.ts";
import { PiForwarder } from "./pi/pi-forwarder.ts";

export function startEditorFace(wire: FaceWire, facts: EditorFacts, agent?: AgentOptions): Face {
  return new AcpConversation(wire, { ...facts, agent: agent && startBackend(wire, facts, setUp(agent)) });
}

function startBackend(wire: FaceWire, { version }: EditorFacts, agent: AgentSetup): PiBackend | AcpBackend {
  return agent.protocol === "pi" ? new PiBackend(wire, agent) : new AcpBackend(wire, agent, version);
}

export function startPiBehind(wire: PiWire, agent: AgentOptions): PiBehind {
  return new PiForwarder(wire, setUp(agent));
}

/** Limits what is shown of the stderr of an agent, however often it is started. */
function setUp(options: AgentOptions): AgentSetup {
  const complaints = new ShownComplaints(options.printError);
  return { ...options, complain: (sentence) => complaints.take(sentence) };
}
