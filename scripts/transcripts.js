// Records the golden transcripts of docs/conformance anew: the messages that they send stay, the messages that they
// receive are the built server's answers. A line {"receive":null} asks for one more message.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { importSources, root } from "./import-sources.js";

const { recordTranscript, loadTranscripts } = await importSources(`
  export { recordTranscript } from "./scripts/transcripts.ts";
  export { loadTranscripts } from "./src/conformance/transcripts.ts";`);
const home = mkdtempSync(join(tmpdir(), "pi-session-transcripts-"));
try {
  const command = [process.execPath, join(root, "dist/bin/pi-session-server.js")];
  const variables = { PATH: process.env.PATH, HOME: home, PI_SESSION_SERVER_STATE_DIR: home };
  for (const transcript of loadTranscripts())
    writeFileSync(
      join(root, `docs/conformance/${transcript.name}.jsonl`),
      await recordTranscript(transcript, { command, cwd: home, variables }),
    );
} finally {
  rmSync(home, { recursive: true, force: true });
}
