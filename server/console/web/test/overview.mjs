// What is promised of the overview and of one relation in detail: who is in trouble, and that one can find it.
import assert from "node:assert/strict";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const node = (name) => `.node[data-name="${name}"]`;
const ORDERS = "CREATE STREAM orders (customer INT, amount INT); CREATE MATERIALIZED VIEW revenue AS SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer;";
/** A view whose epoch takes long. */
const SLOW = `CREATE TABLE big (k INT, v INT, t TEXT); INSERT INTO big SELECT i % 1000, i, 'text ' || i FROM generate_series(1, 200000) AS g(i);
CREATE STREAM s (id INT, v INT);
CREATE MATERIALIZED VIEW mult AS SELECT s.id % 10 AS g, count(*) AS c, max(d.t || s.id) AS m, count(DISTINCT d.t) AS n FROM s JOIN big d ON s.v = d.k GROUP BY 1;
INSERT INTO s VALUES (1, 1);`;

export const OVERVIEW = [
  {
    name: "slow-epoch",
    async run(visit) {
      const { page, server } = visit;
      await server.sql(SLOW);
      await visit.open();
      await page.locator(`${node("mult")}.idle`).waitFor();
      void server.sql("INSERT INTO s SELECT i, i % 1000 FROM generate_series(1, 60000) AS g(i)").catch(() => {});
      // One INSERT whose epoch takes long is found, and its age counts as freshness.
      await page.locator(".troubles li.behind", { hasText: /mult its epoch has been under way for \d/ }).waitFor();
      await page.locator(".metric.warn", { hasText: "in trouble" }).filter({ hasText: "1" }).waitFor();
      const fresh = await page.locator(".summary .metric", { hasText: "slowest freshness" }).locator("dd").textContent();
      assert.match(fresh, /\d s$/);
      await page.locator(".troubles li", { hasText: "its tasks wait for room" }).waitFor();
      assert.ok(!(await page.locator(".troubles").textContent()).includes("no rows arrived"));
      // Whoever comes while it is under way sees it too.
      await page.reload();
      await page.locator(".troubles li.behind", { hasText: /mult its epoch has been under way for \d/ }).waitFor();
      await page.locator(node("mult")).click();
      // What is committed can be looked at meanwhile. Who follows it waits, and sees its columns.
      await page.locator(".detail .grid-row").waitFor();
      await page.getByRole("button", { name: "Follow it live" }).click();
      await page.locator(".live .grid-head", { hasText: "g" }).waitFor();
      server.process.kill("SIGTERM");
    },
  },
  {
    name: "errors",
    async run(visit) {
      const { page, server } = visit;
      await server.sql("CREATE TABLE z (v INT); CREATE MATERIALIZED VIEW f AS SELECT 10 / v AS q FROM z; CREATE MATERIALIZED VIEW g WITH (on_error = 'fail') AS SELECT 10 / v AS q FROM z; CREATE MATERIALIZED VIEW over_g AS SELECT count(*) AS n FROM g;");
      await server.sql("INSERT INTO z VALUES (0), (1), (0)");
      await visit.open();
      // A view of which an expression failed is not behind.
      await page.locator(`${node("f")}.errors .badge`, { hasText: /^2 errors$/ }).waitFor();
      await page.locator(`${node("g")}.failed`).waitFor();
      // What reads a failed view is not fresh.
      await page.locator(`${node("over_g")}.behind`).waitFor();
      assert.ok(!(await page.locator(node("over_g")).textContent()).includes("fresh in"));
      await page.locator(".troubles li.behind", { hasText: "it reads g, which has failed" }).waitFor();
      assert.equal(await page.locator(".troubles li", { hasText: /^behind f / }).count(), 0);
      await page.locator(node("f")).click();
      await page.locator(".detail .why.errors", { hasText: /2 errors; the last one: division by zero$/ }).waitFor();
    },
  },
  {
    name: "names",
    async run(visit) {
      const { page, server } = visit;
      await server.sql('CREATE TABLE "order" (id INT, "select" TEXT); INSERT INTO "order" VALUES (1, \'first\'); CREATE SCHEMA x; CREATE TABLE x.t (a INT); CREATE TABLE t (b TEXT); CREATE MATERIALIZED VIEW "user" AS SELECT count(*) AS n FROM "order"; CREATE TABLE "a\u202eb" (i INT)');
      await visit.open();
      for (const name of ["order", "user"]) {
        await page.locator(node(name)).click();
        await page.locator(`.detail[aria-label$="${name}"] .grid-row`).first().waitFor();
        await page.locator(".detail pre", { hasText: "CREATE" }).waitFor();
        assert.equal(await page.locator(".detail .fault").count(), 0);
      }
      await page.getByRole("button", { name: "Where its time goes" }).click();
      await page.locator(".about", { hasText: '"user"' }).waitFor();
      // As long as a name can be, it does not make the page wider.
      const long = "a_name_as_long_as_one_can_be_which_is_sixty_three_letters_long_";
      await server.sql(`CREATE STREAM s_${long.slice(2)} (i INT, ${long} INT); CREATE MATERIALIZED VIEW ${long} AS SELECT i, count(*) AS ${long} FROM s_${long.slice(2)} GROUP BY i`);
      await visit.go("sql");
      await visit.go("time");
      await page.locator(".time-choice select").selectOption(long);
      const feeding = setInterval(() => void server.sql(`INSERT INTO s_${long.slice(2)} VALUES (1, 2)`).catch(() => {}), 200);
      await page.getByRole("button", { name: "Watch for 3 s" }).click();
      await page.locator(".about", { hasText: long }).waitFor();
      await visit.look("long-time", { dark: false });
      clearInterval(feeding);
      const [{ rows: [[id]] }] = await server.sql(`SELECT id FROM mr_catalog.relations WHERE name = '${long}'`);
      for (const where of [`overview/r${id}`, "room"]) {
        await visit.go(where);
        await page.locator(where === "room" ? ".room .uplot" : ".detail .grid-row").first().waitFor();
        await visit.look(`long-${where.slice(0, 4)}`, { dark: false });
      }
      await visit.go("sql");
      await visit.write(long);
      await page.getByRole("button", { name: "Follow live" }).click();
      await page.getByRole("button", { name: "Chart" }).click();
      await page.locator(".live .uplot").waitFor();
      await visit.look("long-live", { dark: false });
      // What has the same name is told apart, and nothing turns the direction of writing.
      await visit.go("overview");
      await page.locator(".node-name b", { hasText: /^x\.t$/ }).waitFor();
      await page.locator(".node-name b", { hasText: /^public\.t$/ }).waitFor();
      await page.locator(".node-name b", { hasText: "U+202E" }).waitFor();
    },
  },
  {
    name: "sink",
    async run(visit) {
      const { page, server } = visit;
      const path = await mkdtemp(join(tmpdir(), "millrace-sink-"));
      await server.sql(`${ORDERS} CREATE SINK slow_files FROM orders WITH (connector = 'file', path = '${path}', format = 'json', type = 'append-only', rollover_seconds = 60)`);
      const feeding = setInterval(() => void server.sql("INSERT INTO orders VALUES (1, 1)").catch(() => {}), 200);
      await visit.open();
      // It keeps rows for as long as it was told to: that is not behind.
      await page.waitForFunction((name) => /1[2-9]\.\d s behind/.test(document.querySelector(name)?.textContent ?? ""), node("slow_files"));
      clearInterval(feeding);
      assert.equal(await page.locator(".troubles").count(), 0);
    },
  },
  {
    name: "detail-of-each",
    async run(visit) {
      const { page, server } = visit;
      await server.sql(`${ORDERS} INSERT INTO orders VALUES (1, 2); CREATE VIEW plain AS SELECT * FROM revenue; CREATE SUBSCRIPTION sub FROM revenue WITH (retention = '1 hour'); CREATE TABLE numbers (i INT); INSERT INTO numbers SELECT i FROM generate_series(1, 50000) AS g(i)`);
      await fetch(`${server.url}api/sql`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ query: "CREATE MATERIALIZED VIEW slow AS SELECT i % 7 AS k, count(*) FROM numbers GROUP BY 1", settings: { background_ddl: "on", backfill_rate_limit: "100" } }),
      });
      await visit.open();
      const buttons = async (name) => {
        await page.locator(node(name)).click();
        await page.locator(`.detail[aria-label$=" ${name}"]`).waitFor();
        await page.waitForTimeout(1200);
        assert.equal(await page.locator(".detail .fault").count(), 0, `${name}: ${await page.locator(".detail").textContent()}`);
        return page.locator(".detail .actions button").allTextContents();
      };
      assert.deepEqual(await buttons("sub"), ["Follow it live"]);
      assert.deepEqual(await buttons("plain"), ["Query it", "Read again"]);
      // A view that is being filled says how far it is, and is not asked for what it cannot have.
      assert.deepEqual(await buttons("slow"), []);
      await page.locator(".detail .why.filling", { hasText: /it is being filled .* % *, .* of 50\.0 k rows/ }).waitFor();
      await page.getByRole("progressbar", { name: "how far slow is filled" }).waitFor();
      // Rows that nobody waits for any more are left, and not cancelled: that would be a failed request where they have come meanwhile.
      let deleted = 0;
      page.on("request", (request) => (deleted += request.method() === "DELETE" ? 1 : 0));
      const isSample = (request) => request.postData()?.includes("SELECT * FROM revenue LIMIT");
      await page.route("**/api/sql", async (route) => {
        if (isSample(route.request())) await new Promise((done) => setTimeout(done, 400));
        await route.fallback().catch(() => {});
      });
      const asked = page.waitForRequest(isSample);
      await page.locator(node("revenue")).click();
      await asked;
      await page.keyboard.press("Escape");
      await page.locator(".detail").waitFor({ state: "detached" });
      await page.waitForTimeout(600);
      assert.equal(deleted, 0);
      await page.unroute("**/api/sql");
      // Escape closes the tooltip first, then the detail, and leads back to its node.
      await page.locator(node("revenue")).focus();
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.activeElement?.classList.contains("detail"));
      await page.locator(".detail .metric").first().focus();
      await page.locator(".tip").waitFor();
      await page.keyboard.press("Escape");
      await page.locator(".tip").waitFor({ state: "detached" });
      assert.equal(await page.locator(".detail").count(), 1);
      await page.keyboard.press("Escape");
      await page.locator(".detail").waitFor({ state: "detached" });
      assert.equal(await page.evaluate(() => document.activeElement?.dataset.name), "revenue");
    },
  },
  {
    name: "many-relations",
    async run(visit) {
      const { page, server } = visit;
      for (let at = 0; at < 60; at++) {
        await server.sql(`CREATE STREAM st_${at} (a INT, b INT); CREATE MATERIALIZED VIEW mv_${at} AS SELECT a, count(*) AS c FROM st_${at} GROUP BY a`);
      }
      await visit.open();
      await page.locator(node("mv_59")).waitFor();
      const isSeen = (name) =>
        page.waitForFunction((selector) => {
          const place = document.querySelector(selector).getBoundingClientRect();
          const detail = document.querySelector(".detail").getBoundingClientRect();
          return place.top >= 52 && place.bottom <= (detail.left < place.left ? detail.top : innerHeight) && place.left >= 0 && place.right <= innerWidth;
        }, node(name));
      // A part of the name is enough, and what was found is in view.
      await page.getByLabel("Find a relation").fill("v_57");
      await page.locator('.detail[aria-label$="mv_57"]').waitFor();
      await isSeen("mv_57");
      await page.getByLabel("Find a relation").fill("no such");
      await page.getByText("No relation is called so").waitFor();
      await page.keyboard.press("Escape");
      await visit.go("overview");
      await page.getByRole("button", { name: "All of it" }).click();
      const height = await page.locator(".graph").evaluate((element) => element.clientHeight);
      assert.ok(height < 800, `${height}`);
      await page.getByRole("button", { name: "To read" }).click();
      await page.setViewportSize({ width: 390, height: 844 });
      await page.getByText("It goes on at the side").or(page.locator(".graph")).first().waitFor();
      const sizes = await page.evaluate(() => {
        const scale = new DOMMatrix(getComputedStyle(document.querySelector(".graph-inner")).transform).a;
        return [".node-name b", ".node-rate", ".node-facts"].map((name) => parseFloat(getComputedStyle(document.querySelector(name)).fontSize) * scale);
      });
      assert.ok(Math.min(...sizes) >= 11, sizes.join());
      await page.getByLabel("Find a relation").fill("mv_41");
      await isSeen("mv_41");
    },
  },
];
