// What is promised of the page SQL: nothing that was run is lost, and what is shown is what there is.
import assert from "node:assert/strict";

const ORDERS = "CREATE STREAM orders (customer INT, amount INT); CREATE MATERIALIZED VIEW revenue AS SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer;";
const FOREVER = "SELECT count(*) FROM generate_series(1, 1000000) AS a(i), generate_series(1, 1000000) AS b(j) WHERE (i * j) % 7 = 3";
const rowsOf = (page) => page.locator(".grid-row").evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent).join("|")));
const count = async (server, from) => (await server.sql(`SELECT count(*) FROM ${from}`))[0].rows[0][0];

export const SQL = [
  {
    name: "cut",
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      await server.sql("CREATE TABLE t (id INT, b TEXT)");
      await visit.open("sql");
      // What stands behind a result of which only the beginning is kept is run.
      await visit.run("SELECT i FROM generate_series(1, 300000) AS g(i); INSERT INTO t VALUES (77, 'must be there');");
      await page.locator(".tag", { hasText: "INSERT 0 1" }).waitFor();
      await page.getByText("the first 100,000 rows").waitFor();
      assert.equal(await count(server, "t"), 1);
      await visit.run("BEGIN; INSERT INTO t VALUES (88, 'y'); SELECT i FROM generate_series(1, 300000) AS g(i); COMMIT;");
      await page.locator(".tag", { hasText: "COMMIT" }).waitFor();
      assert.equal(await count(server, "t"), 2);
      await visit.run("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 150000) AS g(i) RETURNING *");
      await page.locator(".tag", { hasText: "INSERT 0 150000" }).waitFor();
      assert.equal(await count(server, "t"), 150002);
      await visit.run("SELECT i FROM generate_series(1, 100000) AS g(i); SELECT 5 AS five");
      await page.getByRole("cell", { name: "5", exact: true }).last().waitFor();
      assert.equal(await page.getByText("the first 100,000 rows").count(), 0);
      // What was not run, and what was rolled back, says so.
      await visit.run("BEGIN; INSERT INTO t VALUES (1, 'a'); SELECT 1 / 0; COMMIT; SELECT 9");
      await page.locator(".not-run", { hasText: "COMMIT" }).waitFor();
      assert.equal(await page.locator(".not-run").count(), 2);
      assert.equal(await page.locator(".why", { hasText: "rolled back" }).count(), 2);
      await visit.run("BEGIN; INSERT INTO t VALUES (1, 'a');");
      await page.getByRole("alert").filter({ hasText: "was rolled back" }).waitFor();
      assert.equal(await count(server, "t"), 150002);
    },
  },
  {
    name: "stays",
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      await server.sql(`${ORDERS} INSERT INTO orders VALUES (1, 40), (2, 25)`);
      await visit.open("sql");
      await visit.run(FOREVER);
      await page.getByRole("button", { name: "Cancel" }).waitFor();
      await visit.go("room");
      await page.locator(".room").waitFor();
      await visit.go("sql");
      // It is still running, and can be cancelled; another one is not begun.
      await page.getByRole("button", { name: "Cancel" }).waitFor();
      await visit.run("SELECT 42 AS answer");
      await page.getByRole("alert").filter({ hasText: "still running" }).waitFor();
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByText("57014").waitFor();
      await page.waitForFunction(async () => (await (await fetch("/api/sql?query=SELECT%20count(*)%20FROM%20mr_catalog.tasks")).json()).results[0].rows[0][0] === 0);
      // What is followed is followed on; the shape in which it is shown too.
      await visit.write("revenue");
      await page.getByRole("button", { name: "Follow live" }).click();
      await page.getByRole("cell", { name: "40" }).waitFor();
      await visit.go("time");
      await page.locator(".time").waitFor();
      await server.sql("INSERT INTO orders VALUES (1, 960)");
      await visit.go("sql");
      await page.getByRole("cell", { name: "1000", exact: true }).waitFor();
      assert.match(await page.locator(".live header").textContent(), /[4-9] changes/);
      await page.getByRole("button", { name: "Stop" }).click();
      // The text is there after a reload, unless there may be a secret in it.
      await visit.write("SELECT 'precious'");
      await page.reload();
      await page.locator(".cm-content", { hasText: "precious" }).waitFor();
      await visit.write("CREATE ROLE r PASSWORD 'hunter2'");
      assert.ok(!(await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]))).includes("hunter2"));
      // An address that is no encoding of anything shows the page all the same.
      await page.goto("about:blank");
      await page.goto(`${server.url}#/overview/%E0%A4%A`);
      await page.locator('.node[data-name="revenue"]').waitFor();
    },
  },
  {
    name: "live-types",
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      await server.sql("CREATE TABLE u (k INT PRIMARY KEY, city TEXT, v INT, n NUMERIC(10,2), d DATE, big BIGINT); INSERT INTO u SELECT i, CASE WHEN i < 3 THEN 'Ulm' ELSE 'Bonn' || i END, NULL, 1.5, date '2024-01-01' + i, 9007199254740993 FROM generate_series(1, 5) AS g(i); CREATE MATERIALIZED VIEW uv AS SELECT city, v, n, d, big, k FROM u; CREATE MATERIALIZED VIEW nothing AS SELECT n FROM u WHERE k > 100");
      await visit.open("sql");
      await visit.write("-- a comment\nSUBSCRIBE TO uv;");
      await page.keyboard.press("Control+Enter");
      await page.locator(".live .grid-row").nth(4).waitFor();
      // Types are those of the server, whatever the first row has.
      const types = await page.locator(".live .grid-head > div").evaluateAll((heads) => heads.map((head) => head.dataset.tip));
      assert.deepEqual(types, ["text", "int4", "numeric", "date", "int8", "int4"]);
      assert.ok((await rowsOf(page))[0].includes("9007199254740993"));
      // The order stays when the first update comes.
      const before = (await rowsOf(page)).map((row) => row.split("|").at(-1));
      await server.sql("UPDATE u SET v = 7 WHERE k = 3");
      await page.getByRole("cell", { name: "7", exact: true }).waitFor();
      assert.deepEqual((await rowsOf(page)).map((row) => row.split("|").at(-1)), before);
      await page.locator(".live").getByRole("button", { name: "Chart" }).click();
      await page.locator(".live .uplot").waitFor();
      assert.deepEqual(await page.locator(".live select").nth(1).locator("option").allTextContents(), ["v", "n", "big", "k"]);
      // Over time the column can be chosen, and rows with the same name are two lines.
      await page.getByRole("button", { name: "Over time" }).click();
      await page.locator(".live .uplot").waitFor();
      await page.locator(".live select").selectOption("n");
      await page.locator(".live .chart-reading", { hasText: /^n/ }).waitFor();
      const lines = await page.locator(".live .u-legend .u-label").allTextContents();
      assert.deepEqual(lines.sort(), ["Bonn3", "Bonn4", "Bonn5", "Ulm", "Ulm (2)"]);
      // Without a row there are columns nevertheless.
      await visit.write("nothing");
      await page.getByRole("button", { name: "Follow live" }).click();
      await page.locator('.live .grid-head > div[data-tip="numeric"]', { hasText: "n" }).waitFor();
      await page.getByText("No rows yet").waitFor();
      // What cannot be followed is underlined where it is wrong.
      await visit.write("SELECT city, nope FROM uv");
      await page.getByRole("button", { name: "Follow live" }).click();
      await page.locator(".error", { hasText: "nope" }).waitFor();
      assert.equal(await page.locator(".cm-lintRange-error").first().textContent(), "nope");
      await page.getByText("not followed").waitFor();
      // What is no relation and no query is said so, before the server is asked.
      for (const [text, said] of [["  -- nothing", "There is nothing to follow"], ["uv; nothing", "Only one can be followed"], ["INSERT INTO u VALUES (9)", "can be run, and not followed"]]) {
        await visit.write(text);
        await page.getByRole("button", { name: "Follow live" }).click();
        await page.getByRole("alert").filter({ hasText: said }).waitFor();
      }
      await visit.write("nonsuch");
      await page.getByRole("button", { name: "Follow live" }).click();
      await page.locator(".error", { hasText: "nonsuch" }).waitFor();
      assert.equal(await page.locator(".cm-lintRange-error").first().textContent(), "nonsuch");
    },
  },
  {
    name: "charts",
    async run(visit) {
      const { page } = visit;
      await visit.open("sql");
      const chart = async (sql) => {
        await visit.run(sql);
        await page.locator(".result .tag", { hasText: "SELECT" }).waitFor();
        await page.locator(".result").getByRole("button", { name: "Chart" }).click();
        await page.locator(".result .uplot").waitFor();
        return page.locator(".result .chart").getAttribute("aria-label");
      };
      assert.match(await chart("SELECT date '2024-01-01' + i AS d, i * i AS v FROM generate_series(1, 50) AS g(i)"), /at last 2024-02-20 .*: 2,500/);
      // A single column is drawn over the number of the row; other columns can be chosen.
      assert.match(await chart("SELECT i * i AS n FROM generate_series(1, 9) AS g(i)"), /^n by row .*at last 9: 81/);
      assert.match(await chart("SELECT i AS id, 'name ' || i AS name, i * 2 AS n FROM generate_series(1, 9) AS g(i)"), /^n by name .*name 9: 18/);
      await page.locator(".result select").first().selectOption("number of the row");
      await page.locator('.result .chart[aria-label^="n by row"]').waitFor();
      assert.match(await chart("SELECT timestamp '2024-01-01 12:00' + i * interval '1 microsecond' AS t, i AS n FROM generate_series(0, 9) AS g(i)"), /12:00:00\.000009: 9/);
      assert.match(await chart("SELECT date '2024-01-01' + i AS d, i * i AS v FROM generate_series(1, 50) AS g(i)"), /at last 2024-02-20 .*: 2,500/);
      // The value at which one points is written above it.
      await page.locator(".result .u-over").hover({ position: { x: 300, y: 100 } });
      await page.locator(".chart-reading b", { hasText: /^2024-0.*: \d/ }).waitFor();
      assert.match(await chart("SELECT i, i * 1e-9::float8 AS small FROM generate_series(1, 9) AS g(i)"), /9: 9\.00e-9/);
      assert.match(await chart("SELECT i, CASE WHEN i = 3 THEN 'NaN'::float8 ELSE i END AS v FROM generate_series(1, 5) AS g(i)"), /5: 5/);
      await page.getByText("1 value is no number that can be drawn").waitFor();
      assert.match(await chart("SELECT i AS at, (i * 1.5)::numeric AS n FROM generate_series(1, 5) AS g(i)"), /5: 7\.5/);
    },
  },
  {
    name: "values",
    async run(visit) {
      const { page, server } = visit;
      await server.sql("CREATE TABLE huge (id INT, v TEXT)");
      for (let at = 0; at < 5; at++) await server.sql(`INSERT INTO huge SELECT ${at}, repeat('x', 3000000)`);
      await visit.open("sql");
      // A value with line feeds or marks of direction stays in its cell.
      await visit.run("SELECT E'a\\nb\\tc' AS lines, U&'\\202Ertl' AS marks, 1 AS one");
      await page.getByRole("cell", { name: "a↵b⇥c" }).waitFor();
      await page.getByRole("cell", { name: "‹U+202E›rtl" }).waitFor();
      // JSON's null is no NULL, and its texts have their quotes.
      await visit.run(`SELECT 'null'::jsonb AS j, NULL::jsonb AS n, '"x"'::jsonb AS t, '{"a": [1, null]}'::jsonb AS o`);
      await page.getByRole("cell", { name: '"x"' }).waitFor();
      assert.deepEqual(await rowsOf(page), ['null|NULL|"x"|{"a": [1, null]}']);
      await page.locator(".tag", { hasText: "SELECT 1" }).waitFor();
      // A long one is cut, and says how long it is; in a detail too.
      await visit.run("SELECT v FROM huge");
      await page.getByRole("cell", { name: "(3,000,000 characters)" }).first().waitFor();
      assert.ok((await page.evaluate(() => document.documentElement.outerHTML.length)) < 500_000);
      await visit.go("overview");
      await page.locator('.node[data-name="huge"]').click();
      await page.locator(".detail").getByRole("cell", { name: "(3,000,000 characters)" }).first().waitFor();
      assert.ok((await page.evaluate(() => document.documentElement.outerHTML.length)) < 500_000);
      await visit.go("sql");
      await visit.run("SELECT 1 AS one");
      await page.locator(".tag", { hasText: "SELECT 1" }).waitFor();
    },
  },
  {
    name: "completion",
    async run(visit) {
      const { page, server } = visit;
      visit.expectsFailures = true;
      await server.sql(`${ORDERS} CREATE TABLE "order" (id INT)`);
      // On Time as well, before SQL was shown.
      for (const where of ["time", "sql"]) {
        // The names are asked for once, functions last.
        const named = where === "time" ? page.waitForResponse((response) => response.request().postData()?.includes("SHOW FUNCTIONS") ?? false) : undefined;
        await visit.open(where);
        await page.locator(".cm-content").waitFor();
        await (await named)?.finished();
        await page.waitForTimeout(200);
        const labels = async (text, back = 0) => {
          await visit.write(text);
          for (let moves = 0; moves < back; moves++) await page.keyboard.press("ArrowLeft");
          await page.keyboard.press("Control+Space");
          await page.locator(".cm-tooltip-autocomplete li").first().waitFor();
          const found = await page.locator(".cm-tooltip-autocomplete .cm-completionLabel").allTextContents();
          await page.keyboard.press("Escape");
          return found;
        };
        assert.deepEqual((await labels("SELECT am FROM orders", " FROM orders".length)).slice(0, 1), ["amount"]);
        assert.ok((await labels("SELECT * FROM mr_catalog.")).includes("relations"));
        assert.ok((await labels("SELECT date_tr")).includes("date_trunc"));
        assert.ok((await labels("SELECT * FROM rev")).includes("revenue"));
        assert.deepEqual((await labels("SELECT o. FROM orders o", " FROM orders o".length)).sort(), ["amount", "customer"]);
      }
      await visit.write("SELECT * FROM orde");
      await page.keyboard.press("Control+Space");
      await page.locator(".cm-tooltip-autocomplete li", { hasText: /^order$/ }).click();
      assert.match(await page.locator(".cm-content").textContent(), /FROM "order"$/);
      // What is run needs no completion any more: its list is gone, and does not come behind it.
      for (const where of ["sql", "time"]) {
        await visit.open(where);
        for (const waits of [0, 400]) {
          await visit.write("");
          await page.keyboard.type("SELECT * FROM orders WHERE amou");
          await page.waitForTimeout(waits);
          await page.keyboard.press("Control+Enter");
          await page.locator(".error").waitFor();
          await page.waitForTimeout(400);
          assert.equal(await page.locator(".cm-tooltip-autocomplete").count(), 0, `${where} ${waits}`);
        }
      }
    },
  },
  {
    name: "keyboard",
    async run(visit) {
      const { page } = visit;
      for (const where of ["sql", "time"]) {
        await visit.open(where);
        const editor = page.locator(".cm-content");
        const keys = page.locator(".editor-keys");
        await editor.waitFor();
        assert.equal(await keys.isVisible(), false);
        await visit.write("SELECT 'a' AS one, 2 AS two");
        await keys.waitFor();
        // What is typed over a selection has no style of its own, which the page's policy would turn away.
        await page.keyboard.press("Control+a");
        await page.keyboard.type("S");
        assert.equal(await editor.textContent(), "S");
        await page.keyboard.type("ELECT 1");
        await page.keyboard.press("Control+z");
        await page.keyboard.press("Control+a");
        await page.keyboard.insertText("SELECT 'over' AS it");
        assert.equal(await editor.textContent(), "SELECT 'over' AS it");
        // A bracket encloses what is selected, as it does when nothing is in its way.
        await page.keyboard.press("Control+a");
        await page.keyboard.type("(");
        assert.equal(await editor.textContent(), "(SELECT 'over' AS it)");
        await page.keyboard.press("Control+a");
        await page.keyboard.insertText("SELECT 1 AS one");
        // The first closes the list of completions, if there is one.
        await page.keyboard.press("Escape");
        await page.keyboard.press("Escape");
        assert.equal(await keys.isVisible(), false);
        await page.keyboard.press("Tab");
        assert.match(await page.evaluate(() => document.activeElement.textContent), /Run/);
        await page.keyboard.press("Enter");
        await page.locator(where === "sql" ? ".result .tag" : ".timeline canvas").waitFor();
        assert.equal(await editor.getAttribute("aria-describedby"), await keys.getAttribute("id"));
      }
    },
  },
  {
    name: "history",
    async run(visit) {
      const { page, server } = visit;
      await visit.open("sql");
      const other = await page.context().newPage();
      await other.goto(`${server.url}#/sql`);
      // Two tabs do not overwrite each other's history.
      const run = async (tab, text) => {
        await tab.locator(".cm-content").click();
        await tab.keyboard.press("Control+a");
        await tab.keyboard.press("Delete");
        await tab.keyboard.insertText(text);
        await tab.keyboard.press("Control+Enter");
        await tab.locator(".result .tag", { hasText: "SELECT" }).waitFor();
        await tab.waitForTimeout(300);
      };
      await run(other, "SELECT 'from the other'");
      await run(page, "SELECT 'from this one'");
      for (const secret of ["SELECT 'x' AS password_hash", "SELECT 'aws_secret_access_key=AKIA' AS b", "SELECT 'tokens millrace_abc' AS d", "SELECT 'postgres://me:hunter2@host/db' AS e"]) await run(page, secret);
      const kept = await page.evaluate(() => localStorage["millrace.history"]);
      assert.ok(kept.includes("from the other") && kept.includes("from this one"), kept);
      assert.ok(!/AKIA|hunter2|millrace_abc|password_hash/.test(kept), kept);
      await other.close();
    },
  },
];
