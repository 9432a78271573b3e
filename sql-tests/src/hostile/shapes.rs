//! Shapes of queries and definitions that multiply: joins, grouping sets, subqueries, recursion, windows, functions.

use rand::Rng;

use super::grammar::{Attack, Grammar};

impl Grammar<'_> {
    /// A query or a definition.
    pub(super) fn shape(&mut self) -> Attack {
        let one = |sql: String| Attack::Statements(vec![sql]);
        match self.random.random_range(0..18) {
            0 => one(self.joins()),
            1 => one(self.grouping_sets()),
            2 => one(self.subqueries()),
            3 => one(self.endless()),
            4 => one(self.windows()),
            5 => one(self.wide_values()),
            6 => one(self.ordered_sets()),
            7 => self.functions(),
            8 => self.views_of_views(),
            9 => self.domains(),
            10 => one(self.set_operations()),
            11 => self.many_columns(),
            12 => one(format!(
                "COPY (SELECT {} FROM generate_series(1, {}) AS s(g)) TO STDOUT",
                self.any(),
                self.rows()
            )),
            13 => self.savepoints(),
            16 => self.writes(),
            17 => one(self.constants()),
            14 => one(format!(
                "EXPLAIN ANALYZE SELECT count(*) FROM t, t AS u, t AS w, generate_series(1, {}) AS s(g) WHERE {}",
                self.rows(),
                self.pick(&["t.id = u.id", "t.id < u.id", "t.v ~ u.v", "true"])
            )),
            _ => one(format!(
                "SELECT * FROM t WHERE (id, v) IN ({})",
                (0..self.random.random_range(1..3_000))
                    .map(|key| format!("({key}, 'row {key}')"))
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        }
    }

    fn joins(&mut self) -> String {
        let tables = self.random.random_range(2..30);
        let join = self.pick(&[
            "CROSS JOIN",
            "JOIN",
            "LEFT JOIN",
            "FULL JOIN",
            "NATURAL JOIN",
            "CROSS JOIN LATERAL",
        ]);
        let mut sql = "SELECT count(*) FROM t AS t0".to_owned();
        for table in 1..tables {
            let before = table - 1;
            sql.push_str(&match join {
                "CROSS JOIN" | "NATURAL JOIN" => format!(" {join} t AS t{table}"),
                "CROSS JOIN LATERAL" => format!(
                    " {join} (SELECT t{before}.id AS id, v FROM t WHERE id > t{before}.id) AS t{table}"
                ),
                _ => format!(
                    " {join} t AS t{table} ON t{table}.id {} t{before}.id",
                    self.pick(&["=", "<", "= 1 +", "<> ALL (SELECT id FROM t) OR 1 ="])
                ),
            });
        }
        sql
    }

    fn grouping_sets(&mut self) -> String {
        let columns = self.random.random_range(1..30);
        let names: Vec<String> = (0..columns)
            .map(|column| format!("id % {}", column + 2))
            .collect();
        let names = names.join(", ");
        match self.random.random_range(0..3) {
            0 => format!("SELECT count(*) FROM t GROUP BY CUBE ({names})"),
            1 => format!("SELECT count(*) FROM t GROUP BY ROLLUP ({names}), CUBE ({names})"),
            _ => format!(
                "SELECT count(DISTINCT v) FROM t GROUP BY GROUPING SETS (({names}), ROLLUP ({names}), ())"
            ),
        }
    }

    fn subqueries(&mut self) -> String {
        let depth = self.random.random_range(1..40);
        let frame = self.pick(&[
            "(SELECT max({}) FROM t AS t# WHERE t#.id <= t^.id)",
            "CASE WHEN EXISTS (SELECT 1 FROM t AS t# WHERE t#.id = t^.id AND {} > 0) THEN 1 ELSE 0 END",
            "(SELECT count(*) FROM t AS t# WHERE t#.id IN (SELECT id FROM t WHERE id > {}))",
            "coalesce({}, {})",
            "nullif({}, {} / 2)",
        ]);
        let mut value = format!("t{depth}.id");
        for level in (1..=depth).rev() {
            if value.len() > 100_000 {
                break;
            }
            let frame = frame
                .replace('#', &level.to_string())
                .replace('^', &(level - 1).to_string());
            value = frame.replace("{}", &value);
        }
        format!("SELECT {value} FROM t AS t0")
    }

    fn endless(&mut self) -> String {
        let step = self.pick(&[
            "n + 1",
            "n",
            "n * 2",
            "n / 2",
            "CASE WHEN n < 5 THEN n + 1 ELSE n END",
        ]);
        let union = self.pick(&["UNION ALL", "UNION"]);
        let from = self.pick(&["r", "r, t", "r JOIN t ON t.id >= r.n", "r WHERE n < 100000000"]);
        let value = self.pick(&[
            "n",
            "sum(n)",
            "count(*)",
            "string_agg(n::text, ',')",
            "array_agg(n)",
        ]);
        format!(
            "WITH RECURSIVE r(n) AS (SELECT 1::numeric {union} SELECT {step} FROM {from}) SELECT {value} FROM r"
        )
    }

    fn windows(&mut self) -> String {
        let count = self.random.random_range(1..60);
        let function = self.pick(&[
            "sum(g)",
            "array_agg(g)",
            "string_agg(g::text, ',')",
            "ntile(7)",
            "count(*)",
        ]);
        let frame = self.pick(&[
            "",
            " ROWS BETWEEN 9223372036854775807 PRECEDING AND 9223372036854775807 FOLLOWING",
            " RANGE BETWEEN 5 PRECEDING AND 2147483647 FOLLOWING",
            " GROUPS BETWEEN UNBOUNDED PRECEDING AND 3 FOLLOWING EXCLUDE TIES",
        ]);
        let calls: Vec<String> = (1..=count)
            .map(|number| {
                format!("{function} OVER (PARTITION BY g % {number} ORDER BY g{frame}) AS c{number}")
            })
            .collect();
        format!(
            "SELECT {} FROM generate_series(1, {}) AS s(g)",
            calls.join(", "),
            self.rows()
        )
    }

    fn wide_values(&mut self) -> String {
        let columns = self.random.random_range(1..2_000);
        let rows = self.random.random_range(1..200);
        let value = self.pick(&["1", "NULL", "'ab'", "repeat('a', 1000)", "ARRAY[1, 2]", "now()"]);
        let row = format!("({})", vec![value; columns].join(","));
        format!(
            "SELECT * FROM (VALUES {}) AS v ORDER BY 1",
            vec![row; rows].join(",")
        )
    }

    fn ordered_sets(&mut self) -> String {
        let call = self.pick(&[
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY g)",
            "percentile_disc(ARRAY[0, 0.5, 1]) WITHIN GROUP (ORDER BY x)",
            "mode() WITHIN GROUP (ORDER BY x)",
            "string_agg(x, x ORDER BY x DESC)",
            "array_agg(DISTINCT x ORDER BY x)",
            "jsonb_agg(x)",
            "jsonb_object_agg(x, x)",
            "count(DISTINCT (x, g))",
        ]);
        format!(
            "SELECT {call} FROM (SELECT g, {} AS x FROM generate_series(1, {}) AS s(g)) AS q",
            self.text(2),
            self.rows()
        )
    }

    fn functions(&mut self) -> Attack {
        let body = match self.random.random_range(0..4) {
            0 => "SELECT f(n + 1)".to_owned(),
            1 => "SELECT f(n) + f(n) + f(n)".to_owned(),
            2 => format!("SELECT length({})::bigint", self.text(2)),
            _ => "SELECT CASE WHEN n > 1 THEN g(n - 1) + g(n - 2) ELSE n END".to_owned(),
        };
        Attack::Statements(vec![
            format!("CREATE OR REPLACE FUNCTION f(n bigint) RETURNS bigint LANGUAGE sql AS $$ {body} $$"),
            "CREATE OR REPLACE FUNCTION g(n bigint) RETURNS bigint LANGUAGE sql AS $$ SELECT f(f(n)) + f(n) $$".to_owned(),
            "SELECT f(id), g(id) FROM t".to_owned(),
            "DROP FUNCTION IF EXISTS g".to_owned(),
            "DROP FUNCTION IF EXISTS f".to_owned(),
        ])
    }

    fn views_of_views(&mut self) -> Attack {
        let count = self.random.random_range(1..40);
        let each = self.pick(&[
            "SELECT a.id, a.v FROM {} a, {} b",
            "SELECT id, v || v AS v FROM {}",
            "SELECT id, v FROM {} UNION ALL SELECT id, v FROM {}",
            "SELECT id, (SELECT max(v) FROM {}) AS v FROM {}",
        ]);
        let mut statements = vec!["CREATE VIEW h0 AS SELECT id, v FROM t".to_owned()];
        for view in 1..=count {
            let before = format!("h{}", view - 1);
            statements.push(format!("CREATE VIEW h{view} AS {}", each.replace("{}", &before)));
        }
        statements.push(format!("SELECT count(*), max(length(v)) FROM h{count}"));
        statements.push("DROP VIEW IF EXISTS h0 CASCADE".to_owned());
        Attack::Statements(statements)
    }

    fn domains(&mut self) -> Attack {
        let value = self.text(2);
        let pattern = self.pattern();
        Attack::Statements(vec![
            format!(
                "CREATE DOMAIN hd AS text CHECK (VALUE ~ ({pattern}) OR length(VALUE) < {})",
                self.times()
            ),
            format!(
                "SELECT ({value})::hd FROM generate_series(1, {}) AS s(g)",
                self.rows()
            ),
            "DROP DOMAIN IF EXISTS hd".to_owned(),
        ])
    }

    fn set_operations(&mut self) -> String {
        let count = self.random.random_range(2..400);
        let operator = self.pick(&[
            " UNION ALL ",
            " UNION ",
            " INTERSECT ",
            " EXCEPT ",
            " EXCEPT ALL ",
        ]);
        let each = self.pick(&[
            "SELECT id, v FROM t",
            "SELECT 1, 'a'",
            "(SELECT id, v FROM t ORDER BY v LIMIT 3)",
            "TABLE t",
        ]);
        vec![each; count].join(operator)
    }

    fn many_columns(&mut self) -> Attack {
        let count = *[10, 500, 1_700, 5_000]
            .get(self.random.random_range(0..4))
            .unwrap_or(&10);
        let columns: Vec<String> = (0..count)
            .map(|column| format!("c{column} int DEFAULT {column}"))
            .collect();
        Attack::Statements(vec![
            format!("CREATE TABLE wide ({})", columns.join(", ")),
            "INSERT INTO wide (c0) SELECT g FROM generate_series(1, 300) AS s(g)".to_owned(),
            "SELECT * FROM wide a JOIN wide b ON a.c0 = b.c0 ORDER BY a.c1, b.c2".to_owned(),
            "UPDATE wide SET c1 = c0 + 1".to_owned(),
            "DROP TABLE IF EXISTS wide".to_owned(),
        ])
    }

    /// A table of its own that is filled, and changed as a whole.
    fn writes(&mut self) -> Attack {
        let mut statements = vec![
            "DROP TABLE IF EXISTS written".to_owned(),
            format!(
                "CREATE TABLE written AS SELECT g AS id, {}::text AS v FROM generate_series(1, {}) AS s(g)",
                self.any(),
                self.rows()
            ),
        ];
        for _ in 0..self.random.random_range(1..4) {
            statements.push(match self.random.random_range(0..6) {
                0 => format!("UPDATE written SET v = {}", self.literal()),
                1 => format!("UPDATE written SET v = v || {}", self.text(1)),
                2 => format!(
                    "ALTER TABLE written ADD COLUMN IF NOT EXISTS w TEXT DEFAULT {}",
                    self.literal()
                ),
                3 => "INSERT INTO written SELECT * FROM written".to_owned(),
                4 => format!(
                    "DELETE FROM written WHERE id % 2 = 0 RETURNING id, {}",
                    self.literal()
                ),
                _ => format!(
                    "MERGE INTO written USING own ON written.id = own.id WHEN MATCHED THEN UPDATE SET v = {} \
                     WHEN NOT MATCHED THEN INSERT (id, v) VALUES (own.id, {})",
                    self.literal(),
                    self.literal()
                ),
            });
        }
        statements.push("DROP TABLE IF EXISTS written".to_owned());
        Attack::Statements(statements)
    }

    /// Constants that stand in each row of what is only counted.
    fn constants(&mut self) -> String {
        let chosen = format!(
            "CASE WHEN g > 5 THEN {} WHEN g > 2 THEN {} ELSE {} END",
            self.literal(),
            self.literal(),
            self.literal()
        );
        let counted = self.pick(&[
            "max(length(x))",
            "count(DISTINCT x)",
            "max(x)",
            "count(x || x)",
            "min(upper(x))",
        ]);
        let rows = self.rows();
        match self.random.random_range(0..3) {
            0 => format!(
                "SELECT {counted} FROM (SELECT {chosen} AS x FROM generate_series(1, {rows}) AS s(g)) AS q"
            ),
            1 => format!(
                "SELECT {counted} FROM (SELECT {} AS x FROM generate_series(1, {rows}) AS s(g) WHERE {chosen} > 'a') AS q",
                self.literal()
            ),
            _ => format!(
                "SELECT {counted} FROM (SELECT {chosen} AS x, g FROM generate_series(1, {rows}) AS s(g)) AS q GROUP BY g % 3 ORDER BY 1"
            ),
        }
    }

    fn savepoints(&mut self) -> Attack {
        let count = self.random.random_range(1..300);
        let mut statements = vec!["BEGIN".to_owned()];
        for number in 0..count {
            statements.push(format!("SAVEPOINT s{number}"));
            statements.push(format!("INSERT INTO own VALUES ({number}, {})", self.literal()));
        }
        statements.push(format!("ROLLBACK TO s{}", self.random.random_range(0..count)));
        statements.push("SELECT count(*), max(length(v)) FROM own".to_owned());
        statements.push("ROLLBACK".to_owned());
        Attack::Statements(statements)
    }
}
