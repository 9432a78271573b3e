// What is promised of the console, one test each.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

const ORDERS = `CREATE STREAM orders (customer INT, amount INT);
CREATE MATERIALIZED VIEW revenue AS SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer;`;

/** Waits until something about the page holds. */
const until = (page, condition, argument) => page.waitForFunction(condition, argument);

const node = (name) => `.node[data-name="${name}"]`;
const hasRows = ([name, rows]) => document.querySelector(`.node[data-name="${name}"]`)?.dataset.rows === String(rows);

export const TESTS = [
  {
    name: "empty",
    async run(visit) {
      await visit.open();
      await visit.page.getByRole("heading", { name: "Nothing is here yet" }).waitFor();
      await visit.look("empty");
      await visit.page.getByRole("button", { name: "Try it in SQL" }).click();
      await visit.page.getByRole("button", { name: "Run", exact: true }).click();
      await visit.page.getByRole("cell", { name: "50" }).waitFor();
    },
  },
  {
    name: "demo",
    async run(visit) {
      const { page } = visit;
      await visit.open();
      await page.getByRole("button", { name: /Load the demo/ }).click();
      await page.locator(node("punctuality")).waitFor();
      await until(page, () => Number(document.querySelector('.node[data-name="flights"]')?.dataset.rows) > 3000);
      await page.locator(".edge.flowing").first().waitFor();
      // What would be the limit first is told by the model.
      await page.locator(".node.limit-cpu, .node.limit-one_task").first().waitFor();
      await visit.look("overview");
      // Its rate stays, whatever else is answered meanwhile.
      for (let looks = 0; looks < 25; looks++) {
        assert.match(await page.locator(`${node("flights")} .node-rate`).textContent(), /^\d.* rows\/s$/);
        await page.waitForTimeout(150);
      }
      await page.locator(node("airline_delays")).click();
      await page.locator(".detail .grid-row").first().waitFor();
      await page.locator(".detail pre", { hasText: "JOIN airlines" }).waitFor();
      await page.locator(".detail .uplot").first().waitFor();
      await page.getByRole("button", { name: "Watch it for 3 s" }).click();
      await page.locator(".detail pre", { hasText: /rows\/s/ }).waitFor();
      await visit.look("detail");
      // Arrows lead along the edges.
      await page.locator(node("airlines")).focus();
      await page.keyboard.press("ArrowRight");
      assert.equal(await page.evaluate(() => document.activeElement?.dataset.name), "airline_delays");
      await page.getByRole("button", { name: "Stop" }).click();
      await page.getByRole("button", { name: "Where its time goes" }).click();
      await page.getByText("no rows arrived").or(page.getByText("rows/s;")).first().waitFor();
    },
  },
  {
    name: "insert",
    async run(visit) {
      const { page, server } = visit;
      await server.sql(ORDERS);
      await visit.open();
      await page.locator(node("revenue")).waitFor();
      await until(page, hasRows, ["orders", 0]);
      await server.sql("INSERT INTO orders VALUES (1, 40), (2, 25), (1, 10)");
      await until(page, hasRows, ["orders", 3]);
      await until(page, hasRows, ["revenue", 2]);
      await visit.go("sql");
      await visit.write("revenue");
      await page.getByRole("button", { name: "Follow live" }).click();
      await page.getByRole("cell", { name: "50" }).waitFor();
      await server.sql("INSERT INTO orders VALUES (2, 975)");
      await page.getByRole("cell", { name: "1000", exact: true }).waitFor();
      await until(page, () => document.querySelector("[data-rows]")?.dataset.rows === "2");
      await visit.look("live");
      await page.getByRole("button", { name: "Over time" }).click();
      await page.locator(".live .uplot").waitFor();
      await page.getByRole("button", { name: "Chart" }).click();
      await page.locator(".live .uplot").waitFor();
      await page.getByRole("button", { name: "Stop" }).click();
    },
  },
  {
    name: "sql",
    async run(visit) {
      const { page, server } = visit;
      await server.sql(`${ORDERS} INSERT INTO orders SELECT i % 12, i FROM generate_series(1, 500) AS g(i)`);
      await visit.open("sql");
      await visit.run("SELECT 9223372036854775807 AS big, 'a \"b\", c' AS t, NULL AS n, ARRAY[1, 2] AS l;\nSELECT * FROM revenue ORDER BY 1;");
      await page.getByRole("cell", { name: "9223372036854775807" }).waitFor();
      await page.getByRole("cell", { name: 'a "b", c' }).waitFor();
      assert.equal(await page.locator(".result").count(), 2);
      await page.locator(".result").nth(1).getByRole("button", { name: "Chart" }).click();
      await page.locator(".result .uplot").waitFor();
      await visit.look("sql");
      // A file of what is shown.
      const saving = page.waitForEvent("download");
      await page.locator(".result").nth(0).getByRole("button", { name: "CSV" }).click();
      const text = await readFile(await (await saving).path(), "utf8");
      assert.equal(text, 'big,t,n,l\n9223372036854775807,"a ""b"", c",,"{1,2}"\n');
      // Names are completed.
      await visit.write("SELECT * FROM rev");
      await page.keyboard.press("Control+Space");
      await page.locator(".cm-tooltip-autocomplete", { hasText: "revenue" }).waitFor();
      await page.keyboard.press("Escape");
      visit.expectsFailures = true;
      // An error is underlined where it is, behind characters of two units too.
      await visit.run("SELECT '\u{1F600}' AS smile, nope FROM revenue");
      await page.getByRole("alert").waitFor();
      assert.equal(await page.locator(".cm-lintRange-error").first().textContent(), "nope");
      await visit.look("error", { dark: false });
      // What was run is remembered.
      await page.getByRole("button", { name: "History" }).click();
      await page.locator(".past li", { hasText: "9223372036854775807" }).getByRole("button").click();
      assert.match(await page.locator(".cm-content").textContent(), /9223372036854775807/);
    },
  },
  {
    name: "many-rows",
    async run(visit) {
      const { page, server } = visit;
      await visit.open("sql");
      await visit.run("SELECT i, repeat('x', i % 40) AS t FROM generate_series(1, 10000) AS g(i)");
      await page.locator(".tag", { hasText: "SELECT 10000" }).waitFor();
      const grid = page.locator(".grid");
      assert.ok((await page.locator(".grid-row").count()) < 120);
      await grid.evaluate((element) => (element.scrollTop = element.scrollHeight));
      await page.getByRole("cell", { name: "10000", exact: true }).waitFor();
      // Numbers are shown whole, also those that came late.
      const isCut = () => page.locator(".grid-row .number").evaluateAll((cells) => cells.some((cell) => cell.scrollWidth > cell.clientWidth));
      assert.equal(await isCut(), false);
      await grid.evaluate((element) => (element.scrollTop = 5000 * 26));
      await page.getByRole("cell", { name: "5000", exact: true }).waitFor();
      assert.ok((await page.locator(".grid-row").count()) < 120);
      await server.sql("CREATE TABLE sums (k INT PRIMARY KEY, n NUMERIC); INSERT INTO sums VALUES (1, 1), (2, 2)");
      await visit.write("sums");
      await page.getByRole("button", { name: "Follow live" }).click();
      await page.getByRole("cell", { name: "2", exact: true }).first().waitFor();
      await server.sql("UPDATE sums SET n = 12345678901234567890 WHERE k = 1");
      await page.getByRole("cell", { name: "12345678901234567890" }).waitFor();
      assert.equal(await isCut(), false);
    },
  },
  {
    name: "cancel",
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      await visit.open("sql");
      await visit.run("SELECT count(*) FROM generate_series(1, 1000000) AS a(i), generate_series(1, 1000000) AS b(j) WHERE (i * j) % 7 = 3");
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByText("57014").waitFor();
      await page.getByRole("button", { name: "Run", exact: true }).waitFor();
      const [active] = await server.sql("SELECT count(*) FROM mr_catalog.tasks");
      assert.deepEqual(active.rows, [[0]]);
    },
  },
  {
    name: "view",
    async run(visit) {
      const { page } = visit;
      await visit.open("sql");
      await visit.run(`${ORDERS} CREATE MATERIALIZED VIEW best AS SELECT * FROM revenue WHERE total > 100;`);
      await page.locator(".tag", { hasText: "CREATE MATERIALIZED VIEW" }).first().waitFor();
      await visit.go("overview");
      await page.locator(node("best")).waitFor();
      assert.equal(await page.locator(".edge").count(), 2);
      await visit.go("sql");
      await visit.run("DROP MATERIALIZED VIEW best");
      await page.locator(".tag", { hasText: "DROP MATERIALIZED VIEW" }).waitFor();
      await visit.go("overview");
      await page.locator(node("revenue")).waitFor();
      await page.locator(node("best")).waitFor({ state: "detached" });
    },
  },
  {
    name: "time",
    async run(visit) {
      const { page, server } = visit;
      await server.sql(`${ORDERS} INSERT INTO orders SELECT i % 100, i FROM generate_series(1, 200000) AS g(i)`);
      await visit.open("time");
      for (const [text, said] of [["", "There is no query"], ["SELECT 1; SELECT 2", "Only one query"]]) {
        await visit.write(text);
        await page.getByRole("button", { name: "Run and analyse" }).click();
        await page.getByRole("alert").filter({ hasText: said }).waitFor();
      }
      await visit.run("SELECT customer % 7 AS k, count(*), avg(amount) FROM orders GROUP BY 1 ORDER BY 2 DESC");
      await page.locator(".timeline canvas").waitFor();
      await page.locator(".verdict").waitFor();
      // The model answers the sliders, and nothing runs again.
      const profiles = async () => (await server.sql("SELECT count(*) FROM mr_catalog.profiles"))[0].rows[0][0];
      const before = await profiles();
      await page.getByLabel("cores").focus();
      for (let presses = 0; presses < 3; presses++) await page.keyboard.press("ArrowRight");
      await page.locator(".bar.predicted").waitFor();
      await page.getByLabel("the input is in memory already").check();
      await page.locator(".bar.predicted").waitFor();
      assert.equal(await profiles(), before);
      await page.locator(".what-if").getByRole("slider", { name: "memory" }).focus();
      await page.keyboard.press("ArrowRight");
      await page.locator(".what-if", { hasText: "spilled nothing: more would not change it" }).waitFor();
      await page.locator(".timeline canvas").hover({ position: { x: 200, y: 60 } });
      await visit.look("time");
      const feeding = setInterval(() => void server.sql("INSERT INTO orders SELECT i % 100, i FROM generate_series(1, 2000) AS g(i)").catch(() => {}), 100);
      await page.getByRole("button", { name: "Watch for 3 s" }).click();
      await page.locator(".stage-bar").first().waitFor();
      clearInterval(feeding);
      // The last epochs as monotasks, cores and the disk of the log.
      const drawn = await page.locator(".timeline canvas").getAttribute("aria-label");
      assert.match(drawn, /pieces of work on .*cpu.*disk/);
      await page.locator(".stage-legend li", { hasText: "the log" }).waitFor();
      // The model answers the sliders about what was watched, and nothing is watched again.
      await page.locator(".what-if").getByLabel("cores").focus();
      for (let presses = 0; presses < 3; presses++) await page.keyboard.press("ArrowRight");
      await page.locator(".what-if .bar.predicted").waitFor();
      await page.getByText("the limit is then").waitFor();
      await page.locator(".what-if").getByRole("slider", { name: "memory" }).focus();
      await page.keyboard.press("ArrowRight");
      await page.locator(".what-if", { hasText: "spilled nothing: more would not change it" }).waitFor();
      assert.equal(await page.locator(".what-if").getByRole("slider", { name: "network" }).isDisabled(), true);
      await visit.look("time-view");
      // What is drawn is what EXPLAIN ANALYZE has: the sums of the table are those of the document.
      const [seen] = await server.sql("EXPLAIN ANALYZE (DURATION '1ms', FORMAT JSON) MATERIALIZED VIEW revenue");
      const newest = JSON.parse(seen.rows[0][0]).id - 1;
      const { view, analysis } = await (await fetch(`${server.url}api/jobs/${newest}/profile`)).json();
      const bars = view.trace.run.stages.flatMap((stage) => stage.tasks.flatMap((task) => task.monotasks)).filter((monotask) => monotask.resource === "cpu");
      const cpu = analysis.epochs.resources.find((usage) => usage.resource === "cpu");
      assert.equal(bars.reduce((sum, bar) => sum + bar.service, 0), cpu.service);
      const cell = page.locator("tr", { hasText: "cpu: compute" }).first().locator("td").nth(2);
      const of = analysis.epochs.stages.findLast((usages) => usages.some((usage) => usage.kind === "compute")).find((usage) => usage.kind === "compute");
      assert.equal(await cell.textContent(), of.monotasks.toLocaleString("en-US"));
      await page.getByRole("button", { name: /^All 3/ }).click();
      await page.getByRole("button", { name: "Only its last second" }).waitFor();
    },
  },
  {
    name: "room",
    async run(visit) {
      const { page, server } = visit;
      await server.sql(`${ORDERS} INSERT INTO orders SELECT i % 100, i FROM generate_series(1, 50000) AS g(i); CHECKPOINT`);
      await visit.open("room");
      await page.locator(".room .uplot").first().waitFor();
      for (const name of ["Cores by class", "Memory", "Disks and network", "Pipelines", "Back-pressure", "Late rows", "Jobs", "Checkpoints", "Suspended tasks", "Workers"]) {
        await page.getByRole("heading", { name: new RegExp(`^${name}`) }).waitFor();
      }
      const feeding = setInterval(() => void server.sql("INSERT INTO orders SELECT i % 100, i FROM generate_series(1, 5000) AS g(i)").catch(() => {}), 100);
      await page.waitForTimeout(9000);
      clearInterval(feeding);
      await visit.look("room");
      // Where it is narrow no table goes beyond its panel, and each value has its head.
      await page.setViewportSize({ width: 390, height: 844 });
      const beyond = await page.locator(".room .table-box").evaluateAll((boxes) => boxes.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.getAttribute("aria-label")));
      assert.deepEqual(beyond, []);
      assert.equal(await page.locator('[aria-label="checkpoints"] td').first().evaluate((cell) => getComputedStyle(cell, "::before").content), '"pipeline "');
      await page.setViewportSize({ width: 1280, height: 800 });
      // An owner of memory keeps its colour, and what is nobody's has none.
      const colours = () => page.locator(".bar-line .bar").evaluateAll((bars) => bars.map((bar) => bar.className));
      assert.equal((await colours()).at(-1), "bar series-none");
      await page.getByRole("columnheader", { name: "under way for" }).waitFor();
      await page.getByRole("cell", { name: "done" }).first().waitFor();
    },
  },
  {
    name: "filling",
    async run(visit) {
      const { page, server } = visit;
      await server.sql("CREATE TABLE numbers (i INT); INSERT INTO numbers SELECT i FROM generate_series(1, 50000) AS g(i)");
      // Slowly, so that one can look at it.
      const made = fetch(`${server.url}api/sql`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ query: "CREATE MATERIALIZED VIEW slow AS SELECT i % 7 AS k, count(*) FROM numbers GROUP BY 1", settings: { background_ddl: "on", backfill_rate_limit: "100" } }),
      }).then((response) => response.json());
      const [result] = (await made).results;
      assert.ok(result.ok, JSON.stringify(result));
      await visit.open();
      // Who is behind is found at a glance, with the reason.
      await page.locator(".troubles li.filling", { hasText: "slow" }).waitFor();
      await page.locator(`${node("slow")}.filling`).waitFor();
      assert.equal(await page.locator(".edge").count(), 1);
      await visit.look("filling", { dark: false });
      await visit.go("room");
      await page.getByRole("progressbar", { name: "progress of slow" }).waitFor();
      await visit.look("jobs", { dark: false });
      const [job] = await server.sql("SELECT id FROM mr_catalog.jobs");
      await server.sql(`CANCEL JOB ${job.rows[0][0]}`);
      await page.getByText("No view is being made").waitFor();
    },
  },
  {
    name: "restart",
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      await server.sql(`${ORDERS} INSERT INTO orders VALUES (1, 40)`);
      await visit.open();
      await until(page, hasRows, ["revenue", 1]);
      await page.locator(node("revenue")).click();
      await page.locator(".detail .grid-row").waitFor();
      await server.end();
      await page.getByText("the server is away").waitFor();
      await page.locator(node("revenue")).waitFor();
      await visit.look("away", { dark: false });
      await server.begin();
      await page.getByText("connected").waitFor();
      // Its rows and its definition are read again.
      await page.locator(".detail .grid-row").waitFor();
      await page.locator(".detail pre", { hasText: "CREATE MATERIALIZED VIEW" }).waitFor();
      await page.keyboard.press("Escape");
      await server.sql("INSERT INTO orders VALUES (2, 25)");
      await until(page, hasRows, ["revenue", 2]);
      // A relation that is followed is followed again.
      await visit.go("sql");
      await visit.write("revenue");
      await page.getByRole("button", { name: "Follow live" }).click();
      await page.getByRole("cell", { name: "25" }).waitFor();
      await server.end();
      await page.getByText("following again").waitFor();
      await server.begin();
      await server.sql("INSERT INTO orders VALUES (2, 1)");
      await page.getByRole("cell", { name: "26" }).waitFor();
    },
  },
  {
    name: "login",
    environment: { MILLRACE_PASSWORD: "right horse" },
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      const as = { Authorization: `Basic ${Buffer.from("millrace:right horse").toString("base64")}` };
      await server.sql(ORDERS, as);
      let refused = 0;
      page.on("response", (response) => (refused += response.status() === 401 ? 1 : 0));
      await visit.open();
      await page.getByRole("heading", { name: "Log in" }).waitFor();
      await visit.look("login");
      // Without a login it is asked once whether there has to be one, and no more.
      await visit.go("sql");
      await visit.go("room");
      await visit.go("");
      await page.waitForTimeout(1500);
      assert.equal(refused, 1);
      await page.getByLabel("Password").fill("wrong");
      await page.getByRole("button", { name: "Log in", exact: true }).click();
      await page.getByText("The name or the password is wrong").waitFor();
      await page.getByLabel("Password").fill("right horse");
      await page.getByRole("button", { name: "Log in", exact: true }).click();
      await page.locator(node("revenue")).waitFor();
      await page.getByRole("button", { name: "millrace: log out" }).waitFor();
      // It is nowhere but in the page.
      const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
      assert.ok(!/horse|Basic|bWls/.test(kept), kept);
      assert.deepEqual(await page.context().cookies(), []);
      await page.reload();
      await page.getByRole("heading", { name: "Log in" }).waitFor();
      // A token does as well, and its role's rights are what counts.
      await server.sql("CREATE ROLE looker LOGIN PASSWORD 'x'; GRANT SELECT ON revenue TO looker", as);
      await server.sql("ALTER SYSTEM SET access_control = on", as);
      const [made] = await server.sql("CREATE TOKEN seen FOR ROLE looker", as);
      await page.getByRole("button", { name: "with a token" }).click();
      await page.getByLabel("Token").fill(made.rows[0].find((cell) => String(cell).startsWith('millrace_')) ?? made.rows[0][0]);
      await page.getByRole("button", { name: "Log in", exact: true }).click();
      await page.getByRole("button", { name: "looker: log out" }).waitFor();
      await visit.go("sql");
      await visit.run("SELECT * FROM orders");
      await page.getByText("42501").waitFor();
      // What one left in the editor after a login that was lost nobody else sees: not before the next login, nor after it.
      await visit.write("SELECT 'of the looker'");
      await page.reload();
      await page.getByRole("heading", { name: "Log in" }).waitFor();
      assert.equal(await page.locator(".cm-content").count(), 0);
      await page.getByLabel("Password").fill("right horse");
      await page.keyboard.press("Enter");
      await page.getByRole("button", { name: "millrace: log out" }).waitFor();
      await page.locator(".cm-content").waitFor();
      assert.ok(!(await page.locator("main").textContent()).includes("of the looker"));
      await page.getByRole("button", { name: "History" }).click();
      await page.getByText("Nothing was run yet").waitFor();
      // One's own are there after a reload.
      await visit.write("SELECT 'of the first'");
      await page.reload();
      await page.getByLabel("Password").fill("right horse");
      await page.keyboard.press("Enter");
      await page.locator(".cm-content", { hasText: "of the first" }).waitFor();
      await page.getByRole("button", { name: "millrace: log out" }).click();
      await page.getByRole("heading", { name: "Log in" }).waitFor();
      assert.ok(!(await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]))).includes("of the first"));
    },
  },
  {
    name: "quiet",
    async run(visit) {
      const { page, server } = visit;
      await server.sql(ORDERS);
      await visit.open();
      await page.locator(node("revenue")).waitFor();
      let requests = 0;
      page.on("request", () => requests++);
      // Nobody looks: nothing is asked.
      await page.evaluate(() => {
        Object.defineProperty(document, "visibilityState", { configurable: true, get: () => "hidden" });
        document.dispatchEvent(new Event("visibilitychange"));
      });
      await page.waitForTimeout(1500);
      requests = 0;
      await page.waitForTimeout(3000);
      assert.equal(requests, 0);
      await page.evaluate(() => {
        Object.defineProperty(document, "visibilityState", { configurable: true, get: () => "visible" });
        document.dispatchEvent(new Event("visibilitychange"));
      });
      await page.waitForRequest((request) => request.url().endsWith("/api/sql"));
    },
  },
];
