// A server of its own for each test: the binary that was built, on free ports, with data that nobody else has.
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

export class Server {
  constructor(binary, data, pg, http, environment) {
    Object.assign(this, { binary, data, pg, http, environment });
    this.url = `http://127.0.0.1:${http}/`;
  }

  static async start(binary, environment = {}) {
    const data = await mkdtemp(join(tmpdir(), "millrace-console-"));
    const server = new Server(binary, data, await freePort(), await freePort(), environment);
    await server.begin();
    return server;
  }

  async begin() {
    const args = ["serve", "--data", this.data, "--pg", `127.0.0.1:${this.pg}`, "--http", `127.0.0.1:${this.http}`];
    this.process = spawn(this.binary, args, { env: { ...process.env, ...this.environment }, stdio: ["ignore", "ignore", "pipe"] });
    let said = "";
    this.process.stderr.on("data", (text) => (said = (said + text).slice(-4000)));
    this.ended = new Promise((done) => this.process.once("exit", done));
    for (let tries = 0; ; tries++) {
      const response = await fetch(`${this.url}ready`).catch(() => undefined);
      if (response?.ok) return;
      if (this.process.exitCode !== null || tries > 600) throw new Error(`the server did not start:\n${said}`);
      await new Promise((done) => setTimeout(done, 100));
    }
  }

  async end() {
    this.process.kill("SIGTERM");
    await this.ended;
  }

  async remove() {
    await this.end();
    await rm(this.data, { recursive: true, force: true });
  }

  /** Runs SQL as another client would. */
  async sql(query, headers = {}) {
    const response = await fetch(`${this.url}api/sql`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers },
      body: JSON.stringify({ query }),
    });
    const answer = await response.json();
    const failed = answer.error ?? answer.results?.find((result) => result.error)?.error;
    if (failed) throw new Error(`${query}: ${failed.message}`);
    return answer.results;
  }

  /** Processor time of the server so far, in seconds. */
  async cpuSeconds() {
    const text = await (await fetch(`${this.url}metrics`)).text();
    return Number(/^millrace_cpu_seconds_total (\S+)/m.exec(text)?.[1]);
  }
}
