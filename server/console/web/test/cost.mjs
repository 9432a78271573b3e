// What the console costs while somebody looks: `node test/cost.mjs [seconds]`, with MILLRACE_BIN as target/release/millrace.
//
// A client writes at a steady rate. Alternately nobody looks, and somebody at each page, where one of Time watches a view meanwhile; the server's processor time and the
// freshness of its view are measured in between. Medians of the rounds are printed, with the least and the most of p99.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { Server } from "./server.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../../../..");
const binary = process.env.MILLRACE_BIN ?? join(root, "target/release/millrace");
const seconds = Number(process.argv[2] ?? 10);
const ROUNDS = 7;
const PAGES = ["nobody", "overview", "room", "time", "sql"];
const WRITES_A_SECOND = 20;
const ROWS = 500;

const executablePath = [process.env.MILLRACE_CHROMIUM, "/usr/bin/chromium-headless-shell", "/usr/bin/chromium"].find((path) => path && existsSync(path));
// What the page makes the server do is measured, and not what drawing it takes of the same cores.
const directory = mkdtempSync(join(tmpdir(), "cost"));
const unhurried = join(directory, "browser");
writeFileSync(unhurried, `#!/bin/sh\nexec nice -n 19 ${executablePath} "$@"\n`, { mode: 0o755 });
const browser = await chromium.launch({ executablePath: unhurried, args: ["--no-sandbox"] });
const server = await Server.start(binary);
await server.sql(`CREATE STREAM orders (customer INT, amount INT);
  CREATE TABLE customers (id INT PRIMARY KEY, country TEXT);
  INSERT INTO customers SELECT i, 'c' || i % 20 FROM generate_series(0, 999) AS g(i);
  CREATE MATERIALIZED VIEW per_customer AS SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer;
  CREATE MATERIALIZED VIEW per_country AS SELECT c.country, count(*) AS n, sum(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.country;
  CREATE MATERIALIZED VIEW best AS SELECT * FROM per_customer ORDER BY total DESC LIMIT 10;`);
const body = Array.from({ length: ROWS }, (_, at) => JSON.stringify({ customer: (at * 7919) % 1000, amount: at })).join("\n");
let isWriting = true;
const writing = (async () => {
  while (isWriting) {
    const begun = performance.now();
    await fetch(`${server.url}api/ingest/orders`, { method: "POST", headers: { "Content-Type": "application/x-ndjson" }, body });
    await new Promise((done) => setTimeout(done, Math.max(0, 1000 / WRITES_A_SECOND - (performance.now() - begun))));
  }
})();

const found = Object.fromEntries(PAGES.map((page) => [page, []]));
for (let round = 0; round < ROUNDS; round++) {
  for (const name of PAGES) {
    const page = name === "nobody" ? undefined : await browser.newPage();
    await page?.goto(`${server.url}#/${name}`);
    await new Promise((done) => setTimeout(done, 3000));
    const before = await server.cpuSeconds();
    const begun = performance.now();
    if (name === "time") await page.getByRole("button", { name: "Watch for 3 s" }).click();
    const [answer] = await server.sql(`EXPLAIN ANALYZE (DURATION '${seconds}s', FORMAT JSON) MATERIALIZED VIEW per_country`);
    const { freshness } = JSON.parse(answer.rows[0][0]).analysis;
    const cores = ((await server.cpuSeconds()) - before) / ((performance.now() - begun) / 1000);
    found[name].push({ cores, p50: freshness.p50 / 1e6, p99: freshness.p99 / 1e6 });
    await page?.close();
  }
}
isWriting = false;
await writing;
await browser.close();
rmSync(directory, { recursive: true });
await server.remove();

const median = (values) => values.sort((one, other) => one - other)[Math.floor(values.length / 2)];
const nobody = median(found.nobody.map((entry) => entry.cores));
console.log(`${WRITES_A_SECOND * ROWS} rows/s into three views, ${ROUNDS} rounds of ${seconds} s, ${binary}`);
for (const name of PAGES) {
  const [cores, p50, p99] = ["cores", "p50", "p99"].map((key) => median(found[name].map((entry) => entry[key])));
  const p99s = found[name].map((entry) => entry.p99);
  const spread = `${Math.min(...p99s).toFixed(2)} to ${Math.max(...p99s).toFixed(2)}`;
  const more = name === "nobody" ? "" : `  ${((cores - nobody) * 100).toFixed(2)} % of a core more`;
  console.log(`${name.padEnd(9)} ${(cores * 100).toFixed(2).padStart(6)} % of a core  freshness p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms (${spread})${more}`);
}
