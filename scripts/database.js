// A PostgreSQL of one's own, in a folder, which is reached by its socket.
import { execFileSync, spawn } from "node:child_process";
import { chownSync, existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

function postgresFolder() {
  const root = "/usr/lib/postgresql";
  const versions = existsSync(root) ? readdirSync(root).sort((a, b) => Number(b) - Number(a)) : [];
  const found = [process.env.PI_TEST_PG ?? "", ...versions.map((version) => join(root, version, "bin"))].find(
    (folder) => folder !== "" && existsSync(join(folder, "initdb")),
  );
  if (found) return found;
  console.error(
    "There is no PostgreSQL here. Install it (apt-get install postgresql), or name the folder of its programs",
  );
  console.error("in PI_TEST_PG, and try again.");
  process.exit(1);
}

/** The user who runs PostgreSQL, which refuses to be run by root. */
function databaseUser() {
  if (process.getuid?.() !== 0) return {};
  const idOf = (what) => Number(execFileSync("id", [what, "postgres"], { encoding: "utf8" }));
  return { uid: idOf("-u"), gid: idOf("-g") };
}

/** Starts it. Returns its process. */
export async function startDatabase(folder) {
  const programs = postgresFolder();
  const user = databaseUser();
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid);
  const data = join(folder, "data");
  const options = { cwd: folder, stdio: ["ignore", "ignore", "pipe"], ...user };
  execFileSync(
    join(programs, "initdb"),
    ["-D", data, "-U", "fleet", "-A", "trust", "-E", "UTF8", "--locale=C"],
    options,
  );
  writeFileSync(join(data, "postgresql.auto.conf"), `listen_addresses = ''\nunix_socket_directories = '${folder}'\n`);
  const server = spawn(join(programs, "postgres"), ["-D", data], options);
  await new Promise((resolve, reject) => {
    server.stderr.on("data", (chunk) => String(chunk).includes("ready to accept connections") && resolve());
    server.on("exit", () => reject(new Error("PostgreSQL did not start")));
  });
  return server;
}

/** Ends it. */
export async function endDatabase(server) {
  // A start that fails would throw; this end is meant.
  server.removeAllListeners("exit");
  const ended = new Promise((resolve) => server.on("exit", resolve));
  server.kill("SIGINT");
  await ended;
}
