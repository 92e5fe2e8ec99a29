/** Pi's own RpcClient, from either generation, at the other end of a program that stands in Pi's place. */

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { require, Steps, until } from "./steps.js";

/** Drives a program with the client. `hasAgent`: prompts are answered. */
export async function drive({ folder, program, args, env, cwd, hasAgent, isReal }) {
  const { RpcClient } = await import(pathToFileURL(join(folder, "dist/modes/rpc/rpc-client.js")).href);
  const steps = new Steps();
  const client = new RpcClient({ cliPath: program, args, env, cwd });
  const events = [];
  await steps.take("start", () => client.start());
  client.onEvent((event) => events.push(event));
  const state = await steps.take("get_state", async () => {
    const state = await client.getState();
    require(typeof state.sessionId === "string", "no session id");
    return state;
  });
  // Later versions have the system's message among them.
  const messages = async () => (await client.getMessages()).filter(({ role }) => role !== "system");
  // Later versions say after the end of a turn that they have settled, which may come when the next one is asked for.
  const idle = () => {
    const begun = events.findIndex(({ type }) => type === "agent_start");
    const isEnd = ({ type, willRetry }) => type === "agent_settled" || (type === "agent_end" && !willRetry);
    return begun >= 0 && events.slice(begun).some(isEnd);
  };
  const prompt = async (text) => {
    events.length = 0;
    await client.prompt(text);
    await until(idle, "the end of the turn");
  };
  if (!hasAgent) {
    await steps.take("a prompt is refused with a sentence", async () => {
      // Either generation waits for the reply, and not all look whether it is a refusal.
      await client.prompt("hello").catch(() => {});
      const isNotice = ({ type, method, message }) =>
        type === "extension_ui_request" && method === "notify" && message.includes("no model");
      await until(() => events.some(isNotice), "a notice");
    });
  } else {
    await steps.take("prompt", async () => {
      await prompt("hello there");
      require(events.some(({ type }) => type === "message_update"), "no text came");
    });
    await steps.take("get_messages", async () => {
      const { length } = await messages();
      require(length === 2, `${length} messages`);
    });
    await steps.take("get_last_assistant_text", async () => {
      require((await client.getLastAssistantText())?.includes("hello there"), "another text");
    });
    await steps.take("tool call", async () => {
      await prompt(isReal ? "read a file" : "tools 1");
      require(events.some(({ type }) => type === "tool_execution_end"), "no tool ran");
    });
    await steps.take("abort", async () => {
      events.length = 0;
      await client.prompt(isReal ? "slowly" : "chunks 100000 every 20");
      await until(() => events.some(({ type }) => type === "message_update"), "the first piece");
      await client.abort();
      await until(idle, "the end");
    });
    await steps.take("bash", async () => {
      require((await client.bash("echo out")).output.includes("out"), "no output");
    });
    await steps.take("get_available_models, set_model", async () => {
      const [model] = (await client.getAvailableModels()).filter(({ id }) => /^(?:stub|scripted)-2$/.test(id));
      require(model, "no second model");
      await client.setModel(model.provider, model.id);
      require((await client.getState()).model.id === model.id, "another model");
    });
    await steps.take("get_fork_messages, fork", async () => {
      const forkable = await client.getForkMessages();
      require(forkable.length >= 2, `${forkable.length} messages`);
      const { cancelled, text } = await client.fork(forkable[1].entryId);
      require(cancelled === false && typeof text === "string", "cancelled");
      await prompt("in the fork");
      require((await messages()).length === 4, "other messages in the fork");
    });
    if (isReal)
      await steps.take("compact", async () => {
        await prompt("a little more");
        const { summary } = await client.compact().catch((error) => {
          // Pi itself has nothing to summarise in short sessions.
          if (/nothing to compact|already compacted|too small/i.test(error.message)) return { summary: "" };
          throw error;
        });
        require(typeof summary === "string", "no summary");
      });
  }
  await steps.take("set_session_name", async () => {
    await client.setSessionName("A name");
    require((await client.getState()).sessionName === "A name", "another name");
  });
  await steps.take("new_session, switch_session", async () => {
    require((await client.newSession()).cancelled === false, "cancelled");
    require((await client.getState()).sessionId !== state?.sessionId, "the same session");
    if (hasAgent) {
      await prompt("in a new session");
      require((await client.switchSession(state.sessionFile)).cancelled === false, "cancelled");
      require((await messages()).length >= 4, "other messages");
      await prompt("back again");
    }
  });
  await steps.take("get_session_stats", async () => {
    require(typeof (await client.getSessionStats()).totalMessages === "number", "no counts");
  });
  await steps.take("get_commands", async () => require(Array.isArray(await client.getCommands()), "no list"));
  if (client.getTree && hasAgent)
    await steps.take("get_tree, get_entries", async () => {
      require((await client.getTree()).tree.length > 0, "an empty tree");
      require((await client.getEntries()).entries.length > 0, "no entries");
    });
  await steps.take("stop", () => client.stop());
  return steps;
}
