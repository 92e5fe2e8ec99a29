/** A provider of models on 127.0.0.1 in place of a real one: it answers every request, in pieces. */

import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

/** Starts it. Returns how Pi finds it, and its end. */
export async function startProvider() {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => void answer(JSON.parse(body), response));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  return { baseUrl: `http://127.0.0.1:${port}/v1`, close: () => server.close() };
}

/** Writes the settings that make Pi use this provider. */
export function configure(agentFolder, baseUrl) {
  mkdirSync(agentFolder, { recursive: true });
  const model = { reasoning: false, input: ["text"], contextWindow: 100_000, maxTokens: 4096 };
  const models = ["1", "2"].map((number) => ({ id: `stub-${number}`, name: `Stub ${number}`, ...model }));
  const stub = { baseUrl, api: "openai-completions", apiKey: "none", models };
  writeFileSync(join(agentFolder, "models.json"), JSON.stringify({ providers: { stub } }));
  const settings = { defaultProvider: "stub", defaultModel: "stub-1", quietStartup: true };
  writeFileSync(join(agentFolder, "settings.json"), JSON.stringify(settings));
}

const textOf = (content) =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");

async function answer({ messages = [] }, response) {
  const last = messages.at(-1) ?? {};
  const said = textOf(messages.findLast(({ role }) => role === "user")?.content);
  response.writeHead(200, { "content-type": "text/event-stream" });
  const chunk = (delta, finish_reason = null) =>
    response.write(
      `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", created: 0, model: "stub-1", choices: [{ index: 0, delta, finish_reason }] })}\n\n`,
    );
  const end = (reason) => {
    chunk({}, reason);
    const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
    response.write(
      `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", created: 0, model: "stub-1", choices: [], usage })}\n\n`,
    );
    response.end("data: [DONE]\n\n");
  };
  if (/read (?:a|the) file/.test(said) && last.role === "user") {
    const path = /read the file (\S+?)\.?$/.exec(said)?.[1] ?? "hello.txt";
    const call = { name: "read", arguments: JSON.stringify({ path }) };
    chunk({
      role: "assistant",
      tool_calls: [{ index: 0, id: `call_${messages.length}`, type: "function", function: call }],
    });
    return end("tool_calls");
  }
  chunk({ role: "assistant", content: "" });
  const isSlow = /slowly/.test(said);
  for (let i = 0; i < (isSlow ? 2000 : 1) && !response.destroyed; i++) {
    chunk({ content: isSlow ? `${i} ` : `Heard: ${said.slice(0, 60)}` });
    if (isSlow) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  end("stop");
}
