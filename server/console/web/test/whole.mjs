// What is promised of all pages: every number says what it means, work goes on while another page is shown, and nobody is led nowhere.
import assert from "node:assert/strict";

const ORDERS = "CREATE STREAM orders (customer INT, amount INT); CREATE MATERIALIZED VIEW revenue AS SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer;";
const FOREVER = "SELECT count(*) FROM generate_series(1, 1000000) AS a(i), generate_series(1, 1000000) AS b(j) WHERE (i * j) % 7 = 3";
const node = (name) => `.node[data-name="${name}"]`;

export const WHOLE = [
  {
    name: "told",
    async run(visit) {
      const { page, server } = visit;
      await server.sql("CREATE STREAM ev (k INT, v INT, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'); CREATE MATERIALIZED VIEW win AS SELECT k, count(*) AS c FROM ev GROUP BY k; CREATE STREAM gen (id BIGINT, v INT) WITH (connector = 'datagen', rate = 100, fields.id.kind = 'sequence'); CREATE MATERIALIZED VIEW gv AS SELECT v % 3 AS g, count(*) AS c FROM gen GROUP BY 1");
      await server.sql("CREATE VIEW low AS SELECT * FROM ev WHERE v < 0; CREATE MATERIALIZED VIEW rare AS SELECT k, v FROM low; CREATE MATERIALIZED VIEW closes AS SELECT window_start, count(*) AS c FROM TUMBLE(ev, ts, INTERVAL '1 day') GROUP BY window_start EMIT ON WINDOW CLOSE; CREATE STREAM unused (i INT); CREATE MATERIALIZED VIEW still AS SELECT count(*) AS c FROM unused");
      const feeding = setInterval(() => void server.sql("INSERT INTO ev SELECT i % 50, i, now() FROM generate_series(1, 100) AS g(i)").catch(() => {}), 100);
      await visit.open();
      await page.locator(".edge.flowing").first().waitFor();
      assert.deepEqual(await visit.untold(), []);
      // What takes rows works, and is limited by something, although it puts none out.
      for (const name of ["rare", "closes"]) {
        await page.locator(`${node(name)}.ok:not(.limit-none)`).waitFor();
        assert.match(await page.locator(`${node(name)} .node-rate`).textContent(), /^0 rows\/s$/);
        await page.locator(node(name)).click();
        await page.locator(`.detail[aria-label$=" ${name}"] [role=img][aria-label^="freshness of"]`).waitFor();
        assert.equal(await page.getByText("No rows came while one looked").count(), 0);
      }
      await page.locator(`${node("still")}.idle.limit-none`).waitFor();
      await page.locator(node("win")).click();
      await page.locator(".detail .grid-row").first().waitFor();
      assert.deepEqual(await visit.untold(), []);
      await visit.go("time");
      await visit.run("SELECT k, count(*), sum(v) FROM ev GROUP BY 1");
      await page.locator(".timeline canvas").waitFor();
      await page.locator(".about", { hasText: "The query SELECT k, count(*)" }).waitFor();
      assert.deepEqual(await visit.untold(), []);
      await page.locator(".time-choice select").selectOption("gv");
      await page.getByRole("button", { name: "Watch for 3 s" }).click();
      await page.locator(".about", { hasText: "The view gv" }).waitFor();
      assert.deepEqual(await visit.untold(), []);
      await server.sql("CHECKPOINT");
      await visit.go("room");
      await page.locator(".room .uplot").first().waitFor();
      await page.waitForTimeout(8000);
      clearInterval(feeding);
      assert.deepEqual(await visit.untold(), []);
      // A cell tells what the head of its column does; a finger gets it with a tap, and the keyboard at the head.
      await page.locator('[aria-label="classes"] td').nth(2).hover();
      await page.locator(".tip", { hasText: "How long a task that is ready waits" }).waitFor();
      await page.locator('[aria-label="classes"] th').nth(1).focus();
      await page.locator(".tip", { hasText: "Cores that its tasks keep busy" }).waitFor();
      const touch = await page.context().browser().newContext({ viewport: { width: 390, height: 844 }, hasTouch: true });
      const phone = await touch.newPage();
      await phone.goto(server.url);
      await phone.locator(".summary .metric").nth(3).tap();
      await phone.locator(".tip").waitFor();
      await touch.close();
      assert.ok(!/query query|view view/.test(await page.locator(".room").textContent()));
    },
  },
  {
    name: "still",
    async run(visit) {
      const { page, server } = visit;
      await server.sql(`${ORDERS} CREATE TABLE z (v INT); CREATE MATERIALIZED VIEW g WITH (on_error = 'fail') AS SELECT 10 / v AS q FROM z`);
      await page.addInitScript(() => {
        globalThis.shifted = 0;
        new PerformanceObserver((list) => list.getEntries().forEach((entry) => (globalThis.shifted += entry.hadRecentInput ? 0 : entry.value))).observe({ type: "layout-shift", buffered: true });
      });
      const feeding = setInterval(() => void server.sql("INSERT INTO orders SELECT i % 20, i FROM generate_series(1, 50) AS g(i)").catch(() => {}), 200);
      await visit.open();
      await page.locator(node("revenue")).waitFor();
      await page.waitForTimeout(2500);
      // What appears has its room already.
      await server.sql("INSERT INTO z VALUES (0)");
      await page.locator(".troubles li.failed").waitFor();
      await page.locator(node("revenue")).click();
      await page.waitForTimeout(3000);
      await visit.go("room");
      await page.waitForTimeout(7000);
      clearInterval(feeding);
      const shifted = await page.evaluate(() => globalThis.shifted);
      assert.ok(shifted < 0.01, `${shifted}`);
    },
  },
  {
    name: "time-stays",
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      await server.sql(ORDERS);
      await visit.open("time");
      await visit.run(FOREVER);
      await page.getByRole("button", { name: "Cancel" }).waitFor();
      await visit.go("overview");
      await page.locator(node("revenue")).waitFor();
      await visit.go("time");
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("alert").filter({ hasText: "57014" }).waitFor();
      // An error is underlined, with the server's hint.
      await visit.run("SELEC 1");
      await page.getByText("Did you mean SELECT?").waitFor();
      assert.equal(await page.locator(".cm-lintRange-error").first().textContent(), "SELEC");
      await page.reload();
      await page.getByRole("button", { name: /Try it with/ }).click();
      await page.locator(".timeline canvas").waitFor();
      assert.match(await page.locator(".cm-content").textContent(), /^SELECT i % 10/);
      // One number has one meaning: nothing is predicted before something was changed.
      await page.locator(".what-if .bar-line", { hasText: "move a slider" }).filter({ hasText: "–" }).waitFor();
      // After a restart there are no runs from before.
      await page.locator(".profiles li").first().waitFor();
      await server.end();
      await page.getByRole("button", { name: "Run and analyse" }).click();
      await page.getByText("the server is away").waitFor();
      await server.begin();
      await page.getByText("No query was analysed since the server started").waitFor();
    },
  },
  {
    name: "offers",
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      for (const where of ["sql", "time", "room"]) {
        await visit.open(where);
        await page.getByRole("button", { name: /Load the demo/ }).waitFor();
      }
      await page.getByRole("button", { name: /Load the demo/ }).click();
      await visit.go("overview");
      await page.locator(node("flights")).waitFor();
      await page.waitForFunction((name) => Number(document.querySelector(name)?.dataset.rows) > 500, node("flights"));
      // The replay waits for a server that is away, and goes on after a reload; no row comes twice.
      await server.end();
      await page.getByText("the server is away").waitFor();
      await server.begin();
      const rows = Number(await page.locator(node("flights")).getAttribute("data-rows"));
      await page.waitForFunction(([name, rows]) => Number(document.querySelector(name)?.dataset.rows) > rows + 500, [node("flights"), rows]);
      await page.reload();
      await page.getByText(/of the demo's 27,004 flights were replayed/).waitFor();
      await page.getByRole("button", { name: "Go on" }).click();
      await page.getByRole("progressbar", { name: "progress of the replay" }).waitFor();
      await page.waitForTimeout(2500);
      await page.getByRole("button", { name: "Stop" }).click();
      await page.getByRole("button", { name: "Go on" }).waitFor();
      const [distinct] = await server.sql("SELECT count(*), (SELECT count(*) FROM (SELECT DISTINCT * FROM flights) AS d) FROM flights");
      assert.equal(distinct.rows[0][0], distinct.rows[0][1]);
    },
  },
  {
    name: "expired",
    environment: { MILLRACE_PASSWORD: "right horse" },
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      const as = { Authorization: `Basic ${Buffer.from("millrace:right horse").toString("base64")}` };
      await server.sql(`${ORDERS} CREATE ROLE looker LOGIN PASSWORD 'x'; GRANT SELECT ON revenue TO looker`, as);
      const until = new Date(Date.now() + 6000).toISOString();
      const [made] = await server.sql(`CREATE TOKEN seen FOR ROLE looker VALID UNTIL '${until}'`, as);
      await visit.open("sql");
      await page.getByRole("button", { name: "with a token" }).click();
      // What no token is made of is no token.
      await page.getByLabel("Token").fill("tök en €");
      await page.keyboard.press("Enter");
      await page.getByText("This token is not known").waitFor();
      await page.getByLabel("Token").fill(made.rows[0].find((cell) => String(cell).startsWith("millrace_")));
      await page.keyboard.press("Enter");
      await page.getByRole("button", { name: "looker: log out" }).waitFor();
      await visit.run("SELECT * FROM revenue");
      await page.locator(".result .tag", { hasText: "SELECT" }).waitFor();
      await page.waitForTimeout(6500);
      await page.keyboard.press("Control+Enter");
      await page.getByRole("heading", { name: "Log in" }).waitFor();
      await page.getByText("did not run this: log in, then run it again").waitFor();
      // Somebody else sees nothing of what was shown.
      await page.getByLabel("Role").fill("millrace");
      await page.getByLabel("Password").fill("right horse");
      await page.keyboard.press("Enter");
      await page.getByRole("button", { name: "millrace: log out" }).waitFor();
      assert.equal(await page.locator(".result").count(), 0);
      assert.ok(!(await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]))).includes("revenue"));
    },
  },
];
