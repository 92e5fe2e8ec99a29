// Records the golden transcripts of docs/conformance anew: the messages that they send stay, the messages that they
// receive are the built server's answers. A line {"receive":null} asks for one more message.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const contents = `
  export { recordTranscript } from "./scripts/transcripts.ts";
  export { loadTranscripts } from "./src/conformance/transcripts.ts";`;
const home = mkdtempSync(join(tmpdir(), "pi-session-transcripts-"));
const folder = join(root, "docs/conformance");
try {
  // Two folders down, as the module whose path to the transcripts it has.
  const outfile = join(root, "dist/transcripts/recorder.mjs");
  await build({ stdin: { contents, resolveDir: root }, bundle: true, format: "esm", platform: "node", outfile });
  const { recordTranscript, loadTranscripts } = await import(pathToFileURL(outfile).href);
  const command = [process.execPath, join(root, "dist/bin/pi-session-server.js")];
  const variables = { PATH: process.env.PATH, HOME: home, PI_SESSION_SERVER_STATE_DIR: home };
  for (const transcript of loadTranscripts())
    writeFileSync(
      join(folder, `${transcript.name}.jsonl`),
      await recordTranscript(transcript, { command, cwd: home, variables }),
    );
} finally {
  for (const made of [home, join(root, "dist/transcripts")]) rmSync(made, { recursive: true, force: true });
}
