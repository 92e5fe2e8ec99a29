// Builds the program as one file and the library as modules with declarations.
import { execFileSync } from "node:child_process";
import { chmodSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);
rmSync("dist", { recursive: true, force: true });

await build({
  entryPoints: { "pi-session-server": "src/server/main.ts" },
  outdir: "dist/bin",
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20.19",
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: "none",
  external: ["vscode-jsonrpc", "vscode-jsonrpc/*"],
  logLevel: "warning",
});
chmodSync("dist/bin/pi-session-server.js", 0o755);

execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "tsconfig.lib.json"], { stdio: "inherit" });
