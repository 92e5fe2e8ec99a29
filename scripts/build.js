// Builds the program as one file and the library as modules with declarations.
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, renameSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);
// What is in use stays until the new build is whole.
const fresh = `dist.${process.pid}.tmp`;

try {
  await build({
    entryPoints: { "pi-session-server": "src/server/main.ts" },
    outdir: `${fresh}/bin`,
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
  chmodSync(`${fresh}/bin/pi-session-server.js`, 0o755);

  execFileSync(
    process.execPath,
    ["node_modules/typescript/bin/tsc", "-p", "tsconfig.lib.json", "--outDir", `${fresh}/lib`],
    {
      stdio: "inherit",
    },
  );

  if (existsSync("dist")) renameSync("dist", `${fresh}.old`);
  renameSync(fresh, "dist");
} finally {
  for (const left of [fresh, `${fresh}.old`]) rmSync(left, { recursive: true, force: true });
}
