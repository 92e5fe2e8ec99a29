/** The client of the Agent Client Protocol's own package; each line that it gets is held against the schema of the protocol. */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { PassThrough, Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import { Ajv2020 } from "ajv/dist/2020.js";
import { require, Steps, until } from "./steps.js";

/** Returns a function that names the fault of a message of an agent; undefined for a valid one. */
function schemaOf(modules) {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  const schema = JSON.parse(readFileSync(join(modules, "@agentclientprotocol/sdk/schema/v1/schema.json"), "utf8"));
  ajv.addSchema(schema, "acp");
  const definitions = Object.entries(schema.$defs);
  const named = (method, side, end) =>
    definitions.find(([name, def]) => def["x-method"] === method && def["x-side"] === side && name.endsWith(end))?.[0];
  return (message, asked) => {
    if (message.jsonrpc !== "2.0") return "jsonrpc is not 2.0";
    const [name, value] =
      message.method === "session/update"
        ? ["SessionNotification", message.params]
        : message.method !== undefined
          ? [named(message.method, "client", "Request"), message.params]
          : message.error
            ? ["Error", message.error]
            : [named(asked.get(message.id), "agent", "Response"), message.result];
    if (!name) return undefined;
    const validate = ajv.getSchema(`acp#/$defs/${name}`);
    return validate?.(value) === false ? `${name}: ${ajv.errorsText(validate.errors)}` : undefined;
  };
}

/** Drives a program with the client. `hasAgent`: prompts are answered. */
export async function drive({ modules, program, args, env, cwd, hasAgent, words }) {
  const folder = join(modules, "@agentclientprotocol/sdk");
  const { exports } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const sdk = await import(pathToFileURL(join(folder, exports["."].import)).href);
  const steps = new Steps();
  const wrong = [];
  const validate = schemaOf(modules);
  const updates = [];
  let answers = 0;
  const texts = () =>
    updates
      .filter(({ update }) => update.sessionUpdate === "agent_message_chunk")
      .map(({ update }) => update.content.text)
      .join("");

  const connected = async (work) => {
    const child = spawn(program, args, {
      cwd,
      env: { PATH: process.env.PATH, ...env },
      stdio: ["pipe", "pipe", "ignore"],
    });
    const asked = new Map();
    const toAgent = new PassThrough();
    const fromAgent = new PassThrough();
    createInterface({ input: toAgent }).on("line", (line) => {
      const { id, method } = JSON.parse(line);
      if (id !== undefined && method) asked.set(id, method);
      child.stdin.write(`${line}\n`);
    });
    createInterface({ input: child.stdout }).on("line", (line) => {
      const fault = validate(JSON.parse(line), asked);
      if (fault) wrong.push(fault);
      fromAgent.write(`${line}\n`);
    });
    child.stdin.on("error", () => {});
    child.on("close", () => fromAgent.end());
    const app = sdk
      .client({ name: "clients" })
      .onNotification("session/update", ({ params }) => void updates.push(params))
      .onRequest("session/request_permission", async ({ params }) => {
        answers++;
        return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
      });
    try {
      await app.connectWith(sdk.ndJsonStream(Writable.toWeb(toAgent), Readable.toWeb(fromAgent)), work);
    } finally {
      const closed = new Promise((resolve) => child.once("close", resolve));
      child.stdin.end();
      const late = setTimeout(() => child.kill("SIGKILL"), 5000);
      if (child.exitCode === null && child.signalCode === null) await closed;
      clearTimeout(late);
    }
  };
  const begin = (agent) =>
    agent.request("initialize", {
      protocolVersion: 1,
      clientCapabilities: {},
      clientInfo: { name: "clients", version: "1" },
    });
  const { session } = sdk.methods.agent;
  const say = (text) => [{ type: "text", text }];
  let sessionId;

  await connected(async (agent) => {
    await steps.take("initialize", () => begin(agent));
    const made = await steps.take("session/new", () => agent.request(session.new, { cwd, mcpServers: [] }));
    sessionId = made?.sessionId;
    if (!sessionId) return;
    if (!hasAgent) {
      await steps.take("a prompt is refused with a sentence", async () => {
        const refused = await agent
          .request(session.prompt, { sessionId, prompt: say("hello") })
          .catch((error) => error.message);
        const said = typeof refused === "string" ? refused : texts();
        require(/no model/.test(said), `it said ${JSON.stringify(said)}`);
      });
      return;
    }
    const prompt = (text) => agent.request(session.prompt, { sessionId, prompt: say(text) });
    await steps.take("session/prompt", async () => {
      const { stopReason } = await prompt("hello there");
      require(stopReason === "end_turn", stopReason);
      await until(() => texts().includes("hello there"), "the answer");
    });
    await steps.take("tool call", async () => {
      await prompt(words.tool);
      const calls = updates.filter(({ update }) => update.sessionUpdate.startsWith("tool_call"));
      require(calls.some(({ update }) => /completed|failed/.test(update.status)), "no call ended");
    });
    if (words.ask)
      await steps.take("permission", async () => {
        await prompt(words.ask);
        require(answers > 0, "nobody was asked");
      });
    await steps.take("session/cancel", async () => {
      updates.length = 0;
      const turn = prompt(words.slow);
      await until(() => texts() !== "", "the first piece");
      await agent.notify(session.cancel, { sessionId });
      const { stopReason } = await turn;
      require(stopReason === "cancelled", stopReason);
    });
    if (made.configOptions?.length > 0)
      await steps.take("session/set_config_option (model)", async () => {
        const { options } = made.configOptions.find(({ id }) => id === "model");
        const value = options.at(-1).value;
        const { configOptions } = await agent.request(session.setConfigOption ?? "session/set_config_option", {
          sessionId,
          configId: "model",
          value,
        });
        require(configOptions.find(({ id }) => id === "model").currentValue === value, "another model");
      });
  });
  await connected(async (agent) => {
    const begun = await begin(agent);
    const listed = await steps.take("session/list", async () => {
      const { sessions } = await agent.request(session.list, { cwd });
      require(!hasAgent || sessions.some((one) => one.sessionId === sessionId), "it is not there");
      return sessions;
    });
    if (!hasAgent || !listed) return;
    updates.length = 0;
    await steps.take("session/load, in another process", async () => {
      require(begun.agentCapabilities?.loadSession === true, "it is not offered");
      await agent.request(session.load, { sessionId, cwd, mcpServers: [] });
      require(updates.some(({ update }) => update.sessionUpdate === "user_message_chunk"), "nothing was shown");
    });
    await steps.take("going on with it", async () => {
      const { stopReason } = await agent.request(session.prompt, { sessionId, prompt: say("and again") });
      require(stopReason === "end_turn", stopReason);
    });
  });
  await steps.take("every line fits the schema", async () => require(wrong.length === 0, wrong[0]));
  return steps;
}
