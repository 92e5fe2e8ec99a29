/** How each client is told to start this server. Printed for a person; nothing is written. */

import { quoteWord } from "../../core/export/resumable.ts";

interface Registration {
  /** The client as people call it. */
  readonly title: string;
  /** A command that registers the server, or the file in which the text belongs. */
  readonly where: string;
  text(command: readonly string[]): string;
}

const NAME = "sessions";

const asJson = (value: object): string => JSON.stringify(value, null, 2);
const inShell = (words: readonly string[]): string => words.map(quoteWord).join(" ");
const withArgs = ([command, ...args]: readonly string[]): object => ({ command, args });
const asToml = (text: string): string => JSON.stringify(text);

const registrations: Readonly<Record<string, Registration>> = {
  claude: {
    title: "Claude Code",
    where: "Run this (--scope user: for all projects), or put mcpServers of .mcp.json by hand:",
    text: (command) => `claude mcp add --scope user ${NAME} -- ${inShell(command)}`,
  },
  codex: {
    title: "Codex",
    where: "Add this to ~/.codex/config.toml:",
    text: ([command, ...args]) =>
      `[mcp_servers.${NAME}]\ncommand = ${asToml(command)}\nargs = [${args.map(asToml).join(", ")}]\nstartup_timeout_sec = 20`,
  },
  pi: {
    title: "Pi",
    where: "Run this (-l: for this project only):",
    text: (command) => `pi mcp add ${NAME} -- ${inShell(command)}`,
  },
  cursor: {
    title: "Cursor",
    where: "Add this to ~/.cursor/mcp.json:",
    text: (command) => asJson({ mcpServers: { [NAME]: withArgs(command) } }),
  },
  vscode: {
    title: "VS Code",
    where: "Add this to .vscode/mcp.json:",
    text: (command) => asJson({ servers: { [NAME]: { type: "stdio", ...withArgs(command) } } }),
  },
  zed: {
    title: "Zed",
    where: "Add this to settings.json:",
    text: (command) => asJson({ context_servers: { [NAME]: { ...withArgs(command), env: {} } } }),
  },
  gemini: {
    title: "Gemini CLI",
    where: "Add this to ~/.gemini/settings.json:",
    text: (command) => asJson({ mcpServers: { [NAME]: withArgs(command) } }),
  },
  opencode: {
    title: "opencode",
    where: "Add this to opencode.json:",
    text: (command) => asJson({ mcp: { [NAME]: { type: "local", command: [...command], enabled: true } } }),
  },
};

/** Returns the clients whose registration is known. */
export function listRecallClients(): readonly string[] {
  return Object.keys(registrations);
}

/** Returns the registration for a client as lines; undefined for a client that is not known. */
export function describeRecallRegistration(client: string, options: readonly string[]): string[] | undefined {
  if (!Object.hasOwn(registrations, client)) return undefined;
  const { title, where, text } = registrations[client];
  const command = ["pi-session-server", "mcp", ...options];
  return [`${title}. ${where}`, "", ...text(command).split("\n")];
}
